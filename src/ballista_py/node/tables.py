"""Making a table: describe its source, partition it on Spark, publish its map, then its name."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from attrs import evolve

from ballista_py.errors import ConfigError, ObjectExists, ObjectMissing
from ballista_py.node.embedded_spark import EmbeddedPipeline
from ballista_py.planning.partition_map import PartitionMap
from ballista_py.planning.partition_spec import PartitionBy, PartitionSpec
from ballista_py.planning.table import Distribution, TableSpec, may_colocate
from ballista_py.runtime import Runtime
from ballista_py.state.documents import CLUSTER_KEY, ClusterDocument, PartitionMapDocument, partition_map_key
from ballista_py.state.object_state import SHARED, ObjectState
from ballista_py.state.partition_store import PartitionStore
from ballista_py.state.store import ConditionalStore
from ballista_py.storage.partition_storage import PartitionStorage

if TYPE_CHECKING:
    from ballista_py.spark.jobs import Progress

_log = logging.getLogger(__name__)
Source = str | Mapping[str, Any]


def declare_table(
    cluster: ClusterDocument,
    name: str,
    schema: pa.Schema,
    partition_by: PartitionBy,
    *,
    distribution: Distribution = "partitioned",
    colocate_with: str | None = None,
    source: Source | None = None,
) -> TableSpec:
    """The declaration of a table that may join `cluster`; pure.

    Raises `ConfigError` when the name is taken or `colocate_with` names no table with keys of the same form, and
    what `PartitionSpec.parse` and `TableSpec` raise.
    """
    if name in cluster.tables:
        raise ConfigError(f"table '{name}' exists already")
    spec = PartitionSpec.parse(list(partition_by), schema) if partition_by else PartitionSpec.whole()
    table = TableSpec(
        name=name,
        schema=schema,
        spec=spec,
        distribution=distribution,
        group=name if distribution == "partitioned" else None,
        source={"path": source} if isinstance(source, str) else source,
    )
    if colocate_with is None:
        return table
    other = cluster.tables.get(colocate_with)
    if other is None or other.group is None:
        raise ConfigError(
            f"table '{name}' cannot be co-located with '{colocate_with}', which is no partitioned table"
        )
    if not may_colocate(spec, other.spec):
        raise ConfigError(
            f"table '{name}' cannot be co-located with '{colocate_with}': their partition keys must have the same "
            "number of buckets and the same types"
        )
    return evolve(table, group=other.group)


class TableMaker:
    """Makes tables from this process. The embedded Spark starts with the first source and ends with `close`."""

    def __init__(self, store: ConditionalStore, runtime: Runtime) -> None:
        self._store = store
        self._runtime = runtime
        self._cluster = ObjectState(store, CLUSTER_KEY, ClusterDocument, runtime=runtime, retry=SHARED)
        self._spark = EmbeddedPipeline(store, runtime)

    def create(
        self,
        name: str,
        source: Source | None,
        partition_by: PartitionBy,
        *,
        schema: pa.Schema | None = None,
        distribution: Distribution = "partitioned",
        colocate_with: str | None = None,
        progress: Progress | None = None,
    ) -> TableSpec:
        """Write the table's partitions, publish its map, then its name. See `LocalCluster.create_table`.

        Until the name is published, in the last commit, nobody sees anything of the table; an attempt that failed
        can be repeated.
        """
        if (source is None) == (schema is None):
            raise ConfigError(f"table '{name}' needs either a source, or a schema if it is a managed table")
        found = self._spark.get().describe(name, source) if source is not None else schema

        def declare(cluster: ClusterDocument) -> TableSpec:
            return declare_table(
                cluster,
                name,
                found,
                partition_by,
                distribution=distribution,
                colocate_with=colocate_with,
                source=source,
            )

        table = declare(self.cluster())
        weights = self._write(table, progress)
        self._publish(table, weights)

        def change(cluster: ClusterDocument) -> ClusterDocument:
            declare(cluster)
            return evolve(cluster, tables={**cluster.tables, name: table})

        self._cluster.update(change)
        return table

    def cluster(self) -> ClusterDocument:
        """`cluster.json` as it is now; an empty cluster before the first node joined."""
        try:
            return self._cluster.read().document
        except ObjectMissing:
            return ClusterDocument()

    def instances(self) -> dict[str, str]:
        """The instance id of every member, by node id."""
        cluster = self.cluster()
        found = {
            id_: scheduler.instance_id for id_, scheduler in cluster.schedulers.items() if not scheduler.leaving
        }
        return found | {id_: executor.info.instance_id for id_, executor in cluster.executors.items()}

    def close(self) -> None:
        """End the embedded Spark session, if one was started."""
        self._spark.close()

    def _write(self, table: TableSpec, progress: Progress | None) -> Mapping[tuple[Any, ...], float]:
        """Make every partition's manifest; returns the rows of each by value."""
        if table.source is not None:
            report = self._spark.get().materialize(table, progress=progress)
            if (skew := report.skew_text()) is not None:
                _log.warning(skew)
            return {value: float(written.rows) for value, written in report.partitions.items()}
        values = table.spec.static_values()
        if values is None:
            raise ConfigError(
                f"managed table '{table.name}' must be partitioned by bucket(N, column) alone: other keys have no "
                "partitions before there are rows"
            )
        for value in values:
            PartitionStorage(self._store, table.name, table.spec.path(value), runtime=self._runtime).create()
        return dict.fromkeys(values, 0.0)

    def _publish(self, table: TableSpec, weights: Mapping[tuple[Any, ...], float]) -> None:
        """Write the first map, or over what an attempt that failed before its name was published has left."""
        values = list(weights)
        first = PartitionMap.build(
            table.name, table.spec, values, weights=[1.0 + weights[value] for value in values]
        )
        maps = PartitionStore(self._store, runtime=self._runtime)
        try:
            maps.create(first)
        except ObjectExists:
            state = ObjectState(
                self._store, partition_map_key(table.name), PartitionMapDocument, runtime=self._runtime
            )
            state.update(lambda _document: PartitionMapDocument(map=first))
