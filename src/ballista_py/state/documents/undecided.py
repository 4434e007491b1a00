"""What owners do with attempts at statements that were prepared and of which nobody has told them the end; pure.

An attempt carries the instance of the scheduler that made it. While that one is a member it may still decide, so
it is given time; once it is none, nobody will, and the attempt can be aborted at once. Aborting is always safe: it
meets a commit in the document of decisions, and the first one holds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ballista_py.state.documents.decisions import StatementsDocument

GIVEN_MS = 30_000.0
LOOK_AFTER_MS = 1_000.0
_BY = "@"


def attempt_by(scheduler_instance: str, new_id: str) -> str:
    """The name of a new attempt made by a scheduler.

    >>> attempt_by("5f2a", "91c0")
    '91c0@5f2a'
    """
    return f"{new_id}{_BY}{scheduler_instance}"


def to_end(
    waiting: Mapping[str, float], decisions: StatementsDocument, schedulers: Collection[str], now_ms: float
) -> list[str]:
    """The attempts at statements of one table to bring to an end now: they are decided, or nobody will decide them.

    `waiting` tells since when each is known here, `schedulers` are the instances that are members.

    >>> to_end({"a@dead": 0.0, "b@alive": 0.0}, StatementsDocument(), {"alive"}, 2_000.0)
    ['a@dead']
    """
    return [
        attempt
        for attempt, since_ms in sorted(waiting.items())
        if now_ms - since_ms >= GIVEN_MS
        or (
            now_ms - since_ms >= LOOK_AFTER_MS
            and (decisions.on(attempt) is not None or is_orphan(attempt, schedulers))
        )
    ]


def is_orphan(attempt: str, schedulers: Collection[str]) -> bool:
    """Whether the scheduler that made the attempt is surely none of these instances any more."""
    _, by, instance = attempt.partition(_BY)
    return bool(by and instance) and instance not in schedulers
