"""Who served which partition from when to when, out of a history: held and leased at the same time."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator

from attrs import frozen

from ballista_py.testing.simulation.history import INF, Event, Leased, Serves


@frozen(kw_only=True)
class Span:
    """One executor instance answered for one partition at one epoch, without a break."""

    from_ms: float
    until_ms: float
    partition: int
    epoch: int
    executor_id: str
    instance: str


def serving_spans(events: Iterable[Event]) -> list[Span]:
    """All spans, by their beginning. What is still held at the end lasts as long as its lease."""
    leases: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    begun: dict[tuple[str, str, int, int], float] = {}
    held: list[tuple[float, float, Serves]] = []
    last: dict[tuple[str, str, int, int], Serves] = {}
    for event in events:
        if isinstance(event, Leased):
            leases[event.node, event.instance].append((event.at_ms, event.until_ms))
        elif isinstance(event, Serves):
            key = (event.node, event.instance, event.partition, event.epoch)
            if event.on:
                begun[key], last[key] = event.at_ms, event
            elif key in begun:
                held.append((begun.pop(key), event.at_ms, event))
    held.extend((from_ms, INF, last[key]) for key, from_ms in begun.items())
    merged = {who: _merged(spans) for who, spans in leases.items()}
    found = [
        Span(
            from_ms=from_ms,
            until_ms=until_ms,
            partition=event.partition,
            epoch=event.epoch,
            executor_id=event.executor_id,
            instance=event.instance,
        )
        for held_from, held_until, event in held
        for from_ms, until_ms in _within(merged.get((event.node, event.instance), []), held_from, held_until)
    ]
    return sorted(found, key=lambda span: (span.from_ms, span.partition, span.epoch))


def served_share(events: Iterable[Event], partitions: int, until_ms: float) -> float:
    """The mean share of the partitions that somebody served between 0 and `until_ms`."""
    by_partition: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for span in serving_spans(events):
        by_partition[span.partition].append((span.from_ms, min(span.until_ms, until_ms)))
    total = sum(b - a for spans in by_partition.values() for a, b in _merged(spans) if b > a)
    return total / (partitions * until_ms) if until_ms else 0.0


def _merged(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The same time as spans that neither touch nor overlap, in order."""
    merged: list[tuple[float, float]] = []
    for from_ms, until_ms in sorted(spans):
        if merged and from_ms <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], until_ms))
        else:
            merged.append((from_ms, until_ms))
    return merged


def _within(spans: list[tuple[float, float]], from_ms: float, until_ms: float) -> Iterator[tuple[float, float]]:
    """What of `spans` lies between two times."""
    place = max(0, bisect_left(spans, (from_ms, from_ms)) - 1)
    for begin, end in spans[place:]:
        if begin >= until_ms:
            return
        low, high = max(begin, from_ms), min(end, until_ms)
        if high > low:
            yield low, high
