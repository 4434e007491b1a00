"""`bucket`: Spark's answers for ever, one bucket for one value in any layout, named refusals."""

from __future__ import annotations

import datetime as dt
from types import ModuleType

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ballista_py.errors import SchemaMismatch, UnsupportedExpression
from ballista_py.partitions.bucket import MAX_BUCKETS, BucketUDF, bucket, bucket_scalar
from ballista_py.partitions.values import key_type

COUNTS = (1, 2, 3, 16, 1000, 65_537, 999_983, MAX_BUCKETS)


def test_buckets_are_those_that_spark_gave_to_every_type(golden_bucket: ModuleType) -> None:
    golden = golden_bucket.golden()
    assert len(golden) >= 40
    for name, (values, hashes) in golden.items():
        assert len(values) >= 30, name
        for count in COUNTS:
            expected = [None if value is None else value % count for value in hashes]
            assert bucket(count, values).to_pylist() == expected, (name, count)


def test_the_golden_file_holds_every_type_that_bucket_takes(golden_bucket: ModuleType) -> None:
    assert set(golden_bucket.cases()) == set(golden_bucket.golden())


def test_slices_chunks_and_encodings_do_not_change_a_bucket(golden_bucket: ModuleType) -> None:
    for name, (values, hashes) in golden_bucket.golden().items():
        expected = [None if value is None else value % 64 for value in hashes]
        assert bucket(64, values.slice(3, 11)).to_pylist() == expected[3:14], name
        assert bucket(64, values.slice(8)).to_pylist() == expected[8:], name
        chunked = pa.chunked_array([values.slice(5), values.slice(0, 0), values.slice(0, 5)])
        assert bucket(64, chunked).to_pylist() == expected[5:] + expected[:5], name
        assert bucket(64, values.slice(0, 0)).to_pylist() == []
        assert bucket(64, pa.chunked_array([], values.type)).to_pylist() == []


@pytest.mark.parametrize("text_type", [pa.string(), pa.large_string(), pa.string_view()])
def test_a_dictionary_has_the_buckets_of_its_values(text_type: pa.DataType) -> None:
    values = pa.array(["b", None, "a", "b", "c"], text_type)
    expected = bucket(64, values).to_pylist()
    encoded = pa.DictionaryArray.from_arrays(
        pa.array([0, None, 1, 0, 2], pa.int8()), pa.array(["b", "a", "c"], text_type)
    )
    assert bucket(64, encoded).to_pylist() == expected
    assert bucket(64, encoded.slice(1, 1)).to_pylist() == [None]
    assert bucket(64, encoded.slice(2, 2)).to_pylist() == expected[2:4]
    with_null = pa.DictionaryArray.from_arrays(
        pa.array([0, 1, 2, 0, 3]), pa.array(["b", None, "a", "c"], text_type)
    )
    assert bucket(64, with_null).to_pylist() == expected


def test_a_run_end_encoded_array_has_the_buckets_of_its_values() -> None:
    values = pa.array([5, 5, None, 7], pa.int64())
    assert bucket(64, pa.compute.run_end_encode(values)).to_pylist() == bucket(64, values).to_pylist()


@given(st.integers(-128, 127), st.integers(1, MAX_BUCKETS))
def test_one_integer_has_one_bucket_in_every_width(value: int, count: int) -> None:
    kinds = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
    kinds += [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()] if value >= 0 else []
    assert len({bucket_scalar(count, value, kind) for kind in kinds}) == 1


def test_zero_has_one_bucket_with_either_sign_and_so_have_all_nans() -> None:
    odd = np.array([0x7FF8000000000001, -1], np.int64).view(np.float64)
    values = pa.array(np.array([0.0, -0.0, np.nan, *odd]), from_pandas=False)
    found = bucket(MAX_BUCKETS, values).to_pylist()
    assert found[0] == found[1]
    assert len(set(found[2:])) == 1
    assert bucket(MAX_BUCKETS, values.cast(pa.float32())).to_pylist() == found


