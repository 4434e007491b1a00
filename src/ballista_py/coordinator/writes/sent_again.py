"""A statement that was sent before and cannot be carried out as it stands any more: what is told of it.

Its table lost its name, or was altered. What it did counts, and is what its client is told; rows that some partitions
took and others did not are said to be so.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import define

from ballista_py.coordinator.queries.service import QueryService
from ballista_py.coordinator.writes.former_tables import DoneBefore, FormerTables
from ballista_py.coordinator.writes.kept_rows import KeptRows
from ballista_py.coordinator.writes.whole_writes import Executed, WholeWrites
from ballista_py.errors import SqlError, WriteIncomplete
from ballista_py.partitions.rows_digest import RowsDigest
from ballista_py.partitions.table import TableSpec
from ballista_py.sql.parse.changes import Change, Local
from ballista_py.sql.parse.inserts import Insert
from ballista_py.state.documents.token_claims import TokenClaims
from ballista_py.state.documents.write_tokens import WriteToken


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
