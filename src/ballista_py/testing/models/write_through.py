"""A toy of statements that are written to a source in one transaction with their token, and come back by its log.

A statement adds one to a row of the source, as read here, or brings a row, so that whatever is lost, done twice or
overwritten shows in a sum. Programs at the source change the same rows; replies are lost, whoever writes dies, commits
hang. `python -m ballista_py.testing.models.write_through 200` shows how often each missing rule goes wrong.
"""

from __future__ import annotations

import heapq
import sys
from collections import Counter
from collections.abc import Callable

from attrs import define, evolve, field, fields, frozen

from ballista_py.runtime import seeded_chance

INSERTED = 0  # the place of the count of rows that statements brought; behind it those that they add to
ROWS, STATEMENTS, CLIENTS, LAG, DOUBT, UNTIL = 3, 12, 3, 2.0, 6.0, 400.0


@frozen(kw_only=True)
class Rules:
    """What must hold; each of them can be left out."""

    one_transaction: bool = True  # the token is written with the rows, not after them
    unique: bool = True  # whoever comes second with a token waits for the first, and is told what that did
    guarded: bool = True  # rows are changed only if they are what they were read as
    behind_it: bool = True  # what is read shows all that was committed before the statement
    locked: bool = True  # between the guard and the commit nobody else changes the rows
    same_token: bool = True  # a statement whose end is not known is sent again under its token
    visible: bool = True  # who waits for that is answered once the table stands behind the commit
    kept: bool = True  # tokens are kept for longer than anybody sends again


@define
class Transaction:
    """One at the source: it holds its rows, and its token, until it ends."""

    token: int
    rows: dict[int, int]


@define
class World:
    """One history. `wrong` counts what must not be."""

    rules: Rules
    chance: Callable[[], float]
    now: float = 0.0
    source: list[int] = field(factory=lambda: [0] * ROWS)
    log: list[tuple[float, list[int]]] = field(
        factory=list
    )  # of commits: when they are read here, and what was there
    tokens: dict[int, float] = field(factory=dict)  # when they were written
    open: list[Transaction] = field(factory=list)
    programs: list[int] = field(factory=lambda: [0] * ROWS)  # what programs at the source have added
    told: Counter[int] = field(factory=Counter)  # statements that were answered, by row
    wrong: Counter[str] = field(factory=Counter)
    _queue: list[tuple[float, int, Callable[[], None]]] = field(factory=list)
    _count: int = 0

    def later(self, wait: float, then: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._queue, (self.now + wait, self._count, then))

    def run(self) -> World:
        for client in range(CLIENTS):
            self.later(self.chance(), lambda client=client: self._next(client, 0))  # type: ignore[misc]
        self.later(1.0, self._program)
        while self._queue and self.now < UNTIL:
            self.now, _, then = heapq.heappop(self._queue)
            then()
        for row in range(ROWS):
            if self.source[row] != self.told[row] + self.programs[row]:
                self.wrong["the source is not the sum of what was done"] += 1
        return self

    def _program(self) -> None:
        """Somebody else at the source, who waits for locks."""
        row = int(self.chance() * ROWS)
        if row != INSERTED and not any(row in one.rows for one in self.open):
            self.source[row] += 1
            self.programs[row] += 1
            self._committed()
        if self.now < UNTIL / 4:
            self.later(0.5 + 3 * self.chance(), self._program)

    def _committed(self) -> None:
        self.log.append((self.now + LAG * self.chance(), list(self.source)))

    def _here(self) -> int:
        """How many commits the table shows: those are read in their order."""
        shown = 0
        for at, _ in self.log:
            if at > self.now:
                break
            shown += 1
        return shown

    def _read(self, commits: int) -> list[int]:
        return list(self.log[commits - 1][1]) if commits else [0] * ROWS

    # A client, which has one statement after the other.

    def _next(self, client: int, number: int) -> None:
        if number < STATEMENTS:
            row = int(self.chance() * ROWS)
            self._send(client, number, row, client * STATEMENTS + number)

    def _send(self, client: int, number: int, row: int, token: int) -> None:
        done = False

        def answered(commits: int) -> None:
            nonlocal done
            if done:
                return
            done = True
            self.told[row] += 1
            if self._here() < commits:
                self.wrong["answered before it was visible"] += 1
            self.later(self.chance(), lambda: self._next(client, number + 1))

        def again() -> None:
            if not done:
                other = token if self.rules.same_token else token + 1_000 * (1 + int(self.now))
                self._begin(row, other, answered)
                self.later(DOUBT, again)

        self._begin(row, token, answered)
        self.later(DOUBT, again)

    # A scheduler, which may die at any line: then nothing more comes of it.

    def _begin(self, row: int, token: int, answered: Callable[[int], None]) -> None:
        if self.chance() < 0.1:
            return
        wanted = len(self.log)

        def compute() -> None:
            if self.rules.behind_it and self._here() < wanted:
                self.later(0.3, compute)
                return
            shown = self._read(self._here())
            if shown[INSERTED] < self._read(wanted)[INSERTED]:
                self.wrong["did not see what was there before it"] += 1
            read = shown[row]
            self.later(self.chance(), lambda: self._write(row, read, token, answered))

        compute()

    def _write(self, row: int, read: int, token: int, answered: Callable[[int], None]) -> None:
        """The transaction, up to its commit."""
        if self._is_taken(row, token):
            self.later(0.3, lambda: self._write(row, read, token, answered))
            return
        if token in self.tokens:
            self._tell(answered)
            return
        if row != INSERTED and self.rules.guarded and self.source[row] != read:
            self._begin(row, token, answered)
            return
        mine = Transaction(token, {row: read + 1} if self.rules.locked and row != INSERTED else {})
        self.open.append(mine)
        hangs = DOUBT * 2 if self.chance() < 0.1 else 0.2 * self.chance()
        dies = self.chance() < 0.1
        if dies and self.chance() < 0.5:  # before the commit was sent
            self.later(hangs, lambda: self.open.remove(mine))
            return
        self.later(hangs, lambda: self._commit(mine, row, read, answered, dies))

    def _is_taken(self, row: int, token: int) -> bool:
        if any(row in one.rows for one in self.open):
            return True
        return self.rules.unique and any(one.token == token for one in self.open)

    def _commit(self, mine: Transaction, row: int, read: int, answered: Callable[[int], None], dies: bool) -> None:
        self.open.remove(mine)
        self.source[row] = self.source[row] + 1 if row == INSERTED else read + 1
        self._committed()
        if self.rules.one_transaction:
            self._note(mine.token)
        elif not dies:
            self.later(0.5, lambda: self._note(mine.token))
        if not dies:
            self._tell(answered)

    def _note(self, token: int) -> None:
        self.tokens[token] = self.now
        if not self.rules.kept:
            self.later(DOUBT / 2, lambda: self.tokens.pop(token, None))  # type: ignore[arg-type]

    def _tell(self, answered: Callable[[int], None]) -> None:
        """Answer, once what is committed by now is visible; the answer may be lost."""
        commits = len(self.log)

        def tell() -> None:
            if self.rules.visible and self._here() < commits:
                self.later(0.3, tell)
            elif self.chance() > 0.15:
                answered(commits)

        tell()


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
