"""Tables that are altered, renamed and replaced while they are read and written, in virtual time."""
