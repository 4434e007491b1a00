"""What an owner is asked to do to the files of a partition. A value apart, as executors need no parser to take it."""

from __future__ import annotations

from attrs import frozen


@frozen(kw_only=True)
class Rewrite:
    """What an owner runs over each file of a local statement: `count` the rows it affects, give the `rows` after.

    Without `count` the statement affects all rows and leaves none. `where` is its predicate, over the table under
    `alias`: a file whose statistics rule it out need not be looked into.
    """

    count: str | None = None
    rows: str | None = None
    where: str | None = None
    alias: str = ""
