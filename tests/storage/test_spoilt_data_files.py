"""A data file that somebody spoilt, its checksum in the manifest with it, is read or refused, and nothing else."""

from __future__ import annotations

import os

import pyarrow as pa
import pytest
from attrs import evolve

from ballista_py.errors import BallistaError, DocumentUnreadable
from ballista_py.runtime import seeded_chance
from ballista_py.state.stores.local import LocalStore
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.storage.formats.files import checksum, read_data_file, write_data_file

SCHEMA = pa.schema(
    [("id", pa.int64()), ("v", pa.string()), ("l", pa.list_(pa.int32())), ("t", pa.timestamp("us", "UTC"))]
)
ROWS = pa.table(
    {"id": range(50), "v": [f"x{n}" for n in range(50)], "l": [[n] * 3 for n in range(50)], "t": range(50)},
    schema=SCHEMA,
)


def written():
    store = MemoryStore()
    file = write_data_file(store, "snapshots/t/data/run/0.parquet", ROWS)
    return file, store.get(file.path).data


def read(file, data):
    store = MemoryStore()
    store.create(file.path, data)
    return read_data_file(store, evolve(file, bytes=len(data), checksum=checksum(data)), SCHEMA)


def test_spoilt_bytes_of_a_file_are_read_or_refused():
    file, good = written()
    refused = []
    for seed in range(400):
        chance, data = seeded_chance(seed), bytearray(good)
        first = len(data) - 900 if chance.random() < 0.6 else 0  # its footer, most of the time
        for _ in range(chance.randint(1, 6)):
            data[chance.randrange(first, len(data))] = chance.randrange(256)
        try:
            read(file, bytes(data)).validate(full=True)
        except BallistaError as error:
            refused.append(error.message)
    assert len(refused) > 150
    assert all(map(str.isprintable, refused))


def test_names_of_columns_that_are_no_text_are_those_of_a_damaged_file():
    file, good = written()
    spoilt = good.replace(b"\x18\x02id", b"\x18\x02\xff\xfe")
    assert spoilt != good
    with pytest.raises(DocumentUnreadable, match="is missing, damaged or no Parquet file"):
        read(file, spoilt)


def test_a_file_that_grew_beyond_its_manifest_is_not_read(tmp_path):
    store = LocalStore(str(tmp_path))
    file = write_data_file(store, "snapshots/t/data/run/0.parquet", ROWS)
    with open(store.local_path(file.path), "ab") as opened:
        os.truncate(opened.fileno(), 1 << 40)  # more than there is memory; it takes no room
    with pytest.raises(DocumentUnreadable, match="has more than"):
        read_data_file(store, file, SCHEMA)
