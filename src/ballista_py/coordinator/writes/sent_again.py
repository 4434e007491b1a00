"""A statement that was sent before and cannot be carried out as it stands any more: what is told of it.

Its table lost its name, or was altered. What it did counts, and is what its client is told; rows that some partitions
took and others did not are said to be so.

A statement sent again after its table lost its name: what it did in the tables that had the name before.

A table loses its name to another one (CREATE OR REPLACE), to another name (RENAME TO), or for ever (DROP). What a
statement did in it came before that and counts there: sent again it changes nothing in the table that has the name now,
and is not told that there is none. Only what nothing of the former ones knows is for the table of that name now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

from attrs import define, field, frozen

from ballista_py.coordinator.cluster_view import Views
from ballista_py.coordinator.queries.service import QueryService
from ballista_py.coordinator.writes.kept_rows import KeptRows
from ballista_py.coordinator.writes.owner_calls import RunAll
from ballista_py.coordinator.writes.whole_writes import Executed, WholeWrites
from ballista_py.errors import ObjectMissing, SqlError, TryLater, WriteIncomplete
from ballista_py.partitions.rows_digest import RowsDigest
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import Runtime
from ballista_py.sql.parse.changes import Change, Local
from ballista_py.sql.parse.inserts import Insert
from ballista_py.state.documents.decisions import Decision, TableDecisions
from ballista_py.state.documents.documents import SNAPSHOTS_PREFIX
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.documents.token_claims import CLAIMED_MS, TokenClaims
from ballista_py.state.documents.write_tokens import PATIENCE_MS, TOKENS_KEPT_MS, WriteToken
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.storage.manifest import AppliedToken, ManifestDocument
from ballista_py.storage.token_pages import TokenPages
from ballista_py.work import pause


@define(eq=False)
class SentAgain:
    """Tells it. Thread-safe; raises what the store raises."""

    former: FormerTables
    whole: WholeWrites
    claims: TokenClaims
    queries: QueryService

    def told(self, found: DoneBefore, token: WriteToken, *, returning: bool = False) -> Executed:
        """What a statement did in the table of `found`, which nothing is left to be done of."""
        if found.decision is None:
            return Executed(found.affected)
        if found.table is not None:  # it is there still: folded in everywhere before it is told
            done = self.whole.decided_before(found.table, token, returning)
            if done is not None:
                return done
        return self.whole.told(found.folder, found.decision, returning)

    def of_refused(self, change: Change | None, table: TableSpec, token: WriteToken) -> Executed | None:
        """What a statement that is refused now did in its table before that was altered; None if it did nothing."""
        returning = bool(getattr(change, "returning", False))
        earlier = self.whole.decided_before(table, token, returning)
        if earlier is not None or not isinstance(change, Insert | Local):
            return earlier
        found = self._applied(table, token)
        return None if found is None else self.of_all(found, change)

    def of_all(self, found: DoneBefore, change: Insert | Local) -> Executed:
        """What partitions applied on their own. Raises `WriteIncomplete` unless it is all of the statement."""
        if isinstance(change, Insert):  # the others change one partition, or are decided
            counted = self.queries.run(f"select count(*) from ({change.query}) as sent")
            rows = sum(sum(batch.column(0).to_pylist()) for batch in counted.batches())
            _require_all(found.affected, rows, change.table)
        return Executed(found.affected)

    def of_refused_rows(self, table: TableSpec, rows: KeptRows, token: WriteToken) -> int | None:
        """How many rows of an ingest that is refused now its table took before it was altered; None if it took none.

        Raises `WriteIncomplete` for some of them.
        """
        if token.fresh or not table.definition or not rows.repeatable:
            return None
        found = self._applied(table, _of_rows(token, rows) if token.given else token)
        if found is None:
            return None
        _require_all(found.affected, sum(batch.num_rows for batch in rows), table.name)
        return found.affected

    def require_no_others(self, table: TableSpec, rows: KeptRows, token: WriteToken) -> None:
        """Raise `SqlError` if the client's token was one for other rows of the table."""
        if not token.given or self.claims.begun(table.folder, token.kept) is None:
            return
        of_rows = _of_rows(token, rows) if rows.repeatable else token
        self.claims.claim(table.folder, of_rows.kept)

    def _applied(self, table: TableSpec, token: WriteToken) -> DoneBefore | None:
        if token.fresh or (token.given and not self.claims.is_of(table.folder, token.kept)):
            return None
        return self.former.in_folder(table.folder, token)

    def of_rows(self, name: str, folder: str, rows: KeptRows, token: WriteToken) -> DoneBefore | None:
        """What became of the rows of an ingest in a table that had the name before the one in `folder`.

        None if no such table knows of it. Raises `SqlError` where a token that the client names was one for other
        rows, or for more than can be kept to find that out.
        """
        if not token.given:
            return self.former.of(name, folder, token)
        for begun in self.former.begun(name, folder, token):
            of_rows = _of_rows(token, rows)
            is_other = not rows.repeatable or not self.claims.is_of(begun, of_rows.kept)
            if is_other and rows.repeatable and self.former.was_dropped(begun):
                continue  # tokens begin anew with a table that is made after a DROP
            if is_other:
                raise SqlError(
                    f"token '{token.name}' was used for a table that was called '{name}' before: nothing was changed, "
                    "take a new token for other rows",
                    token=token.name,
                )
            found = self.former.of(name, folder, of_rows)
            if found is not None:
                return found
        return None