def test_one_instant_has_one_bucket_in_every_unit_and_zone() -> None:
    moment = dt.datetime(1965, 3, 1, 12, 30, 5)
    kinds = [pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC", "Asia/Tokyo")]
    assert len({bucket_scalar(MAX_BUCKETS, moment.replace(tzinfo=dt.UTC), kind) for kind in kinds}) == 1
    assert len({bucket_scalar(1000, dt.date(1950, 1, 2), kind) for kind in (pa.date32(), pa.date64())}) == 1
    assert len({bucket_scalar(1000, dt.time(7, 0, 1), kind) for kind in (pa.time32("s"), pa.time64("ns"))}) == 1


def test_nanoseconds_before_1970_are_floored() -> None:
    nanos = pa.array([-1, -1_000, -1_001], pa.int64()).cast(pa.timestamp("ns"))
    micros = pa.array([-1, -1, -2], pa.int64()).cast(pa.timestamp("us"))
    assert bucket(1000, nanos) == bucket(1000, micros)


def test_a_polars_series_has_the_same_buckets() -> None:
    moments = [dt.datetime(2020, 1, 2, 3), None]
    for series, values in (
        (pl.Series(["a", None, "🦆"]), pa.array(["a", None, "🦆"])),
        (pl.Series([1, None, -5], dtype=pl.Int16), pa.array([1, None, -5])),
        (pl.Series(["a", None, "b"], dtype=pl.Categorical), pa.array(["a", None, "b"])),
        (pl.Series(["a", None, "b"], dtype=pl.Enum(["b", "a"])), pa.array(["a", None, "b"])),
        (pl.Series(moments, dtype=pl.Datetime("ns")), pa.array(moments, pa.timestamp("us"))),
        (pl.Series([True, None]), pa.array([True, None])),
        (pl.Series([None, None]), pa.nulls(2)),
    ):
        assert bucket(1000, series).to_pylist() == bucket(1000, values).to_pylist()


def test_polars_and_python_agree_through_the_expression() -> None:
    frame = pl.DataFrame({"name": ["a", None, "c"], "number": [1, 2, None]})
    udf = BucketUDF(1000)
    found = frame.select(udf.polars(pl.col("name"), pl.String), udf.polars(pl.col("number"), pl.Int64))
    assert found["name"].to_list() == udf(frame["name"]).to_pylist()
    assert found["number"].to_list() == udf(frame["number"]).to_pylist()
    assert found.dtypes == [pl.Int32, pl.Int32]


def test_duckdb_and_python_agree_for_every_type(golden_bucket: ModuleType) -> None:
    duckdb = pytest.importorskip("duckdb")
    for name, (values, hashes) in golden_bucket.golden().items():
        udf = BucketUDF(1000)
        expected = [None if value is None else value % 1000 for value in hashes]
        if pa.types.is_timestamp(values.type) and values.type.unit != "us":
            continue  # DuckDB turns them into microseconds, rounding by its own rules.
        if pa.types.is_decimal256(values.type) or pa.types.is_date64(values.type):
            values = values.cast(
                pa.decimal128(*_digits(values.type)) if values.type.bit_width == 256 else pa.date32()
            )
        with duckdb.connect() as connection:
            udf.duckdb(connection, values.type)
            rows = pa.table({"place": range(len(values)), "v": values})
            connection.register("given", rows)
            found = connection.sql(
                f"select {udf.duckdb_name(values.type)}(v) from given order by place"
            ).fetchall()
        assert [row[0] for row in found] == expected, name


def _digits(kind: pa.DataType) -> tuple[int, int]:
    return kind.precision, kind.scale


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.int64()),
        pa.struct([("a", pa.int64())]),
        pa.map_(pa.string(), pa.int64()),
        pa.month_day_nano_interval(),
        pa.duration("us"),
        pa.float16(),
        pa.dictionary(pa.int8(), pa.list_(pa.int8())),
    ],
)
def test_a_type_without_buckets_is_refused_by_name(kind: pa.DataType) -> None:
    with pytest.raises(UnsupportedExpression, match="bucket does not take values of type"):
        bucket(4, pa.array([], kind) if not pa.types.is_dictionary(kind) else pa.nulls(0, kind))
    with pytest.raises(UnsupportedExpression):
        BucketUDF(4).spark_sql("c", kind)
    with pytest.raises(UnsupportedExpression):
        BucketUDF(4).polars(pl.col("c"), pl.List(pl.Int64))


@pytest.mark.parametrize("count", [0, -1, MAX_BUCKETS + 1, 2.0, "16", True, None])
def test_an_unusable_number_of_buckets_is_refused(count: object) -> None:
    with pytest.raises(UnsupportedExpression, match="bucket"):
        bucket(count, pa.array([1]))  # type: ignore[arg-type]


def test_unsigned_values_that_bigint_cannot_hold_are_refused() -> None:
    assert bucket(8, pa.array([(1 << 63) - 1, None], pa.uint64())).to_pylist()[1] is None
    with pytest.raises(SchemaMismatch, match="2\\^63"):
        bucket(8, pa.array([1 << 63], pa.uint64()))


def test_seconds_beyond_microseconds_are_refused() -> None:
    with pytest.raises(SchemaMismatch, match="microseconds"):
        bucket(8, pa.array([1 << 60], pa.int64()).cast(pa.timestamp("s")))


def test_garbage_under_nulls_does_not_matter() -> None:
    words = pa.py_buffer(np.array([1, (1 << 64) - 1], np.uint64))
    values = pa.Array.from_buffers(pa.uint64(), 2, [pa.py_buffer(bytes([0b01])), words])
    assert bucket(8, values).to_pylist() == [*bucket(8, pa.array([1])).to_pylist(), None]
    seconds = pa.Array.from_buffers(pa.timestamp("s"), 2, [pa.py_buffer(bytes([0b01])), words])
    assert bucket(8, seconds).to_pylist()[1] is None


def test_every_bucket_gets_its_share() -> None:
    for values in (pa.array(range(100_000)), pa.array([f"customer-{i}" for i in range(100_000)])):
        counts = np.bincount(bucket(16, values).to_numpy(), minlength=16)
        assert counts.min() > 5_900
        assert counts.max() < 6_600


def test_a_scalar_of_another_type_is_refused() -> None:
    with pytest.raises(SchemaMismatch, match="not a value of type int64"):
        bucket_scalar(4, "x", pa.int64())
    assert bucket_scalar(4, None, pa.int64()) is None


def test_layouts_of_one_type_have_one_key_type() -> None:
    assert key_type(pa.dictionary(pa.int8(), pa.large_string())) == pa.string()
    assert key_type(pa.timestamp("ns", "UTC")) == pa.timestamp("us", "UTC")
    assert key_type(pa.date64()) == pa.date32()
