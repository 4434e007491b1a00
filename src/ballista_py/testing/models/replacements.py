"""A model of tables that others take the place of while they are read and written, each rule switchable.

One name, two partitions, two executors, two schedulers with views of their own. Statements replace the table under a
mark and are sent again; others insert and read. All of them stop at every access to the store or to another one, some
for long, and updates for executors arrive late, twice and out of order. Judged are: a reader sees rows of one table,
whole, and none older than one whose statement was acknowledged before it began, but for statements that had not ended;
a row that was acknowledged is there, unless a statement that ended after it began has replaced it; the same statement
never replaces twice; and there always is a table.

    python -m ballista_py.testing.models.replacements [SEEDS]
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Generator
from typing import Any

from attrs import define, evolve, field, fields, frozen

from ballista_py.runtime import seeded_chance

PARTITIONS, STEPS, ACTORS, ATTEMPTS = 2, 2_500, 10, 12
Step = Generator[None, None, None]


@frozen(kw_only=True)
class Rules:
    """What the protocol demands. Of `same_still` 1,500 seeds do not show what it is for."""

    announced_first: bool = True  # a table is told that another one may take its place, before that is committed
    announced_read: bool = (
        True  # whoever reads or writes looks at that, and reads the catalog if there is such news
    )
    one_commit: bool = True  # the old table goes and the new one comes in one commit
    filled_first: bool = True  # the new table is whole before it has the name
    same_still: bool = True  # the commit is for the very table that was told
    marked: bool = True  # it notes its statement, and does nothing if that is noted
    legs_name_it: bool = (
        True  # legs and rows name the table that they mean, and executors hold them against theirs
    )
    ordered: bool = (
        True  # of two tables of a name an executor keeps the one that got it later, whatever maps count
    )
    maps_apart: bool = True  # the map of the new table lies beside that of the old one until it has the name


@define(eq=False)
class Table:
    """`parts` hold rows: the number of the table, or, of what was inserted, the negative number of that."""

    number: int
    mark: int
    parts: list[list[int]] = field(factory=lambda: [[] for _ in range(PARTITIONS)])
    named: int = 0
    revision: int = 0  # of its map
    announced: bool = False


class Refused(Exception):
    """Planned again by its client, or not at all."""


class World:
    def __init__(self, seed: int, rules: Rules) -> None:
        self.chance, self.rules, self.now, self.numbers = seeded_chance(seed), rules, 0, 0
        first = Table(number=0, mark=0, parts=[[0], [0]], revision=3)
        self.catalog: Table | None = first
        self.map_of = 0  # the table for which the map that all would share is
        self.namings = 0
        self.views = [first, first]
        self.told = [first] * PARTITIONS  # by executors; each owns one partition
        self.letters: list[tuple[int, Table, int]] = []
        self.marks: list[int] = [0]  # of all tables that had the name, in order
        self.ended: dict[int, int] = {0: -1}  # statements by mark: when one was told that it is done
        self.committed: dict[int, int] = {0: -1}  # when each had the name
        self.rows: dict[int, tuple[int, int]] = {}  # acknowledged: began, ended
        self.attempts: list[Any] = []  # that were sent and have not begun
        self.wrong: Counter[str] = Counter()

    def draw(self, count: int) -> int:
        return int(self.chance.random() * count)

    def look(self) -> None:
        """What must hold in the end, when everybody has heard what is committed."""
        if max(Counter(self.marks).values()) > 1:
            self.wrong["a statement replaced twice"] += 1
        last = self.catalog
        if last is None or (not self.rules.maps_apart and self.map_of != last.number):
            self.wrong["no table, or none with a map"] += 1
            return
        last.revision += 1
        for place in range(PARTITIONS):
            self.hear(place, last, last.revision)
            if self.told[place] is not last:
                self.wrong["an executor shows an old one for ever"] += 1

    # Schedulers.

    def view(self, number: int) -> Generator[None, None, Table]:
        """The table by what the scheduler knows, which looks whether there are news of it."""
        found = self.views[number]
        if self.rules.announced_read:
            yield
            if found.announced:
                found = yield from self.refreshed(number)
        return found

    def refreshed(self, number: int) -> Generator[None, None, Table]:
        yield
        found = self.catalog
        if found is None:
            self.wrong["no table"] += 1
            raise Refused
        self.views[number] = found
        return found

    def replace(self) -> Step:
        """One statement, which its client sends once more without waiting for the first reply, or after it."""
        self.numbers += 1
        mark = self.numbers
        for _ in range(1 + self.draw(2)):
            self.attempts.append(self.attempt(mark))
        yield

    def attempt(self, mark: int) -> Step:
        self.numbers += 1
        new = Table(number=self.numbers, mark=mark, revision=1)
        yield
        if self.rules.filled_first:
            yield from self.fill(new)
        if not self.rules.maps_apart:
            self.map_of = new.number
            yield
        for _ in range(ATTEMPTS):
            before = self.catalog
            yield
            if self.rules.announced_first and before is not None:
                before.announced = True
                yield
            if self.rules.marked and mark in self.marks:
                break
            if self.rules.same_still and self.catalog is not before:
                continue
            if not self.rules.one_commit:
                self.catalog = None
                yield
            yield from self.named(new)
            break
        if not self.rules.filled_first:
            yield from self.fill(new)
        for _ in range(20):  # executors show it
            if all(told.named >= new.named for told in self.told):
                break
            yield
        self.ended.setdefault(mark, self.now)

    def named(self, new: Table) -> Step:
        before = self.catalog
        self.namings += 1
        new.named, self.catalog = self.namings, new
        self.map_of = new.number
        self.marks.append(new.mark)
        self.committed[new.number] = self.now
        yield
        if before is not None and not self.rules.announced_first:
            before.announced = True
        yield

    def fill(self, new: Table) -> Step:
        for part in new.parts:
            for _ in range(9):
                yield
            part.append(new.number)

    def insert(self) -> Step:
        self.numbers += 1
        number, began, at = self.numbers, self.now, self.draw(2)
        place = self.draw(PARTITIONS)
        for _ in range(ATTEMPTS):
            table = yield from self.view(at)
            yield
            if not self.serves(place, table):
                yield from self.refreshed(at)
                continue
            target = self.told[place]
            yield
            target.parts[place].append(-number)
            yield
            self.rows[number] = began, self.now
            return
        raise Refused

    def query(self) -> Step:
        began, at = self.now, self.draw(2)
        for _ in range(ATTEMPTS):
            table = yield from self.view(at)
            found: list[list[int]] = []
            for place in range(PARTITIONS):
                yield
                if not self.serves(place, table):
                    break
                found.append(list(self.told[place].parts[place]))
            else:
                self.judge(began, found)
                return
            yield from self.refreshed(at)
        raise Refused

    def serves(self, place: int, table: Table) -> bool:
        """Whether an executor answers for the table that is meant."""
        if not self.rules.maps_apart and self.map_of != table.number:
            return False  # its map is another's by now: nobody can plan it
        return self.told[place] is table or not self.rules.legs_name_it

    def judge(self, began: int, found: list[list[int]]) -> None:
        numbers = [{row for row in part if row >= 0} for part in found]
        if numbers[0] != numbers[1] or len(numbers[0]) != 1:
            self.wrong["a mix, or not whole"] += 1
            return
        (number,) = numbers[0]
        since = self.committed[number]
        later = [n for n, at in self.committed.items() if at > since]
        done = [n for n in later if self.ended.get(self.mark_of(n), self.now) < began]
        if done:
            self.wrong["older than what was acknowledged"] += 1
        seen = {-row for part in found for row in part if row < 0}
        for row, (sent, ended) in self.rows.items():
            if ended < began and sent > since and row not in seen:
                self.wrong["a row is missing"] += 1

    def mark_of(self, number: int) -> int:
        return self.marks_by_number.get(number, 0)

    @property
    def marks_by_number(self) -> dict[int, int]:
        order = sorted(self.committed, key=lambda number: self.committed[number])
        return dict(zip(order, self.marks, strict=True))

    # Executors.

    def send(self) -> Step:
        """A scheduler tells an executor what it knows; that arrives when it does."""
        table = self.views[self.draw(2)]
        yield
        table.revision += self.draw(3)
        self.letters.append((self.draw(PARTITIONS), table, table.revision))

    def receive(self) -> Step:
        yield
        if not self.letters:
            return
        place, table, revision = self.letters[self.draw(len(self.letters))]
        if self.draw(3):  # else it comes once more
            self.letters.remove((place, table, revision))
        self.hear(place, table, revision)

    def hear(self, place: int, table: Table, revision: int) -> None:
        mine = self.told[place]
        later = table.named > mine.named if self.rules.ordered else revision >= mine.revision
        if table is not mine and later:
            self.told[place] = table

    def refresh(self) -> Step:
        with_news = self.draw(2)
        yield from self.refreshed(with_news)


def run(seed: int, rules: Rules) -> Counter[str]:
    """What was wrong in the history of a seed."""
    world = World(seed, rules)
    weights = {"replace": 2, "insert": 4, "query": 8, "send": 4, "receive": 6, "refresh": 1}
    kinds = [getattr(world, kind) for kind, weight in weights.items() for _ in range(weight)]
    actors: list[tuple[Any, int]] = []
    for world.now in range(STEPS):
        while world.attempts:
            actors.append((world.attempts.pop(), world.now + world.draw(40)))
        if len(actors) < ACTORS:
            actors.append((kinds[world.draw(len(kinds))](), 0))
        place = world.draw(len(actors))
        actor, until = actors[place]
        if until > world.now:
            continue
        if actor.__name__ == "attempt" and world.draw(60) == 0:
            del actors[place]  # the scheduler died
            continue
        try:
            next(actor)
            actors[place] = actor, world.now + (world.draw(100) if world.draw(9) == 0 else 0)
        except (StopIteration, Refused):
            del actors[place]
    world.look()
    return world.wrong


def variants() -> dict[str, Rules]:
    """All rules, and each without one of them."""
    names = [rule.name for rule in fields(Rules)]
    return {"all rules": Rules(), **{f"without {name}": evolve(Rules(), **{name: False}) for name in names}}


def broken(seeds: int, rules: Rules) -> tuple[int, dict[str, int]]:
    """In how many seeds something was wrong, and what."""
    found = [run(seed, rules) for seed in range(seeds)]
    total: Counter[str] = sum(found, Counter())
    return sum(bool(one) for one in found), dict(total)


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    for name, one in variants().items():
        print(f"{name:30} {broken(count, one)}")
