"""Refreshes beside schedulers that stand still, die and come back, in virtual time.

Real are the slots, the schedule and the publication of runs; Spark is played. Requests to the store are lost on the way
there and back. The source changes; what it showed once it never shows again.

Judged are: slots are numbered one after the other, and only the one at hand ends (S1); where it is known what the
source showed, and it shows that still, the table has just that, so that the next slot may be passed over (S2); of a
slot one attempt counts (S3); slots are no more often than the interval says, whatever was missed and whatever wall
clocks show (S4); and once nothing fails any more the table comes to what the source has, and slots go on (S5).
"""

from __future__ import annotations

import logging

from attrs import define, evolve, field, frozen

from ballista_py.errors import ObjectMissing
from ballista_py.state.documents.decisions import TableDecisions
from ballista_py.testing.simulation.faults import Faults
from ballista_py.testing.simulation.machine import MAX_DRIFT, Machine
from ballista_py.testing.simulation.refreshes.site import (
    EVERY_MS,
    TABLE,
    RefreshScheduler,
    RefreshSite,
)
from ballista_py.testing.simulation.time import World

SCHEDULERS = 3
CHANGE_MS = 50_000.0
TROUBLE_MS = 45_000.0
STILL_MS = 150_000.0
CALM_MS = 900_000.0
_LOGS = "ballista_py.coordinator.refreshes"


@frozen(kw_only=True)
class RefreshResult:
    """One run: how often what was done, and what was wrong."""

    seed: int
    done: tuple[tuple[str, int], ...]
    wrong: tuple[str, ...]


@define
class RefreshSimulation:
    """One run of `minutes` of virtual time; it ends at the first thing that is wrong. The same seed replays.

    >>> RefreshSimulation(1, minutes=3).run().wrong
    ()
    """

    seed: int
    minutes: float = 40.0
    _site: RefreshSite = field(init=False)
    _born: int = field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        self._site = RefreshSite(World(self.seed))

    def run(self) -> RefreshResult:
        """Live through the minutes, let everything come to rest, and judge."""
        site, world, book = self._site, self._site.world, self._site.book
        logs = logging.getLogger(_LOGS)
        before = logs.level
        logs.setLevel(logging.CRITICAL)  # what goes wrong here is meant to
        try:
            site.schedulers = [self._scheduler(number) for number in range(SCHEDULERS)]
            for name, act in (("source", self._change), ("troubles", self._trouble)):
                hand = Machine(world, name)
                hand.spawn(lambda act=act, hand=hand: act(hand))  # type: ignore[misc]
            self._live(world.now_ms + self.minutes * 60_000.0)
            if not book.wrong:
                self._judge_pace()
            if not book.wrong:
                self._come_to_rest()
            self._judge_counts()
        finally:
            world.close()
            logs.setLevel(before)
        return RefreshResult(seed=self.seed, done=tuple(sorted(book.done.items())), wrong=tuple(book.wrong))

    def _scheduler(self, place: int) -> RefreshScheduler:
        self._born += 1
        return RefreshScheduler(self._site, f"scheduler-{self._born}-{place}")

    def _live(self, until_ms: float) -> None:
        world = self._site.world
        while world.now_ms < until_ms and not self._site.book.wrong:
            world.run(min(until_ms, world.now_ms + 10_000.0))

    def _change(self, hand: Machine) -> None:
        """The source has another content now and then: what it showed once it never shows again."""
        while not self._site.calm:
            hand.sleep_ms(CHANGE_MS * 2 * hand.random())
            self._site.content += 1

    def _trouble(self, hand: Machine) -> None:
        """Now and then a scheduler stands still, is cut from the store, dies, or is thought dead and wakes up."""
        site = self._site
        while True:
            hand.sleep_ms(TROUBLE_MS * 2 * hand.random())
            if site.calm:
                return
            place, chance = int(hand.random() * SCHEDULERS), hand.random()
            old = site.schedulers[place]
            if chance < 0.4:
                site.book.done["paused"] += 1
                old.machine.pause(STILL_MS * hand.random())
                continue
            if chance < 0.55:
                site.book.done["cut off"] += 1
                old.machine.cut_until_ms = site.world.now_ms + STILL_MS * hand.random()
                continue
            if chance < 0.8:
                site.book.done["killed"] += 1
                old.machine.dead = True
            else:
                site.book.done["stood still and was replaced"] += 1
                old.machine.pause(STILL_MS * hand.random())
                old.machine.stopping = True
            site.schedulers[place] = self._scheduler(place)

    def _come_to_rest(self) -> None:
        site, world = self._site, self._site.world
        site.calm = True
        site.faults = evolve(Faults.none(), latency_ms=site.faults.latency_ms)
        for one in site.schedulers:
            one.machine.paused_until_ms = one.machine.cut_until_ms = world.now_ms
        before = site.slots()
        self._live(world.now_ms + CALM_MS)
        after, shown = site.slots(), site.shown()
        count = 0 if after is None or before is None else after.slot - before.slot
        most = CALM_MS / (EVERY_MS * (1 - MAX_DRIFT)) + SCHEDULERS + 1
        site.book.expect(count <= most, f"S4: {count} slots in the time of {most:.0f}")
        went_on = after is not None and after.slot >= (before.slot if before else 0) + 3
        site.book.expect(went_on, f"S5: the slots stand at {after and after.slot}")
        site.book.expect(shown == {site.content}, f"S5: the source has {site.content}, the table {sorted(shown)}")

    def _judge_pace(self) -> None:
        """A scheduler that starts may find a slot due at once by its wall clock, and no more than one."""
        slots = self._site.slots()
        most = self._site.world.now_ms / (EVERY_MS * (1 - MAX_DRIFT)) + self._born + 1
        count = 0 if slots is None else slots.slot
        self._site.book.expect(count <= most, f"S4: {count} slots in the time of {most:.0f}")

    def _judge_counts(self) -> None:
        """The decisions name the slots: each once."""
        try:
            made = TableDecisions(self._site.store, TABLE.folder, runtime=self._site.god).read().decisions
        except ObjectMissing:
            return
        slots = [one.token.partition(".")[0] for one in made if one.committed]
        twice = {slot for slot in slots if slots.count(slot) > 1}
        self._site.book.expect(not twice, f"S3: counted twice: {sorted(twice)}")
