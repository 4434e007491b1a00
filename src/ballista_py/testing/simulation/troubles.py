"""The hand that breaks a simulated cluster: pauses, crashes, cuts and, now and then, the worst case known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from attrs import define, field

from ballista_py.testing.simulation.executor import VirtualExecutor
from ballista_py.testing.simulation.machine import Machine
from ballista_py.testing.simulation.scheduler import VirtualScheduler
from ballista_py.testing.simulation.site import Site

EVERY_MS = 1_000.0
MAX_ZOMBIES = 12
Node = TypeVar("Node", VirtualScheduler, VirtualExecutor)


@define
class Nodes:
    """The processes of a cluster: one for each id, and `former` ones that should be dead and are not."""

    schedulers: list[VirtualScheduler] = field(factory=list)
    executors: list[VirtualExecutor] = field(factory=list)
    former_schedulers: list[VirtualScheduler] = field(factory=list)
    former_executors: list[VirtualExecutor] = field(factory=list)

    def all_schedulers(self) -> Sequence[VirtualScheduler]:
        return [*self.schedulers, *self.former_schedulers]

    def all_executors(self) -> Sequence[VirtualExecutor]:
        return [*self.executors, *self.former_executors]

    def machines(self) -> Sequence[Machine]:
        found = [s.machine for s in self.all_schedulers()] + [e.machine for e in self.all_executors()]
        return [machine for machine in found if not machine.dead]


class Troubles:
    """Makes things go wrong from `start` until `stop`, as often as the faults of the site say."""

    def __init__(
        self,
        site: Site,
        nodes: Nodes,
        new_scheduler: Callable[[str], VirtualScheduler],
        new_executor: Callable[[str], VirtualExecutor],
    ) -> None:
        self._site = site
        self._nodes = nodes
        self._new_scheduler = new_scheduler
        self._new_executor = new_executor
        self._active = False

    def start(self) -> None:
        self._active = True
        self._site.world.at(EVERY_MS, None, self._round)

    def stop(self) -> None:
        """End every fault: pauses and cuts are over, and whoever is down comes up."""
        self._active = False
        for machine in self._nodes.machines():
            now_ms = self._site.world.now_ms
            machine.paused_until_ms = machine.cut_until_ms = machine.slow_until_ms = now_ms
        self._site.link_cuts.clear()
        for place, scheduler in enumerate(self._nodes.schedulers):
            if scheduler.machine.dead:
                self._nodes.schedulers[place] = self._new_scheduler(scheduler.machine.name)
        for place, executor in enumerate(self._nodes.executors):
            if executor.machine.dead:
                self._nodes.executors[place] = self._new_executor(executor.machine.name)

    def _happens(self, every_s: float) -> bool:
        return every_s > 0 and self._site.world.chance.random() < EVERY_MS / 1_000 / every_s

    def _round(self) -> None:
        if not self._active:
            return
        site, faults, chance = self._site, self._site.faults, self._site.world.chance
        now_ms = site.world.now_ms
        for machine in self._nodes.machines():
            if self._happens(faults.pause_every_s):
                pause_ms = chance.choice(faults.pauses_ms) * chance.random()
                machine.pause(pause_ms)
                site.fault(machine.name, f"is paused for {pause_ms / 1000:.1f} s")
            if self._happens(faults.cut_from_store_every_s):
                cut_ms = faults.cut_ms * chance.random()
                machine.cut_until_ms = now_ms + cut_ms
                site.fault(machine.name, f"is cut from the store for {cut_ms / 1000:.1f} s")
            if self._happens(faults.slow_store_every_s):
                slow_ms = faults.slow_store_ms * chance.random()
                machine.slow_until_ms = now_ms + slow_ms
                site.fault(machine.name, f"has a slow way to the store for {slow_ms / 1000:.1f} s")
        if self._happens(faults.any_link_cut_every_s):
            self._cut_link(chance.choice(self._nodes.schedulers), chance.choice(self._nodes.executors))
        if self._happens(faults.any_isolated_every_s):
            self._isolate(chance.choice(self._nodes.schedulers), chance.choice(self._nodes.executors))
        self._crashes()
        site.world.at(EVERY_MS, None, self._round)

    def _cut_link(self, scheduler: VirtualScheduler, executor: VirtualExecutor) -> None:
        site = self._site
        cut_ms = site.faults.link_cut_ms * site.world.chance.random()
        link = (scheduler.machine.name, executor.machine.name)
        site.link_cuts[link] = max(site.link_cuts.get(link, 0.0), site.world.now_ms + cut_ms)
        site.fault(link[0], f"is cut from {link[1]} for {cut_ms / 1000:.1f} s")

    def _isolate(self, scheduler: VirtualScheduler, executor: VirtualExecutor) -> None:
        """Let only this scheduler hear the executor, and then cut it from the store or pause it."""
        site, chance = self._site, self._site.world.chance
        alone_ms = chance.uniform(0.2, 1.0) * site.faults.link_cut_ms
        for other in self._nodes.schedulers:
            if other is not scheduler:
                link = (other.machine.name, executor.machine.name)
                site.link_cuts[link] = site.world.now_ms + alone_ms
        site.fault(
            executor.machine.name, f"is heard by {scheduler.machine.name} alone for {alone_ms / 1000:.1f} s"
        )

        if chance.random() < 0.5:
            watcher = chance.choice(self._nodes.schedulers)
            watcher.machine.slow_until_ms = site.world.now_ms + alone_ms
            site.fault(watcher.machine.name, f"has a slow way to the store for {alone_ms / 1000:.1f} s")

        def strike() -> None:
            strike_ms = chance.uniform(0.2, 1.0) * site.faults.cut_ms
            if not self._active:
                return
            if chance.random() < 0.5:
                scheduler.machine.cut_until_ms = site.world.now_ms + strike_ms
            else:
                scheduler.machine.pause(strike_ms)
            site.fault(scheduler.machine.name, f"is cut or paused for {strike_ms / 1000:.1f} s")

        site.world.at(chance.random() * alone_ms, None, strike)

    def _crashes(self) -> None:
        faults = self._site.faults
        nodes = self._nodes
        for place, scheduler in enumerate(nodes.schedulers):
            if self._happens(faults.scheduler_crash_every_s):
                self._crash(scheduler, nodes.former_schedulers)
                self._restart(nodes.schedulers, place, scheduler.machine.name, self._new_scheduler)
        for place, executor in enumerate(nodes.executors):
            if self._happens(faults.executor_crash_every_s):
                self._crash(executor, nodes.former_executors)
                self._restart(nodes.executors, place, executor.machine.name, self._new_executor)
        nodes.former_schedulers = self._kept(nodes.former_schedulers)
        nodes.former_executors = self._kept(nodes.former_executors)

    def _kept(self, former: list[Node]) -> list[Node]:
        """Those that still run. Above `MAX_ZOMBIES` the oldest are killed: nobody would watch them any more."""
        running = [node for node in former if not node.machine.dead]
        for node in running[:-MAX_ZOMBIES]:
            node.crash()
            self._site.fault(node.machine.name, "is killed, long after it was replaced")
        return running[-MAX_ZOMBIES:]

    def _crash(self, node: Node, former: list[Node]) -> None:
        site, chance = self._site, self._site.world.chance
        machine = node.machine
        if machine.dead:
            return
        if chance.random() < site.faults.zombie:
            pause_ms = chance.choice(site.faults.pauses_ms) * chance.random()
            machine.pause(pause_ms)
            former.append(node)
            site.fault(machine.name, f"is replaced while its former process is paused for {pause_ms / 1000:.1f} s")
        elif chance.random() < site.faults.clean_leave:
            machine.spawn(node.leave)
            site.fault(machine.name, "is told to stop")
        else:
            node.crash()
            site.fault(machine.name, "is killed")

    def _restart(self, nodes: list[Node], place: int, name: str, new: Callable[[str], Node]) -> None:
        site = self._site
        crashed = nodes[place]

        def restart() -> None:
            if nodes[place] is crashed:
                nodes[place] = new(name)

        site.world.at(site.faults.restart_ms * site.world.chance.random(), None, restart)
