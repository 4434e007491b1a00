"""The metrics of one node, for Prometheus.

Counters count what happened, gauges ask the node when they are read. Names begin with `ballista_`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ballista_py.errors import MissingExtra
from ballista_py.runtime import Runtime
from ballista_py.state.members.control import TaskRecord
from ballista_py.transport.security.credentials import Tls

try:
    from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
    from prometheus_client.core import GaugeMetricFamily
except ImportError as error:
    raise MissingExtra.of("prometheus-client", "node") from error

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)

Values = Mapping[tuple[str, ...], float]


class NodeMetrics:
    """The metrics of one node. Thread-safe. A gauge whose node is not ready, or in trouble, is left out."""

    def __init__(self, node_id: str, role: str) -> None:
        self._registry = CollectorRegistry()
        self._labels = (node_id, role)
        self._gauges: list[tuple[str, str, tuple[str, ...], Callable[[], Values]]] = []
        self._registry.register(self)
        self._tasks = Counter(
            "ballista_tasks", "Statements and legs that ended.", ["kind", "outcome"], registry=self._registry
        )
        self._rows = Counter("ballista_rows", "Rows answered.", ["kind"], registry=self._registry)
        self._shipped = Counter(
            "ballista_shipped_bytes",
            "Bytes that statements moved between executors and this scheduler.",
            registry=self._registry,
        )
        self._seconds = Histogram(
            "ballista_task_seconds",
            "How long statements and legs took.",
            ["kind"],
            registry=self._registry,
            buckets=BUCKETS,
        )

    def gauge(self, name: str, help_text: str, labels: Iterable[str], read: Callable[[], Values]) -> None:
        """Show `read()`, a value for each combination of `labels`, as `ballista_{name}` whenever it is asked for."""
        self._gauges.append((name, help_text, tuple(labels), read))

    def watch_certificate(self, tls: Tls | None, runtime: Runtime) -> None:
        """Show how long the node's certificate is valid still, if it has one."""
        if tls is None:
            return
        from ballista_py.transport.security.certificates import remaining_ms

        text = "Seconds until the certificate of this node ends."
        self.gauge("certificate_remaining_seconds", text, (), lambda: {(): remaining_ms(tls, runtime) / 1e3})

    def ended(self, task: TaskRecord) -> None:
        """Count a task that ended."""
        self._tasks.labels(task.kind, task.outcome).inc()
        self._rows.labels(task.kind).inc(task.rows)
        self._seconds.labels(task.kind).observe(task.took_ms / 1e3)

    def shipped(self, count: int) -> None:
        """Count what a statement that ended moved between nodes."""
        self._shipped.inc(count)

    def text(self) -> bytes:
        """All metrics in the text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Any]:
        """What the registry asks this for."""
        yield _family("node", "The node.", ("node", "role"), {self._labels: 1.0})
        for name, help_text, labels, read in self._gauges:
            try:
                values = read()
            except Exception:  # nosec B112  # noqa: S112 - a gauge that cannot be read now is left out, the others are not
                continue
            yield _family(name, help_text, labels, values)

    def describe(self) -> Iterable[Any]:
        """Nothing: what gauges there are shows when they are read."""
        return ()


def _family(name: str, help_text: str, labels: tuple[str, ...], values: Values) -> Any:
    family = GaugeMetricFamily(f"ballista_{name}", help_text, labels=labels)
    for names, value in values.items():
        family.add_metric(names, value)
    return family
