"""Values that Arrow calls valid and no engine can load are refused, with their row and column, and no others."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ballista_py.errors import SchemaMismatch, SqlError
from ballista_py.partitions.conform import conform
from ballista_py.partitions.loadable import first_not_loaded, why_not_declared, why_not_loaded
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.sql.parse.parameters import literal
from ballista_py.transport.flight_sql.puts import _require_loadable

MAX = 2**63 - 1
MAP = pa.map_(pa.string(), pa.int32())
TWICE = [("a", 1), ("a", 2)]
ONCE = [("a", 1), ("b", 2)]


def raw(kind, *numbers):
    wide = kind.bit_width // 8
    data = b"".join(number.to_bytes(wide, "little", signed=True) for number in numbers)
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(data)])


def keys(kind, *values):
    return pa.array([[(value, 0) for value in values]], pa.map_(kind, pa.int32()))


REFUSED = {
    "a key twice": pa.array([TWICE], MAP),
    "a key twice in a slice": pa.array([ONCE, None, TWICE], MAP).slice(1),
    "a key twice, the first and the last": pa.array([ONCE, [*ONCE, ("c", 3), ("a", 4)]], MAP),
    "a key twice among many": pa.array([ONCE, [*((str(n), n) for n in range(20)), ("3", 0)]], MAP),
    "a map in a list": pa.array([[ONCE], [ONCE, TWICE]], pa.list_(MAP)),
    "a map in an array": pa.array([[TWICE, ONCE]], pa.list_(MAP, 2)),
    "a map in a struct": pa.array([{"m": TWICE}], pa.struct([("m", MAP)])),
    "a map in a map": pa.array([[("x", TWICE)]], pa.map_(pa.string(), MAP)),
    "a struct twice": keys(pa.struct([("a", pa.int32())]), {"a": 1}, {"a": 1}),
    "a list twice": keys(pa.list_(pa.int32()), [1], [1]),
    "two zeros": keys(pa.float64(), 0.0, -0.0),
    "NaN twice": keys(pa.float64(), float("nan"), float("nan")),
    "one moment after it was kept": keys(pa.timestamp("ns", "UTC"), 1_001, 1_002),
    "seconds": raw(pa.timestamp("s"), 0, MAX),
    "seconds in a zone": raw(pa.timestamp("s", "UTC"), 0, -MAX - 1),
    "milliseconds": raw(pa.timestamp("ms"), -MAX - 1),
    "milliseconds in a zone": raw(pa.timestamp("ms", "UTC"), MAX),
    "microseconds": raw(pa.timestamp("us"), -MAX - 1),
    "moments in a list": pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), raw(pa.timestamp("us"), -MAX - 1)),
    "a duration of seconds": raw(pa.duration("s"), MAX),
    "a duration of milliseconds": raw(pa.duration("ms"), -MAX),
    "24:00:00": raw(pa.time64("us"), 0, 86_400_000_000),
    "24:00:00 in a list": pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), raw(pa.time64("us"), 86_400_000_000)),
    "a date64": raw(pa.date64(), 86_400_000 * 10**10),
    "the least decimal": raw(pa.decimal128(38, 0), 1, -(2**127)),
    "the least decimal of few digits": raw(pa.decimal128(3, 0), -(2**127)).slice(0, 1),
}  # fmt: skip
TAKEN = {
    "the last times": raw(pa.time64("us"), 0, 86_399_999_999),
    "the last time in nanoseconds": raw(pa.time64("ns"), 86_399_999_999_999),
    "maps": pa.array([ONCE, None, [], [("a", 3)]], MAP),
    "a map that is nowhere": pa.StructArray.from_arrays([pa.array([TWICE], MAP)], ["m"], mask=pa.array([True])),
    "no map": pa.array([], MAP),
    "keys of nanoseconds": keys(pa.timestamp("ns"), 0, 1_000),
    "keys of structs": keys(pa.struct([("a", pa.int32())]), {"a": 1}, {"a": 2}),
    "no end of time": raw(pa.timestamp("us"), MAX, -MAX, -9_223_372_022_400_000_000),
    "no end of time in a zone": raw(pa.timestamp("us", "UTC"), MAX, -MAX),
    "nanoseconds": raw(pa.timestamp("ns"), MAX, -MAX),
    "seconds": raw(pa.timestamp("s"), 9_223_372_036_854, -9_223_372_022_400),
    "nothing where a bad moment would be": pa.array([None, 5], pa.timestamp("us")),
    "durations": raw(pa.duration("us"), MAX, -MAX),
    "dates": raw(pa.date32(), 2**31 - 1, -(2**31)),
    "decimals": pa.array([10**37, -(10**37), None], pa.decimal128(38, 0)),
    "empty decimals": pa.array([], pa.decimal128(38, 0)),
    "dictionaries": pa.array(["x", None, "x"]).dictionary_encode(),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_engine_loads_is_refused_with_its_row_and_column(name):
    column = REFUSED[name]
    assert why_not_loaded(column) is not None
    bad = first_not_loaded(column)
    assert why_not_loaded(column.slice(bad, 1)) is not None
    assert why_not_loaded(column.slice(0, bad)) is None
    schema = pa.schema([pa.field("c", column.type)])
    table = TableSpec(name="t", schema=schema, spec=PartitionSpec.whole(), distribution="replicated")
    with pytest.raises(SchemaMismatch, match=f"row {100 + bad} has .* in column 'c'"):
        conform(table, pa.RecordBatch.from_arrays([column], schema=schema), 100)


@pytest.mark.parametrize("name", TAKEN)
def test_what_engines_load_is_taken(name):
    assert why_not_loaded(TAKEN[name]) is None


def test_a_null_among_the_values_of_a_dictionary_becomes_no_value():
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int8()), pa.array(["x", None]))
    schema = pa.schema([pa.field("c", column.type)])
    table = TableSpec(name="t", schema=schema, spec=PartitionSpec.whole(), distribution="replicated")
    made = conform(table, pa.RecordBatch.from_arrays([column], schema=schema))
    assert made.schema == schema
    assert not made.column(0).dictionary.null_count
    assert made.column(0).to_pylist() == ["x", None, None]


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.int32(), 0),
        pa.list_(pa.list_(pa.int32(), 0)),
        pa.list_(pa.int32(), 100_001),
        pa.struct([]),
        pa.map_(pa.string(), pa.struct([])),
        pa.struct([("a", pa.int32()), ("A", pa.int32())]),
        pa.dictionary(pa.int8(), pa.int32()),
    ],
    ids=str,
)
def test_columns_whose_values_no_engine_loads_are_not_declared(kind):
    assert why_not_declared(kind) is not None


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int32(), 3), MAP, pa.struct([("a", MAP)]), pa.dictionary(pa.int8(), pa.string())], ids=str
)
def test_other_columns_are(kind):
    assert why_not_declared(kind) is None


@pytest.mark.parametrize("index", [None, 1], ids=["no index", "no value"])
def test_a_parameter_that_is_nothing_in_a_dictionary_is_null(index):
    column = pa.DictionaryArray.from_arrays(pa.array([index], pa.int8()), pa.array(["x", None]))
    assert literal(column[0]).sql("duckdb") == "NULL"


def test_a_parameter_that_no_engine_takes_is_named():
    with pytest.raises(SqlError, match="parameter 2 has a moment out of range"):
        _require_loadable(pa.record_batch({"1": [5], "2": raw(pa.timestamp("us"), -MAX - 1)}))
