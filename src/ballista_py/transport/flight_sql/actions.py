"""What clients of Flight SQL ask by `do_action`: prepare, close, cancel, sessions; transactions are refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ballista_py.errors import SqlError
from ballista_py.transport.flight_sql.messages import message, pack, unpack
from ballista_py.transport.flight_sql.service import StatementService
from ballista_py.transport.flight_sql.statement import SqlStatement
from ballista_py.transport.flight_sql.status import Unsupported

ACTIONS = {
    "CreatePreparedStatement": "describe a statement; the handle is the statement itself",
    "ClosePreparedStatement": "nothing is kept for a prepared statement",
    "CreatePreparedSubstraitPlan": "refused: send SQL",
    "BeginTransaction": "refused: every statement commits by itself",
    "EndTransaction": "refused: every statement commits by itself",
    "BeginSavepoint": "refused: every statement commits by itself",
    "EndSavepoint": "refused: every statement commits by itself",
}
_TRANSACTIONS = ("BeginTransaction", "EndTransaction", "BeginSavepoint", "EndSavepoint")


def run_action(name: str, body: bytes, service: StatementService) -> list[bytes]:
    """The results of one of `ACTIONS`."""
    if name in _TRANSACTIONS:
        raise Unsupported("there are no transactions here: every statement commits by itself")
    if name == "CreatePreparedSubstraitPlan":
        raise Unsupported("Substrait plans are not run here: send SQL")
    if name == "ClosePreparedStatement":
        return []
    return [pack(_prepared(unpack(body), service))]


def _prepared(request: Any, service: StatementService) -> Any:
    if request.HasField("transaction_id"):
        raise Unsupported("there are no transactions here: every statement commits by itself")
    if not request.query.strip():
        raise SqlError("the statement is empty")
    statement = SqlStatement(query=request.query)
    found = service.describe(statement)
    return message(
        "ActionCreatePreparedStatementResult",
        prepared_statement_handle=statement.handle(),
        dataset_schema=b"" if found.schema is None else _schema_bytes(found.schema),
        parameter_schema=_schema_bytes(found.parameters),
    )


def _schema_bytes(schema: pa.Schema) -> bytes:
    return bytes(schema.serialize().to_pybytes())
