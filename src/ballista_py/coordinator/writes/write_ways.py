"""The ways in which a statement that changes rows is carried out, and which one a statement takes; pure.

*apply*: each owner applies its share by itself, under the token. *decide*: every owner prepares its share, and the
statement is decided once for all. *whole*: the statement is run over the rows brought together, then as *decide*.

What may fail over a row that is there, and so in some partitions only, is decided: no partition applies a statement
that another one could not.

UPDATE, DELETE and TRUNCATE, each owner its share: in one partition by itself, in several by one decision for all.
"""

from __future__ import annotations

from typing import Literal

from attrs import frozen

from ballista_py.coordinator.cluster_view import ClusterView
from ballista_py.coordinator.writes.owner_calls import Order, Outcome, OwnerCalls
from ballista_py.coordinator.writes.rounds import WriteRounds
from ballista_py.partitions.table import TableSpec
from ballista_py.sql.parse.changes import Local
from ballista_py.sql.prune.changes import moves_rows, sets_key, touched_partitions
from ballista_py.sql.rewrite import Rewrite
from ballista_py.state.documents.token_claims import TokenClaims
from ballista_py.state.documents.write_tokens import WriteToken

Way = Literal["apply", "decide", "whole"]


def way_of_rows(table: TableSpec, *, atomic: bool, replace: bool = False, constant: bool = True) -> Way:
    """How new rows are taken in. Those that are not `constant` would be others if they were asked for again.

    A key that is taken must keep every partition as it is, so rows with a primary key are decided, too.
    """
    return "decide" if atomic or replace or not constant or table.primary_key else "apply"


def way_of_local(change: Local, table: TableSpec, *, partitions: int) -> Way:
    """How an UPDATE or DELETE over one table alone runs that can touch so many partitions.

    Rows that move, new values that must be held against keys and checks, and rows that are returned need the whole.
    One partition applies it or does not.
    """
    if change.returning is not None:
        return "whole"
    if moves_rows(change, table) or (change.assignments is not None and (table.checks or sets_key(change, table))):
        return "whole"
    return "decide" if partitions > 1 else "apply"


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
