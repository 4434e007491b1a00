"""Statements that change rows: routed to owners, prepared, decided, applied."""
