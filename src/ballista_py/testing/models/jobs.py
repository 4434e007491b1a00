"""A model of jobs that survive their scheduler, each rule switchable.

Clients submit jobs that write one row and have two chunks as their result; schedulers run them, one access to the
store at a time. A scheduler stops anywhere and may go on much later, though it is no member any more by then; it dies;
the reply to a write is lost, and then it reads back what became of it. A collector removes chunks that are no result.
Judged are: a result is whole, of one attempt, and stays; what a job writes is there once; a job that was acknowledged
ends, once nothing fails any more; none is taken from a member.

    python -m ballista_py.testing.models.jobs [SEEDS]
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Generator

from attrs import define, evolve, field, frozen

from ballista_py.runtime import seeded_chance

JOBS, CHUNKS, SCHEDULERS, STEPS, CALM = 12, 2, 3, 700, 500
OPEN = ("pending", "running")
Step = Generator[None, None, None]
Key = tuple[int, int, int]  # job, attempt, number


@frozen(kw_only=True)
class Rules:
    """What the protocol demands. Each one off must break a judgement in some seed."""

    attempt_checked: bool = True  # the end of a job is committed by the attempt that runs it, and by no other
    chunks_first: bool = True  # all chunks lie there before the document names them
    members_asked: bool = True  # a job is taken from an owner that is no member, and from no other
    members_last: bool = True  # who is a member is read after whose the job is
    token: bool = True  # a write comes under the id of its job, not under a new one each time
    marker_first: bool = True  # the marker lies there before the document
    marker_until_end: bool = True  # the marker goes after the end was committed
    open_kept: bool = True  # the collector keeps the chunks of the attempt that runs


@frozen(kw_only=True)
class Doc:
    """The document of a job. `owner` is an instance."""

    state: str = "pending"
    attempt: int = 0
    owner: int = -1


@define
class World:
    """What lies on the store, who is a member, and what is wrong."""

    docs: dict[int, Doc] = field(factory=dict)
    markers: set[int] = field(factory=set)
    chunks: dict[Key, int] = field(factory=dict)  # who wrote it
    members: set[int] = field(factory=set)
    written: Counter[int] = field(factory=Counter)
    tokens: set[object] = field(factory=set)
    acknowledged: set[int] = field(factory=set)
    wrong: set[str] = field(factory=set)


def submit(world: World, job: int, rules: Rules) -> Step:
    """Make a job; acknowledged once this has ended."""
    for part in ("marker", "document") if rules.marker_first else ("document", "marker"):
        if part == "marker":
            world.markers.add(job)
        elif job not in world.docs:
            world.docs[job] = Doc()
        yield
        if part == "document" and not rules.marker_first:
            world.acknowledged.add(job)
            yield
    world.acknowledged.add(job)


def look(world: World, me: int, rules: Rules, chance: Callable[[], float]) -> Step:
    """One tick: begin a job that waits, or one whose owner is gone, and do it."""
    before = set(world.members)
    yield
    for job in sorted(world.markers, key=lambda _: chance()):
        seen = world.docs.get(job)
        yield
        members = set(world.members) if rules.members_last else before
        if seen is None:
            continue
        if seen.state not in OPEN:
            world.markers.discard(job)
            yield
            continue
        gone = seen.owner not in members or (not rules.members_asked and chance() < 0.3)
        if seen.state == "running" and not gone:
            continue
        yield
        if world.docs[job] != seen:
            continue
        if seen.state == "running" and seen.owner in world.members:
            world.wrong.add("a job was taken from a member")
        world.docs[job] = Doc(state="running", attempt=seen.attempt + 1, owner=me)
        if not rules.marker_until_end:
            world.markers.discard(job)
        yield
        yield from run_job(world, job, me, seen.attempt + 1, rules)
        return


def run_job(world: World, job: int, me: int, attempt: int, rules: Rules) -> Step:
    """Write, make the chunks, commit the end."""
    token: object = job if rules.token else (job, attempt)
    if token not in world.tokens:
        world.tokens.add(token)
        world.written[job] += 1
    yield
    if not rules.chunks_first:
        yield from _end(world, job, me, attempt, rules)
    for number in range(CHUNKS):
        world.chunks[job, attempt, number] = me
        yield
    yield from _end(world, job, me, attempt, rules)


def _end(world: World, job: int, me: int, attempt: int, rules: Rules) -> Step:
    doc = world.docs[job]
    mine = doc.state == "running" and (doc.attempt, doc.owner) == (attempt, me)
    if mine or not rules.attempt_checked:
        world.docs[job] = evolve(doc, state="succeeded", attempt=attempt)
    yield
    world.markers.discard(job)
    yield


def collect(world: World, rules: Rules) -> Step:
    """Remove what is no result and will be none: listed first, then the document is read."""
    for key in list(world.chunks):
        yield
        doc = world.docs[key[0]]
        running = doc.state in OPEN and key[1] >= doc.attempt
        if (running and rules.open_kept) or (doc.state == "succeeded" and key[1] == doc.attempt):
            continue
        yield
        world.chunks.pop(key, None)


def _judge(world: World) -> None:
    for job, doc in world.docs.items():
        if world.written[job] > 1:
            world.wrong.add("a job wrote twice")
        if doc.state != "succeeded":
            continue
        if any((job, doc.attempt, number) not in world.chunks for number in range(CHUNKS)):
            world.wrong.add("a result lacks a chunk")
        if not world.written[job]:
            world.wrong.add("a job is done and wrote nothing")


@define
class _Scheduler:
    instance: int
    steps: Step | None = None
    still: int = 0


def run(seed: int, rules: Rules) -> list[str]:
    """What is wrong after a history; nothing if it is right."""
    chance, world = seeded_chance(seed), World()
    schedulers = [_Scheduler(number) for number in range(SCHEDULERS)]
    world.members = {one.instance for one in schedulers}
    clients: dict[int, Step] = {}
    collector: Step | None = None
    ended: dict[int, str] = {}
    for step in range(STEPS + CALM):
        calm = step >= STEPS
        if not calm and chance.random() < 0.025:
            job = chance.randrange(JOBS)
            clients.setdefault(job, submit(world, job, rules))
        for job, steps in list(clients.items()):
            its_scheduler_dies = not calm and chance.random() < 0.05
            if its_scheduler_dies or next(steps, 0) == 0:
                del clients[job]
        for place, one in enumerate(list(schedulers)):
            one.still -= 1
            if not calm and chance.random() < 0.02:
                one.still = chance.randrange(60)
            if not calm and chance.random() < 0.02:  # it is no member any more; its process may not know
                world.members.discard(one.instance)
                fresh = _Scheduler(max(s.instance for s in schedulers) + 1)
                world.members.add(fresh.instance)
                schedulers[place] = fresh
                if chance.random() < 0.5:
                    schedulers.append(one)
            if one.still > 0 and not calm:
                continue
            is_member = one.instance in world.members
            if one.steps is None and is_member:
                one.steps = look(world, one.instance, rules, chance.random)
            if one.steps is not None and next(one.steps, 0) == 0:
                one.steps = None
        schedulers = [one for one in schedulers if one.instance in world.members or one.steps is not None]
        collector = collector or collect(world, rules)
        if next(collector, 0) == 0:
            collector = None
        _judge(world)
        for job, doc in world.docs.items():
            if ended.setdefault(job, doc.state) not in OPEN and doc.state != ended[job]:
                world.wrong.add("a job ended twice")
            ended[job] = doc.state
    for job in sorted(world.acknowledged):
        if world.docs[job].state in OPEN:
            world.wrong.add("a job that was acknowledged never ends")
    return sorted(world.wrong)


def variants() -> dict[str, Rules]:
    """All rules, and all but one."""
    names = [attribute.name for attribute in Rules.__attrs_attrs__]
    return {"all rules": Rules(), **{f"without {name}": Rules(**{name: False}) for name in names}}


def main(show: Callable[[str], object] = print) -> None:
    """Print in how many histories each rule is missed."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    for name, rules in variants().items():
        found = [run(seed, rules) for seed in range(seeds)]
        seen = Counter(what for wrong in found for what in wrong).most_common(2)
        show(f"{name:26} {sum(map(bool, found))} of {seeds}  {'; '.join(what for what, _ in seen)}")


if __name__ == "__main__":
    main()
