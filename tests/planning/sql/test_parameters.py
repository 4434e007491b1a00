"""Parameters become literals of their own value and type, wherever they stand and whatever they hold."""

import datetime as dt
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ballista_py.engines.duckdb import DuckDBEngine
from ballista_py.errors import SqlError
from ballista_py.planning.partition_map import PartitionMap
from ballista_py.planning.partition_spec import PartitionSpec
from ballista_py.planning.query_plan import Catalog
from ballista_py.planning.sql import plan_query
from ballista_py.planning.sql.parameter_types import parameter_schema
from ballista_py.planning.sql.parameters import bound, names_of, places_of
from ballista_py.planning.sql.value_rows import MAX_ROWS, row_template
from ballista_py.planning.table import TableSpec

UTC = dt.UTC
VALUES = st.one_of(
    st.booleans().map(pa.scalar),
    st.integers(-(2**63), 2**63 - 1).map(pa.scalar),
    st.integers(0, 2**64 - 1).map(lambda n: pa.scalar(n, pa.uint64())),
    st.integers(-128, 127).map(lambda n: pa.scalar(n, pa.int8())),
    st.floats(allow_nan=False).map(pa.scalar),
    st.floats(allow_nan=False, width=32).map(lambda x: pa.scalar(x, pa.float32())),
    st.decimals(-(10**15), 10**15, places=3).map(lambda d: pa.scalar(d, pa.decimal128(30, 3))),
    st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"])).map(pa.scalar),
    st.binary().map(pa.scalar),
    st.dates(dt.date(1, 1, 1)).map(pa.scalar),
    st.datetimes().map(lambda t: pa.scalar(t, pa.timestamp("us"))),
    st.datetimes(dt.datetime(2, 1, 1)).map(lambda t: pa.scalar(t.replace(tzinfo=UTC), pa.timestamp("us", "UTC"))),
    st.times().map(lambda t: pa.scalar(t, pa.time64("us"))),
    st.lists(st.one_of(st.none(), st.integers(-5, 5))).map(lambda n: pa.scalar(n, pa.list_(pa.int64()))),
)
SHORT = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=5)
NAMES = st.lists(SHORT.filter(bool), min_size=1, max_size=3, unique_by=str.casefold)
SIMPLE = st.sampled_from(
    [
        (pa.int8(), st.integers(-128, 127)),
        (pa.uint64(), st.integers(0, 2**64 - 1)),
        (pa.float64(), st.floats(allow_nan=False)),
        (pa.string(), SHORT),
        (pa.binary(), st.binary(max_size=5)),
        (pa.bool_(), st.booleans()),
        (pa.date32(), st.dates(dt.date(1, 1, 1))),
        (pa.timestamp("us"), st.datetimes()),
        (pa.decimal128(20, 2), st.decimals(-(10**10), 10**10, places=2)),
    ]
)


def nested(inner):
    """Types that hold `inner`, each with values of it; nulls may be anywhere but in keys."""

    def lists(pair):
        kind, values = pair
        return pa.list_(kind), st.lists(st.none() | values, max_size=3)

    def structs(drawn):
        names, pairs = drawn
        fields = list(zip(names, pairs, strict=False))
        kind = pa.struct([(name, pair[0]) for name, pair in fields])
        return kind, st.fixed_dictionaries({name: st.none() | pair[1] for name, pair in fields})

    def maps(pair):
        kind, values = pair
        return pa.map_(pa.string(), kind), st.dictionaries(SHORT, st.none() | values, max_size=3).map(
            lambda found: list(found.items())
        )

    several = st.tuples(NAMES, st.lists(inner, min_size=3, max_size=3)).map(structs)
    return st.one_of(inner.map(lists), several, inner.map(maps))


NESTED = nested(st.one_of(SIMPLE, nested(SIMPLE))).flatmap(
    lambda pair: pair[1].map(lambda value: pa.scalar(value, pair[0]))
)


@pytest.fixture(scope="module")
def duck():
    with duckdb.connect() as connection:
        connection.execute("set TimeZone = 'UTC'")
        yield connection


