"""Parquet and Vortex files."""
