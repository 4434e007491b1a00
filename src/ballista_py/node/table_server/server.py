"""The process of a table server: wired, started, told to stop by a signal.

It stands on what a scheduler and an executor stand on, without a cluster and without documents.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any

from attrs import field, frozen

from ballista_py.coordinator.queries.service import QueryService
from ballista_py.coordinator.reads.answers import ReadAnswers
from ballista_py.coordinator.reads.plain_reads import OpenReads, PlainReads
from ballista_py.coordinator.reads.plain_views import FolderViews
from ballista_py.engines.apart.shares import least_budget
from ballista_py.engines.apart.trials import Trials
from ballista_py.engines.apart.workers import Options, Workers
from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.errors import ConfigError, TransportError
from ballista_py.logs import log_event
from ballista_py.memory_budget import MemoryBudget
from ballista_py.node.engine_processes import WATCH_MS, EngineProcess, memory_bytes, own_bytes, require_amount
from ballista_py.node.front_process import FrontProcess
from ballista_py.node.loops import Loop
from ballista_py.node.table_server.parts import FolderParts
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.secret import Secret
from ballista_py.storage.plain.folders import open_folder
from ballista_py.storage.plain.footers import PlainFiles
from ballista_py.threads import map_some, spawn
from ballista_py.transport.endpoints import Address
from ballista_py.transport.flight.calls import CallContext
from ballista_py.transport.flight.commands import MEMBERS
from ballista_py.transport.flight.server import SHUTDOWN_MS, FlightServer, StreamResult
from ballista_py.transport.flight.writes import IncomingRows
from ballista_py.transport.security.access import TABLE_SERVER
from ballista_py.transport.security.callers import Anyone, Callers, ClientsAndTickets
from ballista_py.transport.security.connection_guard import ConnectionLimits
from ballista_py.transport.security.credentials import Tls
from ballista_py.transport.security.secret_tickets import SecretTickets, read_ticket_secret
from ballista_py.transport.security.tokens import StaticTokens
from ballista_py.transport.table_read.plain_tickets import PLAIN_PURPOSE
from ballista_py.transport.table_read.port import TableServerService
from ballista_py.work import carried

_log = logging.getLogger(__name__)
FLIGHT_TICK_MS = 200
JOBS_TICK_MS = 10_000
POLL_MS = 100
FOOTERS_AT_ONCE = 16
MAX_CALLS_OF_CLIENT = 128
MESSAGE_BYTES = 16 << 20  # of a ticket of very many files
DEFAULT_MEMORY = "25%"


@frozen(kw_only=True)
class TableServerSettings:
    """What a table server is told. `location` is what it serves, `listen` where, `advertise` the host and port at which
    clients find it (default: that of `listen`), `also` other servers of the same files with the same secret.

    Raises `ConfigError` for settings that do not go together.
    """

    location: str
    listen: str = "127.0.0.1:50061"
    advertise: str | None = None
    also: tuple[str, ...] = ()
    store_options: Mapping[str, Any] = field(factory=dict, repr=False)
    tls_certificate_file: str | None = None
    tls_key_file: str | None = None
    tokens_file: str | None = None
    secret_file: str | None = None
    memory_limit: str = DEFAULT_MEMORY
    allow_insecure_connections: bool = False

    def __attrs_post_init__(self) -> None:
        for one in (self.listen, *self.also, *([] if self.advertise is None else [self.advertise])):
            Address.parse(one)
        require_amount(self.memory_limit)
        if (self.tls_certificate_file is None) != (self.tls_key_file is None):
            raise ConfigError("--tls-key-file: a certificate needs its key, and a key its certificate")
        if self.tls() is None and not self.allow_insecure_connections:
            raise ConfigError(
                "--tls-certificate-file: missing; give a certificate and its key, or pass --allow-insecure-connections "
                "to let clients speak plain TCP to this server"
            )
        if self.also and self.secret_file is None:
            raise ConfigError("--also: other servers believe the tickets of this one by the same --secret-file")

    def tls(self) -> Tls | None:
        """What the port proves itself with."""
        if self.tls_certificate_file is None:
            return None
        return Tls(certificate_file=self.tls_certificate_file, key_file=self.tls_key_file)


@frozen
class RunningTableServer:
    """A table server that answers at `url`, with these `tables`; others in its folder are none, and why."""

    url: str
    tables: tuple[str, ...]
    refused: Mapping[str, str]
    stop: Callable[[], None]


def run_table_server(settings: TableServerSettings, ready: Callable[[RunningTableServer], None]) -> None:
    """Serve until SIGTERM or SIGINT. `ready` is told what answers, once it does."""
    runtime = SystemRuntime()
    told: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _frame: told.append(received))
    server = start_table_server(settings, runtime)
    ready(server)
    while not told:
        runtime.sleep_ms(POLL_MS)
    log_event(_log, "stopping", signal=told[0])
    server.stop()


def start_table_server(settings: TableServerSettings, runtime: Runtime) -> RunningTableServer:
    """Listen, after a first look at the folder.

    What was started is ended when the rest cannot be. Raises `ConfigError`, and what looking at the folder raises.
    """
    with ExitStack() as up:
        files = PlainFiles(open_folder(settings.location, runtime, **settings.store_options), runtime)
        secret = Secret(runtime.new_id() + runtime.new_id())
        if settings.secret_file is not None:
            secret = read_ticket_secret(settings.secret_file)
        tickets = SecretTickets(purpose=PLAIN_PURPOSE, secret=secret, runtime=runtime)
        budget = MemoryBudget(least_budget(memory_bytes(settings.memory_limit)), runtime)
        reads = _reads(settings, files, tickets, budget, up)
        view = reads.views.refresh()
        port = _listen(settings, reads, budget)
        up.callback(port.shutdown, spawn, SHUTDOWN_MS / 2)
        scheme = "grpc" if settings.tls() is None else "grpc+tls"
        said = Address.parse(settings.advertise or settings.listen)
        own = Address(said.host, said.port or port.port)
        reads.locations = tuple(f"{scheme}://{one}" for one in (own, *map(Address.parse, settings.also)))
        _loop("flight", port.tick, FLIGHT_TICK_MS, runtime, up)
        _loop("jobs", reads.tick, JOBS_TICK_MS, runtime, up)
        url = f"ballista{scheme.removeprefix('grpc')}://{own}"
        log_event(_log, "started", at=url, tables=len(view.catalog.tables))
        refused = {name: str(error) for name, error in view.unusable.items()}
        return RunningTableServer(url, tuple(sorted(view.catalog.tables)), refused, up.pop_all().close)


class _NothingElse:
    """What the port is asked besides: which other schedulers there are, and there are none."""

    verbs = (f"DoAction {MEMBERS}",)

    def action(self, name: str, body: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        return {"rows": [], "cluster": ""}

    def stream(self, command: Mapping[str, Any], context: CallContext) -> StreamResult:
        raise _no_statements()

    def write(self, command: Mapping[str, Any], rows: IncomingRows, context: CallContext) -> Mapping[str, Any]:
        raise _no_statements()


def _reads(
    settings: TableServerSettings, files: PlainFiles, tickets: SecretTickets, budget: MemoryBudget, up: ExitStack
) -> PlainReads:
    """The Coordinator; where parts are given is said once the port is there."""
    runtime = files.runtime
    processes = Workers(
        start=lambda: EngineProcess(None, runtime),
        max_bytes=memory_bytes(settings.memory_limit),
        own_bytes=own_bytes,
        runtime=runtime,
        options=Options(kind="duckdb", threads=1, max_spill_bytes=0, keeps_order=True),
        budget=budget,
    )
    engine = DuckDBEngine(threads=1, max_spill_bytes=0, workers=processes, runtime=runtime)
    up.callback(engine.close)
    _loop("memory", engine.watch, WATCH_MS, runtime, up)
    pool = ThreadPoolExecutor(FOOTERS_AT_ONCE, thread_name_prefix="footers")
    up.callback(pool.shutdown, wait=False, cancel_futures=True)

    def run_all(call: Callable[[Any], Any], items: Iterable[Any]) -> Iterable[Any]:
        """What `call` gives for each item, in order, many at the same time, as part of the work of this thread."""
        return map_some(pool, carried(call), items, FOOTERS_AT_ONCE)

    views = FolderViews(files)
    trials = Trials(processes, runtime)
    queries = QueryService(views, engine, _open_no_legs, runtime, budget=budget, trials=trials)
    return PlainReads(queries, views, tickets, (), runtime, OpenReads(runtime), run_all)


def _open_no_legs(*_asked: object) -> Any:
    raise AssertionError("nothing is planned to be run here")


def _listen(settings: TableServerSettings, reads: PlainReads, budget: MemoryBudget) -> FlightServer:
    tls, runtime = settings.tls(), reads.runtime
    callers: Callers = Anyone()
    if settings.tokens_file is not None:
        callers = ClientsAndTickets(StaticTokens(settings.tokens_file, runtime))
    parts = FolderParts(reads.views.files, reads.tickets, reads.jobs, budget)
    return FlightServer(
        settings.listen,
        _NothingElse(),
        runtime,
        access=TABLE_SERVER,
        callers=callers,
        caller_limit=MAX_CALLS_OF_CLIENT,
        tls=tls,
        connections=ConnectionLimits(),
        front=FrontProcess,
        message_bytes=MESSAGE_BYTES,
        name="table-server",
        budget=budget,
        spawn=spawn,
        service=partial(TableServerService, coordinator=ReadAnswers(reads), parts=parts),
    )


def _loop(name: str, tick: Callable[[], object], every_ms: float, runtime: Runtime, up: ExitStack) -> None:
    loop = Loop(name, tick, interval_ms=every_ms, runtime=runtime)
    up.callback(loop.stop)
    loop.start()


def _no_statements() -> TransportError:
    return TransportError("a table server answers read jobs alone: it runs no statements")
