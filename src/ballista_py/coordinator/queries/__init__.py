"""Queries: planned, run by legs, planned again when owners changed, merged."""
