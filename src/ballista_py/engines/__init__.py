"""SQL over the partitions that a node holds and over the streams it receives. DuckDB is the default."""
