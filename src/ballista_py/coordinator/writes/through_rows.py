"""What statements on a table that is written through come to, computed here: rows, and the rows they were made from.

An INSERT with ON CONFLICT, an upsert and changes by key are computed from the rows of their keys at the source itself,
which are locked meanwhile. UPDATE, DELETE and MERGE are computed from the table as it stands here, at one moment after
the statement began; the source is asked whether the rows that they change are still what they were (`RowsMoved`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing

import numpy as np
import pyarrow as pa
from attrs import define, evolve, frozen

from ballista_py.coordinator.changes.batches import Changes, keys_of
from ballista_py.coordinator.changes.net import filled, lacking_keys, net_of
from ballista_py.coordinator.changes.row_changes import (
    RowChanges,
    comes,
    is_as_read,
    require_few,
    row_changes,
)
from ballista_py.coordinator.changes.source_writer import LockedRows, RowsMoved
from ballista_py.coordinator.queries.running_statement import read_as_work
from ballista_py.coordinator.writes.checks import RowChecks
from ballista_py.coordinator.writes.kept_rows import RowBudget
from ballista_py.coordinator.writes.whole_statements import BATCH_ROWS, MIN_MEMORY_BYTES
from ballista_py.coordinator.writes.whole_writes import WholeWrites, require_on_key
from ballista_py.errors import SqlError
from ballista_py.partitions.same_key import keys_of_rows
from ballista_py.partitions.table import TableSpec
from ballista_py.sql.bind.expressions import is_portable
from ballista_py.sql.own_words import edited_places, without_position
from ballista_py.sql.parse.changes import General, Local, quoted
from ballista_py.sql.parse.inserts import GIVEN_ROWS, Insert
from ballista_py.sql.parse.set_columns import may_set
from ballista_py.sql.prune.changes import as_general

Make = Callable[[LockedRows], RowChanges]
_TRUNCATE = 3


@frozen
class RowPlan:
    """How the changes of a statement are made, given the key that the source has.

    One that `meets` rows that are there is made anew where a key that was free is taken meanwhile. One that `reads` the
    table here needs it to show all that was committed at the source before the statement.
    """

    make: Callable[[tuple[str, ...]], Make]
    meets: bool = True
    reads: bool = False


@define
class ThroughRows:
    """Makes them. Thread-safe; holds at most `max_bytes` of rows for each statement."""

    whole: WholeWrites
    checks: RowChecks
    max_bytes: int

    def of_insert(self, change: Insert, table: TableSpec) -> RowPlan:
        """An INSERT. Its query is run once; columns that it does not name are the source's to fill."""
        if change.on_key:
            require_on_key(change, table)
        queries = self.whole.queries
        change = self.checks.converted(table, change)
        with edited_places(change.query, change.edits):
            columns = queries.describe(change.run)
            self.checks.require_fitting(table, change, columns)
        names = self.checks.given_columns(table, change, columns)
        wanted = _given_alone(table, names, keyed=change.on_key)
        with edited_places(change.query, change.edits), self.whole.running(change.run) as running:
            rows = self.checks.for_columns(table, change, running.schema, running.batches())
            with closing(rows):
                full = self.whole.gathered(table, self.checks.batches(wanted, rows))
        require_few(table.name, full)
        if not change.on_key:
            return RowPlan(lambda _key: lambda _locked: comes(full, names), meets=False)
        return RowPlan(lambda key: lambda locked: self._on_key(change, table, full, names, key, locked))

    def _on_key(
        self,
        change: Insert,
        table: TableSpec,
        full: pa.Table,
        names: Sequence[str],
        key: tuple[str, ...],
        locked: LockedRows,
    ) -> RowChanges:
        assert change.whole is not None
        there = locked.rows(full)
        try:
            return self._changed(
                change.whole, table, there, {GIVEN_ROWS: full.select(names)}, key, table.primary_key, names
            )
        except SqlError as error:
            raise error if len(change.whole) == change.text_length else without_position(error) from None

    def of_rows(self, table: TableSpec, rows: pa.Table) -> RowPlan:
        """Rows that come."""
        require_few(table.name, rows)
        return RowPlan(lambda _key: lambda _locked: comes(rows, table.schema.names), meets=False)

    def of_puts(self, table: TableSpec, rows: pa.Table) -> RowPlan:
        """Rows that take the place of those of their keys, or come."""
        require_few(table.name, rows)

        def make(key: tuple[str, ...], locked: LockedRows) -> RowChanges:
            there = locked.rows(rows)
            met = _among(table, there, keys_of_rows(rows, table.primary_key))
            return row_changes(table.name, met, rows, key, len(rows))

        return RowPlan(lambda key: lambda locked: make(key, locked))

    def of_changes(self, table: TableSpec, changes: Changes) -> RowPlan:
        """Changes by key, in their order."""
        if np.any(changes.ops == _TRUNCATE):
            raise SqlError(
                f"'truncate' cannot be sent to table '{table.name}', which is written through: delete its rows"
            )
        require_few(table.name, changes.old, changes.new)

        def make(key: tuple[str, ...], locked: LockedRows) -> RowChanges:
            keys = keys_of(table).schema
            asked = [
                changes.old.cast(keys),
                changes.new.select(keys.names).cast(keys),
                lacking_keys(table, changes),
            ]
            there = locked.rows(pa.concat_tables(asked))
            net = net_of(table, filled(table, changes, there))
            come = pa.Table.from_batches(self.checks.batches(table, net.come.to_batches()), schema=table.schema)
            names = table.primary_key
            met = _among(table, there, [*keys_of_rows(come, names), *keys_of_rows(net.gone, names)])
            return row_changes(table.name, met, _plain(table, come), key, len(changes))

        return RowPlan(lambda key: lambda locked: make(key, locked))

    def of_change(self, change: Local | General, table: TableSpec) -> RowPlan:
        """UPDATE, DELETE or MERGE, over the table as it is here now."""
        general = as_general(change) if isinstance(change, Local) else change

        def make(key: tuple[str, ...]) -> Make:
            read = self._read(table, change if isinstance(change, Local) else None)
            with ExitStack() as over:
                others: dict[str, pa.RecordBatchReader] = {}
                budget = RowBudget(self.max_bytes)
                for name in general.sources:
                    running = read_as_work(self.whole.queries.run(f"select * from {quoted(name)}"))
                    over.callback(running.cancel)
                    rows = budget.counted(running.batches())
                    others[name] = pa.RecordBatchReader.from_batches(running.schema, rows)
                found = self._changed(general.text, table, read, others, key)
            if len(found.come) and len(found.gone) and may_set(general.text, frozenset(key)):
                raise SqlError(
                    f"an UPDATE cannot change the key ({', '.join(key)}) of rows of table '{table.name}', which is "
                    "written through: DELETE the rows and INSERT others, in two statements"
                )
            return lambda locked: _if_as_read(found, locked, key)

        return RowPlan(make, reads=True)

    def _read(self, table: TableSpec, local: Local | None) -> pa.Table:
        """The rows of the table that a statement may be about."""
        name = table.name if local is None else local.alias
        query = f"select * from {quoted(table.name)} as {quoted(name)}"
        if local is not None and local.where is not None and local.tree is not None and is_portable(local.tree):
            query += f" where ({local.where}\n)"
        try:
            with self.whole.running(query) as running:
                batches = list(RowBudget(self.max_bytes).counted(running.batches()))
                return _plain(table, pa.Table.from_batches(batches, schema=running.schema))
        except SqlError as error:
            raise without_position(error) from None

    def _changed(
        self,
        text: str,
        table: TableSpec,
        rows: pa.Table,
        others: Mapping[str, pa.Table | pa.RecordBatchReader],
        key: tuple[str, ...],
        unique: Sequence[str] = (),
        names: Sequence[str] = (),
    ) -> RowChanges:
        """What the engine makes of a statement over these rows of its table."""
        readers = {
            name: one.to_reader(BATCH_ROWS) if isinstance(one, pa.Table) else one for name, one in others.items()
        }
        limit = f"{max(self.max_bytes, MIN_MEMORY_BYTES)}B"
        with self.checks.engine.change(
            text, table.name, rows.to_reader(BATCH_ROWS), readers, memory_limit=limit, key=unique
        ) as changed:
            gone = rows.take(changed.gone)
            batches = list(self.checks.batches(table, changed.come.to_batches()))
            come = pa.Table.from_batches(batches, schema=batches[0].schema if batches else table.schema)
            return row_changes(table.name, gone, _plain(table, come), key, changed.affected, names)


