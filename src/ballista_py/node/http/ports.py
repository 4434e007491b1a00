"""The two HTTP ports of a node: one for clients, probes and people, one for Prometheus; one thread serves both."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from attrs import frozen
from litestar.handlers import HTTPRouteHandler

from ballista_py.errors import ConfigError
from ballista_py.node.client_tokens import client_verifier
from ballista_py.node.config import NodeConfig
from ballista_py.node.http import routes_node, routes_page
from ballista_py.node.http.app import HttpApp
from ballista_py.node.http.callers import HttpCallers
from ballista_py.node.http.door import HttpDoor
from ballista_py.node.http.port import HttpPort
from ballista_py.node.http.routes_node import NodeShows
from ballista_py.node.http.routes_page import PageShows
from ballista_py.runtime import Runtime
from ballista_py.threads import EventLoopThread, spawn
from ballista_py.transport.flight.calls import OpenCalls
from ballista_py.transport.flight.listener import CallThreads
from ballista_py.transport.flight.server import IDLE_MS, SPARE_THREADS
from ballista_py.transport.security.access import HTTP, METRICS, OPEN_METRICS, Access
from ballista_py.transport.security.callers import Refusals
from ballista_py.transport.security.tokens import AnyOf, NobodyKnown, StaticTokens, TokenVerifier

_log = logging.getLogger(__name__)
LOOKS = 64  # at once, at each port
LOOKS_OF_ONE = 16

MoreRoutes = Callable[[HttpDoor], Sequence[HTTPRouteHandler]]


def check_tokens(config: NodeConfig, runtime: Runtime) -> list[StaticTokens]:
    """The tokens in the files that the node was given. Raises `ConfigError` for one that cannot be used."""
    files = (config.flight_tokens_file, config.status_tokens_file)
    found = [StaticTokens(file, runtime) for file in files if file is not None]
    if len(found) == len(files) and (name := found[1].shared_with(found[0])):
        raise ConfigError(
            f"{config.status_tokens_file}: the token of '{name}' stands in {config.flight_tokens_file}, too: who is to "
            "look alone could do what a client does; give it another one"
        )
    return found


def http_callers(config: NodeConfig, runtime: Runtime) -> HttpCallers:
    """Who may see more than that the node is up, and who may send statements.

    Whoever has a token of a client may do both, whoever has one for looking alone the first. A node that proves itself
    by certificates and was given neither file shows itself to nobody, because statements and names of tables are in
    there. Statements need a token where those over Flight do.
    """
    tokens = check_tokens(config, runtime)
    clients = client_verifier(config, runtime)
    viewers: TokenVerifier | None = None
    if tokens or clients is not None:
        viewers = AnyOf([*tokens, *([] if clients is None else [clients])])
    elif config.flight_tls() is not None:
        viewers = NobodyKnown()
        _log.warning(
            "/status, /tasks%s are shown to nobody: give the node a --status-tokens-file to show them to who has a "
            "token",
            "" if config.open_metrics else " and /metrics",
        )
    return HttpCallers(clients, viewers)


@frozen(kw_only=True)
class _Parts:
    """What both ports share."""

    config: NodeConfig
    runtime: Runtime
    callers: HttpCallers
    thread: EventLoopThread
    threads: CallThreads
    up: ExitStack

    def open(self, number: int, access: Access, routes: MoreRoutes, statements: OpenCalls | None) -> HttpPort:
        looks = OpenCalls(
            LOOKS, IDLE_MS, self.runtime, caller_limit=LOOKS_OF_ONE, access=access, time_limit_ms=IDLE_MS
        )
        refusals = Refusals(self.runtime)
        door = HttpDoor(
            access=access,
            callers=self.callers,
            statements=looks if statements is None else statements,
            looks=looks,
            threads=self.threads,
            refusals=refusals,
        )
        limits = self.config.http_limits()
        app = HttpApp(door, routes(door), limits.header_bytes)

        def tick() -> None:
            looks.tick()
            refusals.tick()

        port = HttpPort(
            self.config.node_bind_address,
            number,
            app,
            self.thread,
            self.runtime,
            tls=self.config.flight_tls(),
            limits=limits,
            tick=tick,
        )
        self.up.callback(port.close)
        self.up.callback(door.close)
        return port


class HttpPorts:
    """Both ports, from construction until `close`.

    `/health` says that the process answers, `/ready` whether it serves (200 or 503); what else a node shows and does is
    in `routes_…`; `/metrics` is on the other port. Both show the certificate that clients are shown, if there is one.
    `routes` are those of the role beside what every node has; what they do for clients counts among `statements`.
    """

    def __init__(
        self,
        config: NodeConfig,
        metrics: Callable[[], bytes],
        runtime: Runtime,
        shows: NodeShows,
        routes: MoreRoutes = lambda _door: (),
        statements: OpenCalls | None = None,
    ) -> None:
        with ExitStack() as up:
            thread = EventLoopThread("http")
            up.callback(thread.stop)
            most = 2 * LOOKS if statements is None else statements.most_begun
            parts = _Parts(
                config=config,
                runtime=runtime,
                callers=http_callers(config, runtime),
                thread=thread,
                threads=CallThreads(spawn, most + SPARE_THREADS),
                up=up,
            )
            for_metrics = OPEN_METRICS if config.open_metrics else METRICS
            self.metrics = parts.open(
                config.metrics_port, for_metrics, lambda door: routes_node.metrics_routes(metrics, door), None
            )
            self.http = parts.open(
                config.http_port,
                HTTP,
                lambda door: [*_of_every_node(shows, door, runtime), *routes(door)],
                statements,
            )
            self._up = up.pop_all()

    def close(self) -> None:
        """End what is being answered and release both ports."""
        self._up.close()


def _of_every_node(shows: NodeShows, door: HttpDoor, runtime: Runtime) -> list[HTTPRouteHandler]:
    page = PageShows(node_id=shows.node_id, role=shows.role, parts=shows.parts)
    return [*routes_node.routes(shows, door), *routes_page.routes(page, door, runtime)]
