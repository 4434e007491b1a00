"""Grants and their tokens: who reads which rows of a read job, and what counts; without I/O."""
