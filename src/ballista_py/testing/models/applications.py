"""A model of schedulers that apply application files of different revisions to one catalog, each rule switchable.

Three schedulers with files of their own: revisions 1 to 3 of one application, two different ones of revision 2, and one
of which a change would be refused. Each reads the catalog, begins its file, makes its changes one by one and completes
it; all stop at every access to the store, some for long, replies are lost, schedulers die and are evicted, some of them
wrongly, and come back with another file. People drop tables and make their own under the same names.
Judged are: no file changes anything once a newer one was begun, or another one of its revision; no change is made
twice, nor again after somebody has undone it; no table of somebody else is dropped; two that live do not do the same
work at once; and in the end the newest file is applied whole.

    python -m ballista_py.testing.models.applications [SEEDS]
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Generator
from typing import Any

from attrs import define, evolve, fields, frozen

from ballista_py.runtime import seeded_chance

SCHEDULERS, STEPS = 3, 700
Step = Generator[None, None, None]


@frozen(kw_only=True)
class Rules:
    """What the protocol demands."""

    newest_counts: bool = True  # a file that is older than the one that was begun is not applied
    one_file: bool = True  # nor one that differs from the one of its revision
    guarded: bool = True  # every commit asks the very catalog that it replaces whether the file is still the one
    one_applies: bool = True  # one instance applies, and nobody takes over from one that is a member
    marked: bool = True  # that a table was changed for a file is remembered in that commit, and done once
    known_tables: bool = True  # only the very table that was applied is dropped, not one of the same name
    refused_first: bool = True  # a file of which a change is refused is not begun


@frozen
class File:
    """What a file wants: its tables, each in a version of its own. `spoilt` ones cannot be applied whole."""

    revision: int
    digest: str
    tables: frozenset[str]
    prune: bool = False
    spoilt: bool = False

    @property
    def label(self) -> tuple[int, str]:
        return self.revision, self.digest


FILES = (
    File(1, "x", frozenset("ab")),
    File(2, "x", frozenset("abc")),
    File(2, "y", frozenset("ad")),
    File(3, "x", frozenset("ac"), prune=True),
    File(4, "x", frozenset("abcd"), spoilt=True),
)


@define
class App:
    """What the catalog says of the file that counts."""

    label: tuple[int, str]
    by: int
    complete: bool
    known: dict[str, int]  # the tables that files have named, by the number of each that was applied


@define
class Table:
    number: int
    version: tuple[int, str] | None  # of which file it is; None: of a person


class World:
    def __init__(self, seed: int, rules: Rules) -> None:
        self.chance, self.rules, self.now, self.numbers = seeded_chance(seed), rules, 0, 0
        self.app: App | None = None
        self.tables: dict[str, Table] = {}
        self.marks: set[tuple[Any, ...]] = set()
        self.members: set[int] = set()
        self.working: dict[tuple[Any, ...], int] = {}
        self.undone: set[tuple[Any, ...]] = set()
        self.made: Counter[tuple[Any, ...]] = Counter()
        self.begun: list[tuple[int, str]] = []
        self.wrong: Counter[str] = Counter()
        self.instances = 0

    def draw(self, count: int) -> int:
        return int(self.chance.random() * count)

    def counts(self, file: File, me: int) -> str:
        """Where a file stands, as the catalog is now."""
        app = self.app
        if app is None:
            return "mine"
        revision, digest = app.label
        if self.rules.newest_counts and file.revision < revision:
            return "never"
        if file.revision != revision:
            return "mine"
        if file.digest != digest:
            return "never" if self.rules.one_file else "mine"
        if app.complete:
            return "done"
        free = app.by == me or app.by not in self.members or not self.rules.one_applies
        return "mine" if free else "elsewhere"

    def may_commit(self, file: File, me: int, mark: tuple[Any, ...]) -> bool:
        app = self.app
        if self.rules.guarded and (app is None or app.label != file.label):
            return False
        if self.rules.guarded and self.rules.one_applies and app is not None and app.by != me:
            return False
        return not (self.rules.marked and mark in self.marks)

    def plan(self, file: File) -> list[tuple[str, str]]:
        """The changes that the catalog lacks."""
        changes = [("create", name) for name in sorted(file.tables) if name not in self.tables]
        changes += [
            ("alter", name)
            for name in sorted(file.tables & self.tables.keys())
            if self.tables[name].version != file.label
        ]
        known = self.app.known if self.app is not None else {}
        if file.prune:
            changes += [
                ("drop", name) for name in sorted(known.keys() - file.tables) if self.is_known(name, known)
            ]
        return [c for c in changes if not (self.rules.marked and (c[1], file.label) in self.marks)]

    def is_known(self, name: str, known: dict[str, int]) -> bool:
        there = self.tables.get(name)
        return there is not None and (not self.rules.known_tables or known[name] == there.number)

    def apply(self, file: File, me: int) -> Step:
        """One try of a scheduler."""
        yield
        if self.counts(file, me) != "mine":
            return
        if self.rules.refused_first and file.spoilt:
            return
        yield
        if self.counts(file, me) != "mine":
            return
        known = dict(self.app.known) if self.app is not None else {}
        self.app = App(file.label, me, False, {**dict.fromkeys(file.tables, 0), **known})
        self.begun.append(file.label)
        yield
        for kind, name in self.plan(file):
            mark = (name, file.label)
            at_it = self.working.get(mark)
            if at_it is not None and at_it != me and at_it in self.members and me in self.members:
                self.wrong["two do the same work"] += 1
            self.working[mark] = me
            yield
            if self.draw(3) == 0:  # the work takes its time
                yield
            if file.spoilt and name == max(file.tables):
                continue
            if self.may_commit(file, me, mark):
                self.change(file, kind, name, mark)
            self.working.pop(mark, None)
            yield
        if self.plan(file) or file.spoilt or not self.may_commit(file, me, ("complete", file.label)):
            return
        assert self.app is not None
        numbers = {
            name: table.number
            for name, table in self.tables.items()
            if name in file.tables and (table.version == file.label or not self.rules.known_tables)
        }
        kept = {n: k for n, k in {**self.app.known, **numbers}.items() if n in file.tables or n in self.tables}
        self.app = App(file.label, me, True, kept)

    def change(self, file: File, kind: str, name: str, mark: tuple[Any, ...]) -> None:
        """Commit one change, and judge it."""
        if kind == "create" and name in self.tables:
            return
        if kind != "create" and name not in self.tables:
            return
        if kind == "drop" and self.app is not None and not self.is_known(name, self.app.known):
            return
        if any(label > file.label and label[0] > file.revision for label in self.begun):
            self.wrong["an older file changed something"] += 1
        if any(label[0] == file.revision and label != file.label for label in self.begun):
            self.wrong["two files of one revision changed something"] += 1
        if mark in self.undone:
            self.wrong["what somebody had undone was done again"] += 1
        self.made[mark] += 1
        if self.made[mark] > 1:
            self.wrong["a change was made twice"] += 1
        self.marks.add(mark)
        if kind == "drop":
            if self.tables[name].version is None:
                self.wrong["a table of somebody else was dropped"] += 1
            del self.tables[name]
        elif kind == "create":
            self.numbers += 1
            self.tables[name] = Table(self.numbers, file.label)
        else:
            self.tables[name].version = file.label

    def person(self) -> Step:
        """Drops a table, and maybe makes one of her own under its name."""
        yield
        if not self.tables:
            return
        name = sorted(self.tables)[self.draw(len(self.tables))]
        version = self.tables.pop(name).version
        if version is not None:
            self.undone.add((name, version))
        if self.draw(2):
            yield
            if name not in self.tables:
                self.numbers += 1
                self.tables[name] = Table(self.numbers, None)


def run(seed: int, rules: Rules) -> Counter[str]:
    """What was wrong in the history of a seed."""
    world = World(seed, rules)
    actors: dict[int, tuple[Any, int]] = {}
    holds: dict[int, tuple[int, File]] = {}  # by scheduler: its instance and its file
    for number in range(SCHEDULERS):
        _start(world, holds, number)
    ghosts: list[tuple[Any, int]] = []
    people: list[Any] = []
    for world.now in range(STEPS):
        place = world.draw(SCHEDULERS)
        me, file = holds[place]
        if place not in actors:
            actors[place] = world.apply(file, me), 0
        actor, until = actors[place]
        if until <= world.now:
            pause = world.draw(80) if world.draw(9) == 0 else 0
            actors[place] = actor, world.now + pause
            if _ended(actor):
                del actors[place]
        if world.draw(50) == 0:  # it dies, or stands still for so long that it counts as dead and wakes up later
            world.members.discard(me)
            if place in actors and world.draw(2):
                ghosts.append((actors[place][0], world.now + world.draw(60)))
            actors.pop(place, None)
            _start(world, holds, place)
        ghosts = [(one, at) for one, at in ghosts if at > world.now or not _ended(one)]
        if world.draw(30) == 0:
            people.append(world.person())
        people = [one for one in people if not _ended(one)]
    _settle(world)
    return world.wrong


def _start(world: World, holds: dict[int, tuple[int, File]], place: int) -> None:
    """A new instance, mostly with a file that is no older than the one before."""
    world.instances += 1
    before = holds[place][1].revision if place in holds else 1
    choices = [file for file in FILES if file.revision >= before or world.draw(5) == 0]
    holds[place] = world.instances, choices[world.draw(min(3, len(choices)))]
    world.members.add(world.instances)


def _settle(world: World) -> None:
    """When all is quiet, the file that counts is applied whole by a scheduler that has it."""
    if world.app is None:
        return
    newest = next(file for file in FILES if file.label == world.app.label)
    world.instances += 1
    world.members = {world.instances}
    for _ in range(3):
        for _step in world.apply(newest, world.instances):
            pass
    if world.app is None or not world.app.complete or world.app.label != newest.label:
        world.wrong["the file that counts cannot be completed"] += 1


def _ended(actor: Any) -> bool:
    try:
        next(actor)
    except StopIteration:
        return True
    return False


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
