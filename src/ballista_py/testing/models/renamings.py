"""A model of tables that are given other names while they are read and written, each rule switchable.

Three tables and four names, two executors, two schedulers with views of their own. Tables are renamed to names that are
free, so that names go from one to the other; statements name one and read or insert. All stop at every access to the
store or to another one, some for long, schedulers die, and updates for executors arrive late, twice and out of order.
Judged are: whoever reads or inserts under a name meets, in both partitions, a table that had the name at some moment
while the statement ran; and in the end each table is held under its name, and under no other.

    python -m ballista_py.testing.models.renamings [SEEDS]
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Generator
from typing import Any

from attrs import define, evolve, field, fields, frozen

from ballista_py.runtime import seeded_chance

TABLES, NAMES, PARTITIONS, STEPS, ACTORS, ATTEMPTS = 3, 4, 2, 2_000, 10, 12
Step = Generator[None, None, None]


@frozen(kw_only=True)
class Rules:
    """What the protocol demands."""

    announced_first: bool = True  # a definition under another name is announced before it is committed
    announced_read: bool = (
        True  # whoever reads or writes looks at that, and reads the catalog if there is such news
    )
    one_commit: bool = True  # the table loses a name and gets the other one in one commit
    legs_name_it: bool = (
        True  # legs and rows name the table that they mean, and executors hold them against theirs
    )
    held_once: bool = True  # who is told of a table under a name holds it under no other, and goes back to none


@frozen
class Named:
    """A table under a name, as somebody knows it: `number` is that of the naming, of all there were."""

    table: int
    number: int


@define
class Executor:
    held: dict[int, Named] = field(factory=dict)  # by name


class Refused(Exception):
    """There is no such table, or nobody who answers for it."""


class World:
    def __init__(self, seed: int, rules: Rules) -> None:
        self.chance, self.rules, self.now, self.numbers = seeded_chance(seed), rules, 0, TABLES
        self.catalog = {name: Named(name, name) for name in range(TABLES)}
        self.announced = [0] * TABLES
        self.definitions = [0] * TABLES
        self.views = [(dict(self.catalog), tuple(self.definitions))] * 2
        self.executors = [Executor(dict(self.catalog)) for _ in range(PARTITIONS)]
        self.letters: list[tuple[int, int, Named]] = []
        self.had: list[tuple[int, int, int]] = [(0, name, name) for name in range(TABLES)]  # since when
        self.lost: list[tuple[int, int, int]] = []
        self.wrong: Counter[str] = Counter()

    def draw(self, count: int) -> int:
        return int(self.chance.random() * count)

    def rename(self) -> Step:
        table, to = self.draw(TABLES), self.draw(NAMES)
        yield
        name = next((n for n, known in self.catalog.items() if known.table == table), None)
        base = self.definitions[table]
        if name is None or to in self.catalog:
            return
        yield
        if self.rules.announced_first:
            self.announced[table] = max(self.announced[table], base + 1)
            yield
        if self.definitions[table] != base or to in self.catalog:
            return
        self.numbers += 1
        self.definitions[table] = base + 1
        self.catalog[to] = Named(table, self.numbers)
        self.had.append((self.now, to, table))
        if not self.rules.one_commit:
            yield
        self.catalog.pop(name, None)
        self.lost.append((self.now, name, table))
        yield
        self.announced[table] = max(self.announced[table], base + 1)

    def view(self, at: int, name: int) -> Generator[None, None, Named]:
        for fresh in (False, True):
            if fresh:
                yield
                self.views[at] = dict(self.catalog), tuple(self.definitions)
            known, definitions = self.views[at]
            found = known.get(name)
            if found is None:
                continue
            if self.rules.announced_read and not fresh:
                yield
                if self.announced[found.table] > definitions[found.table]:
                    continue
            return found
        raise Refused

    def statement(self) -> Step:
        """Reads both partitions under a name, or inserts into one."""
        began, name, at = self.now, self.draw(NAMES), self.draw(2)
        places = list(range(PARTITIONS)) if self.draw(2) else [self.draw(PARTITIONS)]
        for _ in range(ATTEMPTS):
            meant = yield from self.view(at, name)
            met = []
            for place in places:
                yield
                held = self.executors[place].held.get(name)
                if held is None or (self.rules.legs_name_it and held.table != meant.table):
                    break
                met.append(held.table)
            else:
                self.judge(began, name, met)
                return
            yield
            self.views[at] = dict(self.catalog), tuple(self.definitions)

    def judge(self, began: int, name: int, met: list[int]) -> None:
        if len(set(met)) != 1:
            self.wrong["a mix of two tables"] += 1
        elif not self.had_name(began, name, met[0]):
            self.wrong["a table that had the name no more"] += 1

    def had_name(self, began: int, name: int, table: int) -> bool:
        """Whether the table had the name at some moment since then."""
        since = [at for at, n, t in self.had if (n, t) == (name, table)]
        ends = [at for at, n, t in self.lost if (n, t) == (name, table)]
        return any(not [e for e in ends if at <= e < began] for at in since if at <= self.now)

    def look(self) -> None:
        """What must hold in the end, when everybody has heard what is committed."""
        for count in Counter(known.table for known in self.catalog.values()).values():
            if count > 1:
                self.wrong["a table with two names"] += 1
        for place, executor in enumerate(self.executors):
            for _ in range(2):
                for name, known in self.catalog.items():
                    self.hear(place, name, known)
            if {name: known.table for name, known in executor.held.items()} != {
                name: known.table for name, known in self.catalog.items()
            }:
                self.wrong["an executor holds a table under another name"] += 1

    def send(self) -> Step:
        known, _ = self.views[self.draw(2)]
        yield
        for name, named in known.items():
            self.letters.append((self.draw(PARTITIONS), name, named))

    def receive(self) -> Step:
        yield
        for _ in range(1 + self.draw(4)):
            if not self.letters:
                return
            letter = self.letters[self.draw(len(self.letters))]
            if self.draw(3):  # else it comes once more
                self.letters.remove(letter)
            self.hear(*letter)

    def hear(self, place: int, name: int, news: Named) -> None:
        held = self.executors[place].held
        elsewhere = [n for n, known in held.items() if n != name and known.table == news.table]
        if self.rules.held_once and any(held[n].number >= news.number for n in elsewhere):
            return
        mine = held.get(name)
        if mine is not None and mine.number > news.number:
            return
        if self.rules.held_once:
            for n in elsewhere:
                del held[n]
        held[name] = news

    def refresh(self) -> Step:
        at = self.draw(2)
        yield
        self.views[at] = dict(self.catalog), tuple(self.definitions)


def run(seed: int, rules: Rules) -> Counter[str]:
    """What was wrong in the history of a seed."""
    world = World(seed, rules)
    weights = {"rename": 2, "statement": 10, "send": 3, "receive": 8, "refresh": 1}
    kinds = [getattr(world, kind) for kind, weight in weights.items() for _ in range(weight)]
    actors: list[tuple[Any, int]] = []
    for world.now in range(STEPS):
        if len(actors) < ACTORS:
            actors.append((kinds[world.draw(len(kinds))](), 0))
        place = world.draw(len(actors))
        actor, until = actors[place]
        if until > world.now:
            continue
        if actor.__name__ == "rename" and rules.one_commit and world.draw(60) == 0:
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
