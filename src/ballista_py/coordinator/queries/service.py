"""Statements at a scheduler: bind, plan, run; plan again when an owner was none.

A statement covers every partition that it needs exactly once, at the epochs of one catalog, or raises. It is
planned again only while nothing of its answer was given out: `MAX_REPLANS` times, and for `PATIENCE_MS` where an owner
refuses, because it loads what it owns now or has a successor that does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
from attrs import define, evolve, field

from ballista_py.coordinator.cluster_view import ClusterView, Lakes, Views, words_of
from ballista_py.coordinator.queries.information_schema import CATALOG_SCHEMAS
from ballista_py.coordinator.queries.pivots import begun, in_words_of, with_values
from ballista_py.coordinator.queries.plan_cache import Plans
from ballista_py.coordinator.queries.run import BroadcastTooLargeError, LakeLegs, OpenLegs, QueryRun, opener_of
from ballista_py.coordinator.queries.running_statement import RunningStatement, until_given
from ballista_py.coordinator.queries.runtime_tables import RUNTIME_SCHEMAS, RuntimeTables
from ballista_py.coordinator.queries.statement_turns import MergingTurns
from ballista_py.coordinator.queries.written_views import Inlining, WrittenViews
from ballista_py.engines.apart.trials import Trials
from ballista_py.engines.engine import Engine
from ballista_py.errors import (
    BallistaError,
    LeaseExpired,
    NotOwner,
    PartitionsUnassigned,
    SqlError,
    TransportError,
    TryLater,
    UnsupportedExpression,
)
from ballista_py.figures import UNSEEN, Figures
from ballista_py.memory_budget import MemoryBudget
from ballista_py.partitions.map import Owner
from ballista_py.runtime import Runtime
from ballista_py.sql.explain import explain_text, plan_as_dict
from ballista_py.sql.legs import copies_of, legs_of
from ballista_py.sql.parse.kind import engine_sql
from ballista_py.sql.parse.parsing import require_length
from ballista_py.sql.parse.pivots import OVERTAKEN, mentions_pivot, open_pivot
from ballista_py.sql.parse.table_names import INFORMATION, SEEN
from ballista_py.sql.parts import Portion, restricted
from ballista_py.sql.plan import Leg, QueryPlan, require_told
from ballista_py.state.members.executor_registry import Suspects
from ballista_py.transport.flight.errors import is_link_failure
from ballista_py.work import carried, pause

MAX_REPLANS = 3
PATIENCE_MS = 10_000.0
MAX_ALTERED = 8
MAX_OVERTAKEN = 4
REPLAN_WAIT_MS = 150.0
LONGEST_WAIT_MS = 1_000.0
_REFUSED = (NotOwner, LeaseExpired)

T = TypeVar("T")
HeardMs = Callable[[], Mapping[str, float]]
AsOf = Mapping[str, int]
Sequences = Callable[[Collection[str]], AsOf]


@define
class QueryService:
    """Plans and runs statements. Thread-safe. `engine` binds statements and merges streams.

    `heard_ms` tells, by instance, when executors were heard last: one that a call did not reach is asked for nothing
    before it is heard again, as long as there are copies of what it holds.
    `sequences` tells how many statements over several partitions are committed, for the tables that can have any, and
    `definitions`, asked after that, the newest one that there may be of each table.
    Statements of much text have their place in the `budget` of the node while they are planned.
    Those of clients have their `trials` before they are read.
    What replicas give is at most `max_replica_lag_ms` old; with 0 it is never older than the statement.
    `runtime_tables` say what the cluster does.
    """

    views: Views
    engine: Engine
    open_legs: OpenLegs
    runtime: Runtime
    sequences: Sequences = field(default=lambda _tables: {}, kw_only=True)
    definitions: Sequences = field(default=lambda _tables: {}, kw_only=True)
    max_replica_lag_ms: float = field(default=0.0, kw_only=True)
    heard_ms: HeardMs = field(default=dict, kw_only=True)
    budget: MemoryBudget | None = field(default=None, kw_only=True)
    trials: Trials | None = field(default=None, kw_only=True)
    runtime_tables: RuntimeTables = field(factory=RuntimeTables, kw_only=True)
    figures: Figures = field(default=UNSEEN, kw_only=True)
    lakes: Lakes | None = field(default=None, kw_only=True)
    scans: LakeLegs | None = field(default=None, kw_only=True)
    _suspects: Suspects = field(init=False, factory=Suspects)
    plans: Plans = field(init=False)
    _turns: MergingTurns = field(init=False)
    inlined: Inlining = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._turns = MergingTurns(self.runtime, self.budget)
        self.inlined = Inlining(self.views, WrittenViews(self.engine, self.runtime, self.lakes))
        self.plans = Plans(self.engine, self.runtime, self.budget, self.figures)

    def explain(self, statement: str, analyze: bool = False) -> dict[str, Any]:
        """The plan as a dict, with the same in words under `text`. Raises what `run` raises while it plans.

        With `analyze` the statement is run, its rows are thrown away, and legs say what they gave; `stats` are those
        of the statement.
        """
        if analyze:
            running = self.run(statement)
            try:
                require_told(running.running.plan)
                for _ in running.batches():
                    pass
                return running.explained()
            finally:
                running.cancel()
        return self.inlined.run(statement, self._explained)

    def _explained(self, statement: str) -> dict[str, Any]:
        with self._spelled(statement) as (statement, _):
            plan, legs = self._plan(self._view_for(statement), statement, timed=True, told=True)
        require_told(plan)
        return {**plan_as_dict(plan, legs), "text": explain_text(plan, legs)}

    def engine_sql(self, statement: str, dialect: str) -> str:
        """A statement of another dialect in the engine's, over the tables that there are. Raises as that.

        One that was sent before is told by its text: if it fits them no more, it is read over those that were there.
        """
        try:
            return engine_sql(statement, dialect, self.views.current(()).schemas)
        except (SqlError, UnsupportedExpression):  # a table may be new
            view = self.views.refresh(())
        try:
            return engine_sql(statement, dialect, view.schemas)
        except (SqlError, UnsupportedExpression):
            before = view.schemas_before()
            if before:
                with suppress(SqlError, UnsupportedExpression):
                    return engine_sql(statement, dialect, {**view.schemas, **before})
            raise

    @contextmanager
    def reading(
        self, statement: str, dialect: str | None = None, values: pa.RecordBatch | None = None
    ) -> Iterator[None]:
        """Around what reads a client's text: it waits for its turn among those of the client, and is tried.

        The `values` of its parameters are written into it.

        Raises `SqlError` for a text that is too long, and as `PlanningTurns.turn` and `Trials.require_survived`.
        """
        require_length(statement)
        kinds, size = (None, 0) if values is None else (values.schema, values.nbytes)
        with self.plans.turns.turn(statement, size):
            if self.trials is not None:
                text = statement if dialect is not None else self.inlined.to_try(statement)
                self.trials.require_survived(text, dialect, partial(self._tables_of, text), kinds)
            yield

    def _tables_of(self, statement: str, as_of_now: bool) -> tuple[Mapping[str, pa.Schema], Mapping[str, str]]:
        """The columns of the tables that a statement may name, and the marks of these tables."""
        words = words_of(statement)
        view = self.views.refresh(words) if as_of_now else self.views.current(words)
        marks = view.marks(words)
        known = view.schemas
        schemas = {name: known[name] for name in marks if name in known}
        for schema, told in ((INFORMATION, CATALOG_SCHEMAS), (SEEN, RUNTIME_SCHEMAS)):
            schemas.update(told if schema in words else {})
        return schemas, marks

    def describe(self, statement: str) -> pa.Schema:
        """The columns of the statement's answer, as a single node gives them. Raises `SqlError`."""

        def described(text: str) -> pa.Schema:
            with self._spelled(text) as (spelled, _):
                return self.plans.output(spelled, self._newest_for(spelled).catalog)

        return self.inlined.run(statement, described)

    def types(self, statement: str) -> tuple[tuple[str, str], ...]:
        """Name and type of each column of the statement's answer, as the engine's SQL writes it. Raises `SqlError`."""

        def types(text: str) -> tuple[tuple[str, str], ...]:
            with self._spelled(text) as (spelled, _):
                schemas = self._newest_for(spelled).catalog.schemas
                return self._patiently(lambda: self.engine.types(spelled, schemas))

        return self.inlined.run(statement, types)

    def plan(self, statement: str) -> tuple[QueryPlan, tuple[Leg, ...], ClusterView]:
        """How the statement would run, and over what, as of now. Raises as `planned`."""

        def planned(text: str) -> tuple[QueryPlan, tuple[Leg, ...], ClusterView]:
            with self._spelled(text) as (spelled, as_of):
                view = self._newest_for(spelled)
                plan, legs = self._plan(view, spelled)
                require_told(plan)
                return plan, self._pinned(view, legs, as_of=as_of), view

        return self.inlined.run(statement, planned)

    def planned(self, statement: str, fresh: bool = False, timed: bool = False) -> tuple[QueryPlan, ClusterView]:
        """How the statement would run, whoever lives; `fresh`: by what the store says now; `timed`: at this moment.

        Raises `Unsupported` for a table of which the client does not see all: whoever is told this reads it itself.
        """

        def planned(text: str) -> tuple[QueryPlan, ClusterView]:
            with self._spelled(text) as (spelled, _):
                view = self.views.refresh(words_of(spelled)) if fresh else self._view_for(spelled)
                return view.kept(require_told(self.plans.plan(spelled, view.catalog, timed=timed))), view

        return self.inlined.run(statement, planned)

    def spelled(self, statement: str) -> str:
        """The statement without views, where each PIVOT says which values it is for, as of now. Raises as `run`."""

        def spelled(text: str) -> str:
            with self._spelled(text) as (made, _):
                return made

        return self.inlined.run(statement, spelled)

    @contextmanager
    def _spelled(
        self, statement: str, cancelled: Callable[[], bool] = lambda: False
    ) -> Iterator[tuple[str, AsOf | None]]:
        """As `spelled`, and as of which sequences values were asked; errors have their places in what was sent."""
        if not mentions_pivot(statement) or open_pivot(statement) is None:
            yield statement, None
            return
        started_ms = self.runtime.monotonic_ms()
        known = self.views.current(()).catalog.tables
        as_of = self.sequences({name for name in words_of(statement) if name in known})

        def ask(query: str) -> RunningStatement:
            return self._start(query, cancelled, None, started_ms, 0, as_of)

        text = with_values(statement, ask)
        with in_words_of(statement, text):
            yield text, as_of

    def run(
        self,
        statement: str,
        cancelled: Callable[[], bool] = lambda: False,
        only: Portion | None = None,
    ) -> RunningStatement:
        """Plan the statement (in the engine's dialect), open its legs; the rows come from the result's `batches`.

        With `only`, which must be of a divisible plan, the answer is that part of it.

        Raises `SqlError` and the other planning errors, and whatever the executors answered last when no new plan
        helped. `cancelled` is asked before each of them.
        """
        return self.inlined.run(statement, lambda text: self._begun(text, cancelled, only))

    def _begun(self, statement: str, cancelled: Callable[[], bool], only: Portion | None) -> RunningStatement:
        for _ in range(MAX_OVERTAKEN):
            with self._spelled(statement, cancelled) as (text, as_of):
                running = self._run(text, cancelled, only, as_of)
                found = running if as_of is None else begun(running)
            if found is not None:
                return found
        raise TryLater(
            f"{OVERTAKEN}, {MAX_OVERTAKEN} times: say with IN which values it is for, or try again later"
        )

    def _run(
        self, text: str, cancelled: Callable[[], bool], only: Portion | None, as_of: AsOf | None
    ) -> RunningStatement:
        started_ms = self.runtime.monotonic_ms()
        first = self._start(text, cancelled, only, started_ms, 0, as_of)

        # Whoever takes the rows: it is asked for by the same client.
        again = carried(lambda error: self._start_again(first, error, text, cancelled, only, started_ms, as_of))
        return evolve(first, batches=until_given(first, again, self._turns.has_rows))

    def _start_again(
        self,
        first: RunningStatement,
        error: BallistaError,
        statement: str,
        cancelled: Callable[[], bool],
        only: Portion | None,
        started_ms: float,
        as_of: AsOf | None,
    ) -> RunningStatement | None:
        """Another run of a statement of which no row was given out, when an executor is gone or refused what took
        the place of another's; None for other errors."""
        view = self.views.current(())
        if first.running.replans >= MAX_REPLANS or cancelled():
            return None
        if not isinstance(error, _REFUSED) and not any(
            is_link_failure(error, address) for address in view.addresses.values()
        ):
            return None
        self._condemn(view, error, self.runtime.monotonic_ms())
        self._retried()
        if isinstance(error, _REFUSED):  # what begins anew, here or there, takes a moment
            pause(self.runtime, REPLAN_WAIT_MS * (first.running.replans + 1), error)
        other = self._start(statement, cancelled, only, started_ms, first.running.replans + 1, as_of)
        if other.schema.equals(first.schema):
            return other
        other.cancel()
        return None

    def _start(
        self,
        statement: str,
        cancelled: Callable[[], bool],
        only: Portion | None,
        started_ms: float,
        replans: int,
        as_of: AsOf | None = None,
    ) -> RunningStatement:
        view = self._view_for(statement)
        broadcasting, is_fresh, altered = True, False, 0
        while True:
            asked_ms = self.runtime.monotonic_ms()
            try:
                # A replica that would not answer may be loading still; owners are the ones who must.
                seen = view if broadcasting else evolve(view, catalog=evolve(view.catalog, broadcasts=None))
                plan, legs = self._plan(seen, statement, only, owners_only=replans > 0, timed=only is None)
                self._turns.take(plan)
                legs = self._pinned(view, legs, only, as_of)
                if not is_fresh and self.is_behind(view, {table.table for leg in legs for table in leg.tables}):
                    view, is_fresh = self.views.refresh(words_of(statement)), True
                    continue
                run = QueryRun(
                    view=view,
                    plan=plan,
                    legs=legs,
                    engine=self.engine,
                    open_legs=opener_of(self.open_legs, self.scans, view, plan),
                    elsewhere=partial(self._elsewhere, view, plan),
                    runtime=self.runtime,
                    cancelled=cancelled,
                    wrote=statement,
                    figures=self.figures,
                )
                self.begins(run)
                return run.start(started_ms, replans)
            except BroadcastTooLargeError:
                broadcasting = False
                continue
            except SqlError:  # of what is wrong, or of what was planned for another definition of a table
                words, before = words_of(statement), view
                view, is_fresh, altered = self.views.refresh(words), True, altered + 1
                if altered > MAX_ALTERED or view.marks(words) == before.marks(words) or cancelled():
                    raise
                continue
            except (*_REFUSED, TransportError, PartitionsUnassigned) as error:
                waits = self.runtime.monotonic_ms() - started_ms < PATIENCE_MS
                again = waits if isinstance(error, _REFUSED) else replans < MAX_REPLANS
                if not again or isinstance(error, TryLater) or cancelled():
                    raise
                condemned, obstacle = self._condemn(view, error, asked_ms), error
            replans += 1
            self._retried()
            if not condemned:  # else there may be a copy, which need not be waited for
                pause(self.runtime, min(REPLAN_WAIT_MS * replans, LONGEST_WAIT_MS), obstacle)
            view, is_fresh = self.views.refresh(words_of(statement)), True

    def begins(self, run: QueryRun) -> None:
        """A statement of this thread is about to be run so; who watches statements is told. Nobody does here."""

    def _retried(self) -> None:
        """A statement is planned again, and its stages begin again."""
        self.figures.add("node_task_retries")
        self.figures.add("scheduler_stage_retries")

    def is_behind(self, view: ClusterView, tables: Collection[str]) -> bool:
        """Whether one of the tables may have been altered since the view was read, as of the last look at sequences.

        A view that was read after that look is as new as can be, whatever was announced.
        """
        known = view.catalog.tables
        return any(name in known and known[name].definition < n for name, n in self.definitions(tables).items())

    def _newest_for(self, statement: str) -> ClusterView:
        """As `_view_for`, and no older than what was altered by now."""
        view = self._view_for(statement)
        words = words_of(statement)
        named = {name for name, table in view.catalog.tables.items() if name in words and not table.is_piped}
        if named:
            self.sequences(named)
        return self.views.refresh(words) if self.is_behind(view, named) else view

    def _condemn(self, view: ClusterView, error: BallistaError, asked_ms: float) -> bool:
        """Whether the error says that an executor could not be reached that was not suspected so far."""
        names = [name for name, address in view.addresses.items() if is_link_failure(error, address)]
        found = [owner for owner in view.members if owner[0] in names]
        new = [owner for owner in found if owner not in self._suspected(view)]
        suspects = self._suspects.only(view.members)
        for owner in found:
            suspects = suspects.condemned(owner, asked_ms)
        self._suspects = suspects
        return bool(new)

    def _elsewhere(self, view: ClusterView, plan: QueryPlan, failed: Leg, error: BaseException) -> tuple[Leg, ...]:
        """The legs at copies that give what a leg would have given whose executor could not be reached any more."""
        address = view.addresses[failed.executor_id]
        if not isinstance(error, BallistaError) or not is_link_failure(error, address):
            return ()
        self._condemn(view, error, self.runtime.monotonic_ms())
        for left_out in self._left_out(view):
            if not any(owner[0] == failed.executor_id for owner in left_out):
                break  # it would be asked again
            with suppress(PartitionsUnassigned):
                return copies_of(failed, plan, view.catalog, view.members - left_out)
        return ()

    def _left_out(self, view: ClusterView) -> tuple[frozenset[Owner], ...]:
        return self._suspects.to_leave_out(view.members, self.heard_ms())

    def _suspected(self, view: ClusterView) -> frozenset[Owner]:
        return self._suspects.among(view.members, self.heard_ms())

    def _legs(self, plan: QueryPlan, view: ClusterView, owners_only: bool) -> tuple[Leg, ...]:
        """The legs, at as few of the executors that are suspected as there can be."""
        for left_out in self._left_out(view)[:-1]:
            with suppress(PartitionsUnassigned):
                return legs_of(plan, view.catalog, view.members - left_out, owners_only)
        return legs_of(plan, view.catalog, view.members, owners_only)

    def _view_for(self, statement: str) -> ClusterView:
        """The current view, or a fresh one if the statement does not bind: a table may be new."""
        words = words_of(statement)
        view = self.views.current(words)
        try:
            self._patiently(lambda: self.plans.output(statement, view.catalog))
        except SqlError:
            view = self.views.refresh(words)
            view.require_usable(words)
        return view

    def _patiently(self, bind: Callable[[], T]) -> T:
        """What `bind` gives, asked again while the engine of this node begins anew after somebody's statement."""
        until_ms = self.runtime.monotonic_ms() + PATIENCE_MS
        while True:
            try:
                return bind()
            except NotOwner as error:
                if self.runtime.monotonic_ms() >= until_ms:
                    raise
                pause(self.runtime, REPLAN_WAIT_MS, error)

    def _plan(
        self,
        view: ClusterView,
        statement: str,
        only: Portion | None = None,
        owners_only: bool = False,
        timed: bool = False,
        told: bool = False,
    ) -> tuple[QueryPlan, tuple[Leg, ...]]:
        # What is answered in parts, or by somebody else, has no moment in common but that of its merge.
        plan = self.plans.plan(statement, view.catalog, timed=timed)
        if only is not None:
            plan = restricted(plan, only.partitions)
        legs = self._legs(plan, view, owners_only)
        if view.catalog.scanned and self.scans is not None:
            live = view.members - self._suspected(view)
            plan, legs = self.scans.with_tasks(plan, legs, view, live, told=told)
        if self.max_replica_lag_ms:
            legs = tuple(evolve(leg, max_replica_lag_ms=self.max_replica_lag_ms) for leg in legs)
        return plan, legs

    def _pinned(
        self,
        view: ClusterView,
        legs: tuple[Leg, ...],
        only: Portion | None = None,
        as_of: AsOf | None = None,
    ) -> tuple[Leg, ...]:
        """The legs, to be read as of one sequence of each table's statements over several partitions.

        That is the sequence of now, or of the instant at which the answer was divided, or `as_of`. Raises `NotOwner`
        when a table grew partitions in between, in which such a statement may have put rows.
        """
        names = {table.table for leg in legs for table in leg.tables}
        sequences = {**self.sequences(names), **(as_of or {})} if only is None else only.sequences
        if not sequences:
            return legs
        now = self.views.current(sequences).catalog.maps
        for name in sequences if only is None else ():
            if name not in now or len(now[name]) != len(view.catalog.maps[name]):
                raise NotOwner(f"table '{name}' has changed since the statement was planned", table=name)
        return tuple(
            evolve(leg, tables=tuple(evolve(t, sequence=sequences.get(t.table)) for t in leg.tables))
            for leg in legs
        )