def looked_at(
    table: Callable[[], TableSpec], look: Callable[[str], DoneBefore | None]
) -> tuple[TableSpec | None, DoneBefore | None]:
    """The table of a statement, and what `look` finds in those that had its name before it.

    Raises what `table` raises, unless something is found.
    """
    try:
        now = table()
    except SqlError:
        found = look("")
        if found is None:
            raise
        return None, found
    return now, look(now.folder)


def _of_rows(token: WriteToken, rows: KeptRows) -> WriteToken:
    digest = RowsDigest()
    for batch in rows:
        digest.add(batch)
    return token.of_rows(digest.value)


def _require_all(affected: int, rows: int, table: str) -> None:
    if affected != rows:
        raise WriteIncomplete(
            f"table '{table}': {affected} of {rows} row(s) of the statement are there, and it was altered or lost its "
            "name since: the others cannot be added under this token, look which they are",
            table=table,
            lacking=rows - affected,
        )


MAX_FORMERS = 64
MAX_ASKED = 1_000  # partitions that are asked of a token of which nobody says that it was sent before
MAX_MET = 4_096
LOOK_MS = 50.0
_MANIFEST = "/manifest.json"


@frozen(kw_only=True)
class DoneBefore:
    """What a statement did in the table that has this `folder`: decided, or `applied` by partitions on their own.

    `table` is that table as it is now, under another name; None if it is no more.
    """

    folder: str
    table: TableSpec | None = None
    decision: Decision | None = None
    applied: tuple[AppliedToken, ...] = ()

    @property
    def affected(self) -> int:
        """How many rows it affected there."""
        return self.decision.affected if self.decision is not None else sum(one.affected for one in self.applied)


