"""A table in virtual time that follows a source: real decisions and manifests, files that hold a note of their rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa
from attrs import define, evolve

from ballista_py.coordinator.changes.batches import read_changes
from ballista_py.coordinator.changes.net import Net, net_of
from ballista_py.errors import BallistaError, ObjectMissing, PositionMoved, TryLater
from ballista_py.state.documents.decisions import Decision, SourcePosition, SourceSpan
from ballista_py.storage.manifest import Prepared
from ballista_py.storage.publication import caught_up
from ballista_py.testing.simulation.changes.source import COLUMNS, FOLLOWING, row_text
from ballista_py.testing.simulation.machine import Machine
from ballista_py.testing.simulation.writes.site import TABLE, Note, WriteSite

ATTEMPTS = 3


@define(eq=False)
class VirtualFollowed:
    """The table as a reader at a `machine` changes it, by the rules of `WriteRounds`."""

    site: WriteSite
    machine: Machine
    name: str = TABLE

    def position(self) -> SourcePosition | None:
        """Where it stands, as decided."""
        return self.site.statements(self.machine).read().position

    def copy(self, rows: Iterable[pa.RecordBatch], span: SourceSpan, token: str) -> None:
        """Put rows in the place of all that are there."""
        come = pa.Table.from_batches(list(rows), schema=COLUMNS)
        self._decided(Net(come, come.slice(0, 0), replaces=True), span, token)

    def apply(self, changes: pa.Table, span: SourceSpan, token: str) -> None:
        """Apply changes by their keys."""
        self._decided(net_of(FOLLOWING, read_changes(FOLLOWING, changes.to_batches())), span, token)

    def _decided(self, net: Net, span: SourceSpan, token: str) -> None:
        statements = self.site.statements(self.machine)
        for _ in range(ATTEMPTS):
            before = statements.read()
            earlier = before.of(token)
            if earlier is not None:
                self._end(earlier, self.site.epochs)
                return
            self.require(span, before.position)
            attempt = self.site.name("attempt")
            mine = Prepared(attempt=attempt, token=token)
            parts = self._parts(net)
            try:
                for partition, (come, keys) in parts.items():
                    self._prepare(partition, come, None if net.replaces else keys, mine, before.sequence)
            except BallistaError:
                self._end(statements.abort(attempt, token), parts)
                self.machine.sleep_ms(1_000.0)
                continue
            self.site.step(self.machine)
            decision = statements.commit(
                attempt, token, affected=0, begun=before.decisions_made, settled=not parts, span=span
            )
            self.site.step(self.machine)
            self._end(decision, parts)
            if decision.committed:
                self.site.done["decided"] += 1
                return
        raise TryLater("somebody else is in the way")

    def _parts(self, net: Net) -> Mapping[int, tuple[list[str], set[str]]]:
        """By partition the rows that come, and the begins of the rows that go."""
        found: dict[int, tuple[list[str], set[str]]] = {}
        for row in net.come.to_pylist():
            come, keys = found.setdefault(row["p"], ([], set()))
            come.append(row_text(row["p"], row["id"], row["v"]))
            keys.add(f"{row['p']}:{row['id']}=")
        for key in net.gone.to_pylist():
            found.setdefault(key["p"], ([], set()))[1].add(f"{key['p']}:{key['id']}=")
        if net.replaces:
            for partition in self.site.epochs:
                found.setdefault(partition, ([], set()))
        return found

    def _prepare(
        self, partition: int, come: list[str], keys: set[str] | None, mine: Prepared, sequence: int
    ) -> None:
        """As an owner does: files with rows of the keys (None: all) are replaced."""
        site = self.site
        self.found(partition)
        epoch = site.epochs[partition]
        storage = site.storage(self.machine, partition)
        manifest, _ = caught_up(storage, site.statements(self.machine).read, epoch)
        here = manifest.document.files_at(sequence)
        site.step(self.machine)
        hit = [
            file for file in here if keys is None or any(_key(row) in keys for row in site.notes[file.path].rows)
        ]
        kept = [
            row for file in hit for row in site.notes[file.path].rows if keys is not None and _key(row) not in keys
        ]
        file = site.file(self.machine, Note(rows=(*kept, *come)))
        site.step(self.machine)
        prepared = evolve(mine, add=(file,), remove=tuple(old.path for old in hit))
        storage.prepare(prepared, epoch=epoch, base=[old.path for old in here], since=sequence)

    def require(self, span: SourceSpan, position: SourcePosition | None) -> None:
        """Raise `PositionMoved` unless the table stands where the span begins."""
        if position != span.since:
            raise PositionMoved.at(self.name, span.since, position)

    def found(self, partition: int) -> None:
        """Make a partition that there was not."""
        if partition in self.site.epochs:
            return
        storage = self.site.storage(self.machine, partition, calm=True)
        storage.create()
        storage.activate(1)
        self.site.epochs[partition] = 1

    def _end(self, decision: Decision, partitions: Iterable[int]) -> None:
        """Fold it in, or away; what cannot be told now is found by whoever comes across it."""
        for partition in list(partitions):
            try:
                sequence = decision.sequence if decision.committed else None
                self.site.end(self.machine, partition, decision.attempt, sequence)
            except (ObjectMissing, KeyError):
                continue
        if decision.committed and not decision.settled:
            self.site.statements(self.machine).settle(decision.attempt)


def _key(row: str) -> str:
    return row[: row.index("=") + 1]
