"""Row groups that no row of a condition lies in are not sent, and whatever the condition gives is as over all rows."""

from __future__ import annotations

import datetime as dt
import io
from decimal import Decimal

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ballista_py.agents.done_here import done_here
from ballista_py.agents.partition_search import _next
from ballista_py.agents.section_reader import rows_of_pieces
from ballista_py.errors import InvalidData
from ballista_py.owner.part_pieces import file_pieces
from ballista_py.sql.parts import condition_of
from ballista_py.sql.prune.file_bounds import ColumnBounds, ColumnTest, may_pass
from ballista_py.storage.held.cache import LocalCopy
from ballista_py.storage.reads.files import ReadFiles
from ballista_py.transport.table_read.tokens.positions import START, Position

NAN, INF = float("nan"), float("inf")
LONG = "x" * 70
VALUES = {
    "n": (pa.int64(), [None, -3, 0, 1, 2, 9, 2**53, -(2**63), 2**63 - 1]),
    "u": (pa.uint32(), [None, 0, 1, 7, 2**32 - 1]),
    "v": (pa.float64(), [None, NAN, -0.0, 0.0, 0.5, -INF, INF, 3.25, -7.0]),
    "f": (pa.float32(), [None, NAN, -0.0, 0.1, 2.5]),
    "s": (pa.string(), [None, "", "a", "ab", "Ä", "z\U0001f600", "\uffff", LONG, LONG + "y"]),
    "m": (pa.decimal128(12, 2), [None, Decimal("-1.50"), Decimal("0.00"), Decimal("1.49"), Decimal("150.00")]),
    "d": (pa.date32(), [None, dt.date(1969, 12, 31), dt.date(2026, 11, 28), dt.date(9999, 12, 31)]),
    "t": (pa.timestamp("us"), [None, dt.datetime(1960, 1, 1), dt.datetime(2026, 11, 28, 5, 6, 7, 8)]),
    "z": (pa.timestamp("us", "UTC"), [None, *(dt.datetime(y, 1, 1, tzinfo=dt.UTC) for y in (1999, 2030))]),
    "b": (pa.bool_(), [None, True, False]),
}  # fmt: skip
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in VALUES.items()])
LITERALS = {
    "n": ["0", "1", "9", "-3", "9007199254740993", "1.5", "null", "9223372036854775807", "'2'", "1e300"],
    "u": ["0", "7", "-1", "4294967295", "4294967296"],
    "v": ["0", "-0.0", "0.5", "'nan'::double", "'inf'::double", "3.25", "-7", "null"],
    "f": ["0", "0.1", "2.5", "0.1::float"],
    "s": ["''", "'a'", "'ab'", "'Ä'", f"'{LONG}'", "'\uffff'", "null"],
    "m": ["0", "1.49", "1.495", "-1.5", "150", "149.99"],
    "d": ["date '2026-11-28'", "'1969-12-31'", "timestamp '2026-11-28 00:00:01'"],
    "t": ["timestamp '2026-11-28 05:06:07.000008'", "date '1960-01-01'", "'1960-01-01'"],
    "z": ["timestamptz '2030-01-01 00:00:00+00'", "'1999-01-01 00:00:00+00'"],
    "b": ["true", "false"],
}


@st.composite
def comparisons(draw):
    column = draw(st.sampled_from(sorted(VALUES)))
    one, other = (draw(st.sampled_from(LITERALS[column])) for _ in range(2))
    operator = draw(st.sampled_from(["=", "<", "<=", ">", ">=", "<>"]))
    return draw(
        st.sampled_from(
            [
                f"{column} {operator} {one}", f"{one} {operator} {column}", f"{column} is null",
                f"{column} is not null", f"{column} between {one} and {other}", f"{column} in ({one}, {other})",
                f"not ({column} {operator} {one})", f"{column} not in ({one})",
                f"{column} not between {one} and {other}", f"t.{column} = {one} is null",
            ]
        )
    )  # fmt: skip


