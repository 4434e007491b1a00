"""A history of one's own, and what can be checked of it: who held what when, and whether the store's answers fit.

For code that is not this project's: run it on `Machine`s of a `World` over a `VirtualStore`, let a `Record` know what
each machine believes, and ask for `problems`. `first_failure` looks for a seed that has some.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from attrs import define, evolve, field, frozen

from ballista_py.testing.simulation.checkers.version_chain import chain_objection
from ballista_py.testing.simulation.history import Accessed, History
from ballista_py.testing.simulation.machine import Machine

LAST = 30


@frozen(kw_only=True)
class Holding:
    """`who` held `about` from one moment to another; both are true times in virtual milliseconds."""

    about: str
    who: str
    from_ms: float
    until_ms: float


@frozen(kw_only=True)
class Failure:
    """A seed whose run had problems."""

    seed: int
    problems: tuple[str, ...]


@define
class Record:
    """What happened in one world. Everything is noted with true time, whatever the clocks of machines say.

    >>> from ballista_py.testing import Machine, World
    >>> world = World(seed=1)
    >>> a, b = Machine(world, "a"), Machine(world, "b")
    >>> record = Record()
    >>> record.holds("door", a, a.monotonic_ms() + 5_000)
    >>> world.run(1_000)
    >>> record.holds("door", b, b.monotonic_ms() + 5_000)
    >>> [problem.split(" from")[0] for problem in record.problems()]
    ["'door' was held by a and b at once"]
    """

    holdings: list[Holding] = field(factory=list)
    _notes: list[tuple[float, str, str]] = field(factory=list)
    _now: dict[tuple[str, str], int] = field(factory=dict)

    def note(self, machine: Machine, what: str) -> None:
        """Something happened at a machine: a line of the timeline."""
        self._notes.append((machine.world.now_ms, machine.name, what))

    def holds(self, about: str, machine: Machine, until_ms: float) -> None:
        """The machine believes from now on that it holds something, until its own monotonic clock says `until_ms`.

        Said again it extends what was said before.
        """
        now_ms = machine.world.now_ms
        until_ms = now_ms + machine.true_ms(until_ms - machine.monotonic_ms())
        if until_ms <= now_ms:
            return
        place = self._now.get((about, machine.name))
        if place is not None and self.holdings[place].until_ms >= now_ms:
            before = self.holdings[place]
            self.holdings[place] = evolve(before, until_ms=max(until_ms, before.until_ms))
            return
        self._now[about, machine.name] = len(self.holdings)
        self.holdings.append(Holding(about=about, who=machine.name, from_ms=now_ms, until_ms=until_ms))
        self.note(machine, f"holds '{about}'")

    def ends(self, about: str, machine: Machine) -> None:
        """The machine gives up now what it holds, or is dead."""
        place = self._now.pop((about, machine.name), None)
        if place is not None:
            before, now_ms = self.holdings[place], machine.world.now_ms
            self.holdings[place] = evolve(before, until_ms=min(before.until_ms, now_ms))
            self.note(machine, f"gives '{about}' up")

    def problems(self, history: History | None = None) -> list[str]:
        """What two machines held at the same time, and what `check_requests` says of the `history`."""
        return [*self._overlaps(), *(check_requests(history) if history is not None else ())]

    def timeline(self, last: int = LAST) -> list[str]:
        """The last notes as lines for people."""
        return [f"{at_ms / 1000:10.3f} s  {who:<14} {what}" for at_ms, who, what in self._notes[-last:]]

    def _overlaps(self) -> Iterator[str]:
        by_name: dict[str, list[Holding]] = defaultdict(list)
        for holding in sorted(self.holdings, key=lambda holding: holding.from_ms):
            for other in by_name[holding.about]:
                until_ms = min(other.until_ms, holding.until_ms)
                if other.who != holding.who and holding.from_ms < until_ms:
                    yield (
                        f"'{holding.about}' was held by {other.who} and {holding.who} at once from "
                        f"{holding.from_ms / 1000:.3f} s to {until_ms / 1000:.3f} s"
                    )
            by_name[holding.about].append(holding)


def check_requests(history: History) -> list[str]:
    """What is wrong with the documents that a `VirtualStore` noted: an update that is lost, a read that went back.

    Objects whose keys end in `.json` are documents. Nothing is wrong on a store that keeps its promises, whatever is
    lost on the way.
    """
    by_key: dict[str, list[Accessed]] = defaultdict(list)
    for event in history:
        if isinstance(event, Accessed):
            by_key[event.key].append(event)
    found = (chain_objection(accesses) for _, accesses in sorted(by_key.items()))
    return [objection[1] for objection in found if objection is not None]


def first_failure(run: Callable[[int], Sequence[str]], seeds: int = 200, first_seed: int = 1) -> Failure | None:
    """The first seed of so many for which `run` gives problems; None if there is none.

    >>> first_failure(lambda seed: ["it is seven"] if seed == 7 else [])
    Failure(seed=7, problems=('it is seven',))
    """
    for seed in range(first_seed, first_seed + seeds):
        problems = run(seed)
        if problems:
            return Failure(seed=seed, problems=tuple(problems))
    return None
