"""What all in a simulation of read jobs share: schedulers, executors that give parts, and what each job must show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import orjson
from attrs import define, field

from ballista_py.errors import BallistaError
from ballista_py.owner.part_reads import PartReads
from ballista_py.runtime import Runtime
from ballista_py.state.members.liveness import SKEW_MS
from ballista_py.storage.formats.files import read_data_file
from ballista_py.storage.held.cache import FileCache
from ballista_py.storage.manifest import DataFile
from ballista_py.storage.reads.files import ReadFiles
from ballista_py.storage.reads.leases import READS_PREFIX, ReadLeases
from ballista_py.testing.simulation.owners.looks import Rows
from ballista_py.testing.simulation.owners.owner import VirtualOwner
from ballista_py.testing.simulation.owners.site import JudgedStore, OwnerSite

if TYPE_CHECKING:
    from ballista_py.testing.simulation.reads.scheduler import ReadScheduler

OLDER = 8  # copies of a lease that somebody could put back


@define
class BegunJob:
    """A read job whose Agent was told that it has begun: what it names, and until when nobody may end it.

    `safe_until_ms` is by the clock that stamps objects. One whose objects somebody `spoilt` may end at any time.
    """

    read_id: str
    client: str
    table: str
    paths: frozenset[str]
    rows: dict[int, Rows]  # by part
    safe_until_ms: float
    spoilt: bool = False
    closed: bool = False


@define
class ReadSite(OwnerSite):
    """The world of one run."""

    schedulers: list[ReadScheduler] = field(factory=list)
    jobs: dict[str, BegunJob] = field(factory=dict)
    named: set[str] = field(factory=set)  # all files that a job ever named
    spoilt_jobs: set[str] = field(factory=set)
    reads_store: ReadStore = field(init=False)
    _parts: dict[VirtualOwner, PartReads] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        OwnerSite.__attrs_post_init__(self)
        self.reads_store = self.store = ReadStore(self.god, self)

    def parts_at(self, owner: VirtualOwner) -> PartReads:
        """What an executor gives parts with, as long as its process lives."""
        if owner not in self._parts:
            machine, store = owner.machine, self.seen_by(owner.machine)
            cache = FileCache(store, max_bytes=0, runtime=machine)
            self._parts[owner] = PartReads(owner.holder, store, owner.engine, cache, machine)  # type: ignore[arg-type]
        return self._parts[owner]

    def store_ms(self) -> float:
        """The clock that stamps objects."""
        return self.god.wall_ms()

    def begun(self, read_id: str, client: str, safe_until_ms: float) -> BegunJob:
        """Take down what a job that has begun names, and which rows those are. To be called when it has begun."""
        leases = ReadLeases(self.store, self.god)
        files = leases.files(read_id, leases.read(read_id).digest)
        rows: dict[int, Rows] = {}
        for number, part in enumerate(files.parts):
            rows[number] = [row for one in part for row in self._rows_of(read_id, files, one.file)]
        job = BegunJob(
            read_id=read_id,
            client=client,
            table=files.table,
            paths=frozenset(files.paths()),
            rows=rows,
            safe_until_ms=safe_until_ms,
            spoilt=read_id in self.spoilt_jobs,
        )
        self.jobs[read_id] = job
        self.named |= job.paths
        return job

    def _rows_of(self, read_id: str, files: ReadFiles, file: DataFile) -> Rows:
        try:
            return list(pairs(read_data_file(self.store, file, files.schema)))
        except BallistaError as error:
            gone = read_id not in self.spoilt_jobs
            self.book.expect(
                not gone, f"a read job of '{files.table}' began with a file that cannot be read: {error}"
            )
            return []

    def removed(self, path: str) -> None:
        """A data file goes: judge whether a lease keeps it."""
        for job in self.jobs.values():
            if path in job.paths and not job.spoilt and self.is_in_force(job.read_id):
                self.book.wrong.append(f"{path} was removed, which a live read job of '{job.table}' names")

    def changed(self, key: str, before: dict[str, Any], now: dict[str, Any], age_ms: float) -> None:
        """A lease is another one, that had not been touched for so long: judge whether it may be."""
        job = self.jobs.get(key.removeprefix(READS_PREFIX).removesuffix(".json"))
        if before["ended"] and not now["ended"]:
            self.book.wrong.append("a lease that was ended goes on")
        if job is None or job.spoilt or job.closed or before["ended"] or not now["ended"]:
            return
        is_over = age_ms > before["lease_ms"] + SKEW_MS
        self.book.expect(is_over, f"a lease was ended {age_ms / 1000:.0f} s after it was renewed")

    def is_in_force(self, read_id: str) -> bool:
        """Whether a lease is there that nobody has ended."""
        documents = self.reads_store.documents()
        return read_id in documents and not documents[read_id]

    def spoil(self, read_id: str) -> None:
        """Take note that somebody changes the objects of a job behind everybody's back."""
        self.spoilt_jobs.add(read_id)
        if read_id in self.jobs:
            self.jobs[read_id].spoilt = True
        self.book.done["spoilt job"] += 1

    def exchange_files(self, read_id: str) -> None:
        """Somebody puts what another job names in the place of what this one names."""
        self.spoil(read_id)
        mine = f"{READS_PREFIX}{read_id}.files"
        others = [e.key for e in self.store.list(READS_PREFIX) if e.key.endswith(".files") and e.key != mine]
        if others:
            data = self.store.get(others[int(self.god.random() * len(others))]).data
            self.store.delete(mine)
            self.store.create(mine, data)


class ReadStore(JudgedStore):
    """A store that sees when a file goes that a live read job names."""

    def __init__(self, runtime: Runtime, site: ReadSite) -> None:
        super().__init__(runtime=runtime, site=site)
        self._reads = site

    def replace(self, key: str, data: bytes, version: str) -> str:
        before, stamped_ms = b"", 0
        if key.startswith(READS_PREFIX):
            before = self.get(key).data
            stamped_ms = max(entry.modified_ms for entry in self.list(key))
        landed = super().replace(key, data, version)
        if before:
            self._reads.changed(key, orjson.loads(before), orjson.loads(data), self._reads.store_ms() - stamped_ms)
            self.older.setdefault(key, []).append(before)
            del self.older[key][:-OLDER]
        return landed

    def delete(self, key: str) -> None:
        if key.startswith("snapshots/"):
            self._reads.removed(key)
        super().delete(key)

    def documents(self) -> dict[str, bool]:
        """Which leases are there, and whether each was ended."""
        found = {}
        for entry in self.list(READS_PREFIX):
            if entry.key.endswith(".json"):
                name = entry.key.removeprefix(READS_PREFIX).removesuffix(".json")
                found[name] = bool(orjson.loads(self.get(entry.key).data)["ended"])
        return found


def pairs(rows: object) -> Iterator[tuple[str, int]]:
    """The rows of a table of the simulation: names and money."""
    return zip(rows["name"].to_pylist(), rows["money"].to_pylist(), strict=True)  # type: ignore[index]
