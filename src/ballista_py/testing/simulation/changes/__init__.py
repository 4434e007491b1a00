"""Tables that follow a source, in virtual time."""
