"""Maps whose partitions have replicas, while executors restart, die and join."""

import random

import pyarrow as pa
import pytest

from ballista_py import Executor
from ballista_py.partitions.assignment.assigner import PartitionAssigner
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.state.ownership.partition_store import epochs_objection

SCHEMA = pa.schema([("id", pa.int64())])
NAMES = ("e1", "e2", "e3")


@pytest.mark.parametrize("seed", range(10))
def test_whatever_becomes_of_executors_every_plan_can_be_committed_and_leads_to_replicas(seed):
    chance, born = random.Random(seed), 0
    pmap = PartitionMap.build("t", PartitionSpec.parse(["bucket(6, id)"], SCHEMA), [(n,) for n in range(6)])
    assigner = PartitionAssigner(replicas=2)
    live = [Executor(name, instance_id="0", capacity=1.0, labels={}) for name in NAMES]

    def step(limit):
        after = pmap.apply(assigner.assign(pmap, live, limit=limit))
        assert epochs_objection(pmap, after) is None
        members = {(one.executor_id, one.instance_id) for one in live}
        loaded = [p for p in range(6) if after.target(p) in members and chance.random() < 0.7]
        promoted = after.promote(loaded) if loaded else after
        assert epochs_objection(after, promoted) is None
        return promoted

    for _ in range(100):
        pmap = step(chance.choice([None, 1, 3, 100]))
        if chance.random() < 0.5:
            born += 1
            away = [name for name in NAMES if name not in {one.executor_id for one in live}]
            fate = chance.choice(["restart", "die", "join"])
            if fate == "die" and len(live) > 1:
                live.pop(chance.randrange(len(live)))
            elif fate == "join" and away:
                live.append(Executor(away[0], instance_id=str(born), capacity=1.0, labels={}))
            else:
                place = chance.randrange(len(live))
                live[place] = Executor(live[place].executor_id, instance_id=str(born), capacity=1.0, labels={})
    live = [Executor(name, instance_id="last", capacity=1.0, labels={}) for name in NAMES]
    for _ in range(30):
        pmap = step(None)
    assert all(len(set(pmap.owners(p))) == 2 for p in range(6))
    assert all(owner[1] == "last" for p in range(6) for owner in pmap.owners(p))
