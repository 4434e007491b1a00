"""What else goes on around owners: successors, runs of the pipeline, tables made and dropped, lost documents."""

from __future__ import annotations

from contextlib import suppress

from attrs import define, field

from ballista_py.errors import TryLater
from ballista_py.state.documents.claims import Claim, end_dead_claims
from ballista_py.state.documents.decisions import statements_key
from ballista_py.state.documents.undecided import is_orphan
from ballista_py.storage.formats.files import write_data_file
from ballista_py.storage.manifest import DataFile, data_prefix
from ballista_py.storage.partition_storage import PartitionStorage
from ballista_py.storage.publication import Publication
from ballista_py.storage.upkeep.garbage import MAX_WRITE_MS, find_garbage, remove_garbage
from ballista_py.storage.upkeep.repair import find_repairs
from ballista_py.testing.simulation.machine import Machine
from ballista_py.testing.simulation.owners.actors import MAIN, REPLACED
from ballista_py.testing.simulation.owners.owner import VirtualOwner
from ballista_py.testing.simulation.owners.site import PARTITIONS, OwnerSite, rows_of, table_of
from ballista_py.testing.simulation.owners.statements import EVERYWHERE, StatementClient, UnsureError

REFRESHED = "s"
OWNERS = 2
UNDER_WAY_MS = 45_000.0  # longer than any request is under way
BEFORE_REPAIR_MS = 60_000.0
MAX_MADE = 3


