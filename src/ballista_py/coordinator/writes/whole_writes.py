"""Statements that a scheduler runs as a whole, over rows brought together, and decides once for all partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager

import pyarrow as pa
from attrs import define, frozen

from ballista_py.coordinator.cluster_view import ClusterView
from ballista_py.coordinator.queries.running_statement import RunningStatement, read_as_work
from ballista_py.coordinator.queries.service import QueryService
from ballista_py.coordinator.writes.change_writes import ChangeWrites
from ballista_py.coordinator.writes.checks import RowChecks
from ballista_py.coordinator.writes.kept_answers import keep_answer, kept_answer
from ballista_py.coordinator.writes.kept_rows import RowBudget
from ballista_py.coordinator.writes.owner_calls import Order, Outcome
from ballista_py.coordinator.writes.rounds import WriteRounds
from ballista_py.coordinator.writes.row_routes import partitions_of
from ballista_py.coordinator.writes.whole_statements import (
    MIN_MEMORY_BYTES,
    GeneralWrites,
    PreparedPartitions,
    StatementRows,
)
from ballista_py.errors import SqlError
from ballista_py.partitions.rows_digest import RowsDigest
from ballista_py.partitions.same_key import first_doubled
from ballista_py.partitions.table import TableSpec
from ballista_py.sql.own_words import edited_places, without_position
from ballista_py.sql.parse.changes import General, Local
from ballista_py.sql.parse.inserts import GIVEN_ROWS, Insert, upsert_of
from ballista_py.sql.prune.changes import as_general, rows_of_keys, touched_partitions
from ballista_py.state.documents.decisions import Decision
from ballista_py.state.documents.token_claims import TokenClaims
from ballista_py.state.documents.write_tokens import WriteToken
from ballista_py.state.stores.store import ConditionalStore


@frozen
class Executed:
    """What a statement did: rows affected, and those that it returned; `attempt` names them in the table's folder."""

    affected: int
    rows: pa.Table | None = None
    folder: str = ""
    attempt: str = ""


