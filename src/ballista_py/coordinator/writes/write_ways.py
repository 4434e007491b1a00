"""The ways in which a statement that changes rows is carried out, and which one a statement takes; pure.

*apply*: each owner applies its share by itself, under the token. *decide*: every owner prepares its share, and the
statement is decided once for all. *whole*: the statement is run over the rows brought together, then as *decide*.

What may fail over a row that is there, and so in some partitions only, is decided: no partition applies a statement
that another one could not.
"""

from __future__ import annotations

from typing import Literal

from ballista_py.partitions.table import TableSpec
from ballista_py.sql.parse.changes import Local
from ballista_py.sql.prune.changes import moves_rows, sets_key

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
