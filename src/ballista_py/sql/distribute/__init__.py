"""Fragments for the legs, and their merge."""
