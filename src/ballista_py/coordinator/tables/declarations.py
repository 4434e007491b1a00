"""What a table is declared to be, held against the catalog: its keys, its mates, its names; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from attrs import evolve

from ballista_py.coordinator.tables.embedded_spark import Source
from ballista_py.errors import ConfigError, UnsupportedExpression
from ballista_py.partitions.refresh import Refresh, Retention, WriteMode, WriteWait
from ballista_py.partitions.spec import PartitionBy, PartitionSpec
from ballista_py.partitions.table import QUERY, Distribution, FileFormatName, TableSpec, may_colocate
from ballista_py.state.documents.documents import ClusterDocument


def declare_table(
    cluster: ClusterDocument,
    name: str,
    schema: pa.Schema,
    partition_by: PartitionBy,
    *,
    distribution: Distribution = "partitioned",
    colocate_with: str | None = None,
    source: Source | None = None,
    incarnation: str = "",
    primary_key: Sequence[str] = (),
    checks: Sequence[str] = (),
    file_format: FileFormatName = "parquet",
    replaces: bool = False,
    comment: str | None = None,
    refresh: Refresh | None = None,
    retention: Retention | None = None,
    write_mode: WriteMode = "read_only",
    write_wait: WriteWait = "visible",
) -> TableSpec:
    """The declaration of a table that may join `cluster`, or, if it `replaces`, take the place of one; pure.

    Raises `ConfigError` when the name is taken, or by a table where a view is to replace one, or `colocate_with` names
    no table with keys of the same form, `UnsupportedExpression` with the reason when it is taken by a table whose rows
    these keys would put elsewhere, and what `PartitionSpec.parse`, `TableSpec` and `require_follows` raise.
    """
    spec = PartitionSpec.parse(list(partition_by), schema) if partition_by else PartitionSpec.whole()
    cluster.require_no_view(name)
    if name in cluster.unreadable:
        raise ConfigError(f"table '{name}' exists already, though this release cannot read it")
    if name in cluster.tables and not replaces:
        try:
            cluster.tables[name].spec.check_successor(spec)
        except UnsupportedExpression as error:
            raise UnsupportedExpression(f"table '{name}' exists already, and {error}") from None
        raise ConfigError(f"table '{name}' exists already")
    if name in cluster.tables:
        _require_same_kind(cluster.tables[name], isinstance(source, Mapping) and source.get("format") == QUERY)
    table = TableSpec(
        name=name,
        schema=schema,
        spec=spec,
        distribution=distribution,
        group=_free_group(cluster, name, spec, incarnation) if distribution == "partitioned" else None,
        source={"path": source} if isinstance(source, str) else source,
        incarnation=incarnation,
        primary_key=tuple(primary_key),
        checks=tuple(checks),
        file_format=file_format,
        comment=comment,
        map_apart=replaces or any(other.map_name == name for other in cluster.tables.values()),
        refresh=refresh,
        retention=retention,
        write_mode=write_mode,
        write_wait=write_wait,
    )
    from ballista_py.coordinator.tables.follows import require_follows  # a parser, which clients are spared

    require_follows(table)
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


def _require_same_kind(there: TableSpec, keeps_query: bool) -> None:
    """Raise `ConfigError` for a materialized view in the place of a table, or the other way round: rows that nobody can
    make anew would go."""
    if keeps_query and there.query is None:
        raise ConfigError(f"'{there.name}' is a table: drop it with DROP TABLE, or take another name for the view")
    if there.query is not None and not keeps_query:
        raise ConfigError(
            f"'{there.name}' is a materialized view: drop it with DROP MATERIALIZED VIEW, or take another name for the "
            "table"
        )


def _free_group(cluster: ClusterDocument, name: str, spec: PartitionSpec, incarnation: str) -> str:
    """The group that has the name of the table, unless it has tables yet that were co-located with another one."""
    mates = (table for table in cluster.tables.values() if table.group == name and table.name != name)
    return name if all(may_colocate(spec, mate.spec) for mate in mates) else f"{name}.{incarnation}"
