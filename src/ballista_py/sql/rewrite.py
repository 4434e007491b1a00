"""What an owner is asked to do to the files of a partition. A value apart, as executors need no parser to take it."""

from __future__ import annotations

from attrs import frozen

NEW_ROWS = "new rows "  # a relation with a name that no table can have
PLACE = "place of the row in its file "


@frozen(kw_only=True)
class Rewrite:
    """What an owner runs over each file of a local statement: `rows` are those after it, in the place of those before.

    Their last column says of each whether the statement affects it; with `deletes` those are the ones to go. So the
    predicate is evaluated once for each row, though it may be another the next time. Where it is the same whenever
    it is asked `count` tells beforehand how many a file has, and `places` gives the column `PLACE` of them. Without
    `rows` the statement affects all rows and leaves none. `where` is its predicate, over the table under `alias`: a
    file whose statistics rule it out need not be looked into.
    """

    rows: str | None = None
    count: str | None = None
    places: str | None = None
    deletes: bool = False
    where: str | None = None
    alias: str = ""
