"""What an executor answers at its data ports: legs for schedulers and holders of tickets, writes for schedulers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa
from attrs import define

from ballista_py.coordinator.queries.answer_columns import output_schema
from ballista_py.engines.engine import Engine, RunningQuery
from ballista_py.engines.scan_streams import ScanStreams
from ballista_py.errors import SqlError, TryLater
from ballista_py.node.executor.partitions import ExecutorPartitions
from ballista_py.node.status.tasks import Task, Tasks
from ballista_py.partitions.columns import conformed
from ballista_py.sql.plan import Leg, leg_from_json
from ballista_py.sql.rewrite import Rewrite
from ballista_py.storage.decisions_check import Waiting, decided_files
from ballista_py.storage.held.files import altered_under, rows_unless_altered
from ballista_py.storage.writes.staged import files_from_json
from ballista_py.traces import within
from ballista_py.transport.arrow.door import read_rows
from ballista_py.transport.flight.calls import CallContext
from ballista_py.transport.flight.commands import (
    ADOPT,
    APPLY,
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

    verbs = tuple(f"DoExchange {kind}" for kind in (LEG, BASE, WRITE, APPLY, ADOPT, REWRITE, SETTLE, RELOAD))

    node_id: str
    engine: Engine
    tasks: Tasks
    engine_name: str = ""
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

        def look() -> frozenset[Waiting]:
            partitions.replica_reads.require_owner(leg)
            counts = partitions.writes.catch_up(leg)
            partitions.replica_reads.freshen(leg)
            partitions.runs.catch_up(leg)
            partitions.holder.check_decisions(leg)
            return counts

        files = decided_files(partitions.holder, leg, look)
        for table in leg.tables if "incarnations" in command else ():
            partitions.holder.owned(table, command["incarnations"][table.table])
        output = output_schema(command)
        task = self.tasks.begin("leg", leg.sql, str(command.get("task") or ""), engine=self.engine_name)
        try:
            with within(task.span):
                running = self._running(leg, files, partitions)
        except BaseException as error:
            task.failed(error)
            raise
        task.attach(running.cancel)
        begun = self._begun_in_turn(str(command.get("lane") or ""), running.batches())
        rows = rows_unless_altered(partitions.holder, leg.tables, begun)
        batches = rows if output is None else conformed(rows, output)
        return StreamResult(schema=output or running.schema, batches=task.follow(batches), cancel=task.cancelled)

    def _running(
        self, leg: Leg, files: Mapping[str, Sequence[int]], partitions: ExecutorPartitions
    ) -> RunningQuery:
        """The query of the leg, over the files that hold its partitions."""
        sent: dict[str, Any] = {name: read_rows(data, compressed=True) for name, data in leg.relations.items()}
        if leg.scans:
            sent |= ScanStreams(leg.scans).readers()
        with altered_under(partitions.holder, leg.tables):
            running = self.engine.query(leg.sql, scans=files, streams=sent)
        try:  # what it is bound to may have been altered since the files were told
            for table in leg.tables:
                partitions.holder.require_definition(table, exact=True)
        except BaseException:
            running.cancel()
            raise
        return running

    def write(self, command: Mapping[str, Any], rows: IncomingRows, context: CallContext) -> Mapping[str, Any]:
        """Do what a scheduler asks for a statement: take rows in, rewrite, settle, reload."""
        check_command(command)
        kind = command.get("kind")
        if kind in (WRITE, APPLY):
            target = WriteTarget.from_json(command["target"])
            with self._observed(kind, target) as task:
                writes = self._ready().writes
                take = writes.write if kind == WRITE else writes.apply
                said = take(target, rows, lambda: rows.token)
                task.rows = _affected(said)
            return said
        rows.drain()
        if kind == ADOPT:
            target = WriteTarget.from_json(command["target"])
            files = {int(partition): files_from_json(own) for partition, own in command["files"].items()}
            with self._observed(ADOPT, target) as task:
                said = self._ready().writes.adopt(target, files)
                task.rows = _affected(said)
            return said
        if kind == REWRITE:
            rewrite = Rewrite(**command["rewrite"])
            target = WriteTarget.from_json(command["target"])
            with self._observed(REWRITE, target, rewrite.rows or "") as task:
                said = self._ready().writes.rewrite(target, rewrite)
                task.rows = _affected(said)
            return said
        if kind == SETTLE:
            return self._ready().writes.settle(WriteTarget.from_json(command["target"]), command["sequence"])
        if kind == RELOAD:
            self._ready().holder.reload(command["table"], command["partitions"])
            return {}
        raise SqlError("an executor takes writes from schedulers; send statements and rows to one")

    def action(self, name: str, body: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        """An executor answers no questions; `/status` shows what it holds."""
        raise SqlError(f"an executor has no action '{name}'")

    def _observed(self, kind: str, target: WriteTarget, text: str = "") -> AbstractContextManager[Task]:
        """Around a write of an owner: a task that ends with the block."""
        text = text or f"{kind} {target.table.table} {list(target.table.partitions)}"
        return self.tasks.begin(kind, text, engine=self.engine_name).whole()

    def _base(self, command: Mapping[str, Any]) -> StreamResult:
        target = WriteTarget.from_json(command["target"])
        text = f"read {target.table.table} {list(target.table.partitions)}"
        task = self.tasks.begin(BASE, text, engine=self.engine_name)
        try:
            with within(task.span):
                trailer, rows, columns = self._ready().writes.base(target, command["where"], command["alias"])
        except BaseException as error:
            task.failed(error)
            raise
        schema = columns.append(pa.field(PARTITION_COLUMN, pa.int32()))
        batches = (pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in rows())
        return StreamResult(
            schema=schema, batches=task.follow(batches), trailer=lambda: trailer, cancel=task.cancelled
        )

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


def _affected(said: Mapping[str, Any]) -> int:
    """How many rows a write affected, of what it said by partition."""
    return sum(int(outcome.get("affected", 0)) for outcome in said.values())
