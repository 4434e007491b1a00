"""The files of a table as Spark reads them for an append: in place, or copies that hold the rows that are left."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from attrs import evolve

from ballista_py.errors import ConfigError, DocumentUnreadable
from ballista_py.spark.append import on_this_machine
from ballista_py.state.stores.local import LocalStore
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.storage.formats.files import write_data_file, write_deletion_vector

ROWS = pa.table({"n": range(10), "word": [None, *"abcdefghi"]})


def numbers(paths: list[str]) -> list[list[int]]:
    return [pq.read_table(path)["n"].to_pylist() for path in paths]


@pytest.mark.parametrize("kind", ["memory", "local"])
def test_rows_that_a_deletion_vector_takes_away_are_not_held(kind, tmp_path):
    store = MemoryStore() if kind == "memory" else LocalStore(str(tmp_path))
    whole = write_data_file(store, "snapshots/t/data/a.parquet", ROWS)
    vector = write_deletion_vector(store, "snapshots/t/data/b.deletions", whole, np.array([0, 9]))
    with on_this_machine(store, [whole, vector]) as paths:
        assert numbers(paths) == [list(range(10)), list(range(1, 9))]
        assert pq.read_schema(paths[1]).equals(pq.read_schema(paths[0]))
    assert kind == "local" or not any(Path(path).exists() for path in paths)
    with on_this_machine(store, [whole]) as paths:
        assert (paths == [str(tmp_path / whole.path)]) is (kind == "local")


def test_files_that_spark_does_not_read_are_named_by_the_format_of_their_rows():
    store = MemoryStore()
    vortex = write_data_file(store, "a.vortex", ROWS, "vortex")
    for file in (vortex, write_deletion_vector(store, "b", vortex, np.array([1]))):
        with pytest.raises(ConfigError, match="vortex"), on_this_machine(store, [file]):
            pass


def test_a_spoilt_original_gives_no_rows():
    store = MemoryStore()
    whole = write_data_file(store, "a", ROWS)
    vector = write_deletion_vector(store, "b", whole, np.array([1]))
    assert vector.original is not None
    spoilt = evolve(vector, original=evolve(vector.original, checksum="crc32:00000000"))
    with pytest.raises(DocumentUnreadable, match="damaged"), on_this_machine(store, [spoilt]):
        pass
