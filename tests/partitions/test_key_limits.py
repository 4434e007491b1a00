"""The least, greatest and special values of every type of key: each has its own partition, wherever it is asked."""

from __future__ import annotations

import datetime as dt
from contextlib import nullcontext
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pytest

from ballista_py.coordinator.writes.row_routes import distinct_values
from ballista_py.errors import SchemaMismatch
from ballista_py.partitions import values
from ballista_py.partitions.discovery import diff_partitions
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.router import PartitionRouter
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.partitions.values import require_short_value
from ballista_py.runtime import SystemRuntime
from ballista_py.sql.parse.parameters import bound
from ballista_py.sql.plan import Catalog
from ballista_py.sql.planner import plan_query
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.storage.partition_storage import make_manifests

NINES = "9" * 38
INTEGERS = [getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)]


def _ends(kind: pa.DataType) -> list[int]:
    signed, bits = pa.types.is_signed_integer(kind), kind.bit_width
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return [low, low + 1, (low + high) // 2, high - 27, high - 1, high]


ROWS: dict[pa.DataType, list[Any]] = {
    **{kind: _ends(kind) for kind in INTEGERS},
    pa.float32(): [0.0, 1.401298464324817e-45, 3.4028234663852886e38, float("inf"), -float("inf"), float("nan")],
    pa.float64(): [0.0, 5e-324, 1.7976931348623157e308, float("inf"), -float("inf"), float("nan")],
    pa.decimal128(38, 0): [Decimal(NINES), Decimal(f"-{NINES}"), Decimal(0)],
    pa.decimal128(38, 38): [Decimal(f"0.{NINES}"), Decimal(f"-0.{NINES}")],
    pa.decimal128(4, 2): [Decimal("99.99"), Decimal("-99.99"), Decimal("0.00")],
    pa.bool_(): [False, True],
    pa.string(): ["", "\x00", "a\x00b", "~null", "é🙂", "\U0010ffff", "x" * 1_024],
    pa.binary(): [b"", b"\x00", b"\xff" * 300],
    pa.date32(): [dt.date.min, dt.date.max, dt.date(1582, 10, 10), dt.date(1970, 1, 1)],
    pa.timestamp("us"): [dt.datetime.min, dt.datetime.max, dt.datetime(1969, 12, 31, 23, 59, 59, 999_999)],
    pa.timestamp("us", "UTC"): [dt.datetime.min.replace(tzinfo=dt.UTC), dt.datetime.max.replace(tzinfo=dt.UTC)],
    pa.time64("us"): [dt.time.min, dt.time.max],
}
MICROS = (pa.timestamp("us"), pa.timestamp("us", "UTC"))
# Beyond what every engine can say: infinity as DuckDB keeps it, and days BC.
BEYOND = [
    *((pa.date32(), days) for days in (2**31 - 1, -(2**31 - 1), -(2**31), -719_163, 2_932_897)),
    *(
        (kind, micros)
        for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC"))
        for micros in (2**63 - 1, -(2**63))
    ),
    *((pa.timestamp(unit), number) for unit in ("s", "ms") for number in (2**62, -(2**62))),
]


def table_of(kind: pa.DataType, key: str, values: list[Any]) -> tuple[TableSpec, PartitionMap]:
    """A table `t` with the one column `x` of this type, and its partitions: those of the values."""
    schema = pa.schema([("x", kind)])
    spec = PartitionSpec.parse([key], schema)
    batch = pa.record_batch([pa.array(values, kind)], schema)
    found = list(zip(*(column.to_pylist() for column in spec.evaluate(batch)), strict=True))
    pmap = PartitionMap.build("t", spec, found if spec.static_values() is None else spec.static_values())
    return TableSpec(name="t", schema=schema, spec=spec), pmap


@pytest.mark.parametrize("kind", ROWS, ids=str)
def test_a_row_with_an_extreme_value_is_routed_to_the_partition_of_just_that_value(kind: pa.DataType) -> None:
    values = [*ROWS[kind], None]
    batch = pa.record_batch([pa.array(values, kind)], ["x"])
    table, pmap = table_of(kind, "x", values)
    read = PartitionMap.from_columns(
        "t", 0, orjson.loads(orjson.dumps(pmap.to_columns(), option=orjson.OPT_SERIALIZE_NUMPY))
    )
    for known in (pmap, read):
        routed = PartitionRouter(table.spec, known).route(batch)
        assert routed.unassigned["__partition"].to_pylist() == list(range(len(values)))
        assert len({known.path(place) for place in range(len(values))}) == len(values)
        assert list(map(repr, distinct_values(known, batch))) == [
            repr((value,)) for value in batch["x"].to_pylist()
        ]
        for place, value in enumerate(values):
            assert known.index((value,)) == place
            assert known.matching({"expr0": {value}}).tolist() == [place] or value != value
    alone = [PartitionMap.build("t", table.spec, [(value,)]) for value in values]
    for place, one in enumerate(alone):
        assert [one.index((value,)) for value in values] == [0 if n == place else None for n in range(len(values))]


@pytest.mark.parametrize("key", ["x", "bucket(3, x)"])
@pytest.mark.parametrize("kind", ROWS, ids=str)
def test_a_comparison_with_an_extreme_value_keeps_its_partition(kind: pa.DataType, key: str) -> None:
    values = [value for value in ROWS[kind] if not (isinstance(value, str) and "\x00" in value)]
    if key != "x" and kind == pa.uint64():
        values = [value for value in values if value < 1 << 63]
    table, pmap = table_of(kind, key, [*values, None])
    catalog = Catalog(tables={"t": table}, maps={"t": pmap})
    rows = pa.record_batch([pa.array([*values, None], kind)], ["x"])
    places = pmap.lookup(table.spec.evaluate(rows), rows.num_rows).tolist()
    for place, value in zip(places, [*values, None], strict=True):
        for sql in ("select x from t where x is not distinct from ?", "select x from t where ? = x",
                    "select x from t where x >= ? and x <= ?", "select x from t where x in (?)"):  # fmt: skip
            literal = bound(sql, dict.fromkeys("12", pa.scalar(value, kind)))
            plan = plan_query(literal, catalog, table.schema)
            kept = {p for fragment in plan.fragments for part in fragment.tables for p in part.partitions}
            assert (value is None and "distinct" not in sql) or place in kept, literal


@pytest.mark.parametrize(("kind", "number"), BEYOND, ids=str)
def test_a_time_that_no_partition_can_have_is_refused_by_every_key_of_the_calendar(
    kind: pa.DataType, number: int
) -> None:
    width = pa.int32() if kind == pa.date32() else pa.int64()
    batch = pa.record_batch([pa.array([number], width).view(kind)], ["x"])
    calendar = ["year(x)", "date_trunc('day', x)"]
    for key in ["x", *calendar]:
        spec = PartitionSpec.parse([key], batch.schema, time_zone="Europe/Berlin")
        with pytest.raises(SchemaMismatch):
            spec.evaluate(batch)
        with pytest.raises(SchemaMismatch):
            distinct_values(PartitionMap.build("t", spec, []), batch)
    spec = PartitionSpec.parse(["bucket(3, x)"], batch.schema)
    with nullcontext() if kind in (pa.date32(), *MICROS) else pytest.raises(SchemaMismatch, match="microseconds"):
        assert 0 <= spec.evaluate(batch)[0][0].as_py() < 3


@pytest.mark.parametrize("value", ["a" * 1_025, "ä" * 513, b"x" * 1_025])
def test_a_value_that_is_data_rather_than_a_name_names_no_partition(value):
    with pytest.raises(SchemaMismatch, match=r"partition value of 1,02\d bytes in 'v', more than 1,024"):
        require_short_value("t", ["k", "v"], (7, value))
    require_short_value("t", ["k", "v", "w"], (7, value[:512], None))
    # Whoever finds it, in rows, in a source or in a folder of files: it comes into no map.
    spec = PartitionSpec.parse(["v"], pa.schema([("v", pa.array([value]).type)]))
    with pytest.raises(SchemaMismatch, match=r"partition value of 1,02\d bytes in 'v', more than 1,024"):
        PartitionMap.build("t", spec, [(value[:9],), (value,), (None,)])
    pmap = PartitionMap.build("t", spec, [(value[:512],), (None,)])
    for found in ([(value,), (None,)], pa.table({"v": [value, value[:9]]})):
        with pytest.raises(SchemaMismatch, match=r"partition value of 1,02\d bytes in 'v', more than 1,024"):
            diff_partitions(pmap, found)
    assert len(diff_partitions(pmap, [(value[:9],), (value[:512],)]).added) == 1


def test_a_partition_that_an_earlier_release_named_by_a_large_value_stays(monkeypatch):
    spec = PartitionSpec.parse(["v"], pa.schema([("v", pa.string())]))
    with monkeypatch.context() as earlier:
        earlier.setattr(values, "MAX_KEY_BYTES", 9_999)
        kept = PartitionMap.build("t", spec, [("a" * 2_000,)]).to_columns()
    pmap = PartitionMap.from_columns("t", 1, kept)
    assert len(diff_partitions(pmap, [("a" * 2_000,), ("b",)]).added) == 1


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary()])
def test_rows_with_such_values_are_refused_before_anything_is_made_for_them(kind):
    schema = pa.schema([("i", pa.int64()), ("v", kind)])
    spec = PartitionSpec.parse(["v"], schema)
    pmap = PartitionMap.build("t", spec, [])
    rows = pa.record_batch([pa.array([1, 2]), pa.array(["b", "a" * 2_000]).cast(kind)], schema=schema)
    with pytest.raises(SchemaMismatch, match="2,000 bytes"):
        distinct_values(pmap, rows)
    store = MemoryStore()
    table = TableSpec(name="t", schema=schema, spec=spec, group="t")
    with pytest.raises(SchemaMismatch, match="2,000 bytes"):
        make_manifests(store, table, [("b",), ("a" * 2_000,)], SystemRuntime())
    assert not list(store.list(""))
