"""A model of statements that are sent again while tables get other names, are dropped and made, each rule switchable.

A few names, two partitions with an owner each, two schedulers with views of their own. Tables are renamed to names that
are free, dropped, and made under names that are free; statements add rows to one or both partitions under a token, and
their clients send them again at any moment, beside the attempt before or after it. All stop at every access to the
store or to another one, schedulers die, and owners hear of names late. Judged are: no row comes twice to tables that
were there then; of what was acknowledged all rows are there, unless their table was dropped; and of what was refused
in the end none is.

    python -m ballista_py.testing.models.former_names [SEEDS]
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Generator
from typing import Any

from attrs import define, evolve, field, fields, frozen

from ballista_py.runtime import seeded_chance

NAMES, PARTITIONS, STEPS, ACTORS, ATTEMPTS = 3, 2, 1_500, 10, 12
Step = Generator[None, None, None]
Part = tuple[int, int]  # table, partition
View = tuple[dict[int, int], list[tuple[int, int]]]


@frozen(kw_only=True)
class Rules:
    """What the protocol demands."""

    renamed_looked_at: bool = True  # a statement sent again is looked for in tables that have another name by now
    dropped_looked_at: bool = True  # and in those that are no more
    all_of_them: bool = True  # in all that had the name, not in the last one alone
    settled: bool = True  # before it counts as not done in a renamed table, its owners know the new name
    commits_awaited: bool = True  # an owner says that it knows once what it commits under the old name is done
    completed: bool = True  # what one partition of a renamed table took is added to the other ones there


@define
class Owner:
    names: dict[int, int] = field(factory=dict)  # by table, as it was told
    committing: Counter[int] = field(factory=Counter)


@define(eq=False)
class Sent:
    """A statement: its token, for which name and partitions, and what its client was told."""

    token: int
    name: int
    parts: tuple[int, ...]
    told: dict[int, str] = field(factory=dict)  # by attempt
    under_way: int = 0
    attempts: int = 0


class World:
    def __init__(self, seed: int, rules: Rules) -> None:
        self.chance, self.rules, self.now, self.numbers = seeded_chance(seed), rules, 0, NAMES
        self.catalog = {name: name for name in range(NAMES - 1)}  # name -> table
        self.formers: list[tuple[int, int]] = []  # name and table, oldest first
        self.views = [self.news()] * 2
        self.owners = [Owner(self.called()) for _ in range(PARTITIONS)]
        self.applied: set[tuple[Part, int]] = set()
        self.seen: Counter[tuple[int, int]] = Counter()  # token and partition, in tables that were there then
        self.statements: list[Sent] = []
        self.attempts: list[Any] = []

    def draw(self, count: int) -> int:
        return int(self.chance.random() * count)

    def called(self) -> dict[int, int]:
        """What the tables that there are are called."""
        return {table: name for name, table in self.catalog.items()}

    def news(self) -> View:
        return dict(self.catalog), list(self.formers)

    def name_of(self, table: int) -> int | None:
        return next((name for name, known in self.catalog.items() if known == table), None)

    # Definitions: each is one commit of the catalog.

    def rename(self) -> Step:
        yield
        table, to = self.draw(self.numbers), self.draw(NAMES)
        name = self.name_of(table)
        if name is not None and to not in self.catalog:
            del self.catalog[name]
            self.catalog[to] = table
            self.formers = [one for one in self.formers if one not in ((name, table), (to, table))]
            self.formers.append((name, table))

    def drop(self) -> Step:
        yield
        name = self.draw(NAMES)
        if name in self.catalog:
            self.formers.append((name, self.catalog.pop(name)))

    def create(self) -> Step:
        yield
        name = self.draw(NAMES)
        if name not in self.catalog:
            self.catalog[name] = self.numbers
            self.numbers += 1

    def hear(self) -> Step:
        """An owner is told of what is committed, but for tables to which it commits."""
        yield
        owner = self.owners[self.draw(PARTITIONS)]
        now = self.called()
        if self.rules.commits_awaited:
            now |= {table: owner.names[table] for table in owner.committing if table in owner.names}
        owner.names = now

    # Statements.

    def statement(self) -> Step:
        yield
        self.numbers += 1
        parts = ((0,), (1,), (0, 1))[self.draw(3)]
        sent = Sent(self.numbers, self.draw(NAMES), parts)
        self.statements.append(sent)
        self.send(sent)

    def again(self) -> Step:
        yield
        open_ = [sent for sent in self.statements if "done" not in sent.told.values() and sent.attempts < 4]
        if open_:
            self.send(open_[self.draw(len(open_))])

    def send(self, sent: Sent) -> None:
        sent.attempts += 1
        sent.under_way += 1
        attempt = self.attempt(sent, self.draw(2), sent.attempts)
        if next(attempt, self) is self:
            sent.under_way -= 1
        else:
            self.attempts.append((sent, attempt))

    def attempt(self, sent: Sent, at: int, mine: int) -> Step:
        again = mine > 1
        for number in range(ATTEMPTS):
            if number or again:  # nobody begins with what was sent first after it was sent again
                yield
            if number or sent.name not in self.views[at][0]:
                self.views[at] = self.news()
            tables, formers = self.views[at]
            table = tables.get(sent.name)
            if again or number:
                before = [one for name, one in reversed(formers) if name == sent.name and one != table]
                for former in before if self.rules.all_of_them else before[:1]:
                    found = yield from self.look(sent, former)
                    if found:
                        yield from self.told_of(sent, former, mine)
                        return
            if table is None:
                sent.told[mine] = "refused"
                return
            done = yield from self.write(sent, table, sent.name)
            if done == len(sent.parts):
                sent.told[mine] = "done"
                return
            if done:
                sent.told[mine] = "incomplete"
                return

    def look(self, sent: Sent, table: int) -> Generator[None, None, bool]:
        there = self.name_of(table) is not None
        if not (self.rules.renamed_looked_at if there else self.rules.dropped_looked_at):
            return False
        if (yield from self.has_taken(sent, table)) or not (there and self.rules.settled):
            return any(((table, part), sent.token) in self.applied for part in sent.parts)
        while (now := self.called().get(table)) is not None:
            if all(owner.names.get(table) == now for owner in self.owners):
                break
            yield
        return (yield from self.has_taken(sent, table))

    def has_taken(self, sent: Sent, table: int) -> Generator[None, None, bool]:
        found = False
        for part in sent.parts:
            yield
            found = found or ((table, part), sent.token) in self.applied
        return found

    def told_of(self, sent: Sent, table: int, mine: int) -> Step:
        """It did something in a former table: what is lacking is added if that is there still."""
        for _ in range(ATTEMPTS):
            now = self.called().get(table)
            if now is None or not self.rules.completed:
                break
            done = yield from self.write(sent, table, now)
            if done == len(sent.parts):
                break
            yield
        else:
            return
        sent.told[mine] = "done"

    def write(self, sent: Sent, table: int, called: int) -> Generator[None, None, int]:
        """Ask the owners, who apply it once if they know the table as that; in how many partitions it is."""
        done = 0
        for part in sent.parts:
            yield
            owner = self.owners[part]
            if owner.names.get(table) != called:
                continue
            owner.committing[table] += 1
            try:
                yield
                if ((table, part), sent.token) not in self.applied:
                    self.applied.add(((table, part), sent.token))
                    self.seen[sent.token, part] += self.name_of(table) is not None
                done += 1
            finally:
                owner.committing[table] -= 1
                owner.committing += Counter()
        return done

    def judge(self) -> Counter[str]:
        wrong: Counter[str] = Counter()
        wrong["a row came twice"] = sum(count > 1 for count in self.seen.values())
        for sent in self.statements:
            where = {
                part: {t for (t, p), token in self.applied if (p, token) == (part, sent.token)}
                for part in sent.parts
            }
            there = {t for tables in where.values() for t in tables if self.name_of(t) is not None}
            if (
                not sent.under_way
                and "done" in sent.told.values()
                and there
                and any(not tables for tables in where.values())
            ):
                wrong["acknowledged, and half of it is there"] += 1
            if (
                not sent.under_way
                and sent.told.get(sent.attempts) == "refused"
                and "done" not in sent.told.values()
            ):
                wrong["refused, and it is there"] += bool(there)
        return +wrong


def run(seed: int, rules: Rules) -> Counter[str]:
    """What was wrong in the history of a seed."""
    world = World(seed, rules)
    weights = {"rename": 4, "drop": 1, "create": 2, "hear": 8, "statement": 4, "again": 10}
    kinds = [getattr(world, kind) for kind, weight in weights.items() for _ in range(weight)]
    actors: list[tuple[Sent | None, Any, int]] = []
    for world.now in range(STEPS):
        while world.attempts:
            actors.append((*world.attempts.pop(), world.now))
        if len(actors) < ACTORS:
            actors.append((None, kinds[world.draw(len(kinds))](), 0))
        place = world.draw(len(actors))
        sent, actor, until = actors[place]
        if until > world.now:
            continue
        if sent is not None and world.draw(60) == 0:
            actor.close()  # its scheduler died
        try:
            next(actor)
            actors[place] = sent, actor, world.now + (world.draw(150) if world.draw(5) == 0 else 0)
        except StopIteration:
            del actors[place]
            if sent is not None:
                sent.under_way -= 1
    return world.judge()


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
