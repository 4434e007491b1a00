"""Metrics of OpenTelemetry's SDK in the text format of Prometheus.

Names stay as they are, for they are made of what both allow; counters end in `_total`. Units are in the names already,
and the node's own labels are where the contract has them, so that nothing is added: that is what sets this apart from
the exporter of OpenTelemetry, of which there are only releases before the first one.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from attrs import frozen

from ballista_py.errors import MissingExtra

try:
    from opentelemetry.sdk.metrics.export import Histogram, Metric, MetricsData, Sum
    from prometheus_client import generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
except ImportError as error:
    raise MissingExtra.of("prometheus-client", "node") from error


def prometheus_text(data: MetricsData | None) -> bytes:
    """What the SDK has collected, as a page for Prometheus."""
    return generate_latest(_Collected(data))


@frozen
class _Collected:
    """What is rendered, in the one method by which the renderer asks for it."""

    data: MetricsData | None

    def collect(self) -> Iterator[Any]:
        """A family for each metric that has a value."""
        for resource in () if self.data is None else self.data.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    if metric.data.data_points:
                        yield _family(metric)


def _family(metric: Metric) -> Any:
    points: Any = metric.data.data_points
    labels = sorted({str(name) for point in points for name in point.attributes or ()})
    text = metric.description or metric.name
    if isinstance(metric.data, Histogram):
        histogram = HistogramMetricFamily(metric.name, text, labels=labels)
        for point in points:
            bounds = [*(f"{float(bound):g}" for bound in point.explicit_bounds), "+Inf"]
            counts = accumulate(point.bucket_counts)
            histogram.add_metric(_values(point, labels), list(zip(bounds, counts, strict=True)), point.sum)
        return histogram
    is_counter = isinstance(metric.data, Sum) and metric.data.is_monotonic
    family: Any = (CounterMetricFamily if is_counter else GaugeMetricFamily)(metric.name, text, labels=labels)
    for point in points:
        family.add_metric(_values(point, labels), point.value)
    return family


def _values(point: Any, labels: list[str]) -> list[str]:
    return [str((point.attributes or {}).get(name, "")) for name in labels]
