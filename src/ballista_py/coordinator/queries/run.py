"""One plan being run: legs are opened, what is broadcast is computed before the legs that read it, all is merged.

The stages of a plan that runs: a round of legs, a broadcast, a merge; each counted, timed and a span of its own.

The broadcasts of one statement: small relations that are complete before the legs that read them start.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from typing import Protocol

import pyarrow as pa
from attrs import Factory, define, evolve, field

from ballista_py.coordinator.cluster_view import ClusterView
from ballista_py.coordinator.queries.answer_columns import answered, blamed, not_asked, require_asked
from ballista_py.coordinator.queries.running_statement import FragmentStream, Running, RunningStatement
from ballista_py.engines.engine import Engine
from ballista_py.errors import BallistaError, TransportError
from ballista_py.figures import UNSEEN, Figures
from ballista_py.partitions.columns import conformed
from ballista_py.partitions.map import Owner
from ballista_py.runtime import Runtime
from ballista_py.sql.own_words import in_own_words
from ballista_py.sql.plan import Broadcast, Fragment, Leg, QueryPlan, relation_bytes
from ballista_py.traces import Span, current_span, within

LEGS, BROADCAST, MERGE = "legs", "broadcast", "merge"


@define(eq=False)
class Stage:
    """One stage, from construction until all of its `parts` have ended, one failed, or nobody reads them any more.

    Its parts end in the thread that reads the answer, or in those of an engine, one at a time. `legs` is how many legs
    it has; a merge has none.
    """

    kind: str
    figures: Figures
    runtime: Runtime
    legs: int = 0
    parts: int = 1
    span: Span | None = field(init=False, default=None)
    _began_ms: float = field(init=False)
    _over: bool = field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        self._began_ms = self.runtime.monotonic_ms()
        self.figures.add("scheduler_stages_total", kind=self.kind)
        if self.kind != MERGE:  # also of none, where everything was pruned: as many as there are stages
            self.figures.record("scheduler_tasks_per_stage", self.legs)
        outer = current_span()
        if outer is not None and outer.recorded:
            self.span = outer.child("stage", kind=self.kind, legs=self.legs)

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Around a piece of it; what raises there is the end of the stage."""
        try:
            with within(self.span or current_span()):
                yield
        except BaseException as error:
            self.end(error)
            raise

    def follow(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches of one of its parts, which ends with them."""
        try:
            yield from batches
        except GeneratorExit:
            self.end(None)
            raise
        except BaseException as error:
            self.end(error)
            raise
        self.part_ended()

    def part_ended(self) -> None:
        """One of the parts is complete."""
        self.parts -= 1
        if self.parts <= 0:
            self.end(None)

    def end(self, error: BaseException | None) -> None:
        """The stage is over; only the first time counts."""
        if self._over:
            return
        self._over = True
        if error is not None:
            self.figures.add("scheduler_stage_failures", kind=self.kind)
        took_ms = self.runtime.monotonic_ms() - self._began_ms
        self.figures.record("scheduler_stage_duration_ms", took_ms, kind=self.kind)
        if self.span is not None:
            self.span.end(error)


class BroadcastTooLargeError(Exception):
    """A relation that was to be broadcast is larger than it was estimated; the statement is planned without."""


@define
class Broadcasts:
    """Those that are complete, by name, and how many bytes of them went out with legs."""

    tables: dict[str, pa.Table] = Factory(dict)
    sent_bytes: int = 0
    _encoded: dict[int, bytes] = Factory(dict)  # by the identity of the table

    def add(self, name: str, batches: Iterable[pa.RecordBatch], schema: pa.Schema, max_bytes: int) -> None:
        """Take in all rows of one. Raises `BroadcastTooLargeError` as soon as they weigh more than `max_bytes`."""
        kept, weight = [], 0
        for batch in batches:
            kept.append(batch)
            weight += batch.nbytes
            if weight > max_bytes:
                raise BroadcastTooLargeError(f"broadcast '{name}' has more than {max_bytes:,} bytes")
        self.tables[name] = pa.Table.from_batches(kept, schema)

    def repeat(self, name: str, other: str) -> None:
        """Let one be the same as another, which is complete."""
        self.tables[name] = self.tables[other]

    def of(self, names: Iterable[str]) -> dict[str, pa.Table]:
        """The relations of these names."""
        return {name: self.tables[name] for name in names}

    def schemas_of(self, fragment: Fragment) -> Mapping[str, pa.Schema]:
        """The columns of what a fragment reads beside its tables."""
        return {name: self.tables[name].schema for name in fragment.uses}

    def loaded(self, legs: Iterable[Leg], fragment: Fragment) -> list[Leg]:
        """The legs of a fragment with the relations that they read."""
        relations = {name: self._bytes_of(name) for name in fragment.uses}
        found = [evolve(leg, relations=relations) if relations else leg for leg in legs]
        self.sent_bytes += len(found) * sum(map(len, relations.values()))
        return found

    def _bytes_of(self, name: str) -> bytes:
        """One as it travels; some are read at the merge only and never do."""
        rows = self.tables[name]
        if id(rows) not in self._encoded:
            self._encoded[id(rows)] = relation_bytes(rows)
        return self._encoded[id(rows)]


Elsewhere = Callable[[Leg, BaseException], Sequence[Leg]]
OpenLegs = Callable[[Sequence[Sequence[Leg]], Mapping[str, str], Elsewhere], Sequence[FragmentStream]]
"""Starts the legs of several fragments at once; raises, with none of them left, if one is not accepted.

One that fails later, and of which nothing was taken, is replaced by those that the third argument names, if any.
"""


class LakeLegs(Protocol):
    """What makes legs of scanned tables, and opens them beside others (`lake.scans.LakeScans`)."""

    def with_tasks(
        self, plan: QueryPlan, legs: tuple[Leg, ...], view: ClusterView, live: frozenset[Owner], *, told: bool
    ) -> tuple[QueryPlan, tuple[Leg, ...]]: ...
    def opener(self, view: ClusterView, plan: QueryPlan) -> OpenLegs: ...


def opener_of(plain: OpenLegs, scans: LakeLegs | None, view: ClusterView, plan: QueryPlan) -> OpenLegs:
    """What opens the legs of a plan: `plain`, unless it reads scanned tables."""
    return plain if scans is None or not view.catalog.scanned else scans.opener(view, plan)


_MOST_NAMED = 5


@define(kw_only=True)
class QueryRun:
    """The run of `plan` by `legs`, over what `view` knows. To be started once."""

    view: ClusterView
    plan: QueryPlan
    legs: tuple[Leg, ...]
    engine: Engine
    open_legs: OpenLegs
    elsewhere: Elsewhere
    runtime: Runtime
    cancelled: Callable[[], bool]
    wrote: str
    figures: Figures = UNSEEN
    _planned_ms: float = field(init=False)
    _sent: Broadcasts = field(init=False, factory=Broadcasts)
    _opened: list[FragmentStream] = field(init=False, factory=list)
    _of_streams: list[Sequence[Leg]] = field(init=False, factory=list)
    _fragments: Mapping[str, Fragment] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._planned_ms = self.runtime.monotonic_ms()
        self._fragments = {fragment.name: fragment for fragment in self.plan.fragments}

    def start(self, started_ms: float, replans: int) -> RunningStatement:
        """Compute the broadcasts and open all other legs. When it raises, none is left open.

        Errors of what was planned say nothing that `wrote`, the text of the user, does not hold.

        Raises `BroadcastTooLargeError`, `TransportError` once it is `cancelled`, and what legs and the engine raise.
        """
        try:
            self._broadcast_all()
            wanted = [("", fragment.name) for fragment in self.plan.fragments if fragment.merged]
            legs = self._round(LEGS, [name for _, name in wanted])
            with legs.under_way():
                merged = self._open(wanted)
            batches, cancel = self._merge({name: stream for (_, name), stream in merged.items()}, legs)
        except BaseException as error:
            for stream in self._opened:
                stream.cancel()
            raise in_own_words(error, self.wrote) from None
        return RunningStatement(
            schema=self.plan.output,
            batches=_said_in_own_words(batches, self.wrote),
            running=Running(
                plan=self.plan,
                legs=self.legs,
                streams=tuple(self._opened),
                cancel_merge=cancel,
                replans=replans,
                sent_bytes=self._sent.sent_bytes,
                of_streams=tuple(self._of_streams),
            ),
            started_ms=started_ms,
            runtime=self.runtime,
        )

    def so_far(self) -> Running:
        """What is at work by now. To be asked from any thread, and stops nothing."""
        of_streams = tuple(self._of_streams)
        return Running(
            plan=self.plan,
            legs=self.legs,
            streams=tuple(self._opened)[: len(of_streams)],
            cancel_merge=lambda: None,
            replans=0,
            sent_bytes=self._sent.sent_bytes,
            of_streams=of_streams,
        )

    def _round(self, kind: str, fragments: Sequence[str]) -> Stage:
        """The stage of the legs of these fragments, which begins now."""
        legs = [leg.fragment for leg in self.legs if leg.fragment in fragments]
        return Stage(kind, self.figures, self.runtime, legs=len(legs), parts=max(1, len(set(legs))))

    def _open(self, wanted: Sequence[tuple[str, str]]) -> dict[tuple[str, str], FragmentStream]:
        """The streams of fragments, by who reads them and name; one that was pruned to nothing has none."""
        legs_of_each = {key: [leg for leg in self.legs if leg.fragment == key[1]] for key in wanted}
        own = {key: found for key, found in legs_of_each.items() if found}
        asked = [self._sent.loaded(found, self._fragments[name]) for (_, name), found in own.items()]
        found = self.open_legs(asked, self.view.addresses, self.elsewhere) if asked else ()
        if asked and not self._opened:
            waited_ms = self.runtime.monotonic_ms() - self._planned_ms
            self.figures.record("scheduler_task_scheduling_latency_ms", waited_ms)
        self._opened.extend(found)
        self._of_streams.extend(own.values())
        return dict(zip(own, found, strict=True))

    def _broadcast_all(self) -> None:
        """Compute the broadcasts, each as soon as all that its legs read is complete."""
        early: dict[tuple[str, str], FragmentStream] = {}
        stages: dict[str, Stage] = {}
        repeated = self.plan.repeated
        started = set(repeated)
        for broadcast in self.plan.broadcasts:
            if broadcast.name in repeated:
                self._sent.repeat(broadcast.name, repeated[broadcast.name])
                continue
            ready = [one for one in self.plan.broadcasts if one.name not in started and self._may_start(one)]
            started |= {one.name for one in ready}
            stages |= {one.name: self._round(BROADCAST, one.fragments) for one in ready}
            with stages[broadcast.name].under_way():
                early |= self._open([(one.name, name) for one in ready for name in one.fragments])
                own = {
                    name: early.pop(key)
                    for name in broadcast.fragments
                    if (key := (broadcast.name, name)) in early
                }
                self._broadcast(broadcast, own)
            stages[broadcast.name].end(None)

    def _may_start(self, broadcast: Broadcast) -> bool:
        """Whether all that the legs of a broadcast read is complete."""
        uses = (use for name in broadcast.fragments for use in self._fragments[name].uses)
        return all(use in self._sent.tables for use in uses)

    def _broadcast(self, broadcast: Broadcast, streams: Mapping[str, FragmentStream]) -> None:
        """Compute one broadcast over the streams of its fragments; other executors read it, so it is looked at."""
        for given, asked, who in self._looks(streams):
            require_asked(given, asked, who, named=True)
        assert self.view.catalog.broadcasts is not None
        max_bytes = self.view.catalog.broadcasts.max_bytes
        if broadcast.plain and streams:
            (stream,) = streams.values()
            rows = conformed(_until(stream.batches(), self.cancelled), stream.schema)
            self._sent.add(broadcast.name, rows, stream.schema, max_bytes)
            return
        relations = self._relations(broadcast.fragments, streams)
        running = self.engine.query(broadcast.sql, streams={**relations, **self._sent.of(broadcast.uses)})
        try:
            rows = _with_own_errors(_until(running.batches(), self.cancelled), tuple(streams.values()))
            self._sent.add(broadcast.name, rows, running.schema, max_bytes)
        except BaseException:
            running.cancel()
            raise

    def _merge(
        self, streams: Mapping[str, FragmentStream], legs: Stage
    ) -> tuple[Iterator[pa.RecordBatch], Callable[[], None]]:
        """The rows of the answer, cast to the plan's output, and how to stop making them. `legs` is their stage."""
        if not streams:
            legs.end(None)
        if self.plan.merge_sql is None:
            of_legs = (
                answered(legs.follow(stream.batches()), stream.schema, self.plan.output, self._who(name))
                for name, stream in streams.items()
            )
            return chain.from_iterable(of_legs), _nothing
        names = [fragment.name for fragment in self.plan.fragments if fragment.merged]
        relations = self._relations(names, streams, legs)
        merge = Stage(MERGE, self.figures, self.runtime)
        try:
            with merge.under_way():
                running = self.engine.query(
                    self.plan.merge_sql, streams={**relations, **self._sent.of(self.plan.merge_uses)}
                )
        except Exception as error:
            raise blamed(error, self._looks(streams)) from None
        rows = conformed(_with_own_errors(running.batches(), tuple(streams.values())), self.plan.output)
        return merge.follow(self._blaming(rows, streams)), running.cancel

    def _blaming(
        self, rows: Iterator[pa.RecordBatch], streams: Mapping[str, FragmentStream]
    ) -> Iterator[pa.RecordBatch]:
        """The same rows; where the merge fails because a leg gave other columns, its executor is named."""
        try:
            yield from rows
        except Exception as error:
            raise blamed(error, self._looks(streams)) from None

    def _looks(self, streams: Mapping[str, FragmentStream]) -> Iterator[tuple[pa.Schema, pa.Schema, str]]:
        """The columns that the legs of each fragment gave, those that they were asked for, and who they are."""
        for name, stream in streams.items():
            with suppress(BallistaError):  # that can only be the fragment's
                yield stream.schema, self._asked(self._fragments[name]), self._who(name)

    def _asked(self, fragment: Fragment) -> pa.Schema:
        known = {**self.view.catalog.schemas, **self._sent.schemas_of(fragment)}
        return self.engine.describe(fragment.sql, known)

    def _who(self, name: str) -> str:
        executors = sorted({leg.executor_id for leg in self.legs if leg.fragment == name})
        named = ", ".join(f"'{one}'" for one in executors[:_MOST_NAMED])
        return f"executor {named}" if len(executors) == 1 else f"one of the executors {named}"

    def _relations(
        self, names: Collection[str], streams: Mapping[str, FragmentStream], legs: Stage | None = None
    ) -> dict[str, pa.RecordBatchReader | pa.Table]:
        """What a merge reads of these fragments. The engine keeps a stream that it reads twice, and may spill it.

        With the last of the streams the stage of their `legs` ends.
        """
        relations: dict[str, pa.RecordBatchReader | pa.Table] = {}
        for fragment in self.plan.fragments:
            stream = streams.get(fragment.name)
            if fragment.name not in names:
                continue
            if stream is None:  # pruned to nothing: an empty relation of the fragment's form
                relations[fragment.name] = self._asked(fragment).empty_table()
            elif not len(stream.schema):
                raise not_asked(self._who(fragment.name))
            else:
                batches = stream.batches() if legs is None else legs.follow(stream.batches())
                relations[fragment.name] = pa.RecordBatchReader.from_batches(stream.schema, batches)
        return relations


def _until(batches: Iterable[pa.RecordBatch], cancelled: Callable[[], bool]) -> Iterator[pa.RecordBatch]:
    """The same batches, until the client is gone."""
    for batch in batches:
        if cancelled():
            raise TransportError("The query was cancelled")
        yield batch


def _with_own_errors(
    batches: Iterable[pa.RecordBatch], streams: Sequence[FragmentStream]
) -> Iterator[pa.RecordBatch]:
    """The same batches; where the merge fails because a leg failed, the leg's error is raised."""
    try:
        yield from batches
    except Exception as error:
        for stream in streams:
            if isinstance(stream.error, BallistaError):
                raise stream.error from None
        raise error


def _said_in_own_words(batches: Iterator[pa.RecordBatch], wrote: str) -> Iterator[pa.RecordBatch]:
    try:
        yield from batches
    except Exception as error:
        raise in_own_words(error, wrote) from None


def _nothing() -> None:
    """There is no merge to stop."""
