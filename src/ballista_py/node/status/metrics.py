"""The metrics of one node, by the meter `cluster` of OpenTelemetry: for Prometheus, and by OTLP where wanted.

Counters are kept here and read by the SDK when it is asked, because an increment by the SDK itself costs more than much
of what is counted; histograms are the SDK's. Gauges ask the node when they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ballista_py.errors import MissingExtra
from ballista_py.memory_budget import MemoryBudget
from ballista_py.node.status.figure_names import FIGURES, NODE_LABELS, Figure
from ballista_py.node.status.prometheus_text import prometheus_text
from ballista_py.node.status.tasks import CANCELLED, DONE, Tasks
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.state.members.control import TaskRecord
from ballista_py.transport.security.credentials import Tls

try:
    from opentelemetry.metrics import CallbackOptions, Observation
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.resources import Resource
except ImportError as error:
    raise MissingExtra.of("opentelemetry-sdk", "node") from error

METER = "cluster"
FAILED = "failed"
OTHER = "other"
MAX_SERIES = 4_096  # of one figure; what comes beyond is counted together

Values = Mapping[tuple[str, ...], float]
Labels = tuple[str, ...]


def resource_of(node_id: str, role: str) -> Resource:
    """What exported metrics and traces say of the node that they come from."""
    return Resource.create(
        {"service.name": "ballista_py", "service.instance.id": node_id, "service.namespace": role}
    )


class NodeMetrics:
    """The metrics of one node, as `Figures`. Thread-safe. A gauge whose node is not ready, or in trouble, is left out.

    `readers` of the SDK see the same as Prometheus does.
    """

    def __init__(
        self, node_id: str, role: str, readers: Sequence[Any] = (), runtime: Runtime | None = None
    ) -> None:
        self._node = (node_id, role)
        self._role = role
        self._figures = FIGURES[role]
        self._lock = (runtime or SystemRuntime()).lock()
        self._reader = InMemoryMetricReader()
        self._provider = MeterProvider(
            [self._reader, *readers], resource=resource_of(node_id, role), shutdown_on_exit=False
        )
        self._meter = self._provider.get_meter(METER)
        self._counts: dict[str, dict[Labels, float]] = {}
        self._seen: dict[str, set[Labels]] = {}  # label sets of histograms
        self._histograms: dict[str, Any] = {}
        for name, figure in self._figures.items():
            if figure.buckets:
                self._histograms[name] = self._meter.create_histogram(
                    name, description=figure.text, explicit_bucket_boundaries_advisory=list(figure.buckets)
                )
                continue
            self._counts[name] = {} if figure.labels else {self._labels(figure, {}): 0.0}
            self._meter.create_observable_counter(name, [partial(self._counted, name)], description=figure.text)

    def add(self, name: str, amount: float = 1.0, **labels: str) -> None:
        """See `Figures.add`. Raises `KeyError` for a figure that this role does not have."""
        figure, counts = self._figures[name], self._counts[name]
        key = self._labels(figure, labels)
        with self._lock:
            if key not in counts and len(counts) >= MAX_SERIES:
                key = self._labels(figure, dict.fromkeys(figure.labels, OTHER))
            counts[key] = counts.get(key, 0.0) + amount

    def record(self, name: str, value: float, **labels: str) -> None:
        """See `Figures.record`. Raises `KeyError` for a figure that this role does not have."""
        figure, seen = self._figures[name], self._seen.setdefault(name, set())
        key = self._labels(figure, labels)
        if key not in seen:
            with self._lock:
                if len(seen) >= MAX_SERIES:
                    key = self._labels(figure, dict.fromkeys(figure.labels, OTHER))
                seen.add(key)
        self._histograms[name].record(value, dict(zip(_names(figure), key, strict=True)))

    def gauge(
        self,
        name: str,
        help_text: str,
        labels: Iterable[str],
        read: Callable[[], Values],
        *,
        of_node: bool = False,
        adds_up: bool = False,
    ) -> None:
        """Show `read()`, a value for each combination of `labels`, as `name` whenever it is asked for.

        One that `adds_up` may be summed over nodes.
        """
        names = tuple(labels)

        def values(_options: CallbackOptions) -> Iterator[Observation]:
            try:
                found = read()
            except Exception:  # one that cannot be read now is left out, the others are not
                return
            own = dict(zip(NODE_LABELS, self._node, strict=True)) if of_node else {}
            for key, value in found.items():
                yield Observation(value, {**own, **dict(zip(names, key, strict=True))})

        create = self._meter.create_observable_up_down_counter if adds_up else self._meter.create_observable_gauge
        create(name, [values], description=help_text)

    def counter(self, name: str, help_text: str, labels: Iterable[str], read: Callable[[], Values]) -> None:
        """Show `read()` as `gauge` does; it only ever grows."""
        names = tuple(labels)

        def values(_options: CallbackOptions) -> Iterator[Observation]:
            for key, value in read().items():
                yield Observation(value, dict(zip(names, key, strict=True)))

        self._meter.create_observable_counter(name, [values], description=help_text)

    def watch_certificate(self, tls: Tls | None, runtime: Runtime) -> None:
        """Show how long the node's certificate is valid still, if it has one."""
        if tls is None:
            return
        from ballista_py.transport.security.certificates import remaining_ms

        text = "Milliseconds until the certificate of this node ends."
        self.gauge("node_certificate_remaining_ms", text, (), lambda: {(): remaining_ms(tls, runtime)})

    def ended(self, task: TaskRecord) -> None:
        """Count a task that ended."""
        status = task.outcome if task.outcome in (DONE, CANCELLED) else FAILED
        is_executor = self._role == "executor"
        self.add("node_tasks_total", status=status)
        self.add("node_task_rows", task.rows, kind=task.kind)
        if is_executor:
            self.add("executor_tasks_total", status=status)
        if status == FAILED:
            self.add("node_task_failures", error_type=task.outcome)
            if is_executor:
                self.add("executor_task_failures", error_type=task.outcome)
        took = "executor_task_duration_ms" if is_executor else "scheduler_statement_duration_ms"
        self.record(took, task.took_ms, kind=task.kind)

    def shipped(self, count: int) -> None:
        """Count what a statement that ended moved between nodes."""
        self.add("scheduler_shipped_bytes", count)

    def text(self) -> bytes:
        """All metrics in the text format of Prometheus."""
        return prometheus_text(self._reader.get_metrics_data())

    def close(self) -> None:
        """Send what is to be sent, and no more."""
        self._provider.shutdown()

    def _labels(self, figure: Figure, labels: Mapping[str, str]) -> Labels:
        own = tuple(labels[name] for name in figure.labels)
        return (*self._node, *own) if figure.of_node else own

    def _counted(self, name: str, _options: CallbackOptions) -> Iterator[Observation]:
        with self._lock:
            found = tuple(self._counts[name].items())
        names = _names(self._figures[name])
        for key, value in found:
            yield Observation(value, dict(zip(names, key, strict=True)))


def _names(figure: Figure) -> tuple[str, ...]:
    return (*NODE_LABELS, *figure.labels) if figure.of_node else figure.labels


def observe_node(
    metrics: NodeMetrics,
    tasks: Tasks,
    budget: MemoryBudget,
    ready: Callable[[], bool],
    spilled: Callable[[], int],
) -> None:
    """Let `metrics` show whether the node may serve, what it is at, and what that has reserved."""
    metrics.gauge(
        "node_status",
        "Whether the node may serve: 1 while its lease is valid.",
        (),
        lambda: {(): float(ready())},
        of_node=True,
    )
    metrics.gauge(
        "node_tasks_active",
        "Statements, changes, legs and writes that run now.",
        (),
        lambda: {(): float(tasks.running())},
        of_node=True,
        adds_up=True,
    )
    metrics.gauge(
        "node_memory_reserved_bytes",
        "Bytes of memory that statements reserved or wait for, and all that there are.",
        ("state",),
        budget.shown,
    )
    metrics.gauge(
        "node_spill_bytes",
        "Bytes on disk that the engine and its processes spilled.",
        (),
        lambda: {(): float(spilled())},
    )
