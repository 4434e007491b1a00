"""Whoever brings a table to where its source is, one batch a tick; one is needed for progress, several do no harm."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

import pyarrow as pa
from attrs import define

from ballista_py.coordinator.changes.rules import Did, Progress, cut, token_of
from ballista_py.coordinator.changes.source import AT_COLUMN, ChangeSource, SourceLag
from ballista_py.errors import PositionMoved, SchemaMismatch, SourceLost, SourceUnfit
from ballista_py.state.documents.decisions import SourcePosition, SourceSpan

BATCH_CHANGES = 100_000


class Followed(Protocol):
    """A table that follows a source, where its changes are decided."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    def position(self) -> SourcePosition | None:
        """Where it stands, as decided; read from the store."""
        ...

    def copy(self, rows: Iterable[pa.RecordBatch], span: SourceSpan, token: str) -> None:
        """Put rows in the place of all that are there, by one decision with the span. Raises `PositionMoved`."""
        ...

    def apply(self, changes: pa.Table, span: SourceSpan, token: str) -> None:
        """Apply changes by one decision with the span. Raises `PositionMoved`, and `SchemaMismatch`."""
        ...


@define(eq=False)
class ChangeReader:
    """Reads the changes of one source into one table. Used by one thread; raises what the source and the store raise.

    What the source keeps for a table that cannot go on is thrown away beyond `max_lag_bytes`: then it needs a copy.
    """

    table: Followed
    source: ChangeSource
    batch_changes: int = BATCH_CHANGES
    max_lag_bytes: int | None = None

    def tick(self) -> Progress:
        """Copy the source if that was never done, else apply the next batch; what that did.

        Raises `SourceLost` where only `copy` helps, and `SourceUnfit` where something is to be done at the source: the
        table keeps what it has, and the next tick tries again.
        """
        since = self.table.position()
        if since is None:
            return self._copied(None)
        try:
            return self._applied(since)
        except (SourceUnfit, SourceLost):
            if self.table.position() != since:  # what was found wrong is of a place that is left by now
                return self._behind()
            raise

    def copy(self) -> Progress:
        """Copy the source anew, in the place of all rows that the table has."""
        return self._copied(self.table.position())

    def _copied(self, since: SourcePosition | None) -> Progress:
        position, rows = self.source.snapshot()
        span, counted = SourceSpan(since, position), _Counted(rows)
        try:
            self.table.copy(counted, span, token_of(span))
        except PositionMoved:
            self.source.discard(position)
            return self._behind()
        except SchemaMismatch as error:
            self.source.discard(position)
            raise SourceUnfit(f"the copy of table '{self.table.name}' does not fit: {error.message}") from error
        self._confirm(position)
        return self._progress("copied", position, counted.rows)

    def _applied(self, since: SourcePosition) -> Progress:
        batch = self.source.read(since, self.batch_changes)
        span, changes = cut(self.table.name, since, batch)
        if span is None:
            self._confirm(since)  # the reader that decided it may not have come to that
            return self._progress("nothing", since)
        try:
            self.table.apply(changes.drop_columns([AT_COLUMN]), span, token_of(span))
        except PositionMoved:
            return self._behind()
        except SchemaMismatch as error:
            raise SourceUnfit(
                f"table '{self.table.name}' stays at position {since}, because what follows does not fit: "
                f"{error.message}: mend the table at its source and here, then copy it anew"
            ) from error
        self._confirm(span.to)
        return self._progress("applied" if changes.num_rows else "moved on", span.to, changes.num_rows)

    def _behind(self) -> Progress:
        """Another reader was first: what it decided is where the next tick begins."""
        return self._progress("behind another", self.table.position())

    def _progress(self, did: Did, position: SourcePosition | None, changes: int = 0) -> Progress:
        lag = SourceLag() if position is None else self.source.lag(position)
        return Progress(did=did, position=position, changes=changes, lag=lag)

    def _confirm(self, position: SourcePosition) -> None:
        """Let the source forget what the table has. Another reader that went further may have confirmed that, too."""
        try:
            self.source.confirm(position)
        except SourceLost:
            if self.table.position() == position:
                raise

    def given_up(self, error: SourceUnfit | SourceLost) -> SourceUnfit | SourceLost:
        """What keeps the table from going on; what the source keeps for it may be thrown away by this.

        To be asked once nothing else helps. The table is looked at anew: whoever was paused knows an older place of it,
        and the log from there to where others have brought it is no lag.
        """
        since = self.table.position()
        if (
            self.max_lag_bytes is None
            or since is None
            or (self.source.lag(since).bytes or 0) <= self.max_lag_bytes
        ):
            return error
        self.source.give_up()
        return SourceLost(
            f"table '{self.table.name}' stands still, and its source kept more than {self.max_lag_bytes} bytes of log "
            f"for it, which were thrown away: mend it ({error.message}), then copy it anew"
        )


@define
class _Counted:
    """Batches, and how many rows of them went by."""

    batches: Iterable[pa.RecordBatch]
    rows: int = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self.batches:
            self.rows += len(batch)
            yield batch
