"""Data files: exact, checked, described by their footers; the cache is bounded."""

from __future__ import annotations

import datetime as dt
import math
import os
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from attrs import evolve

from ballista_py.errors import ConfigError, DocumentUnreadable, ObjectExists, ObjectMissing, SchemaMismatch
from ballista_py.storage.formats.files import describe_data_file, read_data_file, write_data_file
from ballista_py.storage.formats.formats import file_format
from ballista_py.storage.formats.statistics import parse_bound
from ballista_py.storage.held.cache import CacheStats, FileCache
from ballista_py.storage.held.cache_folder import stem_of
from ballista_py.storage.manifest import DataFile

TABLE = pa.table(
    {
        "n": [3, None, -7],
        "f": [1.5, float("nan"), -0.25],
        "s": ["b", None, "a"],
        "d": [dt.date(2026, 1, 2), dt.date(1999, 12, 31), None],
        "m": pa.array([Decimal("1.10"), Decimal("-2.00"), None], pa.decimal128(15, 2)),
        "t": pa.array([dt.datetime(2026, 1, 2, 3, 4, 5), None, None], pa.timestamp("us", "UTC")),
        "flag": [True, False, None],
        "nothing": pa.array([None, None, None], pa.int32()),
        "items": [[1], None, []],
        "long": ["x" * 100, "y", "z"],
    }
)


def test_a_data_file_comes_back_exactly(store):
    file = write_data_file(store, "snapshots/t/data/a.parquet", TABLE)
    read = read_data_file(store, file, TABLE.schema)
    assert read.schema.equals(TABLE.schema)
    assert str(read.to_pylist()) == str(TABLE.to_pylist())  # as text, because NaN != NaN


def test_a_data_file_is_described_by_its_footer(store):
    file = write_data_file(store, "snapshots/t/data/a.parquet", TABLE)
    assert (file.rows, file.bytes) == (3, len(store.get(file.path).data))
    assert describe_data_file(store, file.path) == file
    bounds = {
        name: (
            parse_bound(c.min, TABLE.schema.field(name).type),
            parse_bound(c.max, TABLE.schema.field(name).type),
        )
        for name, c in file.columns.items()
        if c.min is not None and c.max is not None
    }
    assert bounds["n"] == (-7, 3)
    assert bounds["s"] == ("a", "b")
    assert bounds["d"] == (dt.date(1999, 12, 31), dt.date(2026, 1, 2))
    assert bounds["m"] == (Decimal("-2.00"), Decimal("1.10"))
    assert bounds["t"][0].replace(tzinfo=None) == dt.datetime(2026, 1, 2, 3, 4, 5)
    assert bounds["flag"] == (False, True)
    assert "f" not in bounds or not any(map(math.isnan, bounds["f"]))
    assert file.columns["n"].null_count == 1
    assert (file.columns["nothing"].min, file.columns["nothing"].null_count) == (None, 3)
    assert "items" not in file.columns
    assert file.columns["long"].min is None


def test_a_written_file_is_never_overwritten(store):
    write_data_file(store, "snapshots/t/data/a.parquet", TABLE)
    with pytest.raises(ObjectExists):
        write_data_file(store, "snapshots/t/data/a.parquet", TABLE.slice(0, 1))


def test_damaged_truncated_and_missing_files_are_named(store):
    file = write_data_file(store, "snapshots/t/data/a.parquet", TABLE)
    data = store.get(file.path).data
    flipped = bytearray(data)
    flipped[40] ^= 1
    store.create("damaged", bytes(flipped))
    store.create("short", data[:-9])
    store.create("text", b"hello")
    with pytest.raises(DocumentUnreadable, match=r"'damaged' is damaged: its checksum"):
        read_data_file(store, evolve(file, path="damaged"), TABLE.schema)
    with pytest.raises(DocumentUnreadable, match="'short' holds"):
        read_data_file(store, evolve(file, path="short"), TABLE.schema)
    with pytest.raises(DocumentUnreadable, match="'text'"):
        describe_data_file(store, "text")
    with pytest.raises((ObjectMissing, DocumentUnreadable), match="'none'"):
        describe_data_file(store, "none")
    with pytest.raises(ObjectMissing):
        read_data_file(store, evolve(file, path="none"), TABLE.schema)


