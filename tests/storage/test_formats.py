"""What every file format promises, whichever it is: the same rows back, or a clear error before anything is written."""

from __future__ import annotations

import datetime as dt
import random
import subprocess
import sys
from decimal import Decimal

import psutil
import pyarrow as pa
import pytest
from attrs import evolve

from ballista_py.errors import ConfigError, DocumentUnreadable, SchemaMismatch
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import FILE_FORMATS, TableSpec
from ballista_py.state.stores.local import LocalStore
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.storage.formats.files import describe_data_file, read_data_file, write_data_file
from ballista_py.storage.formats.formats import file_format, require_held
from ballista_py.storage.formats.parquet import BATCH_BYTES
from ballista_py.storage.held.cache import FileCache

COLUMNS = {
    "i8": pa.array([-128, None, 127], pa.int8()),
    "i16": pa.array([-(2**15), None, 1], pa.int16()),
    "i32": pa.array([-(2**31), None, 1], pa.int32()),
    "i64": pa.array([-(2**63), None, 2**63 - 1], pa.int64()),
    "u8": pa.array([0, None, 255], pa.uint8()),
    "u16": pa.array([0, None, 2**16 - 1], pa.uint16()),
    "u32": pa.array([0, None, 2**32 - 1], pa.uint32()),
    "u64": pa.array([0, None, 2**64 - 1], pa.uint64()),
    "f32": pa.array([1.5, None, float("inf")], pa.float32()),
    "f64": pa.array([-0.0, None, 1e308]),
    "flag": pa.array([True, None, False]),
    "small": pa.array([Decimal("1.10"), None, Decimal("-0.05")], pa.decimal128(15, 2)),
    "wide": pa.array([Decimal("-99999999999999999999.123456789"), None, Decimal(0)], pa.decimal128(38, 9)),
    "day": pa.array([dt.date(1, 1, 1), None, dt.date(9999, 12, 31)]),
    "naive": pa.array([dt.datetime(1600, 2, 29, 1, 2, 3, 4), None, dt.datetime(2500, 1, 1)], pa.timestamp("us")),
    "instant": pa.array([dt.datetime(2026, 3, 29), None, dt.datetime(1969, 1, 1)], pa.timestamp("us", "UTC")),
    "millis": pa.array([1, None, -1], pa.timestamp("ms")),
    "nanos": pa.array([1, None, 10**18 + 1], pa.timestamp("ns")),
    "clock": pa.array([dt.time(23, 59, 59, 999_999), None, dt.time(0)], pa.time64("us")),
    "text": pa.array(["", None, "straße 😀 \x00 end"]),
    "large": pa.array(["a", None, "b"], pa.large_string()),
    "raw": pa.array([b"", None, b"\x00\xff"]),
    "items": pa.array([[1, None], None, []], pa.list_(pa.int32())),
    "words": pa.array([["a", None], None, []], pa.list_(pa.string())),
    "pair": pa.array([{"a": 1, "B b": "x"}, None, {"a": None, "B b": None}]),
    "deep": pa.array([[{"k": [1.5]}], None, []]),
    "tags": pa.array([[("a", "x")], None, []], pa.map_(pa.string(), pa.string())),
}
ROWS = pa.table(COLUMNS)


@pytest.fixture(params=FILE_FORMATS)
def name(request):
    return request.param


def test_every_type_comes_back_as_it_went_in(name):
    store = MemoryStore()
    assert file_format(name).why_not_held(ROWS.schema) is None
    file = write_data_file(store, "a", ROWS, name)
    assert (file.format, file.rows, file.bytes) == (name, 3, len(store.get("a").data))
    found = read_data_file(store, file, ROWS.schema)
    assert found.schema.equals(ROWS.schema)
    assert found.to_pylist() == ROWS.to_pylist()


@pytest.mark.parametrize("column", COLUMNS)
def test_each_type_comes_back_alone_and_from_many_rows(name, column):
    rows = pa.table({column: pa.concat_arrays([COLUMNS[column]] * 5_000)})
    file = write_data_file(store := MemoryStore(), "a", rows, name)
    assert read_data_file(store, file, rows.schema).equals(rows)


