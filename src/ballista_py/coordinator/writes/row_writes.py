"""New rows on their way into a table, at a scheduler: applied by each owner by itself, or decided once for all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from attrs import define, evolve, field

from ballista_py.coordinator.cluster_view import ClusterView, Views
from ballista_py.coordinator.writes.checks import RowChecks
from ballista_py.coordinator.writes.kept_rows import KeptRows
from ballista_py.coordinator.writes.owner_calls import Order, OwnerCalls
from ballista_py.coordinator.writes.rounds import AlreadyDecided, WriteRounds
from ballista_py.coordinator.writes.write_outcome import Outcome
from ballista_py.coordinator.writes.write_ways import Way
from ballista_py.partitions.rows_digest import RowsDigest
from ballista_py.partitions.table import TableSpec
from ballista_py.state.documents.token_claims import TokenClaims
from ballista_py.state.documents.write_tokens import WriteToken


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
        replace: bool = False,
        told: bool = True,
    ) -> int:
        """Add rows to a table, or put them in the place of all that are there; how many they are.

        `told` says that the token tells them already, because they stand in the statement or are made by it. Else a
        token that the client gave counts for these rows alone.
        """
        if token.given and told:
            self.claims.claim(table.folder, token.kept)
        seal = _Seal(claims=self.claims, table=table, token=token) if token.given and not told else None
        if way == "apply":
            return self._append(table, rows, token, seal)
        kept = KeptRows(self.checks.batches(table, rows))
        return self.decided(table, kept, token, replace=replace, seal=seal)

    def _append(
        self, table: TableSpec, rows: Iterable[pa.RecordBatch], token: WriteToken, seal: _Seal | None
    ) -> int:
        """Rows that each owner applies by itself. Tried again while the rows are few enough to be kept."""
        kept = KeptRows(self.checks.batches(table, rows))
        done: dict[int, int] = {}

        def one(view: ClusterView) -> Outcome:
            known = self.rounds.known(table)
            order = Order(table=table, token=token.kept)
            batches = kept if seal is None else seal.counted(kept)
            return self.calls.send(order, view, batches, known, skip=frozenset(done), seal=seal)

        return self.rounds.until_done(table, one, done, repeatable=lambda: kept.repeatable)

    def decided(
        self,
        table: TableSpec,
        rows: KeptRows,
        token: WriteToken,
        *,
        replace: bool = False,
        seal: _Seal | None = None,
    ) -> int:
        """Rows that were checked, in every partition or in none."""

        def once_more() -> str:
            assert seal is not None
            final = seal()
            earlier = self.rounds.statements(table).read().of(final)
            if earlier is not None:
                raise AlreadyDecided(earlier)
            return final

        def prepare(order: Order, view: ClusterView) -> Outcome:
            known = self.rounds.known(table)
            batches = rows if seal is None else seal.counted(rows)
            ask = None if seal is None else once_more
            if not replace:
                return self.calls.send(order, view, batches, known, seal=ask)
            order = evolve(order, replace=True)
            everywhere = view.catalog.maps[table.name].ids().tolist()
            outcome = self.calls.send(order, view, batches, known, also=everywhere, seal=ask)
            return self._everywhere(order if seal is None else evolve(order, token=seal.final), outcome)

        final = None if seal is None else lambda: seal.final
        return self.rounds.once(
            table, token.kept, prepare, repeatable=lambda: rows.repeatable, final=final
        ).affected

    def _everywhere(self, order: Order, outcome: Outcome) -> Outcome:
        """With partitions prepared, too, that others made meanwhile: of two that replace everything one waits."""
        while not outcome.errors:
            self.views.refresh()
            view = self.rounds.view(order.table)
            everywhere = view.catalog.maps[order.table.name].ids().tolist()
            lacking = [partition for partition in everywhere if partition not in outcome.affected]
            if not lacking:
                break
            outcome.take(self.calls.send(order, view, (), self.rounds.known(order.table), also=lacking))
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