def test_a_column_that_is_missing_is_no_column_of_nulls(store):
    file = write_data_file(store, "snapshots/t/data/a.parquet", TABLE.select(["n"]))
    with pytest.raises(SchemaMismatch, match="no single column 'f'"):
        read_data_file(store, file, TABLE.schema)


def test_old_spark_timestamps_are_read_beyond_the_year_2262(store, tmp_path):
    days = pa.table({"t": pa.array([dt.datetime(2500, 1, 1), dt.datetime(1677, 1, 1)], pa.timestamp("us"))})
    pq.write_table(days, tmp_path / "x.parquet", use_deprecated_int96_timestamps=True)
    store.create("x.parquet", (tmp_path / "x.parquet").read_bytes())
    file = describe_data_file(store, "x.parquet")
    schema = pa.schema([("t", pa.timestamp("us", "UTC"))])
    found = read_data_file(store, file, schema)["t"].to_pylist()
    assert [value.replace(tzinfo=None) for value in found] == days["t"].to_pylist()


# The cache. On a local store files are used in place; the rest is about copies.


@pytest.fixture
def far(store):
    """The store with its files out of reach of other programs, as on S3."""

    class Far:
        get = staticmethod(store.get)

    return Far()


def test_a_local_store_is_read_in_place(store, tmp_path):
    file = write_data_file(store, "snapshots/t/data/a.parquet", TABLE)
    cache = FileCache(store, str(tmp_path / "cache"))
    copy = cache.acquire(file)
    in_place = copy.path.startswith(str(tmp_path / "state"))
    assert in_place == (cache.stats().bytes == 0)
    assert pq.read_metadata(copy.path).num_rows == 3
    cache.release([copy])


def test_a_copy_is_checked_and_reused(store, far, tmp_path):
    file = write_data_file(store, "snapshots/t/data/a.parquet", TABLE)
    cache = FileCache(far, str(tmp_path / "cache"))
    first = cache.acquire(file)
    store.broken.add(file.path)
    assert cache.acquire(file) == first
    cache.release([first, first])
    assert cache.stats() == CacheStats(files=1, bytes=file.bytes, reused=1, fetched=1, fetched_bytes=file.bytes)
    with pytest.raises(DocumentUnreadable):
        FileCache(far, str(tmp_path / "other")).acquire(
            evolve(file, path=write_data_file(store, "b", TABLE).path, checksum="crc32:00000000")
        )
    assert os.listdir(tmp_path / "other") == []


def test_copies_outlive_the_process_that_made_them(store, far, tmp_path):
    file = write_data_file(store, "f", TABLE)
    before = FileCache(far, str(tmp_path / "cache"))
    before.release([before.acquire(file)])
    store.broken.add(file.path)
    after = FileCache(far, str(tmp_path / "cache"))
    assert pq.read_metadata(after.acquire(file).path).num_rows == 3
    assert (after.stats().reused, after.stats().fetched) == (1, 0)


@pytest.mark.parametrize("form", [None, "vortex"])
@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda data: data[:40] + b"XX" + data[42:]])
def test_a_copy_that_was_damaged_is_dropped_and_fetched_anew(store, far, tmp_path, damage, form):
    file = write_data_file(store, "f", TABLE)
    before = FileCache(far, str(tmp_path / "cache"), format=form)
    (copy,) = [before.acquire(file, TABLE.schema)]
    before.release([copy])
    lying = Path(copy.path)
    lying.write_bytes(damage(lying.read_bytes()))
    after = FileCache(far, str(tmp_path / "cache"), format=form)
    found = after.acquire(file, TABLE.schema)
    read = pa.Table.from_batches(file_format(found.format).read_batches(found.path, TABLE.schema, "f"))
    assert repr(read.to_pylist()) == repr(TABLE.to_pylist())  # NaN is equal to nothing
    assert (after.stats().damaged, after.stats().fetched, after.stats().files) == (1, 1, 1)