def test_nan_keeps_its_place(name):
    rows = pa.table({"f": [1.0, float("nan"), None]})
    file = write_data_file(store := MemoryStore(), "a", rows, name)
    assert [repr(v) for v in read_data_file(store, file, rows.schema)["f"].to_pylist()] == ["1.0", "nan", "None"]


def test_a_file_without_rows_has_its_columns(name):
    file = write_data_file(store := MemoryStore(), "a", ROWS.slice(0, 0), name)
    assert file.rows == 0
    assert read_data_file(store, file, ROWS.schema).num_rows == 0


def test_statistics_are_bounds_of_the_values(name):
    file = write_data_file(MemoryStore(), "a", ROWS, name)
    bounds = {column: (one.min, one.max, one.null_count) for column, one in file.columns.items()}
    assert bounds["i32"] == (str(-(2**31)), "1", 1)
    assert bounds["small"] == ("-0.05", "1.10", 1)
    assert bounds["day"] == ("0001-01-01", "9999-12-31", 1)
    assert bounds["flag"] == ("false", "true", 1)
    assert bounds["naive"][2] == 1
    assert not {"items", "pair", "deep", "tags"} & bounds.keys()
    nan = write_data_file(MemoryStore(), "a", pa.table({"f": [float("nan"), 2.0, 3.0]}), name).columns["f"]
    assert nan.min in (None, "2.0")
    assert nan.max in (None, "3.0")


def test_a_file_says_how_many_rows_it_has_and_the_bounds_of_their_columns(name):
    form = file_format(name)
    data, columns = form.encode(ROWS)
    rows, found = form.footer(pa.py_buffer(data), "a")
    assert rows == 3
    assert found["i32"] == columns["i32"]
    with pytest.raises(DocumentUnreadable, match="'a'"):
        form.footer(pa.py_buffer(b"nothing of the kind"), "a")


def test_a_file_without_columns_has_no_rows(name):
    data, _ = file_format(name).encode(pa.table({}))
    batches = list(file_format(name).read_batches(pa.py_buffer(data), pa.schema([]), "a"))
    assert sum(batch.num_rows for batch in batches) == 0


