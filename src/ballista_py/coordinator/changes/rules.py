"""The rules by which a table follows a source, over values alone.

Rows and position count by one decision, for the span after the table's position, and only while it stands there. What
the source sends again is cut. Nothing but what was decided is confirmed. `testing/models/change_apply.py` shows what
each of them is for.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import field, frozen

from ballista_py.coordinator.changes.source import AT_COLUMN, ChangeBatch, SourceLag
from ballista_py.errors import SourceUnfit
from ballista_py.state.documents.decisions import SourcePosition, SourceSpan

Did = Literal["copied", "applied", "moved on", "nothing", "behind another"]


@frozen(kw_only=True)
class Progress:
    """What one tick did, and where the table stands now. `lag` is still to be read, as far as it is known."""

    did: Did
    position: SourcePosition | None
    changes: int = 0
    lag: SourceLag = field(factory=SourceLag)


def cut(table: str, since: SourcePosition, batch: ChangeBatch) -> tuple[SourceSpan | None, pa.Table]:
    """The span that a batch leads over, and its changes in there; None where it leads nowhere.

    Raises `SourceUnfit` for a batch that is none: of another log, ending before its changes do, or out of order. No
    reader could tell what is lacking in it.
    """
    to, at = batch.position, batch.changes.column(AT_COLUMN).cast(pa.int64())
    numbers = at.to_numpy()
    wrong = None
    if to.log != since.log:
        wrong = "is of another log"
    elif at.null_count or (np.diff(numbers) < 0).any():
        wrong = "is not in the order of commits"
    elif len(numbers) and int(numbers[-1]) > to.at:
        wrong = "ends before its changes do"
    if wrong is not None:
        raise SourceUnfit(f"the source of table '{table}' gave a batch after {since} up to {to} that {wrong}")
    if to.at <= since.at:  # all of it is there already
        return None, batch.changes.slice(0, 0)
    return SourceSpan(since, to), batch.changes.filter(pc.greater(at, since.at))


def token_of(span: SourceSpan) -> str:
    """The token of the decision on a span: the same for whoever reads the same one."""
    begin = "none" if span.since is None else f"{span.since.at}-{span.since.log}"
    return f"changes {begin} {span.to.at}-{span.to.log}"
