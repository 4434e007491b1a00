"""A model of a table that follows the changes of a source, each rule switchable.

A source commits transactions whose changes interleave in its log; a slot sends them from where it was confirmed, and
falls back now and then. Readers copy the table, prepare batches in all partitions that they touch and decide each once;
they die, stand still and overlap, and messages to owners are lost, doubled and late. Judged are: at every moment the
table is the source as of the position that it names; nothing was confirmed to the source that the table does not
hold; and when troubles end the table comes to the source's last position.

    python -m ballista_py.testing.models.change_apply [SEEDS]
"""

from __future__ import annotations

import heapq
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import count

from attrs import Factory, define, evolve, field, fields, frozen

from ballista_py.runtime import seeded_chance

KEYS, TROUBLES_END, END = 14, 100.0, 320.0
COPY_AT, LEFT_AFTER, PATIENCE = 20.0, 15.0, 8
Row = tuple[int, int]  # partition and value


@frozen(kw_only=True)
class Rules:
    """What the protocol demands. Each one off must make the table wrong, or late for ever, in some seed."""

    one_decision: bool = True  # rows and position count by one commit
    at_since: bool = (
        True  # a decision names the span (since, to] and counts only while the table stands at `since`
    )
    whole: bool = True  # batches end where transactions end
    cut: bool = True  # what the source sends again is cut at the position of the table
    fresh: bool = True  # a reader goes on from the position of the table, not from what it remembers
    decided_only: bool = True  # only what was decided is confirmed to the source
    moves: bool = True  # a row that changes its partition leaves one and comes to another in one batch
    meets: bool = True  # the copy and the log meet at one position
    new_partition: bool = True  # a partition that a batch makes gets its rows by that very batch
    ended: bool = True  # whoever is hindered by what is prepared and undecided ends it


@frozen
class Change:
    """Of a key: the row that it had and the one that it has, None where there is none."""

    key: int
    old: Row | None
    new: Row | None


@frozen
class Transaction:
    """Its changes, and the position of its commit."""

    at: int
    changes: tuple[Change, ...]


@frozen
class Step:
    """One key of one partition: a row (`value`) takes the place of the one that is there, or goes (None)."""

    at: int
    key: int
    value: int | None
    comes: bool  # from elsewhere, or anew: nothing of the key is taken away


@define
class Source:
    """A database: rows, transactions that are open at the same time, a log in the order of commits, one slot."""

    chance: Callable[[], float]
    rows: dict[int, Row] = Factory(dict)
    log: list[Transaction] = Factory(list)
    position: int = 0
    confirmed: int = 0
    kept: int = 0  # what the slot has written down of that
    open: list[list[tuple[int, float, int, int]]] = Factory(list)
    history: list[tuple[int, dict[int, Row]]] = Factory(lambda: [(0, {})])

    def work(self, partitions: int, closing: bool) -> None:
        """Some statements of some transactions; some of these commit, all of them when it is `closing`."""
        if not closing and self.chance() < 0.5 and len(self.open) < 3:
            self.open.append([])
        for transaction in self.open:
            if self.chance() < 0.6:
                key, place = int(self.chance() * KEYS), int(self.chance() * partitions)
                transaction.append((key, self.chance(), place, int(self.chance() * 1000)))
                self.position += 1
        for transaction in list(self.open):
            if closing or self.chance() < 0.35:
                self.open.remove(transaction)
                self._commit(transaction)

    def _commit(self, transaction: list[tuple[int, float, int, int]]) -> None:
        locked = {key for other in self.open for key, *_ in other}
        changes = []
        for key, what, place, value in transaction:
            old = self.rows.get(key)
            if key in locked:
                continue
            new: Row | None = (place if what > 0.75 or old is None else old[0], value)
            if what < 0.2 and old is not None:
                new = None
            changes.append(Change(key, old, new))
            self.rows.pop(key, None)
            if new is not None:
                self.rows[key] = new
        if changes:
            self.position += 1
            self.log.append(Transaction(self.position, tuple(changes)))
            self.history.append((self.position, dict(self.rows)))

    def read(self, most: int) -> list[Transaction]:
        """What the slot sends: transactions after what was confirmed, the first ones."""
        return [one for one in self.log if one.at > self.confirmed][:most]

    def confirm(self, position: int) -> None:
        self.confirmed = max(self.confirmed, position)
        if self.chance() < 0.3:
            self.kept = self.confirmed

    def fall_back(self) -> None:
        self.confirmed = self.kept

    def at(self, position: int) -> dict[int, Row]:
        """The rows as of a position."""
        return next(rows for at, rows in reversed(self.history) if at <= position)


@define
class Waiting:
    """What is prepared in a partition."""

    steps: Sequence[Step]
    since: float


