"""Expressions that partition a table. Pure."""
