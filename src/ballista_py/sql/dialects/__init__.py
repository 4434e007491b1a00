"""Statements of other dialects, read so that they mean here what they mean there, or refused by their pieces."""
