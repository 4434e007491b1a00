"""A collector of OTLP over gRPC: a real server that keeps what nodes send."""

from __future__ import annotations

import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics_messages
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metrics_rpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as trace_messages
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as trace_rpc

PATIENCE_S = 60.0


class Collector(trace_rpc.TraceServiceServicer, metrics_rpc.MetricsServiceServicer):
    """Listens from construction until `close`."""

    def __init__(self) -> None:
        self.spans = defaultdict(list)  # by trace: (node, span)
        self.metrics = defaultdict(set)  # by node: names
        self._server = grpc.server(ThreadPoolExecutor(4))
        trace_rpc.add_TraceServiceServicer_to_server(self, self._server)
        metrics_rpc.add_MetricsServiceServicer_to_server(_Metrics(self), self._server)
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def Export(self, request, context):
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                assert scope.scope.name == "cluster"
                for span in scope.spans:
                    self.spans[span.trace_id.hex()].append((_node(resource.resource), span))
        return trace_messages.ExportTraceServiceResponse()

    def trace(self, trace_id, *names):
        """The spans of a trace, once there is one of each of these names."""
        until = time.monotonic() + PATIENCE_S
        while not set(names) <= (have := {span.name for _, span in self.spans[trace_id]}):
            assert time.monotonic() < until, (names, have)
            time.sleep(0.1)
        time.sleep(1.0)  # others of it may be on their way
        return list(self.spans[trace_id])

    def close(self) -> None:
        self._server.stop(None)


class _Metrics(metrics_rpc.MetricsServiceServicer):
    def __init__(self, collector) -> None:
        self._collector = collector

    def Export(self, request, context):
        for resource in request.resource_metrics:
            for scope in resource.scope_metrics:
                names = {metric.name for metric in scope.metrics}
                self._collector.metrics[_node(resource.resource)] |= names
        return metrics_messages.ExportMetricsServiceResponse()


def _node(resource) -> str:
    found = {attribute.key: attribute.value.string_value for attribute in resource.attributes}
    return found["service.instance.id"]
