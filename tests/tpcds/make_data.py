"""Writes the TPC-DS tables as Parquet and the queries as JSON: `python make_data.py SCALE FOLDER`.

Runs in the environment that `scripts/bootstrap.py dev` makes for it, because the generator's wheels belong to an
older DuckDB than ours.
"""

import json
import sys
from pathlib import Path

import duckdb
import duckdb_extensions


def main() -> None:
    """Generate into a folder that is complete or not there."""
    scale, folder = float(sys.argv[1]), Path(sys.argv[2])
    part = folder.with_name(folder.name + ".part")
    part.mkdir(parents=True, exist_ok=True)
    duckdb_extensions.import_extension("tpcds")
    connection = duckdb.connect()
    connection.execute("load tpcds")
    connection.execute(f"call dsdgen(sf = {scale})")
    for (table,) in connection.execute("select table_name from duckdb_tables()").fetchall():
        connection.execute(f"copy {table} to '{part / table}.parquet' (format parquet)")
    queries = connection.execute("select query_nr, query from tpcds_queries() order by 1").fetchall()
    texts = {f"q{number:02}": text.strip().rstrip(";") for number, text in queries}
    (part / "queries.json").write_text(json.dumps(texts))
    part.rename(folder)


if __name__ == "__main__":
    main()
