"""Statements of Flight SQL clients: bound, described, split into parts, run by the query service."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from hashlib import sha256
from itertools import chain, islice
from typing import Any, Protocol

import pyarrow as pa
from attrs import asdict, define, evolve

from ballista_py.coordinator.cluster_view import ClusterView, words_of
from ballista_py.coordinator.queries.descriptions import Descriptions
from ballista_py.coordinator.queries.running_statement import RunningStatement, given_out
from ballista_py.coordinator.queries.service import QueryService
from ballista_py.coordinator.writes.whole_writes import Executed
from ballista_py.engines.engine import Engine
from ballista_py.errors import BallistaError, SqlError, Unsupported
from ballista_py.figures import UNSEEN, Figures
from ballista_py.partitions.columns import plain
from ballista_py.partitions.sql_view import VIEW_MARK, VIEW_TYPE
from ballista_py.sql.own_words import own_places, run_for
from ballista_py.sql.parse.changes import is_alteration, read_change, text_for_engine
from ballista_py.sql.parse.descriptions import CatalogQuery, DescribeQuery, Explain, read_description
from ballista_py.sql.parse.given_values import columns_of
from ballista_py.sql.parse.kind import StatementKind, engine_sql, is_of_view, refusal, statement_kind
from ballista_py.sql.parse.parameter_columns import with_named_columns
from ballista_py.sql.parse.parameter_types import parameter_schema
from ballista_py.sql.parse.parameters import bound, names_of, places_of, with_nulls
from ballista_py.sql.parse.pivots import any_values
from ballista_py.sql.parse.returning import returns_rows
from ballista_py.sql.parse.value_rows import row_template
from ballista_py.sql.parts import Portion, is_divisible, portion_of
from ballista_py.sql.plan import Leg
from ballista_py.transport.flight.calls import CallContext
from ballista_py.transport.flight.commands import IngestMode, as_part, leg_command
from ballista_py.transport.flight.server import StreamResult
from ballista_py.transport.flight.shapes import check_answer, check_job_part, check_part
from ballista_py.transport.flight_sql.metadata import TableInfo
from ballista_py.transport.flight_sql.service import AnswerPart, Description, PolledJobs
from ballista_py.transport.flight_sql.statement import SqlStatement
from ballista_py.work import require_wanted

MAX_QUERY_EXECUTIONS = 10_000
MAX_TOKEN_CHARS = 1_024
ANSWER_ROWS = 16_384


class Writes(Protocol):
    """What changes tables."""

    def run(self, statement: str, *, token: str | None = None, made: bool = False) -> Executed: ...
    def returns(self, statement: str) -> pa.Schema: ...
    def answer(self, folder: str, attempt: str) -> pa.Table: ...
    def execute(self, statement: str, *, token: str | None = None, made: bool = False) -> int: ...
    def ingest(
        self, table: str, reader: pa.RecordBatchReader, *, mode: IngestMode = "append", token: str | None = None
    ) -> int: ...


class Tickets(Protocol):
    """What lets a client have a leg of an executor."""

    def location(self, said: str | None, data_address: str) -> str | None:
        """Where clients are sent to the executor that said it; None: nowhere."""
        ...

    def issue(self, executor_id: str, command: Mapping[str, Any], digest: str) -> Mapping[str, Any]: ...


@define
class FlightSqlStatements:
    """A `StatementService` over the query service. Thread-safe.

    `writes` runs what gives no rows; None refuses it. `jobs` runs what is polled for. `tickets` lets clients fetch
    parts from executors that offer that; None: they do not.
    """

    queries: QueryService
    engine: Engine
    writes: Writes | None
    tickets: Tickets | None
    jobs: PolledJobs | None = None
    figures: Figures = UNSEEN

    def describe(self, statement: SqlStatement) -> Description:
        """See `StatementService.describe`."""
        with self._reading(statement):
            text = self._text(statement)
            with own_places(statement.query, text):
                kind = self._kind(text)
                asked = _asked_query(text) if kind in ("explain", "describe") else text
                parameters = self._parameter_schema(asked)
        with own_places(statement.query, text):
            return self._description(statement, text, kind, parameters)

    def _description(
        self, statement: SqlStatement, text: str, kind: StatementKind, parameters: pa.Schema
    ) -> Description:
        if kind in ("explain", "describe"):
            return Description(schema=self._descriptions.schema(text), parameters=parameters)
        if kind == "change":
            schema = None
            if returns_rows(text):
                bound_text = self._first_of(statement) if statement.parameters else with_nulls(text)
                schema = self._writes(text).returns(bound_text)
            return Description(schema=schema, parameters=parameters)
        if statement.parameters is not None:
            first = self._first_of(statement)
        else:
            first = with_nulls(self._with_named_columns(text))
        with own_places(text, first):
            return Description(schema=self.queries.describe(first), parameters=parameters)

    def returned(self, statement: SqlStatement, token: str | None) -> tuple[pa.Schema, AnswerPart] | None:
        """See `StatementService.returned`."""
        with self._reading(statement):
            if not returns_rows(self._text(statement)):
                return None
            executions = list(self._executions(statement))
        if len(executions) != 1:
            raise SqlError("a statement that returns rows runs for one row of parameters at a time")
        with run_for(statement.query, executions[0]):
            named = _token(token, f"0/{executions[0]}")
            done = self._writes(executions[0]).run(executions[0], token=named, made=True)
        assert done.rows is not None
        return done.rows.schema, AnswerPart(ticket={"folder": done.folder, "attempt": done.attempt})

    def parts(self, statement: SqlStatement) -> Sequence[AnswerPart]:
        """See `StatementService.parts`. More than one where the legs' rows are the answer as they are."""
        with self._reading(statement):
            executions = list(self._executions(statement))
            if len(executions) != 1 or self._kind(executions[0]) != "query":
                return [AnswerPart()]
        try:
            with own_places(statement.query, executions[0]):
                plan, legs, view = self.queries.plan(executions[0])
        except SqlError:
            raise
        except BallistaError:  # a run plans again until its partitions have owners, and hides what is hidden
            return [AnswerPart()]
        if not is_divisible(plan) or len(legs) < 2:
            return [AnswerPart()]
        output = base64.b64encode(plan.output.serialize().to_pybytes()).decode()
        found = [view.catalog.tables[table.table] for table in legs[0].tables]
        tables = {table.name: table.incarnation for table in found}
        named = view.named_views(words_of(executions[0]))
        marks = {table.name: table.mark for table in found} | {name: one.mark for name, one in named.items()}
        return [
            AnswerPart(
                ticket=self._ticket(
                    evolve(statement, part={**asdict(portion_of(plan, leg)), "tables": marks}),
                    leg,
                    view,
                    {**leg_command(leg), "output": output, "incarnations": tables},
                ),
                location=self._location(leg, view),
            )
            for leg in legs
        ]

    def _location(self, leg: Leg, view: ClusterView) -> str | None:
        if self.tickets is None:
            return None
        return self.tickets.location(view.locations.get(leg.executor_id), view.addresses[leg.executor_id])

    def _ticket(
        self, statement: SqlStatement, leg: Leg, view: ClusterView, command: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """The part of the statement, and what the executor is told, if it gives parts to clients."""
        part = statement.part or {}
        if self.tickets is None or self._location(leg, view) is None:
            return part
        signed = self.tickets.issue(leg.executor_id, as_part(command), statement.digest())
        return {**part, "leg": signed}

    def run(self, statement: SqlStatement, context: CallContext) -> StreamResult:
        """See `StatementService.run`. Several rows of parameters give one answer after the other."""
        if statement.part is not None and "job" in statement.part:
            check_job_part(statement.part)
            return self.polled().rows(statement.part["job"], statement.part["chunk"])
        return given_out(self._run(statement, context), self.figures, self.queries.runtime)

    def _run(self, statement: SqlStatement, context: CallContext) -> StreamResult:
        if statement.part is not None and "attempt" in statement.part:
            check_answer(statement.part)
            rows = self._writes(statement.query).answer(statement.part["folder"], statement.part["attempt"])
            return StreamResult(schema=rows.schema, batches=rows.to_batches(ANSWER_ROWS))
        executions = self._executions(statement)
        with self._reading(statement):
            text = self._first(executions)
            with own_places(statement.query, text):
                kind = self._kind(text)
        with own_places(statement.query, text):
            if kind == "change":
                raise refusal(text)
            if kind != "query":
                table = self._descriptions.answer(text)
                return StreamResult(schema=table.schema, batches=table.to_batches())
        only = None if statement.part is None else self._portion(statement.part)

        def run(text: str, only: Portion | None = None) -> RunningStatement:
            with run_for(statement.query, text):
                return self.queries.run(text, context.cancelled, only)

        first = run(text, only)
        if statement.part is not None and any(m.startswith(VIEW_MARK) for m in statement.part["tables"].values()):
            try:
                self._portion(statement.part)  # a view may have got another query before it was read
            except SqlError:
                first.cancel()
                raise
        series = _Series(first, executions, run)
        return StreamResult(
            schema=first.schema, batches=series.batches(), trailer=first.stats, cancel=series.cancel
        )

    def one_execution(self, statement: SqlStatement) -> tuple[str, StatementKind]:
        """The statement in the engine's dialect, with literals for its parameters, and its kind.

        Raises `SqlError` for one that cannot be run, and for several rows of parameters.
        """
        with self._reading(statement):
            executions = list(islice(self._executions(statement), 2))
            if len(executions) != 1:
                raise SqlError("the statement takes one row of parameters")
            return executions[0], self._kind(executions[0])

    def described(self, text: str) -> pa.Table:
        """The answer to a statement that explains or describes, in the engine's dialect."""
        return self._descriptions.answer(text)

    def update(self, statement: SqlStatement, context: CallContext, token: str | None = None) -> int:
        """See `StatementService.update`. A token counts for one text: another statement is another write."""
        changed = 0
        executions = self._executions(statement)
        with self._reading(statement):
            first = next(executions, None)
        for number, text in enumerate(executions if first is None else chain((first,), executions)):
            if self._kind(text) != "change":
                raise SqlError("the statement gives rows and changes nothing: run it as a query")
            with run_for(statement.query, text):
                changed += self._writes(text).execute(text, token=_token(token, f"{number}/{text}"), made=True)
        return changed

    def ingest(
        self,
        table: str,
        rows: pa.RecordBatchReader,
        mode: IngestMode,
        context: CallContext,
        token: str | None = None,
    ) -> int:
        """See `StatementService.ingest`."""
        writes = self._writes(f"insert into {table}")
        return writes.ingest(table, rows, mode=mode, token=_token(token, f"{mode}/{table}"))

    def polled(self) -> PolledJobs:
        """See `StatementService.polled`."""
        if self.jobs is None:
            raise Unsupported("this node runs no jobs: ask with GetFlightInfo")
        return self.jobs

    def tables(self) -> Mapping[str, TableInfo]:
        """See `StatementService.tables`."""
        view = self.queries.views.refresh(())
        found = {
            n: TableInfo(plain(t.schema), tuple(t.primary_key)) for n, t in view.listed(self.queries.lakes).items()
        }
        views = {name: TableInfo(one.schema, kind=VIEW_TYPE) for name, one in view.sql_views.items()}
        return {**found, **views}

    def text_of(self, statement: SqlStatement) -> str:
        """The one text that the statement stands for, in the engine's dialect, with literals for its parameters."""
        return self._first_of(statement)

    def _reading(self, statement: SqlStatement) -> AbstractContextManager[None]:
        return self.queries.reading(statement.query, statement.dialect, statement.parameters)

    def _text(self, statement: SqlStatement) -> str:
        if statement.dialect is None:
            return engine_sql(statement.query)
        return self.queries.engine_sql(statement.query, statement.dialect)

    @property
    def _descriptions(self) -> Descriptions:
        return Descriptions(self.queries, self.engine)

    def _kind(self, text: str) -> StatementKind:
        """The kind of a statement. Raises `SqlError` for one that cannot be run."""
        kind = statement_kind(text)
        if kind == "refused":
            raise refusal(text)
        return kind

    def _writes(self, text: str) -> Writes:
        if self.writes is None:
            raise refusal(text)
        return self.writes

    def _parameter_schema(self, text: str) -> pa.Schema:
        return parameter_schema(text, self.queries.views.current(()).schemas)

    def _executions(self, statement: SqlStatement) -> Iterator[str]:
        """The text of each execution, with literals for its parameters."""
        text = self._text(statement)
        with own_places(statement.query, text):
            kind = self._kind(text)
            query = _asked_query(text) if kind in ("explain", "describe") else ""
            if query:
                # The tokenizer takes what follows EXPLAIN for one word.
                before, inner = text[: len(query) - len(query.lstrip())], query.lstrip()
                with own_places(text, inner):
                    executions = self._executions(evolve(statement, query=inner, dialect=None))
                    yield from (before + execution for execution in executions)
            elif kind in ("explain", "describe") and not isinstance(read_description(text), CatalogQuery):
                yield text
            else:
                yield from self._with_values(statement, text, kind)

    def _with_values(self, statement: SqlStatement, text: str, kind: StatementKind) -> Iterator[str]:
        names = names_of(places_of(text))
        if kind == "change" and is_of_view(text):
            read_change(text)  # says what the engine's parser does not know by its name
            if names:
                raise SqlError("a view takes no parameters: write values into its query")
        readable = _for_parser(text, kind)
        if set(names) != (set() if readable is None else self.engine.parameters(readable)):
            raise SqlError("the parameters of the statement cannot be told from its text")
        if not names:
            if statement.parameters is not None and statement.parameters.num_columns:
                count = statement.parameters.num_columns
                raise SqlError(f"the statement has no parameter, {count} value(s) were bound")
            yield text
            return
        if statement.parameters is None:
            raise SqlError(f"the statement has {len(names)} parameter(s) and no value was bound")
        rows = _rows_of_values(names, statement.parameters)
        if kind != "change" and statement.parameters.num_rows > MAX_QUERY_EXECUTIONS:
            raise SqlError(f"a query runs for at most {MAX_QUERY_EXECUTIONS:,} rows of parameters at once")
        if kind == "query":
            text = self._with_named_columns(text)
        template = row_template(text)
        yield from (bound(text, row) for row in rows) if template is None else template.statements(rows)

    def _with_named_columns(self, text: str) -> str:
        """The query with names for columns that have parameters: those of their places, whatever stands there."""
        if not places_of(text):
            return text
        named = with_named_columns(text, self.engine.parameter_columns(text))
        return named if not any(self.engine.parameter_columns(named)) else text

    def _first_of(self, statement: SqlStatement) -> str:
        with self._reading(statement):
            return self._first(self._executions(statement))

    def _first(self, executions: Iterator[str]) -> str:
        found = next(executions, None)
        if found is None:
            raise SqlError("no row of parameters was bound")
        return found

    def _portion(self, part: Mapping[str, Any]) -> Portion:
        """What a ticket stands for. Raises `SqlError` when a table is not the one that was divided any more."""
        check_part(part)
        view = self.queries.views.refresh(part["tables"])
        now, marks = view.catalog, view.marks(part["tables"])
        for table, mark in part["tables"].items():
            if marks.get(table) != mark:
                what = "view" if mark.startswith(VIEW_MARK) else "table"
                raise SqlError(
                    f"{what} '{table}' was dropped or altered since the statement was divided: run it again"
                )
        for table, partitions in part["partitions"].items():
            if table not in now.maps or any(partition >= len(now.maps[table]) for partition in partitions):
                raise SqlError("the ticket names partitions that there are not: run the statement again")
        return Portion(
            {table: list(partitions) for table, partitions in part["partitions"].items()}, dict(part["sequences"])
        )


def returned_rows(done: Executed) -> StreamResult:
    """What a statement returned, to be sent."""
    assert done.rows is not None
    return StreamResult(
        schema=done.rows.schema,
        batches=done.rows.to_batches(ANSWER_ROWS),
        trailer=lambda: {"affected": done.affected},
    )


class _Series:
    """Answers one after the other, the first of them open. `cancel` stops the open one and starts no other."""

    def __init__(
        self, first: RunningStatement, others: Iterator[str], run: Callable[[str], RunningStatement]
    ) -> None:
        self._open = first
        self._others = others
        self._run = run
        self._cancelled = False

    def batches(self) -> Iterator[pa.RecordBatch]:
        schema = self._open.schema
        yield from self._open.batches()
        for text in self._others:
            if self._cancelled:
                return
            self._open = self._run(text)
            if self._open.schema != schema:
                self._open.cancel()
                raise SqlError("two rows of parameters give answers with different columns: run them one by one")
            yield from self._open.batches()

    def cancel(self) -> None:
        self._cancelled = True
        self._open.cancel()


def _rows_of_values(names: Sequence[str], rows: pa.RecordBatch) -> Iterator[dict[str, pa.Scalar]]:
    """A value for each parameter, row by row. Raises `SqlError` for columns that are not those of the parameters."""
    columns = [rows.column(place) for place in columns_of(names, rows.schema.names)]
    for number in range(rows.num_rows):
        require_wanted()
        yield {name: column[number] for name, column in zip(names, columns, strict=True)}


def _token(token: str | None, what: str) -> str | None:
    """The token of one write among those that a client named alike. Raises `SqlError` for one too long to be kept."""
    if token is not None and len(token) > MAX_TOKEN_CHARS:
        raise SqlError(f"a token for a write has at most {MAX_TOKEN_CHARS} characters")
    return None if token is None else f"{token}/{sha256(what.encode()).hexdigest()[:16]}"


def _for_parser(text: str, kind: StatementKind) -> str | None:
    """The text in words that the engine's parser knows, with the same parameters; None where it can have none."""
    text = any_values(text)
    if kind != "change":
        return text
    return None if is_alteration(text) else text_for_engine(text)


def _asked_query(text: str) -> str:
    """The query that an EXPLAIN or DESCRIBE stands before, after blanks in its place; nothing if there is none."""
    asked = read_description(text)
    return asked.query if isinstance(asked, Explain | DescribeQuery) else ""
