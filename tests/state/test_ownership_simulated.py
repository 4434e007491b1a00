"""The whole chain of ownership on virtual time: real components, hostile world, no partition served by two.

Schedulers and executors run as greenlets that switch at every store call, message and sleep. They pause, crash,
come back under the same id while their former self still lives, are cut from the store and from each other;
requests and replies are lost or come late. After each step the guarantees are checked on what really happened.
"""

from __future__ import annotations

import contextlib
import heapq
import os
import random

import greenlet
import orjson
import pyarrow as pa
import pytest
from attrs import evolve, frozen

from ballista_py.errors import AlreadyRegistered, BallistaError, Fenced, OutcomeUnknown, StoreUnavailable
from ballista_py.planning.partition_map import PartitionMap
from ballista_py.planning.partition_spec import PartitionSpec
from ballista_py.planning.table import TableSpec
from ballista_py.runtime import SystemRuntime
from ballista_py.state.control import HeldPartitions
from ballista_py.state.documents import SchedulerInfo, partition_map_key
from ballista_py.state.executor_lease import ExecutorLease
from ballista_py.state.executor_registry import ExecutorRegistry
from ballista_py.state.fence import activate, require_epoch
from ballista_py.state.liveness import jittered_ms
from ballista_py.state.membership import Membership
from ballista_py.state.memory import MemoryStore
from ballista_py.state.notify import desired
from ballista_py.state.object_state import ObjectState
from ballista_py.state.partition_store import PartitionStore
from ballista_py.state.reaper import Reaper
from ballista_py.state.reconciler import Reconciler

SEEDS = range(int(os.environ.get("BALLISTA_SIM_SEEDS", "3")))
HOURS = float(os.environ.get("BALLISTA_SIM_HOURS", "0.15"))
TTL_MS, SKEW_MS = 30_000.0, 5_000.0
PARTITIONS = 8
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False)])
SPEC = PartitionSpec.parse([f"bucket({PARTITIONS}, id)"], SCHEMA)
TABLE = TableSpec(name="t", schema=SCHEMA, spec=SPEC)
PAUSES_MS = (5_000, 20_000, 40_000, 120_000)


@frozen
class Manifest:
    epoch: int = 0
    written_at: int = 0


class World:
    def __init__(self, seed) -> None:
        self.chance = random.Random(seed)
        self.now_ms = 0.0
        self.queue = []
        self.count = 0
        self.main = greenlet.getcurrent()
        self.hostile = True
        self.kept_alive = []

    def at(self, delay_ms, process, act) -> None:
        self.count += 1
        heapq.heappush(self.queue, (self.now_ms + delay_ms, self.count, process, act))

    def spawn(self, process, work) -> None:
        def body():
            try:
                work()
            except greenlet.GreenletExit:
                raise
            except BaseException as error:
                self.failure = error

        made = greenlet.greenlet(body, parent=self.main)
        self.kept_alive.append(made)  # else a crashed process would run its cleanups
        self.at(0, process, made.switch)

    def sleep(self, process, delay_ms) -> None:
        self.at(delay_ms, process, greenlet.getcurrent().switch)
        self.main.switch()

    def step(self) -> bool:
        self.failure = None
        time_ms, _, process, act = heapq.heappop(self.queue)
        self.now_ms = max(self.now_ms, time_ms)
        if process is not None:
            if process.dead:
                return False
            if process.paused_until > self.now_ms:
                self.at(process.paused_until - self.now_ms, process, act)
                return False
        act()
        if self.failure is not None:
            raise self.failure
        return True


