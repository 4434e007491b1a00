"""Partitions that an executor holds loaded."""
