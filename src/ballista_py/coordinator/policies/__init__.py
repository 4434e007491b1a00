"""Policies at a scheduler: what a client sees of the catalog, and what he may do."""
