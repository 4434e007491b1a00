"""The search for a Server that gives the rows of a partition, from the side of a Client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from attrs import define, field

from ballista_py.agents.agent import Agent
from ballista_py.agents.done_here import done_here
from ballista_py.agents.section_reader import rows_of_pieces
from ballista_py.errors import (
    BallistaError,
    InvalidData,
    MissingExtra,
    NotOwner,
    TransportError,
    TryLater,
)
from ballista_py.partitions.columns import conformed
from ballista_py.runtime import Runtime
from ballista_py.transport.flight.client import FlightPool
from ballista_py.transport.flight.errors import is_link_failure
from ballista_py.transport.table_read.messages import pb
from ballista_py.transport.table_read.partition_reader import PartExchange
from ballista_py.transport.table_read.pieces import ARROW, PARQUET, VORTEX
from ballista_py.transport.table_read.tokens.positions import START, Position

if TYPE_CHECKING:
    from ballista_py.agents.read_job import ReadPartition

PATIENCE_MS = 60_000.0
LOOK_AGAIN_MS = 100.0
HALF_BUSY, QUARTER_BUSY = 50, 25  # percent
_HERE = ("127.", "localhost:", "[::1]:")

Chunks = Iterator[tuple[Position, pa.RecordBatch]]


@define
class PartitionSearch:
    """Asks one location after the other, and a scheduler where the partition is by now, for `PATIENCE_MS`."""

    partition: ReadPartition
    runtime: Runtime
    _locations: tuple[str, ...] = field(init=False)
    _ticket: bytes = field(init=False)
    _error: BallistaError | None = field(init=False, default=None)
    _is_refused: bool = field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        self._locations, self._ticket = self.partition.locations, self.partition.ticket

    def processed(self) -> Iterator[pa.RecordBatch]:
        """The rows as Servers process them; see `ReadPartition.batches`."""
        needs_nothing = self.partition.passes_rows and any(name != ARROW for name in self._encodings())
        return self._passed() if needs_nothing else self._processed()

    def _encodings(self) -> Sequence[str]:
        """The forms that are asked for. From the same machine rows as they are take less time than files do."""
        named = self.partition.encodings
        if named is not None:
            return named
        is_here = all(uri.partition("://")[2].startswith(_HERE) for uri in self._locations)
        return () if is_here else (PARQUET, *((VORTEX,) if find_spec("vortex") else ()), ARROW)

    def _passed(self) -> Iterator[pa.RecordBatch]:
        return (_of_schema(batch, self.partition.schema) for batch in self.unprocessed())

    def _processed(self) -> Iterator[pa.RecordBatch]:
        until_ms = self.runtime.monotonic_ms() + PATIENCE_MS
        with self.partition._source.pool(self.runtime, of_nodes=True) as pool:
            while not (self._is_refused and _has_engine()):
                for uri in self._locations:
                    exchange = self._accepted(pool, uri, pb.Request(ticket=self._ticket, process=True))
                    begun = None if exchange is None else self._begun(exchange, uri)
                    if begun is not None:
                        yield from (_of_schema(batch, self.partition.schema) for _, batch in begun)
                        return
                if self._is_refused and self.partition.never_processed and not _has_engine():
                    raise MissingExtra.of("duckdb", "node")  # Servers never do it, and here is nobody who can
                if not (self._is_refused and _has_engine()):
                    self._look_again(until_ms)
        yield from self.processed_here()

    def processed_here(self) -> Iterator[pa.RecordBatch]:
        """The rows, of which Servers give the columns alone. Raises `MissingExtra` where DuckDB is missing."""
        wanted = self.partition
        if wanted.passes_rows:
            yield from self._passed()
            return
        matching = (batch for _, batch in self.placed(only_matching=True))
        rows = pa.RecordBatchReader.from_batches(wanted.base_schema, matching)
        yield from conformed(iter(done_here(wanted.plan, wanted.relation, rows).to_batches()), wanted.schema)

    def unprocessed(self) -> Iterator[pa.RecordBatch]:
        """The columns that the plan needs, of all rows, in the order of the files, from however many Servers."""
        return (batch for _, batch in self.placed())

    def placed(self, *, only_matching: bool = False) -> Chunks:
        """The same, each batch with where it begins; `only_matching`: rows that count for nothing in the plan may be
        missing."""
        at, until_ms = START, self.runtime.monotonic_ms() + PATIENCE_MS
        with self.partition._source.pool(self.runtime, of_nodes=True) as pool:
            while True:
                for uri in self._locations:
                    begin = pb.Position(section=at.section, row=at.row)
                    asked = pb.Request(
                        ticket=self._ticket,
                        begin=begin,
                        encodings=self._encodings(),
                        only_matching=only_matching,
                    )
                    exchange = self._accepted(pool, uri, asked)
                    if exchange is None:
                        continue
                    try:
                        for begins, batch in self._rows_of(exchange, at, only_matching):
                            at = _next(at, begins, batch.num_rows, may_skip=only_matching)
                            until_ms = self.runtime.monotonic_ms() + PATIENCE_MS
                            yield begins, _of_schema(batch, self.partition.base_schema)
                        return
                    except BallistaError as error:
                        self._pass_over(error, uri)
                self._look_again(until_ms)

    def _rows_of(self, exchange: PartExchange, begin: Position, only_matching: bool) -> Chunks:
        if not exchange.reply.accepted.encoded:
            return exchange.chunks()
        return rows_of_pieces(exchange.chunks(), self.partition.base_schema, begin, may_skip=only_matching)

    def _accepted(self, pool: FlightPool, uri: str, request: Any) -> PartExchange | None:
        """The exchange with a Server that accepts; None for one that does not."""
        try:
            exchange = PartExchange(pool, uri, request)
        except BallistaError as error:
            self._pass_over(error, uri)
            return None
        status = exchange.reply.WhichOneof("status")
        if status == "accepted":
            return exchange
        exchange.cancel()
        self._is_refused |= status == "refused"
        if status == "rejected":
            self._error = NotOwner(exchange.reply.rejected.reason)
        else:
            self._error = TryLater(f"node {exchange.address} has too much to do")
        return None

    def _begun(self, exchange: PartExchange, uri: str) -> Chunks | None:
        """The chunks, once the first one came; None where the Server went before it gave any."""
        chunks = exchange.chunks()
        try:
            first = list(islice(chunks, 1))
        except BallistaError as error:
            self._pass_over(error, uri)
            return None
        return chain(first, chunks)

    def _pass_over(self, error: BallistaError, uri: str) -> None:
        """Note why a Server is not asked on. Raises the error if another Server would say the same."""
        is_link = isinstance(error, TransportError) and is_link_failure(error, uri.partition("://")[2])
        if not is_link and not isinstance(error, TryLater | NotOwner):
            raise error
        self._error = error

    def _look_again(self, until_ms: float) -> None:
        """Ask a scheduler where the partition is by now, after a moment. Raises `TryLater` when the time is over."""
        if self.runtime.monotonic_ms() > until_ms:
            why = self._error or "nobody has it"
            raise TryLater(f"nobody gives partition {self.partition.number} of the read job: {why}")
        self.runtime.sleep_ms(LOOK_AGAIN_MS)
        agent = Agent(self.partition._source, self.runtime)
        try:
            asked = pb.Locate(read_id=self.partition.read_id, partitions=[self.partition.number])
            (found,) = agent.ask("Locate", asked, "Located").partitions
        except ValueError:
            raise InvalidData("a scheduler did not say where the partition of the read job is served") from None
        finally:
            agent.close()
        self._locations = tuple(location.uri for location, _ in preferred(found.locations))
        self._ticket = found.ticket


def preferred(locations: Iterable[Any]) -> list[tuple[Any, int]]:
    """Locations as they are to be asked, each with its rank; of one rank each is as good as another.

    A Server that was half busy ranks with those of the next priority, and a full one behind these.

    >>> hints = pb.ServingHints(load=60), pb.ServingHints(priority=1, load=10), pb.ServingHints(load=100)
    >>> [(one.hints.load, rank) for one, rank in preferred(pb.Location(hints=one) for one in hints)]
    [(10, 1), (60, 1), (100, 2)]
    """
    ranked = [(one, one.hints.priority + one.hints.load // HALF_BUSY) for one in locations]
    return sorted(ranked, key=lambda one: (one[1], one[0].hints.load // QUARTER_BUSY))


def _next(at: Position, begins: Position, rows: int, *, may_skip: bool = False) -> Position:
    """Where rows go on. Raises `InvalidData` for a chunk that does not begin where the one before has ended, or behind
    that if it `may_skip` rows.

    >>> _next(Position(0, 4), Position(0, 4), 3), _next(Position(0, 4), Position(1, 0), 3)
    (Position(section=0, row=7), Position(section=1, row=3))
    """
    is_next = begins == at or (begins.section > at.section and not begins.row)
    if not is_next and not (may_skip and begins > at):
        raise InvalidData("a node gave rows from another place than they were asked for: read again")
    return Position(begins.section, begins.row + rows)


def _of_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows under the names of the schema. Raises `InvalidData` where a node gave other columns."""
    if batch.schema.types != schema.types:
        raise InvalidData("a node gave other columns than the read job has")
    return pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def _has_engine() -> bool:
    return find_spec("duckdb") is not None
