"""Those who read in a simulation of writes: whatever moment they see, it must add up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from attrs import define, field

from ballista_py.state.members.control import PartitionAssignment
from ballista_py.storage.held.holdings import Held
from ballista_py.storage.held.loads import spans_of
from ballista_py.storage.manifest import ManifestDocument
from ballista_py.testing.simulation.machine import MAX_DRIFT, Machine
from ballista_py.testing.simulation.writes.replica import VirtualReplica
from ballista_py.testing.simulation.writes.site import GIVES_UP, MONEY, PARTITIONS, STANDS_STILL, TABLE, WriteSite

FASTEST = 1 + MAX_DRIFT


@define
class WriteReaders:
    """What a reader does once. Those that do not catch up do not look for what is committed and not folded in."""

    _site: WriteSite
    catches_up: bool = True
    _replicas: dict[str, VirtualReplica] = field(factory=dict, init=False)

    def read(self, machine: Machine) -> None:
        """Add up all partitions as of one sequence, and look for every row acknowledged before."""
        expected, gone = set(self._site.acknowledged), set(self._site.deleted)
        sequence = self._site.statements(machine).read().sequence
        found: list[str] = []
        money: dict[int, int] = {}
        for partition in range(PARTITIONS):
            if not self._site.calm and machine.random() < GIVES_UP:
                machine.sleep_ms(100_000.0 * machine.random())
            manifest = self._caught_up(machine, partition, sequence)
            if sequence < manifest.readable_from:
                self._site.done["replan"] += 1
                return
            paths = list(_visible(manifest, sequence))
            money[partition] = sum(self._site.notes[path].money for path in paths)
            found += paths
        again = self._site.some(machine)
        manifest = self._caught_up(machine, again, sequence)
        if sequence >= manifest.readable_from:
            now = sum(self._site.notes[path].money for path in _visible(manifest, sequence))
            self._site.expect(now == money[again], f"sequence {sequence} held {money[again]} and later {now}")
        self._site.done["read"] += 1
        self._look(found, expected, gone, f"a reader at sequence {sequence}")

    def read_replica(self, lag_ms: float, machine: Machine) -> None:
        """The same at a replica, which lives on from one read to the next, and may be so much behind."""
        replica = self._replicas.get(machine.name)
        if replica is None:
            replica = self._replicas[machine.name] = VirtualReplica(
                machine,
                self._site.seen_by(machine),
                TABLE,
                PARTITIONS,
                path=lambda partition: f"p={partition}",
                rows_of=lambda path: len(self._site.notes[path].rows),
            )
        surely_seen_ms = self._site.world.now_ms - lag_ms * FASTEST
        expected = {row for row, at_ms in self._site.acknowledged.items() if at_ms <= surely_seen_ms}
        gone = {row for row, at_ms in self._site.deleted.items() if at_ms <= surely_seen_ms}
        sequence = self._site.statements(machine).read().sequence
        if machine.random() < STANDS_STILL:
            machine.sleep_ms(60_000.0 * machine.random())
        found = replica.read(sequence, lag_ms)
        self._site.done["replica read"] += 1
        self._look(found, expected, gone, f"a replica at sequence {sequence}")

    def _look(self, paths: Iterable[str], expected: set[str], gone: set[str], who: str) -> None:
        """Whether what was read adds up."""
        notes = [self._site.notes[path] for path in paths]
        money, rows = sum(note.money for note in notes), [row for note in notes for row in note.rows]
        self._site.expect(money == MONEY * PARTITIONS, f"{who} saw {money}")
        self._site.expect(gone.isdisjoint(rows), f"{who} saw a row that was deleted")
        missing = expected - set(rows) - self._site.deleting
        self._site.expect(
            not missing, f"{who} missed {len(missing)} acknowledged row(s), such as {min(missing, default='')}"
        )
        self._site.expect(len(rows) == len(set(rows)), f"{who} saw a row twice")

    def _caught_up(self, machine: Machine, partition: int, sequence: int) -> ManifestDocument:
        """The manifest, in which all that was committed up to the sequence is folded in."""
        storage = self._site.storage(machine, partition)
        manifest = storage.read().document
        if manifest.prepared and self.catches_up:
            decisions = self._site.statements(machine).read()
            for waiting in manifest.prepared:
                decision = decisions.on(waiting.attempt)
                if decision is not None and decision.committed and decision.sequence <= sequence:
                    manifest = storage.fold(
                        waiting.attempt, epoch=manifest.epoch, sequence=decision.sequence
                    ).document
        return manifest


def _visible(manifest: ManifestDocument, sequence: int) -> Iterator[str]:
    """The files that a query of that sequence reads, by the rules that executors follow."""
    paths = [*(file.path for file in manifest.files), *(old.file.path for old in manifest.retired)]
    ids = {path: number for number, path in enumerate(paths)}
    held = Held(
        assignment=PartitionAssignment(partition=0, path="", epoch=manifest.epoch, role="owner"),
        revision=0,
        files={file.path: ids[file.path] for file in manifest.files},
        sequence=manifest.sequence,
        spans=spans_of(manifest, ids),
    )
    return (paths[number] for number in held.file_ids(sequence))
