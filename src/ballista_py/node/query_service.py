"""Statements at a scheduler: bind, plan, open the legs, merge, stream; plan again when an owner was none.

A statement covers every partition that it needs exactly once, at the epochs of one catalog, or raises. It is
planned again (at most `MAX_REPLANS` times) only while nothing of its answer was given out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa
from attrs import Factory, define, evolve, field, frozen

from ballista_py.engines.engine import Engine
from ballista_py.errors import (
    BallistaError,
    LeaseExpired,
    NotOwner,
    PartitionsUnassigned,
    SqlError,
    TransportError,
    TryLater,
)
from ballista_py.node.answer_columns import conformed
from ballista_py.node.broadcasts import Broadcasts, BroadcastTooLargeError
from ballista_py.node.plans import Plans
from ballista_py.planning.explain import explain_text, plan_as_dict
from ballista_py.planning.legs import legs_of
from ballista_py.planning.parts import Portion, restricted
from ballista_py.planning.query_plan import Broadcast, Catalog, Fragment, Leg, LegProgress, QueryPlan
from ballista_py.planning.table import TableSpec
from ballista_py.runtime import Runtime

MAX_REPLANS = 3
REPLAN_WAIT_MS = 150
_WORTH_A_NEW_PLAN = (NotOwner, LeaseExpired, TransportError)


@frozen(kw_only=True)
class ClusterView:
    """The catalog, the members (executor id, instance id) and the data address of each executor, as last read.

    `locations` are URIs at which clients may fetch parts of answers, by executor; one that gives none is missing.
    `dropped` are tables that are no more, each with the revision that its map has.
    """

    catalog: Catalog
    members: frozenset[tuple[str, str]]
    addresses: Mapping[str, str]
    dropped: Mapping[str, tuple[TableSpec, int]] = Factory(dict)
    locations: Mapping[str, str] = Factory(dict)


class Views(Protocol):
    """Where the service takes its view from; `refresh` reads the store."""

    def current(self) -> ClusterView: ...
    def refresh(self) -> ClusterView: ...


class LegStreams(Protocol):
    """The open legs of one fragment as one stream: every one of their executors has accepted its leg."""

    schema: pa.Schema

    @property
    def error(self) -> BaseException | None: ...
    @property
    def bytes_received(self) -> int: ...
    @property
    def progress(self) -> tuple[LegProgress, ...]: ...
    def batches(self) -> Iterator[pa.RecordBatch]: ...
    def cancel(self) -> None: ...


Sequences = Callable[[Collection[str]], Mapping[str, int]]
OpenLegs = Callable[[Sequence[Sequence[Leg]], Mapping[str, str]], Sequence[LegStreams]]
"""Starts the legs of several fragments at once; raises, with none of them left, if one is not accepted."""


@define
class Statement:
    """One statement under way. Read `batches` once; `stats` is complete after the last one."""

    schema: pa.Schema
    _batches: Iterator[pa.RecordBatch]
    _plan: QueryPlan
    _legs: tuple[Leg, ...]
    _streams: Sequence[LegStreams]
    _started_ms: float
    _runtime: Runtime
    _cancel_merge: Callable[[], None]
    replans: int
    _sent_bytes: int = 0
    _of_streams: Sequence[Sequence[Leg]] = ()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, lazily; every error of a leg or of the merge comes out here."""
        return self._batches

    def cancel(self) -> None:
        """Stop the legs and the merge. Safe from any thread, also after the end."""
        self._cancel_merge()  # first, or it is a link that fails
        for stream in self._streams:
            stream.cancel()

    def explained(self) -> dict[str, Any]:
        """The plan as `QueryService.explain` gives it, with what every leg has given."""
        measured = {
            (leg.fragment, leg.executor_id): given
            for legs, stream in zip(self._of_streams, self._streams, strict=True)
            for leg, given in zip(legs, stream.progress, strict=True)
        }
        text = explain_text(self._plan, self._legs, measured)
        return {**plan_as_dict(self._plan, self._legs, measured), "text": text, "stats": self.stats()}

    def stats(self) -> dict[str, Any]:
        """What the statement touched: partitions, executors, legs, bytes shipped by and with legs, milliseconds."""
        split = [t for fragment in self._plan.fragments for t in fragment.tables if not t.whole]
        return {
            "partitions": len({(t.table, p) for t in split for p in t.partitions}),
            "partitions_total": sum({t.table: t.total for t in split}.values()),
            "executors": sorted({leg.executor_id for leg in self._legs}),
            "legs": len(self._legs),
            "shipped_bytes": self._sent_bytes + sum(stream.bytes_received for stream in self._streams),
            "took_ms": self._runtime.monotonic_ms() - self._started_ms,
            "replans": self.replans,
        }


