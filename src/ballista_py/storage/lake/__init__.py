"""Tables that lie elsewhere as Iceberg, Delta or Parquet: their snapshots, which files are read, and their rows."""
