"""Changes as owners carry them out, partition by partition, beside the same change on one node.

What an owner runs is run over each partition that the statement can touch, and over no other: so rows, count and
returned rows are those of a single node only if partitions are told rightly and every piece means what it meant.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen

from ballista_py.coordinator.writes.checks import RowChecks
from ballista_py.engines.engine import Engine
from ballista_py.engines.same_answer import difference
from ballista_py.errors import BallistaError, SqlError
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.table import TableSpec
from ballista_py.sql.parse.changes import General, Local, TruncateTable, quoted, read_change
from ballista_py.sql.parse.inserts import GIVEN_ROWS, Insert
from ballista_py.sql.prune.changes import local_rewrite, rows_of_keys, touched_partitions

_MEMORY = "1GB"


class Tables(Protocol):
    """The tables of a cluster, whole and cut, and what it answers: `InProcessCluster`."""

    tables: dict[str, TableSpec]
    maps: dict[str, PartitionMap]
    rows: dict[str, pa.Table]

    def part(self, table: str, partitions: tuple[int, ...]) -> pa.Table: ...
    def partitions_of(self, table: str, rows: pa.Table) -> Collection[int]: ...
    def answer(self, sql: str) -> pa.Table: ...


@frozen
class Done:
    """What a change did: the rows of its table afterwards, how many it affected, those that it returned."""

    rows: pa.Table
    affected: int
    returned: pa.Table | None


def check_change(cluster: Tables, engine: Engine, sql: str) -> pa.Table:
    """Assert that the partitions after the change hold what one node does; the rows of the table then.

    Raises `AssertionError`, and what the engine raises for a change that one node cannot make either.
    """
    change = read_change(sql)
    if isinstance(change, TruncateTable):
        return cluster.tables[change.table].schema.empty_table()
    if not isinstance(change, Insert | Local | General) or getattr(change, "overwrites", False):
        raise SqlError("what defines or overwrites a table is compared on a running cluster: give `cluster`")
    table = cluster.tables[change.table]
    # A change of the whole table, in the words of the user.
    expected = _run(engine, table, cluster.rows[table.name], sql, _others(cluster, table.name), "returning" in sql)
    try:
        found = by_partitions(cluster, engine, table, change)
    except (BallistaError, pa.ArrowException) as error:
        raise AssertionError(f"it fails: {error}\n{sql}") from error
    assert found.affected == expected.affected, f"{found.affected} instead of {expected.affected} row(s)\n{sql}"
    wrong = difference(found.rows, expected.rows.cast(found.rows.schema))
    assert wrong is None, f"the rows after it: {wrong}\n{sql}"
    if expected.returned is not None:
        wrong = "no rows" if found.returned is None else difference(found.returned, expected.returned)
        assert wrong is None, f"what it returns: {wrong}\n{sql}"
    return found.rows


def by_partitions(cluster: Tables, engine: Engine, table: TableSpec, change: Insert | Local | General) -> Done:
    """What the change does where each owner changes its own partitions."""
    every = tuple(cluster.maps[table.name].ids().tolist())
    schemas = {table.name: table.schema}
    if isinstance(change, Local) and engine.bind_change(change.text, schemas, change.put_together):
        touched = tuple(touched_partitions(change, table, cluster.maps[table.name]))
        if change.returning is None:
            return _rewritten(cluster, engine, table, change, touched)
        return _over(cluster, engine, table, change.text, touched, {}, returning=True)
    if isinstance(change, Insert):
        return _inserted(cluster, engine, table, change)
    general = change if isinstance(change, General) else None
    others = {} if general is None else {name: cluster.rows[name] for name in general.sources}
    returning = general.returning if general is not None else change.returning is not None
    return _over(cluster, engine, table, change.text, every, others, returning=returning)


def _rewritten(cluster: Tables, engine: Engine, table: TableSpec, change: Local, touched: Sequence[int]) -> Done:
    """Each owner puts rows in the place of its own."""
    types = dict(zip(table.schema.names, engine.sql_types(table.schema), strict=True))
    sql = local_rewrite(change, table, types).rows
    left = [cluster.part(table.name, (place,)) for place in _rest(cluster, table, touched)]
    affected = 0
    for place in touched:
        part = cluster.part(table.name, (place,))
        if sql is None:
            affected += part.num_rows
            continue
        running = engine.query(sql, streams={table.name: part})
        after = pa.Table.from_batches(running.batches(), running.schema)
        hits = after.column(after.num_columns - 1)
        affected += pc.sum(hits).as_py() or 0
        rows = after.select(list(range(after.num_columns - 1)))
        left.append(rows.filter(pc.invert(hits)) if change.assignments is None else rows)
    return Done(_joined(table, left), affected, None)


def _inserted(cluster: Tables, engine: Engine, table: TableSpec, change: Insert) -> Done:
    """The cluster answers the query; the engine meets its rows with those of the partitions of their keys."""
    change = RowChecks(engine).converted(table, change)
    given = cluster.answer(change.run)
    columns = "" if change.columns is None else f" ({', '.join(map(quoted, change.columns))})"
    by_name = " by name" if change.by_name else ""
    plain = f'insert into {quoted(table.name)}{columns}{by_name} from "{GIVEN_ROWS}"'
    if change.defaults:
        given = pa.table({field.name: pa.nulls(1, field.type) for field in table.schema})
    text = plain if change.whole is None else change.whole
    touched: Sequence[int] = ()
    if change.on_key:
        names = list(given.column_names) if change.by_name else list(change.columns or table.schema.names)
        types = dict(zip(table.schema.names, engine.sql_types(table.schema), strict=True))
        shown = (f"cast({quoted(n)} as {types[n]}) as {quoted(n)}" for n in names)
        running = engine.query(
            f"select {', '.join(shown)} from given", streams={"given": given.rename_columns(names)}
        )
        keyed = pa.Table.from_batches(running.batches(), running.schema)
        full = pa.table(
            [
                keyed[f.name].cast(f.type) if f.name in names else pa.nulls(given.num_rows, f.type)
                for f in table.schema
            ],
            schema=pa.schema([f.with_nullable(True) for f in table.schema]),
        )
        touched = sorted(cluster.partitions_of(table.name, full))
        where = rows_of_keys(table, full)
        assert where is None or _all_under(engine, table, full, where), f"keys outside of {where}"
    return _over(cluster, engine, table, text, touched, {GIVEN_ROWS: given}, returning=change.returning)


def _all_under(engine: Engine, table: TableSpec, rows: pa.Table, where: str) -> bool:
    running = engine.query(f'select count(*) from "{table.name}" where {where}', streams={table.name: rows})
    return bool(sum(batch.column(0)[0].as_py() for batch in running.batches()) == rows.num_rows)


def _over(
    cluster: Tables,
    engine: Engine,
    table: TableSpec,
    text: str,
    touched: Sequence[int],
    others: Mapping[str, pa.Table],
    *,
    returning: bool,
) -> Done:
    """The statement over the rows of some partitions, and the others as they were."""
    read = _joined(table, [cluster.part(table.name, (place,)) for place in touched])
    done = _run(engine, table, read, text, others, returning)
    rest = [cluster.part(table.name, (place,)) for place in _rest(cluster, table, touched)]
    return Done(_joined(table, [*rest, done.rows]), done.affected, done.returned)


def _run(
    engine: Engine, table: TableSpec, rows: pa.Table, text: str, others: Mapping[str, pa.Table], returning: bool
) -> Done:
    readers = {name: one.to_reader() for name, one in others.items()}
    with engine.change(
        text,
        table.name,
        rows.to_reader(),
        readers,
        memory_limit=_MEMORY,
        key=table.primary_key,
        returning=returning,
    ) as changed:
        affected, come, returned = changed.affected, changed.come, changed.returned
        kept = changed.kept([(0, rows.num_rows)]).read_all()
    return Done(_joined(table, [kept, come]), affected, returned)


def _rest(cluster: Tables, table: TableSpec, touched: Sequence[int]) -> list[int]:
    return [place for place in cluster.maps[table.name].ids().tolist() if place not in set(touched)]


def _joined(table: TableSpec, parts: Sequence[pa.Table]) -> pa.Table:
    loose = pa.schema([field.with_nullable(True) for field in table.schema])
    return pa.concat_tables([part.cast(loose) for part in parts]) if parts else loose.empty_table()


def _others(cluster: Tables, table: str) -> dict[str, pa.Table]:
    return {name: rows for name, rows in cluster.rows.items() if name != table}