@define
class QueryService:
    """Plans and runs statements. Thread-safe. `engine` binds statements and merges streams.

    `sequences` tells how many statements over several partitions are committed, for the tables that can have any.
    What replicas give is at most `max_replica_lag_ms` old; with 0 it is never older than the statement.
    """

    views: Views
    engine: Engine
    open_legs: OpenLegs
    runtime: Runtime
    sequences: Sequences = field(default=lambda _tables: {}, kw_only=True)
    max_replica_lag_ms: float = field(default=0.0, kw_only=True)
    plans: Plans = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.plans = Plans(self.engine, self.runtime)

    def explain(self, statement: str, analyze: bool = False) -> dict[str, Any]:
        """The plan as a dict, with the same in words under `text`. Raises what `run` raises while it plans.

        With `analyze` the statement is run, its rows are thrown away, and legs say what they gave; `stats` are those
        of the statement.
        """
        if analyze:
            running = self.run(statement)
            try:
                for _ in running.batches():
                    pass
                return running.explained()
            finally:
                running.cancel()
        plan, legs = self._plan(self._view_for(statement), statement, timed=True)
        return {**plan_as_dict(plan, legs), "text": explain_text(plan, legs)}

    def describe(self, statement: str) -> pa.Schema:
        """The columns of the statement's answer, as a single node gives them. Raises `SqlError`."""
        return self.plans.output(statement, self._view_for(statement).catalog)

    def plan(self, statement: str) -> tuple[QueryPlan, tuple[Leg, ...], ClusterView]:
        """How the statement would run, and over what, as of now. Raises what `run` raises while it plans."""
        view = self._view_for(statement)
        plan, legs = self._plan(view, statement)
        return plan, self._pinned(view, legs), view

    def planned(self, statement: str, fresh: bool = False) -> tuple[QueryPlan, ClusterView]:
        """How the statement would run, whoever lives; with `fresh`, by what the store says now."""
        view = self.views.refresh() if fresh else self._view_for(statement)
        return self.plans.plan(statement, view.catalog), view

    def run(
        self,
        statement: str,
        cancelled: Callable[[], bool] = lambda: False,
        only: Portion | None = None,
    ) -> Statement:
        """Plan the statement (in the engine's dialect), open its legs; the rows come from the result's `batches`.

        With `only`, which must be of a divisible plan, the answer is that part of it.

        Raises `SqlError` and the other planning errors, and after `MAX_REPLANS` new plans whatever the executors
        answered last. `cancelled` is asked before each new plan.
        """
        started_ms = self.runtime.monotonic_ms()
        view = self._view_for(statement)
        replans, broadcasting = 0, True
        while True:
            try:
                # A replica that would not answer may be loading still; owners are the ones who must.
                seen = view if broadcasting else _without_broadcasts(view)
                plan, legs = self._plan(seen, statement, only, owners_only=replans > 0, timed=only is None)
                return self._open(view, plan, legs, started_ms, replans, cancelled, only)
            except BroadcastTooLargeError:
                broadcasting = False
                continue
            except (*_WORTH_A_NEW_PLAN, PartitionsUnassigned) as error:
                if replans == MAX_REPLANS or isinstance(error, TryLater) or cancelled():
                    raise
            replans += 1
            self.runtime.sleep_ms(REPLAN_WAIT_MS * replans)
            view = self.views.refresh()

    def _view_for(self, statement: str) -> ClusterView:
        """The current view, or a fresh one if the statement does not bind: a table may be new."""
        view = self.views.current()
        try:
            self.plans.output(statement, view.catalog)
        except SqlError:
            view = self.views.refresh()
        return view

    def _plan(
        self,
        view: ClusterView,
        statement: str,
        only: Portion | None = None,
        owners_only: bool = False,
        timed: bool = False,
    ) -> tuple[QueryPlan, tuple[Leg, ...]]:
        # What is answered in parts, or by somebody else, has no moment in common but that of its merge.
        plan = self.plans.plan(statement, view.catalog, timed=timed)
        if only is not None:
            plan = restricted(plan, only.partitions)
        legs = legs_of(plan, view.catalog, view.members, owners_only)
        if self.max_replica_lag_ms:
            legs = tuple(evolve(leg, max_replica_lag_ms=self.max_replica_lag_ms) for leg in legs)
        return plan, legs

    def _pinned(self, view: ClusterView, legs: tuple[Leg, ...], only: Portion | None = None) -> tuple[Leg, ...]:
        """The legs, to be read as of one sequence of each table's statements over several partitions.

        That is the sequence of now, or of the instant at which the answer was divided. Raises `NotOwner` when a
        table grew partitions in between, in which such a statement may have put rows.
        """
        names = {table.table for leg in legs for table in leg.tables}
        sequences = self.sequences(names) if only is None else only.sequences
        if not sequences:
            return legs
        now = self.views.current().catalog.maps
        for name in sequences if only is None else ():
            if name not in now or len(now[name]) != len(view.catalog.maps[name]):
                raise NotOwner(f"table '{name}' has changed since the statement was planned", table=name)
        return tuple(
            evolve(leg, tables=tuple(evolve(t, sequence=sequences.get(t.table)) for t in leg.tables))
            for leg in legs
        )

    def _open(
        self,
        view: ClusterView,
        plan: QueryPlan,
        legs: tuple[Leg, ...],
        started_ms: float,
        replans: int,
        cancelled: Callable[[], bool],
        only: Portion | None,
    ) -> Statement:
        opened: list[LegStreams] = []
        of_streams: list[Sequence[Leg]] = []
        sent = Broadcasts()
        legs = self._pinned(view, legs, only)

        fragments = {fragment.name: fragment for fragment in plan.fragments}

        def open_all(wanted: Sequence[tuple[str, str]]) -> dict[tuple[str, str], LegStreams]:
            """The streams of fragments, by who reads them and name; one that was pruned to nothing has none."""
            legs_of_each = {key: [leg for leg in legs if leg.fragment == key[1]] for key in wanted}
            own = {key: found for key, found in legs_of_each.items() if found}
            asked = [sent.loaded(found, fragments[name]) for (_, name), found in own.items()]
            found = self.open_legs(asked, view.addresses) if asked else ()
            opened.extend(found)
            of_streams.extend(own.values())
            return dict(zip(own, found, strict=True))

        try:
            early: dict[tuple[str, str], LegStreams] = {}
            repeated = plan.repeated
            started = set(repeated)
            for broadcast in plan.broadcasts:
                if broadcast.name in repeated:
                    sent.repeat(broadcast.name, repeated[broadcast.name])
                    continue
                ready = [
                    one for one in plan.broadcasts if one.name not in started and _may_start(one, fragments, sent)
                ]
                started |= {one.name for one in ready}
                early |= open_all([(one.name, name) for one in ready for name in one.fragments])
                own = {
                    name: early.pop(key)
                    for name in broadcast.fragments
                    if (key := (broadcast.name, name)) in early
                }
                self._broadcast(view, plan, broadcast, sent, own, cancelled)
            merged = open_all([("", fragment.name) for fragment in plan.fragments if fragment.merged])
            streams = {name: stream for (_, name), stream in merged.items()}
            batches, cancel = self._merge(view, plan, streams, sent)
        except BaseException:
            for stream in opened:
                stream.cancel()
            raise
        return Statement(
            schema=plan.output,
            batches=batches,
            plan=plan,
            legs=legs,
            streams=tuple(opened),
            started_ms=started_ms,
            runtime=self.runtime,
            cancel_merge=cancel,
            replans=replans,
            sent_bytes=sent.sent_bytes,
            of_streams=tuple(of_streams),
        )

    def _broadcast(
        self,
        view: ClusterView,
        plan: QueryPlan,
        broadcast: Broadcast,
        sent: Broadcasts,
        streams: Mapping[str, LegStreams],
        cancelled: Callable[[], bool],
    ) -> None:
        """Compute one broadcast over the streams of its fragments."""
        assert view.catalog.broadcasts is not None
        max_bytes = view.catalog.broadcasts.max_bytes
        if broadcast.plain and streams:
            (stream,) = streams.values()
            rows = conformed(_until(stream.batches(), cancelled), stream.schema)
            sent.add(broadcast.name, rows, stream.schema, max_bytes)
            return
        relations = self._relations(view, plan, broadcast.fragments, streams, sent)
        running = self.engine.query(broadcast.sql, streams={**relations, **sent.of(broadcast.uses)})
        try:
            rows = _with_own_errors(_until(running.batches(), cancelled), tuple(streams.values()))
            sent.add(broadcast.name, rows, running.schema, max_bytes)
        except BaseException:
            running.cancel()
            raise

    def _merge(
        self, view: ClusterView, plan: QueryPlan, streams: Mapping[str, LegStreams], sent: Broadcasts
    ) -> tuple[Iterator[pa.RecordBatch], Callable[[], None]]:
        """The rows of the answer, cast to the plan's output, and how to stop making them."""
        if plan.merge_sql is None:
            return conformed((b for s in streams.values() for b in s.batches()), plan.output), _nothing
        names = [fragment.name for fragment in plan.fragments if fragment.merged]
        relations = self._relations(view, plan, names, streams, sent)
        running = self.engine.query(plan.merge_sql, streams={**relations, **sent.of(plan.merge_uses)})
        rows = _with_own_errors(running.batches(), tuple(streams.values()))
        return conformed(rows, plan.output), running.cancel

    def _relations(
        self,
        view: ClusterView,
        plan: QueryPlan,
        names: Collection[str],
        streams: Mapping[str, LegStreams],
        sent: Broadcasts,
    ) -> dict[str, pa.RecordBatchReader | pa.Table]:
        """What a merge reads of these fragments. The engine keeps a stream that it reads twice, and may spill it."""
        schemas = view.catalog.schemas
        relations: dict[str, pa.RecordBatchReader | pa.Table] = {}
        for fragment in plan.fragments:
            stream = streams.get(fragment.name)
            if fragment.name not in names:
                continue
            if stream is None:  # pruned to nothing: an empty relation of the fragment's form
                known = {**schemas, **sent.schemas_of(fragment)}
                relations[fragment.name] = self.engine.describe(fragment.sql, known).empty_table()
            else:
                relations[fragment.name] = pa.RecordBatchReader.from_batches(stream.schema, stream.batches())
        return relations


def _may_start(broadcast: Broadcast, fragments: Mapping[str, Fragment], sent: Broadcasts) -> bool:
    """Whether all that the legs of a broadcast read is complete."""
    return all(use in sent.tables for name in broadcast.fragments for use in fragments[name].uses)


def _without_broadcasts(view: ClusterView) -> ClusterView:
    return evolve(view, catalog=evolve(view.catalog, broadcasts=None))


def _until(batches: Iterable[pa.RecordBatch], cancelled: Callable[[], bool]) -> Iterator[pa.RecordBatch]:
    """The same batches, until the client is gone."""
    for batch in batches:
        if cancelled():
            raise TransportError("The query was cancelled")
        yield batch


def _with_own_errors(batches: Iterable[pa.RecordBatch], streams: Sequence[LegStreams]) -> Iterator[pa.RecordBatch]:
    """The same batches; where the merge fails because a leg failed, the leg's error is raised."""
    try:
        yield from batches
    except Exception as error:
        for stream in streams:
            if isinstance(stream.error, BallistaError):
                raise stream.error from None
        raise error


def _nothing() -> None:
    """There is no merge to stop."""
