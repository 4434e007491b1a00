"""A job queue without a leader: any worker claims a job, one owner at a time, each job done exactly once."""

import sys
from concurrent.futures import ThreadPoolExecutor

from attrs import evolve, frozen

from ballista_py import ObjectState, SystemRuntime, open_store


@frozen
class Queue:
    """Waiting jobs, who works on which, and what is done by whom."""

    waiting: tuple[str, ...] = ()
    owners: tuple[tuple[str, str], ...] = ()
    done: tuple[tuple[str, str], ...] = ()


def work(url: str, worker: str) -> None:
    """Claim, work, finish, until nothing waits. Both steps are one conditional write each."""
    queue = ObjectState(open_store(url), "queue.json", Queue, committed_by=worker)
    while True:

        def claim(old: Queue) -> Queue:
            return old if not old.waiting else evolve(
                old, waiting=old.waiting[1:], owners=(*old.owners, (old.waiting[0], worker))
            )  # fmt: skip

        mine = [pair for pair in queue.update(claim).document.owners if pair[1] == worker]
        if not mine:
            return
        SystemRuntime().sleep_ms(20)  # the job itself
        queue.update(lambda old: evolve(
            old, owners=tuple(p for p in old.owners if p not in mine), done=(*old.done, *mine)  # noqa: B023
        ))  # fmt: skip


if __name__ == "__main__":
    url = sys.argv[1] if len(sys.argv) > 1 else "memory://job-queue"
    jobs = tuple(f"job-{n}" for n in range(12))
    ObjectState(open_store(url), "queue.json", Queue).create(Queue(waiting=jobs))
    with ThreadPoolExecutor(3) as workers:
        list(workers.map(lambda n: work(url, f"worker-{n}"), range(3)))
    done = ObjectState(open_store(url), "queue.json", Queue).read().document.done
    print(f"{len(done)} jobs done by {len({worker for _, worker in done})} workers")
    assert sorted(job for job, _ in done) == sorted(jobs)
