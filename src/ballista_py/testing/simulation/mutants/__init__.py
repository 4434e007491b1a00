"""Deliberate faults that the simulation must find."""
