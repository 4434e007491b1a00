"""A model of tables that are altered while they are read, written and moved, each rule switchable.

One table of two partitions. Schedulers with old views alter it, insert, update and read; executors hear of a definition
late, or after a partition was moved to them. All of them stop at every access to the store or to another one, some for
long. Judged are: a reader sees one definition, none older than what was acknowledged before it began; each cell has a
value that was written to that very column and row, not one from before what was acknowledged; no row is missing; and
once NOT NULL is acknowledged no row is without a value.

    python -m ballista_py.testing.models.alterations [SEEDS]
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

from attrs import define, evolve, field, fields, frozen

from ballista_py.runtime import seeded_chance

PARTITIONS, EXECUTORS, STEPS, ACTORS = 2, 3, 3_000, 12
PATIENCE = 160
Step = Generator[None, None, None]


@frozen(kw_only=True)
class Rules:
    """What the protocol demands.

    Of `announced_first` and `moves_tell` a thousand seeds do not show what they are for.
    """

    announced_first: bool = True  # a definition is announced before it is committed
    announced_read: bool = True  # whoever plans looks at what is announced, and reads the catalog if that is newer
    legs_name_it: bool = True  # an executor answers legs by the very definition that it was told last
    looked_after_binding: bool = True  # and has not been told of another one once a leg is bound
    fresh_names: bool = True  # a column that comes again has another name in files
    exact_rewrites: bool = True  # what was made from rows is committed by the definition they were read by
    files_say: bool = True  # who was not told of the definition that a file was written by does not load it
    accepts_from: bool = True  # rows made before NOT NULL are not taken any more
    shown_after_commits: bool = True  # a definition counts as shown when commits by older ones are over
    moves_tell: bool = True  # who is told of a partition is told of the definition that the catalog had then
    proven_own: bool = True  # what was looked at is what is proven, not what somebody else demanded later
    decided_by_newest: bool = True  # what was prepared before a definition was announced does not commit


@frozen(kw_only=True)
class Column:
    """A column: `truth` is another number for each that ever was, `stored` its name in files."""

    truth: int
    stored: str
    initial: int | None


@frozen(kw_only=True)
class Definition:
    number: int = 0
    columns: dict[str, Column] = field(factory=dict)
    accepts_from: int = 0
    required: bool = False  # the column n
    proven: bool = False


@frozen(kw_only=True, eq=False)
class File:
    definition: int
    rows: dict[int, dict[str, int | None]]
    attempt: int | None = None  # prepared, and to be decided


@define
class Executor:
    told: Definition
    shown: Definition
    owns: set[int] = field(factory=set)
    committing: Counter[int] = field(factory=Counter)


class Refused(Exception):
    """Planned again by its client, or not at all."""


class World:
    def __init__(self, seed: int, rules: Rules) -> None:
        self.chance, self.rules, self.now = seeded_chance(seed), rules, 0
        first = Definition(columns={"n": Column(truth=0, stored="n", initial=None)})
        self.catalog, self.announced, self.numbers = first, 0, 0
        self.views = [first, first]
        self.executors = [Executor(first, first) for _ in range(EXECUTORS)]
        self.files: list[list[File]] = [[] for _ in range(PARTITIONS)]
        self.epochs = [0] * PARTITIONS
        self.decided: set[int] = set()
        self.acknowledged = 0  # the newest definition
        self.written: dict[tuple[int, int], list[tuple[int, int | None, list[int]]]] = {}
        self.rows: dict[int, int] = {}  # acknowledged ones, with the moment
        self.wrong: Counter[str] = Counter()
        for partition in range(PARTITIONS):
            self.executors[partition].owns.add(partition)

    def draw(self, count: int) -> int:
        return int(self.chance.random() * count)

    def number(self) -> int:
        self.numbers += 1
        return self.numbers

    def owner(self, partition: int) -> Executor:
        return next(one for one in self.executors if partition in one.owns)

    # What a cell may be: by truth of the column and row, every value from the last one acknowledged before a moment.

    def note(self, row: int, truth: int, value: int | None) -> list[int]:
        done: list[int] = []
        self.written.setdefault((row, truth), []).append((self.now, value, done))
        return done

    def possible(self, row: int, column: Column, since: int) -> set[int | None]:
        found = self.written.get((row, column.truth), [])
        last = max((place for place, (_, _, done) in enumerate(found) if done and done[0] < since), default=None)
        values = {value for _, value, _ in found[last or 0 :]}
        return values | ({column.initial} if last is None else set())

    # What schedulers do.

    def planned(self, view: int) -> Definition:
        """The definition that a scheduler plans by."""
        if self.rules.announced_read and self.announced > self.views[view].number:
            self.views[view] = self.catalog
        return self.views[view]

    def insert(self) -> Step:
        by = self.planned(self.draw(len(self.views)))
        row, partition = self.number(), self.draw(PARTITIONS)
        empty = self.draw(3) == 0 and not by.required
        cells = {name: self.number() for name in by.columns}
        values = {name: None if name == "n" and empty else value for name, value in cells.items()}
        attempt = self.number() if self.draw(2) else None
        yield
        executor = self.owner(partition)
        self.require(executor, by, exact=False)
        told = executor.told
        known = {column.stored for column in told.columns.values()}
        stored = {by.columns[name].stored: value for name, value in values.items()}
        made = File(
            definition=told.number, rows={row: {k: v for k, v in stored.items() if k in known}}, attempt=attempt
        )
        yield
        with self.commit(executor, partition, by, exact=False) as may:
            yield
            may()
            self.files[partition].append(made)
        done = [self.note(row, by.columns[name].truth, value) for name, value in values.items()]
        yield
        if attempt is not None:
            if self.rules.decided_by_newest and self.announced > by.number:
                raise Refused
            self.decided.add(attempt)
            yield
        self.rows[row] = self.now
        for moment in done:
            moment.append(self.now)

    def update(self) -> Step:
        by = self.planned(self.draw(len(self.views)))
        partition, name, value = self.draw(PARTITIONS), "nncd"[self.draw(4)], self.number()
        if name not in by.columns:
            return
        yield
        executor = self.owner(partition)
        self.require(executor, by, exact=True)
        told, here = executor.told, [file for file in self.files[partition] if self.counts(file)]
        self.load(executor, here)
        yield
        rows = {row: cells for file in here for row, cells in self.read(executor, file, told)}
        if not rows or name not in told.columns:
            return
        empty = [row for row, cells in sorted(rows.items()) if cells["n"] is None]
        row = empty[0] if name == "n" and empty else sorted(rows)[self.draw(len(rows))]
        stored = {r: {told.columns[n].stored: v for n, v in cells.items()} for r, cells in rows.items()}
        stored[row][told.columns[name].stored] = value
        yield
        with self.commit(executor, partition, by, exact=True) as may:
            yield
            may()
            if any(file not in self.files[partition] for file in here):
                raise Refused
            left = [file for file in self.files[partition] if file not in here]
            self.files[partition] = [*left, File(definition=told.number, rows=stored)]
        self.note(row, by.columns[name].truth, value).append(self.now)

    def query(self, judge: bool = True) -> Generator[None, None, dict[int, dict[str, int | None]]]:
        began, least = self.now, self.acknowledged
        by = self.planned(self.draw(len(self.views)))
        yield
        found: dict[int, dict[str, int | None]] = {}
        for partition in range(PARTITIONS):
            executor = self.executors[self.draw(EXECUTORS)] if self.draw(3) == 0 else self.owner(partition)
            if self.rules.legs_name_it and not (executor.told == executor.shown == by):
                raise Refused
            here = [file for file in self.files[partition] if self.counts(file)]
            self.load(executor, here)
            yield
            for file in here:
                found.update(self.read(executor, file, by))
            if self.rules.looked_after_binding and executor.told != by:
                raise Refused
            yield
        if judge:
            self.judge(found, by, began, least)
        return found

    def judge(self, found: dict[int, dict[str, int | None]], by: Definition, began: int, least: int) -> None:
        if by.number < least:
            self.wrong["an old definition"] += 1
        if any(done < began and row not in found for row, done in self.rows.items()):
            self.wrong["a row is missing"] += 1
        for row, cells in found.items():
            for name, value in cells.items():
                if value not in self.possible(row, by.columns[name], began):
                    self.wrong["a wrong value"] += 1
            if by.proven and cells["n"] is None:
                self.wrong["a row without a value"] += 1

    def look(self) -> None:
        """Judge what whoever reads now would find."""
        if not self.catalog.proven:
            return
        column = self.catalog.columns["n"]
        counted = [file for files in self.files for file in files if self.counts(file)]
        if any(cells.get(column.stored) is None for file in counted for cells in file.rows.values()):
            self.wrong["a row without a value"] += 1

    # What owners do.

    def require(self, executor: Executor, by: Definition, *, exact: bool) -> None:
        told = executor.told
        if by.number > told.number or executor.shown != told:
            raise Refused
        least = told.number if exact else told.accepts_from
        if by.number < least and (self.rules.exact_rewrites if exact else self.rules.accepts_from):
            raise Refused

    @contextmanager
    def commit(self, executor: Executor, partition: int, by: Definition, *, exact: bool) -> Iterator[Any]:
        """A commit under way; what is yielded is called at its instant."""
        if self.rules.exact_rewrites or not exact:
            self.require(executor, by, exact=exact)
        number, epoch = executor.told.number, self.epochs[partition]
        executor.committing[number] += 1

        def may() -> None:
            if partition not in executor.owns or self.epochs[partition] != epoch:  # the fence
                raise Refused

        try:
            yield may
        finally:
            executor.committing[number] -= 1

    def counts(self, file: File) -> bool:
        return file.attempt is None or file.attempt in self.decided

    def load(self, executor: Executor, files: list[File]) -> None:
        if self.rules.files_say and any(file.definition > executor.shown.number for file in files):
            raise Refused

    def read(self, executor: Executor, file: File, by: Definition) -> Iterator[tuple[int, dict[str, int | None]]]:
        """The rows by the names of one definition, out of an engine that has the columns of another one, maybe."""
        shown = executor.shown.columns
        if not by.columns.keys() <= shown.keys():
            raise Refused
        for row, cells in file.rows.items():
            yield row, {name: cells.get(shown[name].stored, shown[name].initial) for name in by.columns}

    # What alters.

    def alter(self) -> Step:
        if not (yield from self.define(self.next_columns(self.catalog))):
            return
        number = self.catalog.number
        yield from self.wait_shown(number, PATIENCE // 16)  # who cannot be told answers nothing to who knows of it
        self.acknowledged = max(self.acknowledged, number)

    def next_columns(self, now: Definition) -> Definition:
        columns = dict(now.columns)
        name = "c" if self.draw(2) else "d"
        other = "d" if name == "c" else "c"
        if name not in columns:
            truth = self.number()
            stored = f"{name}~{truth}" if self.rules.fresh_names else name
            columns[name] = Column(truth=truth, stored=stored, initial=-truth)
        elif other not in columns and self.draw(3):
            columns[other] = columns.pop(name)
        else:
            del columns[name]
        return evolve(now, columns=columns)

    def require_values(self) -> Step:
        if self.catalog.required:
            if self.draw(3):
                return
            yield from self.define(evolve(self.catalog, required=False, proven=False))
            return
        accepts = self.catalog.number + 1
        if not (yield from self.define(evolve(self.catalog, required=True, accepts_from=accepts))):
            return
        mine, proven = self.catalog, False
        if (yield from self.wait_shown(mine.number, PATIENCE)):
            self.views[0] = self.catalog
            try:
                found = yield from self.query(judge=False)
                proven = not any(cells["n"] is None for cells in found.values())
            except Refused:
                proven = False
        while self.catalog.required and not self.catalog.proven:
            if self.catalog.accepts_from != accepts and self.rules.proven_own:
                return
            done = evolve(self.catalog, proven=True) if proven else evolve(self.catalog, required=False)
            if (yield from self.define(done)):
                break

    def define(self, wanted: Definition) -> Generator[None, None, bool]:
        """Commit a definition made of the one before; whether that was still there."""
        base = wanted.number
        wanted = evolve(wanted, number=base + 1)
        if self.rules.announced_first:
            self.announced = max(self.announced, base + 1)
            yield
        yield
        if self.catalog.number != base:
            return False
        self.catalog = wanted
        yield
        self.announced = max(self.announced, base + 1)
        return True

    def wait_shown(self, number: int, patience: int) -> Generator[None, None, bool]:
        for _ in range(patience):
            owners = [self.owner(partition) for partition in range(PARTITIONS)]
            if all(self.is_shown(one, number) for one in owners):
                return True
            yield
        return False

    def is_shown(self, executor: Executor, number: int) -> bool:
        busy = any(count and made < number for made, count in executor.committing.items())
        return executor.shown.number >= number and not (self.rules.shown_after_commits and busy)

    def tell(self) -> Step:
        executor = self.executors[self.draw(EXECUTORS)]
        news = self.catalog
        yield
        if news.number > executor.told.number:
            executor.told = news
            yield
            executor.shown = executor.told

    def move(self) -> Step:
        partition = self.draw(PARTITIONS)
        target = self.executors[self.draw(EXECUTORS)]
        yield
        self.owner(partition).owns.discard(partition)
        target.owns.add(partition)
        self.epochs[partition] += 1
        if self.rules.moves_tell and target.told.number < self.catalog.number:
            target.told = self.catalog
            yield
            target.shown = target.told


def run(seed: int, rules: Rules) -> Counter[str]:
    """What was wrong in the history of a seed."""
    world = World(seed, rules)
    weights = {
        "insert": 3, "update": 5, "query": 9, "alter": 2, "require_values": 2, "tell": 6, "move": 1,
    }  # fmt: skip
    kinds = [getattr(world, kind) for kind, weight in weights.items() for _ in range(weight)]
    actors: list[tuple[Any, int]] = []
    for world.now in range(STEPS):
        if len(actors) < ACTORS:
            actors.append((kinds[world.draw(len(kinds))](), 0))
        place = world.draw(len(actors))
        actor, until = actors[place]
        if world.now % 10 == 0:
            world.look()
        if until > world.now:
            continue
        try:
            next(actor)
            actors[place] = actor, world.now + (world.draw(100) if world.draw(9) == 0 else 0)
        except (StopIteration, Refused):
            del actors[place]
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