class Process:
    """A machine: its clock drifts, it can pause, die and be cut from the store. Also its `Runtime`."""

    def __init__(self, world, name) -> None:
        self.world, self.name = world, name
        self.dead = False
        self.paused_until = self.cut_until = 0.0
        self.offset, self.rate = world.chance.uniform(0, 1e8), world.chance.uniform(0.95, 1.05)

    def wall_ms(self):
        return int(self.world.chance.uniform(0, 2e12))  # nobody may decide anything by it

    def monotonic_ms(self):
        return self.offset + self.rate * self.world.now_ms

    def sleep_ms(self, duration_ms):
        self.world.sleep(self, duration_ms / self.rate)

    def random(self):
        return self.world.chance.random()

    def new_id(self):
        return f"{self.world.chance.getrandbits(128):032x}"

    def lock(self):
        return Lock()

    def condition(self):
        return Condition(self)


class Lock:
    held = False

    def __enter__(self):
        assert not self.held, "a lock was held across a switch"
        self.held = True

    def __exit__(self, *exc):
        self.held = False


class Condition(Lock):
    def __init__(self, process) -> None:
        self.process, self.waiting = process, []

    def wait(self, timeout_ms=None):
        self.waiting.append(greenlet.getcurrent().switch)
        self.held = False
        self.process.world.main.switch()
        self.held = True

    def notify_all(self):
        for switch in self.waiting:
            self.process.world.at(0, self.process, switch)
        self.waiting = []


class History:
    """All that was committed, checked as it happens."""

    def __init__(self, store) -> None:
        self.store = store
        self.owner_of_epoch = {}
        self.promoted = set()
        self.map = None

    def committed(self, key, data) -> None:
        new = orjson.loads(data)
        if key == partition_map_key("t"):
            self.check_map(PartitionMap.from_columns("t", new["header"]["revision"], new["map"]))
        elif key.startswith("manifest"):
            assert new["written_at"] <= new["epoch"], "G5: written at an epoch that is not active"

    def check_map(self, new) -> None:
        old, self.map = self.map, new
        assert old is None or new.revision == old.revision + 1, "G1"
        for p in range(PARTITIONS):
            owner, epoch = new.owner(p), new.epoch(p)
            assert self.owner_of_epoch.setdefault((p, epoch), owner) == owner, "G4: an epoch has two owners"
            if old is not None:
                assert epoch >= old.epoch(p), "G4: an epoch fell"
                if old.owner(p) != owner and old.target(p) == owner:
                    self.promoted.add((p, epoch))


class Network:
    """The store as one process sees it: slow, lossy, sometimes out of reach."""

    def __init__(self, process, store, history) -> None:
        self.process, self.store, self.history = process, store, history

    def _hop(self) -> None:
        chance = self.process.world.chance
        self.process.world.sleep(self.process, chance.uniform(2, 60) if chance.random() > 0.02 else 3_000)

    def get(self, key):
        self._hop()
        if self.process.cut_until > self.process.world.now_ms:
            raise StoreUnavailable("cut off", key=key)
        found = self.store.get(key)
        self._hop()
        return found

    def create(self, key, data):
        return self._write(key, data, lambda: self.store.create(key, data))

    def replace(self, key, data, version):
        return self._write(key, data, lambda: self.store.replace(key, data, version))

    def list(self, prefix):
        return self.store.list(prefix)

    def delete(self, key):
        self.store.delete(key)

    def _write(self, key, data, send):
        world = self.process.world

        def land():
            version = send()
            self.history.committed(key, data)
            return version

        def land_late():
            with contextlib.suppress(BallistaError):
                land()

        self._hop()
        if self.process.cut_until > world.now_ms:
            raise StoreUnavailable("cut off", key=key)
        if world.hostile:
            fate = world.chance.random()
            if fate < 0.01:
                raise OutcomeUnknown("request lost", key=key)
            if fate < 0.02:
                world.at(world.chance.uniform(0, 40_000), None, land_late)
                raise OutcomeUnknown("request late", key=key)
            if fate < 0.04:
                land()
                self._hop()
                raise OutcomeUnknown("reply lost", key=key)
        version = land()
        self._hop()
        return version


