"""Statements that change something, at a scheduler: split by partition, sent to the owners, complete or named.

A statement has a token. Every owner applies it once and answers the same again, so whoever lost a reply sends the
statement again with its token. Rows that were added in some partitions only raise `WriteIncomplete` naming the others,
and sending them again completes it. A statement that changes rows of several partitions, whose rows depend on what it
reads (INSERT … SELECT, MERGE, rows that move), or that is asked to be `atomic`, is decided once for all of its
partitions (`state.statements`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import closing, nullcontext

import orjson
import pyarrow as pa
from attrs import define, evolve, field

from ballista_py.coordinator.cluster_view import ChangeDoor, OpenDoor, Views, words_of
from ballista_py.coordinator.lake.definitions import no_scans
from ballista_py.coordinator.queries.first_rows import FirstRows
from ballista_py.coordinator.queries.pivots import change_of, text_for_parser
from ballista_py.coordinator.queries.service import QueryService
from ballista_py.coordinator.queries.statement_turns import PlanningTurns
from ballista_py.coordinator.queries.written_views import StatementOfTables
from ballista_py.coordinator.tables.alterations import TableAlterations
from ballista_py.coordinator.tables.ddl import TableCreates, TableWrites
from ballista_py.coordinator.tables.definitions import TableMaker
from ballista_py.coordinator.tables.sql_views import SqlViewDefinitions
from ballista_py.coordinator.tables.table_definitions import TableDefinitions
from ballista_py.coordinator.writes.change_writes import ChangeWrites, FollowedTable
from ballista_py.coordinator.writes.checks import RowChecks
from ballista_py.coordinator.writes.ingests import Ingests
from ballista_py.coordinator.writes.kept_answers import ANSWERS_PREFIX
from ballista_py.coordinator.writes.kept_rows import KeptRows, room_for_rows
from ballista_py.coordinator.writes.overwrites import replaced_by
from ballista_py.coordinator.writes.owner_calls import OwnerCalls
from ballista_py.coordinator.writes.retentions import pruned_by
from ballista_py.coordinator.writes.rounds import Growth, WriteRounds
from ballista_py.coordinator.writes.row_writes import RowWrites
from ballista_py.coordinator.writes.sent_again import DoneBefore, FormerTables, SentAgain, looked_at
from ballista_py.coordinator.writes.staged_writes import StagedWrites
from ballista_py.coordinator.writes.target_tables import PlannedAgain, TargetTables
from ballista_py.coordinator.writes.through import OpenWriter, ThroughWrites, no_writer
from ballista_py.coordinator.writes.view_rows import ViewRows
from ballista_py.coordinator.writes.whole_statements import GeneralWrites
from ballista_py.coordinator.writes.whole_writes import Executed, WholeWrites
from ballista_py.coordinator.writes.write_ways import OwnerRewrites, way_of_local, way_of_rows
from ballista_py.engines.engine import Engine
from ballista_py.errors import SchemaMismatch, SqlError, WriteIncomplete
from ballista_py.figures import UNSEEN, Figures
from ballista_py.partitions.columns import plain
from ballista_py.partitions.new_table import NewTable
from ballista_py.partitions.table import TableSpec, folded
from ballista_py.runtime import Runtime
from ballista_py.sql.bind.now import at_one_moment
from ballista_py.sql.own_words import edited_places, without_position
from ballista_py.sql.parse.alterations import AlterTable
from ballista_py.sql.parse.changes import (
    Change,
    DropTable,
    General,
    Local,
    TruncateTable,
    read_change,
    text_for_engine,
)
from ballista_py.sql.parse.copies import NOT_HERE, CopyFrom
from ballista_py.sql.parse.creates import CreateLike, CreateTable
from ballista_py.sql.parse.external_tables import CreateScanned
from ballista_py.sql.parse.inserts import Insert, require_other_sources
from ballista_py.sql.parse.kind import changes_rows, is_of_view, read_by_the_engine_alone
from ballista_py.sql.parse.materialized_views import RefreshView
from ballista_py.sql.parse.view_statements import CommentView, CreateView, DropViews
from ballista_py.sql.prune.changes import as_general, local_rewrite
from ballista_py.sql.rewrite import Rewrite
from ballista_py.state.documents.aged_objects import AgedObjects
from ballista_py.state.documents.token_claims import CLAIMED_MS, DEFINITIONS, TOKENS_PREFIX, TokenClaims
from ballista_py.state.documents.write_tokens import PATIENCE_MS, WriteToken
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.transport.flight.commands import IngestMode
from ballista_py.work import current_client

_OF_VIEWS = (CreateView, DropViews, CommentView)
_DEFINITIONS = (CreateTable, CreateLike, CreateScanned, DropTable, AlterTable, *_OF_VIEWS)


@define
class WriteService:
    """Runs statements that change something. Thread-safe."""

    views: Views
    store: ConditionalStore
    engine: Engine
    queries: QueryService
    calls: OwnerCalls
    tables: TableMaker
    growth: Growth
    runtime: Runtime
    max_bytes: int
    patience_ms: float = PATIENCE_MS
    instance: Callable[[], str] = str
    open_writer: OpenWriter = no_writer
    figures: Figures = UNSEEN
    door: ChangeDoor = field(factory=OpenDoor, kw_only=True)
    scanned: Callable[[CreateScanned, str], int] = field(default=no_scans, kw_only=True)
    staged: StagedWrites = field(init=False)
    _through: ThroughWrites = field(init=False)
    _whole: WholeWrites = field(init=False)
    _claims: TokenClaims = field(init=False)
    _rewrites: OwnerRewrites = field(init=False)
    _aged: list[AgedObjects] = field(init=False)
    _rows: RowWrites = field(init=False)
    _checks: RowChecks = field(init=False)
    _keyed: ChangeWrites = field(init=False)
    _rounds: WriteRounds = field(init=False)
    _former: FormerTables = field(init=False)
    _sent_again: SentAgain = field(init=False)
    _ingests: Ingests = field(init=False)
    _ddl: TableWrites = field(init=False)
    _creates: TableCreates = field(init=False)
    _definitions: TableDefinitions = field(init=False)
    _alterations: TableAlterations = field(init=False)
    _sql_views: SqlViewDefinitions = field(init=False)
    _again: PlannedAgain = field(init=False)
    _targets: TargetTables = field(init=False)
    _view_rows: ViewRows = field(init=False)
    _definition_turns: PlanningTurns = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._definition_turns = PlanningTurns(self.runtime)
        self._targets = TargetTables(self.views, self.queries, self.engine)
        self._checks = RowChecks(self.engine)
        self._rounds = WriteRounds(
            self.views, self.store, self.calls, self.growth, self.runtime, self.patience_ms, self.instance
        )
        self._claims = TokenClaims(self.store, self.runtime)
        self._former = FormerTables(
            self.views,
            self.store,
            self.runtime,
            self._claims,
            self.calls.run_all,
            lambda table: self.growth.table_is_served(table),
            self.patience_ms,
        )
        self._rows = RowWrites(self.views, self.calls, self._rounds, self._checks, self._claims)
        self._rewrites = OwnerRewrites(self.calls, self._rounds, self._claims)
        first = FirstRows(self.store, self.runtime, self.calls.run_all)
        self._ddl = TableWrites(
            self.views, self.tables, self.growth, self._checks, first, self.runtime, self.patience_ms
        )
        self._keyed = ChangeWrites(
            self.calls, self._rounds, self._rows, self._checks, self._claims, self.max_bytes
        )
        self._whole = WholeWrites(
            self.queries,
            GeneralWrites(self.queries, self.calls, self._checks, self.max_bytes),
            self._rounds,
            self._checks,
            self._claims,
            self._keyed,
            self.store,
            self.max_bytes,
        )
        self._view_rows = ViewRows(self.views, self._rounds, self._rows, self._whole, self._checks)
        self._through = ThroughWrites(self._targets, self._whole, self._keyed, self.open_writer, self.figures)
        self._sent_again = SentAgain(self._former, self._whole, self._claims, self.queries)
        prefixes = (TOKENS_PREFIX, CLAIMED_MS), (ANSWERS_PREFIX, CLAIMED_MS)
        self._aged = [AgedObjects(self.store, self.runtime, prefix, kept_ms) for prefix, kept_ms in prefixes]
        self._definitions = TableDefinitions(self.store, self.runtime)
        self._creates = TableCreates(
            self._ddl, self._definitions, self.queries, self._checks, self.engine, self._whole.running
        )
        self._sql_views = SqlViewDefinitions(self.queries, self.tables, self.engine)
        self._again = PlannedAgain(self.views, self._rounds, self._definitions, self.runtime, self.patience_ms)
        kinds = self._rows, self._whole, self._keyed
        self._ingests = Ingests(
            self._ddl, *kinds, self._sent_again, self._again, self._targets.managed, self._through.ingest
        )
        self._alterations = TableAlterations(
            self.views, self.tables, self._definitions, self.growth, self.queries, self._checks, self.runtime,
            self.patience_ms,
        )  # fmt: skip
        self.staged = StagedWrites(
            self.views, self.store, self.runtime, self.calls, self._rounds, self._rows, self._targets, self._claims,
            self._sent_again, self._again, self.door,
        )  # fmt: skip

    def execute(
        self,
        statement: str,
        *,
        token: str | None = None,
        made: bool = False,
        atomic: bool = False,
        again: bool | None = None,
    ) -> int:
        """As `run`, without what it returns; how many rows it affects."""
        return self.run(statement, token=token, made=made, atomic=atomic, again=again).affected

    def run(
        self,
        statement: str,
        *,
        token: str | None = None,
        made: bool = False,
        atomic: bool = False,
        again: bool | None = None,
    ) -> Executed:
        """Run a statement (in the engine's dialect) that changes something; what it did.

        A token that was `made` for this statement alone need not be held against others. `again` says whether the
        statement was sent before, None that nobody says so.

        CREATE, DROP and TRUNCATE of a table count as the rows they touch. Raises `SqlError` for a statement that
        is wrong or changes nothing, `SchemaMismatch` for rows that the table refuses (nothing is applied then),
        `WriteIncomplete` naming the partitions that did not apply it.

        Definitions of one client are carried out a few at once, large ones one after the other: each takes up to
        seconds of the interpreter.
        """
        turns = self.queries.plans.turns
        with turns.turn(statement):
            defines = not changes_rows(statement)
        with self._definition_turns.turn(statement) if defines else nullcontext():
            return self._carried_out(
                statement, self._token(token, made, again, "execute", statement, atomic), atomic
            )

    def create(
        self,
        new: NewTable,
        schema: pa.Schema,
        *,
        token: str | None = None,
        made: bool = False,
        again: bool | None = None,
        atomic: bool = False,
    ) -> None:
        """Make a managed table of these columns, as CREATE TABLE does. The same under its token again does nothing.

        Raises `ConfigError` for a name that is taken and a table with a source, and what `TableMaker.create` raises.
        """
        new.require_no_source()
        beside = None if new.colocate_with is None else folded(new.colocate_with)
        self.door.require_rows(folded(new.name), "create", beside)
        columns, said = plain(schema), orjson.dumps(new.to_json(), option=orjson.OPT_SORT_KEYS).decode()
        mine = self._token(token, made, again, "create_table", said, columns.to_string())
        with self._definition_turns.turn(said):
            if mine.given:
                self._claims.claim(DEFINITIONS, mine.kept)
            self._creates.asked(new, columns, mine.kept)

    def _carried_out(self, sent: str, mine: WriteToken, atomic: bool) -> Executed:
        """Carry the statement out, with the queries of the views that it reads in their places."""
        try:
            found = StatementOfTables(sent) if is_of_view(sent) else self.queries.inlined.written_out(sent)
        except SqlError:
            earlier = self._decided_before(change_of(sent), mine)  # it may have been right when it was sent first
            if earlier is None:
                raise
            return earlier
        with edited_places(sent, found.edits):
            return self._without_views(found.text, mine, atomic)

    def _without_views(self, statement: str, mine: WriteToken, atomic: bool) -> Executed:
        with self.queries.plans.turns.turn(statement):
            plain = text_for_engine(text_for_parser(statement))
            if plain is not None:
                self._require_change(plain, statement)
            try:
                change = change_of(statement)
            except SqlError as error:
                raise (error if plain is None else read_by_the_engine_alone(error)) from None
        self.door.require_change(change)
        tables = frozenset() if isinstance(change, _DEFINITIONS) else words_of(statement)
        times = 0

        def run() -> Executed:
            nonlocal mine, times
            mine, times = evolve(mine, again=True) if times else mine, times + 1
            return self._run(change, mine, atomic)

        try:
            return self._again.until_done(run, tables)
        except (SqlError, SchemaMismatch):  # it may have been right when it was sent first
            earlier = self._decided_before(change, mine)
            if earlier is None:
                raise
            return earlier

    def _require_change(self, plain: str, statement: str) -> None:
        """Raise `SqlError` for what the engine does not read; with the refusal here if that says more."""
        try:
            self.engine.require_change(plain)
        except SqlError:
            if plain.lstrip()[:5].upper() == "ALTER" or is_of_view(plain):
                change_of(statement)
            raise

    def _decided_before(self, change: Change | None, token: WriteToken) -> Executed | None:
        """What the statement did when it was sent before and decided; None if nobody knows that it was."""
        table = None
        if isinstance(change, Insert | Local | General):
            table = self.views.refresh({change.table}).catalog.tables.get(change.table)
        if table is None or table.source is not None or not table.definition:
            return None
        assert isinstance(change, Insert | Local | General)
        return self._sent_again.of_refused(change, table, token)

    def _run(self, change: Change | None, mine: WriteToken, atomic: bool) -> Executed:
        if isinstance(change, Insert | Local | General | TruncateTable):
            name = change.table
            if (through := self._targets.through(name)) is not None:
                return Executed(self._through.run(change, through, mine))
            found = looked_at(
                lambda: self._targets.managed(name), lambda folder: self._former.of(name, folder, mine)
            )[1]
            if found is not None:
                return self._as_before(change, found, mine, atomic)
        if isinstance(change, Insert) and change.whole is not None:
            return self._whole.insert(change, self._targets.managed(change.table), mine)
        if isinstance(change, Insert):
            return Executed(self._insert(change, mine, atomic))
        if isinstance(change, Local):
            return self._local(change, mine)
        if isinstance(change, General):
            return self._as_whole(change, mine)
        if isinstance(change, TruncateTable):
            return Executed(self._rewrites.run(self._targets.managed(change.table), None, Rewrite(), mine))
        if isinstance(change, _DEFINITIONS) and mine.given:
            self._claims.claim(DEFINITIONS, mine.kept)
        if isinstance(change, CreateTable | CreateLike):
            return Executed(self._creates.create(change, mine.kept))
        if isinstance(change, _OF_VIEWS):
            return Executed(self._sql_views.carry_out(change, mine.kept))
        if isinstance(change, CreateScanned):
            return Executed(self.scanned(change, mine.kept))
        if isinstance(change, DropTable):
            return Executed(self._ddl.drop(change, mine.kept))
        if isinstance(change, AlterTable):
            return Executed(self._alterations.alter(change, mine.kept))
        if isinstance(change, RefreshView):
            return Executed(self._view_rows.make_anew(change.view, mine))
        if isinstance(change, CopyFrom):
            raise SqlError(NOT_HERE)
        raise SqlError("the statement changes nothing: send it as a query")

    def _as_before(
        self, change: Insert | Local | General | TruncateTable, found: DoneBefore, mine: WriteToken, atomic: bool
    ) -> Executed:
        """What a statement did in a table that has lost its name; rows that are lacking there are added."""
        if found.table is not None and found.decision is None and isinstance(change, Insert):
            try:
                return Executed(self._insert(evolve(change, table=found.table.name), mine, atomic))
            except (SqlError, SchemaMismatch):  # it was altered as well
                return self._sent_again.of_all(found, change)
        return self._sent_again.told(found, mine, returning=bool(getattr(change, "returning", False)))

    def retain(self, name: str, token: str) -> int:
        """Run the retention of a table, with or without a source; how many rows it took away.

        The same token again takes nothing away. Raises `ConfigError` for a retention that is no DELETE of its own rows,
        and what a DELETE raises.
        """
        return self._again.until_done(lambda: self._retain(name, token), (name,))

    def _retain(self, name: str, token: str) -> int:
        table, change = self._targets.with_retention(name, self.runtime.wall_ms())
        self._require_change(change.text, change.text)
        if not self._checks.bind(change, table):
            raise SqlError(
                f"the retention of table '{name}' cannot be run by its owners: write its condition plainly"
            )
        types = dict(zip(table.schema.names, self.engine.sql_types(table.schema), strict=True))
        rewrite = evolve(local_rewrite(change, table, types), where=pruned_by(change))
        return self._rewrites.run(table, change, rewrite, WriteToken(token, ("retention", change.text)))

    def refresh_view(self, name: str, token: str) -> int:
        """Make the rows of a materialized view anew; how many they are. The same token again changes nothing.

        Raises what `ViewRows.make_anew` raises.
        """
        mine = WriteToken(token, ("refresh view", name))
        return self._again.until_done(lambda: self._view_rows.make_anew(name, mine), (name,))

    def settle_left_over(self, schedulers: Collection[str]) -> int:
        """See `WriteRounds.settle_left_over`."""
        return self._rounds.settle_left_over(schedulers)

    def ingest(
        self,
        table: str,
        reader: pa.RecordBatchReader | Iterable[pa.RecordBatch],
        *,
        mode: IngestMode = "append",
        token: str | None = None,
        made: bool = False,
        atomic: bool = False,
        again: bool | None = None,
        schema: pa.Schema | None = None,
    ) -> int:
        """Take in rows for a table, all of them or none that is not named; how many they are.

        `append` wants the table to exist and `create` wants it not to; `replace` puts the rows in the place of all
        that are there, or, if they have other columns, a table of them in the place of the one that is there; `upsert`
        each in the place of the one with its primary key; `changes` are changes by it (see `changes.batches`),
        and all or none are applied; `create_append` and `replace` make the table if there is
        none. A table made here is kept whole by every executor, because rows do not say how to split them: create a
        partitioned one first.

        Raises `SchemaMismatch`, `ConfigError` for a table that is missing or exists, `WriteIncomplete`.
        """
        columns = schema or getattr(reader, "schema", None)
        columns = None if columns is None else plain(columns)
        name = folded(table)
        self.door.require_rows(name, mode)
        mine = self._token(token, made, again, "ingest", name, mode, atomic)
        with room_for_rows(reader, self.queries.budget) as rows:
            return self._ingests.take_in(name, rows, mode, mine, atomic, columns)

    def followed(self, table: TableSpec) -> FollowedTable:
        """The table as long as it has its name, for a `ChangeReader`; never another one that has the name later."""
        name, folder = table.name, table.folder
        return FollowedTable(name, lambda: self._targets.followed(name, folder), self._keyed, self._again)

    def tick(self) -> int:
        """Forget tokens of clients that were used long ago, what was returned then, and writes that are over."""
        return sum(aged.tick() for aged in self._aged) + self.staged.tick()

    def returns(self, statement: str) -> pa.Schema:
        """The columns that a change with RETURNING gives. Nothing is changed; raises as `run` does."""
        statement = self.queries.inlined.written_out(statement).text
        plain = text_for_engine(statement)
        if plain is not None:
            self.engine.require_change(plain)
        change = read_change(statement)
        if not isinstance(change, Insert | Local | General):
            raise SqlError("the statement returns no rows")
        self.door.require_change(change)
        return self._whole.columns(
            change,
            self._targets.managed(change.table),
            self.queries.views.current(words_of(statement)).catalog.schemas,
        )

    def answer(self, folder: str, attempt: str) -> pa.Table:
        """See `WholeWrites.answer`."""
        return self._whole.answer(folder, attempt)

    def _token(self, token: str | None, made: bool, again: bool | None, *statement: str | bool) -> WriteToken:
        given, again = token is not None and not made, again if token else False
        client = current_client()
        return WriteToken(token or self.runtime.new_id(), statement, given=given, client=client, again=again)

    def _insert(self, change: Insert, token: WriteToken, atomic: bool) -> int:
        table = self._targets.managed(change.table)
        if change.overwrites or not change.constant:
            earlier = self._rounds.statements(table).read().of(token.kept)
            if earlier is not None:
                return self._rows.decided(table, KeptRows(iter(())), token)
        replaced = replaced_by(change, table, self._checks) if change.overwrites else None
        if replaced is not None:
            require_other_sources(table.name, change.query)
        change = self._checks.converted(table, change)
        with edited_places(change.query, change.edits):
            self._checks.require_fitting(table, change, self.queries.describe(change.run))
        with edited_places(change.query, change.edits), self._whole.running(change.run) as running:
            rows = self._checks.for_columns(table, change, running.schema, running.batches())
            replace = replaced is not None
            way = way_of_rows(table, atomic=atomic, replace=replace, constant=change.constant)
            with closing(rows):
                return self._rows.take_in(table, rows, token, way, replaced=replaced)

    def _local(self, change: Local, token: WriteToken) -> Executed:
        table = self._targets.managed(change.table)
        timed = at_one_moment(change, table.schema, self.runtime.wall_ms())
        if timed is None:
            return self._as_whole(as_general(change), token)
        with edited_places(change.text, timed.edits):
            return self._share_by_share(timed.change, table, token)

    def _share_by_share(self, change: Local, table: TableSpec, token: WriteToken) -> Executed:
        if not self._checks.bind(change, table):
            return self._as_whole(as_general(change), token)
        touched = self._rewrites.touched(table, change, self._rounds.view(table))
        if way_of_local(change, table, partitions=len(touched)) == "whole":
            return self._as_whole(as_general(change), token, change)
        types = dict(zip(table.schema.names, self.engine.sql_types(table.schema), strict=True))
        try:
            return Executed(self._rewrites.run(table, change, local_rewrite(change, table, types), token))
        except (SqlError, WriteIncomplete) as error:
            raise without_position(error) from None

    def _as_whole(self, change: General, token: WriteToken, local: Local | None = None) -> Executed:
        table = self._targets.managed(change.table)
        self._targets.bind(change)
        return self._whole.change(change, table, token, local)
