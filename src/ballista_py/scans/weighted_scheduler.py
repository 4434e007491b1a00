"""`WeightedScheduler`: which executor runs which scan task, by what each has to do and what it read before; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Literal

import numpy as np
import numpy.typing as npt
from attrs import frozen

from ballista_py.errors import PartitionsUnassigned
from ballista_py.scans.task import FileSlice, ScanTask

ABOVE_LEAST = 1.2

Health = Literal["healthy", "degraded", "removed"]


@frozen(kw_only=True)
class ScanWorker:
    """An executor as the scheduler of scans sees it.

    `running_bytes` is what the tasks that it runs cost. `health`: one that missed a heartbeat is `degraded`, and gets
    tasks only where nobody is healthy; one at which a task failed is `removed`, and gets none until its next
    heartbeat. `slots` is how many tasks it runs at once: with twice as many it takes twice as much.
    """

    id: str
    running_bytes: int = 0
    health: Health = "healthy"
    slots: int = 1

    def __attrs_post_init__(self) -> None:
        assert self.slots >= 1, "an executor without a slot runs nothing"


@frozen(kw_only=True)
class WeightedScheduler:
    """Gives the dearest tasks first, each to its home unless that has more to do than the others.

    The home of a task follows from the path of its largest file alone (highest random weight), so that an executor
    reads the same files again and again, and has them in its cache; where an executor comes or goes, only the homes
    move that it takes or had. A task goes to its home unless that would then have more than `above_least` times what
    the least loaded one would have with it; else to that. The same tasks and workers give the same answer on every
    machine.

    >>> import pyarrow as pa
    >>> from ballista_py.scans.cut import tasks_of
    >>> tasks = tasks_of("f", [(FileSlice(path=path, size=8),) for path in "klmn"], pa.schema([]))
    >>> given = WeightedScheduler().assign(tasks, [ScanWorker(id="a"), ScanWorker(id="b")])
    >>> {worker: len(own) for worker, own in given.items()}
    {'a': 2, 'b': 2}
    """

    above_least: float = ABOVE_LEAST

    def assign(
        self, tasks: Iterable[ScanTask], workers: Iterable[ScanWorker]
    ) -> Mapping[str, tuple[ScanTask, ...]]:
        """The tasks of each worker that may be used, the dearest first: each task is in exactly one list.

        Raises `PartitionsUnassigned` if there are tasks and no worker may be used.
        """
        chosen = usable(workers)
        ordered = sorted(tasks, key=lambda task: (-task.cost, task.fragment_id, task.number))
        if not chosen:
            if ordered:
                raise PartitionsUnassigned(
                    f"no executor can take the {len(ordered)} tasks of a scan: all have failed"
                )
            return {}
        loads = np.array([worker.running_bytes for worker in chosen], np.float64)
        slots = np.array([worker.slots for worker in chosen], np.float64)
        homes = homes_of(ordered, [worker.id for worker in chosen])
        given: dict[str, list[ScanTask]] = {worker.id: [] for worker in chosen}
        for task, home in zip(ordered, homes, strict=True):
            then = (loads + task.cost) / slots
            least = int(then.argmin())
            place = home if then[home] <= self.above_least * then[least] else least
            loads[place] += task.cost
            given[chosen[place].id].append(task)
        return {worker: tuple(own) for worker, own in given.items()}


def usable(workers: Iterable[ScanWorker]) -> tuple[ScanWorker, ...]:
    """Those that may be given tasks, by id: the healthy ones; where there are none, those that are degraded."""
    ordered = sorted(workers, key=lambda worker: worker.id)
    healthy = tuple(worker for worker in ordered if worker.health == "healthy")
    return healthy or tuple(worker for worker in ordered if worker.health == "degraded")


def homes_of(tasks: Sequence[ScanTask], workers: Sequence[str]) -> list[int]:
    """The home of each task, as a place in `workers`."""
    own = np.array([_hashed(worker) for worker in workers], np.uint64)
    return [int(_mixed(own ^ np.uint64(_hashed(_path_of(task)))).argmax()) for task in tasks]


def _path_of(task: ScanTask) -> str:
    largest: FileSlice | None = max(task.files, key=lambda file: (file.cost, file.path), default=None)
    return "" if largest is None else largest.path


def _hashed(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(errors="surrogateescape"), digest_size=8).digest(), "little")


def _mixed(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Each value as one that has nothing to do with it: all bits of it count for each bit (Stafford's variant 13)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
