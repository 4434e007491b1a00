"""A model of tokens that clients give, use again and half-use, each rule switchable.

Clients send loads of rows to partitions under few names: again after a failure, other rows under a name of before, in
between of each other. A load stops anywhere between two accesses to the store and may stay there for ever; what is
noted of a name is forgotten at any time when nothing of it is under way. Judged are: of what was refused no row is
there, of what was acknowledged all rows are, once, and until it is forgotten a name stands for one load.

    python -m ballista_py.testing.models.claimed_tokens [SEEDS]
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Generator

from attrs import define, field, frozen

from ballista_py.runtime import seeded_chance

PARTITIONS, NAMES, LOADS, STEPS = 4, 3, 30, 1_500
Step = Generator[None, None, str]
Token = tuple[int, tuple[int, ...]]


@frozen(kw_only=True)
class Rules:
    """What the protocol demands. Each one off must break a judgement in some seed."""

    claimed: bool = True  # a load claims its name for its rows before it changes the first partition
    one_claim: bool = True  # claims meet: of two at once one is refused
    rows_count: bool = True  # a claim and a manifest tell loads apart by their rows, not by their name alone
    owners_take_all: bool = True  # a partition that knows the name for other rows does not refuse: it applies


@frozen(kw_only=True)
class Load:
    """Rows, by their numbers, for partitions, under a name."""

    name: int
    rows: tuple[int, ...]

    @property
    def parts(self) -> list[int]:
        return sorted({row % PARTITIONS for row in self.rows})


@define
class World:
    """What lies on the store, and what clients were told."""

    claims: dict[int, tuple[int, ...]] = field(factory=dict)
    applied: dict[int, set[Token]] = field(factory=lambda: {p: set() for p in range(PARTITIONS)})
    rows: Counter[tuple[Load, int]] = field(factory=Counter)
    stands_for: dict[int, set[Load]] = field(factory=dict)
    most: int = 0


def send(world: World, load: Load, rules: Rules) -> Step:
    """Take a load in, one access to the store at a time; what the client is told."""
    if rules.claimed:
        wanted = load.rows if rules.rows_count else ()
        seen = world.claims.get(load.name)
        if not rules.one_claim:  # looks, and writes later
            yield
            if seen is None:
                world.claims[load.name] = wanted
        elif seen is None:
            world.claims[load.name] = wanted
        if seen not in (None, wanted):
            return "refused"
        yield
    for partition in load.parts:
        token = (load.name, load.rows if rules.rows_count else ())
        known = world.applied[partition]
        if not rules.owners_take_all and any(other[0] == load.name and other != token for other in known):
            return "refused"
        if token not in known:
            known.add(token)
            world.stands_for.setdefault(load.name, set()).add(load)
            world.most = max(world.most, len(world.stands_for[load.name]))
            world.rows.update((load, row) for row in load.rows if row % PARTITIONS == partition)
        yield
    return "done"


def run(seed: int, rules: Rules) -> list[str]:
    """What is wrong after a history; nothing if it is right."""
    chance, world = seeded_chance(seed), World()
    loads = [
        Load(name=chance.randrange(NAMES), rows=tuple(sorted({chance.randrange(12) for _ in range(3)})))
        for _ in range(LOADS // 3)
    ]
    told: dict[Load, set[str]] = {load: set() for load in loads}
    under_way: list[tuple[Load, Step]] = []
    for _ in range(STEPS):
        if not under_way or (len(under_way) < 3 and chance.random() < 0.1):
            load = chance.choice(loads)
            under_way.append((load, send(world, load, rules)))
        place = chance.randrange(len(under_way))
        load, steps = under_way[place]
        if chance.random() < 0.03:  # the scheduler dies
            del under_way[place]
            continue
        try:
            next(steps)
        except StopIteration as end:
            told[load].add(end.value)
            del under_way[place]
        # A name is forgotten once its load came to an end: who sends it again goes on until then.
        if chance.random() < 0.02:
            for name in list(world.claims):
                mine = [one for one in told if one.name == name]
                begun = [one for one in mine if any(other == one for other, _ in world.rows)]
                if all("done" in told[one] for one in begun) and all(one.name != name for one, _ in under_way):
                    del world.claims[name]
                    world.stands_for.pop(name, None)
    return _wrong(world, told)


def _wrong(world: World, told: dict[Load, set[str]]) -> list[str]:
    found = [] if world.most < 2 else ["a name stood for two loads at once"]
    for load, answers in told.items():
        counts = [world.rows[load, row] for row in load.rows]
        if "done" in answers and counts != [1] * len(counts):
            found.append(f"{load} was acknowledged, and its rows are there {counts} times")
        if answers == {"refused"} and any(counts) and not all(counts):
            found.append(f"{load} was refused, and its rows are there {counts} times")
    return found


def variants() -> dict[str, Rules]:
    """All rules, and all but one."""
    names = [attribute.name for attribute in Rules.__attrs_attrs__]
    return {"all rules": Rules(), **{f"without {name}": Rules(**{name: False}) for name in names}}


def main(show: Callable[[str], object] = print) -> None:
    """Print in how many histories each rule is missed."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    for name, rules in variants().items():
        show(f"{name:25} {sum(bool(run(seed, rules)) for seed in range(seeds))} of {seeds}")


if __name__ == "__main__":
    main()
