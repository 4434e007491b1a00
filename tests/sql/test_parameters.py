"""Parameters become literals of their own value and type, wherever they stand and whatever they hold."""

import datetime as dt
import math
import tracemalloc
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.errors import SqlError
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.sql.parse.parameter_types import parameter_schema
from ballista_py.sql.parse.parameters import bound, names_of, places_of
from ballista_py.sql.parse.value_rows import MAX_ROWS, row_template
from ballista_py.sql.plan import Catalog
from ballista_py.sql.planner import plan_query

UTC = dt.UTC


def _ends(kind):
    if pa.types.is_signed_integer(kind):
        return -(2 ** (kind.bit_width - 1)), -1, 2 ** (kind.bit_width - 1) - 1
    return 0, 2**kind.bit_width - 1


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


@pytest.fixture
def fresh(duck):
    """A connection without results that were not read to their end."""
    with duck.cursor() as connection:
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


# The number that Arrow holds, of the ends of each type and of what it has beside plain values.
ENDS = [
    *((kind, number) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64()) for number in _ends(kind)),
    *((kind, number) for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()) for number in _ends(kind)),
    *((pa.date32(), days) for days in (2**31 - 1, 1 - 2**31, 2**31 - 2, 2 - 2**31, -719_163, -719_162, 2_932_897)),
    *((pa.date64(), days * 86_400_000) for days in (-719_163, 2_932_897, 0)),
    *(
        (pa.timestamp("us", zone), number)
        for zone in (None, "UTC", "Asia/Tokyo")
        for number in (2**63 - 1, 1 - 2**63, 2**63 - 2, -9_223_372_022_400_000_000, -62_135_596_800_000_001, -1)
    ),
    *((pa.timestamp(unit), number) for unit in ("s", "ms", "ns") for number in (2**63 - 1, 1 - 2**63, 0)),
    (pa.timestamp("s"), -9_223_372_022_400),
    (pa.timestamp("ms"), 9_223_372_036_854_775),
    (pa.time64("us"), 0),
    (pa.time64("us"), 86_399_999_999),
    (pa.time64("us"), 86_400_000_000),
    (pa.time32("s"), 86_399),
    (pa.time64("ns"), 86_399_999_999_000),
]


@pytest.mark.parametrize(("kind", "number"), ENDS, ids=str)
def test_the_ends_of_every_type_come_back_as_the_same_number(fresh, kind, number):
    value = _of_number(kind, number)
    sql = bound("select ? as a, [?] as b, typeof(?) as kind", dict.fromkeys("123", value))
    found = fresh.sql(sql).to_arrow_table()
    for one in (found["a"][0], found["b"][0].values[0]):
        assert _microseconds(one) == _microseconds(value)
    with_zone = pa.types.is_timestamp(kind) and kind.tz is not None
    assert found["kind"][0].as_py().endswith("WITH TIME ZONE") == with_zone
    assert len(fresh.sql(bound("select 1 where ? = ?", {"1": value, "2": value})).fetchall()) == 1


@pytest.mark.parametrize(
    "value",
    [
        *(
            pa.scalar(x, pa.float64())
            for x in (5e-324, 1.7976931348623157e308, math.inf, -math.inf, math.nan, -0.0)
        ),
        *(
            pa.scalar(x, pa.float32())
            for x in (1.401298464324817e-45, -3.4028234663852886e38, math.inf, math.nan, -0.0)
        ),
        *(pa.scalar(Decimal(x), pa.decimal128(38, 0)) for x in ("9" * 38, "-" + "9" * 38)),
        *(pa.scalar(Decimal(x), pa.decimal128(38, 38)) for x in ("0." + "9" * 38, "-0." + "9" * 38)),
        pa.scalar(Decimal("-9.99"), pa.decimal128(3, 2)),
        pa.scalar(True),
        pa.scalar(False),
        pa.scalar(""),
        pa.scalar("\U0010ffff"),
        pa.scalar(b""),
        pa.scalar(b"\x00\xff"),
    ],
    ids=str,
)
def test_the_ends_of_what_is_no_whole_number_come_back_as_they_are(fresh, value):
    found = fresh.sql(bound("select ? as a", {"1": value})).to_arrow_table()["a"][0]
    assert (found.type, repr(found.as_py())) == (value.type, repr(value.as_py()))


