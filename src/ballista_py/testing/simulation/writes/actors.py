"""Those who change the table in a simulation of writes: writers, movers of money, a compactor, a collector, owners."""

from __future__ import annotations

from attrs import define, evolve

from ballista_py.errors import BallistaError
from ballista_py.storage.manifest import Prepared
from ballista_py.storage.publication import caught_up
from ballista_py.storage.upkeep.compaction import CompactionPolicy, to_compact
from ballista_py.storage.upkeep.garbage import MAX_WRITE_MS, find_garbage, remove_garbage
from ballista_py.testing.simulation.machine import Machine
from ballista_py.testing.simulation.writes.site import MONEY, PARTITIONS, TABLE, Note, WriteSite

UNDECIDED_MS = 60_000.0
LOST_ANSWER = 0.2


@define
class WriteActors:
    """What each does once, at a machine that may stop at any step. The collector spares files below `min_age_ms`."""

    _site: WriteSite
    min_age_ms: float = MAX_WRITE_MS

    def found(self, machine: Machine) -> None:
        """Make the partitions, and put the money there."""
        for partition in range(PARTITIONS):
            storage = self._site.storage(machine, partition, calm=True)
            storage.create()
            storage.activate(1)
            self._site.epochs[partition] = 1
            file = self._site.file(machine, Note(money=MONEY), calm=True)
            storage.commit(add=[file], epoch=1, token=f"founded-{partition}")

    def append(self, machine: Machine) -> None:
        """One row, sent until it is acknowledged or the writer gives up; each time as a file of its own."""
        token = self._site.name("row")
        partition = self._site.some(machine)
        while True:
            epoch = self._site.epochs[partition]
            self._site.step(machine)
            began_ms = self._site.world.now_ms
            self._site.sent.add(token)
            try:
                file = self._site.file(machine, Note(rows=(token,)))
                self._site.step(machine)
                if self._site.world.now_ms - began_ms < MAX_WRITE_MS:
                    storage = self._site.storage(machine, partition, epoch=epoch)
                    storage.commit(add=[file], epoch=epoch, token=token)
                    if machine.random() >= LOST_ANSWER:
                        self._site.acknowledged[token] = self._site.world.now_ms
                        return
            except BallistaError:
                machine.sleep_ms(1_000.0)

    def transfer(self, machine: Machine) -> None:
        """Move money from one partition to another, from all rows that were read, or not at all."""
        statements = self._site.statements(machine)
        begun = statements.read().decisions_made
        token, attempt = self._site.name("statement"), self._site.name("attempt")
        giver = self._site.some(machine)
        taker = (giver + 1 + int(machine.random() * (PARTITIONS - 1))) % PARTITIONS
        epochs = dict(self._site.epochs)
        amount = 1 + int(machine.random() * 50)
        self._site.moves[attempt] = (giver, taker, amount)
        try:
            for partition, change in ((giver, -amount), (taker, amount)):
                storage = self._site.storage(machine, partition)
                files = storage.read().document.files
                self._site.step(machine)
                file = self._site.file(machine, self._site.sum(files, change))
                self._site.step(machine)
                paths = [old.path for old in files]
                prepared = Prepared(attempt=attempt, token=token, add=(file,), remove=tuple(paths))
                storage.prepare(prepared, epoch=epochs[partition], base=paths)
        except BallistaError:
            statements.abort(attempt, token)
            return
        self._site.step(machine)
        decision = statements.commit(attempt, token, affected=2, begun=begun)
        self._site.done["transfer"] += decision.committed
        self._site.step(machine)
        for partition in (giver, taker):
            self._site.end(machine, partition, attempt, decision.sequence if decision.committed else None)
        statements.settle(attempt)

    def insert(self, machine: Machine) -> None:
        """Two rows in two partitions, both or none."""
        statements = self._site.statements(machine)
        begun = statements.read().decisions_made
        token, attempt = self._site.name("row"), self._site.name("attempt")
        first = self._site.some(machine)
        rows = {first: f"{token}-a", (first + 1) % PARTITIONS: f"{token}-b"}
        epochs = dict(self._site.epochs)
        self._site.sent.update(rows.values())
        try:
            for partition, row in rows.items():
                self._site.step(machine)
                file = self._site.file(machine, Note(rows=(row,)))
                self._site.step(machine)
                prepared = Prepared(attempt=attempt, token=token, add=(file,), affected=1)
                self._site.storage(machine, partition).prepare(prepared, epoch=epochs[partition])
        except BallistaError:
            statements.abort(attempt, token)
            return
        self._site.step(machine)
        decision = statements.commit(attempt, token, affected=2, begun=begun)
        if decision.committed:
            self._site.acknowledged.update(dict.fromkeys(rows.values(), self._site.world.now_ms))
            self._site.inserted.append(tuple(rows.values()))
            self._site.done["insert"] += 1
        self._site.step(machine)
        for partition in rows:
            self._site.end(machine, partition, attempt, decision.sequence if decision.committed else None)
        statements.settle(attempt)

    def delete(self, machine: Machine) -> None:
        """Delete what one statement inserted, wherever it is, as owners do: what was acknowledged is found."""
        site = self._site
        if not site.inserted:
            return
        gone = set(site.inserted.pop(int(machine.random() * len(site.inserted))))
        site.deleting.update(gone)
        statements = site.statements(machine)
        before = statements.read()
        token, attempt = site.name("statement"), site.name("attempt")
        mine = Prepared(attempt=attempt, token=token)
        touched: dict[int, int] = {}
        try:
            for partition in range(PARTITIONS):
                found = self._delete_in(machine, partition, gone, mine, before.sequence)
                if found:
                    touched[partition] = found
        except BallistaError:
            statements.abort(attempt, token)
            return
        site.step(machine)
        decision = statements.commit(attempt, token, affected=sum(touched.values()), begun=before.decisions_made)
        if decision.committed:
            site.expect(
                sum(touched.values()) == len(gone), f"a DELETE found {sum(touched.values())} of {len(gone)} rows"
            )
            site.deleted.update(dict.fromkeys(gone, site.world.now_ms))
            site.done["delete"] += 1
        site.step(machine)
        for partition in touched:
            site.end(machine, partition, attempt, decision.sequence if decision.committed else None)
        statements.settle(attempt)

    def _delete_in(
        self, machine: Machine, partition: int, gone: set[str], prepared: Prepared, sequence: int
    ) -> int:
        """Prepare the DELETE in a partition; how many rows it has there."""
        site, epoch = self._site, self._site.epochs[partition]
        storage = site.storage(machine, partition)
        manifest, _ = caught_up(storage, site.statements(machine).read, epoch)
        files = tuple(
            f for f in manifest.document.files_at(sequence) if gone.intersection(site.notes[f.path].rows)
        )
        site.step(machine)
        if not files:
            return 0
        before = site.sum(files)
        after = evolve(before, rows=tuple(row for row in before.rows if row not in gone))
        file = site.file(machine, after)
        site.step(machine)
        count = len(before.rows) - len(after.rows)
        prepared = evolve(prepared, add=(file,), remove=tuple(f.path for f in files), affected=count)
        storage.prepare(prepared, epoch=epoch, since=sequence)
        return count

    def compact(self, machine: Machine) -> None:
        """Merge the small files of one partition."""
        partition = self._site.some(machine)
        storage = self._site.storage(machine, partition)
        manifest = storage.read().document
        epoch = self._site.epochs[partition]
        files = to_compact(manifest.files, manifest.prepared, CompactionPolicy(min_files=4))
        if files:
            self._site.step(machine)
            merged = self._site.file(machine, self._site.sum(files))
            self._site.step(machine)
            self._site.done["compaction"] += storage.compact(
                add=[merged], remove=[f.path for f in files], epoch=epoch
            )

    def collect(self, machine: Machine) -> None:
        """Remove files that nothing names."""
        store = self._site.seen_by(machine)
        garbage = find_garbage(store, {TABLE}, min_age_ms=self.min_age_ms, runtime=machine)
        self._site.step(machine)
        self._site.done["collected"] += remove_garbage(store, garbage)

    def sweep(self, machine: Machine) -> None:
        """End what somebody left prepared, as owners do."""
        for partition in range(PARTITIONS):
            self.sweep_one(machine, partition)

    def sweep_one(self, machine: Machine, partition: int) -> None:
        """The same in one partition."""
        for waiting in self._site.storage(machine, partition).read().document.prepared:
            if self._site.calm or self._site.since(waiting.attempt) > UNDECIDED_MS:
                decision = self._site.statements(machine).abort(waiting.attempt)
                self._site.step(machine)
                self._site.end(
                    machine, partition, waiting.attempt, decision.sequence if decision.committed else None
                )

    def change_owner(self, machine: Machine) -> None:
        """A partition gets its next owner, which raises the fence before it does anything."""
        partition = self._site.some(machine)
        self._site.epochs[partition] += 1
        self._site.storage(machine, partition, calm=True).activate(self._site.epochs[partition])
