"""Keeps tables up with their sources and free of old rows: slots, of which one scheduler does each."""
