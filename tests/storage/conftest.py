"""What the storage tests share: both stores, a clock moved by hand, a table, partitions with files, an engine."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from attrs import evolve
from tests.storage.keyed_owner import LARGE_ROWS, Owner

from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.errors import StoreUnavailable
from ballista_py.owner import files as owner_files
from ballista_py.owner.writes import OwnerWrites
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import SystemRuntime
from ballista_py.sql.plan import Leg, LegTable
from ballista_py.state.documents.documents import PartitionMapDocument, partition_map_key
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.members.control import Grant, PartitionAssignment, UpdatePartitions
from ballista_py.state.members.executor_lease import ExecutorLease
from ballista_py.state.stores.local import LocalStore
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.storage.formats.files import write_data_file
from ballista_py.storage.held.holder import PartitionHolder
from ballista_py.storage.manifest import DataFile
from ballista_py.storage.partition_storage import PartitionStorage
from ballista_py.storage.upkeep.compaction import CompactionPolicy

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])


class HandClock(SystemRuntime):
    """The real machine with a clock moved by hand; sleeping moves it."""

    def __init__(self) -> None:
        self.now_ms = 1_000.0
        self.ahead_ms = 0  # of the wall clock

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms

    def monotonic_ms(self) -> float:
        return self.now_ms

    def sleep_ms(self, duration_ms: float) -> None:
        self.now_ms += duration_ms


class ObservedStore:
    """A store that notes its calls in order, fails for keys on request, and can hold a call until it is let go."""

    def __init__(self, store) -> None:
        self._store = store
        self.calls: list[tuple[str, str]] = []
        self.broken: set[str] = set()
        self.before: dict[str, object] = {}

    def __getattr__(self, name):
        if name == "local_path" and not hasattr(self._store, "local_path"):
            raise AttributeError(name)
        verb = getattr(self._store, name)
        if name not in ("get", "get_if_changed", "create", "replace"):
            return verb

        def observed(key, *rest):
            self.calls.append((name, key))
            hook = self.before.get(key)
            if hook is not None:
                hook()
            if key in self.broken:
                raise StoreUnavailable(f"object '{key}' cannot be reached", key=key)
            return verb(key, *rest)

        return observed


@pytest.fixture(params=["memory", "local"])
def store(request: pytest.FixtureRequest, tmp_path: Path):
    inner = MemoryStore() if request.param == "memory" else LocalStore(str(tmp_path / "state"))
    return ObservedStore(inner)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def engine():
    made = DuckDBEngine()
    yield made
    made.close()


def rows(*keys: int) -> pa.Table:
    return pa.table({"k": list(keys), "v": [f"v{key}" for key in keys]}, schema=SCHEMA)


class World:
    """One executor over one store, with tables whose partition p holds the rows that were put there."""

    def __init__(self, store, engine, clock) -> None:
        self.store, self.engine, self.clock = store, engine, clock
        self.rows = rows
        self.lease = ExecutorLease("e1", "127.0.0.1:1", runtime=clock)
        self.holder = PartitionHolder(self.lease, store, engine, runtime=clock)
        self._files = 0

    def grant(self, lease_ms: float = 30_000) -> None:
        self.lease.answered(Grant(sequence=self.lease.heartbeat(self.holder.held()).sequence, lease_ms=lease_ms))

    def table(self, name: str = "t", schema: pa.Schema = SCHEMA) -> TableSpec:
        return TableSpec(name=name, schema=schema, spec=PartitionSpec.parse(["bucket(16, k)"], schema))

    def storage(self, partition: int, table: str = "t") -> PartitionStorage:
        return PartitionStorage(self.store, table, f"expr0={partition}", runtime=self.clock)

    def write_map(self, epoch: int) -> None:
        """The table's partition map, in which every partition is at this epoch."""
        spec = self.table().spec
        pmap = PartitionMap.build("t", spec, spec.static_values())
        document = PartitionMapDocument(map=evolve(pmap, epochs=np.full(len(pmap), epoch, pmap.epochs.dtype)))
        ObjectState(self.store, partition_map_key("t"), PartitionMapDocument).create(document)

    def put(self, partition: int, *keys: int, table: str = "t") -> str:
        """A new file with these keys in a partition; returns its path."""
        file = self.put_file(*keys, table=table)
        storage = self.storage(partition, table)
        storage.create()
        storage.commit(add=[file], epoch=storage.read().document.epoch, token=file.path)
        return file.path

    def put_file(self, *keys: int, table: str = "t") -> DataFile:
        """A new file with these keys, which no manifest names yet."""
        self._files += 1
        return write_data_file(self.store, f"snapshots/{table}/data/run/{self._files}.parquet", rows(*keys))

    def update(
        self, revision: int, *partitions: tuple[int, int, str], table: TableSpec | None = None, instance=None
    ):
        """An update that names (partition, epoch, role)."""
        return UpdatePartitions(
            instance_id=instance or self.lease.info.instance_id,
            table=table or self.table(),
            revision=revision,
            partitions=tuple(
                PartitionAssignment(partition=p, path=f"expr0={p}", epoch=epoch, role=role)
                for p, epoch, role in partitions
            ),
        )

    def leg(self, *partitions: tuple[int, int], table: str = "t") -> Leg:
        named = LegTable(
            table=table,
            revision=1,
            partitions=tuple(p for p, _ in partitions),
            epochs=tuple(epoch for _, epoch in partitions),
        )
        return Leg(fragment="f", executor_id="e1", sql=f"select k from {table}", tables=(named,))

    def read(self, *partitions: tuple[int, int], table: str = "t") -> list[int]:
        """The keys that a leg over (partition, epoch) reads."""
        leg = self.leg(*partitions, table=table)
        query = self.engine.query(leg.sql, self.holder.files_for(leg))
        return sorted(key for batch in query.batches() for key in batch.column(0).to_pylist())


@pytest.fixture
def world(make_world, engine) -> World:
    return make_world(engine)


@pytest.fixture
def make_world(store, clock):
    """Makes the world of an engine."""

    def make(engine) -> World:
        made = World(store, engine, clock)
        made.grant()
        return made

    return make


@pytest.fixture
def world_in_memory(engine, clock) -> World:
    """Without a folder behind it, for tests with very many partitions."""
    made = World(MemoryStore(), engine, clock)
    made.grant()
    return made


@pytest.fixture
def owner(world, monkeypatch) -> Owner:
    """An owner of a table with a primary key, of which ten rows are a large file."""
    monkeypatch.setattr(owner_files, "SMALL_ROWS", LARGE_ROWS)
    table = evolve(
        world.table(), primary_key=("k",), schema=pa.schema([pa.field("k", pa.int64(), False), ("v", pa.string())])
    )
    for partition in (1, 2):
        world.storage(partition).create()
    world.holder.apply(world.update(1, (1, 1, "owner"), (2, 1, "owner"), table=table))
    world.holder.tick()
    writes = OwnerWrites(
        world.holder, world.store, world.engine, world.clock, map, lambda: "me", CompactionPolicy(min_files=4)
    )
    return Owner(world, writes)


@pytest.fixture
def together():
    """Runs the calls at once in threads; returns their results, errors included, in order."""

    def run(*calls):
        barrier = threading.Barrier(len(calls))
        results: list[object] = [None] * len(calls)

        def one(number, call):
            barrier.wait()
            try:
                results[number] = call()
            except Exception as error:
                results[number] = error

        threads = [threading.Thread(target=one, args=item) for item in enumerate(calls)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results

    return run