class Scheduler(Process):
    def __init__(self, world, name, store, history, executors) -> None:
        super().__init__(world, name)
        self.executors = executors
        net = Network(self, store, history)
        node = SchedulerInfo(scheduler_id=name, instance_id="")
        self.membership = Membership(net, node, ttl_ms=TTL_MS, skew_ms=SKEW_MS, runtime=self)
        self.registry = ExecutorRegistry(self.membership)
        self.reaper = Reaper(net, self.membership)
        self.partitions = PartitionStore(net, guard=self.membership.require, runtime=self)
        self.reconciler = Reconciler(self.partitions, self.membership, reports=self.registry.held)
        world.spawn(self, self.live)

    def live(self) -> None:
        self.rejoin()
        self.every(self.membership.beat_every_ms, self.beat)
        self.every(1_000, self.registry.tick)
        self.every(2_500, self.reaper.tick)
        self.every(2_500, self.reconciler.tick)
        self.every(2_000, self.notify)

    def rejoin(self) -> None:
        while True:
            try:
                self.membership.join()
                return
            except (AlreadyRegistered, BallistaError):
                self.sleep_ms(self.random() * 10_000)

    def beat(self) -> None:
        try:
            self.membership.beat(self.registry.silences)
        except Fenced:
            self.rejoin()

    def every(self, interval_ms, act) -> None:
        def loop():
            while True:
                self.sleep_ms(jittered_ms(interval_ms, self.random()))
                with contextlib.suppress(BallistaError):
                    act()

        self.world.spawn(self, loop)

    def notify(self) -> None:
        maps = {"t": self.partitions.read("t")}
        for executor in self.executors():
            info = executor.lease.info
            for update in desired(maps, {"t": TABLE}, info.executor_id, info.instance_id):
                executor.send(self, 2_000, lambda e=executor, u=update: e.told(u))

    def heard(self, executor, heartbeat) -> None:
        answer = self.registry.heard(heartbeat)
        if answer is not None:
            executor.send(self, 1_000, lambda: executor.answered(answer))


class Executor(Process):
    def __init__(self, world, name, store, history, schedulers) -> None:
        super().__init__(world, name)
        self.history = history
        self.schedulers = schedulers
        self.net = Network(self, store, history)
        self.lease = ExecutorLease(name, "h:1", runtime=self)
        self.cut_from = {}
        self.forget()
        world.spawn(self, self.heartbeats)
        world.spawn(self, self.writes)

    def forget(self) -> None:
        self.serving, self.loaded, self.wanted, self.revision = {}, set(), {}, 0

    def send(self, scheduler, longest_ms, act) -> None:
        """A message between this executor and a scheduler: slow, sometimes very, sometimes lost."""
        chance = self.world.chance
        if self.cut_from.get(scheduler.name, 0) > self.world.now_ms or chance.random() < 0.04:
            return
        delay_ms = chance.uniform(0, 40_000 if chance.random() < 0.03 else longest_ms)
        receiver = scheduler if act.__name__ == "arrives" else self
        self.world.at(delay_ms, receiver, act)

    def heartbeats(self) -> None:
        while True:
            serving = sorted(self.serving)
            held = HeldPartitions(
                table="t",
                revision=self.revision,
                active=tuple(serving),
                epochs=tuple(self.serving[p] for p in serving),
                loaded=tuple(sorted(self.loaded)),
            )
            heartbeat = self.lease.heartbeat((held,))
            for scheduler in self.schedulers():

                def arrives(s=scheduler, heartbeat=heartbeat):
                    s.heard(self, heartbeat)

                self.send(scheduler, 1_000, arrives)
            self.sleep_ms(2_000)

    def answered(self, answer) -> None:
        if self.lease.answered(answer):
            self.forget()
            self.lease.rejoin()

    def told(self, update) -> None:
        if update.instance_id != self.lease.info.instance_id or update.revision < self.revision:
            return
        self.revision = update.revision
        self.wanted = {a.partition: a for a in update.partitions}
        for partition in set(self.serving) - set(self.wanted):
            del self.serving[partition]
        self.loaded &= set(self.wanted)
        for assignment in update.partitions:
            owner = (self.lease.info.executor_id, self.lease.info.instance_id)
            if assignment.role == "owner":
                known = self.history.owner_of_epoch.get((assignment.partition, assignment.epoch))
                assert known == owner, "G6: told of what is not committed"
                if self.serving.get(assignment.partition, 0) < assignment.epoch:
                    self.world.spawn(self, lambda a=assignment: self.start(a))
            else:
                self.loaded.add(assignment.partition)

    def start(self, assignment) -> None:
        instance = self.lease.info.instance_id
        partition, epoch = assignment.partition, assignment.epoch
        if not self.lease.valid():
            return
        try:
            activate(self.manifest(partition), epoch)
        except BallistaError:
            return
        wanted = self.wanted.get(partition)
        if self.lease.info.instance_id == instance and wanted is not None and wanted.epoch == epoch:
            self.loaded.discard(partition)
            self.serving[partition] = max(epoch, self.serving.get(partition, 0))

    def writes(self) -> None:
        while True:
            self.sleep_ms(jittered_ms(20_000, self.random()))
            for partition, epoch in sorted(self.serving.items()):

                def write(document, epoch=epoch):
                    require_epoch(document, epoch, "manifest")
                    return evolve(document, written_at=epoch)

                with contextlib.suppress(BallistaError):
                    self.manifest(partition).update(write)

    def manifest(self, partition) -> ObjectState:
        return ObjectState(self.net, f"manifest{partition}.json", Manifest, runtime=self)

    def serves(self, partition):
        return self.serving.get(partition) if not self.dead and self.lease.valid() else None


