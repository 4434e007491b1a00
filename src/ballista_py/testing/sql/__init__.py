"""Generated statements, compared with a single node."""
