"""New rows on their way into a table, at a scheduler: applied by each owner by itself, or decided once for all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import pyarrow as pa
from attrs import define, evolve, field, frozen

from ballista_py.coordinator.cluster_view import ClusterView, Views
from ballista_py.coordinator.writes.checks import RowChecks
from ballista_py.coordinator.writes.kept_rows import KeptRows
from ballista_py.coordinator.writes.overwrites import Replaced
from ballista_py.coordinator.writes.owner_calls import Order, Outcome, OwnerCalls
from ballista_py.coordinator.writes.rounds import AlreadyDecided, WriteRounds
from ballista_py.coordinator.writes.write_ways import Way
from ballista_py.errors import SchemaMismatch
from ballista_py.partitions.columns import from_files
from ballista_py.partitions.conform import check_columns
from ballista_py.partitions.rows_digest import RowsDigest
from ballista_py.partitions.table import TableSpec
from ballista_py.state.documents.decisions import SourceSpan
from ballista_py.state.documents.token_claims import TokenClaims
from ballista_py.state.documents.write_tokens import WriteToken

Shaped: TypeAlias = Callable[[pa.RecordBatch], pa.RecordBatch]


@define
class RowWrites:
    """Takes rows in. Thread-safe."""

    views: Views
    calls: OwnerCalls
    rounds: WriteRounds
    checks: RowChecks
    claims: TokenClaims

    def take_in(
        self,
        table: TableSpec,
        rows: Iterable[pa.RecordBatch],
        token: WriteToken,
        way: Way,
        *,
        replaced: Replaced | None = None,
        told: bool = True,
        shaped: Shaped | None = None,
    ) -> int:
        """Add rows to a table, or put them in the place of all that are there in the partitions `replaced`; how many.

        `told` says that the token tells them already, because they stand in the statement or are made by it. Else a
        token that the client gave counts for these rows alone, and they must be such as can be gone through again, each
        `shaped` to fit the table.
        """
        if token.given and told:
            self.claims.claim(table.folder, token.kept)
        seal = _Seal(claims=self.claims, table=table, token=token) if token.given and not told else None
        kept: KeptRows | _Sealed = KeptRows(self.checks.batches(table, rows))
        if seal is not None:
            kept = _Sealed(rows=rows, seal=seal, checks=self.checks, table=table, shaped=shaped)
        if way == "apply":
            return self._append(table, kept, token, seal)
        return self.decided(table, kept, token, replaced=replaced, seal=seal)

    def _append(self, table: TableSpec, rows: KeptRows | _Sealed, token: WriteToken, seal: _Seal | None) -> int:
        """Rows that each owner applies by itself. Tried again while the rows are few enough to be kept."""
        done: dict[int, int] = {}

        def one(view: ClusterView) -> Outcome:
            known = self.rounds.known(table)
            order = Order(table=table, token=token.kept)
            return self.calls.send(order, view, rows, known, skip=frozenset(done), seal=seal)

        return self.rounds.until_done(table, one, done, repeatable=lambda: rows.repeatable)

    def shape_of(self, table: TableSpec, rows: KeptRows, schema: pa.Schema | None, token: WriteToken) -> Shaped:
        """How rows of this schema come to be rows of the table: as they are, or as those of an earlier definition.

        Those were begun under the client's token before the table was altered; whoever sends them again has them
        completed, as if they had come before. Raises `SchemaMismatch` for others that do not fit.
        """
        if schema is None or not token.given:
            return _as_they_are
        try:
            check_columns(table, schema)
        except SchemaMismatch:
            digest = RowsDigest()
            for batch in rows:
                digest.add(batch)
            if not rows.repeatable or not self.claims.is_of(table.folder, token.of_rows(digest.value).kept):
                raise
            return lambda batch: _of_earlier(table, batch)
        return _as_they_are

    def decided(
        self,
        table: TableSpec,
        rows: KeptRows | _Sealed,
        token: WriteToken,
        *,
        replaced: Replaced | None = None,
        seal: _Seal | None = None,
        span: SourceSpan | None = None,
    ) -> int:
        """Rows that were checked, in every partition or in none; the copy of a source with its `span`."""

        def once_more() -> str:
            assert seal is not None
            final = seal()
            earlier = self.rounds.statements(table).read().of(final)
            if earlier is not None:
                raise AlreadyDecided(earlier)
            return final

        def prepare(order: Order, view: ClusterView) -> Outcome:
            known = self.rounds.known(table)
            ask = None if seal is None else once_more
            if replaced is None:
                return self.calls.send(order, view, rows, known, seal=ask)
            order = evolve(order, replace=True)
            also = replaced(view.catalog.maps[table.name])
            outcome = self.calls.send(order, view, rows, known, also=also, among=replaced, seal=ask)
            return self.everywhere(order if seal is None else evolve(order, token=seal.final), outcome, replaced)

        final = None if seal is None else lambda: seal.final
        return self.rounds.once(
            table, token.kept, prepare, repeatable=lambda: rows.repeatable, final=final, span=span
        ).affected

    def everywhere(self, order: Order, outcome: Outcome, replaced: Replaced) -> Outcome:
        """With partitions prepared, too, that others made meanwhile: of two that replace everything one waits."""
        while not outcome.errors:
            self.views.refresh({order.table.name})
            view = self.rounds.view(order.table)
            everywhere = replaced(view.catalog.maps[order.table.name])
            lacking = [partition for partition in everywhere if partition not in outcome.affected]
            if not lacking:
                break
            outcome.take(
                self.calls.send(order, view, (), self.rounds.known(order.table), also=lacking, among=replaced)
            )
        return outcome


@define
class _Seal:
    """Claims the token of rows once all of them went by. `final` is that token, afterwards."""

    claims: TokenClaims
    table: TableSpec
    token: WriteToken
    final: str = ""
    _digest: RowsDigest = field(factory=RowsDigest, init=False)

    def counted(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows, of which the token is then."""
        return self._digest.counted(rows)

    def __call__(self) -> str:
        self.final = self.token.of_rows(self._digest.value).kept
        self.claims.claim(self.table.folder, self.final)
        return self.final


@frozen
class _Sealed:
    """Rows that are counted as the client sent them, and checked then: the token is the same whatever the table is."""

    rows: Iterable[pa.RecordBatch]
    seal: _Seal
    checks: RowChecks
    table: TableSpec
    shaped: Shaped | None

    @property
    def repeatable(self) -> bool:
        """Whether another iteration would give all rows."""
        return not isinstance(self.rows, KeptRows) or self.rows.repeatable

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self.checks.batches(self.table, map(self.shaped or _as_they_are, self.seal.counted(self.rows)))


def _as_they_are(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def _of_earlier(table: TableSpec, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of an earlier definition, in which each column was called as it is in files."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    try:
        found = from_files(columns, batch.num_rows, table.schema)
    except (KeyError, pa.ArrowException):
        raise SchemaMismatch(
            f"table '{table.name}' was altered since the rows were sent first, and they do not say what they are now: "
            "look which of them are there"
        ) from None
    return pa.RecordBatch.from_arrays(found, schema=table.schema)
