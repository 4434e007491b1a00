"""Spoilt documents before all who read them: `python -m ballista_py.testing.hostile.document_fuzz --seconds 3600`.

A small cluster in this process: a scheduler without ports, and the partitions of an executor. Of each kind of document
it keeps one is spoilt (`spoilt_documents`), by itself in front of its codec (`read`), and in the store under the real
parts while they tick (`cluster`). Whatever is in it, they say what is wrong in one line of our errors, within seconds
and within memory, and go on: nothing else is raised.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import orjson
import pyarrow as pa
from attrs import evolve

from ballista_py.coordinator.catalogs import Catalogs
from ballista_py.coordinator.jobs.attempt import JobRows
from ballista_py.coordinator.jobs.collector import JobCollector
from ballista_py.coordinator.jobs.limits import JobLimits
from ballista_py.coordinator.jobs.membership import SchedulerMembers
from ballista_py.coordinator.jobs.runner import JobRunner, JobsSeen
from ballista_py.coordinator.jobs.service import JobService
from ballista_py.coordinator.jobs.shelf import JobShelf
from ballista_py.coordinator.tables.definitions import TableMaker
from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.errors import BallistaError
from ballista_py.node.config import NodeConfig
from ballista_py.node.scheduler.core import SchedulerCore
from ballista_py.runtime import SystemRuntime, seeded_chance
from ballista_py.state.documents import claims, decisions, documents, jobs, token_claims
from ballista_py.state.documents.codec import DocumentCodec, Header
from ballista_py.state.documents.documents import CLUSTER_KEY, ClusterDocument, SchedulerInfo
from ballista_py.state.documents.jobs import JobDocument, JobRequest
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.members.control import Grant, Refusal, UpdatePartitions
from ballista_py.state.members.executor_lease import ExecutorLease
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.storage import manifest
from ballista_py.storage.formats.files import write_data_file
from ballista_py.storage.held import seen
from ballista_py.storage.held.holder import PartitionHolder
from ballista_py.storage.partition_storage import PartitionStorage
from ballista_py.storage.upkeep import garbage
from ballista_py.storage.upkeep.garbage import find_garbage
from ballista_py.storage.upkeep.repair import find_repairs
from ballista_py.storage.upkeep.verify import history, verify_table
from ballista_py.testing.hostile.spoilt_documents import spoilt
from ballista_py.testing.hostile.tally import Find, Tally

DOORS = ("read", "cluster")
ROUND = {"read": 500, "cluster": 5}
SLOW_S = 20.0
GROWTH_MIB = 600
LINE_CHARS = 5_000
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
PARTITIONS = ("expr0=0", "expr0=1")
_MODULES = (documents, claims, decisions, token_claims, manifest, seen, garbage, jobs)
_JOB = "67e5504410b1426f9247bb680e5fe0c8"
_HEADER = Header(
    kind="",
    schema_version=1,
    revision=3,
    commit_id="c3",
    committed_by="i",
    updated_at_ms=0,
    recent_commits=("c3",),
)


class _Clock(SystemRuntime):
    """The real machine with a clock that sleeping moves: who waits for a lease to end need not be waited for."""

    def __init__(self) -> None:
        self._slept_ms = 0.0

    def monotonic_ms(self) -> float:
        return super().monotonic_ms() + self._slept_ms

    def sleep_ms(self, duration_ms: float) -> None:
        self._slept_ms += duration_ms


def kinds() -> dict[str, type[Any]]:
    """The classes of all documents, by kind."""
    found = (one for module in _MODULES for one in vars(module).values() if isinstance(one, type))
    return {one.document_kind: one for one in found if hasattr(one, "document_kind")}


def fuzz(first_seed: int, seconds: float, doors: tuple[str, ...] = DOORS) -> Tally:
    """Try the cases from `first_seed` on at all doors in turn, for about so many seconds, one round at least."""
    tally, runtime = Tally("refused"), SystemRuntime()
    stored = small_cluster()
    examples = _examples(stored)
    before = _memory_mib()
    seed, until_ms = first_seed, runtime.monotonic_ms() + seconds * 1e3
    while True:
        for door in doors:
            for number in range(seed, seed + ROUND[door]):
                began_ms = runtime.monotonic_ms()
                what = _read(examples, number, tally) if door == "read" else _drive(stored, number, tally)
                took_s = (runtime.monotonic_ms() - began_ms) / 1e3
                tally.cases[door] += 1
                if not what and took_s > SLOW_S:
                    what = f"it took {took_s:.0f} s"
                if not what and _memory_mib() - before > GROWTH_MIB:
                    before, what = _memory_mib(), f"this process has grown by more than {GROWTH_MIB} MiB"
                if what:
                    tally.finds.append(Find(door, number, what))
                    print(tally.finds[-1], flush=True)
        seed += max(ROUND.values())
        if runtime.monotonic_ms() >= until_ms:
            return tally


def small_cluster() -> dict[str, bytes]:
    """What a store holds of a cluster with one table, two rows, and one table that was dropped."""
    runtime, store = SystemRuntime(), MemoryStore()
    ObjectState(store, CLUSTER_KEY, ClusterDocument).create(ClusterDocument())
    maker = TableMaker(store, runtime)
    for name in ("t", "gone"):
        maker.create(name, None, ["bucket(2, id)"], schema=SCHEMA)
    folder = maker.cluster().tables["t"].folder
    maker.drop("gone")
    JobService(JobShelf(store, runtime), runtime, JobLimits(), JobsSeen(runtime)).submit(
        JobRequest(sql="select 1"), "", _JOB
    )
    for number, path in enumerate(PARTITIONS):
        rows = pa.table({"id": [number], "v": ["x"]}, schema=SCHEMA)
        file = write_data_file(store, f"snapshots/{folder}/data/run/{number}.parquet", rows)
        partition = PartitionStorage(store, folder, path, runtime=runtime)
        partition.commit(add=[file], epoch=partition.read().document.epoch, token=f"k{number}")
    scheduler = _scheduler(store, [], runtime)
    scheduler.join()
    lease = ExecutorLease("e0", "h:1", runtime=runtime)
    scheduler.heard(lease.heartbeat())
    scheduler.admit()
    scheduler.membership.leave()
    return {entry.key: store.get(entry.key).data for entry in store.list("")}


def _examples(stored: Mapping[str, bytes]) -> list[tuple[str, bytes]]:
    """Key and bytes of a document of each kind; of those that the small cluster does not keep an empty one."""
    found = {
        orjson.loads(data)["header"]["kind"]: (key, data) for key, data in stored.items() if key.endswith(".json")
    }
    for kind, made in kinds().items():
        if kind not in found:
            try:
                empty = made()
            except TypeError:  # it cannot be empty
                continue
            codec: DocumentCodec[Any] = DocumentCodec(made)
            header = evolve(_HEADER, kind=kind, schema_version=codec.schema_version)
            key = getattr(empty, "own_key", f"a/{kind}.json")
            found[kind] = (key, codec.encode(key, header, empty))
    return [found[kind] for kind in sorted(found)]


def _read(examples: list[tuple[str, bytes]], seed: int, tally: Tally) -> str:
    """Spoil a document and read it; what can be read can be written and read again."""
    key, data = examples[seed % len(examples)]
    kind = orjson.loads(data)["header"]["kind"]
    codec: DocumentCodec[Any] = DocumentCodec(kinds()[kind])

    def back() -> None:
        decoded = codec.decode(key, spoilt(data, seed))
        codec.decode(key, codec.encode(key, decoded.header, decoded.document, decoded))

    refused, what = _told(back)
    tally.counted["read"] += refused
    return what and f"a '{kind}' document: {what}"


def _drive(stored: Mapping[str, bytes], seed: int, tally: Tally) -> str:
    """Spoil a document in the store, and let the parts of a cluster tick over it."""
    chance = seeded_chance(seed)
    key = chance.choice(sorted(name for name in stored if name.endswith(".json")))
    store = MemoryStore()
    for name, data in stored.items():
        store.create(name, spoilt(data, seed) if name == key else data)
    engine = DuckDBEngine(threads=1)
    try:
        refused, what = _ticks(store, engine)
    finally:
        engine.close()
    tally.counted["cluster"] += refused
    return what and f"'{key}': {what}"


def _ticks(store: MemoryStore, engine: DuckDBEngine) -> tuple[bool, str]:
    """Whether anybody refused something, and what was wrong."""
    runtime, pushed = _Clock(), []  # type: _Clock, list[Any]
    scheduler = _scheduler(store, pushed, runtime)
    lease = ExecutorLease("e1", "h:1", runtime=runtime)
    holder = PartitionHolder(lease, store, engine, runtime=runtime)

    def heard() -> None:
        answer = scheduler.heard(lease.heartbeat(holder.held()))
        for said in (answer, *pushed):
            if isinstance(said, Grant | Refusal):
                lease.answered(said)
            elif isinstance(said, UpdatePartitions):
                holder.apply(said)
        pushed.clear()

    def keep_house() -> None:
        table = scheduler._catalogs.current().catalog.tables["t"]
        verify_table(store, table, PARTITIONS)
        list(history(store, table, PARTITIONS[0]))
        find_garbage(store, {table.folder})
        for path in PARTITIONS:
            partition = PartitionStorage(store, table.folder, path, runtime=runtime)
            partition.commit(add=[], epoch=partition.read().document.epoch, token=path)

    shelf, seen, limits = JobShelf(store, runtime), JobsSeen(runtime), JobLimits(result_ttl_ms=1.0)
    service = JobService(shelf, runtime, limits, seen)
    members = SchedulerMembers(scheduler.membership)
    runner = JobRunner(shelf, runtime, members, _NoStatements(), limits, lambda work: work(), seen)
    steps: list[Callable[[], object]] = [
        scheduler.join, heard, scheduler.admit, heard, holder.tick, holder.seen.tick, heard, scheduler.beat,
        scheduler.reap, scheduler.reconcile, heard, scheduler.measure, scheduler._catalogs.refresh, holder.tick, heard,
        lambda: scheduler._catalogs.sequences(["t"]), scheduler.definition, lambda: find_repairs(store, runtime),
        runner.tick, lambda: service.get(_JOB), lambda: service.of_client(""), lambda: service.chunk(_JOB, 0),
        JobCollector(shelf, runtime, limits).tick, lambda: service.cancel(_JOB), lambda: service.close(_JOB),
        keep_house, lambda: TableMaker(store, runtime).drop("t"), scheduler.membership.leave,
    ]  # fmt: skip
    refused = False
    for step in steps:
        no, what = _told(step)
        refused |= no
        if what:
            return refused, what
    return refused, ""


class _NoStatements:
    """What runs the statements of jobs: it gives a row."""

    def run(self, job: JobDocument, token: str) -> JobRows:
        rows = pa.record_batch({"id": [1]})
        return JobRows(schema=rows.schema, batches=iter([rows]))


def _told(step: Callable[[], object]) -> tuple[bool, str]:
    """Whether the step was refused, and what was wrong with how it was."""
    try:
        step()
    except BallistaError as error:
        if not error.message.isprintable() or len(error.message) > LINE_CHARS:
            return True, f"refused by more than a line that can be printed: {error.message[:200]!r}"
        return True, ""
    except KeyError as error:
        return (True, "") if error.args == ("t",) else (False, _raised(error))  # no such table is there any more
    except Exception as error:
        return False, _raised(error)
    return False, ""


def _raised(error: Exception) -> str:
    places = " < ".join(
        f"{frame.filename.rpartition('ballista_py/')[2]}:{frame.lineno}"
        for frame in reversed(traceback.extract_tb(error.__traceback__)[-4:])
    )
    return f"{type(error).__name__}: {str(error)[:150]} at {places}"


def _scheduler(store: MemoryStore, pushed: list[Any], runtime: SystemRuntime) -> SchedulerCore:
    config = NodeConfig(
        role="scheduler", node_id="s1", state_location="memory://fuzz", allow_insecure_connections=True
    )
    info = SchedulerInfo(scheduler_id="s1", instance_id="")
    return SchedulerCore(
        config, info, store, Catalogs(store, runtime), lambda _to, said: pushed.append(said), runtime
    )


def _memory_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def main() -> int:
    """Fuzz as long as the command line says; status 1 when something was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3_600.0)
    parser.add_argument(
        "--first-seed", type=int, default=int(os.environ.get("BALLISTA_DOCUMENTS_FIRST_SEED", "0"))
    )
    parser.add_argument("--doors", default=",".join(DOORS))
    options = parser.parse_args()
    tally = fuzz(options.first_seed, options.seconds, tuple(options.doors.split(",")))
    print(tally)
    return 1 if tally.finds else 0


if __name__ == "__main__":
    sys.exit(main())
