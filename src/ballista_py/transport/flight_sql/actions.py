"""What clients of Flight SQL ask by `do_action`: prepare, close, cancel, sessions; transactions are refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ballista_py.errors import SqlError, TransportError, Unsupported
from ballista_py.sql.parse.session_statements import read_verb
from ballista_py.transport.flight_sql.bindings import Bindings
from ballista_py.transport.flight_sql.messages import message, pack, read, unpack
from ballista_py.transport.flight_sql.service import Description, StatementService
from ballista_py.transport.flight_sql.statement import SqlStatement

ACTIONS = {
    "CreatePreparedStatement": "describe a statement; the handle is the statement itself",
    "ClosePreparedStatement": "nothing is kept for a prepared statement",
    "CreatePreparedSubstraitPlan": "refused: send SQL",
    "CancelFlightInfo": "stop the statement behind a flight info of this scheduler",
    "CancelQuery": "as CancelFlightInfo",
    "SetSessionOptions": "set `dialect`, the sqlglot name of the SQL that this session speaks",
    "GetSessionOptions": "the options of the session",
    "CloseSession": "forget the options of the session",
    "BeginTransaction": "refused: every statement commits by itself",
    "EndTransaction": "refused: every statement commits by itself",
    "BeginSavepoint": "refused: every statement commits by itself",
    "EndSavepoint": "refused: every statement commits by itself",
}
_CANCELLED = 1
_NONE = pa.schema([])
_TRANSACTIONS = ("BeginTransaction", "EndTransaction", "BeginSavepoint", "EndSavepoint")


def run_action(
    name: str, body: bytes, service: StatementService, dialect: str | None, bindings: Bindings, run_id: str
) -> list[bytes]:
    """The results of one of `ACTIONS` that is about a statement.

    `dialect` is that of the session, `run_id` a new id for a statement that is prepared.
    """
    if name in _TRANSACTIONS:
        raise Unsupported("there are no transactions here: every statement commits by itself")
    if name == "CreatePreparedSubstraitPlan":
        raise Unsupported("Substrait plans are not run here: send SQL")
    if name == "ClosePreparedStatement":
        closed = unpack(body)
        if closed.DESCRIPTOR.name == "ActionClosePreparedStatementRequest":
            bindings.forget(SqlStatement.from_handle(closed.prepared_statement_handle))
        return []
    return [pack(_prepared(unpack(body), service, dialect, run_id))]


def cancelled_tickets(name: str, body: bytes) -> list[bytes]:
    """The tickets of the flight info that is to be cancelled, or, of one without any, how it is asked for again.

    Raises `TransportError` for what is none.
    """
    request = read("CancelFlightInfoRequest", body) if name == "CancelFlightInfo" else unpack(body)
    if not hasattr(request, "info"):
        raise TransportError("the bytes are no flight info")
    info = read("FlightInfo", request.info)
    asked = [info.flight_descriptor.cmd] if not info.endpoint and info.flight_descriptor.cmd else []
    return asked or [endpoint.ticket.ticket for endpoint in info.endpoint]


def cancel_result(name: str) -> bytes:
    """The answer to a cancellation that has found its statement."""
    if name == "CancelFlightInfo":
        return bytes(message("CancelFlightInfoResult", status=_CANCELLED).SerializeToString())
    return pack(message("ActionCancelQueryResult", result=_CANCELLED))


def _prepared(request: Any, service: StatementService, dialect: str | None, run_id: str) -> Any:
    if request.DESCRIPTOR.name != "ActionCreatePreparedStatementRequest":
        raise TransportError("the bytes are no request for a prepared statement")
    if request.HasField("transaction_id"):
        raise Unsupported("there are no transactions here: every statement commits by itself")
    if not request.query.strip():
        raise SqlError("the statement is empty")
    statement = SqlStatement(query=request.query, dialect=dialect, run_id=run_id)
    is_of_session = read_verb(request.query) in ("SET", "RESET")
    found = Description(schema=None, parameters=_NONE) if is_of_session else service.describe(statement)
    return message(
        "ActionCreatePreparedStatementResult",
        prepared_statement_handle=statement.handle(),
        dataset_schema=b"" if found.schema is None else _schema_bytes(found.schema),
        parameter_schema=_schema_bytes(found.parameters),
    )


def _schema_bytes(schema: pa.Schema) -> bytes:
    return bytes(schema.serialize().to_pybytes())
