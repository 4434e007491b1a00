"""Whether a document is one that can be there now, or an older copy that somebody put in its place; pure.

Every commit adds one to the revision and its id to the last 32. So a document follows one that was seen before only if
its revision is no lower and, as far as its ids reach back, that commit is among them.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress

from attrs import frozen

from ballista_py.errors import DocumentLost, DocumentOlder
from ballista_py.state.documents.codec import Header

MOST_REMEMBERED = 250_000
CATALOG = "cluster.json"
OF_PARTITIONS = "snapshots/"  # documents below it are one or more a partition, all others a few a table


def way_out() -> str:
    """What to do about a document that is lost or older than it was; ends every message about one."""
    return "put the newest copy back, or stop all nodes and run `ballista-py storage repair`"


@frozen
class Seen:
    """A state of a document that was there: its revision, and the id of the commit that made it."""

    revision: int
    commit_id: str


class DocumentMemory:
    """The newest state of each document that this process has seen. Safe to share between threads.

    `ObjectState` asks it before every request and notes what it read, so no document can go back unnoticed while the
    process lives. Beyond `most` documents those of partitions are forgotten that were used longest ago, which are those
    of tables that were dropped; those of tables only where there are no others, and the catalog never. One that still
    is in use is known again when it is read next.
    """

    def __init__(self, most: int = MOST_REMEMBERED) -> None:
        self._most = most
        # In the order in which they were used. Each step on them is one that no other thread comes between.
        self._of_partitions: OrderedDict[str, Seen] = OrderedDict()
        self._others: OrderedDict[str, Seen] = OrderedDict()

    def of(self, key: str) -> Seen | None:
        """The newest state of a document that was seen; to be asked before the document is read."""
        kept = self._kept(key)
        found = kept.get(key)
        if found is not None:
            with suppress(KeyError):  # forgotten in between
                kept.move_to_end(key)
        return found

    def note(self, key: str, header: Header) -> None:
        """A document was seen."""
        self.learn(key, Seen(header.revision, header.commit_id))

    def learn(self, key: str, seen: Seen) -> None:
        """Somebody has seen this state of a document."""
        kept = self._kept(key)
        known = kept.get(key)
        if known is None or known.revision < seen.revision:
            kept[key] = seen
        with suppress(KeyError):
            kept.move_to_end(key)
            if key != CATALOG and CATALOG in self._others:
                self._others.move_to_end(CATALOG)
        while len(self._of_partitions) + len(self._others) > max(self._most, 1):
            with suppress(KeyError):  # another thread is at it, too
                (self._of_partitions or self._others).popitem(last=False)

    def below(self, prefix: str) -> dict[str, Seen]:
        """What is known of the documents below `prefix`."""
        known = (*list(self._of_partitions.items()), *list(self._others.items()))
        return {key: seen for key, seen in known if key.startswith(prefix)}

    def _kept(self, key: str) -> OrderedDict[str, Seen]:
        return self._of_partitions if key.startswith(OF_PARTITIONS) else self._others


class ForgetfulMemory(DocumentMemory):
    """For documents that may be removed, or put back, at any time, because their readers know what that means."""

    def note(self, key: str, header: Header) -> None:
        """Nothing is remembered."""


def lost(key: str, seen: Seen) -> DocumentLost:
    """The error for a document that is gone."""
    return DocumentLost(
        f"document '{key}' is gone, which was there at revision {seen.revision}: {way_out()}", key=key
    )


def require_successor(key: str, seen: Seen | None, now: Header) -> None:
    """Raises `DocumentOlder` unless the document with header `now` may follow the one that was `seen` before."""
    if seen is None or now.commit_id == seen.commit_id:
        return
    if now.revision <= seen.revision:
        raise DocumentOlder(
            f"document '{key}' is at revision {now.revision}, and was at {seen.revision} before: {way_out()}",
            key=key,
        )
    if now.revision - seen.revision < len(now.recent_commits) and seen.commit_id not in now.recent_commits:
        raise DocumentOlder(
            f"document '{key}' goes on from an older copy: it lacks the commit that made revision {seen.revision}: "
            f"{way_out()}",
            key=key,
        )


def require_proven(key: str, what: str, now: int, proven: int, by: str) -> None:
    """Raises `DocumentOlder` unless the number `now` in the document is at least the one that another one proves.

    The other one must have been read before the document, and only ever be written after it.

    >>> require_proven("cluster.json", "revision", 7, 7, "the map of table 't'")
    """
    if now < proven:
        raise DocumentOlder(
            f"document '{key}' is at {what} {now}, but {by} knows of {proven}: {way_out()}", key=key
        )
