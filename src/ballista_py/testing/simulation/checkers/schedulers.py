"""G3: one live instance for each scheduler id, and an evicted instance that commits nothing more."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

import orjson

from ballista_py.state.documents.documents import CLUSTER_KEY, HEARTBEATS_PREFIX
from ballista_py.testing.simulation.checkers.check import Violation
from ballista_py.testing.simulation.history import Event, Landed, Led


def check_schedulers(events: Sequence[Event]) -> Iterator[Violation]:
    """G3, in its three parts."""
    led: dict[str, list[Led]] = defaultdict(list)
    for event in events:
        if isinstance(event, Led):
            led[event.scheduler_id].append(event)
    for _, spans in sorted(led.items()):
        yield from _overlaps(spans)
    yield from _evictions(events, {span.instance: span.until_ms for spans in led.values() for span in spans})


def _overlaps(spans: list[Led]) -> Iterator[Violation]:
    """Two instances of one id must never have the right to act at once."""
    for before, after in pairwise(sorted(spans, key=lambda span: span.at_ms)):
        if before.instance != after.instance and after.at_ms < before.until_ms:
            what = (
                f"{after.scheduler_id}: instance {after.instance[:8]} may act while {before.instance[:8]} may, "
                f"until {before.until_ms / 1000:.3f} s"
            )
            yield Violation(guarantee="G3", at_ms=after.at_ms, what=what, about=after.scheduler_id)


def _evictions(events: Sequence[Event], until_ms: dict[str, float]) -> Iterator[Violation]:
    """Nobody is evicted while it may act; who was evicted or replaced commits no heartbeat and no membership."""
    holders: dict[str, str] = {}
    ended: dict[str, float] = {}
    for event in events:
        if not isinstance(event, Landed):
            continue
        if event.key.startswith(HEARTBEATS_PREFIX):
            document = orjson.loads(event.data)
            instance, ended_by = document["instance_id"], document["ended_by"]
            if instance in ended and holders.get(event.key) != instance:
                yield _late(event, instance)
            before = holders.get(event.key)
            gone = instance if ended_by not in (None, instance) else before if before != instance else None
            if gone is not None and gone not in ended and until_ms.get(gone, 0.0) > event.at_ms:
                what = f"{event.node} ended instance {gone[:8]}, which may act until {until_ms[gone] / 1000:.3f} s"
                yield Violation(guarantee="G3", at_ms=event.at_ms, what=what, about=event.key)
            if gone is not None:
                ended.setdefault(gone, event.at_ms)
            if instance in ended and ended_by is None:
                yield _late(event, instance)
            holders[event.key] = instance
        elif event.key == CLUSTER_KEY:
            by = orjson.loads(event.data)["header"]["committed_by"]
            listed = {s["instance_id"] for s in orjson.loads(event.data)["schedulers"].values()}
            if by in ended and by not in listed:
                yield _late(event, by)


def _late(event: Landed, instance: str) -> Violation:
    what = f"instance {instance[:8]} was ended and yet committed '{event.key}' as {event.version}"
    return Violation(guarantee="G3", at_ms=event.at_ms, what=what, about=instance[:8])