@define
class WholeWrites:
    """Runs them. Thread-safe; holds at most `max_bytes` of rows for each."""

    queries: QueryService
    general: GeneralWrites
    rounds: WriteRounds
    checks: RowChecks
    claims: TokenClaims
    keyed: ChangeWrites
    store: ConditionalStore
    max_bytes: int

    def change(self, change: General, table: TableSpec, token: WriteToken, local: Local | None = None) -> Executed:
        """MERGE and its kin. `local` is the same statement, if it reads its table alone."""

        def reading(view: ClusterView) -> StatementRows:
            pmap = view.catalog.maps[table.name]
            if local is None:
                return StatementRows(partitions=pmap.ids().tolist(), depends=True)
            where = None if local.tree is None else local.where
            return StatementRows(
                partitions=list(touched_partitions(local, table, pmap)), where=where, alias=local.alias
            )

        return self._once(change, table, token, reading)

    def insert(self, change: Insert, table: TableSpec, token: WriteToken) -> Executed:
        """An INSERT that gives rows, or asks what is there under the keys of its own. Its query is run once.

        Raises `SqlError` where there is no key.
        """
        require_on_key(change, table)
        if self.rounds.statements(table).read().of(token.kept) is not None:
            return self.told(table.folder, self.rounds.once(table, token.kept, _never), change.returning)
        change = self.checks.converted(table, change)
        with edited_places(change.query, change.edits):
            columns = self.queries.describe(change.run)
            self.checks.require_fitting(table, change, columns)
        with edited_places(change.query, change.edits), self.running(change.run) as running:
            rows = self.checks.for_columns(table, change, running.schema, running.batches())
            with closing(rows):
                full = self.gathered(
                    table, rows
                )  # with the defaults of columns that are not named, keys among them
        given = full.select(self.checks.given_columns(table, change, columns))
        return self._insert(change, table, token, given, full)

    def upsert(
        self,
        table: TableSpec,
        rows: Iterable[pa.RecordBatch],
        token: WriteToken,
        shaped: Callable[[pa.RecordBatch], pa.RecordBatch],
    ) -> Executed:
        """Rows, each `shaped` to fit the table, that take the place of those with their primary keys, or come to it.

        No key may come twice. A token that the client gave is one for these rows, as they were sent.
        """
        given, token = self.sent(table, rows, token, shaped)
        return Executed(self.keyed.put(table, given, token))

    def sent(
        self,
        table: TableSpec,
        rows: Iterable[pa.RecordBatch],
        token: WriteToken,
        shaped: Callable[[pa.RecordBatch], pa.RecordBatch] = lambda batch: batch,
    ) -> tuple[pa.Table, WriteToken]:
        """Rows that a client sends for `upsert`, each with a key of its own, and the token of these very rows."""
        require_on_key(upsert_of(table.name), table)
        digest = RowsDigest()
        sent = digest.counted(rows) if token.given else rows
        given = self.gathered(table, self.checks.batches(table, map(shaped, sent)))
        row = first_doubled(given, table.primary_key)
        if row is not None:
            key = ", ".join(f"{name} = {value}" for name, value in row.items())
            raise SqlError(f"two rows have the primary key {key}: nothing was changed, send one for each key")
        return given, token.of_rows(digest.value) if token.given else token

    def gathered(self, table: TableSpec, rows: Iterable[pa.RecordBatch]) -> pa.Table:
        batches = list(RowBudget(self.max_bytes).counted(rows))
        return pa.Table.from_batches(batches) if batches else table.schema.empty_table()

    def _insert(
        self, change: Insert, table: TableSpec, token: WriteToken, given: pa.Table, full: pa.Table
    ) -> Executed:
        """An INSERT of rows that are there already, `full` ones; the table is read where their keys can be."""
        assert change.whole is not None
        keys = rows_of_keys(table, full) if change.on_key else None

        def reading(view: ClusterView) -> StatementRows:
            pmap = view.catalog.maps[table.name]
            found = partitions_of(pmap, full) if change.on_key else []
            return StatementRows(
                partitions=found,
                where=keys,
                alias=table.name,
                depends=change.on_key,
                given=given,
                key=table.primary_key if change.on_key else (),
            )

        whole = General(table=table.name, text=change.whole, sources=(), returning=change.returning)
        try:
            return self._once(whole, table, token, reading)
        except SqlError as error:
            raise error if len(whole.text) == change.text_length else without_position(error) from None

    def columns(
        self, change: Insert | Local | General, table: TableSpec, schemas: Mapping[str, pa.Schema]
    ) -> pa.Schema:
        """The columns that a change returns, found by running it over empty tables."""
        if isinstance(change, Insert):
            change = self.checks.converted(table, change)
            text, key = change.whole or "", table.primary_key if change.on_key else ()
            names = self.checks.given_columns(table, change, self.queries.describe(change.run))
            others = {GIVEN_ROWS: table.schema.empty_table().select(names).to_reader()}
        else:
            general = as_general(change) if isinstance(change, Local) else change
            text, key = general.text, ()
            others = {name: schemas[name].empty_table().to_reader() for name in general.sources if name in schemas}
        rows, limit = table.schema.empty_table().to_reader(), f"{MIN_MEMORY_BYTES}B"
        with self.checks.engine.change(
            text, table.name, rows, others, memory_limit=limit, key=key, returning=True
        ) as done:
            assert done.returned is not None
            return done.returned.schema

    @contextmanager
    def running(self, query: str) -> Iterator[RunningStatement]:
        """The query, open for as long as the block lasts: whoever leaves it early leaves nothing running."""
        running = read_as_work(self.queries.run(query))
        try:
            yield running
        finally:
            running.cancel()

    def _once(
        self, change: General, table: TableSpec, token: WriteToken, reading: Callable[[ClusterView], StatementRows]
    ) -> Executed:
        if token.given:
            self.claims.claim(table.folder, token.kept)
        last: list[tuple[str, PreparedPartitions]] = []

        def prepare(order: Order, view: ClusterView) -> Outcome:
            attempt = order.attempt or ""

            def keep(rows: pa.Table) -> None:
                keep_answer(self.store, table.folder, attempt, rows)

            done = self.general.prepare(change, order, view, reading(view), self.rounds.known(table), keep)
            last[:] = [(attempt, done)]
            return done.outcome

        decision = self.rounds.once(table, token.kept, prepare, affected=lambda: last[0][1].affected)
        if last and last[0][0] == decision.attempt:
            return Executed(decision.affected, last[0][1].returned, table.folder, decision.attempt)
        return self.told(table.folder, decision, change.returning)

    def decided_before(self, table: TableSpec, token: WriteToken, returning: bool) -> Executed | None:
        """What a statement did that was sent and decided before; None if nobody knows that it was."""
        decision = self.rounds.decided_before(table, token.kept)
        return None if decision is None else self.told(table.folder, decision, returning)

    def told(self, folder: str, decision: Decision, returning: bool) -> Executed:
        """What a statement did that was decided before, in the table that has this folder."""
        rows = None
        if returning:
            rows = kept_answer(self.store, folder, decision.attempt)
        return Executed(decision.affected, rows, folder, decision.attempt)

    def answer(self, folder: str, attempt: str) -> pa.Table:
        """What the statement with that attempt, which counts, returned."""
        return kept_answer(self.store, folder, attempt)


def require_on_key(change: Insert, table: TableSpec) -> None:
    """Raise `SqlError` for an INSERT that asks for a primary key that the table has not, or that would change it."""
    if not change.on_key:
        return
    if not table.primary_key:
        raise SqlError(
            f"table '{table.name}' has no primary key by which rows could meet: declare PRIMARY KEY (…) when it is "
            "made, or use MERGE INTO"
        )
    keys = {name.lower() for name in table.primary_key}
    for name in change.sets:
        if name.lower() in keys:
            raise SqlError(
                f"DO UPDATE cannot set column '{name}' of the primary key: DELETE the row and INSERT another"
            )


def _never(_order: Order, _view: ClusterView) -> Outcome:
    raise AssertionError("what was decided before is not prepared again")
