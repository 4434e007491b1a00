"""DuckDB as the engine of a node."""
