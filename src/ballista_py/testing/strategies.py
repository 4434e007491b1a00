"""Hypothesis strategies for what clusters are made of: columns, batches, partition keys, maps, executors, members.

They prefer what breaks code: nulls, extremes, empty and non-Latin strings, times before 1970, tables of no rows.
Everything drawn is valid; what is refused by name is not drawn.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from ballista_py.errors import ConfigError
from ballista_py.partitions.assignment.assigner import Executor, PartitionAssigner
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.state.documents.documents import AdmittedExecutor, ClusterDocument, SchedulerInfo
from ballista_py.state.members.control import ExecutorInfo

MAX_BUCKETS = 32
_UTC = dt.UTC

_TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=8) | st.sampled_from(
    ["", "null", "NULL", " ", "é", "\U0001f986", "a/b", "%2F", "region=us"]
)
_MOMENTS = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30)) | st.sampled_from(
    [dt.datetime(1969, 12, 31, 23, 59, 59, 999_999), dt.datetime(1970, 1, 1), dt.datetime(2000, 2, 29, 12)]
)
_VALUES: tuple[tuple[pa.DataType, st.SearchStrategy[Any]], ...] = (
    (pa.int8(), st.integers(-(1 << 7), (1 << 7) - 1)),
    (pa.int32(), st.integers(-(1 << 31), (1 << 31) - 1)),
    (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    (pa.uint16(), st.integers(0, (1 << 16) - 1)),
    (pa.float64(), st.floats() | st.sampled_from([0.0, -0.0])),
    (pa.bool_(), st.booleans()),
    (pa.date32(), st.dates()),
    (pa.timestamp("us"), _MOMENTS),
    (pa.timestamp("us", "UTC"), _MOMENTS.map(lambda moment: moment.replace(tzinfo=_UTC))),
    (pa.decimal128(12, 2), st.decimals(Decimal("-1e9"), Decimal("1e9"), places=2)),
    (pa.decimal128(30, 4), st.decimals(Decimal("-1e20"), Decimal("1e20"), places=4)),
    (pa.string(), _TEXTS),
    (pa.binary(), st.binary(max_size=8)),
)
_TIMES = (pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"))


def key_types() -> st.SearchStrategy[pa.DataType]:
    """Types that a partition key and `bucket` take."""
    return st.sampled_from([kind for kind, _ in _VALUES])


def values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Python values of one of `key_types`, never None. Raises `ConfigError` for any other type."""
    for known, strategy in _VALUES:
        if known == kind:
            return strategy
    raise ConfigError(f"there are no values of type {kind} to draw; take one of key_types()")


@st.composite
def columns(draw: st.DrawFn, kind: pa.DataType, *, rows: int | None = None, nullable: bool = True) -> pa.Array:
    """An Arrow array of `rows` (default: up to 20) values, some of them null if that is allowed.

    >>> from ballista_py.testing import strategies
    >>> strategies.columns(pa.int64(), rows=3).example().type  # doctest: +SKIP
    DataType(int64)
    """
    one = st.none() | values(kind) if nullable else values(kind)
    count = draw(st.integers(0, 20)) if rows is None else rows
    return pa.array(draw(st.lists(one, min_size=count, max_size=count)), kind)


@st.composite
def schemas(draw: st.DrawFn, *, max_columns: int = 6) -> pa.Schema:
    """Schemas of one to `max_columns` columns of `key_types`, with names `c0`, `c1` …"""
    kinds = draw(st.lists(key_types(), min_size=1, max_size=max_columns))
    return pa.schema([pa.field(f"c{n}", kind, nullable=draw(st.booleans())) for n, kind in enumerate(kinds)])


@st.composite
def batches(draw: st.DrawFn, schema: pa.Schema, *, max_rows: int = 20) -> pa.RecordBatch:
    """Rows of `schema`, possibly none; columns that are not nullable have no nulls."""
    rows = draw(st.integers(0, max_rows))
    arrays = [draw(columns(field.type, rows=rows, nullable=field.nullable)) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


@st.composite
def partition_specs(draw: st.DrawFn, schema: pa.Schema, *, max_keys: int = 3) -> PartitionSpec:
    """Specs of one to `max_keys` keys over columns of `schema`: columns, buckets, parts of times, prefixes."""
    fields = draw(st.lists(st.sampled_from(list(schema)), min_size=1, max_size=max_keys))
    keys = [draw(st.sampled_from(_expressions(field.name, field.type))) for field in fields]
    return PartitionSpec.parse(keys, schema)


def _expressions(name: str, kind: pa.DataType) -> list[str]:
    found = [name, f"bucket(1, {name})", f"bucket(7, {name})"]
    if kind in _TIMES:
        found += [f"year({name})", f"month({name})", f"date_trunc('month', {name})", f"cast({name} as date)"]
    if kind == pa.string():
        found += [f"truncate({name}, 2)", f"substr({name}, 1, 1)", f"coalesce({name}, 'none')"]
    return found


def executors(*, max_size: int = 6) -> st.SearchStrategy[list[Executor]]:
    """One to `max_size` executors with ids of their own, of differing capacities, in up to three zones."""

    def named(shapes: list[tuple[float, str]]) -> list[Executor]:
        return [
            Executor(f"e{n}", instance_id=f"i{n}", capacity=capacity, labels={"zone": zone})
            for n, (capacity, zone) in enumerate(shapes)
        ]

    shape = st.tuples(st.sampled_from([0.5, 1.0, 1.0, 2.0]), st.sampled_from("abc"))
    return st.lists(shape, min_size=1, max_size=max_size).map(named)


@st.composite
def partition_maps(draw: st.DrawFn, *, max_partitions: int = MAX_BUCKETS) -> PartitionMap:
    """Maps of tables split into buckets, with weights: without owners, or with all or some partitions owned."""
    buckets = draw(st.integers(1, max_partitions))
    schema = pa.schema([pa.field("id", pa.int64(), nullable=draw(st.booleans()))])
    spec = PartitionSpec.parse([f"bucket({buckets}, id)"], schema)
    found = spec.static_values() or ()
    weights = draw(st.lists(st.floats(0, 1e6), min_size=len(found), max_size=len(found)))
    pmap = PartitionMap.build("events", spec, found, weights)
    limit = draw(st.none() | st.integers(0, len(found)))
    if limit == 0:
        return pmap
    return pmap.apply(PartitionAssigner().assign(pmap, draw(executors()), limit=limit))


@st.composite
def clusters(draw: st.DrawFn) -> ClusterDocument:
    """Cluster documents of a few schedulers, executors and tables."""
    schedulers = {
        name: SchedulerInfo(
            scheduler_id=name, instance_id=f"{name}-1", flight_address="h:1", control_address="h:2"
        )
        for name in draw(st.sets(st.sampled_from(["s1", "s2", "s3"])))
    }
    members = {
        e.executor_id: AdmittedExecutor(
            info=ExecutorInfo(
                executor_id=e.executor_id,
                instance_id=e.instance_id,
                data_address="h:3",
                capacity=e.capacity,
                labels=e.labels,
            ),
            admitted=number + 1,
        )
        for number, e in enumerate(draw(st.just([]) | executors()))
    }
    tables = {}
    for name in draw(st.sets(st.sampled_from(["t1", "t2"]))):
        schema = draw(schemas())
        tables[name] = TableSpec(name=name, schema=schema, spec=draw(partition_specs(schema)))
    return ClusterDocument(schedulers=schedulers, executors=members, tables=tables, admissions=len(members))
