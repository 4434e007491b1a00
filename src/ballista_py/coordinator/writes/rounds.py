"""Rounds of a write: asked again with fresh views while that may help, complete in the end or named.

Two ways lead through all partitions. In the first each owner applies its share by itself, under the token. In the
second every owner prepares its share, the attempt is decided once, and the owners fold it in.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from attrs import field, frozen

from ballista_py.coordinator.cluster_view import ClusterView, Views
from ballista_py.coordinator.writes.owner_calls import (
    WORTH_ANOTHER_TRY,
    Order,
    Outcome,
    OwnerCalls,
    failure_of,
    next_step,
    worst_of,
)
from ballista_py.errors import (
    BallistaError,
    PartitionsUnassigned,
    PositionMoved,
    SqlError,
    TableAltered,
)
from ballista_py.partitions.set_cover import without_room
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import Runtime
from ballista_py.state.documents.decisions import Decision, KnownDecisions, SourceSpan, TableDecisions
from ballista_py.state.documents.undecided import attempt_by, is_orphan
from ballista_py.state.documents.write_tokens import PATIENCE_MS
from ballista_py.state.ownership.catalog_proof import require_announced
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.work import pause, working

FIRST_WAIT_MS = 50.0
LONGEST_WAIT_MS = 1_000.0


class Growth(Protocol):
    """What a scheduler does so that rows have somewhere to go."""

    def add_values(self, table: str, values: Sequence[tuple[Any, ...]]) -> None:
        """Give the table partitions for these values, and every partition an owner; returns when committed."""
        ...

    def table_is_served(self, table: str, *, by_owners: bool = False) -> bool:
        """Whether every partition of the table is loaded at its owner; a replicated one at every executor, unless
        its owner is enough."""
        ...

    def reconcile_table(self, *tables: str) -> None:
        """Bring tables of these names, and no other, to where they should be, and tell the executors, also that there
        is none any more; returns when committed."""
        ...


class AlreadyDecided(Exception):
    """The statement that is being prepared was decided before: nothing more is sent to owners."""

    def __init__(self, decision: Decision) -> None:
        super().__init__(decision)
        self.decision = decision


@frozen
class WriteRounds:
    """Runs rounds for at most `patience_ms`. Thread-safe. `instance` is that of the scheduler now."""

    views: Views
    store: ConditionalStore
    calls: OwnerCalls
    growth: Growth
    runtime: Runtime
    patience_ms: float = PATIENCE_MS
    instance: Callable[[], str] = str
    _known: KnownDecisions = field(init=False)

    @_known.default
    def _nothing_known(self) -> KnownDecisions:
        return KnownDecisions(self.runtime)

    def until_done(
        self,
        table: TableSpec,
        one: Callable[[ClusterView], Outcome],
        done: dict[int, int],
        *,
        repeatable: Callable[[], bool] = lambda: True,
    ) -> int:
        """Call `one` with fresh views until every partition applied its share; the rows affected.

        It is called again only while it is `repeatable`.
        """
        deadline_ms = self.runtime.monotonic_ms() + self.patience_ms
        wait_ms = FIRST_WAIT_MS
        view = self.view(table)
        while True:
            errors: Mapping[int, BallistaError] = {}
            obstacle: BallistaError | None = None
            altered: BallistaError | None = None
            try:
                outcome = one(view)
                done.update(outcome.affected)
                errors = {p: e for p, e in outcome.errors.items() if p not in done}
                altered = next((e for e in errors.values() if isinstance(e, TableAltered)), None)
                if altered is not None and not done:
                    raise altered
                if not errors:
                    if self._is_there(table):  # else nobody will read it again under that name
                        self.calls.reload(self.view(table), table, sorted(done))
                    return sum(done.values())
            except WORTH_ANOTHER_TRY as error:
                obstacle = error
                is_altered = isinstance(error, TableAltered)
                if is_altered or not self._may_repeat(repeatable, deadline_ms):
                    if not done:
                        raise
                    pmap = view.catalog.maps[table.name]
                    raise failure_of(table.name, pmap, {}, done, error) from error
            may_repeat = altered is None and self._may_repeat(repeatable, deadline_ms)
            if next_step(errors, may_repeat=may_repeat) == "over":
                raise failure_of(table.name, view.catalog.maps[table.name], errors, done, worst_of(errors))
            pause(self.runtime, wait_ms, worst_of(errors) if errors else obstacle)
            wait_ms = min(LONGEST_WAIT_MS, 2 * wait_ms)
            self.views.refresh({table.name})
            try:
                view = self.view(table)
            except SqlError as error:
                if not done or self._now(table) is None:
                    raise
                # Under another name it has what was applied: nobody may take that for nothing.
                raise failure_of(table.name, view.catalog.maps[table.name], errors, done, error) from error

    def _may_repeat(self, repeatable: Callable[[], bool], deadline_ms: float) -> bool:
        return repeatable() and self.runtime.monotonic_ms() <= deadline_ms

    def once(
        self,
        table: TableSpec,
        token: str,
        prepare: Callable[[Order, ClusterView], Outcome],
        affected: Callable[[], int] | None = None,
        repeatable: Callable[[], bool] = lambda: True,
        final: Callable[[], str] | None = None,
        span: SourceSpan | None = None,
    ) -> Decision:
        """Prepare an attempt everywhere, decide it, have it folded in; attempt it again where that may help.

        `prepare` is given what all owners are asked under this attempt, with the moment that all of them read.
        `affected` tells how many rows are (default: the sum of what was prepared). Where the token is that of rows
        which are read by `prepare`, `final` gives it then, and `prepare` raises `AlreadyDecided` if it is known.
        Changes of a source are those of a `span`: raises `PositionMoved` unless the table stands where that begins.
        """
        statements = self.statements(table)
        deadline_ms = self.runtime.monotonic_ms() + self.patience_ms
        wait_ms = FIRST_WAIT_MS
        while True:
            before = statements.read()
            earlier = before.of(token)
            if earlier is not None:
                return self._decided_before(table, earlier)
            require_announced(table.folder, before.announced, table.definition)
            if before.announced > table.definition:
                raise TableAltered(
                    f"table '{table.name}' was altered meanwhile: plan the statement again", table=table.name
                )
            if span is not None and span.since != before.position:
                raise PositionMoved.at(table.name, span.since, before.position)
            attempt = attempt_by(self.instance(), self.runtime.new_id())
            view = self.view(table)
            obstacle: BallistaError | None = None
            try:
                order = Order(table=table, token=token, attempt=attempt, sequence=before.sequence)
                outcome = prepare(order, view)
                if outcome.errors:
                    self._give_up(table, statements, attempt, token, outcome.waiting)
                    raise worst_of(outcome.errors)
            except TableAltered:
                raise
            except AlreadyDecided as known:
                return self._decided_before(table, known.decision)
            except WORTH_ANOTHER_TRY as error:
                if not self._may_repeat(repeatable, deadline_ms):
                    raise
                obstacle = error
            else:
                token = token if final is None else final()
                total = sum(outcome.affected.values()) if affected is None else affected()
                decision = statements.commit(
                    attempt,
                    token,
                    affected=total,
                    begun=before.decisions_made,
                    settled=not outcome.waiting,
                    definition=table.definition,
                    span=span,
                )
                if decision.committed:
                    if not decision.settled:
                        self.fold(table, token, decision, outcome.waiting)
                    return decision
                self._give_up(table, statements, attempt, token, outcome.waiting)
            pause(self.runtime, wait_ms * (0.5 + self.runtime.random()), obstacle)
            wait_ms = min(LONGEST_WAIT_MS, 2 * wait_ms)
            self.views.refresh({table.name})

    def decided_before(self, table: TableSpec, token: str) -> Decision | None:
        """The decision on a statement that counts already, folded in everywhere; None if there is none."""
        earlier = self.statements(table).read().of(token)
        return None if earlier is None else self._decided_before(table, earlier)

    def _decided_before(self, table: TableSpec, decision: Decision) -> Decision:
        """That of a statement sent again, which is folded in everywhere before it is told."""
        if not decision.settled:
            everywhere = self.view(table).catalog.maps[table.name].ids().tolist()
            self.fold(table, decision.token, decision, everywhere)
        return decision

    def fold(self, table: TableSpec, token: str, decision: Decision, partitions: Sequence[int]) -> None:
        """Have a decided attempt folded in where it was prepared. It counts, whatever happens here."""
        waiting = set(partitions)

        def one(view: ClusterView) -> Outcome:
            order = Order(table=table, token=token, attempt=decision.attempt)
            outcome = self.calls.settle(order, view, sorted(waiting), decision.sequence)
            waiting.difference_update(outcome.affected)
            return outcome

        with working(None):  # it is decided: whoever waits for it no more, or not so long, has it done in any case
            try:
                self.until_done(table, one, {})
            except (SqlError, TableAltered):
                now = self._now(table)
                if now is None:  # it counted in a table that was dropped or replaced since
                    return
                if now.name == table.name:
                    raise
                self.fold(now, token, decision, partitions)
                return
            self.statements(table).settle(decision.attempt)

    def settle_left_over(self, schedulers: Collection[str]) -> int:
        """Have folded in what schedulers committed that are none of these instances any more; how many statements.

        They count already; as long as they are not known to be folded in everywhere they take up room. Raises what
        the store and `fold` raise; what is left then is found again.
        """
        settled = 0
        for table in self.views.refresh(()).catalog.tables.values():
            if table.is_piped:
                continue
            for decision in self.statements(table).read().decisions:
                if decision.committed and not decision.settled and is_orphan(decision.attempt, schedulers):
                    everywhere = self.view(table).catalog.maps[table.name].ids().tolist()
                    self.fold(table, decision.token, decision, everywhere)
                    settled += 1
        return settled

    def _give_up(
        self, table: TableSpec, statements: TableDecisions, attempt: str, token: str, partitions: Sequence[int]
    ) -> None:
        """Abort an attempt. Owners that cannot be told find out by themselves."""
        statements.abort(attempt, token)
        try:
            order = Order(table=table, token=token, attempt=attempt)
            self.calls.settle(order, self.view(table), partitions, None)
        except BallistaError:
            return

    def known(self, table: TableSpec) -> Callable[[Sequence[tuple[Any, ...]]], ClusterView]:
        """Gives views in which values have partitions with owners, making them if need be."""

        def ask(values: Sequence[tuple[Any, ...]]) -> ClusterView:
            deadline_ms, wanted = self.runtime.monotonic_ms() + self.patience_ms, values
            while True:
                error = self._grown(table, wanted)
                self.views.refresh({table.name})
                view = self.view(table)
                pmap = view.catalog.maps[table.name]
                found = [pmap.index(value) for value in values]
                wanted = [
                    v for v, p in zip(values, found, strict=True) if p is None or pmap.owner(p) not in view.members
                ]
                if not wanted:
                    return view
                if self.runtime.monotonic_ms() > deadline_ms:
                    pairs = zip(table.spec.keys, wanted[0], strict=True)
                    shown = ", ".join(f"{key.expression}={value}" for key, value in pairs)
                    raise error or without_room(table.name, shown, len(wanted), len(values))
                pause(self.runtime, FIRST_WAIT_MS)

        return ask

    def _grown(self, table: TableSpec, values: Sequence[tuple[Any, ...]]) -> PartitionsUnassigned | None:
        """Ask for partitions of these values; why there is no room for them, if there is none now."""
        try:
            self.growth.add_values(table.name, values)
        except PartitionsUnassigned as error:
            return error
        return None

    def view(self, table: TableSpec) -> ClusterView:
        """A view that has the very table. Raises `SqlError` when it was dropped."""
        for view in (self.views.current, self.views.refresh):
            found = view({table.name})
            now = found.catalog.tables.get(table.name)
            if now is not None and now.incarnation == table.incarnation:
                return found
        raise SqlError(f"table '{table.name}' does not exist any more")

    def _is_there(self, table: TableSpec) -> bool:
        """Whether the very table is there still, as far as this scheduler knows."""
        now = self._now(table)
        return now is not None and now.name == table.name

    def _now(self, table: TableSpec) -> TableSpec | None:
        """The very table as it is now, whatever it is called, as far as this scheduler knows; None if it is no more."""
        known = self.views.current(()).catalog.tables.values()
        return next((now for now in known if now.folder == table.folder), None)

    def statements(self, table: TableSpec) -> TableDecisions:
        """The decisions of a table."""
        return TableDecisions(self.store, table.folder, runtime=self.runtime, old=self._known.old)
