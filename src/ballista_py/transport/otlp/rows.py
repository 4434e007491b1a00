"""What one export of OpenTelemetry's metrics service holds, as rows: one for each data point; pure.

An export is read whole or refused whole, in words that name what is wrong with it: `InvalidData`, which exporters do
not send again.

Exponential histograms with their buckets written out: pure.

Bucket `i` of such a histogram holds values above base**i and up to base**(i+1), where base is 2**(2**-scale); negative
values lie the other way round, and what is near 0 has a bucket of its own.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pyarrow as pa

from ballista_py.errors import InvalidData, MissingExtra
from ballista_py.protobuf_sizes import require_unpackable

MAX_BUCKETS = 1_024
_SCALES = range(-10, 21)  # what exporters may use
_LARGEST = 1_024.0  # a power of two beyond this is no number any more


def explicit(point: Any, name: str) -> tuple[list[float], list[int]]:
    """Ascending bounds of a point of the exponential histogram `name`, and the counts between and around them.

    Empty for a point that counted nothing. Raises `InvalidData` for what no exporter sends.
    """
    positive, negative = list(point.positive.bucket_counts), list(point.negative.bucket_counts)
    if len(positive) + len(negative) > MAX_BUCKETS:
        raise InvalidData(f"a point of histogram '{name}' has more than {MAX_BUCKETS:,} buckets")
    if point.scale not in _SCALES:
        raise InvalidData(f"a point of histogram '{name}' has the scale {point.scale}, which is none")
    if not (positive or negative or point.zero_count):
        return [], []
    below = [-bound for bound in reversed(_edges(point.scale, point.negative.offset, len(negative), name))]
    above = _edges(point.scale, point.positive.offset, len(positive), name)
    before = [0, *reversed(negative)] if negative else []
    after = [*positive, 0] if positive else []
    return below + above, [*before, point.zero_count, *after]  # between the two sides lies what is near 0


def _edges(scale: int, offset: int, buckets: int, name: str) -> list[float]:
    """The bounds of so many buckets, ascending; none of no bucket."""
    if not buckets:
        return []
    powers = [(offset + place) * 2.0**-scale for place in range(buckets + 1)]
    if max(map(abs, powers)) > _LARGEST:
        raise InvalidData(f"a point of histogram '{name}' has a bucket of numbers that there are not")
    return [2.0**power if power < _LARGEST else float("inf") for power in powers]


MAX_EXPORT_BYTES = 4 << 20  # what collectors of OpenTelemetry take by default
MAX_POINTS = 50_000
MAX_ATTRIBUTES = 128  # of one point, its resource and its scope each
MAX_TEXT_CHARS = 4_096
MAX_UNPACKED_BYTES = 256 << 20  # of an export as objects, each of which takes a hundred times its bytes
MAX_ROW_BYTES = 64 << 20  # of its rows together: each repeats its resource, which an export names once
ROW_BYTES = 512  # of a row without its texts and lists
MAX_NESTED = 8  # an attribute may be a list of lists

_TEXTS = pa.map_(pa.string(), pa.string())
_MOMENT = pa.timestamp(
    "us", "UTC"
)  # as all moments of SQL here: those with nanoseconds are compared with no other
_NANOS = 1_000
SCHEMA = pa.schema([
    pa.field("metric", pa.string(), nullable=False),
    pa.field("kind", pa.string(), nullable=False),  # gauge, sum, histogram, exponential_histogram or summary
    ("unit", pa.string()),
    ("description", pa.string()),
    ("resource", _TEXTS),
    ("scope", pa.string()),
    ("attributes", _TEXTS),
    ("start_time", _MOMENT),
    pa.field("time", _MOMENT, nullable=False),
    ("value", pa.float64()),  # of a gauge or sum; NULL where nothing was recorded
    ("whole_value", pa.int64()),  # the same, exactly, where it is a whole number
    ("is_monotonic", pa.bool_()),  # of a sum
    ("temporality", pa.string()),  # delta or cumulative
    ("count", pa.int64()),
    ("sum", pa.float64()),
    ("min", pa.float64()),
    ("max", pa.float64()),
    ("bounds", pa.list_(pa.float64())),  # of a histogram, ascending; as many and one more buckets
    ("buckets", pa.list_(pa.int64())),
    ("quantiles", pa.list_(pa.struct([("quantile", pa.float64()), ("value", pa.float64())]))),  # of a summary
])  # fmt: skip
_KINDS = ("gauge", "sum", "histogram", "exponential_histogram", "summary")
_TEMPORALITY = {1: "delta", 2: "cumulative"}
_NOTHING_RECORDED = 1
_MOST = (1 << 63) - 1


def read_export(data: bytes, hold: Callable[[int], None] = lambda _size: None) -> pa.RecordBatch:
    """The data points of an `ExportMetricsServiceRequest`. Raises `InvalidData`, and then none of them counts.

    `hold` is asked before so many bytes are taken in all, and may raise.
    """
    request, unpacked = _request(data, hold)
    rows, size = [], 0
    for row in _rows(request):
        size += _row_bytes(row)
        if size > MAX_ROW_BYTES:
            raise InvalidData(
                f"the rows of the export take more than {MAX_ROW_BYTES >> 20} MiB, as each repeats the attributes of "
                "its resource: export more often, in parts, or with fewer attributes"
            )
        rows.append(row)
    hold(unpacked + 2 * size)
    try:
        found: pa.RecordBatch = pa.RecordBatch.from_pylist(rows, SCHEMA)
    except (pa.ArrowException, OverflowError, ValueError):
        raise InvalidData("the export holds a number that no metric can have: none of it was taken") from None
    return found


def _request(data: bytes, hold: Callable[[int], None]) -> tuple[Any, int]:
    """The export, and how many bytes it takes at most."""
    try:
        from google.protobuf.message import DecodeError
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
    except ImportError:
        raise MissingExtra.of("opentelemetry-proto", "node") from None

    if len(data) > MAX_EXPORT_BYTES:
        raise InvalidData(f"an export has more than {MAX_EXPORT_BYTES >> 20} MiB: export more often, or in parts")
    size = require_unpackable(data, ExportMetricsServiceRequest.DESCRIPTOR, MAX_UNPACKED_BYTES)
    hold(size)
    try:
        return ExportMetricsServiceRequest.FromString(data), size
    except DecodeError:
        raise InvalidData("the bytes are no export of OpenTelemetry's metrics service") from None


def _rows(request: Any) -> Iterator[dict[str, Any]]:
    count = 0
    for resource in request.resource_metrics:
        of_resource = _texts(resource.resource.attributes, "a resource")
        for scope in resource.scope_metrics:
            of_scope = _text(scope.scope.name, "the name of a scope") or None
            for metric in scope.metrics:
                for row in _points(metric):
                    count += 1
                    if count > MAX_POINTS:
                        raise InvalidData(f"an export has more than {MAX_POINTS:,} data points: export in parts")
                    yield {**row, "resource": of_resource, "scope": of_scope}


def _row_bytes(row: dict[str, Any]) -> int:
    """What a row takes in Arrow, or somewhat more."""
    texts = [row[name] or "" for name in ("metric", "unit", "description", "scope")]
    for name in ("resource", "attributes"):
        for pair in row[name]:
            texts += pair
    numbers = sum(2 * len(row.get(name) or ()) for name in ("bounds", "buckets", "quantiles"))
    return (
        ROW_BYTES
        + 8 * (numbers + len(texts))
        + sum(len(text) if text.isascii() else 4 * len(text) for text in texts)
    )


def _points(metric: Any) -> Iterator[dict[str, Any]]:
    name, kind = _text(metric.name, "the name of a metric"), metric.WhichOneof("data")
    if not name:
        raise InvalidData("a metric of the export has no name: none of it was taken")
    if kind not in _KINDS:
        raise InvalidData(f"metric '{name}' is of no kind that is known here: none of the export was taken")
    data = getattr(metric, kind)
    known = {
        "metric": name,
        "kind": kind,
        "unit": _text(metric.unit, f"the unit of '{name}'") or None,
        "description": _text(metric.description, f"the description of '{name}'") or None,
        "is_monotonic": data.is_monotonic if kind == "sum" else None,
        "temporality": _TEMPORALITY.get(getattr(data, "aggregation_temporality", 0)),
    }
    for point in data.data_points:
        moments = point.start_time_unix_nano, point.time_unix_nano
        if max(moments) > _MOST:
            raise InvalidData(f"a point of metric '{name}' has a time beyond the year 2262: none of it was taken")
        said = {
            "attributes": _texts(point.attributes, f"a point of '{name}'"),
            "start_time": moments[0] // _NANOS or None,
            "time": moments[1] // _NANOS,
        }
        recorded = not point.flags & _NOTHING_RECORDED
        yield {**known, **said, **(_values(kind, point, name) if recorded else {})}


def _values(kind: str, point: Any, name: str) -> dict[str, Any]:
    """What one point tells, by column."""
    if kind in ("gauge", "sum"):
        if point.WhichOneof("value") == "as_int":
            return {"value": float(point.as_int), "whole_value": point.as_int}
        return {"value": point.as_double if point.WhichOneof("value") else None}
    if kind == "summary":
        quantiles = [{"quantile": one.quantile, "value": one.value} for one in point.quantile_values]
        return {"count": point.count, "sum": point.sum, "quantiles": quantiles}
    bounds, buckets = (
        (point.explicit_bounds, point.bucket_counts) if kind == "histogram" else explicit(point, name)
    )
    if buckets and len(buckets) != len(bounds) + 1:
        raise InvalidData(f"a point of histogram '{name}' has {len(buckets)} buckets for {len(bounds)} bounds")
    told = {one: getattr(point, one) for one in ("sum", "min", "max") if point.HasField(one)}
    return {"count": point.count, "bounds": list(bounds), "buckets": list(buckets), **told}


def _texts(attributes: Any, where: str) -> list[tuple[str, str]]:
    """Names and values; of a name that comes twice the last, as maps have each once."""
    if len(attributes) > MAX_ATTRIBUTES:
        raise InvalidData(f"{where} has more than {MAX_ATTRIBUTES} attributes: none of the export was taken")
    found = {}
    for attribute in attributes:
        name = _text(attribute.key, f"the name of an attribute of {where}")
        found[name] = _text(_written(attribute.value), f"attribute '{name}' of {where}")
    return list(found.items())


def _written(value: Any) -> str:
    plain = _plain(value, 0)
    return plain if isinstance(plain, str) else orjson.dumps(plain).decode()


def _plain(value: Any, depth: int) -> Any:
    kind = value.WhichOneof("value")
    if depth > MAX_NESTED:
        raise InvalidData(
            f"an attribute has values nested more than {MAX_NESTED} deep: none of the export was taken"
        )
    if kind == "array_value":
        return [_plain(one, depth + 1) for one in value.array_value.values]
    if kind == "kvlist_value":
        return {one.key: _plain(one.value, depth + 1) for one in value.kvlist_value.values}
    if kind == "bytes_value":
        return base64.b64encode(value.bytes_value).decode()
    return None if kind is None else getattr(value, kind, None)


def _text(text: str, what: str) -> str:
    if len(text) > MAX_TEXT_CHARS:
        raise InvalidData(f"{what} has more than {MAX_TEXT_CHARS:,} characters: none of the export was taken")
    return text
