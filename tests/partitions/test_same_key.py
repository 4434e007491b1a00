"""Rows have the same key here where they have it for the engine, at every door that groups or joins rows by keys."""

import datetime as dt
import struct
from decimal import Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from ballista_py.coordinator.changes.batches import read_changes
from ballista_py.coordinator.changes.net import filled, lacking_keys, net_of
from ballista_py.coordinator.changes.row_changes import is_as_read, row_changes
from ballista_py.coordinator.changes.versioned import require_once
from ballista_py.errors import SourceUnfit, SqlError
from ballista_py.partitions.same_key import first_doubled, key_numbers, keys_of_rows, with_keys
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec


def _nan(bits):
    return struct.unpack("<d", struct.pack("<Q", bits))[0]


NANS = [float("nan"), _nan(0xFFF8000000000001), _nan(0x7FF8000000000123), -float("nan")]
FLOATS = [0.0, -0.0, 5e-324, -5e-324, 1.0, *NANS, float("inf"), -float("inf")]
LONGS = pa.array([0, 1, 999, 1_000, 1_001, 86_399_999, 86_400_000, -1, -1_000, -86_400_000], pa.int64())
SMALL = pa.struct([("a", pa.float64()), ("b", pa.string())])
VALUES = {
    "double": pa.array(FLOATS),
    "float": pa.array(FLOATS, pa.float32()),
    "float in a dictionary": pa.array(FLOATS).dictionary_encode(),
    "text": pa.array(["", " ", "a", "A", "a ", "\u00e9", "e\u0301", "\u00a0", "\u200b", "ß", "ss"]),
    "large text": pa.array(["a", "a", "A"], pa.large_string()),
    "text in a dictionary": pa.DictionaryArray.from_arrays([0, 1, 2], ["a", "b", "a"]),
    "bytes": pa.array([b"", b"\0", b"\0\0", b"a"]),
    "decimal": pa.array([Decimal(d) for d in ("1", "1.0", "1.00", "-0.0", "0")], pa.decimal128(9, 3)),
    "wide decimal": pa.array([Decimal("1"), Decimal("1.00"), Decimal("1.01")], pa.decimal128(38, 2)),
    "bool": pa.array([True, False, True]),
    "date64": LONGS.view(pa.date64()),
    "timestamp ns": LONGS.view(pa.timestamp("ns")),
    "timestamp us of a zone": LONGS.view(pa.timestamp("us", "Europe/Berlin")),
    "timestamp ms": LONGS.view(pa.timestamp("ms")),
    "time ns": LONGS.slice(0, 5).view(pa.time64("ns")),
    "duration ns": LONGS.view(pa.duration("ns")),
    "duration s": LONGS.view(pa.duration("s")),
    "interval": pa.array([pa.MonthDayNano(v) for v in ((0, 30, 0), (1, 0, 0), (0, 0, 1), (0, 0, 0))]),
    "list": pa.array([[0.0], [-0.0], [NANS[0], 1.0], [NANS[1], 1.0], [], [None]], pa.list_(pa.float64())),
    "struct": pa.array([{"a": 0.0, "b": "x"}, {"a": -0.0, "b": "x"}, {"a": NANS[1]}, {"a": NANS[2]}], SMALL),
}  # fmt: skip


def pairs_of_the_engine(column):
    """Which rows have one key: places of both, as the engine joins them, NULL with NULL."""
    places = range(len(column))
    with duckdb.connect() as connection:
        connection.register("r", pa.table({"k": column, "n": places}))
        connection.execute("create table t as from r")
        found = connection.execute("select a.n, b.n from t a, t b where a.k is not distinct from b.k").fetchall()
    return set(found)


@pytest.mark.parametrize("name", VALUES)
def test_rows_have_one_key_where_the_engine_says_so(name):
    column = VALUES[name]
    column = pa.concat_arrays([column, pa.nulls(2, column.type), column.slice(0, 1)]) if name != "bool" else column
    expected = pairs_of_the_engine(column)
    rows = pa.table(
        {"g": pa.array([1] * len(column)), "k": pa.chunked_array([column.slice(0, 2), column.slice(2)])}
    )
    numbers, keys = key_numbers(rows, ["g", "k"]), keys_of_rows(rows, ["g", "k"])
    every = [(a, b) for a in range(len(column)) for b in range(len(column))]
    assert {pair for pair in every if numbers[pair[0]] == numbers[pair[1]]} == expected
    assert {pair for pair in every if keys[pair[0]] == keys[pair[1]]} == expected
    assert len(set(keys)) == len(set(numbers.tolist()))
    for a in range(0, len(column), 3):
        found = with_keys(rows.append_column("n", [range(len(column))]), rows.slice(a, 1), ["k"])
        assert found.column("n").to_pylist() == [b for b in range(len(column)) if (a, b) in expected]


