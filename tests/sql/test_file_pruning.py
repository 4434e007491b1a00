"""A file is dropped only if no row of it can match: held against an engine that looks at every row."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import parse_one

from ballista_py.sql.prune.files import FilePruner
from ballista_py.storage.formats.column_bounds import bounds_of, may_hold
from ballista_py.storage.formats.statistics import table_statistics
from ballista_py.storage.manifest import DataFile

SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("s", pa.string()),
        ("d", pa.date32()),
        ("x", pa.float64()),
        ("m", pa.decimal128(9, 2)),
        ("b", pa.bool_()),
        ("ts", pa.timestamp("us")),
    ]
)


def file_of(rows: pa.Table) -> DataFile:
    return DataFile(path="f", rows=rows.num_rows, bytes=1, columns=table_statistics(rows))


def may(where: str, rows: pa.Table) -> bool:
    pruner = FilePruner(where=parse_one(where, dialect="duckdb"), names=("t",), schema=rows.schema)
    return may_hold([file_of(rows)], pruner) != []


FIVE = pa.table(
    [
        [10, 12, 14, None, 16],
        ["ant", "bee", None, "cat", "dog"],
        [dt.date(2024, 1, day) for day in range(1, 6)],
        [0.5, 1.5, 2.5, 3.5, None],
        [Decimal("1.50"), Decimal("2.25"), None, Decimal("9.99"), Decimal("3.00")],
        [True] * 5,
        [dt.datetime(2024, 1, day, 12) for day in range(1, 6)],
    ],
    schema=SCHEMA,
)


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        ("n = 9", False),
        ("n = 11", True),  # bounds tell no more
        ("N = 17", False),
        ("t.n > 16", False),
        ("16 < n", False),
        ("n >= 16", True),
        ("n between 1 and 9", False),
        ("n in (1, 2, 17)", False),
        ("n in (1, 2, null)", False),
        ("n = null", False),
        ("n in (1, 12)", True),
        ("n = 1 or s = 'zebra'", False),
        ("n = 1 or s = 'bee'", True),
        ("n = 1 and abs(n) = 1", False),
        ("abs(n) = 1", True),
        ("n is null", True),
        ("b is null", False),
        ("b is not null", True),
        ("b = false", False),
        ("false", False),
        ("s like 'e%'", False),
        ("s like 'b_e'", True),
        ("s like '%z'", True),
        ("s not like 'e%'", True),
        ("not (s like 'e%')", True),
        ("s > 'dog'", False),
        ("d < date '2024-01-01'", False),
        ("d = '2024-01-03'", True),
        ("ts >= timestamp '2024-01-05 12:00:01'", False),
        ("m > 10", False),
        ("m = 9.99", True),
        ("x < 0", False),
        ("x > 100", True),  # NaN would be
        ("x between 100 and 200", False),
        ("x between -200 and -100", False),
        ("x between 100 and 'nan'::double", True),
        ("not (n = 1)", True),
        ("n = 1.5", True),  # not surely a value of the type
        ("u.n = 1", True),  # of something else
        ("n is not distinct from 1", True),
        ("n = (select 1)", True),
    ],
)
def test_what_statistics_rule_out_is_dropped_and_nothing_else(where, kept):
    assert may(where, FIVE) is kept


def test_a_file_of_nulls_matches_no_comparison():
    rows = pa.table({"n": pa.nulls(3, pa.int64())})
    assert not may("n = 1", rows)
    assert not may("n is not null", rows)
    assert may("n is null", rows)


def test_statistics_that_are_not_known_drop_nothing():
    unknown = DataFile(path="f", rows=3, bytes=1)
    pruner = FilePruner(where=parse_one("n = 1"), names=("t",), schema=SCHEMA)
    assert may_hold([unknown], pruner) == [unknown]
    assert bounds_of(unknown, SCHEMA) == {}


NUMBERS = st.none() | st.integers(-3, 3)
FLOATS = st.none() | st.sampled_from([-1.0, -0.0, 0.0, 2.0, float("nan"), float("inf"), float("-inf")])
WORDS = st.none() | st.sampled_from(["", "a", "ab", "b", "é", "z%"])
COMPARISONS = st.sampled_from(["=", "<", "<=", ">", ">=", "<>", "is not distinct from"])
TESTS = st.one_of(
    st.tuples(st.just("n"), COMPARISONS, st.integers(-4, 4).map(str)).map(" ".join),
    st.tuples(st.just("x"), COMPARISONS, st.integers(-2, 3).map(str)).map(" ".join),
    st.tuples(st.just("s"), COMPARISONS, st.sampled_from(["'a'", "'ab'", "'é'", "''"])).map(" ".join),
    st.tuples(st.sampled_from(["n", "x"]), st.integers(-3, 3), st.integers(-3, 3)).map(
        lambda found: f"{found[0]} between {found[1]} and {found[2]}"
    ),
    st.sampled_from(["n is null", "x is not null", "s like 'a%'", "s like ''", "s like '_b'", "n in (1, null)"]),
    st.sampled_from(["s not like 'b%'", "s not in ('b', 'é')", "s ilike 'B%'", "s not ilike 'B%'", "s glob 'b*'"]),
    st.sampled_from(["x = 'nan'::double", "x >= 'nan'::double", "x between 1 and 'nan'::double", "x <> 2"]),
    st.sampled_from(["s like 'b!%' escape '!'", "n not between 0 and 1", "-n > 1"]),
)
PREDICATES = st.recursive(
    TESTS,
    lambda inner: (
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda f: f"({f[0]} {f[1]} {f[2]})")
        | inner.map(lambda text: f"not ({text})")
    ),
    max_leaves=4,
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(NUMBERS, FLOATS, WORDS), min_size=1, max_size=4), PREDICATES)
def test_no_file_that_holds_a_matching_row_is_dropped(values, where):
    columns = list(zip(*values, strict=True))
    rows = pa.table(
        [columns[0], columns[1], columns[2]],
        schema=pa.schema([("n", pa.int64()), ("x", pa.float64()), ("s", pa.string())]),
    )
    found = duckdb.from_arrow(rows).filter(where).count("*").fetchall()[0][0]
    assert may(where, rows) or found == 0
