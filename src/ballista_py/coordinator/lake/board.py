"""Which executor runs which tasks of a fragment, attempt by attempt; pure but for what it is told.

Each executor takes its own tasks first, then those of the one that has most left, and when none waits a second copy of
one that takes much longer than others do. The first attempt of a task that ends, or of which rows are given out,
counts: its rows are the task's, and no other attempt's ever are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from attrs import define, field, frozen

MAX_ATTEMPTS = 4  # one, and three more
COPY_AFTER = 2.0  # times the median of those that ended
COPY_LEAST_MS = 1_000.0


@frozen(kw_only=True)
class TaskAttempt:
    """One run of a task, which is told by its number, at an executor."""

    task: int
    number: int
    worker: str
    began_ms: float


@define(eq=False)
class TaskBoard:
    """The state of a fragment's tasks. `queues` are those that each executor is to run, the dearest first.

    Not for several threads at once. `copies` of 1 and no stealing is what a static assignment would be.
    """

    queues: dict[str, list[int]]
    removed: set[str] = field(factory=set, init=False)
    running: dict[int, list[TaskAttempt]] = field(factory=dict, init=False)
    given: dict[int, TaskAttempt] = field(factory=dict, init=False)  # the attempt whose rows count
    done: set[int] = field(factory=set, init=False)
    stolen: int = field(default=0, init=False)
    copied: int = field(default=0, init=False)
    retried: int = field(default=0, init=False)
    _numbers: dict[int, int] = field(factory=dict, init=False)
    _failed_at: dict[int, set[str]] = field(factory=dict, init=False)
    _took_ms: list[float] = field(factory=list, init=False)
    _all: frozenset[int] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._all = frozenset(task for own in self.queues.values() for task in own)

    @property
    def is_over(self) -> bool:
        """Whether every task has ended."""
        return self.done == self._all

    def next_for(self, worker: str, now_ms: float) -> TaskAttempt | None:
        """What an executor without work runs next; None for nothing now."""
        if worker in self.removed:
            return None
        task = self._own(worker)
        if task is None and (task := self._stolen(worker)) is not None:
            self.stolen += 1
        if task is None and (task := self._copy(worker, now_ms)) is not None:
            self.copied += 1
        if task is None:
            return None
        number = self._numbers[task] = self._numbers.get(task, 0) + 1
        made = TaskAttempt(task=task, number=number, worker=worker, began_ms=now_ms)
        self.running.setdefault(task, []).append(made)
        return made

    def claim(self, attempt: TaskAttempt) -> bool:
        """Let the rows of an attempt count, and no other's, before it has ended; False if another's do."""
        return self.given.setdefault(attempt.task, attempt) is attempt

    def finished(self, attempt: TaskAttempt, now_ms: float) -> bool:
        """An attempt gave all its rows; whether these count."""
        self._over(attempt)
        if not self.claim(attempt) or attempt.task in self.done:
            return False
        self.done.add(attempt.task)
        self._took_ms.append(now_ms - attempt.began_ms)
        return True

    def failed(self, attempt: TaskAttempt, *, gone: bool) -> bool:
        """An attempt gave not all its rows; whether the task is run on, here or elsewhere, so that nothing is lost.

        With `gone` its executor is given nothing any more, and what waited for it goes to others.
        """
        self._over(attempt)
        if gone:
            self._remove(attempt.worker)
        counts = self.given.get(attempt.task)
        if attempt.task in self.done or (counts is not None and counts is not attempt):
            return True
        if counts is attempt:  # rows of it were given out, and nobody can say which
            return False
        self._failed_at.setdefault(attempt.task, set()).add(attempt.worker)
        if self.running.get(attempt.task):  # another copy of it goes on
            return True
        if self._numbers[attempt.task] >= MAX_ATTEMPTS or not self._alive():
            return False
        self.retried += 1
        self._queue(attempt.task)
        return True

    def others(self, attempt: TaskAttempt) -> Sequence[TaskAttempt]:
        """The other attempts of its task, for nothing by now."""
        return tuple(one for one in self.running.get(attempt.task, ()) if one is not attempt)

    def _own(self, worker: str) -> int | None:
        queue = self.queues.get(worker)
        return queue.pop(0) if queue else None

    def _stolen(self, worker: str) -> int | None:
        """The last task of the executor that has most of them, but for one that failed here."""
        for other in sorted(self.queues, key=lambda name: (-len(self.queues[name]), name)):
            queue = self.queues[other]
            for place in range(len(queue) - 1, -1, -1):
                if worker not in self._failed_at.get(queue[place], ()) or self._alive() == {worker}:
                    return queue.pop(place)
        return None

    def _copy(self, worker: str, now_ms: float) -> int | None:
        if not self._took_ms:
            return None
        late_ms = max(COPY_LEAST_MS, COPY_AFTER * median(self._took_ms))
        for task, attempts in sorted(self.running.items(), key=lambda one: one[1][0].began_ms if one[1] else now_ms):
            if len(attempts) != 1 or task in self.given or self._numbers[task] >= MAX_ATTEMPTS:
                continue
            if attempts[0].worker != worker and now_ms - attempts[0].began_ms >= late_ms:
                return task
        return None

    def _over(self, attempt: TaskAttempt) -> None:
        self.running[attempt.task] = [one for one in self.running.get(attempt.task, ()) if one is not attempt]

    def _alive(self) -> set[str]:
        return set(self.queues) - self.removed

    def _remove(self, worker: str) -> None:
        self.removed.add(worker)
        waiting, self.queues[worker] = self.queues.get(worker, []), []
        for task in waiting if self._alive() else ():
            self._queue(task)

    def _queue(self, task: int) -> None:
        """Let a task wait at the executor that has fewest, rather at one where it did not fail."""
        failed = self._failed_at.get(task, set())
        chosen = min(self._alive(), key=lambda name: (name in failed, len(self.queues[name]), name))
        self.queues[chosen].append(task)


def queues_of(shares: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
    """The queues by an assignment."""
    return {worker: list(tasks) for worker, tasks in shares.items()}
