"""A statement sent again after its table was replaced: what it did in the table that had the name before.

What was decided for the former table, or applied in any partition of it, came before the replacement and counts
there: sent again it changes nothing in the new table. Only what nothing of the former one knows is done in the new one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from attrs import define, field

from ballista_py.coordinator.cluster_view import Views
from ballista_py.coordinator.writes.kept_rows import KeptRows
from ballista_py.coordinator.writes.owner_calls import RunAll
from ballista_py.errors import ObjectMissing, SqlError
from ballista_py.partitions.rows_digest import RowsDigest
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import Runtime
from ballista_py.state.documents.decisions import Decision, Statements
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.documents.resends import PATIENCE_MS, RESEND_MS
from ballista_py.state.documents.token_claims import TokenClaims
from ballista_py.state.documents.write_tokens import WriteToken
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.storage.manifest import AppliedToken, ManifestDocument
from ballista_py.storage.token_pages import TokenPages

MAX_FORMERS = 8
MAX_ASKED = 1_000  # partitions that are asked of a token which its client does not name
MAX_MET = 1_000
_MANIFEST = "/manifest.json"


@define(eq=False)
class FormerTables:
    """Knows what statements did in tables that others took the place of. Thread-safe.

    A client sends a statement under a token of its own making again for a minute at most; so long after this scheduler
    first met a replacement, partitions of the former table are asked for it. A token that its client names is asked
    for as long as its claim stands.
    """

    views: Views
    store: ConditionalStore
    runtime: Runtime
    claims: TokenClaims
    run_all: RunAll
    _first_met_ms: dict[str, float] = field(factory=dict, init=False)

    def formers(self, table: TableSpec) -> list[TableSpec]:
        """The tables that had the name before and were replaced, the latest first."""
        if not table.map_apart:
            return []
        dropped = (former for former, _ in self.views.current().dropped.values())
        found = [one for one in dropped if one.name == table.name and one.named < table.named]
        return sorted(found, key=lambda one: -one.named)[:MAX_FORMERS]

    def told(self, table: TableSpec, token: WriteToken) -> tuple[TableSpec, Decision] | None:
        """What the statement did in a former table, and in which; None if none of them knows of it."""
        for former in self.formers(table):
            decision = Statements(self.store, former.folder, runtime=self.runtime).read().of(token.kept)
            if decision is not None:
                return former, decision
            if not self._may_have_applied(former, token):
                continue
            applied = self._applied(former, token)
            if applied:
                affected = sum(one.affected for one in applied)
                return former, Decision(
                    attempt="", token=token.kept, committed=True, affected=affected, settled=True
                )
        return None

    def _may_have_applied(self, former: TableSpec, token: WriteToken) -> bool:
        if token.given:
            return self.claims.is_of(former.folder, token.kept)
        now_ms = self.runtime.monotonic_ms()
        if len(self._first_met_ms) >= MAX_MET:
            self._first_met_ms.clear()
        return now_ms - self._first_met_ms.setdefault(former.folder, now_ms) < RESEND_MS + PATIENCE_MS

    def told_of_rows(self, table: TableSpec, rows: KeptRows, token: WriteToken) -> int | None:
        """How many rows of an ingest a former table took; None if none of them knows of it.

        Raises `SqlError` where a token that the client names was one for other rows, or for more than can be kept to
        find that out.
        """
        if not token.given:
            found = self.told(table, token)
            return None if found is None else found[1].affected
        for former in self.formers(table):
            if self.claims.begun(former.folder, token.kept) is None:
                continue
            digest = RowsDigest()
            for batch in rows:
                digest.add(batch)
            of_rows = token.of_rows(digest.value)
            found = self.told(table, of_rows) if rows.repeatable else None
            if found is not None:
                return found[1].affected
            if not rows.repeatable or not self.claims.is_of(former.folder, of_rows.kept):
                raise SqlError(
                    f"token '{token.name}' was used for table '{table.name}' before it was replaced: nothing was "
                    "changed, take a new token for other rows",
                    token=token.name,
                )
        return None

    def _applied(self, former: TableSpec, token: WriteToken) -> list[AppliedToken]:
        pages = TokenPages(self.store, self.runtime)

        def one(key: str) -> AppliedToken | None:
            with suppress(ObjectMissing):  # it was collected since
                state = ObjectState(self.store, key, ManifestDocument, runtime=self.runtime)
                return pages.applied(state.read().document, token.kept)
            return None

        manifests = list(self._manifests(former))
        if len(manifests) > MAX_ASKED and not token.given:
            return []
        return [found for found in self.run_all(one, manifests) if found is not None]

    def _manifests(self, former: TableSpec) -> Iterator[str]:
        prefix = f"snapshots/{former.folder}/"
        return (entry.key for entry in self.store.list(prefix) if entry.key.endswith(_MANIFEST))
