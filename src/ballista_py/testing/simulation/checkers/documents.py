"""G1 and G2: every commit was made from the one before it, and every change was applied as its caller was told."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from ballista_py.state.documents.codec import RECENT_COMMITS
from ballista_py.testing.simulation.checkers.check import Violation
from ballista_py.testing.simulation.history import Changed, Event, Landed
from ballista_py.testing.simulation.site import LEDGER_KEY

_HEADER = b'{"header":'


def check_commits(events: Sequence[Event]) -> Iterator[Violation]:
    """G1: revision n+1 of a document was made from revision n, and no commit lands twice."""
    newest: dict[str, dict[str, Any]] = {}
    for event in events:
        if not isinstance(event, Landed) or not event.data.startswith(_HEADER):
            continue
        header = _header(event.data)
        before = newest.get(event.key)
        reason = _commit_objection(before, header)
        if reason is not None:
            yield Violation(guarantee="G1", at_ms=event.at_ms, what=f"'{event.key}': {reason}", about=event.key)
        newest[event.key] = header


def _header(data: bytes) -> dict[str, Any]:
    end = data.index(b"}", len(_HEADER)) + 1  # the header holds no nested object
    found: dict[str, Any] = orjson.loads(data[len(_HEADER) : end])
    return found


def _commit_objection(before: dict[str, Any] | None, now: dict[str, Any]) -> str | None:
    revision = before["revision"] + 1 if before is not None else 1
    if now["revision"] != revision:
        return f"revision {now['revision']} follows revision {revision - 1}"
    known = before["recent_commits"] if before is not None else []
    if now["commit_id"] in known:
        return f"commit {now['commit_id']} landed twice"
    if now["recent_commits"] != [*known, now["commit_id"]][-RECENT_COMMITS:]:
        return f"revision {revision} was not made from revision {revision - 1}"
    return None


def check_changes(events: Sequence[Event]) -> Iterator[Violation]:
    """G2: a change that is done was applied once, a failed one never, one of unknown fate at most once."""
    applied: dict[str, list[float]] = defaultdict(list)
    total = 0
    recent: tuple[str, ...] = ()
    for event in events:
        if isinstance(event, Landed) and event.key == LEDGER_KEY:
            document = orjson.loads(event.data)
            now, count = tuple(document["recent"]), document["total"]
            fresh = now[len(now) - (count - total) :] if count > total else ()
            if count < total or (*recent, *fresh)[-len(now) :] != now:
                what = "changes that had been applied are gone"
                yield Violation(guarantee="G1", at_ms=event.at_ms, what=what, about=LEDGER_KEY)
            for name in fresh:
                applied[name].append(event.at_ms)
            total, recent = count, now
    for event in events:
        if not isinstance(event, Changed) or event.outcome is None:
            continue
        times = applied.get(event.change, [])
        wanted = {"done": times[:1], "failed": [], "unknown": times[:1]}[event.outcome]
        if times != wanted or (event.outcome == "done" and not times):
            what = f"change {event.change} was applied {len(times)} time(s) and reported as {event.outcome}"
            at_ms = times[-1] if times else event.at_ms
            yield Violation(guarantee="G2", at_ms=at_ms, what=what, about=event.change)
