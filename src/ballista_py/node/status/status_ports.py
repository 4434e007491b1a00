"""The HTTP port of a node for probes and people, and its port for Prometheus."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ballista_py.node.config import NodeConfig
from ballista_py.node.status.http_port import TEXT, HttpPort, Reply, json_reply
from ballista_py.node.status.metrics import NodeMetrics
from ballista_py.runtime import Runtime
from ballista_py.transport.security.access import HTTP, METRICS, OPEN_METRICS
from ballista_py.transport.security.tokens import AnyOf, NobodyKnown, StaticTokens, TokenVerifier

_log = logging.getLogger(__name__)


def check_tokens(config: NodeConfig, runtime: Runtime) -> list[StaticTokens]:
    """The tokens in the files that the node was given. Raises `ConfigError` for one that cannot be used."""
    files = (config.flight_tokens_file, config.status_tokens_file)
    return [StaticTokens(file, runtime) for file in files if file is not None]


def viewers(config: NodeConfig, runtime: Runtime) -> TokenVerifier | None:
    """Who may see more than that the node is up: whoever has a token of a client, or one for looking alone.

    A node that proves itself by certificates and was given neither file shows it to nobody, because statements and
    names of tables are in there; None is a node that hides nothing from anybody, because nothing about it is secured.
    """
    tokens = check_tokens(config, runtime)
    if tokens:
        return AnyOf(tokens)
    if config.flight_tls() is None:
        return None
    _log.warning(
        "/status, /tasks%s are shown to nobody: give the node a --status-tokens-file to show them to who has a token",
        "" if config.open_metrics else " and /metrics",
    )
    return NobodyKnown()


class StatusPorts:
    """Both ports, from construction until `close`.

    `/health` says that the process answers, `/ready` whether it serves (200 or 503), `/status` and `/tasks` what it
    does, as JSON; `/metrics` is on the other port. Both show the certificate that clients are shown, if there is one.
    Probes of `/health` and `/ready` need nothing; who else may look is what `viewers` says.
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
        verifier = viewers(config, runtime)
        self.metrics = HttpPort(
            host,
            config.metrics_port,
            {"/metrics": lambda: Reply(metrics.text(), TEXT)},
            access=OPEN_METRICS if config.open_metrics else METRICS,
            tls=tls,
            verifier=verifier,
            limits=config.http_limits(),
        )
        node = {"node_id": config.node_id, "role": config.role}

        def is_ready() -> Reply:
            answer = ready()
            return json_reply({**node, "ready": answer}, 200 if answer else 503)

        try:
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
                limits=config.http_limits(),
            )
        except BaseException:
            self.metrics.close()
            raise

    def close(self) -> None:
        """Release both ports."""
        self.http.close()
        self.metrics.close()
