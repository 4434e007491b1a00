"""What a scheduler answers at its port for clients: statements, rows, questions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from attrs import define, frozen

from ballista_py.coordinator.policies.gate import Gate
from ballista_py.coordinator.queries.descriptions import Descriptions
from ballista_py.coordinator.queries.flight_sql import FlightSqlStatements, returned_rows
from ballista_py.coordinator.queries.on_spark import SparkQueries
from ballista_py.coordinator.queries.running_statement import given_out
from ballista_py.coordinator.queries.service import QueryService
from ballista_py.coordinator.reads.answers import ReadAnswers
from ballista_py.coordinator.writes.metrics_table import MetricsTable
from ballista_py.coordinator.writes.service import WriteService
from ballista_py.coordinator.writes.write_answers import WriteAnswers
from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.errors import SqlError, TryLater
from ballista_py.figures import UNSEEN, Figures
from ballista_py.node.http.sql_request import PostedStatement
from ballista_py.node.scheduler.core import SchedulerCore
from ballista_py.node.scheduler.jobs import SchedulerJobs
from ballista_py.node.scheduler.refreshing import SchedulerRefreshes
from ballista_py.node.status.tasks import Tasks
from ballista_py.partitions.new_table import NewTable
from ballista_py.partitions.table import folded
from ballista_py.sql.own_words import run_for
from ballista_py.sql.parse.kind import StatementKind, engine_sql, refusal, statement_kind
from ballista_py.sql.parse.returning import returns_rows
from ballista_py.sql.parse.session_statements import executed
from ballista_py.transport.flight.calls import CallContext
from ballista_py.transport.flight.commands import (
    CANCEL,
    CREATE_TABLE,
    EXECUTE,
    EXPLAIN,
    INGEST,
    JOB_ACTIONS,
    JOB_ROWS,
    MEMBERS,
    RECONCILE_ALL,
    REFRESH,
    SQL,
    TABLES,
    TASKS,
)
from ballista_py.transport.flight.server import StreamResult
from ballista_py.transport.flight.shapes import check_command, check_question
from ballista_py.transport.flight.writes import IncomingRows
from ballista_py.transport.flight_sql.statement import SqlStatement, one_row


@frozen(kw_only=True)
class Services:
    """What answers statements, once the scheduler has joined."""

    core: SchedulerCore
    engine: DuckDBEngine
    queries: QueryService
    spark: SparkQueries
    writes: WriteService
    statements: FlightSqlStatements
    jobs: SchedulerJobs
    reads: ReadAnswers
    puts: WriteAnswers
    gate: Gate
    figures: Figures = UNSEEN
    metrics: MetricsTable | None = None
    refreshes: SchedulerRefreshes | None = None

    def refresh(self, table: str, mode: str | None) -> dict[str, int]:
        """Tell executors to compare what they hold, and with a mode have the table brought up to its source."""
        self.gate.require("change", folded(table))
        asked = 0 if mode is None or self.refreshes is None else self.refreshes.ask(table, mode)
        return {"executors": self.core.refresh_dataset(table), "asked": asked}


@define(kw_only=True)
class SchedulerAnswers:
    """A `DataHandler` for the scheduler `node_id`. Before its `services` are there it answers `TryLater`."""

    verbs = (
        *(f"DoExchange {kind}" for kind in (SQL, EXECUTE, INGEST, CREATE_TABLE, JOB_ROWS)),
        *(
            f"DoAction {name}"
            for name in (EXPLAIN, TABLES, MEMBERS, RECONCILE_ALL, REFRESH, TASKS, CANCEL, *JOB_ACTIONS)
        ),
    )

    node_id: str
    cluster_id: str
    tasks: Tasks
    shown_tasks: Callable[[str | None], list[dict[str, Any]]]
    services: Services | None = None

    def ready(self) -> Services:
        """What answers statements. Raises `TryLater` while the scheduler starts."""
        if self.services is None:
            raise TryLater(f"scheduler '{self.node_id}' is starting")
        return self.services

    def metrics_table(self) -> MetricsTable:
        """Where exports of metrics go. Raises `TryLater` while the scheduler starts."""
        found = self.ready().metrics
        assert found is not None
        return found

    def stream(self, command: Mapping[str, Any], context: CallContext) -> StreamResult:
        """Answer a client's statement (`commands.sql_command`)."""
        check_command(command)
        services = self.ready()
        if command.get("kind") == JOB_ROWS:
            return services.jobs.rows(command)
        return given_out(self._stream(services, command, context), services.figures, services.queries.runtime)

    def _stream(self, services: Services, command: Mapping[str, Any], context: CallContext) -> StreamResult:
        text, kind, is_returned = _read(command, services)
        with run_for(command["query"], text):
            if is_returned:
                return returned_rows(services.writes.run(text, **_sent(command)))
            if kind in ("explain", "describe"):
                return _described(services, text, command.get("engine"))
            return self._answered(services, text, kind, command.get("engine"), context)

    def run(self, posted: PostedStatement, context: CallContext) -> StreamResult:
        """Answer a statement of any kind in rows: those of a change that returns none say how many it has changed."""
        services = self.ready()
        return given_out(self._run(services, posted, context), services.figures, services.queries.runtime)

    def _run(self, services: Services, posted: PostedStatement, context: CallContext) -> StreamResult:
        text = services.statements.text_of(posted.statement)
        change: dict[str, Any] = {"token": posted.token, "atomic": posted.atomic}
        with run_for(posted.statement.query, text):
            kind = statement_kind(text)
            if kind != "change" and (posted.atomic or posted.token is not None):
                raise SqlError("token and atomic are for statements that change something")
            if returns_rows(text):
                return returned_rows(services.writes.run(text, **change))
            if kind == "change":
                affected = services.writes.execute(text, **change)
                return _one_row({"affected": affected})
            if kind in ("explain", "describe"):
                return _described(services, text, posted.engine)
            return self._answered(services, text, kind, posted.engine, context)

    def write(self, command: Mapping[str, Any], rows: IncomingRows, context: CallContext) -> Mapping[str, Any]:
        """Carry out a write (`commands.execute_command`, `ingest_command`, `create_table_command`)."""
        check_command(command)
        if command.get("kind") == EXECUTE:
            rows.drain()
            services = self.ready()
            text = _statement(command, services)
            with run_for(command["query"], text):
                return {"affected": services.writes.execute(text, **_sent(command))}
        if command.get("kind") == CREATE_TABLE:
            rows.drain()
            self.ready().writes.create(NewTable.from_json(command), rows.schema, **_sent(command))
            return {}
        if command.get("kind") != INGEST:
            raise SqlError("a scheduler takes rows for tables, not for partitions")
        affected = self.ready().writes.ingest(
            command["table"],
            rows,
            mode=command["mode"],
            schema=rows.schema,
            **_sent(command),
        )
        return {"affected": affected}

    def action(self, name: str, body: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        """Answer a client's question; see `commands`."""
        check_question(name, body)
        services = self.ready()
        if name == EXPLAIN:
            text = _statement(body, services)
            with run_for(body["query"], text):
                if statement_kind(text) != "query":
                    raise refusal(text)
                return services.spark.explain(text, body.get("engine"), bool(body.get("analyze")))
        if name == MEMBERS:
            return {"rows": services.core.members(), "cluster": self.cluster_id}
        if name == TABLES:
            return {"rows": services.core.listed()}
        if name == RECONCILE_ALL:
            services.gate.require_operator("to have all partitions moved")
            return {"moves": services.core.reconcile_all()}
        if name == REFRESH:
            return services.refresh(body["table"], body.get("mode"))
        if name == TASKS:
            return {"rows": self.shown_tasks(context.work.client)}
        if name == CANCEL:
            return {"cancelled": self.tasks.cancel_of(context.work.client, body["task"])}
        return services.jobs.action(name, body)

    def give_up(self, task_id: str) -> None:
        """The streams of these legs are cancelled; say it another way, too, for those whose link is stuck."""
        if self.services is not None:
            self.services.core.cancel_tasks([task_id])

    def _answered(
        self, services: Services, text: str, kind: StatementKind, engine: object, context: CallContext
    ) -> StreamResult:
        if kind != "query":
            raise refusal(text)
        spark = services.spark
        if spark.takes(text, engine):
            query = spark.open(text)
            task = self.tasks.begin("spark", text, cancel=query.cancel, engine="spark")
            batches = task.follow(query.batches(), lambda: query.cancelled)
            return StreamResult(schema=query.schema, batches=batches, trailer=query.stats, cancel=task.cancelled)
        statement = services.queries.run(text, context.cancelled)
        batches = statement.batches()
        return StreamResult(
            schema=statement.schema,
            batches=spark.with_both_reasons(text, batches) if engine == "auto" else batches,
            trailer=statement.stats,
            cancel=statement.cancel,
        )


def _described(services: Services, text: str, engine: object) -> StreamResult:
    def explain(query: str, analyze: bool) -> Mapping[str, Any]:
        return services.spark.explain(query, engine, analyze)

    table = Descriptions(services.queries, services.engine).answer(text, explain)
    return StreamResult(schema=table.schema, batches=table.to_batches())


def _one_row(values: Mapping[str, int]) -> StreamResult:
    batch = pa.RecordBatch.from_pylist([dict(values)])
    return StreamResult(schema=batch.schema, batches=[batch])


def _statement(command: Mapping[str, Any], services: Services) -> str:
    """The statement of `commands.sql_command`, in the engine's dialect, with the values that were given beside it."""
    return _read(command, services)[0]


def _read(command: Mapping[str, Any], services: Services) -> tuple[str, StatementKind, bool]:
    """As `_statement`, with its kind, and whether it is a change that returns rows."""
    query, dialect, row = _query(command), _dialect(command), one_row(command.get("parameters") or "")
    if row is not None:
        text = services.statements.text_of(SqlStatement(query=query, dialect=dialect, parameters=row))
        return text, statement_kind(text), returns_rows(text)
    if command.get("values"):
        query = executed(query, command["values"])
    with services.queries.reading(query, dialect=dialect):
        text = engine_sql(query) if dialect is None else services.queries.engine_sql(query, dialect)
        return text, statement_kind(text), returns_rows(text)


def _dialect(command: Mapping[str, Any]) -> str | None:
    dialect = command.get("dialect")
    return dialect if isinstance(dialect, str) else None


def _sent(command: Mapping[str, Any]) -> dict[str, Any]:
    """How a change was sent: under which token, and whether it was sent before, if its client says so."""
    flags = {flag: bool(command.get(flag)) for flag in ("made", "atomic")}
    return {"token": command.get("token"), "again": command.get("again"), **flags}


def _query(command: Mapping[str, Any]) -> str:
    query = command.get("query")
    if not isinstance(query, str) or not query.strip():
        raise SqlError("the statement is empty")
    return query
