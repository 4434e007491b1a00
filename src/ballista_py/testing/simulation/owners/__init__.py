"""Owners with the real code of writes, in virtual time."""
