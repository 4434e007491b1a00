"""`ScanRun`: the tasks of one statement's scan while they run: who gets the next, whose rows count, what is tried
again.

Executors are given one task after the other, so a slow one takes fewer. Nothing here starts, waits or reads: who
drives it says what has happened and when, and does what is answered.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator, Mapping
from statistics import median

from attrs import define, field, frozen

from ballista_py.scans.cut import OPEN_BYTES
from ballista_py.scans.task import ScanTask
from ballista_py.scans.weighted_scheduler import Health, ScanWorker, WeightedScheduler


@frozen(kw_only=True)
class ScanLimits:
    """How often a task is tried again, and from when on it is given to a second executor.

    A task is tried again `retries` times. A second copy of it begins when nothing is queued, an executor has nothing
    to do, and the first takes more than `straggler_times` what tasks of its size took (the median) and at least
    `straggler_ms`; where no task has ended yet, `first_ms`.
    """

    retries: int = 3
    straggler_times: float = 2.0
    straggler_ms: float = 1_000.0
    first_ms: float = 10_000.0


@frozen(kw_only=True)
class ScanAttempt:
    """One try of a task at one executor; no other of the run has its `id`."""

    id: int
    task: ScanTask
    worker: str
    began_ms: float


@frozen(kw_only=True)
class AttemptEnd:
    """What follows when an attempt has ended: whether its rows count, and which attempts are to be cancelled."""

    counts: bool = False
    cancel: tuple[ScanAttempt, ...] = ()


@define(kw_only=True)
class _At:
    """What is known of an executor."""

    health: Health = "healthy"
    queue: list[ScanTask] = field(factory=list)  # the dearest first
    queued_bytes: int = 0
    done_bytes: int = 0
    busy_ms: float = 0.0

    def take(self, place: int) -> ScanTask:
        """One out of the queue."""
        task = self.queue.pop(place)
        self.queued_bytes -= _bytes(task)
        return task


class ScanRun:
    """The tasks of one scan, from the first to the last. Not for several threads at once.

    **Rows count whole or not at all.** Those of an attempt may be used only after `finished` has said that it counts,
    which it says of exactly one attempt a task; until then whoever takes them keeps them aside (and of a cancelled,
    failed or late one throws them away). So a task that is tried again, or runs twice, or ends twice, gives each row
    once, and nothing needs to be known of the order in which an engine gives rows.

    - `next_for`: first what has failed elsewhere, then its own queue, then what waits for the executor that will be
      done last; in the end a second copy of a straggler.
    - An executor that missed a heartbeat is given nothing while there is a healthy one; one at which a task failed is
      given nothing until its next heartbeat, and the task goes elsewhere where there is an elsewhere.
    - Where the rows of a task are too many to be kept aside its attempt can be `claimed`: they may be used as they
      come then, no other attempt of the task counts or begins, and if it fails the scan has failed.
    - Of every attempt something must be said in the end: that it has finished or failed, or, by a time limit of
      whoever drives the run, that nobody knows what became of it, which is a failure, too.
    - When `error` is there the scan has failed: nothing is given any more.
    """

    def __init__(
        self,
        tasks: Iterable[ScanTask],
        workers: Iterable[ScanWorker],
        limits: ScanLimits | None = None,
        scheduler: WeightedScheduler | None = None,
    ) -> None:
        self.limits = limits or ScanLimits()
        self.error: str | None = None
        self._at: dict[str, _At] = {worker.id: _At(health=worker.health) for worker in workers}
        self._open: dict[str, ScanTask] = {task.name: task for task in tasks}
        self._again: list[ScanTask] = []
        self._running: dict[int, ScanAttempt] = {}
        self._failed_at: dict[str, list[str]] = {}
        self._paces: list[float] = []  # milliseconds a byte, of attempts that counted; ascending
        self._claimed: set[int] = set()
        self._next_id = 0
        given: Mapping[str, tuple[ScanTask, ...]] = {}
        if any(worker.health != "removed" for worker in workers):
            given = (scheduler or WeightedScheduler()).assign(self._open.values(), workers)
        else:
            self._again = list(self._open.values())
        for worker, own in given.items():
            self._at[worker].queue, self._at[worker].queued_bytes = list(own), sum(map(_bytes, own))

    @property
    def is_done(self) -> bool:
        """Whether the rows of every task have counted."""
        return not self._open

    @property
    def is_stuck(self) -> bool:
        """Whether nothing runs and nobody may be given what is left: only a heartbeat, or another executor, helps."""
        return not self.is_done and not self._running and all(at.health == "removed" for at in self._at.values())

    @property
    def running(self) -> tuple[ScanAttempt, ...]:
        """The attempts that run, the oldest first."""
        return tuple(self._running.values())

    def next_for(self, worker: str, now_ms: float) -> ScanAttempt | None:
        """What an executor that has nothing to do runs next; None if there is nothing for it now."""
        at = self._at.setdefault(worker, _At())
        if self.error is not None or not self._may_have(at):
            return None
        task = self._failed_elsewhere(worker) or self._queued(at) or self._stolen(worker, now_ms)
        task = task or self._straggler(worker, now_ms)
        if task is None:
            return None
        attempt = ScanAttempt(id=self._next_id, task=task, worker=worker, began_ms=now_ms)
        self._next_id += 1
        self._running[attempt.id] = attempt
        return attempt

    def next_look_ms(self) -> float | None:
        """When a task that runs now counts as a straggler: then those who have nothing to do ask again."""
        alone = [one for one in self._running.values() if self._may_be_copied(one)]
        return min((one.began_ms + self._patience_ms(one.task) for one in alone), default=None)

    def claimed(self, attempt_id: int, now_ms: float) -> AttemptEnd:
        """Rows of an attempt are to be used before it has ended. They count unless others do; it is still to end."""
        attempt = self._running.get(attempt_id)
        if attempt is None:
            return AttemptEnd()
        self._claimed.add(attempt_id)
        return AttemptEnd(counts=True, cancel=self._overtaken(attempt, now_ms))

    def finished(self, attempt_id: int, now_ms: float) -> AttemptEnd:
        """An attempt has given all of its rows. They count unless others did, or it was given up before."""
        attempt = self._running.pop(attempt_id, None)
        if attempt is None:
            return AttemptEnd()
        self._learn(attempt, now_ms, counted=True)
        del self._open[attempt.task.name]
        return AttemptEnd(counts=True, cancel=self._overtaken(attempt, now_ms))

    def failed(self, attempt_id: int, reason: str, *, final: bool = False) -> AttemptEnd:
        """An attempt has failed, or nobody knows what became of it: it runs elsewhere, and if it ends yet, it is late.

        With `final` no other executor would do better, so the scan has failed: a file that is gone, a value that
        cannot be read.
        """
        attempt = self._running.pop(attempt_id, None)
        if attempt is None:
            return AttemptEnd()
        if final:
            return self._give_up(reason)
        name = attempt.task.name
        if attempt_id in self._claimed:
            return self._give_up(
                f"scan task {name} has failed after rows of it were used, at {attempt.worker}: {reason}"
            )
        self._at[attempt.worker].health = "removed"
        self._failed_at.setdefault(name, []).append(attempt.worker)
        if any(one.task.name == name for one in self._running.values()):
            return AttemptEnd()
        if len(self._failed_at[name]) > self.limits.retries:
            times = len(self._failed_at[name])
            return self._give_up(
                f"scan task {name} has failed {times} times, at last at {attempt.worker}: {reason}"
            )
        self._again.append(attempt.task)
        return AttemptEnd()

    def heartbeat(self, worker: str) -> None:
        """An executor is well, or is new."""
        self._at.setdefault(worker, _At()).health = "healthy"

    def heartbeat_missed(self, worker: str) -> None:
        """An executor was not heard of in time; what it runs goes on."""
        at = self._at.get(worker)
        if at is not None and at.health == "healthy":
            at.health = "degraded"

    def lost(self, worker: str, reason: str) -> AttemptEnd:
        """An executor is gone, and all that it ran has failed."""
        if worker in self._at:
            self._at[worker].health = "removed"
        for attempt in [one for one in self._running.values() if one.worker == worker]:
            end = self.failed(attempt.id, reason)
            if end.cancel or self.error is not None:
                return end
        return AttemptEnd()

    def _overtaken(self, attempt: ScanAttempt, now_ms: float) -> tuple[ScanAttempt, ...]:
        """The other attempts of its task, which run no more."""
        name, own = attempt.task.name, attempt.id
        others = tuple(one for one in self._running.values() if one.task.name == name and one.id != own)
        for one in others:
            del self._running[one.id]
            self._learn(one, now_ms, counted=False)
        return others

    def _give_up(self, reason: str) -> AttemptEnd:
        self.error = reason
        rest = self.running
        self._running.clear()
        return AttemptEnd(cancel=rest)

    def _may_have(self, at: _At) -> bool:
        if at.health == "degraded":
            return not any(other.health == "healthy" for other in self._at.values())
        return at.health == "healthy"

    def _failed_elsewhere(self, worker: str) -> ScanTask | None:
        for place, task in enumerate(self._again):
            if worker not in self._fled(task):
                return self._again.pop(place)
        return None

    def _fled(self, task: ScanTask) -> list[str]:
        """Where it failed; nowhere if there is no executor left at which it did not."""
        failed = self._failed_at.get(task.name, [])
        elsewhere = any(at.health != "removed" and worker not in failed for worker, at in self._at.items())
        return failed if elsewhere else []

    def _queued(self, at: _At) -> ScanTask | None:
        return at.take(0) if at.queue else None

    def _stolen(self, worker: str, now_ms: float) -> ScanTask | None:
        """The cheapest task that waits for the executor that will be done last."""
        behind = {
            name: self._to_go_ms(name, now_ms) for name, at in self._at.items() if at.queue and name != worker
        }
        if not behind:
            return None
        last = max(sorted(behind), key=lambda name: behind[name])
        return self._at[last].take(-1)

    def _to_go_ms(self, worker: str, now_ms: float) -> float:
        """How long an executor will take for what it runs and what waits for it, as long as it was up to now."""
        at = self._at[worker]
        if not self._may_have(at):
            return float("inf")
        pace = at.busy_ms / at.done_bytes if at.done_bytes else self._pace()
        running = sum(
            max(0.0, pace * _bytes(one.task) - (now_ms - one.began_ms))
            for one in self._running.values()
            if one.worker == worker
        )
        return running + pace * at.queued_bytes

    def _straggler(self, worker: str, now_ms: float) -> ScanTask | None:
        """The task that has run for too long for the longest time, if there is one."""
        late = {one.id: now_ms - one.began_ms - self._patience_ms(one.task) for one in self._copied_for(worker)}
        longest = max(sorted(late), key=lambda number: late[number], default=None)
        return self._running[longest].task if longest is not None and late[longest] >= 0 else None

    def _copied_for(self, worker: str) -> Iterator[ScanAttempt]:
        for one in self._running.values():
            if one.worker != worker and self._may_be_copied(one) and worker not in self._fled(one.task):
                yield one

    def _may_be_copied(self, attempt: ScanAttempt) -> bool:
        copies = sum(one.task.name == attempt.task.name for one in self._running.values())
        return copies == 1 and attempt.id not in self._claimed

    def _patience_ms(self, task: ScanTask) -> float:
        if not self._paces:
            return self.limits.first_ms
        return max(self.limits.straggler_ms, self.limits.straggler_times * self._pace() * _bytes(task))

    def _pace(self) -> float:
        return median(self._paces) if self._paces else 1e-6

    def _learn(self, attempt: ScanAttempt, now_ms: float, *, counted: bool) -> None:
        """How fast an executor is; of one that was overtaken only that it is no faster."""
        took_ms, size = now_ms - attempt.began_ms, _bytes(attempt.task)
        at = self._at[attempt.worker]
        at.busy_ms, at.done_bytes = at.busy_ms + took_ms, at.done_bytes + size
        if counted:
            insort(self._paces, took_ms / size)


def _bytes(task: ScanTask) -> int:
    return task.cost + OPEN_BYTES * max(1, len(task.files))