def test_keys_of_several_columns_are_the_same_in_all_of_them():
    rows = pa.table({"a": [0.0, -0.0, 0.0, 1.0], "b": ["x", "x", "y", "x"], "c": [1, 1, 1, 1]})
    assert key_numbers(rows, ["a", "b", "c"]).tolist() == [0, 0, 1, 2]
    assert first_doubled(rows, ["a", "b"]) in ({"a": 0.0, "b": "x"}, {"a": -0.0, "b": "x"})
    assert first_doubled(rows.slice(1), ["a", "b"]) is None
    assert key_numbers(rows.slice(0, 0), ["a"]).tolist() == []
    assert first_doubled(rows.slice(0, 0), ["a"]) is None
    wide = pa.table({"a": range(70_000), "b": range(70_000), "c": range(70_000), "d": range(70_000)})
    assert len(np.unique(key_numbers(wide, ["a", "b", "c", "d"]))) == 70_000


def table_of(kind):
    schema = pa.schema([pa.field("k", kind, nullable=False), ("v", pa.int64()), ("w", pa.int64())])
    return TableSpec(
        name="t",
        schema=schema,
        spec=PartitionSpec.parse([], schema),
        primary_key=("k",),
        distribution="replicated",
    )


SAME = [(pa.float64(), 0.0, -0.0), (pa.float32(), -0.0, 0.0), (pa.float64(), NANS[0], NANS[1]),
        (pa.duration("ns"), 1_000, 1_001), (pa.date64(), 0, 5)]  # fmt: skip


def changes_of(table, *given):
    kinds = [
        ("op", pa.string()),
        ("old", pa.struct([table.schema.field("k")])),
        ("new", pa.struct(list(table.schema))),
    ]
    schema = pa.schema([*kinds, ("unchanged", pa.list_(pa.string()))])
    rows = [dict(zip(schema.names, change, strict=True)) for change in given]
    return read_changes(table, pa.Table.from_pylist(rows, schema=schema).to_batches())


@pytest.mark.parametrize(("kind", "one", "two"), SAME)
def test_changes_of_one_key_come_to_one_row_whichever_form_it_has(kind, one, two):
    table = table_of(kind)

    def row(key, value):
        return {"k": key, "v": value, "w": value}

    net = net_of(
        table, changes_of(table, ("insert", None, row(one, 1), None), ("insert", None, row(two, 2), None))
    )
    assert (net.come.column("v").to_pylist(), len(net.gone)) == ([2], 0)
    net = net_of(table, changes_of(table, ("insert", None, row(one, 1), None), ("delete", {"k": two}, None, None)))
    assert (len(net.come), len(net.gone)) == (0, 1)
    given = changes_of(
        table, ("insert", None, row(one, 1), None), ("update", {"k": two}, row(two, 5), ["w"]),
    )  # fmt: skip
    assert not len(lacking_keys(table, given))
    assert filled(table, given, table.schema.empty_table()).new.column("w").to_pylist() == [1, 1]
    given = changes_of(
        table, ("update", {"k": two}, row(two, 5), ["w"]), ("update", {"k": one}, row(one, 6), ["w"])
    )
    lacking = lacking_keys(table, given)
    assert len(lacking) == 1
    there = pa.table({"k": pa.array([one], kind), "v": [3], "w": [4]}, schema=table.schema)
    assert len(with_keys(there, lacking, ["k"])) == 1
    assert filled(table, given, there).new.column("w").to_pylist() == [4, 4]


@pytest.mark.parametrize(("kind", "one", "two"), SAME)
def test_rows_of_one_key_are_told_apart_nowhere(kind, one, two):
    table = table_of(kind)
    rows = pa.table({"k": pa.array([one, two], kind), "v": [1, 2], "w": [1, 2]}, schema=table.schema)
    with pytest.raises(SourceUnfit, match="two rows with k"):
        require_once(table, "a lake", 1, rows)
    with pytest.raises(SqlError, match="one key"):
        row_changes("t", rows.slice(0, 0), rows, ["k"], 2)
    found = row_changes("t", rows.slice(0, 1), rows.slice(1), ["k"], 1)
    assert (len(found.come), len(found.after), len(found.gone)) == (0, 1, 0)
    again = pa.table({"k": rows["k"].slice(1), "v": [1], "w": [1]}, schema=table.schema)
    assert is_as_read(rows.slice(0, 1), again, ["k"]) == (pa.types.is_floating(kind))


def test_moments_that_a_text_of_python_cannot_say_are_keys():
    table = table_of(pa.timestamp("ns"))
    given = changes_of(table, ("update", {"k": 1_001}, {"k": 1_001, "v": 1, "w": 1}, ["w"]))
    assert lacking_keys(table, given).column("k").cast(pa.int64()).to_pylist() == [1_001]
    assert keys_of_rows(pa.table({"d": [dt.date(2020, 1, 1)]}), ["d"]) == [(dt.date(2020, 1, 1),)]