conditions = st.recursive(
    comparisons(),
    lambda inner: st.builds(lambda a, b, how: f"({a}) {how} ({b})", inner, inner, st.sampled_from(["and", "or"])),
    max_leaves=4,
)


@st.composite
def tables(draw):
    """Rows whose groups have few values each, so that some can be told from others."""
    parts = []
    for _ in range(draw(st.integers(1, 5))):
        chosen = {
            name: draw(st.lists(st.sampled_from(v), min_size=1, max_size=2)) for name, (_, v) in VALUES.items()
        }
        parts.append([{name: draw(st.sampled_from(some)) for name, some in chosen.items()} for _ in range(4)])
    return pa.Table.from_pylist([row for part in parts for row in part], schema=SCHEMA)


def written(rows, writer, group_rows=4) -> bytes:
    sink = io.BytesIO()
    if writer == "polars":
        pl.from_arrow(rows).write_parquet(sink, row_group_size=group_rows)
    else:
        pq.write_table(rows, sink, row_group_size=group_rows, write_statistics=writer)
    return sink.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("groups")


def kept(condition, schema):
    """As it comes from the object that names the files of a job."""
    read = ReadFiles(
        table="t", folder="t", incarnation="", schema=schema, parts=((),), plan="p", columns=tuple(schema.names),
        given=schema, condition=condition,
    )  # fmt: skip
    return ReadFiles.from_bytes(*read.to_bytes()).condition


def sent_of(path, schema, condition, begin=0, gone=()):
    copy = LocalCopy(str(path), "parquet", gone=np.array(gone, np.int64))
    found = file_pieces(copy, schema, begin, ("parquet",), condition)
    return [(Position(0, at), piece.to_batch()) for at, piece in found]


def read(sent, schema, begin=0):
    chunks = rows_of_pieces(iter(sent), schema, Position(0, begin), may_skip=True)
    at, batches = Position(0, begin), []
    for begins, batch in chunks:
        at = _next(at, begins, batch.num_rows, may_skip=True)
        batches.append(batch)
    return pa.Table.from_batches(batches, schema=schema)


def answer(rows, where):
    found = done_here(f"select * from t where {where}", "t", rows.to_reader())
    return sorted(map(repr, found.to_pylist()))


@settings(deadline=None, max_examples=150)
@given(
    rows=tables(),
    where=conditions,
    writer=st.sampled_from([True, True, "polars", False, ["n", "s", "v"]]),
    gone=st.sets(st.integers(0, 3)).map(sorted),
)
def test_a_condition_gives_the_same_over_what_is_sent(folder, rows, where, writer, gone):
    path = folder / "rows.parquet"
    path.write_bytes(written(rows, writer))
    schema = pq.read_schema(path).remove_metadata()
    condition = kept(condition_of(f"select * from t where {where}", schema), schema)
    left = rows.take(pa.array([n for n in range(rows.num_rows) if n not in gone], pa.int64())).cast(schema)
    try:
        wanted = answer(left, where)
    except Exception:  # no condition, or one that fails over these rows: what is left out may fail no more
        return
    assert answer(read(sent_of(path, schema, condition, gone=gone), schema), where) == wanted


IDS = pa.table({"id": pa.array(range(300), pa.int64()), "word": [f"w{n // 100}" for n in range(300)]})


@pytest.fixture(scope="module")
def ids(folder):
    path = folder / "ids.parquet"
    path.write_bytes(written(IDS, True, 50))
    return path


@pytest.mark.parametrize(
    ("where", "left"),
    [
        ("id = 120", range(100, 150)),
        ("id > 249", range(250, 300)),
        ("id in (3, 299)", [*range(50), *range(250, 300)]),
        ("id between 40 and 60", range(100)),
        ("id < 10 or word = 'w2'", [*range(50), *range(200, 300)]),
        ("id + 1 < 3 and id < 60", range(100)),
        ("id < 0", []),
        ("id is null", []),
        ("word is not null", range(300)),
        ("abs(id) = 3", range(300)),
    ],
)
def test_what_cannot_match_is_not_sent(ids, where, left):
    condition = kept(condition_of(f"select count(*) as c from t where {where}", IDS.schema), IDS.schema)
    sent = sent_of(ids, IDS.schema, condition)
    assert read(sent, IDS.schema)["id"].to_pylist() == list(left)
    everything = sum(len(batch["bytes"][0].as_py()) for _, batch in sent_of(ids, IDS.schema, ()))
    assert sum(len(batch["bytes"][0].as_py()) for _, batch in sent) <= everything
    assert bool(sent) == bool(list(left))