@define(eq=False)
class FormerTables:
    """Knows what statements did in tables that lost their names. Thread-safe.

    A statement that nobody can have sent before is not looked for. One under a token that its client names is, for
    as long as its claim stands; one under a token of its library, or of a driver, for as long as tokens are kept: both
    counted from when this scheduler first met the loss of the name.

    `is_served` tells of a table by its name whether its owners show its newest definition: from then on nobody writes
    to it under a name that it had before.
    """

    views: Views
    store: ConditionalStore
    runtime: Runtime
    claims: TokenClaims
    run_all: RunAll
    is_served: Callable[[str], bool]
    patience_ms: float = PATIENCE_MS
    _first_met_ms: dict[tuple[str, str], float] = field(factory=dict, init=False)

    def formers(self, name: str, folder: str, token: WriteToken) -> list[str]:
        """The folders of tables that had the name before the one in `folder`, the latest first, as far as the
        statement may have been sent for them."""
        if token.fresh:
            return []
        now_ms, known = self.runtime.monotonic_ms(), self.views.current(()).formers.get(name, ())
        if len(self._first_met_ms) + len(known) > MAX_MET:
            self._first_met_ms.clear()
        since = {one: self._first_met_ms.setdefault((name, one), now_ms) for one in known}
        kept_ms = CLAIMED_MS if token.given else TOKENS_KEPT_MS
        return [one for one in known if one != folder and now_ms - since[one] < kept_ms][:MAX_FORMERS]

    def of(self, name: str, folder: str, token: WriteToken) -> DoneBefore | None:
        """What the statement did in a table that had the name before the one in `folder`; None if none knows of it.

        Raises `TryLater` while a table that has another name now may still be written to under the old one, and what
        the store raises.
        """
        folders = self.formers(name, folder, token)
        if token.given:
            claimed = self.run_all(lambda one: self.claims.is_of(one, token.kept), folders)
            folders = [one for one, is_mine in zip(folders, claimed, strict=True) if is_mine]
        return next((found for one in folders if (found := self._done_in(one, token)) is not None), None)

    def begun(self, name: str, folder: str, token: WriteToken) -> list[str]:
        """The folders of former tables in which a statement was begun under the name of this token, by its client."""
        folders = self.formers(name, folder, token)
        begun = self.run_all(lambda one: self.claims.begun(one, token.kept), folders)
        return [one for one, claim in zip(folders, begun, strict=True) if claim is not None]

    def was_dropped(self, folder: str) -> bool:
        """Whether a former table has no other name, and none took its place, as far as is remembered."""
        return self._now(folder) is None and folder not in self.views.current().dropped

    def _done_in(self, folder: str, token: WriteToken) -> DoneBefore | None:
        """What the statement did in a former table, for good: if it is told nothing, nothing comes after that."""
        found = self.in_folder(folder, token)
        is_sent_again = token.given or token.again
        if found is not None or not is_sent_again or not self._await_news(folder):
            return found
        return self.in_folder(folder, token)

    def in_folder(self, folder: str, token: WriteToken) -> DoneBefore | None:
        """What the statement has done by now in the table that has this folder, whatever it is called."""
        decision = TableDecisions(self.store, folder, runtime=self.runtime).read().of(token.kept)
        applied = () if decision is not None else tuple(self._applied(folder, token))
        if decision is None and not applied:
            return None
        return DoneBefore(folder=folder, table=self._now(folder), decision=decision, applied=applied)

    def _await_news(self, folder: str) -> bool:
        """Wait until all owners of a table that has another name know that; whether there is such a table.

        What comes to a table that is no more is seen by nobody.
        """
        deadline_ms = self.runtime.monotonic_ms() + self.patience_ms
        while (table := self._now(folder)) is not None:
            if self.is_served(table.name):
                return True
            if self.runtime.monotonic_ms() > deadline_ms:
                raise TryLater(
                    f"not every owner of table '{table.name}' can be reached, and the statement was sent before it "
                    "was called so: send it again with its token"
                )
            pause(self.runtime, LOOK_MS)
        return False

    def _now(self, folder: str) -> TableSpec | None:
        tables: Mapping[str, TableSpec] = self.views.current(()).catalog.tables
        return next((table for table in tables.values() if table.folder == folder), None)

    def _applied(self, folder: str, token: WriteToken) -> list[AppliedToken]:
        pages = TokenPages(self.store, self.runtime)

        def one(key: str) -> AppliedToken | None:
            with suppress(ObjectMissing):  # it was collected since
                state = ObjectState(self.store, key, ManifestDocument, runtime=self.runtime)
                return pages.applied(state.read().document, token.kept)
            return None

        manifests = list(self._manifests(folder))
        if len(manifests) > MAX_ASKED and not (token.given or token.again):
            return []
        return [found for found in self.run_all(one, manifests) if found is not None]

    def _manifests(self, folder: str) -> Iterator[str]:
        prefix = f"{SNAPSHOTS_PREFIX}{folder}/"
        return (entry.key for entry in self.store.list(prefix) if entry.key.endswith(_MANIFEST))
