"""Writes by many processes: files that lie ready until their write is committed as a whole."""
