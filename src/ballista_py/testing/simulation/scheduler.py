"""A scheduler of a simulated cluster: the parts of the state floor, wired and ticked as the node does it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from ballista_py.errors import AlreadyRegistered, BallistaError, Fenced
from ballista_py.partitions.map import Owner, PartitionMap
from ballista_py.state.documents.documents import SchedulerInfo
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.members.control import Grant, Heartbeat, Refusal, UpdatePartitions
from ballista_py.state.members.executor_registry import ExecutorRegistry
from ballista_py.state.members.membership import Membership
from ballista_py.state.members.reaper import Reaper
from ballista_py.state.ownership.notifier import Notifier
from ballista_py.state.ownership.notify import desired
from ballista_py.state.ownership.partition_store import PartitionStore
from ballista_py.state.ownership.reconciler import Reconciler
from ballista_py.testing.simulation.history import Led, Told
from ballista_py.testing.simulation.lease_notes import LeaseNotes
from ballista_py.testing.simulation.machine import Machine
from ballista_py.testing.simulation.site import LEDGER_KEY, Ledger, Site

Message = Grant | Refusal | UpdatePartitions


class Listener(Protocol):
    """An executor, as far as messages go."""

    machine: Machine

    def received(self, message: Message) -> None: ...


class VirtualScheduler:
    """One scheduler process. It talks to the executors that it has heard."""

    def __init__(self, site: Site, name: str) -> None:
        self.site = site
        self.machine = machine = Machine(site.world, name)
        self._streams: dict[str, Listener] = {}  # by executor instance
        times, store = site.times, site.store_for(machine)
        info = SchedulerInfo(scheduler_id=name, instance_id="")
        self.membership = Membership(store, info, ttl_ms=times.ttl_ms, skew_ms=times.skew_ms, runtime=machine)
        self.registry = ExecutorRegistry(self.membership)
        self._reaper = Reaper(store, self.membership)
        self.partitions = PartitionStore(store, guard=self.membership.require, runtime=machine)
        self._reconciler = Reconciler(self.partitions, self.membership, reports=self.registry.held)
        self._notifier = Notifier(machine, times.look_ms)
        self._ledger = ObjectState(store, LEDGER_KEY, Ledger, runtime=machine)
        self._maps: Mapping[str, PartitionMap] = {}
        self._desired: dict[Owner, tuple[int, Sequence[UpdatePartitions]]] = {}
        self.lease = LeaseNotes(site.world, self._note_led)
        self._poke_admission: Callable[[], None] = _nobody
        self._poke_reconciler: Callable[[], None] = _nobody
        machine.spawn(self._live)

    def _live(self) -> None:
        self._join()
        site, machine, times = self.site, self.machine, self.site.times
        self._poke_admission = site.every(machine, times.look_ms, self._admit)
        self._poke_reconciler = site.every(machine, times.interval_ms, self._reconcile)
        site.every(machine, times.look_ms, self._reap)
        for _ in range(2):  # two threads share one document's commits
            site.every(machine, times.change_ms, lambda: site.change_ledger(machine, self._ledger))
        site.every(machine, self.membership.beat_every_ms, self._beat)

    def _join(self) -> None:
        while not self.machine.stopping:
            try:
                self.membership.join()
            except (AlreadyRegistered, BallistaError):
                self.machine.sleep_ms(self.machine.random() * 10_000)
            else:
                self._note_lease()
                return

    def _beat(self) -> None:
        try:
            self.membership.beat(self.registry.silences)
        except Fenced:
            self._note_lease()
            self._join()
        self._note_lease()

    def _admit(self) -> None:
        report = self.registry.tick()
        self._note_lease()
        for instance, answer in report.answers.items():
            self._push(instance, answer)
        if report.admitted:
            self._poke_reconciler()

    def _reap(self) -> None:
        if self._reaper.tick().lost:
            self._poke_reconciler()

    def _reconcile(self) -> None:
        self._maps = self._reconciler.tick().maps
        for heartbeat in self.registry.newest():
            self._notify(heartbeat)

    def heard(self, listener: Listener, heartbeat: Heartbeat) -> None:
        """A heartbeat of that executor arrived."""
        self._note_lease()
        self._streams[heartbeat.executor.instance_id] = listener
        answer = self.registry.heard(heartbeat)
        if answer is None:
            self._poke_admission()
            return
        self._push(heartbeat.executor.instance_id, answer)
        if isinstance(answer, Grant):
            self._notify(heartbeat)

    def leave_executor(self, executor_id: str, instance_id: str) -> None:
        """An executor says that it serves no more."""

        def leave() -> None:
            with self.site.watched(self.machine):
                self.registry.leave(executor_id, instance_id)
                self._poke_reconciler()

        self.machine.spawn(leave)

    def leave(self) -> None:
        """Leave the cluster as a process does that is told to stop, and end."""
        self.machine.stopping = True
        with self.site.watched(self.machine):
            # As `leave` does before anything else; noted now, because the process may be paused in the middle of it.
            self.membership.fence(self.membership.instance_id)
            self._note_lease()
            self.membership.leave()
        self.crash()

    def _notify(self, heartbeat: Heartbeat) -> None:
        owner = (heartbeat.executor.executor_id, heartbeat.executor.instance_id)
        for update in self._notifier.due(owner, self._all_for(owner), heartbeat.held):
            self._push(owner[1], update)

    def _all_for(self, owner: Owner) -> Sequence[UpdatePartitions]:
        """What is committed for that instance, derived once for each revision."""
        name = self.site.table.name
        pmap = self._maps.get(name)
        if pmap is None:
            return ()
        known = self._desired.get(owner)
        if known is None or known[0] != pmap.revision:
            known = (pmap.revision, desired(self._maps, {name: self.site.table}, *owner))
            self._desired[owner] = known
        return known[1]

    def _push(self, instance: str, message: Message) -> None:
        listener = self._streams[instance]
        self._note_told(listener, message)
        link = (self.machine.name, listener.machine.name)
        self.site.send(link, listener.machine, lambda: listener.received(message))

    def _note_told(self, listener: Listener, message: Message) -> None:
        if not isinstance(message, UpdatePartitions):
            return
        self.site.history.add(
            Told(
                at_ms=self.site.world.now_ms,
                node=self.machine.name,
                executor_id=listener.machine.name,
                instance=message.instance_id,
                table=message.table.name,
                revision=message.revision,
                partitions=tuple((a.partition, a.epoch, a.role) for a in message.partitions),
            )
        )

    def _note_lease(self) -> None:
        left_ms = 0.0 if self.machine.dead else self.membership.remaining_ms()
        self.lease.seen(self.membership.instance_id, self.machine.true_ms(left_ms))

    def crash(self) -> None:
        """End at once."""
        self.machine.dead = True
        self._note_lease()

    def _note_led(self, instance: str, from_ms: float, until_ms: float) -> None:
        name = self.machine.name
        led = Led(at_ms=from_ms, node=name, scheduler_id=name, instance=instance, until_ms=until_ms)
        self.site.history.add(led)


def _nobody() -> None:
    """There is no loop to poke yet."""
