"""Plain Parquet files of a folder that no cluster keeps: which there are, which tables they are, and their rows."""
