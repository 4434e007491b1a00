"""What goes on around read jobs: collectors, schedulers and what is done to the objects of jobs behind their backs."""

from __future__ import annotations

from contextlib import suppress

from attrs import define

from ballista_py.errors import BallistaError
from ballista_py.state.documents.claims import end_dead_claims
from ballista_py.state.documents.documents import partition_map_key
from ballista_py.storage.formats.files import write_data_file
from ballista_py.storage.manifest import data_prefix
from ballista_py.storage.partition_storage import PartitionStorage
from ballista_py.storage.reads.leases import READS_PREFIX
from ballista_py.storage.upkeep.garbage import MAX_WRITE_MS, find_garbage, remove_garbage
from ballista_py.testing.simulation.machine import Machine
from ballista_py.testing.simulation.owners.site import rows_of, table_of
from ballista_py.testing.simulation.owners.statements import EVERYWHERE
from ballista_py.testing.simulation.reads.scheduler import ReadScheduler
from ballista_py.testing.simulation.reads.site import ReadSite

SCHEDULERS = 2
REMADE = "again"
STOPS, SLOW = 0.15, 0.25  # a collector, amid a look
WITHIN_MS = 4_000.0


@define
class ReadTroubles:
    """What each does once. A process that stands still does so for up to `still_ms`."""

    site: ReadSite
    still_ms: float

    def start(self) -> None:
        """The first schedulers."""
        self.site.schedulers = [self._scheduler() for _ in range(SCHEDULERS)]

    def _scheduler(self) -> ReadScheduler:
        return ReadScheduler(self.site, self.site.name("scheduler"), self.still_ms)

    def exchange(self, machine: Machine) -> None:
        """A scheduler stands still, has a slow way to the store, dies, or wakes up beside its successor."""
        site, chance = self.site, machine.random()
        if site.calm:
            return
        place = int(machine.random() * SCHEDULERS)
        old = site.schedulers[place]
        site.book.done["scheduler"] += 1
        if chance < 0.25:
            old.machine.pause(self.still_ms * machine.random() / 10)
            return
        if chance < 0.5:
            old.machine.slow_until_ms = site.world.now_ms + self.still_ms * machine.random()
            return
        if chance < 0.7:
            old.machine.dead = True
        else:
            old.machine.pause(self.still_ms * machine.random())
            old.machine.stopping = True
        site.schedulers[place] = self._scheduler()

    def collect(self, machine: Machine) -> None:
        """Remove files that nothing names; now and then it stands still amid its look."""
        site = self.site
        hand = Machine(site.world, site.name("collector"))
        store = site.seen_by(hand)
        if not site.calm and machine.random() < STOPS:
            pause_ms = self.still_ms * machine.random()
            site.world.at(WITHIN_MS * machine.random(), None, lambda: hand.pause(pause_ms))
        elif not site.calm and machine.random() < SLOW:
            hand.slow_until_ms = site.world.now_ms + self.still_ms
        done: list[str] = []

        def work() -> None:
            with suppress(BallistaError):
                end_dead_claims(store, hand)
                folders = {table.folder for table in site.catalog().read().document.tables.values()}
                garbage = find_garbage(store, folders, min_age_ms=MAX_WRITE_MS, runtime=hand)
                site.book.done["looked for garbage"] += 1
                site.book.done["collected"] += remove_garbage(store, garbage)
            done.append("")

        hand.spawn(work)
        while not done:
            machine.sleep_ms(10_000.0)

    def close_others(self, machine: Machine) -> None:
        """A client closes a job, or renews it, that another one has begun."""
        site = self.site
        jobs = [job for job in site.jobs.values() if site.is_in_force(job.read_id)]
        if jobs:
            job = jobs[int(machine.random() * len(jobs))]
            one = site.schedulers[int(machine.random() * len(site.schedulers))]
            site.call(machine, one, lambda: one.reads.close(job.read_id, "somebody-else"))
            site.book.done["closed by others"] += 1

    def remake(self, machine: Machine) -> None:
        """Drop a table and make it again: other rows under the same name."""
        site, store = self.site, self.site.seen_by(machine)
        before = site.tables.get(REMADE)
        table = table_of(REMADE, incarnation=machine.new_id()[:8])
        rows = site.name("again")
        for partition in EVERYWHERE:
            key = f"{data_prefix(table.folder)}{machine.new_id()}/0.parquet"
            file = write_data_file(store, key, rows_of([(partition, rows, 0)]))
            storage = PartitionStorage(store, table.folder, table.spec.path((partition,)), runtime=machine)
            storage.create()
            storage.commit(add=[file], epoch=0, token=rows)
        if before is not None:
            site.catalog().update(lambda cluster: cluster.without_table(REMADE))
            del site.tables[REMADE]
            machine.sleep_ms(1_000.0 * machine.random())
            site.store.delete(partition_map_key(before.map_name))  # it has a map for each
        site.enter(table)
        site.book.done["remade"] += 1

    def spoil(self, machine: Machine) -> None:
        """Somebody deletes an object of a job, puts an older one back, or that of another job in its place."""
        site, store = self.site, self.site.store
        if site.calm or not site.jobs:
            return
        jobs = list(site.jobs)[-6:]
        read_id = jobs[int(machine.random() * len(jobs))]
        lease, files = (f"{READS_PREFIX}{read_id}{kind}" for kind in (".json", ".files"))
        chance = machine.random()
        site.spoil(read_id)
        if chance < 0.2:
            store.delete(lease)
        elif chance < 0.4:
            store.delete(files)
        elif chance < 0.7:
            older = store.older.get(lease, [])
            if older:
                store.delete(lease)
                store.create(lease, older[int(machine.random() * len(older))])
        else:
            site.exchange_files(read_id)
