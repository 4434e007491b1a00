"""What an executor answers at its data ports: legs for schedulers and holders of tickets, writes for schedulers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from attrs import define

from ballista_py.coordinator.queries.answer_columns import conformed, output_schema
from ballista_py.engines.engine import Engine
from ballista_py.errors import SqlError, TryLater
from ballista_py.node.executor.partitions import ExecutorPartitions
from ballista_py.node.status.tasks import Tasks
from ballista_py.sql.plan import leg_from_json
from ballista_py.sql.rewrite import Rewrite
from ballista_py.storage.decided_files import decided_files
from ballista_py.storage.held.altered_under import altered_under, rows_unless_altered
from ballista_py.transport.arrow.door import read_rows
from ballista_py.transport.flight.calls import CallContext
from ballista_py.transport.flight.commands import (
    BASE,
    LEG,
    PARTITION_COLUMN,
    RELOAD,
    REWRITE,
    SETTLE,
    WRITE,
    WriteTarget,
)
from ballista_py.transport.flight.server import StreamResult
from ballista_py.transport.flight.shapes import check_command
from ballista_py.transport.flight.writes import IncomingRows
from ballista_py.turns import Turns

# More at once take memory and are no faster.
LEGS_OF_CLIENT = max(4, 2 * (os.cpu_count() or 1))
LEGS_IN_ALL = 4 * LEGS_OF_CLIENT
LONGEST_MS = 10_000.0
WAIT_MS = 30_000.0


@define
class ExecutorAnswers:
    """A `DataHandler` for the executor `node_id`. It is there a moment before its `partitions`."""

    verbs = tuple(f"DoExchange {kind}" for kind in (LEG, BASE, WRITE, REWRITE, SETTLE, RELOAD))

    node_id: str
    engine: Engine
    tasks: Tasks
    partitions: ExecutorPartitions | None = None
    turns: Turns | None = None  # of legs

    def stream(self, command: Mapping[str, Any], context: CallContext) -> StreamResult:
        """Run a leg (`commands.leg_command`) over exactly the partitions that it names."""
        check_command(command)
        if command.get("kind") == BASE:
            return self._base(command)
        if command.get("kind") != LEG:
            raise SqlError("an executor runs legs; send statements to a scheduler")
        leg = leg_from_json(command["leg"])
        partitions = self._ready()

        def look() -> None:
            partitions.replica_reads.require_owner(leg)
            partitions.writes.catch_up(leg)
            partitions.replica_reads.freshen(leg)
            partitions.runs.catch_up(leg)
            partitions.holder.check_decisions(leg)

        files = decided_files(partitions.holder, leg, look)
        for table in leg.tables if "incarnations" in command else ():
            partitions.holder.owned(table, command["incarnations"][table.table])
        output = output_schema(command)
        task = self.tasks.begin("leg", leg.sql, str(command.get("task") or ""))
        try:
            sent = {name: read_rows(data, compressed=True) for name, data in leg.relations.items()}
            with altered_under(partitions.holder, leg.tables):
                running = self.engine.query(leg.sql, scans=files, streams=sent)
            try:  # what it is bound to may have been altered since the files were told
                for table in leg.tables:
                    partitions.holder.require_definition(table, exact=True)
            except BaseException:
                running.cancel()
                raise
        except BaseException as error:
            task.failed(error)
            raise
        task.attach(running.cancel)
        begun = self._begun_in_turn(str(command.get("lane") or ""), running.batches())
        rows = rows_unless_altered(partitions.holder, leg.tables, begun)
        batches = rows if output is None else conformed(rows, output)
        return StreamResult(schema=output or running.schema, batches=task.follow(batches), cancel=task.cancelled)

    def write(self, command: Mapping[str, Any], rows: IncomingRows, context: CallContext) -> Mapping[str, Any]:
        """Do what a scheduler asks for a statement: take rows in, rewrite, settle, reload."""
        check_command(command)
        kind = command.get("kind")
        if kind == WRITE:
            target = WriteTarget.from_json(command["target"])
            return self._ready().writes.write(target, rows, lambda: rows.token)
        rows.drain()
        if kind == REWRITE:
            rewrite = Rewrite(**command["rewrite"])
            return self._ready().writes.rewrite(WriteTarget.from_json(command["target"]), rewrite)
        if kind == SETTLE:
            return self._ready().writes.settle(WriteTarget.from_json(command["target"]), command["sequence"])
        if kind == RELOAD:
            self._ready().holder.reload(command["table"], command["partitions"])
            return {}
        raise SqlError("an executor takes writes from schedulers; send statements and rows to one")

    def action(self, name: str, body: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        """An executor answers no questions; `/status` shows what it holds."""
        raise SqlError(f"an executor has no action '{name}'")

    def _base(self, command: Mapping[str, Any]) -> StreamResult:
        target = WriteTarget.from_json(command["target"])
        trailer, rows, columns = self._ready().writes.base(target, command["where"], command["alias"])
        schema = columns.append(pa.field(PARTITION_COLUMN, pa.int32()))
        batches = (pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in rows())
        return StreamResult(schema=schema, batches=batches, trailer=lambda: trailer)

    def _begun_in_turn(self, lane: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches; what there is to compute before the first one waits for its turn among the legs of a client."""
        if self.turns is None:
            yield from batches
            return
        with self.turns.turn(lane, LEGS_OF_CLIENT, WAIT_MS) as turn:
            first = next(batches, None)
            self.turns.begun(turn)
            if first is not None:
                yield first
                del first
                yield from batches

    def _ready(self) -> ExecutorPartitions:
        if self.partitions is None:
            raise TryLater(f"executor '{self.node_id}' is starting")
        return self.partitions