def test_writing_and_asking_what_can_be_written_leaves_nothing_open(name, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    form = file_format(name)
    form.encode(ROWS)  # whatever is opened once for all
    form.why_not_held(ROWS.schema)
    before = psutil.Process().num_fds()
    for _ in range(5):
        form.encode(ROWS)
        form.why_not_held(ROWS.schema)
    assert psutil.Process().num_fds() < before + 5
    assert list(tmp_path.iterdir()) == []


def test_columns_are_found_by_name_and_must_be_there(name):
    store = MemoryStore()
    file = write_data_file(
        store, "a", pa.table({"extra": [0], "word": ["a"], "n": pa.array([7], pa.int32())}), name
    )
    wanted = pa.schema([("n", pa.int64()), ("word", pa.string())])
    assert read_data_file(store, file, wanted).to_pylist() == [{"n": 7, "word": "a"}]
    with pytest.raises(SchemaMismatch, match="'other'"):
        read_data_file(store, file, pa.schema([("other", pa.int64())]))
    with pytest.raises(SchemaMismatch, match="'word'"):
        read_data_file(store, file, pa.schema([("word", pa.int64())]))


@pytest.mark.parametrize("damage", ["truncated", "empty", "nothing of the kind", "missing"])
def test_a_damaged_file_is_named_and_never_read_as_other_rows(name, damage, tmp_path):
    store = LocalStore(str(tmp_path))
    file = write_data_file(store, "a", ROWS, name)
    data = store.get("a").data
    spoilt = {"truncated": data[: len(data) // 2], "empty": b"", "nothing of the kind": b"x" * len(data)}
    store.delete("a")
    if damage != "missing":
        store.create("a", spoilt[damage])
        with pytest.raises(DocumentUnreadable, match="'a'"):
            read_data_file(store, file, ROWS.schema)
        with pytest.raises(DocumentUnreadable, match="'a'"):
            list(file_format(name).read_batches(pa.py_buffer(spoilt[damage]), ROWS.schema, "a"))
    with pytest.raises(DocumentUnreadable) as raised:
        list(file_format(name).read_batches(str(tmp_path / "nowhere"), ROWS.schema, "a"))
    assert str(tmp_path) not in raised.value.message


def test_a_vortex_file_with_spoilt_values_is_named_once_they_are_read():
    form, rows = file_format("vortex"), pa.table({"w": [f"word {n * 7919 % 5003}" for n in range(5_000)]})
    data, _ = form.encode(rows)
    spoilt = pa.py_buffer(data[:100] + b"\xff" * 1_900 + data[2_000:])
    for read in (lambda: list(form.read_batches(spoilt, rows.schema, "a")), lambda: form.footer(spoilt, "a")):
        with pytest.raises(DocumentUnreadable, match="'a'"):
            read()


def test_a_vortex_file_that_changed_where_it_lies_is_not_handed_to_a_reader(tmp_path):
    store = LocalStore(str(tmp_path))
    file = write_data_file(store, "a", pa.table({"n": range(10_000)}), "vortex")
    data = bytearray(store.get("a").data)
    data[500] ^= 1
    store.delete("a")
    store.create("a", bytes(data))
    with pytest.raises(DocumentUnreadable, match="damaged"):
        FileCache(store).acquire(file)


def test_a_column_that_vortex_cannot_hold_is_named_before_anything_is_written():
    schema = pa.schema([("n", pa.int64()), ("took", pa.duration("us"))])
    with pytest.raises(ConfigError, match=r"'t'.*'took'.*duration"):
        require_held("t", "vortex", schema)
    require_held("t", "parquet", schema)
    with pytest.raises(SchemaMismatch, match="'took'"):
        write_data_file(store := MemoryStore(), "a", schema.empty_table(), "vortex")
    assert not list(store.list(""))


def test_an_unknown_format_is_refused_by_name(name):
    with pytest.raises(ConfigError, match="'avro'"):
        file_format("avro")
    file = write_data_file(store := MemoryStore(), "a", ROWS, name)
    with pytest.raises(ConfigError, match=r"'a'.*'orc'"):
        read_data_file(store, evolve(file, format="orc"), ROWS.schema)
    with pytest.raises(ConfigError, match="'avro'"):
        TableSpec(
            name="t", schema=ROWS.schema, spec=PartitionSpec.whole(), distribution="replicated", file_format="avro"
        )


def test_a_table_with_a_source_is_parquet():
    with pytest.raises(ConfigError, match="has a source"):
        TableSpec(
            name="t",
            schema=ROWS.schema,
            spec=PartitionSpec.whole(),
            distribution="replicated",
            source={"path": "x"},
            file_format="vortex",
        )


def test_without_the_extra_the_error_names_the_line_that_installs_it():
    program = (
        "import sys; sys.modules['vortex'] = None\n"
        "from ballista_py.errors import MissingExtra\n"
        "from ballista_py.storage.formats.formats import file_format\n"
        "try:\n    file_format('vortex')\n"
        "except MissingExtra as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install 'ballista_py[vortex]'" in done.stdout


def test_a_file_that_another_program_wrote_is_described():
    store = MemoryStore()
    written = write_data_file(store, "a", ROWS, "parquet")
    assert describe_data_file(store, "a") == written


@pytest.mark.parametrize(
    ("schema", "size"),
    [
        (pa.schema([(f"c{n}", pa.string()) for n in range(60)]), 100),
        (pa.schema([("c0", pa.string())]), 200_000),
        (pa.schema([(f"c{n}", pa.int64()) for n in range(200)]), 0),
    ],
    ids=["wide", "large", "numbers"],
)
def test_what_is_decoded_at_a_time_is_bounded_however_wide_rows_are(schema, size):
    count = 50 if size > 1_000 else 6_000
    draw = random.Random(1)
    columns = [[f"{draw.getrandbits(4 * size):x}" if size else n for n in range(count)] for _ in schema]
    data, _ = file_format("parquet").encode(pa.Table.from_arrays([pa.array(c) for c in columns], schema=schema))
    batches = list(file_format("parquet").read_batches(pa.py_buffer(data), schema, "f"))
    assert sum(batch.num_rows for batch in batches) == count
    assert max(batch.nbytes for batch in batches) <= 2 * BATCH_BYTES
    assert len(batches) > 1