@define
class Partition:
    """Its rows are a list, as files are: what comes twice is there twice."""

    rows: list[tuple[int, int]] = Factory(list)
    prepared: dict[str, Waiting] = Factory(dict)

    def settle(self, decisions: Mapping[str, bool]) -> None:
        for attempt in [known for known in self.prepared if known in decisions]:
            waiting = self.prepared.pop(attempt)
            if decisions[attempt]:
                self.rows = after(self.rows, waiting.steps)

    def seen(self, decisions: Mapping[str, bool]) -> list[tuple[int, int]]:
        """The rows that a reader sees who goes by the decisions."""
        rows = self.rows
        for attempt, waiting in self.prepared.items():
            if decisions.get(attempt):
                rows = after(rows, waiting.steps)
        return rows


@define
class Reader:
    """One of those that apply changes: one is enough, two do no harm."""

    number: int
    paused: float = 0.0
    dead: bool = False
    position: int | None = None  # what it remembers


def after(rows: list[tuple[int, int]], steps: Sequence[Step]) -> list[tuple[int, int]]:
    """The rows of a partition after some steps."""
    rows = list(rows)
    for step in steps:
        place = next((n for n, (key, _) in enumerate(rows) if key == step.key), None)
        if not step.comes and place is not None:
            del rows[place]
        if step.value is not None:
            rows.append((step.key, step.value))
    return rows


def by_partition(batch: Sequence[Transaction], rules: Rules) -> dict[int, list[Step]]:
    """The steps of a batch at each partition."""
    found: dict[int, list[Step]] = defaultdict(list)
    for transaction in batch:
        for change in transaction.changes:
            old, new, at = change.old, change.new, transaction.at
            stays = old is not None and new is not None and old[0] == new[0]
            if old is not None and not stays and (new is None or rules.moves):
                found[old[0]].append(Step(at, change.key, None, False))
            if new is not None:
                found[new[0]].append(Step(at, change.key, new[1], not stays))
    return found


