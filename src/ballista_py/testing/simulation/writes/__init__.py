"""The write path in virtual time."""
