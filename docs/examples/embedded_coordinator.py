"""A coordinator inside an application: it plans statements and asks the executors itself, over no scheduler's port."""

import sys

from ballista_py import LocalCluster, SystemRuntime, open_store
from ballista_py.coordinator.catalogs import Catalogs
from ballista_py.coordinator.queries.leg_opener import LegOpener
from ballista_py.coordinator.queries.service import QueryService
from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.threads import spawn
from ballista_py.transport.flight.client import FlightPool


class Coordinator:
    """Plans over what lies at `url`; an engine of its own merges what the executors answer. It starts no thread."""

    def __init__(self, url: str) -> None:
        runtime = SystemRuntime()
        self.pool, self.engine = FlightPool(runtime), DuckDBEngine(runtime=runtime)
        legs = LegOpener(self.pool, runtime, spawn, give_up=lambda task_id: None)
        catalogs = Catalogs(open_store(url), runtime)
        self.queries = QueryService(
            catalogs, self.engine, legs.open, runtime,
            sequences=catalogs.sequences, definitions=catalogs.definitions,
        )  # fmt: skip

    def close(self) -> None:
        self.pool.close()
        self.engine.close()


if __name__ == "__main__":
    with LocalCluster(
        schedulers=1, executors=2, state_location=sys.argv[1] if len(sys.argv) > 1 else None
    ) as cluster:
        cluster.sql("create table t (id bigint, v double) partitioned by (bucket(4, id))")
        cluster.sql("insert into t select i, i / 2 from range(1000) r(i)")
        coordinator = Coordinator(cluster.state_location)
        statement = coordinator.queries.run("select id % 2 as odd, sum(v) as v from t group by 1 order by 1")
        print([row for batch in statement.batches() for row in batch.to_pylist()])
        coordinator.close()
