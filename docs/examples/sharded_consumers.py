"""Consumers that share the shards of a stream: one owner a shard, even loads, few moves when somebody leaves."""

import sys

import pyarrow as pa

from ballista_py import (
    Executor,
    PartitionAssigner,
    PartitionMap,
    PartitionSpec,
    PartitionStore,
    bucket,
    open_store,
)

SHARDS = 32


if __name__ == "__main__":
    url = sys.argv[1] if len(sys.argv) > 1 else "memory://sharded-consumers"
    spec = PartitionSpec.parse(
        [f"bucket({SHARDS}, user)"], pa.schema([pa.field("user", pa.string(), nullable=False)])
    )
    alive = {"consumer-1", "consumer-2", "consumer-3"}  # from a Membership, say
    shards = PartitionStore(open_store(url), members=lambda: {(name, name) for name in alive})
    shards.create(PartitionMap.build("events", spec, spec.static_values()))

    def assign() -> PartitionMap:
        """Any process may do this at any time; what another one committed first is dropped here."""
        executors = [Executor(name, instance_id=name) for name in sorted(alive)]
        return shards.commit(PartitionAssigner().assign(shards.read("events"), executors, limit=None)).map

    before = assign()
    print({name: len(before.owned_by(name, name)) for name in sorted(alive)})
    alive.remove("consumer-2")
    after = assign()
    print({name: len(after.owned_by(name, name)) for name in sorted(alive)})
    moved = [shard for shard in range(SHARDS) if before.owner(shard) != after.owner(shard)]
    assert {before.owner(shard)[0] for shard in moved} == {"consumer-2"}  # nobody else lost a shard
    shard = bucket(SHARDS, pa.array(["ada"]))[0].as_py()
    print(f"events of 'ada' go to {after.owner(shard)[0]}, epoch {after.epoch(shard)}")
