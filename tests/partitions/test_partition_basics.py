"""One walk through the parts that plan partitions, as an application would use them."""

from __future__ import annotations

import orjson
import pyarrow as pa

from ballista_py.partitions.assignment.assigner import Executor, PartitionAssigner
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.router import PartitionRouter
from ballista_py.partitions.spec import PartitionSpec

SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("region", pa.string())])


def test_a_table_is_split_assigned_moved_and_routed() -> None:
    spec = PartitionSpec.parse(["bucket(16, id)"], SCHEMA)
    executors = [Executor(f"e{number}", "first") for number in range(3)]
    pmap = PartitionMap.build("events", spec, spec.static_values() or [])
    pmap = pmap.apply(PartitionAssigner().assign(pmap, executors, limit=100))
    assert len(pmap.orphans({executor.owner for executor in executors})) == 0

    executors.append(Executor("e3", "first"))
    pmap = pmap.apply(PartitionAssigner().assign(pmap, executors))
    pmap = pmap.promote(pmap.targeted_at("e3", "first"))
    assert len(pmap.owned_by("e3", "first")) == 4

    batch = pa.record_batch([pa.array(range(1000)), pa.array(["x"] * 1000)], schema=SCHEMA)
    routed = PartitionRouter(spec, pmap).route(batch)
    assert sum(part.num_rows for part in routed.by_executor.values()) == 1000
    assert set(routed.by_executor) == {"e0", "e1", "e2", "e3"}

    written = orjson.dumps(pmap.to_columns(), option=orjson.OPT_SERIALIZE_NUMPY)
    assert PartitionMap.from_columns("events", pmap.revision, orjson.loads(written)) == pmap


def test_tables_of_a_group_get_equal_owners_for_equal_values() -> None:
    spec = PartitionSpec.parse(["bucket(16, id)"], SCHEMA)
    executors = [Executor("e1"), Executor("e2")]
    orders = PartitionMap.build("orders", spec, spec.static_values() or [])
    lines = PartitionMap.build("lines", spec, (spec.static_values() or [])[::-1])
    # The commit to one of them got lost: the other follows it at the next cycle.
    orders = orders.apply(PartitionAssigner().assign_group([orders, lines], executors)[0])
    again = PartitionAssigner().assign_group([orders, lines], executors)
    assert len(again[0].moves) == 0
    lines = lines.apply(again[1])
    for partition in orders.ids().tolist():
        assert orders.owner(partition) == lines.owner(lines.index(orders.value(partition)) or 0)
