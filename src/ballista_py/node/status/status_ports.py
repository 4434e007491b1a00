"""The HTTP port of a node for probes and people, and its port for Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ballista_py.node.config import NodeConfig
from ballista_py.node.status.http_port import TEXT, HttpPort, Reply, json_reply
from ballista_py.node.status.metrics import NodeMetrics
from ballista_py.runtime import Runtime
from ballista_py.transport.security.access import HTTP, METRICS
from ballista_py.transport.security.tokens import StaticTokens


class StatusPorts:
    """Both ports, from construction until `close`.

    `/health` says that the process answers, `/ready` whether it serves (200 or 503), `/status` and `/tasks` what it
    does, as JSON; `/metrics` is on the other port. Both show the certificate that clients are shown, if there is one,
    and ask for a client's token where statements need one; probes of `/health` and `/ready` have none.
    """

    def __init__(
        self,
        config: NodeConfig,
        metrics: NodeMetrics,
        runtime: Runtime,
        *,
        ready: Callable[[], bool],
        status: Callable[[], Any],
        tasks: Callable[[], Any],
    ) -> None:
        host = config.node_bind_address
        tls = config.flight_tls()
        tokens = config.flight_tokens_file
        verifier = None if tokens is None else StaticTokens(tokens, runtime)
        self.metrics = HttpPort(
            host,
            config.metrics_port,
            {"/metrics": lambda: Reply(metrics.text(), TEXT)},
            access=METRICS,
            tls=tls,
            verifier=verifier,
        )
        node = {"node_id": config.node_id, "role": config.role}

        def is_ready() -> Reply:
            answer = ready()
            return json_reply({**node, "ready": answer}, 200 if answer else 503)

        self.http = HttpPort(
            host,
            config.http_port,
            {
                "/health": lambda: json_reply({**node, "healthy": True}),
                "/ready": is_ready,
                "/status": lambda: json_reply({**node, **status()}),
                "/tasks": lambda: json_reply({**node, "tasks": tasks()}),
            },
            access=HTTP,
            tls=tls,
            verifier=verifier,
        )

    def close(self) -> None:
        """Release both ports."""
        self.http.close()
        self.metrics.close()
