"""Partition keys: a short grammar, one meaning in Arrow, DuckDB and Spark, and a form that lasts."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from functools import cache
from types import ModuleType
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ballista_py.errors import SchemaMismatch, UnsupportedExpression
from ballista_py.partitions.expression.time_zones import local_times
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.values import as_key, path_of, type_of_text, type_text

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("region", pa.string()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("day", pa.date32()),
        pa.field("price", pa.decimal128(10, 2)),
        pa.field("items", pa.list_(pa.int64())),
        pa.field("Name", pa.string()),
        pa.field("ratio", pa.float64()),
    ]
)

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata")

_MOMENTS = st.datetimes(dt.datetime(1, 1, 3), dt.datetime(9999, 12, 29))
_ROWS = st.fixed_dictionaries(
    {
        "small": st.none() | st.integers(-(1 << 15), (1 << 15) - 1),
        "big": st.none() | st.integers(-(1 << 63), (1 << 63) - 1),
        "ratio": st.none() | st.floats(),
        "flag": st.none() | st.booleans(),
        "day": st.none() | st.dates(dt.date(1, 1, 3), dt.date(9999, 12, 29)),
        "wall": st.none() | _MOMENTS,
        "instant": st.none() | _MOMENTS.map(lambda moment: moment.replace(tzinfo=dt.UTC)),
        "price": st.none() | st.decimals(-(10**9), 10**9, places=2),
        "name": st.none() | st.text(st.characters(exclude_characters="\x00", codec="utf-8"), max_size=8),
        "Mixed Case": st.none() | st.text("abAB", max_size=3),
        "raw": st.none() | st.binary(max_size=40),
    }
)


@cache
def session() -> Any:
    """A DuckDB session of a time zone that no test uses."""
    connection = pytest.importorskip("duckdb").connect()
    connection.sql("set timezone = 'Asia/Tokyo'")
    return connection


@cache
def functions(spec: PartitionSpec) -> None:
    spec.register_duckdb(session())


def duckdb_keys(specs: list[PartitionSpec], rows: pa.RecordBatch) -> list[pa.Array]:
    """The keys of the rows as DuckDB computes them."""
    for spec in specs:
        functions(spec)
    session().register("given", pa.table(rows).append_column("place", pa.array(range(rows.num_rows))))
    keys = ", ".join(f"{spec.duckdb_sql()[0]} as k{place}" for place, spec in enumerate(specs))
    found = session().sql(f"select {keys} from given order by place").to_arrow_table()
    return [found[f"k{place}"].combine_chunks() for place in range(len(specs))]


def same(left: pa.Array, right: pa.Array) -> bool:
    """Whether two arrays hold the same values, NaN being itself."""
    return repr(left.to_pylist()) == repr(right.to_pylist())


@pytest.mark.parametrize("zone", ZONES)
def test_duckdb_gives_the_keys_that_arrow_gives_on_hard_rows(zone: str, key_cases: ModuleType) -> None:
    rows = key_cases.hard_rows()
    specs = [PartitionSpec.parse([text], key_cases.SCHEMA, zone) for text in key_cases.EXPRESSIONS]
    for spec, theirs in zip(specs, duckdb_keys(specs, rows), strict=True):
        (ours,) = spec.evaluate(rows)
        assert ours.type == spec.keys[0].type
        assert same(ours, as_key(theirs, ours.type)), spec.keys[0].expression


@settings(max_examples=20)
@given(rows=st.lists(_ROWS, min_size=1, max_size=8), zone=st.sampled_from(ZONES))
def test_duckdb_gives_the_keys_that_arrow_gives_on_random_rows(
    rows: list[dict[str, Any]], zone: str, key_cases: ModuleType
) -> None:
    batch = pa.RecordBatch.from_pylist(rows, key_cases.SCHEMA)
    specs = [PartitionSpec.parse([text], key_cases.SCHEMA, zone) for text in key_cases.EXPRESSIONS]
    for spec, theirs in zip(specs, duckdb_keys(specs, batch), strict=True):
        (ours,) = spec.evaluate(batch)
        assert same(ours, as_key(theirs, ours.type)), spec.keys[0].expression


def test_arrow_layouts_of_one_column_give_one_key(key_cases: ModuleType) -> None:
    rows = key_cases.hard_rows()
    others = {
        "name": pa.dictionary(pa.int32(), pa.string()),
        "Mixed Case": pa.large_string(),
        "raw": pa.large_binary(),
        "day": pa.date64(),
    }
    fields = [pa.field(field.name, others.get(field.name, field.type)) for field in key_cases.SCHEMA]
    other_rows = pa.RecordBatch.from_arrays(
        [column.cast(field.type) for column, field in zip(rows.columns, fields, strict=True)],
        schema=pa.schema(fields),
    )
    for text in key_cases.EXPRESSIONS:
        spec = PartitionSpec.parse([text], key_cases.SCHEMA)
        assert same(spec.evaluate(rows)[0], spec.evaluate(other_rows)[0]), text
        declared = PartitionSpec.parse([text], pa.schema(fields))
        assert same(spec.evaluate(rows)[0], declared.evaluate(other_rows)[0]), text
        assert same(spec.evaluate(rows.slice(5, 7))[0], spec.evaluate(rows)[0].slice(5, 7)), text


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca"])
def test_local_times_far_ahead_follow_the_rules_of_the_zone(zone: str) -> None:
    days = [
        dt.datetime(year, 1, 1, tzinfo=dt.UTC) for year in (2036, 2037, 2050, 2099, 2100, 2399, 2555, 6001, 9990)
    ]
    moments = [day + dt.timedelta(hours=hours) for day in days for hours in range(0, 366 * 24, 7)]
    there = [moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None) for moment in moments]
    values = pa.array(moments, pa.timestamp("us", "UTC"))
    assert local_times(values, zone).to_pylist() == there


@pytest.mark.parametrize("unit", ["s", "ms", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_timestamps_of_every_unit_give_the_keys_of_microseconds(unit: str, zone: str | None) -> None:
    moments = [dt.datetime(1969, 12, 31, 23, 59, 59), dt.datetime(2024, 2, 29, 12), None]
    for text in ("c", "bucket(100, c)", "date_trunc('hour', c)", "year(c)", "cast(c as date)"):
        keys = []
        for kind in (pa.timestamp("us", zone), pa.timestamp(unit, zone)):
            spec = PartitionSpec.parse([text], pa.schema([("c", kind)]), "Europe/Berlin")
            batch = pa.record_batch([pa.array(moments, pa.timestamp("s", zone)).cast(kind)], ["c"])
            keys.append(spec.evaluate(batch)[0])
            assert same(duckdb_keys([spec], batch)[0].cast(keys[-1].type), keys[-1]), text
        assert keys[0] == keys[1]


def test_nanoseconds_before_1970_belong_to_the_microsecond_that_they_are_in() -> None:
    ticks = pa.array([-1, -1_000, -1_001, 999, None], pa.int64()).cast(pa.timestamp("ns"))
    spec = PartitionSpec.parse(["c"], pa.schema([("c", ticks.type)]))
    found = spec.evaluate(pa.record_batch([ticks], ["c"]))[0]
    assert found.cast(pa.int64()).to_pylist() == [-1, -1, -2, 0, None]
    assert duckdb_keys([spec], pa.record_batch([ticks], ["c"]))[0] == found


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("rand()", "function 'rand' is not allowed"),
        ("now()", "function 'now' is not allowed"),
        ("current_date", "there is no column 'current_date'"),
        ("bucket(0, id)", "bucket takes 1 to 1,000,000 buckets, not 0"),
        ("bucket(-1, id)", "bucket takes 1 to 1,000,000 buckets, not -1"),
        ("bucket(1000001, id)", "not 1,000,001"),
        ("bucket(id, 16)", "integer literal as its first argument, not id"),
        ("bucket('16', id)", "integer literal"),
        ("bucket(16)", "not 1 argument"),
        ("bucket(16, 5)", "needs a column"),
        ("bucket(16, nope)", "there is no column 'nope'"),
        ("bucket(16, items)", "column 'items' has type BIGINT"),
        ("items", "column 'items' has type BIGINT"),
        ("bucket(16, id", "it ends too early"),
        ("bucket(16, id))", "'\\)' is not expected"),
        ("", "it ends too early"),
        ("id; drop table t", "';' is not part"),
        ("1 + 2", "reads no column"),
        ("5", "reads no column"),
        ("1.5 + id", "'1.5' is not a 64-bit integer"),
        ("id + 99999999999999999999", "not a 64-bit integer"),
        ("id / 2", "'/' is not part"),
        ("id % 2", "'%' is not part"),
        ("ratio = ratio", "cannot be compared"),
        ("id = region", "compares values of one type"),
        ("id = id = id", "after a comparison"),
        ("price + 1", "'\\+' takes integers, not price"),
        ("cast(id as date)", "does not take id of type BIGINT"),
        ("cast(at as timestamp)", "the only cast"),
        ("hour(day)", "hour does not take day"),
        ("date_trunc('hour', day)", "date_trunc takes year, quarter, month, week, day here"),
        ("date_trunc('decade', at)", "not 'decade'"),
        ("date_trunc(region, at)", "takes \\('unit', column\\)"),
        ("truncate(region, 0)", "takes a length of 1"),
        ("truncate(price, 3)", "truncate does not take price"),
        ("substr(region, 2, 3)", "first characters only"),
        ("coalesce(region)", "two or more"),
        ("coalesce(region, id)", "arguments of one type"),
        ("(" * 40 + "id" + ")" * 40, "nested deeper"),
        ("sha256(region)", "partition keys take bucket, cast, coalesce"),
        ("region like 'a%'", "'like' is not expected"),
    ],
)
def test_what_is_outside_of_the_grammar_is_refused_by_the_piece(text: str, reason: str) -> None:
    with pytest.raises(UnsupportedExpression, match=reason) as caught:
        PartitionSpec.parse([text], SCHEMA)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("partition_by", "reason"),
    [
        ("bucket(4, id)", "a list of expressions"),
        ({"a": "id"}, "a list of expressions"),
        ([{"a": "id", "b": "id"}], "entry 0 is neither"),
        ([{}], "entry 0 is neither"),
        ([5], "entry 0 is neither"),
        (["id", {"a": "id"}, {"a": "region"}], "two partition keys are named 'a'"),
        ([{"expr1": "id"}, "region"], "two partition keys are named 'expr1'"),
        ([{"__partition": "id"}], "a name and an expression"),
    ],
)
def test_a_malformed_partition_by_is_refused(partition_by: Any, reason: str) -> None:
    with pytest.raises(UnsupportedExpression, match=reason):
        PartitionSpec.parse(partition_by, SCHEMA)


def test_keys_are_named_by_their_place_unless_a_name_is_given() -> None:
    spec = PartitionSpec.parse(["bucket(4, id)", {"area": "region"}, "year(at)"], SCHEMA)
    assert [key.name for key in spec.keys] == ["expr0", "area", "expr2"]
    assert [key.kind for key in spec.keys] == ["bucket", "column", "function"]
    assert [key.column for key in spec.keys] == ["id", "region", "at"]
    assert spec.keys[0].buckets == 4
    assert spec.keys[1].buckets is None


def test_a_column_is_found_by_its_exact_name_or_the_only_one_that_differs_in_case() -> None:
    assert PartitionSpec.parse(["NAME"], SCHEMA).keys[0].expression == '"Name"'
    assert PartitionSpec.parse(['"Name"'], SCHEMA).keys[0].column == "Name"
    with pytest.raises(UnsupportedExpression, match="there is no column 'name'"):
        PartitionSpec.parse(['"name"'], SCHEMA)
    both = pa.schema([("a", pa.int64()), ("A", pa.int64())])
    assert PartitionSpec.parse(["A"], both).keys[0].column == "A"
    with pytest.raises(UnsupportedExpression, match="ambiguous"):
        PartitionSpec.parse(["AB"], pa.schema([("aB", pa.int64()), ("Ab", pa.int64())]))


def test_an_unknown_time_zone_is_refused() -> None:
    for zone in ("Mars/Olympus", "", "'; drop", "../../etc/passwd"):
        with pytest.raises(UnsupportedExpression, match="time zone"):
            PartitionSpec.parse(["year(at)"], SCHEMA, zone)


def test_every_spec_survives_json_and_its_own_text(key_cases: ModuleType) -> None:
    for text in key_cases.EXPRESSIONS:
        spec = PartitionSpec.parse([text, {"second": "bucket(3, big)"}], key_cases.SCHEMA, "Europe/Berlin")
        assert PartitionSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec
        assert PartitionSpec.parse([spec.keys[0].expression], key_cases.SCHEMA).keys[0] == spec.keys[0]
    assert PartitionSpec.from_json(PartitionSpec.whole().to_json()) == PartitionSpec.whole()


def test_a_spec_of_another_hash_is_refused() -> None:
    written = PartitionSpec.parse(["bucket(4, id)"], SCHEMA).to_json() | {"hash": "ahash"}
    with pytest.raises(UnsupportedExpression, match="hash 'ahash', this release knows 'xxh64-42/1' only"):
        PartitionSpec.from_json(written)


def test_bucket_keys_need_no_discovery() -> None:
    assert PartitionSpec.parse(["bucket(2, region)"], SCHEMA).static_values() == [(0,), (1,), (None,)]
    two = PartitionSpec.parse(["bucket(2, id)", "bucket(2, region)"], SCHEMA)
    assert two.static_values() == [(0, 0), (0, 1), (0, None), (1, 0), (1, 1), (1, None)]
    assert PartitionSpec.parse(["bucket(2, coalesce(region, 'x'))"], SCHEMA).static_values() == [(0,), (1,)]
    assert PartitionSpec.parse(["bucket(2, id)", "region"], SCHEMA).static_values() is None
    assert PartitionSpec.whole().static_values() == [()]
    with pytest.raises(UnsupportedExpression, match="use fewer buckets"):
        PartitionSpec.parse(["bucket(10000, id)", "bucket(10000, id)"], SCHEMA).static_values()


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("bucket(4, id)", "bucket(8, id)", r"bucket\(8, id\) instead of bucket\(4, id\)"),
        ("region", "Name", "would be"),
    ],
)
def test_a_change_that_would_move_rows_is_refused_with_the_reason(old: str, new: str, reason: str) -> None:
    with pytest.raises(UnsupportedExpression, match=reason):
        PartitionSpec.parse([old], SCHEMA).check_successor(PartitionSpec.parse([new], SCHEMA))


def test_a_change_of_scale_zone_name_or_number_of_keys_is_refused() -> None:
    def change(name: str, kind: pa.DataType) -> pa.Schema:
        return SCHEMA.set(SCHEMA.get_field_index(name), pa.field(name, kind))

    price = PartitionSpec.parse(["bucket(4, price)"], SCHEMA)
    with pytest.raises(UnsupportedExpression, match="decimal128\\(10, 3\\) instead of decimal128\\(10, 2\\)"):
        price.check_successor(PartitionSpec.parse(["bucket(4, price)"], change("price", pa.decimal128(10, 3))))
    with pytest.raises(UnsupportedExpression, match="instead of"):
        price.check_successor(PartitionSpec.parse(["bucket(4, price)"], change("price", pa.decimal128(20, 2))))
    price.check_successor(PartitionSpec.parse(["bucket(4, price)"], change("price", pa.decimal128(18, 2))))
    year = PartitionSpec.parse(["year(at)"], SCHEMA, "Europe/Berlin")
    with pytest.raises(UnsupportedExpression, match="time zone UTC instead of Europe/Berlin"):
        year.check_successor(PartitionSpec.parse(["year(at)"], SCHEMA))
    with pytest.raises(UnsupportedExpression, match="would be named 'y'"):
        year.check_successor(PartitionSpec.parse([{"y": "year(at)"}], SCHEMA, "Europe/Berlin"))
    with pytest.raises(UnsupportedExpression, match="2 key\\(s\\) instead of 1"):
        year.check_successor(PartitionSpec.parse(["year(at)", "id"], SCHEMA, "Europe/Berlin"))
    # A wider integer has the same bucket, a zone that no key uses moves nothing.
    ids = PartitionSpec.parse(["bucket(4, id)"], change("id", pa.int32()))
    ids.check_successor(PartitionSpec.parse(["bucket(4, id)"], SCHEMA, "Europe/Berlin"))


def test_tables_share_owners_only_if_equal_columns_give_equal_values() -> None:
    def spec(text: str, kind: pa.DataType, name: str = "k", zone: str = "UTC") -> PartitionSpec:
        return PartitionSpec.parse([text], pa.schema([(name, kind)]), zone)

    bucket = spec("bucket(4, k)", pa.int64())
    assert bucket.colocates_with(spec("bucket(4, other)", pa.int32(), "other"))
    assert not bucket.colocates_with(spec("bucket(8, k)", pa.int64()))
    assert not bucket.colocates_with(spec("bucket(4, k)", pa.decimal128(10, 0)))
    assert not bucket.colocates_with(spec("k", pa.int64()))
    year = spec("year(k)", pa.timestamp("us", "UTC"))
    assert year.colocates_with(spec("year(t)", pa.timestamp("ns", "UTC"), "t"))
    assert not year.colocates_with(spec("year(k)", pa.timestamp("us", "UTC"), "k", "Asia/Tokyo"))


def test_monotonic_keys_never_fall_when_their_column_rises(key_cases: ModuleType) -> None:
    rows = key_cases.hard_rows()
    for text in key_cases.EXPRESSIONS:
        spec = PartitionSpec.parse([text], key_cases.SCHEMA)
        (key,) = spec.keys
        if not key.is_monotonic:
            continue
        column = rows.column(key.column)
        ordered = pa.RecordBatch.from_struct_array(
            rows.to_struct_array().take(pa.compute.array_sort_indices(column))
        )
        values = [value for value in spec.evaluate(ordered)[0].to_pylist() if value is not None]
        assert values == sorted(values), text
    monotonic = {
        t for t in key_cases.EXPRESSIONS if PartitionSpec.parse([t], key_cases.SCHEMA).keys[0].is_monotonic
    }
    assert {"big", "year(day)", "date_trunc('hour', wall)", "truncate(name, 3)", "cast(wall as date)"} <= monotonic
    assert not {"ratio", "month(day)", "hour(wall)", "cast(instant as date)", "bucket(7, name)"} & monotonic


def test_rows_without_the_key_or_with_another_type_are_refused() -> None:
    spec = PartitionSpec.parse(["bucket(4, id)"], SCHEMA)
    with pytest.raises(SchemaMismatch, match="no column 'id'"):
        spec.evaluate(pa.record_batch([pa.array([1])], ["other"]))
    with pytest.raises(SchemaMismatch, match="column 'id' is VARCHAR in the rows, the table declares BIGINT"):
        spec.evaluate(pa.record_batch([pa.array(["1"])], ["id"]))


def test_values_that_engines_would_disagree_about_are_refused() -> None:
    for text, kind, value in (
        ("c", pa.date32(), 3_000_000),
        ("year(c)", pa.date32(), -800_000),
        ("date_trunc('day', c)", pa.timestamp("us"), 1 << 60),
        ("c", pa.timestamp("us", "UTC"), -(1 << 60)),
    ):
        spec = PartitionSpec.parse([text], pa.schema([("c", kind)]))
        raw = pa.array([value], pa.int32() if kind == pa.date32() else pa.int64())
        with pytest.raises(SchemaMismatch, match="year 1 or after the year 9999"):
            spec.evaluate(pa.record_batch([raw.cast(kind)], ["c"]))
    top = pa.record_batch([pa.array([(1 << 63) - 1])], ["c"])
    with pytest.raises(SchemaMismatch, match="leaves the range"):
        PartitionSpec.parse(["c + 1"], top.schema).evaluate(top)
    bottom = pa.record_batch([pa.array([-(1 << 63)])], ["c"])
    with pytest.raises(SchemaMismatch, match="leaves the range"):
        PartitionSpec.parse(["truncate(c, 10)"], bottom.schema).evaluate(bottom)
    unsigned = pa.record_batch([pa.array([1 << 63], pa.uint64())], ["c"])
    with pytest.raises(SchemaMismatch, match="2\\^63"):
        PartitionSpec.parse(["c + 1"], unsigned.schema).evaluate(unsigned)


def test_a_value_of_the_column_gives_the_value_of_the_key() -> None:
    spec = PartitionSpec.parse(["year(at)", "bucket(4, id)", "coalesce(region, 'x')"], SCHEMA, "Asia/Tokyo")
    assert spec.keys[0].value_for(dt.datetime(2020, 12, 31, 20, tzinfo=dt.UTC), spec.time_zone) == 2021
    assert spec.keys[2].value_for(None) == "x"
    with pytest.raises(SchemaMismatch, match="'x' is not a value of column 'id'"):
        spec.keys[1].value_for("x")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "k=~null"),
        ("null", "k=null"),
        ("~null", "k=%7Enull"),
        ("", "k="),
        ("us-east", "k=us-east"),
        ("a/b=c %", "k=a%2Fb%3Dc%20%25"),
        ("..", "k=.."),
        (17, "k=17"),
        (-1, "k=-1"),
        (True, "k=true"),
        (Decimal("-1.10"), "k=-1.10"),
        (b"\x00\xff", "k=00ff"),
        (dt.date(2024, 2, 29), "k=2024-02-29"),
        (dt.datetime(2024, 2, 29, 1), "k=2024-02-29T01%3A00%3A00.000000"),
        (dt.datetime(2024, 2, 29, 1, tzinfo=dt.UTC), "k=2024-02-29T01%3A00%3A00.000000Z"),
        (float("nan"), "k=nan"),
        (0.1, "k=0.1"),
    ],
)
def test_a_path_is_stable(value: Any, text: str) -> None:
    assert path_of(["k"], [value]) == text


def test_the_only_partition_of_a_replicated_table_is_whole() -> None:
    assert PartitionSpec.whole().path(()) == "whole"


@given(st.lists(st.none() | st.text(st.characters(codec="utf-8")), min_size=2, max_size=2, unique=True))
def test_paths_of_different_values_differ_and_are_safe(values: list[str | None]) -> None:
    paths = [path_of(["region"], [value]) for value in values]
    assert paths[0] != paths[1]
    for path in paths:
        assert path.isascii()
        assert len(path) < 240
        assert not set(path.removeprefix("region=")) & set("/\\:*?\"<>| =&#'")


def test_long_values_have_short_paths_that_differ() -> None:
    paths = {path_of(["k"], ["é" * length]) for length in range(1, 400)}
    assert len(paths) == 399
    assert max(len(path) for path in paths) < 200


def test_types_survive_their_names() -> None:
    kinds = [pa.int8(), pa.uint64(), pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.large_string()]
    kinds += [
        pa.string_view(),
        pa.binary(),
        pa.binary(5),
        pa.date32(),
        pa.date64(),
        pa.time32("ms"),
        pa.time64("ns"),
    ]
    kinds += [pa.timestamp("ns"), pa.timestamp("s", "Europe/Berlin"), pa.decimal128(10, 2), pa.decimal256(40, 3)]
    for kind in kinds:
        assert type_of_text(type_text(kind)) == kind
    assert type_of_text(type_text(pa.dictionary(pa.int8(), pa.string()))).value_type == pa.string()
    for text in ("list<item: int64>", "nonsense", "decimal128(x)", "timestamp", ""):
        with pytest.raises(UnsupportedExpression, match="not the name of a type"):
            type_of_text(text)


def test_keys_that_make_more_partitions_than_there_are_digits_for_are_refused_in_a_few_words():
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    with pytest.raises(
        UnsupportedExpression, match=r"more than 1,000,000,000,000 partitions, .*use fewer buckets"
    ):
        PartitionSpec.parse(["bucket(1000000, a)"] * 900, schema).static_values()
