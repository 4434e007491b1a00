"""A model of a partition that is handed over while it is read and written, each rule switchable.

Two schedulers move one partition between three executors: a commit names the target, a later one makes it the owner;
moves are called off, too. Whatever schedulers and executors say to each other arrives late, doubled, out of order or
not at all. Clients write at the owner that the map names, and read by maps of any age. Judged is one thing: what is
read holds every row that was acknowledged before the read was sent.

    python -m ballista_py.testing.models.former_owners [SEEDS]
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from attrs import Factory, define, evolve, frozen

from ballista_py.runtime import seeded_chance

EXECUTORS, STEPS = 3, 3_000
LATEST = 80


@frozen(kw_only=True)
class Rules:
    """What the protocol demands. Each one off must let a reader miss a row in some seed."""

    asks: bool = True  # an owner that was told of a target compares its epoch with the manifest before it answers
    after_query: bool = True  # it does so once the query has come, not at some moment before
    told_first: bool = True  # nobody takes over before the owner has said that it was told
    this_epoch: bool = True  # what it said counts for the epoch for which it said it
    keeps_asking: bool = True  # it goes on asking when the move is called off: its word may still be under way


@frozen
class Map:
    """The committed map of one partition."""

    owner: int = 0
    target: int | None = None
    epoch: int = 1
    revision: int = 1


@define
class Owner:
    """What one executor knows: the epoch that it serves, the rows it holds, whether it was told of a target."""

    epoch: int = 0
    rows: frozenset[int] = frozenset()
    revision: int = 0
    told: bool = False
    asked: int = 0  # the newest epoch in the manifest that it has seen


@define
class History:
    """One seed's: the documents on the store, the executors, the messages under way."""

    rules: Rules
    map: Map = Map()
    fence: int = 1
    rows: frozenset[int] = frozenset()
    executors: list[Owner] = Factory(lambda: [Owner() for _ in range(EXECUTORS)])
    known: list[dict[int, int]] = Factory(
        lambda: [{}, {}]
    )  # by scheduler: who said that it was told, for which epoch
    messages: list[tuple[int, Callable[[], None]]] = Factory(list)
    old_maps: list[Map] = Factory(list)
    written: int = 0
    missed: int = 0
    answered: int = 0
    moves: int = 0

    def run(self, chance: Callable[[], float]) -> History:
        """All its steps; returns itself."""
        self.executors[0].epoch = 1
        for now in range(STEPS):
            self._deliver(now)
            step = int(chance() * 6)
            if step == 0:
                self._move(chance, int(chance() * 2))
            elif step == 1:
                self._tell(now, chance, int(chance() * EXECUTORS))
            elif step == 2:
                self._say(now, chance, int(chance() * EXECUTORS), int(chance() * 2))
            elif step == 3:
                self._write()
            else:
                self._read(chance)
        return self

    def _send(self, now: int, chance: Callable[[], float], message: Callable[[], None]) -> None:
        """Once, twice or never, and some time."""
        for _ in range(int(chance() * 3)):
            self.messages.append((now + int(chance() * LATEST), message))

    def _deliver(self, now: int) -> None:
        due = [message for at, message in self.messages if at <= now]
        self.messages = [(at, message) for at, message in self.messages if at > now]
        for message in due:
            message()

    def _move(self, chance: Callable[[], float], scheduler: int) -> None:
        """Name a target, make it the owner, or call it off."""
        before = self.map
        if before.target is None:
            target = (before.owner + 1 + int(chance() * (EXECUTORS - 1))) % EXECUTORS
            self._commit(evolve(before, target=target))
        elif chance() < 0.3:
            self._commit(evolve(before, target=None))
        elif self._may_take_over(scheduler):
            self._commit(evolve(before, owner=before.target, target=None, epoch=before.epoch + 1))
            self.moves += 1

    def _may_take_over(self, scheduler: int) -> bool:
        said = self.known[scheduler].get(self.map.owner)
        if not self.rules.told_first:
            return True
        return said is not None and (said == self.map.epoch or not self.rules.this_epoch)

    def _commit(self, after: Map) -> None:
        self.old_maps.append(self.map)
        self.map = evolve(after, revision=self.map.revision + 1)

    def _tell(self, now: int, chance: Callable[[], float], number: int) -> None:
        """A scheduler tells an executor what is committed."""
        said, executor = self.map, self.executors[number]

        def told() -> None:
            if said.revision < executor.revision:
                return
            executor.revision = said.revision
            if said.owner != number:
                executor.epoch, executor.told = 0, False
                return
            if executor.epoch != said.epoch:
                if self.fence > said.epoch:
                    return
                self.fence, executor.epoch, executor.rows = said.epoch, said.epoch, self.rows
                executor.told, executor.asked = False, said.epoch
            executor.told = said.target is not None or (executor.told and self.rules.keeps_asking)

        self._send(now, chance, told)

    def _say(self, now: int, chance: Callable[[], float], number: int, scheduler: int) -> None:
        """An executor says to a scheduler whether it was told, and of which epoch."""
        executor = self.executors[number]
        if executor.told:
            epoch = executor.epoch
            self._send(now, chance, lambda: self.known[scheduler].update({number: epoch}))
        executor.asked = max(executor.asked, self.fence)

    def _write(self) -> None:
        """A row at the owner, acknowledged once it is on the store."""
        executor = self.executors[self.map.owner]
        if executor.epoch == self.map.epoch == self.fence:
            self.written += 1
            self.rows |= {self.written}
            executor.rows = self.rows

    def _read(self, chance: Callable[[], float]) -> None:
        """By the map of now, or by one of any age."""
        seen = self.old_maps[-1 - int(chance() * min(5, len(self.old_maps)))] if self.old_maps else self.map
        seen = seen if chance() < 0.7 else self.map
        executor = self.executors[seen.owner]
        if executor.epoch != seen.epoch:
            return
        if executor.told and self.rules.asks:
            newest = self.fence if self.rules.after_query else executor.asked
            if newest > executor.epoch:
                return
        self.answered += 1
        self.missed += bool(self.rows - executor.rows)


def run(seed: int, rules: Rules) -> History:
    """The history of one seed."""
    return History(rules).run(seeded_chance(seed).random)


def variants() -> dict[str, Rules]:
    """All rules, and all but each."""
    names = list(Rules.__annotations__)
    return {"all rules": Rules()} | {f"without {name}": evolve(Rules(), **{name: False}) for name in names}


if __name__ == "__main__":
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    for title, rules in variants().items():
        found = [run(seed, rules) for seed in range(seeds)]
        hit, missed = sum(bool(one.missed) for one in found), sum(one.missed for one in found)
        moves, answered = sum(one.moves for one in found), sum(one.answered for one in found)
        print(f"{title:24s} {hit}/{seeds} seeds, {missed} of {answered} reads missed a row, {moves} moves")
