"""Definitions of tables: CREATE and DROP, the catalog, and Spark as a library."""
