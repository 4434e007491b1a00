"""Garbage, compaction, verification, repair."""
