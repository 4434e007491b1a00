"""Stores and links that fail."""
