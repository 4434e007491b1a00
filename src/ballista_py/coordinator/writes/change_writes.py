"""Changes by primary key, applied to a table at one instant: brought to what they come to, prepared by owners, decided.

Owners get rows and keys, and look only into files that may hold them. A row whose key changes so that it belongs to
another partition goes there in the same decision. Changes of a source move the table's position by that decision, too,
and count only if the table stands where they begin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa
from attrs import define, evolve, frozen

from ballista_py.coordinator.changes.batches import Changes, keys_of, puts, read_changes, require_key
from ballista_py.coordinator.changes.net import filled, lacking_keys, net_of
from ballista_py.coordinator.cluster_view import ClusterView
from ballista_py.coordinator.writes.checks import RowChecks
from ballista_py.coordinator.writes.kept_rows import KeptRows, RowBudget
from ballista_py.coordinator.writes.keyed_rows import in_known_partitions, keyed_rows
from ballista_py.coordinator.writes.overwrites import every_partition
from ballista_py.coordinator.writes.owner_calls import Order, Outcome, OwnerCalls
from ballista_py.coordinator.writes.rounds import WriteRounds
from ballista_py.coordinator.writes.row_routes import partitions_of
from ballista_py.coordinator.writes.row_writes import RowWrites
from ballista_py.coordinator.writes.target_tables import PlannedAgain
from ballista_py.partitions.rows_digest import RowsDigest
from ballista_py.partitions.same_key import with_keys
from ballista_py.partitions.table import TableSpec
from ballista_py.sql.prune.changes import rows_of_keys
from ballista_py.state.documents.decisions import Decision, SourcePosition, SourceSpan
from ballista_py.state.documents.token_claims import TokenClaims
from ballista_py.state.documents.write_tokens import WriteToken


@define
class ChangeWrites:
    """Applies them. Thread-safe; holds at most `max_bytes` of rows for each statement."""

    calls: OwnerCalls
    rounds: WriteRounds
    rows: RowWrites
    checks: RowChecks
    claims: TokenClaims
    max_bytes: int

    def apply(self, table: TableSpec, batches: Iterable[pa.RecordBatch], token: WriteToken) -> int:
        """Apply changes (see `changes.batches`) that a client sends, all of them or none; how many they are.

        A token that the client gave is one for these changes, in this order.
        """
        return self._claimed(table, *self.sent(table, batches, token))

    def sent(
        self, table: TableSpec, batches: Iterable[pa.RecordBatch], token: WriteToken
    ) -> tuple[Changes, WriteToken]:
        """Changes as a client sends them, and the token of these very changes."""
        require_key(table)
        digest = RowsDigest()
        sent = RowBudget(self.max_bytes).counted(digest.counted(batches) if token.given else batches)
        changes = read_changes(table, map(_unnumbered, sent))
        return changes, token.of_rows(digest.value) if token.given else token

    def put(self, table: TableSpec, rows: pa.Table, token: WriteToken) -> int:
        """Put rows, which fit the table and have each its key, in the place of those of these keys; how many."""
        return self._claimed(table, puts(table, rows), token)

    def _claimed(self, table: TableSpec, changes: Changes, token: WriteToken) -> int:
        if token.given:
            self.claims.claim(table.folder, token.kept)
        return self.decided(table, changes, token.kept).affected

    def decided(self, table: TableSpec, changes: Changes, token: str, span: SourceSpan | None = None) -> Decision:
        """Apply changes by one decision, those of a source together with their `span`.

        Raises `PositionMoved` unless the table stands where the span begins.
        """

        def prepare(order: Order, view: ClusterView) -> Outcome:
            return self._prepare(order, view, changes)

        return self.rounds.once(table, token, prepare, affected=lambda: len(changes), span=span)

    def copied(self, table: TableSpec, rows: KeptRows, token: str, span: SourceSpan) -> None:
        """Put rows of a source in the place of all that are there, by one decision with the span."""
        require_key(table)
        checked = KeptRows(self.checks.batches(table, rows))
        self.rows.decided(table, checked, WriteToken(token, ()), replaced=every_partition, span=span)

    def _prepare(self, order: Order, view: ClusterView, changes: Changes) -> Outcome:
        table, known = order.table, self.rounds.known(order.table)
        base, files = self._base(order, view, changes)
        net = net_of(table, filled(table, changes, base))
        come = list(self.checks.batches(table, net.come.to_batches()))
        if net.replaces:
            order = evolve(order, replace=True)
            also = every_partition(view.catalog.maps[table.name])
            outcome = self.calls.send(order, view, come, known, also=also)
            return self.rows.everywhere(order, outcome, every_partition)
        gone = in_known_partitions(view.catalog.maps[table.name], net.gone)
        order = evolve(order, keyed=True, base=files)
        batches = keyed_rows(table, pa.Table.from_batches(come, schema=table.schema), gone)
        return self.calls.send(order, view, batches, known)

    def _base(self, order: Order, view: ClusterView, changes: Changes) -> tuple[pa.Table, dict[int, list[str]]]:
        """The rows of the table that lend columns to changes, and all files of their partitions."""
        table = order.table
        keys = lacking_keys(table, changes)
        if not keys.num_rows:
            return table.schema.empty_table(), {}
        partitions = partitions_of(view.catalog.maps[table.name], keys)
        rows, base = self.calls.base(order, view, partitions, rows_of_keys(keys_of(table), keys), table.name)
        budget = RowBudget(self.max_bytes)
        found = [
            with_keys(pa.Table.from_arrays(batch.columns[:-1], schema=table.schema), keys, table.primary_key)
            for batch in budget.counted(rows)
        ]
        columns = table.schema.names
        lent = [part.select(columns).cast(table.schema) for part in found if part.num_rows]
        return pa.concat_tables([table.schema.empty_table(), *lent]), dict(base.files)


@frozen
class FollowedTable:
    """The table of a name, for a `ChangeReader`. `table` gives it as it is now, or raises."""

    name: str
    table: Callable[[], TableSpec]
    writes: ChangeWrites
    again: PlannedAgain

    def position(self) -> SourcePosition | None:
        """Where it stands in its source, as decided."""
        return self.writes.rounds.statements(self.table()).read().position

    def copy(self, rows: Iterable[pa.RecordBatch], span: SourceSpan, token: str) -> None:
        """Put rows in the place of all that are there, by one decision with the span."""
        kept = KeptRows(iter(rows))
        self._decided(lambda table: self.writes.copied(table, kept, token, span), lambda: kept.repeatable)

    def apply(self, changes: pa.Table, span: SourceSpan, token: str) -> None:
        """Apply changes by one decision with the span."""

        def once(table: TableSpec) -> None:
            self.writes.decided(table, read_changes(table, changes.to_batches()), token, span)

        self._decided(once)

    def _decided(self, run: Callable[[TableSpec], None], repeatable: Callable[[], bool] = lambda: True) -> None:
        self.again.until_done(lambda: run(self.table()), {self.name}, repeatable)


def numbered(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    """The batches with the place of each row: the digest of changes must be another where their order is."""
    begin = 0
    for batch in batches:
        numbers = pa.array(range(begin, begin + len(batch)), pa.int64())
        begin += len(batch)
        yield batch.append_column(_NUMBER, numbers)


def _unnumbered(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.drop_columns([_NUMBER])


_NUMBER = "__ballista_number"
