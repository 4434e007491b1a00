"""Jobs a second through the queue of two schedulers, and what a store is asked for a job."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from _measure import claim
from ballista_py import LocalCluster
from ballista_py.coordinator.jobs.attempt import JobRows
from ballista_py.coordinator.jobs.limits import JobLimits
from ballista_py.coordinator.jobs.runner import JobRunner, JobsSeen
from ballista_py.coordinator.jobs.service import JobService
from ballista_py.coordinator.jobs.shelf import JobShelf
from ballista_py.runtime import SystemRuntime
from ballista_py.state.documents.jobs import JobDocument, JobRequest
from ballista_py.state.stores.memory import MemoryStore

VERBS = ("get", "create", "replace", "delete", "list")


class Counted(MemoryStore):
    """A store that counts what it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[str] = Counter()

    def __getattribute__(self, name: str) -> Any:
        if name in VERBS:
            object.__getattribute__(self, "asked")[name] += 1
        return object.__getattribute__(self, name)


class One:
    """The only scheduler; its statements give so many batches of a row."""

    def __init__(self, batches: int) -> None:
        self._batches = batches

    def me(self) -> tuple[str, str]:
        return "s1", "i1"

    def instances(self) -> frozenset[str]:
        return frozenset(["i1"])

    def run(self, job: JobDocument, token: str) -> JobRows:
        rows = pa.record_batch({"n": [1]})
        return JobRows(schema=rows.schema, batches=iter([rows] * self._batches))


def requests(count: int, batches: int) -> Counter[str]:
    """What a store is asked for so many jobs, one after the other."""
    store, runtime, one = Counted(), SystemRuntime(), One(batches)
    limits = JobLimits(chunk_bytes=8)
    shelf, seen = JobShelf(store, runtime), JobsSeen(runtime)
    runner = JobRunner(shelf, runtime, one, one, limits, lambda work: work(), seen)
    service = JobService(shelf, runtime, limits, seen)
    runner.tick()
    store.asked.clear()
    for _ in range(count):
        service.submit(JobRequest(sql="select 1"))
        runner.tick()
    return store.asked


def through_a_cluster(count: int, running: int) -> tuple[float, list[float]]:
    """Jobs a second, all submitted at once by eight threads, and how long each took from its submit to its end."""
    options = {"max-running-jobs": str(running), "max-queued-jobs": "10000"}
    with LocalCluster(schedulers=2, executors=1, node_options=options) as cluster, cluster.client() as client:
        client.submit("select 1").wait(60)
        begun = time.perf_counter()
        with ThreadPoolExecutor(8) as threads:
            jobs = list(threads.map(lambda n: client.submit(f"select {n} as n"), range(count)))
            rows = list(threads.map(lambda job: job.wait(600), jobs))
        took_s = time.perf_counter() - begun
        assert all(row["state"] == "SUCCEEDED" for row in rows)
        return count / took_s, [float(row["ended_at_ms"] - row["submitted_at_ms"]) for row in rows]


def run(count: int) -> None:
    """Print what jobs cost."""
    for batches in (0, 1, 10):
        asked = requests(count, batches)
        each = ", ".join(f"{verb} {asked[verb] / count:g}" for verb in VERBS)
        claim(
            f"at most {8 + batches} requests a job of {batches} chunks",
            round(sum(asked.values()) / count) <= 8 + batches,
            each,
        )
    for running in (4, 16):
        rate, took_ms = through_a_cluster(count, running)
        spread = statistics.quantiles(took_ms, n=100)
        print(
            f"2 schedulers, {running} at once each, a local folder: {rate:.0f} jobs/s; from submit to end "
            f"p50 {spread[49]:.0f} ms, p99 {spread[98]:.0f} ms"
        )
