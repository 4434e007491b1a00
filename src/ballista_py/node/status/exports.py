"""What a node sends to a collector by OTLP: metrics and traces. Nothing of it is imported unless there is one.

Headers and certificates for the collector come from the SDK's own environment variables
(`OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_EXPORTER_OTLP_CERTIFICATE`, …).
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import Any

from attrs import define, field

from ballista_py.errors import BallistaError, MissingExtra
from ballista_py.node.status.metrics import METER, resource_of
from ballista_py.runtime import Runtime
from ballista_py.traces import PlainSpan, PlainTracer, Span, TraceContext, Tracer

EXPORT_EVERY_MS = 15_000
TIMEOUT_S = 2  # for a collector; a node that stops waits no longer for it
MAX_QUEUED_SPANS = 8_192  # what comes beyond, while the collector does not take them, is dropped
_EXPORTER = "opentelemetry-exporter-otlp-proto-grpc"


def closed_in_time(close: Callable[[], object]) -> None:
    """Have it closed, and wait no longer than twice `TIMEOUT_S`: who does not listen keeps no node from stopping."""
    closing = Thread(target=close, name="otlp-close", daemon=True)
    closing.start()
    closing.join(2 * TIMEOUT_S)


def metric_readers(endpoint: str | None, every_ms: float = EXPORT_EVERY_MS) -> list[Any]:
    """What sends metrics to the endpoint, if there is one."""
    if endpoint is None:
        return []
    try:
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    except ImportError as error:
        raise MissingExtra.of(_EXPORTER, "node") from error
    exporter = OTLPMetricExporter(endpoint=endpoint, insecure=endpoint.startswith("http:"), timeout=TIMEOUT_S)
    return [PeriodicExportingMetricReader(exporter, export_interval_millis=every_ms)]


def tracer_of(
    endpoint: str | None,
    node_id: str,
    role: str,
    ratio: float,
    runtime: Runtime,
    every_ms: float = EXPORT_EVERY_MS,
) -> Tracer:
    """What begins the spans of a node: recorded for the endpoint, or by their ids alone."""
    if endpoint is None:
        return PlainTracer(runtime.new_id)
    try:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
    except ImportError as error:
        raise MissingExtra.of(_EXPORTER, "node") from error
    provider = TracerProvider(
        resource=resource_of(node_id, role), sampler=ParentBased(TraceIdRatioBased(ratio)), shutdown_on_exit=False
    )
    exporter = OTLPSpanExporter(endpoint=endpoint, insecure=endpoint.startswith("http:"), timeout=TIMEOUT_S)
    provider.add_span_processor(
        BatchSpanProcessor(exporter, max_queue_size=MAX_QUEUED_SPANS, schedule_delay_millis=every_ms)
    )
    return ExportingTracer(provider, provider.get_tracer(METER))


@define
class ExportingTracer:
    """A `Tracer` of the SDK. What the sampler leaves out costs as little as without one."""

    _provider: Any
    _tracer: Any

    def begin(self, name: str, parent: TraceContext | None = None, **attributes: Any) -> Span:
        from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

        context = None
        if parent is not None:
            said = SpanContext(
                int(parent.trace_id, 16), int(parent.span_id, 16), True, TraceFlags(int(parent.sampled))
            )
            context = set_span_in_context(NonRecordingSpan(said))
        return self.started(name, context, attributes)

    def started(self, name: str, context: Any, attributes: dict[str, Any]) -> Span:
        """The span, recorded if the sampler says so."""
        span = self._tracer.start_span(name, context=context, attributes=attributes)
        ids = span.get_span_context()
        known = TraceContext(f"{ids.trace_id:032x}", f"{ids.span_id:016x}", bool(ids.trace_flags.sampled))
        return _Recorded(self, span, known) if span.is_recording() else PlainSpan(known)

    def close(self) -> None:
        """Send what is waiting, and no more."""
        closed_in_time(self._provider.shutdown)


@define
class _Recorded:
    """A span that is exported when it has ended."""

    _tracer: ExportingTracer
    _span: Any
    context: TraceContext
    recorded: bool = field(default=True, init=False)

    def child(self, name: str, **attributes: Any) -> Span:
        from opentelemetry.trace import set_span_in_context

        return self._tracer.started(name, set_span_in_context(self._span), attributes)

    def set(self, **attributes: Any) -> None:
        self._span.set_attributes(attributes)

    def end(self, error: BaseException | None = None) -> None:
        if error is not None:
            from opentelemetry.trace import Status, StatusCode

            code = error.code if isinstance(error, BallistaError) else BallistaError.code
            self._span.set_attribute("error.type", code)
            self._span.set_status(Status(StatusCode.ERROR, code))  # what it says may hold a statement's values
        self._span.end()
