"""`ballista-py table-server`: a Coordinator and Server of Table Read over a folder of plain Parquet files."""