def test_copies_are_vortex_while_the_store_holds_parquet(store, tmp_path):
    file = write_data_file(store, "f", TABLE)
    cache = FileCache(store, str(tmp_path / "cache"), format="vortex")
    copy = cache.acquire(file, TABLE.schema)
    assert copy.format == "vortex"
    assert copy.path.startswith(str(tmp_path / "cache"))
    read = pa.Table.from_batches(file_format("vortex").read_batches(copy.path, TABLE.schema, "f"))
    assert repr(read.to_pylist()) == repr(TABLE.to_pylist())  # NaN is equal to nothing
    cache.release([copy])
    odd = pa.table({"took": pa.array([1], pa.duration("us"))})
    kept = cache.acquire(write_data_file(store, "g", odd), odd.schema)
    assert kept.format == "parquet"


def test_copies_never_take_more_than_the_bound_once_they_are_not_in_use(store, far, tmp_path):
    files = [write_data_file(store, f"f{k}", TABLE) for k in range(6)]
    bound = files[0].bytes * 2 + 10
    cache = FileCache(far, str(tmp_path / "cache"), max_bytes=bound)
    in_use = cache.acquire(files[0])
    for file in files[1:]:
        cache.release([cache.acquire(file)])
        assert os.path.exists(in_use.path)
        assert cache.stats().bytes <= bound
    cache.release([in_use])
    on_disk = sum(entry.stat().st_size for entry in os.scandir(tmp_path / "cache"))
    assert on_disk == cache.stats().bytes <= bound
    smaller = FileCache(far, str(tmp_path / "cache"), max_bytes=files[0].bytes)
    assert smaller.stats().files == 1
    smaller.clear()
    assert os.listdir(tmp_path / "cache") == []


def test_many_readers_of_one_file_share_it(store, far, tmp_path, together):
    file = write_data_file(store, "f", TABLE)
    cache = FileCache(far, str(tmp_path / "cache"), max_bytes=0)

    def use():
        copy = cache.acquire(file)
        rows = pq.read_metadata(copy.path).num_rows
        cache.release([copy])
        return rows

    assert together(*[use] * 8) == [3] * 8
    assert cache.stats().bytes == 0


def test_a_copy_stays_for_as_long_as_anybody_reads_it(store, far, tmp_path):
    file = write_data_file(store, "f", TABLE)
    cache = FileCache(far, str(tmp_path / "cache"), max_bytes=0)
    copies = [cache.acquire(file) for _ in range(3)]
    for copy in copies[:-1]:
        cache.release([copy])
        assert os.path.exists(copies[-1].path)
    cache.release(copies[-1:])
    assert not os.path.exists(copies[-1].path)


def test_a_copy_in_another_format_is_of_the_columns_that_it_was_made_for():
    file = DataFile(path="a.parquet", rows=1, bytes=1, checksum="crc32:00000001")
    one, other = pa.schema([("a", pa.int64())]), pa.schema([("a", pa.string())])
    stems = {stem_of(file, "vortex", schema, as_table=whole) for schema in (one, other) for whole in (False, True)}
    assert len(stems) == 4


def test_a_cache_folder_keeps_files_that_are_not_copies(store, tmp_path):
    folder = tmp_path / "cache"
    folder.mkdir()
    (folder / "mine.txt").write_text("stays")
    (folder / ("b" * 64 + ".0123abcd.tmp")).write_text("a torn copy")
    FileCache(store, str(folder))
    assert os.listdir(folder) == ["mine.txt"]


def test_an_unknown_format_is_a_clear_error(store):
    file = write_data_file(store, "f", TABLE)
    with pytest.raises(ConfigError, match="format 'avro'"):
        FileCache(store).acquire(evolve(file, format="avro"))
