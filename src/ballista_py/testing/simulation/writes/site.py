"""What all in a simulation of writes share: the table, the store as each sees it, the book on what was done."""

from __future__ import annotations

from collections import Counter

import orjson
from attrs import define, evolve, field, frozen

from ballista_py.runtime import Runtime
from ballista_py.state.documents.decisions import TableDecisions
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.storage.manifest import DataFile
from ballista_py.storage.partition_storage import PartitionStorage
from ballista_py.testing.simulation.faults import Faults
from ballista_py.testing.simulation.history import History
from ballista_py.testing.simulation.machine import Machine
from ballista_py.testing.simulation.store import NamedFilesStore
from ballista_py.testing.simulation.time import World

TABLE = "t"
PARTITIONS = 4
MONEY = 1_000
GIVES_UP = 0.04
STANDS_STILL = 0.08


class GoneError(Exception):
    """A machine that stopped for good in the middle of something."""


@frozen(kw_only=True)
class Note:
    """What a file holds: rows by name, and the partition's money if it is the file that has it."""

    rows: tuple[str, ...] = ()
    money: int = 0


@define
class WriteSite:
    """One table of `PARTITIONS`, each with so much `MONEY`. Nothing fails any more once it is `calm`."""

    world: World
    notes: dict[str, Note] = field(factory=dict, init=False)
    epochs: dict[int, int] = field(factory=dict, init=False)
    acknowledged: dict[str, float] = field(factory=dict, init=False)  # row -> when
    sent: set[str] = field(factory=set, init=False)
    done: Counter[str] = field(factory=Counter, init=False)
    wrong: list[str] = field(factory=list, init=False)
    moves: dict[str, tuple[int, int, int]] = field(factory=dict, init=False)
    inserted: list[tuple[str, ...]] = field(factory=list, init=False)  # by statement, acknowledged and not deleted
    deleting: set[str] = field(factory=set, init=False)  # may be there or not
    deleted: dict[str, float] = field(factory=dict, init=False)  # row -> when it was acknowledged
    calm: bool = field(default=False, init=False)
    store: MemoryStore = field(init=False)
    _history: History = field(init=False, factory=History)
    _faults: Faults = field(init=False, factory=lambda: evolve(Faults(), slow_ms=30_000.0, lost_reply=0.1))
    _names: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self.store = _JudgedStore(Machine(self.world, "store"), self.wrong)

    def rest(self) -> None:
        """From now on nothing fails."""
        self.calm = True
        self._faults = Faults.none()

    def step(self, machine: Machine) -> None:
        """A place where a machine may stand still, or stop for good."""
        chance = machine.random()
        if self.calm:
            return
        if chance < GIVES_UP:
            raise GoneError
        if chance < GIVES_UP + STANDS_STILL:
            machine.sleep_ms(240_000.0 * machine.random())

    def file(self, machine: Machine, note: Note, *, calm: bool = False) -> DataFile:
        """A new file that holds the note."""
        path = f"snapshots/{TABLE}/data/{self.name('file')}"
        self.notes[path] = note
        (self.store if calm else self.seen_by(machine)).create(path, b"rows")
        return DataFile(path=path, rows=len(note.rows), bytes=4)

    def sum(self, files: tuple[DataFile, ...], change: int = 0) -> Note:
        """What these files hold together, with `change` to the money."""
        notes = [self.notes[file.path] for file in files]
        return Note(rows=tuple(r for note in notes for r in note.rows), money=sum(n.money for n in notes) + change)

    def storage(
        self, machine: Machine, partition: int, *, calm: bool = False, epoch: int | None = None
    ) -> PartitionStorage:
        """The manifest as a machine sees it, which signs what it commits with its epoch."""
        store = self.store if calm else self.seen_by(machine)
        by = "" if epoch is None else str(epoch)
        return PartitionStorage(store, TABLE, f"p={partition}", runtime=machine, committed_by=by)

    def end(self, machine: Machine, partition: int, attempt: str, sequence: int | None) -> None:
        """Fold what an attempt prepared, at its sequence; None takes it away."""
        storage = self.storage(machine, partition)
        epoch = self.epochs[partition]
        if sequence is None:
            storage.abandon(attempt, epoch=epoch)
        else:
            storage.fold(attempt, epoch=epoch, sequence=sequence)

    def statements(self, machine: Machine) -> TableDecisions:
        """The decisions as a machine sees them."""
        return TableDecisions(self.seen_by(machine), TABLE, runtime=machine)

    def seen_by(self, machine: Machine) -> NamedFilesStore:
        """The store as a machine sees it, which may lose requests and replies."""
        return NamedFilesStore(machine, self.store, self._history, lambda: self._faults)

    def name(self, kind: str) -> str:
        """A name that nothing has had, which says when it was given."""
        self._names += 1
        return f"{kind}-{self._names}-{self.world.now_ms:.0f}"

    def since(self, name: str) -> float:
        """The milliseconds since a name was given."""
        return self.world.now_ms - float(name.rpartition("-")[2])

    def some(self, machine: Machine) -> int:
        """Any partition."""
        return int(machine.random() * PARTITIONS)

    def expect(self, holds: bool, what: str) -> None:
        """Note what is wrong unless it holds."""
        if not holds:
            self.wrong.append(what)


class _JudgedStore(MemoryStore):
    """A store that sees when a manifest takes in what is signed with another epoch than is active there (G5)."""

    def __init__(self, runtime: Runtime, wrong: list[str]) -> None:
        super().__init__(runtime=runtime)
        self._wrong = wrong
        self._seen: set[str] = set()

    def replace(self, key: str, data: bytes, version: str) -> str:
        landed = super().replace(key, data, version)
        if key.endswith("/manifest.json"):
            manifest = orjson.loads(data)
            for applied in manifest["tokens"][-1:]:
                if applied["by"] not in ("", str(manifest["epoch"])) and applied["token"] not in self._seen:
                    self._wrong.append(
                        f"{key} took in {applied['token']} of epoch {applied['by']} after a newer one"
                    )
                self._seen.add(applied["token"])
        return landed
