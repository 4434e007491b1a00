"""The processes in which a node runs statements that only the end of a process stops, and what memory they may take.

A process serves one statement at a time. It is killed when its statement is cancelled, out of time or takes more
memory than its share, and another takes its place; the node and every other statement go on. What a process reads, the
node gives it batch by batch as it asks, so no thread is needed and nothing is gathered in between.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
from attrs import define, field, frozen

from ballista_py.engines.apart.conversation import ApartQuery, Conversation, PooledProcess, Process, Relation
from ballista_py.engines.apart.frames import FAILED, TOO_LARGE, packed, unpacked
from ballista_py.engines.apart.shares import MIN_SHARE_BYTES, PROCESS_BYTES, least_budget
from ballista_py.errors import (
    BallistaError,
    ConfigError,
    MergeTooLarge,
    SqlError,
    TransportError,
    TryLater,
)
from ballista_py.memory_budget import MemoryBudget
from ballista_py.runtime import Runtime
from ballista_py.work import current_client, current_work, stopped_by

_log = logging.getLogger(__name__)
OVER_SHARE_BYTES = 192 << 20  # of what an engine takes beyond what it counts
LEAST_LARGE_BYTES = MIN_SHARE_BYTES + (64 << 20)
OVER_TOTAL_BYTES = 256 << 20
ASKING_BYTES = 64 << 20  # what binding a statement takes, as a rule
MAX_KEPT_BYTES = 256 << 20  # a process that keeps more than that after a statement is replaced
MOST_WORKERS = 8
MOST_TRIALS = 8  # beside them: nobody's long statement keeps others from being tried
STEPS_BACK_MS = 3_000.0  # a trial that takes longer
MOST_IDLE = 2  # of those that have stepped back, and of the others
MOST_SPARE = 8  # of both for a while, where there is memory: many statements at once are seldom the last
AT_ONCE = max(2, os.cpu_count() or 1)  # more of them compute no faster
START_MS, SLOW_START_MS = 1_000.0, 5_000.0  # of one; of many at once each takes longer
WAIT_MS = 10_000.0
WAIT_POLL_MS = 20.0
IDLE_MS, SPARE_MS = 600_000.0, 10_000.0
NOT_SURVIVED = (
    "the engine itself fails over this statement, which was tried in a process of its own: write it in another way"
)


@frozen(kw_only=True)
class Options:
    """How an engine in a process is made."""

    kind: str = "duckdb"
    threads: int | None = None
    max_spill_bytes: int | None = None
    keeps_order: bool = True


@define
class Workers:
    """At most `MOST_WORKERS` processes, started when they are needed. Thread-safe. Call `tick` ten times a second.

    `max_bytes` is what the node may take, its own memory (`own_bytes`) included. Each process that works has its share
    of the `budget` of the node; one finds room whatever the node may take, three from 320 MB on, and what
    only binds a statement does not wait.
    """

    start: Callable[[], Process]
    max_bytes: int
    own_bytes: Callable[[], int]
    runtime: Runtime
    options: Options = field(factory=Options)
    budget: MemoryBudget = field()
    _idle: list[PooledProcess] = field(init=False, factory=list)
    _busy: list[PooledProcess] = field(init=False, factory=list)
    _ended: list[PooledProcess] = field(init=False, factory=list)
    _closed: bool = field(init=False, default=False)
    _is_full: bool = field(init=False, default=False)
    _lock: Any = field(init=False)

    @budget.default
    def _own_budget(self) -> MemoryBudget:
        return MemoryBudget(least_budget(self.max_bytes), self.runtime)

    def __attrs_post_init__(self) -> None:
        self._lock = self.runtime.lock()

    def describe(self, sql: str, schemas: Mapping[str, pa.Schema]) -> pa.Schema:
        """See `Binder.describe`."""
        command = {"do": "describe", "sql": sql, "schemas": _packed(schemas)}
        return unpacked(self._asked(command)["schema"])

    def plan(self, sql: str, schemas: Mapping[str, pa.Schema]) -> dict[str, Any]:
        """See `Binder.plan`."""
        plan: dict[str, Any] = self._asked({"do": "plan", "sql": sql, "schemas": _packed(schemas)})["plan"]
        return plan

    def types(self, sql: str, schemas: Mapping[str, pa.Schema]) -> tuple[tuple[str, str], ...]:
        """See `Binder.types`."""
        answer = self._asked({"do": "types", "sql": sql, "schemas": _packed(schemas)})
        return tuple((str(name), str(kind)) for name, kind in answer["types"])

    def described(
        self, sql: str, schemas: Mapping[str, pa.Schema], keys: Mapping[str, Sequence[str]]
    ) -> tuple[tuple[str | None, ...], ...]:
        """See `Binder.described`."""
        named = {name: list(key) for name, key in keys.items()}
        answer = self._asked({"do": "described", "sql": sql, "schemas": _packed(schemas), "keys": named})
        return tuple(map(tuple, answer["columns"]))

    def declared(self, sql: str) -> tuple[tuple[str, str], ...]:
        """See `Binder.declared`."""
        answer = self._asked({"do": "declared", "sql": sql})
        return tuple((str(name), str(kind)) for name, kind in answer["types"])

    def bind_change(self, sql: str, schemas: Mapping[str, pa.Schema], same: str | None) -> bool:
        """See `Binder.bind_change`."""
        command = {"do": "bind_change", "sql": sql, "schemas": _packed(schemas), "same": same}
        return bool(self._asked(command)["is_same"])

    def query(self, sql: str, relations: Mapping[str, Relation], close: Callable[[], None]) -> ApartQuery:
        """Bind `sql` over these relations apart; it runs when its batches are read, and at last `close` is called.

        Raises `SqlError`, `MergeTooLarge` when binding alone takes too much, and why the work of this thread has ended.
        """
        worker = self._acquire(self._share())
        talk = Conversation(worker, relations, self.runtime, self._release)
        command = {
            "do": "query",
            "sql": sql,
            "relations": {
                name: {"schema": packed(one.schema), "whole": isinstance(one, pa.Table)}
                for name, one in relations.items()
            },
            "options": self._options(worker),
        }
        try:
            talk.send(command, worker.share)
            answer = talk.next_values()
        except BaseException:
            talk.close()
            close()
            raise
        return ApartQuery(unpacked(answer["schema"]), talk, close)

    def try_statement(
        self,
        sql: str,
        dialect: str | None,
        schemas: Mapping[str, pa.Schema],
        share: int = MIN_SHARE_BYTES,
        parameters: pa.Schema | None = None,
    ) -> bool:
        """See `Trial.run`; the process may take so much memory.

        Raises `SqlError` for a statement over which it ended, or that took too long, `MergeTooLarge` where it took more
        than its share, and why the work of this thread has ended.
        """
        command = {
            "do": "try",
            "sql": sql,
            "dialect": dialect,
            "schemas": _packed(schemas),
            "parameters": None if parameters is None else packed(parameters),
        }
        try:
            return bool(self._asked(command, share, is_trial=True)["understood"])
        except BallistaError as error:
            if error.message == FAILED:
                raise SqlError(NOT_SURVIVED) from None
            raise

    @contextmanager
    def conversation(
        self, command: Mapping[str, Any], relations: Mapping[str, Relation]
    ) -> Iterator[Conversation]:
        """A command, and all that is said about it, in a process of its own."""
        worker = self._acquire(self._share())
        talk = Conversation(worker, relations, self.runtime, self._release)
        try:
            with stopped_by(talk.cancel):
                talk.send({**command, "options": self._options(worker)}, worker.share)
                yield talk
        finally:
            talk.close()

    def tick(self, watch: Callable[[int, bool], None] = lambda _own, _too_large: None) -> None:
        """End processes that take too much, and let go of what is idle for long.

        `watch` is told what the process of the node takes itself, and whether that is too much.
        """
        with self._lock:
            busy, idle = list(self._busy), list(self._idle)
        sizes = {id(worker): worker.process.own_bytes() for worker in (*busy, *idle)}
        now_ms = self.runtime.monotonic_ms()
        for worker in busy:
            if sizes[id(worker)] > worker.share + OVER_SHARE_BYTES:
                self._too_large(worker, sizes[id(worker)])
            if worker.is_trial and not worker.beside and now_ms - worker.since_ms > STEPS_BACK_MS:
                worker.beside = True
                worker.process.step_back()
        own = self.own_bytes()
        over = own + sum(sizes.values()) - self.max_bytes - OVER_TOTAL_BYTES
        largest = max(busy, key=lambda worker: sizes[id(worker)], default=None)
        by_others = largest is not None and sizes[id(largest)] > LEAST_LARGE_BYTES
        if over > 0 and largest is not None and by_others:
            self._too_large(largest, sizes[id(largest)])
        watch(own, over > 0 and not by_others)
        self._is_full = over + OVER_TOTAL_BYTES > 0  # then one is kept for the next statement
        self.budget.press(over > 0, self._is_full)
        with self._lock:
            old = self._idle[:-1] if self._is_full and len(self._idle) > 1 else self._idle_too_long(now_ms)
            self._idle = [worker for worker in self._idle if worker not in old]
            self._ended += old
        for worker in old:
            worker.end(None)
        self._reap()

    def _idle_too_long(self, now_ms: float) -> list[PooledProcess]:
        found: list[PooledProcess] = []
        for beside in (False, True):
            alike = [worker for worker in self._idle if worker.beside == beside]
            spare = len(alike) - MOST_IDLE
            found += [w for w in alike[: max(spare, 0)] if now_ms - w.since_ms > SPARE_MS]
            found += [w for w in alike[max(spare, 0) :] if now_ms - w.since_ms > IDLE_MS]
        return found

    def close(self) -> None:
        """End every process; what runs there fails."""
        with self._lock:
            self._closed = True
            found = [*self._busy, *self._idle, *self._ended]
            self._idle.clear()
            self._ended.clear()
        for worker in found:
            worker.end(TransportError("The query was cancelled"))
        until_ms = self.runtime.monotonic_ms() + 5_000
        while any(w.process.returncode() is None for w in found) and self.runtime.monotonic_ms() < until_ms:
            self.runtime.sleep_ms(WAIT_POLL_MS)
        for worker in found:
            worker.process.remove()

    def _asked(
        self, command: Mapping[str, Any], share: int = MIN_SHARE_BYTES, is_trial: bool = False
    ) -> dict[str, Any]:
        """The one answer to a small command. What reading a large text takes has its place in the budget already."""
        worker = self._acquire(share, ASKING_BYTES, waits=False, is_trial=is_trial)
        talk = Conversation(worker, {}, self.runtime, self._release)
        try:
            talk.send(command, worker.share)
            answer = talk.next_values()
            talk.next_values()
            return answer
        finally:
            talk.close()

    def _options(self, worker: PooledProcess) -> dict[str, Any]:
        found = self.options
        return {
            "kind": found.kind,
            "threads": found.threads,
            "max_spill_bytes": found.max_spill_bytes,
            "keeps_order": found.keeps_order,
            "memory_limit": f"{worker.share}B",
        }

    def _share(self) -> int:
        """Half of what is left, so that others find something, too; in steps, so that an engine is made rarely."""
        room = min(self.budget.room(current_client()), self.max_bytes - self.own_bytes())
        share = max(MIN_SHARE_BYTES, room // 2)
        return 1 << (share.bit_length() - 1)

    def _acquire(
        self, share: int, size: int | None = None, waits: bool = True, is_trial: bool = False
    ) -> PooledProcess:
        """A process that is ready, once there is memory for it (`size`, if it is not its share).

        Raises `TryLater` when all are busy for long.
        """
        reservation = self.budget.begin(PROCESS_BYTES + (share if size is None else size), waits=waits)
        try:
            worker = self._free_worker(is_trial)
        except BaseException:
            reservation.end()
            raise
        worker.share, worker.reservation = share, reservation
        return worker

    def _free_worker(self, is_trial: bool) -> PooledProcess:
        until_ms = self.runtime.monotonic_ms() + WAIT_MS
        while True:
            if (worker := self._worker_now(is_trial)) is not None:
                return worker
            work = current_work()
            if work is not None:
                work.check()
            if self.runtime.monotonic_ms() > until_ms:
                raise TryLater(f"{MOST_WORKERS} statements of this kind run here already: try again later")
            self.runtime.sleep_ms(WAIT_POLL_MS)

    def _worker_now(self, is_trial: bool) -> PooledProcess | None:
        """One that is idle, or a new one where there may be another and none is soon free."""
        with self._lock:
            if self._closed:
                raise ConfigError("the engine is closed")
            self._idle = self._living(self._idle)
            busy = [worker for worker in self._busy if worker.is_trial == is_trial]
            if len(busy) >= (MOST_TRIALS if is_trial else MOST_WORKERS):
                return None
            now_ms = self.runtime.monotonic_ms()
            worker = self._idle_worker(is_trial)
            if worker is None:
                if len(busy) >= AT_ONCE and any(_is_soon_free(one, now_ms) for one in busy):
                    return None
                worker = PooledProcess(self._started())
            worker.share, worker.is_trial, worker.since_ms = MIN_SHARE_BYTES, is_trial, now_ms
            worker.beside = worker.beside or not is_trial
            self._busy.append(worker)
            return worker

    def _idle_worker(self, is_trial: bool) -> PooledProcess | None:
        """One with nothing to do; for a trial one that has not stepped back, else preferably one that has."""
        fitting = [worker for worker in self._idle if worker.beside != is_trial]
        found = next(reversed(fitting or ([] if is_trial else self._idle)), None)  # so that the others grow old
        if found is not None:
            self._idle.remove(found)
        return found

    def _living(self, workers: list[PooledProcess]) -> list[PooledProcess]:
        """Those that nothing ended while they had nothing to do; the others are removed later."""
        gone = [worker for worker in workers if worker.process.returncode() is not None]
        self._ended.extend(gone)
        return [worker for worker in workers if worker not in gone]

    def _started(self) -> Process:
        try:
            return self.start()
        except OSError as error:  # no room for its folder, no memory for it, no file left: that passes
            why = error.strerror or "it says no more"
            raise TryLater(
                f"the node could not start a process for the statement ({why}): try again later"
            ) from error

    def _release(self, worker: PooledProcess, reusable: bool) -> None:
        reservation, worker.reservation = worker.reservation, None
        try:
            self._give_back(worker, reusable)
        finally:
            if reservation is not None:
                reservation.end()

    def _give_back(self, worker: PooledProcess, reusable: bool) -> None:
        keep = reusable and worker.killed_for is None and worker.process.own_bytes() <= MAX_KEPT_BYTES
        with self._lock:
            self._busy.remove(worker)
            idle = [one for one in self._idle if one.beside == worker.beside]
            has_room = len(idle) < MOST_IDLE or (not self._is_full and len(self._idle) < MOST_SPARE)
            keep = keep and has_room and not self._closed
            worker.share, worker.since_ms = 0, self.runtime.monotonic_ms()
            (self._idle if keep else self._ended).append(worker)
            alike = any(one.beside != worker.is_trial for one in self._idle)
            if not (alike or self._closed):  # the next statement shall not wait for it
                with suppress(OSError):
                    self._idle.append(PooledProcess(self.start(), since_ms=worker.since_ms))
        if not keep:
            worker.end(None)
            self._reap()

    def _reap(self) -> None:
        with self._lock:
            gone = [worker for worker in self._ended if worker.process.returncode() is not None]
            self._ended = [worker for worker in self._ended if worker not in gone]
        for worker in gone:
            worker.process.remove()

    def _too_large(self, worker: PooledProcess, size: int) -> None:
        _log.warning("an engine's process of %d MB was ended: its share was %d MB", size >> 20, worker.share >> 20)
        worker.end(MergeTooLarge(TOO_LARGE))


def _is_soon_free(worker: PooledProcess, now_ms: float) -> bool:
    """Whether it is likely to have served its statement before another process has started."""
    return now_ms - worker.since_ms < (START_MS if worker.ready else SLOW_START_MS)


def _packed(schemas: Mapping[str, pa.Schema]) -> dict[str, str]:
    return {name: packed(schema) for name, schema in schemas.items()}