@given(value=VALUES)
def test_a_bound_value_comes_back_with_its_type(duck, value):
    found = duck.sql(bound("select ? as a", {"1": value})).to_arrow_table()["a"]
    assert found[0].as_py() == value.as_py()
    if not pa.types.is_list(value.type):
        assert found.type in (value.type, pa.decimal128(30, 3))


@given(value=NESTED)
def test_a_list_struct_or_map_comes_back_with_its_type_whatever_is_in_it(duck, value):
    found = duck.sql(bound("select ? as a", {"1": value})).to_arrow_table()["a"]
    assert found[0].as_py() == value.as_py()
    assert found.type == value.type


@pytest.mark.parametrize(
    ("value", "months", "days", "micros"),
    [
        (pa.scalar(dt.timedelta(days=-3, microseconds=7), pa.duration("us")), 0, 0, -3 * 86_400_000_000 + 7),
        (pa.scalar(5, pa.duration("s")), 0, 0, 5_000_000),
        (pa.scalar((14, -2, 3_000), pa.month_day_nano_interval()), 14, -2, 3),
    ],
)
def test_a_duration_is_an_interval_of_the_engine(duck, value, months, days, micros):
    (found,) = duck.sql(bound("select ? as a", {"1": value})).to_arrow_table()["a"].to_pylist()
    assert found == (months, days, 1_000 * micros)
    same = duck.execute(
        bound("select (timestamp '2024-01-31' - ?) = (timestamp '2024-01-31' - (?))", {"1": value, "2": value})
    )
    assert same.fetchall() == [(True,)]  # it is one value beside an operator, not three


TEXTS = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]))


@given(texts=st.lists(TEXTS, min_size=3, max_size=3))
def test_no_text_changes_what_the_statement_is(duck, texts):
    sql = 'select ?, \'?\', "?", $$?$$ /* ? */, ? -- ?\n, ? from (select 1 as "?")'
    row = duck.execute(bound(sql, {str(n + 1): pa.scalar(text) for n, text in enumerate(texts)})).fetchone()
    assert row == (texts[0], "?", 1, "?", texts[1], texts[2])


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("select 1", ()),
        ("select ?, ?", ("1", "2")),
        ("select $2, $1, $2", ("1", "2")),
        ("select $b, $a, $b", ("b", "a")),
        ("select '?', \"$1\", $$ $1 $$, $x$ ? $x$", ()),
        ("insert into t values (?, 'a''?', ?)", ("1", "2")),
        ("select ? ?", ("1", "2")),
    ],
)
def test_the_places_are_those_that_the_engine_sees(sql, names):
    assert names_of(places_of(sql)) == names
    if sql != "select ? ?":
        engine = DuckDBEngine()
        assert engine.parameters(sql) == set(names)
        engine.close()


def test_neighbours_do_not_grow_together(duck):
    assert duck.execute(bound("select 1+?", {"1": pa.scalar(-2)})).fetchone() == (-1,)
    assert duck.execute(bound("select -?", {"1": pa.scalar(-2)})).fetchone() == (2,)
    assert duck.execute(bound("select?as a", {"1": pa.scalar(7)})).fetchone() == (7,)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (pa.scalar({}, pa.struct([])), "names that differ"),
        (pa.scalar({"a": 1, "A": 2}), "names that differ"),
        (pa.scalar(["a\x00b"]), "NUL"),
        (pa.scalar("a\x00b"), "NUL"),
        (pa.scalar(1, pa.timestamp("ns")), "microsecond"),
        (pa.scalar(1, pa.duration("ns")), "microsecond"),
        (pa.scalar((0, 0, 1), pa.month_day_nano_interval()), "microsecond"),
    ],
)
def test_a_value_without_a_literal_is_refused(value, said):
    with pytest.raises(SqlError, match=said):
        bound("select ?", {"1": value})


def test_a_parameter_without_a_value_is_named():
    with pytest.raises(SqlError, match="parameter 2 has no value"):
        bound("select ?, ?", {"1": pa.scalar(1)})