@define
class World:
    """One seed's history, by a queue of what happens when."""

    rules: Rules
    chance: Callable[[], float]
    source: Source = field(init=False)
    now: float = 0.0
    queue: list[tuple[float, int, Callable[[], None]]] = Factory(list)
    numbers: count[int] = Factory(count)
    partitions: dict[int, Partition] = Factory(dict)
    decisions: dict[str, bool] = Factory(dict)
    position: int = 0
    readers: list[Reader] = Factory(list)
    wrong: Counter[str] = Factory(Counter)
    decided: int = 0

    def __attrs_post_init__(self) -> None:
        self.source = Source(self.chance)

    def run(self) -> World:
        """All of it; returns itself."""
        self._later(0, self._work)
        self._later(COPY_AT, self._copy)
        while self.queue and self.now < END:
            self.now, _, happens = heapq.heappop(self.queue)
            happens()
        if self.position < self.source.log[-1].at:
            self.wrong["late for ever"] += 1
        return self

    def _later(self, wait: float, happens: Callable[[], None]) -> None:
        heapq.heappush(self.queue, (self.now + wait, next(self.numbers), happens))

    def _between(self, low: float, high: float) -> float:
        return low + (high - low) * self.chance()

    def _is_troubled(self, chance: float) -> bool:
        return self.now < TROUBLES_END and self.chance() < chance

    def _work(self) -> None:
        """The source goes on; new partition values turn up."""
        closing = self.now >= TROUBLES_END
        self.source.work(3 if self.now < 35 else 4 if self.now < 70 else 5, closing)
        if not closing:
            self._later(1, self._work)

    def _copy(self) -> None:
        """The first copy, and where the log goes on."""
        source = self.source
        at = source.log[-1].at if source.log else 0
        if not self.rules.meets and len(source.log) > 1:
            at = source.log[-2].at  # the slot was made first, and the rows were read when they were
        for key, (place, value) in source.rows.items():
            self.partitions.setdefault(place, Partition()).rows.append((key, value))
        self.position = source.confirmed = source.kept = at
        self._start_reader()
        self._later(1, self._trouble)
        self._later(1, self._watch)

    def _watch(self) -> None:
        seen = [row for part in self.partitions.values() for row in part.seen(self.decisions)]
        wanted = [(key, value) for key, (_, value) in self.source.at(self.position).items()]
        if sorted(seen) != sorted(wanted):
            self.wrong["not the source at its position"] += 1
        self._later(1, self._watch)

    def _trouble(self) -> None:
        if self.now >= TROUBLES_END:
            if all(reader.dead for reader in self.readers):
                self._start_reader()
            return
        if self.chance() < 0.08:  # dead, or only slow: then both act
            last = self.readers[-1]
            last.dead, last.paused = self.chance() < 0.5, self.now + self._between(1, 40)
            self._start_reader()
        if self.chance() < 0.04:
            self.source.fall_back()
        self._later(1, self._trouble)

    def _start_reader(self) -> None:
        reader = Reader(len(self.readers))
        self.readers.append(reader)
        self._later(0.1, lambda: self._tick(reader))

    def _waits(self, reader: Reader, goes_on: Callable[[], None]) -> bool:
        """Whether it is dead or stands still; then it goes on when it wakes."""
        if not reader.dead and reader.paused > self.now:
            self._later(reader.paused - self.now + 0.01, goes_on)
            return True
        return reader.dead

    def _tick(self, reader: Reader) -> None:
        if self._waits(reader, lambda: self._tick(reader)):
            return
        if reader is not self.readers[-1] and self.chance() < 0.3:
            reader.dead = True  # it notices in the end
            return
        since = self.position if self.rules.fresh or reader.position is None else reader.position
        batch = self.source.read(1 + int(self.chance() * 4))
        if self.rules.cut:
            batch = [one for one in batch if one.at > since]
        if not batch:
            self._confirm(self.position)
            self._later(1, lambda: self._tick(reader))
            return
        if not self.rules.whole and len(batch[-1].changes) > 1:
            half = batch[-1].changes[: len(batch[-1].changes) // 2]
            batch[-1] = evolve(batch[-1], changes=half)
        self._apply(reader, since, batch)

    def _apply(self, reader: Reader, since: int, batch: Sequence[Transaction]) -> None:
        """Prepare a batch wherever it has steps, decide it, fold it in, confirm it."""
        attempt, to = f"{reader.number}-{next(self.numbers)}", batch[-1].at
        parts = by_partition(batch, self.rules)
        waits = set(parts)
        for place in parts.keys() - self.partitions.keys():
            self.partitions[place] = Partition()
            if not self.rules.new_partition:
                waits.discard(place)

        def prepare(times: int) -> None:
            if self._waits(reader, lambda: prepare(times)):
                return
            if not waits:
                decide()
            elif times > PATIENCE:
                self.decisions.setdefault(attempt, False)
                self._later(1, lambda: self._tick(reader))
            else:
                for place in list(waits):
                    self._send(lambda place=place: self._prepare(place, attempt, parts[place], waits))  # type: ignore[misc]
                self._later(2, lambda: prepare(times + 1))

        def decide() -> None:
            if not self.rules.decided_only:
                self._confirm(to)
            self._later(
                self._between(0, 20) if self._is_troubled(0.2) else 0.1, lambda: self._decide(attempt, since, to)
            )
            self._later(3, settle)

        def settle() -> None:
            for partition in self.partitions.values():
                if self.chance() < 0.7:
                    partition.settle(self.decisions)
            if not self._waits(reader, settle):
                reader.position = to
                self._confirm(self.position)
                self._later(0.3, lambda: self._tick(reader))

        prepare(0)

    def _send(self, arrives: Callable[[], None]) -> None:
        for _ in range(2 if self._is_troubled(0.08) else 1):
            if not self._is_troubled(0.08):
                self._later(self._between(0, 40) if self._is_troubled(0.08) else self._between(0, 0.5), arrives)

    def _prepare(self, place: int, attempt: str, steps: Sequence[Step], waits: set[int]) -> None:
        """At the owner of a partition: one batch at a time."""
        partition = self.partitions[place]
        partition.settle(self.decisions)
        if self.decisions.get(attempt) is not None:
            return
        others = [known for known in partition.prepared if known != attempt]
        for other in others:
            if self.rules.ended and self.now - partition.prepared[other].since > LEFT_AFTER:
                self.decisions.setdefault(other, False)
        partition.settle(self.decisions)
        if any(other in partition.prepared for other in others):
            return
        partition.prepared.setdefault(attempt, Waiting(steps, self.now))
        self._send(lambda: waits.discard(place))

    def _decide(self, attempt: str, since: int, to: int) -> None:
        """The one commit in the document of the table."""
        if attempt in self.decisions:
            return
        counts = self.position == since or not self.rules.at_since
        self.decisions[attempt] = counts
        if not counts:
            return
        self.decided += 1
        moved = max(self.position, to)
        if self.rules.one_decision:
            self.position = moved
        elif self.chance() < 0.9:  # else it dies in between
            self._later(1.5, lambda: setattr(self, "position", max(self.position, moved)))

    def _confirm(self, position: int) -> None:
        self.source.confirm(position)
        if self.source.confirmed > self.position:
            self.wrong["confirmed what the table does not hold"] += 1


def run(seed: int, rules: Rules) -> World:
    """The history of a seed."""
    return World(rules, seeded_chance(seed).random).run()


def variants() -> dict[str, Rules]:
    """All rules, and each without one of them."""
    names = [rule.name for rule in fields(Rules)]
    return {"all rules": Rules(), **{f"without {name}": evolve(Rules(), **{name: False}) for name in names}}


def broken(seeds: int, rules: Rules) -> tuple[int, dict[str, int]]:
    """In how many seeds something was wrong, and what."""
    found = [run(seed, rules).wrong for seed in range(seeds)]
    total: Counter[str] = sum(found, Counter())
    return sum(bool(one) for one in found), dict(total)


if __name__ == "__main__":
    seeds_wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    for name, one in variants().items():
        print(f"{name:25} {broken(seeds_wanted, one)}")
