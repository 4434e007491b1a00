"""Polars as the engine of an executor."""
