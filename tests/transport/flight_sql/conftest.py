"""A public port with real statements behind it, in this process, that notes every command it was sent."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest
from attrs import define, field

from ballista_py.coordinator.cluster_view import ClusterView
from ballista_py.coordinator.queries.flight_sql import FlightSqlStatements
from ballista_py.coordinator.queries.service import QueryService
from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import SystemRuntime
from ballista_py.sql.plan import Catalog
from ballista_py.transport.flight.server import FlightServer
from ballista_py.transport.flight_sql.ahead import KeepAlive
from ballista_py.transport.flight_sql.messages import message, pack, unpack
from ballista_py.transport.flight_sql.port import FlightSqlService
from ballista_py.transport.security.access import PUBLIC

ITEMS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("made", pa.date32())])


@define
class OneTable:
    """The view of a cluster with one table and no executor."""

    def refresh(self, words=None) -> ClusterView:
        spec = PartitionSpec.parse(["bucket(4, id)"], ITEMS)
        table = TableSpec(name="items", schema=ITEMS, spec=spec)
        pmap = PartitionMap.build("items", spec, spec.static_values())
        catalog = Catalog(tables={"items": table}, maps={"items": pmap})
        return ClusterView(catalog=catalog, members=frozenset(), addresses={})

    current = refresh


@define
class Notebook:
    """Takes writes down instead of doing them."""

    statements: list[str] = field(factory=list)
    tokens: list[str | None] = field(factory=list)
    tables: dict[str, tuple[str, pa.Table]] = field(factory=dict)

    def execute(self, statement: str, *, token: str | None = None, made: bool = False) -> int:
        self.statements.append(statement)
        self.tokens.append(token)
        return 3

    def ingest(self, table: str, reader: Any, *, mode: str = "append", token: str | None = None) -> int:
        self.tables[table] = (mode, reader.read_all())
        self.tokens.append(token)
        return self.tables[table][1].num_rows


@define
class Port:
    """A port, and what it was asked: the method and, where there is one, the name of the command or action."""

    server: FlightServer
    writes: Notebook
    asked: list[str]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    @property
    def url(self) -> str:
        return f"grpc://{self.address}"

    def raw(self) -> flight.FlightClient:
        return flight.connect(self.url)

    def start(self, command: str, **fields: Any) -> flight.FlightInfo:
        """What `get_flight_info` says to a command."""
        packed = pack(message(command, **fields))
        return self.raw().get_flight_info(flight.FlightDescriptor.for_command(packed))


class Recording(FlightSqlService):
    """Notes what it is asked, then answers."""

    def __init__(self, *arguments: Any, asked: list[str], **options: Any) -> None:
        self._asked = asked
        super().__init__(*arguments, **options)

    def _note(self, method: str, data: bytes) -> None:
        try:
            self._asked.append(f"{method} {unpack(data).DESCRIPTOR.name}")
        except Exception:
            self._asked.append(f"{method} ?")

    def get_flight_info(self, call: Any, descriptor: Any) -> Any:
        self._note("GetFlightInfo", descriptor.cmd)
        return super().get_flight_info(call, descriptor)

    def get_schema(self, call: Any, descriptor: Any) -> Any:
        self._note("GetSchema", descriptor.cmd)
        return super().get_schema(call, descriptor)

    def do_get(self, call: Any, ticket: Any, writer: Any) -> None:
        self._note("DoGet", ticket.ticket)
        super().do_get(call, ticket, writer)

    def do_put(self, call: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        self._note("DoPut", descriptor.cmd)
        super().do_put(call, descriptor, reader, writer)

    def do_action(self, call: Any, action: Any) -> list[bytes]:
        self._asked.append(f"DoAction {action.type}")
        return super().do_action(call, action)


class NoDoor:
    """Nobody speaks our own protocol in these tests."""

    verbs = ()

    def stream(self, command: Any, context: Any) -> Any:
        raise AssertionError

    def action(self, name: str, body: Any, context: Any) -> Any:
        raise AssertionError


def make_statements(**options: Any) -> FlightSqlStatements:
    engine = DuckDBEngine()
    queries = QueryService(OneTable(), engine, lambda legs, addresses: pytest.fail("no leg"), SystemRuntime())
    return FlightSqlStatements(queries, engine, options.get("writes"), tickets=None)


@pytest.fixture
def serve() -> Iterator[Callable[..., Port]]:
    """Start a port; all are shut down at the end."""
    stopped = threading.Event()
    servers: list[FlightServer] = []

    def spawn(function: Callable[[], None]) -> None:
        threading.Thread(target=function, daemon=True).start()

    def start(service: Any = None, alive_ms: float = 5_000, **options: Any) -> Port:
        writes, asked = Notebook(), []
        statements = service or make_statements(writes=writes)
        keep = KeepAlive(runtime=SystemRuntime(), spawn=spawn, alive_ms=alive_ms)
        made = partial(Recording, asked=asked, ready=lambda: statements, runtime=SystemRuntime(), keep=keep)
        server = FlightServer(
            "127.0.0.1:0", NoDoor(), SystemRuntime(), service=made, access=PUBLIC, spawn=spawn, **options
        )
        servers.append(server)

        def tick() -> None:
            while not stopped.wait(0.05):
                server.tick()

        spawn(tick)
        return Port(server, writes, asked)

    yield start
    stopped.set()
    for server in servers:
        assert server.shutdown(spawn, 8_000)


@pytest.fixture
def port(serve) -> Port:
    return serve()
