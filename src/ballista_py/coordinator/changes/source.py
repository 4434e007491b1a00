"""What a source of changes promises to those who read it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa
from attrs import field, frozen

from ballista_py.state.documents.decisions import SourcePosition

AT_COLUMN = "at"


@frozen(kw_only=True)
class ChangeBatch:
    """Whole transactions of a source, in the order of their commits: all that there are up to `position`.

    `changes` has the columns that `Client.apply_changes` takes, and `at`: of each change the `SourcePosition.at` of its
    transaction's commit.
    """

    changes: pa.Table = field(eq=False, repr=False)
    position: SourcePosition


@frozen(kw_only=True)
class Described:
    """The columns of a table at its source, and the key that tells its rows apart.

    Columns that are `filled` have values in rows that were there before the column was.
    """

    schema: pa.Schema
    primary_key: tuple[str, ...]
    filled: frozenset[str] = frozenset()


@frozen(kw_only=True)
class SourceLag:
    """What a source has that is later than a position: bytes of log and changed rows; None where it does not tell."""

    bytes: int | None = None
    rows: int | None = None


class ChangeSource(Protocol):
    """One table of a source, and the log of its changes. Used by one thread at a time.

    Each method raises `SourceUnavailable` for what may pass, `SourceLost` where the log has a gap that no reading
    mends, and `SourceUnfit`, with the way out, for what cannot be followed. Whoever reads may die at any line and may
    not be the only one: a source must bear to be asked for the same again, and to be copied twice at once.
    """

    def snapshot(self) -> tuple[SourcePosition, Iterator[pa.RecordBatch]]:
        """A position of a new log, and all rows of the table as of that very position, to be read before anything else
        is asked. Changes after it are kept from now on, until they are confirmed."""
        ...

    def read(self, after: SourcePosition, limit: int) -> ChangeBatch:
        """The changes that follow a position, about `limit` of them, ending where a transaction ends.

        What was sent before may come again: whoever reads cuts it. A batch without changes may be at `after` itself.
        """
        ...

    def confirm(self, position: SourcePosition) -> None:
        """Changes up to here are never asked for again; nor is any earlier log of this table."""
        ...

    def discard(self, position: SourcePosition) -> None:
        """The copy that began at this position is nobody's: its log is not needed."""
        ...

    def lag(self, position: SourcePosition) -> SourceLag:
        """How much the source has that is later than the position."""
        ...

    def give_up(self) -> None:
        """Let the source throw all logs of this table away; another `snapshot` begins anew."""
        ...

    def close(self) -> None:
        """Release what is held of the source."""
        ...


class DescribedSource(ChangeSource, Protocol):
    """A source that says what a table which follows it has to be."""

    def describe(self, primary_key: Sequence[str] = ()) -> Described:
        """The columns and the primary key of the source, or these columns as its key.

        Raises `SourceUnfit`, with the way out, for what cannot be followed, and `SourceUnavailable`.
        """
        ...

    def stirs(self) -> bool:
        """Whether anything was written since the last reading, whatever it was; False where only a reading tells.

        It costs next to nothing. Raises `SourceUnavailable`.
        """
        ...

    def left_over(self, position: SourcePosition) -> tuple[str, ...]:
        """What the source keeps beside the log of a position, for copies that are under way or came to nothing: by
        each the statement that lets go of it there."""
        ...