class Cluster:
    def __init__(self, seed, schedulers=3, executors=4) -> None:
        self.world = World(seed)
        self.store = MemoryStore(runtime=SystemRuntime())
        self.history = History(self.store)
        for p in range(PARTITIONS):
            ObjectState(self.store, f"manifest{p}.json", Manifest).create(Manifest())
        first = PartitionMap.build("t", SPEC, SPEC.static_values())
        PartitionStore(self.store).create(first)
        self.history.check_map(first.with_revision(1))
        self.zombies = []
        self.schedulers = []
        self.executors = [self.new_executor(f"e{n}") for n in range(executors)]
        for n in range(schedulers):
            self.schedulers.append(self.new_scheduler(f"s{n}"))
        self.served = self.checked = 0
        self.world.spawn(None, lambda: self.add_table())

    def add_table(self) -> None:
        while True:
            try:
                self.schedulers[0].membership.cluster.update(lambda d: evolve(d, tables={"t": TABLE}))
                return
            except BallistaError:
                self.schedulers[0].sleep_ms(1_000)

    def new_scheduler(self, name) -> Scheduler:
        return Scheduler(self.world, name, self.store, self.history, self.all_executors)

    def run(self, duration_ms) -> None:
        end_ms = self.world.now_ms + duration_ms
        next_check = next_trouble = self.world.now_ms
        while self.world.now_ms < end_ms:
            self.world.step()
            if self.world.now_ms >= next_check:
                self.check()
                next_check = self.world.now_ms + 250
            if self.world.hostile and self.world.now_ms >= next_trouble:
                self.make_trouble()
                next_trouble = self.world.now_ms + 1_000

    def make_trouble(self) -> None:
        chance, now_ms = self.world.chance, self.world.now_ms
        for process in [*self.schedulers, *self.executors, *self.zombies]:
            if chance.random() < 1 / 400:
                process.paused_until = now_ms + chance.choice(PAUSES_MS) * chance.random()
            if chance.random() < 1 / 600:
                process.cut_until = now_ms + chance.uniform(5_000, 120_000)
        if chance.random() < 1 / 60:
            cut_ms = chance.uniform(5_000, 200_000)
            chance.choice(self.executors).cut_from[chance.choice(self.schedulers).name] = now_ms + cut_ms
        if chance.random() < 1 / 200:
            self.isolate(chance.choice(self.executors), chance.choice(self.schedulers))
        for n, scheduler in enumerate(self.schedulers):
            if chance.random() < 1 / 1_500:
                if chance.random() < 0.5:
                    scheduler.dead = True
                else:
                    scheduler.paused_until = now_ms + 4 * TTL_MS * chance.random()
                    self.zombies.append(scheduler)
                if chance.random() < 0.2 and not scheduler.dead:
                    self.world.spawn(scheduler, lambda s=scheduler: self.leave(s))
                self.schedulers[n] = self.new_scheduler(scheduler.name)
        for n, executor in enumerate(self.executors):
            if chance.random() < 1 / 2_000:
                if chance.random() < 0.5:
                    executor.dead = True
                else:
                    executor.paused_until = now_ms + 2 * TTL_MS * chance.random()
                    self.zombies.append(executor)
                self.executors[n] = self.new_executor(executor.name)

    def isolate(self, executor, scheduler) -> None:
        """Only this scheduler hears the executor for a while, and then it is cut from the store itself."""
        chance, now_ms = self.world.chance, self.world.now_ms
        alone_ms = chance.uniform(40_000, 200_000)
        for other in self.schedulers:
            if other is not scheduler:
                executor.cut_from[other.name] = now_ms + alone_ms

        def cut():
            scheduler.cut_until = self.world.now_ms + chance.uniform(20_000, 90_000)

        self.world.at(chance.uniform(0, alone_ms), None, cut)

    def leave(self, scheduler) -> None:
        with contextlib.suppress(BallistaError):
            scheduler.membership.leave()

    def check(self) -> None:
        for partition in range(PARTITIONS):
            serving = [(e.serves(partition), e.name) for e in self.all_executors() if e.serves(partition)]
            unmoved = [s for s in sorted(serving)[1:] if (partition, s[0]) not in self.history.promoted]
            assert not unmoved, f"partition {partition} is served by two: {serving}"
            self.checked += 1
            self.served += bool(serving)
        names = [p.name for p in self.all_schedulers() if not p.dead and p.membership.valid()]
        assert len(names) == len(set(names)), f"G3: two live instances of one scheduler: {names}"

    def new_executor(self, name) -> Executor:
        return Executor(self.world, name, self.store, self.history, self.all_schedulers)

    def all_schedulers(self) -> list[Scheduler]:
        return [p for p in [*self.schedulers, *self.zombies] if isinstance(p, Scheduler)]

    def all_executors(self) -> list[Executor]:
        """The zombies too: one that wakes up before it was lost keeps its id, and its successor waits."""
        return [p for p in [*self.executors, *self.zombies] if isinstance(p, Executor)]

    def heal(self) -> None:
        self.world.hostile = False
        for process in [*self.schedulers, *self.executors, *self.zombies]:
            process.paused_until = process.cut_until = 0.0
        for executor in self.executors:
            executor.cut_from = {}


@pytest.mark.parametrize("seed", SEEDS)
def test_no_partition_is_ever_served_by_two_and_all_are_served_after_the_faults_stop(seed):
    cluster = Cluster(seed)
    cluster.run(HOURS * 3_600_000)
    assert cluster.served > 0.5 * cluster.checked
    cluster.heal()
    cluster.run(2 * (TTL_MS + SKEW_MS) + 3 * 30_000)
    for partition in range(PARTITIONS):
        assert [e for e in cluster.all_executors() if e.serves(partition)], f"L1: nobody serves {partition}"
        owner = cluster.history.map.owner(partition)
        assert owner in {(e.name, e.lease.info.instance_id) for e in cluster.all_executors()}
