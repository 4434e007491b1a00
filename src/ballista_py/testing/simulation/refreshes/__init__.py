"""Refreshes in virtual time: schedulers that pause, die and come back, over the real slots and publications."""
