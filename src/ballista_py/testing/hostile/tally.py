"""What a fuzzer counts: cases by door, how many of them were refused or taken, and what was found."""

from __future__ import annotations

from collections import Counter

from attrs import define, field, frozen


@frozen
class Find:
    """A case after which somebody did what nobody should."""

    door: str
    seed: int
    what: str

    def __str__(self) -> str:
        return f"{self.door}, seed {self.seed}: {self.what}"


@define
class Tally:
    """What a run has done so far; `outcome` says in one word what `counted` counts.

    >>> tally = Tally("refused")
    >>> tally.cases["read"] += 1_200
    >>> tally.counted["read"] += 7
    >>> print(tally)
    1,200 cases: read 1,200 (7 refused); 0 finds
    """

    outcome: str
    cases: Counter[str] = field(factory=Counter)
    counted: Counter[str] = field(factory=Counter)
    finds: list[Find] = field(factory=list)

    def __str__(self) -> str:
        doors = ", ".join(
            f"{door} {count:,} ({self.counted[door]:,} {self.outcome})" for door, count in self.cases.items()
        )
        return f"{self.cases.total():,} cases: {doors}; {len(self.finds)} finds"
