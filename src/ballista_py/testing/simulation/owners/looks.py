"""What rows that somebody saw must be, by what clients of a simulation of owners were told."""

from __future__ import annotations

from attrs import frozen

from ballista_py.testing.simulation.owners.site import MONEY, PARTITIONS, Book
from ballista_py.testing.simulation.owners.troubles import REFRESHED

Rows = list[tuple[str, int]]  # names and money


@frozen
class Before:
    """What clients knew when a reader began: rows that were acknowledged, and those of them that were deleted."""

    acknowledged: set[str]
    deleted: set[str]
    at_ms: float

    @classmethod
    def now(cls, book: Book, now_ms: float) -> Before:
        """What they know now."""
        return cls(set(book.acknowledged), set(book.deleted), now_ms)


def look_at_money(book: Book, table: str, rows: Rows, before: Before) -> None:
    """The money adds up, statements are there as a whole, and nothing is missed that was acknowledged before."""
    names = [name for name, _ in rows]
    money = sum(amount for _, amount in rows)
    book.expect(money == MONEY * PARTITIONS, f"a reader of '{table}' saw {money}")
    book.expect(before.deleted.isdisjoint(names), f"a reader of '{table}' saw a deleted row")
    missing = before.acknowledged - set(names) - book.deleting
    book.expect(not missing, f"a reader of '{table}' missed {len(missing)} acknowledged row(s)")
    book.expect(len(names) == len(set(names)), f"a reader of '{table}' saw a row twice")
    halves = {name[:-2] for name in names if name.endswith("-a")} ^ {n[:-2] for n in names if n.endswith("-b")}
    book.expect(not halves, f"a reader of '{table}' saw one row of two: {min(halves, default='')}")


def look_at_all(book: Book, table: str, rows: Rows, before: Before) -> None:
    """One whole generation, which no later one had replaced before the reader began."""
    seen = sorted(name for name, _ in rows)
    kind = "run" if table == REFRESHED else "generation"
    earlier = [name for name, at in book.replaced.items() if name.startswith(kind) and at <= before.at_ms]
    last = max((book.begun[name] for name in earlier), default=0.0)
    if seen:
        whole = len(seen) == PARTITIONS and len(set(seen)) == 1
        book.expect(whole, f"a reader of '{table}' saw {seen[:4]} as one generation")
    named = seen[:1] or [name for name in book.emptied if name.startswith(kind)]
    fresh = [name for name in named if book.replaced.get(name, float("inf")) >= last]
    book.expect(bool(fresh or not earlier), f"a reader of '{table}' saw {seen[:1]}, which was replaced before")


def look_at_order(book: Book, table: str, rows: Rows, deleting: set[str]) -> None:
    """Of one instant: no row is missed that was acknowledged before one that is there was sent.

    `deleting` are those that somebody may have deleted by then.
    """
    seen = {name for name, _ in rows}
    latest = max((book.sent.get(name, 0.0) for name in seen), default=0.0)
    earlier = {name for name, at_ms in book.acknowledged.items() if at_ms < latest}
    missing = earlier - seen - deleting
    book.expect(not missing, f"'{table}' lacked {min(missing, default='')}, and had what was sent after that")
    gone = {name for name, at_ms in book.deleted.items() if at_ms < latest} & seen
    book.expect(not gone, f"'{table}' had {min(gone, default='')}, and what was sent after that was deleted")