def _if_as_read(found: RowChanges, locked: LockedRows, key: Sequence[str]) -> RowChanges:
    """The changes, if the rows that they are made from are at the source what they were here. Raises `RowsMoved`."""
    read = found.locked
    if len(read) and not is_as_read(read, locked.rows(read), key):
        raise RowsMoved
    return found


def _among(table: TableSpec, there: pa.Table, keys: Iterable[tuple[object, ...]]) -> pa.Table:
    """The rows that have one of these primary keys."""
    wanted = set(keys)
    mine = keys_of_rows(there, table.primary_key)
    return there.filter(pa.array([one in wanted for one in mine], pa.bool_()))


def _plain(table: TableSpec, rows: pa.Table) -> pa.Table:
    """The rows in the types of the table, without what else its declaration says."""
    return rows.cast(pa.schema([pa.field(one.name, one.type) for one in table.schema]))


def _given_alone(table: TableSpec, names: Sequence[str], *, keyed: bool) -> TableSpec:
    """The table as if only the columns that are given had to be there: the source fills the others."""
    key = set(table.primary_key) if keyed else set()
    columns = [one if one.name in names or one.name in key else one.with_nullable(True) for one in table.schema]
    return evolve(table, schema=pa.schema(columns), checks=(), primary_key=table.primary_key if keyed else ())
