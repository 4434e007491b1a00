"""A file of a client that is spoilt anywhere is refused in one line that names it, whatever Arrow says of it."""

from __future__ import annotations

import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ballista_py.errors import ConfigError, SchemaMismatch
from ballista_py.sql.parse.copies import CopyFrom
from ballista_py.transport.client.copies import file_rows

COLUMNS = {"id": "BIGINT", "v": "VARCHAR"}
ROWS = pa.table({"id": range(5_000), "v": [f"value {n % 700}" for n in range(5_000)]})


def read(path):
    return sum(batch.num_rows for batch in file_rows(copy_of(path), COLUMNS, {}).batches())


def copy_of(path):
    return CopyFrom(table="t", columns=None, path=str(path), format="parquet", options=())


@pytest.mark.parametrize("form", ["none", "zstd"])
def test_a_parquet_file_that_is_spoilt_anywhere_is_named(tmp_path, form):
    path = tmp_path / "rows.parquet"
    pq.write_table(ROWS, path, compression=form, row_group_size=1_000)
    whole, machine = path.read_bytes(), random.Random(7)
    assert read(path) == 5_000
    refused = 0
    for case in range(150):
        spoilt = bytearray(whole)
        for _ in range(1 + case % 3):
            spoilt[machine.randrange(len(spoilt))] = machine.randrange(256)
        if case % 5 == 0:
            del spoilt[machine.randrange(len(spoilt)) :]
        path.write_bytes(spoilt)
        try:
            read(path)
        except (ConfigError, SchemaMismatch) as error:
            refused += 1
            said = error.message
            if "cannot be read" not in said or "\n" in said or str(path) not in said:
                raise
    assert refused > 40


def test_what_is_found_in_the_midst_of_a_file_is_said_of_the_file(tmp_path):
    path = tmp_path / "rows.parquet"
    pq.write_table(ROWS, path, compression="zstd", row_group_size=1_000)
    whole = bytearray(path.read_bytes())
    place = len(whole) // 2
    whole[place : place + 200] = b"\0" * 200
    path.write_bytes(whole)
    rows = file_rows(copy_of(path), COLUMNS, {})  # its end is whole, so nothing is known yet
    with pytest.raises(ConfigError, match=r"rows.parquet' cannot be read: "):
        list(rows.batches())