@define
class OwnerTroubles:
    """What each does once. `min_age_ms` is how old garbage must be."""

    site: OwnerSite
    min_age_ms: float = MAX_WRITE_MS
    _made: list[str] = field(factory=list)

    def start(self) -> None:
        """The first owners, and what they own."""
        owners = [VirtualOwner(self.site, self.site.name("owner")) for _ in range(OWNERS)]
        self.site.owners = owners
        for table in self.site.tables:
            for partition in range(PARTITIONS):
                self.site.give(table, partition, owners[partition % OWNERS], 1)

    def succeed(self, machine: Machine) -> None:
        """A partition gets another owner; now and then all of one go to a new one, as it is killed or stands still."""
        site = self.site
        if site.stopped:
            return
        chance = machine.random()
        old = site.owners[int(machine.random() * len(site.owners))]
        if chance < 0.4:
            places = [place for place, (owner, _) in site.places.items() if owner is old]
            new = VirtualOwner(site, site.name("owner"))
            site.owners = [new if owner is old else owner for owner in site.owners]
            if chance < 0.2:
                old.machine.dead = True
            else:
                old.machine.pause(120_000.0 * machine.random())
        else:
            places = [list(site.places)[int(machine.random() * len(site.places))]]
            new = site.owners[int(machine.random() * len(site.owners))]
        for table, partition in places:
            site.give(table, partition, new, site.places[table, partition][1] + 1)
        site.book.done["owner"] += 1

    def settle_left_over(self, machine: Machine) -> None:
        """Have folded in what clients decided that are gone, as schedulers do."""
        client = StatementClient(self.site)
        for table in (MAIN, REPLACED):
            for decision in self.site.statements(machine, table).read().decisions:
                left = decision.committed and not decision.settled
                if left and (self.site.calm or is_orphan(decision.attempt, ())):
                    with suppress(UnsureError):
                        client.fold(machine, table, decision.token, decision, EVERYWHERE)

    def refresh(self, machine: Machine) -> None:
        """A run of the pipeline puts a new generation in the place of all rows; it may take hours."""
        site, book = self.site, self.site.book
        table, token = site.tables[REFRESHED], site.name("run")
        store = site.seen_by(machine)
        prefix = f"{data_prefix(table.folder)}{token}/"
        claim = Claim.take(store, prefix, machine)
        runs = Publication(store, table.folder, machine)
        paths = {p: table.spec.path((p,)) for p in EVERYWHERE}
        book.begun[token] = site.world.now_ms
        begun = runs.begin(paths.values(), token=token)
        files: dict[str, list[DataFile]] = {}
        for partition, path in paths.items():
            site.step(machine)
            if not site.calm and machine.random() < 0.1:
                machine.sleep_ms(6 * MAX_WRITE_MS * machine.random())
            rows = rows_of([(partition, token, 0)])
            files[path] = [write_data_file(store, f"{prefix}{partition}.parquet", rows)]
            if machine.random() < 0.5:
                claim.confirm()
        site.step(machine)
        runs.publish(begun, files, attempt=token, token=token, position="{}", confirm=claim.confirm)
        book.replaced[token] = site.world.now_ms
        book.done["refresh"] += 1
        claim.end()

    def define(self, machine: Machine) -> None:
        """Make a table of rows, files and manifests first; drop it some time later. Changing one comes here, too."""
        site, store = self.site, self.site.seen_by(machine)
        if site.spoilt:
            return
        if len(self._made) >= MAX_MADE or (self._made and machine.random() < 0.4):
            name = self._made.pop(0)
            site.catalog().update(lambda cluster: cluster.without_table(name))
            site.tables.pop(name, None)
            site.book.done["drop"] += 1
            return
        table = table_of(site.name("made").replace("-", "_"), incarnation=machine.new_id()[:8])
        began_ms = machine.monotonic_ms()
        for partition in EVERYWHERE:
            site.step(machine)
            key = f"{data_prefix(table.folder)}{machine.new_id()}/0.parquet"
            file = write_data_file(store, key, rows_of([(partition, table.name, 0)]))
            storage = PartitionStorage(store, table.folder, table.spec.path((partition,)), runtime=machine)
            storage.create()
            storage.commit(add=[file], epoch=0, token=table.name)
        if machine.monotonic_ms() - began_ms > MAX_WRITE_MS:
            raise TryLater("the rows took too long")
        site.enter(table)
        self._made.append(table.name)
        site.book.done["create"] += 1

    def collect(self, machine: Machine) -> None:
        """Remove files that nothing names, as the command line does."""
        site, store = self.site, self.site.seen_by(machine)
        end_dead_claims(store, machine)
        folders = {table.folder for table in site.catalog().read().document.tables.values()}
        garbage = find_garbage(store, folders, min_age_ms=self.min_age_ms, runtime=machine)
        site.step(machine)
        site.book.done["collected"] += remove_garbage(store, garbage)

    def spoil(self, machine: Machine) -> None:
        """Somebody deletes the decisions of a table, or puts an older copy back; later it is repaired without nodes."""
        site = self.site
        if site.calm or site.stopped:
            return
        table = site.tables[(MAIN, REPLACED, REFRESHED)[int(machine.random() * 3)]]
        key = statements_key(table.folder)
        older = site.store.older.get(key, [])
        if not older:
            return
        site.spoilt = table.name
        site.store.delete(key)
        if machine.random() < 0.5:
            site.store.create(key, older[int(machine.random() * len(older))])
        site.book.done["spoilt"] += 1
        machine.sleep_ms(BEFORE_REPAIR_MS * machine.random())
        self._repair(machine)

    def _repair(self, machine: Machine) -> None:
        site = self.site
        site.stopped = True
        site.repairs += 1
        for owner in site.owners:
            owner.machine.dead = True
        machine.sleep_ms(UNDER_WAY_MS / machine.rate * 1.1)
        found = find_repairs(site.store, site.god)
        site.book.expect(not found.beyond, f"beyond repair: {found.beyond}")
        for one in found.repairs:
            one.apply()
        again = find_repairs(site.store, site.god)
        site.book.expect(not again.repairs, f"still to repair: {[one.key for one in again.repairs]}")
        site.spoilt = ""
        site.owners = [VirtualOwner(site, site.name("owner")) for _ in range(OWNERS)]
        for number, (place, (_, epoch)) in enumerate(list(site.places.items())):
            site.give(*place, site.owners[number % OWNERS], epoch + 1)
        site.stopped = False
