"""A whole cluster in virtual time."""