@pytest.mark.parametrize("micros", [2**63 - 1, -(2**63)])
def test_the_longest_durations_and_intervals_are_those_of_the_engine(fresh, micros):
    longest = bound("select epoch_us(?)", {"1": pa.scalar(micros, pa.duration("us"))})
    assert fresh.sql(longest).fetchall() == [(micros,)]
    most = micros // 2**32  # of 32 bits
    parts = pa.scalar((most, most, micros // 2**10 * 1_000), pa.month_day_nano_interval())
    found = fresh.sql(bound("select ? as a", {"1": parts})).to_arrow_table()["a"][0].as_py()
    assert tuple(found) == (most, most, micros // 2**10 * 1_000)


@pytest.mark.parametrize(
    ("kind", "number", "said"),
    [
        (pa.date32(), -(2**31), "beyond the days"),
        (pa.date64(), 2**62, "beyond the days"),
        (pa.timestamp("us"), -(2**63), "beyond the moments"),
        (pa.timestamp("us", "UTC"), -9_223_372_022_400_000_001, "beyond the moments"),
        (pa.timestamp("s"), 2**62, "beyond the moments"),
        (pa.timestamp("ns"), 2**63 - 2, "microsecond"),
        (pa.time64("us"), 86_400_000_001, "24 hours"),
        (pa.time64("us"), -1, "24 hours"),
        (pa.time64("ns"), 1, "microsecond"),
        (pa.duration("s"), 2**62, "too long"),
    ],
    ids=str,
)
def test_a_time_that_the_engine_does_not_have_is_refused_by_name(kind, number, said):
    with pytest.raises(SqlError, match=said):
        bound("select ?", {"1": _of_number(kind, number)})


def _of_number(kind, number):
    width = getattr(pa, f"{'u' if pa.types.is_unsigned_integer(kind) else ''}int{kind.bit_width}")()
    return pa.array([number], width).view(kind)[0]


def _microseconds(value):
    """The number of the value, of what the engine gives it back as."""
    kind = value.type
    if pa.types.is_integer(kind):
        return value.as_py()
    special = abs(value.value) == 2 ** (kind.bit_width - 1) - 1
    if special:
        return "infinity" if value.value > 0 else "-infinity"
    if kind == pa.date64():
        return value.value // 86_400_000
    scale = {"s": 1_000_000, "ms": 1_000, "us": 1}
    unit = "us" if kind == pa.date32() else kind.unit
    return value.value // 1_000 if unit == "ns" else value.value * scale[unit]


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


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (pa.scalar("x" * 3_900_000), "more than 4,000,000 characters"),
        (pa.scalar(b"x" * 1_900_000), "more than 4,000,000 characters"),
        (
            pa.scalar(list(range(99_000))),
            "the parameters hold 4,950,000 values at the places where they are named",
        ),
        (pa.scalar({"a": [1] * 40_000, "b": [2] * 40_000}), "values at the places where they are named"),
        (pa.scalar([(n, n) for n in range(30_000)], pa.map_(pa.int64(), pa.int64())), "values at the places"),
    ],
)
def test_a_value_counts_wherever_it_is_named_before_it_is_written(value, words):
    """One text of 3.9 MB that was named 300 times took a scheduler of 512 MB to 3.7 GB."""
    tracemalloc.start()
    try:
        with pytest.raises(SqlError, match=words):
            bound(f"select {', '.join(['length($1)'] * 50)}", {"1": value})
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


def test_several_parameters_count_together():
    half = pa.scalar([1] * 60_000)
    with pytest.raises(SqlError, match="the parameters hold 120,000 values"):
        bound("select $1, $2", {"1": half, "2": half})
    assert len(bound("select $1", {"1": half})) > 60_000
