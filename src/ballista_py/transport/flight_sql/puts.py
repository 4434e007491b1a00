"""What clients of Flight SQL send by `do_put`: statements that change something, parameters, whole tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from ballista_py.errors import SqlError, TransportError, Unsupported
from ballista_py.partitions.loadable import why_not_loaded
from ballista_py.transport.arrow.door import FlightRows, batch_bytes
from ballista_py.transport.arrow.sizes import in_pieces
from ballista_py.transport.flight.calls import OpenCall
from ballista_py.transport.flight.commands import IngestMode
from ballista_py.transport.flight_sql.bindings import Bindings
from ballista_py.transport.flight_sql.columns import CATALOG, SCHEMA
from ballista_py.transport.flight_sql.messages import message
from ballista_py.transport.flight_sql.service import StatementService
from ballista_py.transport.flight_sql.sessions import Session
from ballista_py.transport.flight_sql.statement import MAX_HANDLE_BYTES, SqlStatement
from ballista_py.transport.flight_sql.union_parameters import combined, without_unions
from ballista_py.transport.statuses import LinkBroke

MAX_PARAMETER_BYTES = 64 << 20
PUTS = frozenset((
    "CommandStatementUpdate", "CommandPreparedStatementUpdate", "CommandPreparedStatementQuery",
    "CommandStatementIngest", "CommandStatementSubstraitPlan",
))  # fmt: skip

# What to do when the table is missing (1: create it) and when it exists (1: fail, 2: append, 3: replace).
_MODES: dict[tuple[bool, int], IngestMode] = {
    (True, 1): "create",
    (True, 2): "create_append",
    (True, 3): "replace",
    (False, 2): "append",
}


def put(
    command: Any,
    reader: Any,
    service: StatementService,
    call: OpenCall,
    session: Session,
    bindings: Bindings,
    update: Callable[[SqlStatement], int],
) -> bytes:
    """Do what `command` says with what `reader` brings; returns the message that is the answer.

    `update` runs a statement that gives no rows.
    """
    name, rows = command.DESCRIPTOR.name, FlightRows(reader, answers=False)
    if name == "CommandStatementSubstraitPlan":
        raise Unsupported("Substrait plans are not run here: send SQL")
    if name == "CommandPreparedStatementQuery":
        statement = SqlStatement.from_handle(command.prepared_statement_handle)
        statement = statement.bound(_parameters(rows, call, MAX_HANDLE_BYTES))
        handle = statement.handle()
        bindings.remember(statement)
        return _bytes(message("DoPutPreparedStatementResult", prepared_statement_handle=handle))
    if name == "CommandStatementIngest":
        changed = _ingest(command, rows, service, call, session.token)
    else:
        changed = update(_update(command, rows, call, session.options.get("dialect")))
    return _bytes(message("DoPutUpdateResult", record_count=changed))


def batches(rows: FlightRows, call: OpenCall) -> Iterator[pa.RecordBatch]:
    """What the client sends, until its end. A message without rows only says that the client is still there.

    Raises `TransportError` when the client went away.
    """
    while True:
        with call.receiving():
            try:
                batch = rows.read().rows
            except LinkBroke:
                raise TransportError("the client went away before it had sent everything") from None
            except StopIteration:
                return
        if batch is not None and batch.num_rows:
            yield batch


def _update(command: Any, rows: FlightRows, call: OpenCall, dialect: str | None) -> SqlStatement:
    if command.DESCRIPTOR.name == "CommandStatementUpdate":
        _refuse_transaction(command)
        return SqlStatement(query=command.query, dialect=dialect)
    statement = SqlStatement.from_handle(command.prepared_statement_handle)
    return statement.bound(_parameters(rows, call, MAX_PARAMETER_BYTES) or statement.parameters)


def _parameters(rows: FlightRows, call: OpenCall, max_bytes: int) -> pa.RecordBatch | None:
    """The rows of parameters, or None when the client sent no row."""
    found, size = [], 0
    for batch in batches(rows, call):
        size += batch_bytes(batch)
        if size > max_bytes:
            raise SqlError(
                f"the parameters have more than {max_bytes >> 20} MiB: ingest them into a table instead"
            )
        batch = without_unions(batch)
        _require_loadable(batch)
        found.append(batch)
    return combined(found) if found else None


def _require_loadable(batch: pa.RecordBatch) -> None:
    """Raise `SqlError` for a parameter that no engine can take."""
    for number, column in enumerate(batch.columns):
        reason = why_not_loaded(column)
        if reason is not None:
            raise SqlError(f"parameter {number + 1} has {reason}")


def _ingest(command: Any, rows: FlightRows, service: StatementService, call: OpenCall, token: str | None) -> int:
    _refuse_transaction(command)
    if command.temporary:
        raise Unsupported("there are no temporary tables here")
    for told, own in ((command.catalog, CATALOG), (command.schema, SCHEMA)):
        if told not in ("", own):
            raise SqlError(f"all tables are in {CATALOG}.{SCHEMA}: an ingest can name no other catalog or schema")
    options = command.table_definition_options
    mode = _MODES.get((options.if_not_exist == 1, options.if_exists))
    if mode is None:
        raise Unsupported("that combination of what to do with missing and with existing tables is not provided")
    pieces = (piece for batch in batches(rows, call) for piece in in_pieces(batch))
    found = pa.RecordBatchReader.from_batches(rows.schema, pieces)
    return service.ingest(command.table, found, mode, call.context, token)


def _refuse_transaction(command: Any) -> None:
    if command.HasField("transaction_id"):
        raise Unsupported("there are no transactions here: every statement commits by itself")


def _bytes(result: Any) -> bytes:
    return bytes(result.SerializeToString())
