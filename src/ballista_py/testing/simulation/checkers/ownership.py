"""Partitions: epochs (G4), fences (G5), commit before notify (G6), and no two owners that serve at once (O1)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import orjson
from attrs import define, field

from ballista_py.partitions.map import Owner, PartitionMap
from ballista_py.state.documents.documents import CLUSTER_KEY, partition_map_key
from ballista_py.testing.simulation.checkers.check import Violation
from ballista_py.testing.simulation.history import Event, Landed, Serves, Told
from ballista_py.testing.simulation.spans import Span, serving_spans

_MAPS = partition_map_key("").removesuffix(".json")


@define
class _Maps:
    """Every committed map of the one table, by revision, and when it landed."""

    at_ms: dict[int, float] = field(factory=dict)
    maps: dict[int, PartitionMap] = field(factory=dict)

    @classmethod
    def of(cls, events: Sequence[Event]) -> _Maps:
        found = cls()
        for event in events:
            if isinstance(event, Landed) and event.key.startswith(_MAPS):
                document: dict[str, Any] = orjson.loads(event.data)
                revision = document["header"]["revision"]
                columns = document["map"]
                found.maps[revision] = PartitionMap.from_columns(columns["table"], revision, columns)
                found.at_ms[revision] = event.at_ms
        return found


def check_epochs(events: Sequence[Event]) -> Iterator[Violation]:
    """G4: epochs only grow, a (partition, epoch) has one owner for ever, and members only hand over."""
    maps = _Maps.of(events)
    yield from _robbed(events, maps)
    owners: dict[tuple[int, int], Owner | None] = {}
    last: dict[int, int] = {}
    for revision, pmap in sorted(maps.maps.items()):
        for partition in range(len(pmap)):
            epoch, owner = pmap.epoch(partition), pmap.owner(partition)
            at_ms, about = maps.at_ms[revision], f"p{partition}@"
            if epoch < last.get(partition, 0):
                what = f"the epoch of partition {partition} fell from {last[partition]} to {epoch}"
                yield Violation(guarantee="G4", at_ms=at_ms, what=what, about=about)
            if owners.setdefault((partition, epoch), owner) != owner:
                what = f"partition {partition} has two owners at epoch {epoch}"
                yield Violation(guarantee="G4", at_ms=at_ms, what=what, about=about)
            last[partition] = epoch


def _robbed(events: Sequence[Event], maps: _Maps) -> Iterator[Violation]:
    """An owner that is a member of the cluster loses a partition only to the target that it was told of."""
    handed_over = _promotions(maps)
    members: set[Owner] = set()
    before: PartitionMap | None = None
    for event in events:
        if not isinstance(event, Landed):
            continue
        if event.key == CLUSTER_KEY:
            listed = orjson.loads(event.data)["executors"]
            members = {(name, executor["info"]["instance_id"]) for name, executor in listed.items()}
        elif event.key.startswith(_MAPS):
            pmap = maps.maps[orjson.loads(event.data)["header"]["revision"]]
            changed = [] if before is None else (before.epochs != pmap.epochs[: len(before)]).nonzero()[0].tolist()
            for partition in changed:
                owner = before.owner(partition) if before is not None else None
                if owner in members and (partition, pmap.epoch(partition)) not in handed_over:
                    what = f"{event.node} took partition {partition} from {owner[0]}, which is a member"
                    yield Violation(guarantee="G4", at_ms=event.at_ms, what=what, about=f"p{partition}@")
            before = pmap


def check_notifications(events: Sequence[Event]) -> Iterator[Violation]:
    """G6: whatever an executor is told is what the map of that revision says, and that map is committed."""
    maps = _Maps.of(events)
    for event in events:
        if not isinstance(event, Told):
            continue
        pmap = maps.maps.get(event.revision)
        if pmap is None or maps.at_ms[event.revision] > event.at_ms:
            what = f"{event.node} told {event.executor_id} of revision {event.revision} before it was committed"
            yield Violation(guarantee="G6", at_ms=event.at_ms, what=what, about=event.executor_id)
            continue
        me = (event.executor_id, event.instance)
        for partition, epoch, role in event.partitions:
            holder = pmap.target(partition) if role == "target" else pmap.owner(partition)
            if holder != me or epoch != pmap.epoch(partition):
                what = f"{event.node} told {event.executor_id} of partition {partition}, which is not its own"
                yield Violation(guarantee="G6", at_ms=event.at_ms, what=what, about=event.executor_id)


def check_fences(events: Sequence[Event]) -> Iterator[Violation]:
    """G5: an owner serves after its epoch stands in the manifest, and then nothing stamped older is accepted."""
    pmap = next(iter(_Maps.of(events).maps.values()), None)
    if pmap is None:
        return
    partitions = {f"/{pmap.path(p)}/manifest.json": p for p in range(len(pmap))}
    fence: dict[int, int] = {}
    served: dict[int, int] = {}
    seen: dict[int, int] = {}
    for event in events:
        if isinstance(event, Serves) and event.on:
            served[event.partition] = max(event.epoch, served.get(event.partition, 0))
            if fence.get(event.partition, 0) < event.epoch:
                what = f"{event.node} serves partition {event.partition} at epoch {event.epoch} without its fence"
                yield Violation(guarantee="G5", at_ms=event.at_ms, what=what, about=f"p{event.partition}@")
        elif isinstance(event, Landed) and event.key.endswith("/manifest.json"):
            partition = partitions[event.key[event.key.rindex("/", 0, -len("/manifest.json")) :]]
            document: dict[str, Any] = orjson.loads(event.data)
            tokens = [token["token"] for token in document["tokens"]]
            fence[partition] = document["epoch"]
            for token in tokens[seen.get(partition, 0) :]:
                stamp = int(token.partition(":")[0])
                if stamp < served.get(partition, 0):
                    what = (
                        f"{event.node} committed to partition {partition} under epoch {stamp} "
                        f"after epoch {served[partition]} was active"
                    )
                    yield Violation(guarantee="G5", at_ms=event.at_ms, what=what, about=event.key)
            seen[partition] = len(tokens)


def check_single_service(events: Sequence[Event]) -> Iterator[Violation]:
    """O1: no two owners of one partition serve at once, but while a live owner hands over to its target."""
    handed_over = _promotions(_Maps.of(events))
    by_partition: dict[int, list[Span]] = defaultdict(list)
    for span in serving_spans(events):
        by_partition[span.partition].append(span)
    for partition, spans in sorted(by_partition.items()):
        live: list[Span] = []
        for span in spans:
            live = [other for other in live if other.until_ms > span.from_ms]
            for other in live:
                low, high = sorted((other.epoch, span.epoch))
                handing_over = high == low + 1 and (partition, high) in handed_over
                if other.instance != span.instance and not handing_over:
                    what = (
                        f"partition {partition} is served by {other.executor_id} at epoch {other.epoch} until "
                        f"{other.until_ms / 1000:.3f} s and by {span.executor_id} at epoch {span.epoch}"
                    )
                    yield Violation(guarantee="O1", at_ms=span.from_ms, what=what, about=f"p{partition}@")
            live.append(span)


def _promotions(maps: _Maps) -> set[tuple[int, int]]:
    """The (partition, epoch) at which a target became the owner of a partition that it had been promised."""
    found: set[tuple[int, int]] = set()
    before: PartitionMap | None = None
    for _, pmap in sorted(maps.maps.items()):
        if before is not None:
            for partition in (before.epochs != pmap.epochs[: len(before)]).nonzero()[0].tolist():
                if before.target(partition) is not None and before.target(partition) == pmap.owner(partition):
                    found.add((partition, pmap.epoch(partition)))
        before = pmap
    return found
