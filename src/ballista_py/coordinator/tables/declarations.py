"""What a table is declared to be, held against the catalog: its keys, its mates, its names; pure.

Whether what a table declares of its source and its old rows can be carried out; pure, asked when it is declared.

Which columns a table may have: those that the engine of every executor can hold, asked of the very commit.

Executors say with which engine they run when they are admitted, in the document that a table is committed to. What
most of them say is the cluster's engine: so no table is acknowledged that its executors cannot load. What a few say
of themselves, who may lie or have joined by mistake, refuses nobody's table: such a one says why it does not serve it,
as one does that joins later.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa
from attrs import evolve
from sqlglot import exp
from sqlglot.optimizer.simplify import simplify

from ballista_py.coordinator.tables.embedded_spark import Source
from ballista_py.engines.duckdb.tables import require_held
from ballista_py.errors import ConfigError, SchemaMismatch, SqlError, UnsupportedExpression
from ballista_py.partitions.columns import stored_name
from ballista_py.partitions.expression.time_zones import no_zone, zone_that_is_none
from ballista_py.partitions.refresh import Refresh, Retention, WriteMode, WriteWait
from ballista_py.partitions.spec import PartitionBy, PartitionSpec
from ballista_py.partitions.table import QUERY, Distribution, FileFormatName, TableSpec, folded, may_colocate
from ballista_py.sql.parse.changes import Local, quoted, read_change
from ballista_py.sql.parse.kind import tokens_of
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


# A table whose source tells its changes follows them without a schedule.
CARRIED_OUT = ("full", "append")
# By which one run would take rows away that the next one would have left.
BY_CHANCE = frozenset({"gen_random_uuid", "random", "uuid", "uuidv4", "uuidv7"})


def require_follows(table: TableSpec) -> None:
    """Raise `ConfigError` unless the refresh and the retention that the table declares can be carried out."""
    if table.query is not None:
        _require_of_query(table)
    if table.refresh is not None:
        table.refresh.require_usable(table.name, table.schema, has_source=table.source is not None)
        if table.by_changes:
            said = table.refresh
            if said.mode != "changes" or said.every is not None or said.time_column is not None:
                raise ConfigError(
                    f"table '{table.name}' follows the changes of its source by itself, without a schedule: leave "
                    "refresh out, or say mode 'changes' and on_schema_change alone"
                )
        elif table.refresh.mode not in CARRIED_OUT:
            raise ConfigError(
                f"table '{table.name}': this source is not followed by its changes, as 'postgres' is: take "
                "refresh mode 'full', or 'append' with a time_column"
            )
    if table.retention is not None:
        retention_of(table.name, table.schema, table.retention)


def _require_of_query(table: TableSpec) -> None:
    """Raise `ConfigError` for what a materialized view declares that only other tables can."""
    name, said = table.name, table.refresh
    if table.retention is not None:
        raise ConfigError(
            f"materialized view '{name}' has the rows that its query gives: put what it is to forget into that"
        )
    if said is not None and (
        said.mode != "full" or said.time_column is not None or said.on_schema_change != "fail"
    ):
        raise ConfigError(
            f"materialized view '{name}' is made anew from its query each time: of the options of a refresh it takes "
            "refresh_check_interval alone"
        )


def retention_of(table: str, schema: pa.Schema, retention: Retention) -> Local:
    """The DELETE of a table's retention. Raises `ConfigError` for anything else than one DELETE of its own rows."""
    wrong = f"table '{table}': its retention is no DELETE of its own rows"
    shown = f"write DELETE FROM {table} WHERE …, whose condition names its columns alone"
    try:
        change = read_change(retention.sql)
    except SqlError as error:
        raise ConfigError(f"{wrong} ({error.message}): {shown}") from None
    if not isinstance(change, Local) or change.assignments is not None or change.returning is not None:
        raise ConfigError(f"{wrong}: {shown}")
    if folded(change.table) != table:
        raise ConfigError(f"table '{table}': its retention deletes from '{change.table}': {shown}")
    if change.where is None:
        raise ConfigError(f"table '{table}': its retention deletes every row: {shown}")
    known = {name.lower() for name in schema.names}
    for column in () if change.tree is None else change.tree.find_all(exp.Column):
        if not column.table and column.name.lower() not in known:
            raise ConfigError(f"table '{table}': its retention names '{column.name}', a column that it has not")
    return change


def require_choice(table: str, change: Local) -> None:
    """Raise `ConfigError` for a retention that tells no old rows from others: by no column, by chance, or not at all.

    It is asked when a retention is declared; one that was declared before is carried out as it is.
    """
    tree = change.tree
    if tree is None:
        return
    shown = f"write DELETE FROM {table} WHERE …, whose condition says which rows are old"
    for call in tree.find_all(exp.Func):
        if BY_CHANCE & {name.lower() for name in (call.name, *call.sql_names())}:
            called = call.sql(dialect="duckdb").lower()
            raise ConfigError(
                f"table '{table}': its retention calls {called}, so chance says what it deletes: {shown}"
            )
    if tree.find(exp.Column) is None:
        raise ConfigError(
            f"table '{table}': its retention names no column, so it means every row or none: {shown}"
        )
    found = simplify(tree.copy())
    if isinstance(found, exp.Boolean):
        rows = "every row" if found.this else "no row"
        raise ConfigError(f"table '{table}': its retention deletes {rows}, whatever the columns hold: {shown}")


def with_quoted(sql: str, names: Collection[str]) -> str:
    """The statement with each bare word that is one of these names of columns in quotes.

    >>> with_quoted("delete from t where at < now()", ["at"])
    'delete from t where "at" < now()'
    """
    text, tokens = tokens_of(sql)
    small = {name.lower(): name for name in names}
    for token in reversed(tokens):
        bare = text[token.start : token.end + 1]
        if bare.lower() in small:
            text = f"{text[: token.start]}{quoted(small[bare.lower()])}{text[token.end + 1 :]}"
    return text


def require_columns(table: str, schema: pa.Schema) -> None:
    """Raises `ConfigError`, with the reason, if DuckDB, which every scheduler runs, cannot hold these columns.

    So it does for a time zone that there is not: DuckDB keeps no zones, and whoever reads them cannot use such a one.
    """
    for column in schema:
        zone = zone_that_is_none(column.type)
        if zone is not None:
            raise ConfigError(f"table '{table}' cannot have the column '{column.name}': {no_zone(zone)}")
    try:
        require_held(schema, table)
    except SchemaMismatch as error:
        raise ConfigError(f"{error.message}: give its columns other names or types") from None


def require_engines_hold(cluster: ClusterDocument, table: str, schema: pa.Schema) -> None:
    """Raises `ConfigError`, naming column and executor, if most executors of the cluster cannot hold these columns."""
    such = sorted(id_ for id_, executor in cluster.executors.items() if executor.info.engine == "polars")
    if 2 * len(such) <= len(cluster.executors):
        return
    found = such[0]
    from ballista_py.engines.polars.types import why_not_held  # with polars, which other schedulers need not load

    reason = why_not_held(schema)
    if reason is not None:
        raise ConfigError(
            f"table '{table}' cannot be held by executor '{found}', which runs the polars engine: {reason}; give it "
            "another type, or run executors with 'engine: duckdb'"
        )


def new_columns(before: TableSpec, after: TableSpec) -> pa.Schema:
    """The columns of a table that an earlier definition of it did not have, or had with another type."""
    had = {stored_name(column): column.type for column in before.schema}
    return pa.schema([column for column in after.schema if had.get(stored_name(column)) != column.type])
