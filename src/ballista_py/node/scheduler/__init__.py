"""A scheduler: its wiring."""
