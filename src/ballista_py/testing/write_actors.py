"""Those who change the table in a simulation of writes: writers, movers of money, a compactor, a collector, owners."""

from __future__ import annotations

from attrs import define

from ballista_py.errors import BallistaError
from ballista_py.storage.compaction import CompactionPolicy, to_compact
from ballista_py.storage.garbage import MAX_WRITE_MS, find_garbage, remove_garbage
from ballista_py.storage.manifest import Prepared
from ballista_py.testing.virtual_machine import Machine
from ballista_py.testing.write_site import MONEY, PARTITIONS, TABLE, Note, WriteSite

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
