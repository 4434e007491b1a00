"""What a source that statements change promises to those who write to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import pyarrow as pa
from attrs import frozen

from ballista_py.coordinator.changes.row_changes import RowChanges


class RowsMoved(Exception):
    """Rows of the source are not as the statement read them: nothing was written, and it is to be computed anew."""


@frozen(kw_only=True)
class Written:
    """What a statement did at the source; `repeated`: an earlier one under its token did it."""

    affected: int
    repeated: bool = False


class LockedRows(Protocol):
    """The rows of the table at the source, within the one transaction of a statement."""

    def rows(self, keys: pa.Table) -> pa.Table:
        """The whole rows with these keys, as far as there are any; nobody else changes them until it ends.

        `keys` has the columns of `SourceWriter.key`, others are passed over.
        """
        ...


class SourceWriter(Protocol):
    """One table of a source, to which statements are written. Used by one thread.

    Each method raises `SourceUnavailable` for what may pass, `TryLater` where others hold what is needed, `SourceUnfit`
    for what must be mended at the source, and `SchemaMismatch` for rows that the source refuses. Nothing was written
    then, but after `SourceUnavailable` out of `write`, whose commit may have gone: the same again brings certainty.
    """

    def key(self) -> tuple[str, ...]:
        """The columns by which the source tells rows apart, all of them in the primary key here."""
        ...

    def known(self, token: str) -> Written | None:
        """What a statement under this token did; None if none is there."""
        ...

    def write(self, token: str, make: Callable[[LockedRows], RowChanges], limit_ms: float) -> Written:
        """Have what `make` gives applied in one transaction, together with the token; all of it or nothing.

        Where the token is there already, or comes in meanwhile, nothing is applied, and what it did is told. Whatever
        `make` raises passes through, and nothing is applied.
        """
        ...

    def reached(self) -> int:
        """A place of the log behind all that is committed by now, which the table comes to even if nothing follows."""
        ...

    def forget(self, kept_s: float) -> int:
        """Forget tokens that are older than that by the source's own clock, some at a time; how many."""
        ...

    def close(self) -> None:
        """Release what is held of the source."""
        ...
