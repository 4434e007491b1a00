"""A commit renews what it names before owners are asked, and is given up where they took longer than files are kept."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ballista_py.coordinator.writes import staged_writes
from ballista_py.coordinator.writes.owner_calls import FILES_AT_ONCE, Order, OwnerCalls
from ballista_py.coordinator.writes.staged_writes import _Renewed
from ballista_py.errors import SnapshotGone
from ballista_py.partitions.assignment.assigner import Executor, PartitionAssigner
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import SystemRuntime
from ballista_py.sql.plan import Catalog
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.storage.manifest import DataFile
from ballista_py.storage.writes.leases import WriteLeases

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False)])
TABLE = TableSpec(name="t", schema=SCHEMA, spec=PartitionSpec.parse(["bucket(4, id)"], SCHEMA))


class Clock(SystemRuntime):
    now_ms = 1_000.0

    def monotonic_ms(self) -> float:
        return self.now_ms

    def wall_ms(self) -> int:
        return int(self.now_ms)


def test_writes_are_renewed_together_and_again_when_that_was_long_ago():
    clock = Clock()
    leases = WriteLeases(MemoryStore(runtime=clock), clock)
    ids = tuple(leases.take(TABLE, "me", "t1", "append") for _ in range(3))
    renewed = _Renewed(leases, clock, ids, "me", map)
    assert [one.renewals for one in renewed.now()] == [1, 1, 1]
    renewed.now_and_then()
    assert not renewed.is_old()
    assert leases.read(ids[0]).renewals == 1
    clock.now_ms += staged_writes.RENEW_AGAIN_MS + 1
    renewed.now_and_then()
    assert leases.read(ids[2]).renewals == 2
    clock.now_ms += staged_writes.PREPARED_WITHIN_MS + 1
    assert renewed.is_old()
    leases.end(ids[1], "me")
    with pytest.raises(SnapshotGone):
        renewed.now_and_then()


def test_a_commit_of_nothing_has_nothing_to_renew():
    clock = Clock()
    renewed = _Renewed(WriteLeases(MemoryStore(runtime=clock), clock), clock, (), "me", map)
    clock.now_ms += 1e9
    renewed.now_and_then()
    assert not renewed.is_old()


class View:
    def __init__(self) -> None:
        pmap = PartitionMap.build("t", TABLE.spec, TABLE.spec.static_values())
        executors = [Executor("e1", "i1"), Executor("e2", "i2")]
        self.catalog = Catalog(
            tables={"t": TABLE}, maps={"t": pmap.apply(PartitionAssigner().assign(pmap, executors))}
        )
        self.members = frozenset((one.executor_id, one.instance_id) for one in executors)
        self.addresses = {"e1": "e1:1", "e2": "e2:1"}


class Pool:
    """Owners that take files over, and what each was asked."""

    def __init__(self) -> None:
        self.asked: list[dict] = []

    def ask(self, address, command, *, peer_id=None):
        self.asked.append({**command, "at": address})
        return {
            str(partition): {"affected": sum(one["rows"] for one in command["files"].get(str(partition), []))}
            for partition in command["target"]["partitions"]
        }


def test_owners_take_over_the_files_of_their_own_partitions_a_few_thousand_at_once():
    view, pool = View(), Pool()
    files = {n: [DataFile(path=f"{n}.{k}", rows=1, bytes=1) for k in range(FILES_AT_ONCE)] for n in range(3)}
    order = Order(table=TABLE, token="t1", attempt="a1")
    outcome = OwnerCalls(pool, map).adopt(order, view, files, also=[3])
    assert outcome.affected == {0: FILES_AT_ONCE, 1: FILES_AT_ONCE, 2: FILES_AT_ONCE, 3: 0}
    assert outcome.errors == {}
    asked = [partition for one in pool.asked for partition in one["target"]["partitions"]]
    assert sorted(asked) == [0, 1, 2, 3]
    pmap = view.catalog.maps["t"]
    for one in pool.asked:
        assert sum(map(len, one["files"].values())) <= FILES_AT_ONCE
        owners = {pmap.owner(partition)[0] for partition in one["target"]["partitions"]}
        assert owners == {one["at"].partition(":")[0]}
        assert one["target"]["attempt"] == "a1"
