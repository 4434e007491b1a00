"""Arrow Flight SQL: what clients that know nothing of ballista_py speak on the public port."""
