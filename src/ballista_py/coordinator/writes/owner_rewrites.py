"""UPDATE, DELETE and TRUNCATE, each owner its share: in one partition by itself, in several by one decision for all."""

from __future__ import annotations

from attrs import frozen

from ballista_py.coordinator.cluster_view import ClusterView
from ballista_py.coordinator.writes.owner_calls import Order, OwnerCalls
from ballista_py.coordinator.writes.rounds import WriteRounds
from ballista_py.coordinator.writes.write_outcome import Outcome
from ballista_py.partitions.table import TableSpec
from ballista_py.sql.parse.changes import Local
from ballista_py.sql.prune.changes import touched_partitions
from ballista_py.sql.rewrite import Rewrite
from ballista_py.state.documents.token_claims import TokenClaims
from ballista_py.state.documents.write_tokens import WriteToken


@frozen
class OwnerRewrites:
    """Has owners rewrite the files of their partitions."""

    calls: OwnerCalls
    rounds: WriteRounds
    claims: TokenClaims

    def run(self, table: TableSpec, change: Local | None, rewrite: Rewrite, token: WriteToken) -> int:
        """Rewrite what the change can touch, None being everything; how many rows that changed.

        Raises what a statement raises of which a part, or all, was not applied.
        """
        if token.given:
            self.claims.claim(table.folder, token.kept)
        touched = self.touched(table, change, self.rounds.view(table))
        if len(touched) <= 1:  # a partition that is made from now on has no row that the statement must see

            def one(view: ClusterView) -> Outcome:
                return self.calls.rewrite(Order(table=table, token=token.kept), view, touched, rewrite)

            return self.rounds.until_done(table, one, {})
        met = False

        def prepare(order: Order, view: ClusterView) -> Outcome:
            nonlocal met
            wanted = self.touched(table, change, view)
            # Those that were in each other's way meet at their first partition, and have nothing to undo.
            parts = [wanted[:1], wanted[1:]] if met else [wanted]
            outcome, met = Outcome(), True
            for part in parts:
                if not outcome.errors:
                    outcome.take(self.calls.rewrite(order, view, part, rewrite))
            return outcome

        return self.rounds.once(table, token.kept, prepare).affected

    def touched(self, table: TableSpec, change: Local | None, view: ClusterView) -> list[int]:
        """The partitions that the change can touch."""
        pmap = view.catalog.maps[table.name]
        return pmap.ids().tolist() if change is None else list(touched_partitions(change, table, pmap))