@pytest.mark.parametrize(
    ("begin", "gone", "left"), [(20, (), range(20, 50)), (60, (), range(250, 300)), (30, (0, 1), range(32, 50))]
)
def test_it_goes_on_from_any_row(ids, begin, gone, left):
    condition = condition_of("select id from t where id < 50 or id > 250", IDS.schema)
    found = read(sent_of(ids, IDS.schema, condition, begin, gone), IDS.schema, begin)
    assert found["id"].to_pylist()[: len(left)] == list(left)
    assert found["id"].to_pylist()[-1] == 299


def test_who_has_not_said_that_rows_may_be_missing_takes_none_for_a_whole(ids):
    sent = sent_of(ids, IDS.schema, condition_of("select id from t where id = 120", IDS.schema))
    with pytest.raises(InvalidData):
        list(rows_of_pieces(iter(sent), IDS.schema, START))
    with pytest.raises(InvalidData):
        _next(START, Position(0, 50), 3)
    assert _next(START, Position(0, 50), 3, may_skip=True) == Position(0, 53)
    with pytest.raises(InvalidData):
        _next(Position(0, 60), Position(0, 50), 3, may_skip=True)


def test_row_groups_that_come_twice_or_half_are_none(ids):
    sent = sent_of(ids, IDS.schema, condition_of("select id from t where id > 100 and id < 210", IDS.schema))
    with pytest.raises(InvalidData):
        list(rows_of_pieces(iter([*sent, sent[-1]]), IDS.schema, START, may_skip=True))


@pytest.mark.parametrize(
    "bounds", [ColumnBounds(), ColumnBounds(low=None, high=3), ColumnBounds(low=4, high=None)]
)
def test_what_is_not_known_keeps_a_group(bounds):
    for operator in ("=", "<", "<=", ">", ">=", "is null", "is not null"):
        value = 3 if bounds.low is None else 5
        may = may_pass((((ColumnTest("a", operator, value),),),), 7, {"a": bounds})
        assert may or (operator == ">" and bounds.high == 3)
        assert may_pass((((ColumnTest("b", operator, value),),),), 7, {"a": bounds})


@pytest.mark.parametrize(
    "sql",
    [
        "select id from t limit 3",
        "select a.id from t a join t b on a.id = b.id where a.id = 3",
        "select id from (select id from t) where id = 3",
        "with t as (select 3 as id) select id from t where id = 3",
        "select id from t where id = (select max(id) from t)",
    ],
)
def test_what_is_not_the_condition_of_the_tables_own_rows_is_none(sql):
    assert condition_of(sql, IDS.schema) == ()


def test_a_value_without_a_short_text_is_left_out():
    schema = pa.schema([("s", pa.string()), ("id", pa.int64())])
    condition = condition_of(f"select s from t where (s = '{LONG}' or id = 2) and id > 1", schema)
    assert len(condition) == 2
    assert kept(condition, schema) == (((ColumnTest("id", ">", 1),),),)


@pytest.mark.parametrize("where", ["v > 5", "v >= 5", "5 < v", "v between 5 and 'nan'::double", "v > 5 or v = 0"])
def test_nan_is_above_all_numbers_and_in_no_statistics(folder, where):
    rows = pa.table({"v": pa.array([1.0, NAN, 2.0, 3.0], pa.float64())})
    path = folder / "nan.parquet"
    path.write_bytes(written(rows, True, 2))
    condition = kept(condition_of(f"select v from t where {where}", rows.schema), rows.schema)
    assert answer(read(sent_of(path, rows.schema, condition), rows.schema), where) == ["{'v': nan}"]
