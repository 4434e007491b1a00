"""Exports of metrics as rows: every kind of point, and what is refused whole."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest as Request
from opentelemetry.proto.metrics.v1.metrics_pb2 import ExponentialHistogramDataPoint, Metric

from ballista_py.errors import BallistaError, InvalidData
from ballista_py.transport.otlp.rows import (
    MAX_ATTRIBUTES,
    MAX_POINTS,
    MAX_TEXT_CHARS,
    SCHEMA,
    explicit,
    read_export,
)


def request():
    made = Request()
    resource = made.resource_metrics.add()
    resource.resource.attributes.add(key="service.name").value.string_value = "shop"
    scope = resource.scope_metrics.add()
    scope.scope.name = "shop.orders"
    return made, scope.metrics


def point(points, moment=1_700_000_000_000_000_001, **values):
    made = points.add(time_unix_nano=moment, start_time_unix_nano=moment - 1, **values)
    made.attributes.add(key="path").value.string_value = "/a"
    return made


def test_every_kind_of_point_is_a_row():
    made, metrics = request()
    point(metrics.add(name="g", unit="By", description="d").gauge.data_points, as_double=1.5)
    total = metrics.add(name="s").sum
    total.is_monotonic, total.aggregation_temporality = True, 2
    point(total.data_points, as_int=2**62 + 1)
    histogram = metrics.add(name="h").histogram
    histogram.aggregation_temporality = 1
    point(histogram.data_points, count=3, sum=7.0, min=1.0, explicit_bounds=[1, 5], bucket_counts=[1, 1, 1])
    summary = point(metrics.add(name="q").summary.data_points, count=2, sum=3.0)
    summary.quantile_values.add(quantile=0.5, value=1.25)
    point(metrics.add(name="n").gauge.data_points, as_double=9.0, flags=1)
    rows = {row["metric"]: row for row in read_export(made.SerializeToString()).to_pylist()}
    assert rows["g"]["value"] == 1.5
    assert (rows["g"]["unit"], rows["g"]["description"], rows["g"]["scope"]) == ("By", "d", "shop.orders")
    assert rows["g"]["resource"] == [("service.name", "shop")]
    assert rows["g"]["attributes"] == [("path", "/a")]
    assert (rows["s"]["whole_value"], rows["s"]["is_monotonic"], rows["s"]["temporality"]) == (
        2**62 + 1,
        True,
        "cumulative",
    )
    assert (rows["h"]["bounds"], rows["h"]["buckets"]) == ([1, 5], [1, 1, 1])
    assert (rows["h"]["count"], rows["h"]["sum"], rows["h"]["min"], rows["h"]["max"]) == (3, 7, 1, None)
    assert rows["q"]["quantiles"] == [{"quantile": 0.5, "value": 1.25}]
    assert rows["g"]["time"] == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert rows["n"]["value"] is None  # nothing was recorded
    assert {row["kind"] for row in rows.values()} == {"gauge", "sum", "histogram", "summary"}


def test_values_of_attributes_are_texts():
    made, metrics = request()
    found = point(metrics.add(name="g").gauge.data_points, as_int=1)
    for name, field, value in [("b", "bool_value", True), ("i", "int_value", -7), ("d", "double_value", 0.5),
                               ("y", "bytes_value", b"\x00\xff")]:  # fmt: skip
        setattr(found.attributes.add(key=name).value, field, value)
    listed = found.attributes.add(key="l").value.array_value
    listed.values.add().int_value = 1
    listed.values.add().string_value = "x"
    found.attributes.add(key="path").value.string_value = "/later"
    (row,) = read_export(made.SerializeToString()).to_pylist()
    assert dict(row["attributes"]) == {
        "path": "/later", "b": "true", "i": "-7", "d": "0.5", "y": "AP8=", "l": '[1,"x"]',
    }  # fmt: skip


def exponential(**fields):
    """Positive and negative counts as lists beside their offsets."""
    made = ExponentialHistogramDataPoint(scale=fields.get("scale", 0), zero_count=fields.get("zero", 0))
    for side in ("positive", "negative"):
        offset, counts = fields.get(side, (0, []))
        buckets = getattr(made, side)
        buckets.offset = offset
        buckets.bucket_counts.extend(counts)
    return made


@pytest.mark.parametrize(
    ("fields", "bounds", "buckets"),
    [
        ({}, [], []),
        ({"zero": 4}, [], [4]),
        ({"positive": (0, [1, 2])}, [1, 2, 4], [0, 1, 2, 0]),
        ({"positive": (-1, [3]), "zero": 2}, [0.5, 1], [2, 3, 0]),
        ({"negative": (0, [1, 2]), "zero": 5}, [-4, -2, -1], [0, 2, 1, 5]),
        ({"negative": (0, [1]), "positive": (1, [2]), "zero": 3}, [-2, -1, 2, 4], [0, 1, 3, 2, 0]),
        ({"scale": 1, "positive": (2, [9])}, [2, 2**1.5], [0, 9, 0]),
        ({"positive": (1023, [1])}, [2.0**1023, float("inf")], [0, 1, 0]),
    ],
)
def test_buckets_of_exponential_histograms_are_written_out(fields, bounds, buckets):
    assert explicit(exponential(**fields), "e") == (bounds, buckets)
    metric = Metric(name="e")
    metric.exponential_histogram.data_points.add().CopyFrom(exponential(**fields))
    made, metrics = request()
    metrics.add().CopyFrom(metric)
    (row,) = read_export(made.SerializeToString()).to_pylist()
    assert (row["kind"], row["bounds"], row["buckets"]) == ("exponential_histogram", bounds, buckets)


def spoilt(change):
    made, metrics = request()
    point(metrics.add(name="good").gauge.data_points, as_int=1)
    change(made, metrics)
    return made.SerializeToString()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m, ms: ms.add(name="").gauge.data_points.add(), "has no name"),
        (lambda m, ms: ms.add(name="x"), "no kind"),
        (lambda m, ms: ms.add(name="x" * (MAX_TEXT_CHARS + 1)).gauge, "the name of a metric has more than"),
        (lambda m, ms: [m.resource_metrics[0].resource.attributes.add(key=f"k{n}") for n in range(MAX_ATTRIBUTES)],
         "a resource has more than"),
        (lambda m, ms: ms.add(name="x").gauge.data_points.add().attributes.add(key="k" * 5_000),
         "the name of an attribute"),
        (lambda m, ms: ms.add(name="x").gauge.data_points.add(time_unix_nano=2**63), "beyond the year 2262"),
        (lambda m, ms: ms.add(name="x").histogram.data_points.add(count=2**63), "no metric can have"),
        (lambda m, ms: ms.add(name="x").histogram.data_points.add(explicit_bounds=[1], bucket_counts=[1, 2, 3]),
         "3 buckets for 1 bounds"),
        (lambda m, ms: ms.add(name="x").exponential_histogram.data_points.add(scale=21), "the scale 21"),
        (lambda m, ms: ms.add(name="x").exponential_histogram.data_points.add().CopyFrom(
            exponential(positive=(5_000, [1]))), "numbers that there are not"),
        (lambda m, ms: ms.add(name="x").exponential_histogram.data_points.add().CopyFrom(
            exponential(positive=(0, [1] * 2_000))), "more than 1,024 buckets"),
    ],
)  # fmt: skip
def test_one_bad_point_refuses_all_of_the_export(change, said):
    with pytest.raises(InvalidData, match=said):
        read_export(spoilt(change))


def test_values_nested_too_deep_are_refused():
    made, metrics = request()
    value = point(metrics.add(name="x").gauge.data_points, as_int=1).attributes[0].value
    for _ in range(12):
        value = value.array_value.values.add()
    with pytest.raises(InvalidData, match="nested more than 8 deep"):
        read_export(made.SerializeToString())


def test_too_many_points_and_bytes_that_unfold_are_refused_before_they_are_rows():
    made, metrics = request()
    points = metrics.add(name="x").gauge.data_points
    for _ in range(MAX_POINTS + 1):
        points.add(time_unix_nano=1, as_int=1)
    with pytest.raises(InvalidData):
        read_export(made.SerializeToString())
    with pytest.raises(InvalidData, match="4 MiB"):
        read_export(b"\x00" * (4 << 20) + b"\x00")
    with pytest.raises(InvalidData):  # 2 million empty messages
        read_export(b"\x0a\x00" * 2_000_000)


def test_bytes_that_are_no_export_end_in_an_error_of_ours():
    """Mutations of a good one: each is read, or refused by name."""
    made, metrics = request()
    for name in "abc":
        point(metrics.add(name=name).gauge.data_points, as_double=1.0)
    data, chance = made.SerializeToString(), random.Random(7)
    read, refused = 0, set()
    for _ in range(3_000):
        spoilt_bytes = bytearray(data)
        for _ in range(chance.randrange(1, 4)):
            spoilt_bytes[chance.randrange(len(data))] = chance.randrange(256)
        try:
            assert read_export(bytes(spoilt_bytes)).schema.equals(SCHEMA)
            read += 1
        except BallistaError as error:
            refused.add(type(error))
    assert 100 < read < 2_900
    assert refused == {InvalidData}


def test_an_export_of_nothing_has_no_rows():
    assert read_export(b"").equals(pa.RecordBatch.from_pylist([], SCHEMA))


def test_rows_that_repeat_a_large_resource_are_refused_before_they_are_made():
    """A megabyte of points below one resource of 128 kB would be rows of 5 GB."""
    made, metrics = request()
    for number in range(127):
        made.resource_metrics[0].resource.attributes.add(key=f"k{number}").value.string_value = "R" * 1_000
    points = metrics.add(name="g").gauge.data_points
    for _ in range(10_000):
        points.add(time_unix_nano=1, as_double=1.0)
    with pytest.raises(InvalidData, match="the rows of the export take more than 64 MiB"):
        read_export(made.SerializeToString())
    del points[400:]
    assert read_export(made.SerializeToString()).num_rows == 400


def test_an_export_as_large_as_may_be_is_taken_and_what_it_takes_is_asked_for():
    made, metrics = request()
    points = metrics.add(name="g").gauge.data_points
    for number in range(20_000):
        one = points.add(time_unix_nano=1, as_double=1.0)
        for name in ("a", "b", "c"):
            one.attributes.add(key=name).value.string_value = f"value {number}"
    asked = []
    found = read_export(made.SerializeToString(), asked.append)
    assert found.num_rows == 20_000
    assert len(asked) == 2
    assert asked[1] - asked[0] >= found.nbytes
    with pytest.raises(BallistaError, match="full"):
        read_export(made.SerializeToString(), refuse)


def refuse(_size):
    raise BallistaError("full")