@pytest.mark.parametrize(
    ("column", "value", "partitions"),
    [
        ("i", pa.scalar(7), 1),
        ("i", pa.scalar(7, pa.int8()), 1),
        ("i", pa.scalar(None, pa.int64()), 0),
        ("s", pa.scalar("x"), 1),
        ("d", pa.scalar(dt.date(2024, 1, 1)), 1),
        ("t", pa.scalar(dt.datetime(2024, 1, 1, 12), pa.timestamp("us")), 1),
        ("n", pa.scalar(Decimal("1.50"), pa.decimal128(10, 2)), 1),
        ("n", pa.scalar(Decimal("-1.50"), pa.decimal128(10, 2)), 1),
        ("i", pa.scalar(1.5), 16),
    ],
)
def test_partitions_are_pruned_by_what_was_bound(column, value, partitions):
    kinds = {
        "i": pa.int64(),
        "s": pa.string(),
        "d": pa.date32(),
        "t": pa.timestamp("us"),
        "n": pa.decimal128(10, 2),
    }
    schema = pa.schema([pa.field(name, kind, nullable=False) for name, kind in kinds.items()])
    spec = PartitionSpec.parse([f"bucket(16, {column})"], schema)
    table = TableSpec(name="items", schema=schema, spec=spec)
    catalog = Catalog(
        tables={"items": table}, maps={"items": PartitionMap.build("items", spec, spec.static_values())}
    )
    sql = bound(f"select {column} from items where {column} = ?", {"1": value})
    plan = plan_query(sql, catalog, pa.schema([(column, kinds[column])]))
    assert [len(table.partitions) for fragment in plan.fragments for table in fragment.tables] == [partitions]


@pytest.mark.parametrize(
    ("sql", "types"),
    [
        ("select * from t where id = ?", [pa.int64()]),
        ("select * from t where ? < t.id", [pa.int64()]),
        (
            "select * from t a join u b on a.id = b.id where b.name like ? and a.id in (?, 2)",
            [pa.string(), pa.int64()],
        ),
        ("select * from t where made between ? and $2", [pa.date32(), pa.date32()]),
        ("select ? from t limit ? offset ?", [pa.null(), pa.int64(), pa.int64()]),
        ("select * from t, u where name = ?", [pa.string()]),
        ("select * from t a, u a2 where id = ?", [pa.null()]),
        ("insert into t values (?, ?)", [pa.int64(), pa.date32()]),
        ("insert into t (made, id) values (?, ?)", [pa.date32(), pa.int64()]),
        ("update t set made = ? where id = ?", [pa.date32(), pa.int64()]),
        ("delete from t where id = ?", [pa.int64()]),
        ("select * from nothing where id = ?", [pa.null()]),
        ("select ((( from ?", [pa.null()]),
    ],
)
def test_the_type_of_a_parameter_is_that_of_the_column_beside_it(sql, types):
    tables = {
        "t": pa.schema([("id", pa.int64()), ("made", pa.date32())]),
        "u": pa.schema([("id", pa.int32()), ("name", pa.string())]),
    }
    assert parameter_schema(sql, tables).types == types


def test_many_rows_are_few_statements_and_no_row_is_lost():
    template = row_template("insert into t values (?, upper(?))")
    rows = ({"1": pa.scalar(n), "2": pa.scalar("a")} for n in range(2 * MAX_ROWS + 1))
    statements = list(template.statements(rows))
    assert [statement.count("UPPER") + statement.count("upper") for statement in statements] == [
        MAX_ROWS,
        MAX_ROWS,
        1,
    ]


def test_rows_of_long_texts_are_more_statements():
    template = row_template("insert into t values (?)")
    statements = list(template.statements({"1": pa.scalar("x" * 400_000)} for _ in range(7)))
    assert [statement.count("'") // 2 for statement in statements] == [3, 3, 1]


@pytest.mark.parametrize(
    "sql",
    [
        "insert into t select ?",
        "insert into t values (?, ?), (1, 2)",
        "insert into t values (?) on conflict do nothing",
        "insert into t values (?) returning *",
        "with a as (select ?) insert into t values (?)",
        "update t set a = (?)",
        "insert into t values ?",
        "insert into t",
    ],
)
def test_what_is_not_one_row_of_values_is_left_alone(sql):
    assert row_template(sql) is None
