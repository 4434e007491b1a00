"""Writers, movers of money, readers, a compactor, a collector and changing owners over one table, in virtual time.

The manifests, the decisions on statements, the compaction, the collection and two replicas (lease, holder, file cache,
what they ask before they answer) are the real ones; files hold a note instead of rows. Owners are no more than their
epochs here: which executor has a lease, and what becomes of partitions when it loses it, is what `Simulation` is
about, with the same holders and manifests, and a manifest sees nothing of an owner but its epoch.

Every machine pauses, loses requests and replies, and gives up in the middle of things. Judged are: what was
acknowledged is there exactly once and what was not at most once (G8), nothing is taken in of an owner whose epoch is
over (G5), every reader sees money add up and every row that was acknowledged before it began (at a replica with a lag:
that long before), no file is missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import orjson
from attrs import define, evolve, field, frozen

from ballista_py.errors import BallistaError
from ballista_py.runtime import Runtime
from ballista_py.state.control import PartitionAssignment
from ballista_py.state.memory import MemoryStore
from ballista_py.state.statements import Statements
from ballista_py.storage.compaction import CompactionPolicy, to_compact
from ballista_py.storage.garbage import MAX_WRITE_MS, find_garbage, remove_garbage
from ballista_py.storage.holdings import Held
from ballista_py.storage.manifest import DataFile, ManifestDocument, Prepared
from ballista_py.storage.partition_loads import spans_of
from ballista_py.storage.partition_storage import PartitionStorage
from ballista_py.testing.history import History
from ballista_py.testing.virtual_faults import Faults
from ballista_py.testing.virtual_machine import MAX_DRIFT, Machine
from ballista_py.testing.virtual_replica import VirtualReplica
from ballista_py.testing.virtual_store import VirtualStore
from ballista_py.testing.virtual_time import World

TABLE = "t"
PARTITIONS = 4
MONEY = 1_000
UNDECIDED_MS = 60_000.0
GIVES_UP = 0.04
STANDS_STILL = 0.08
LOST_ANSWER = 0.2
CALM_MS = 600_000.0
LAG_MS = 60_000.0
FASTEST = 1 + MAX_DRIFT


class _GoneError(Exception):
    """A machine that stopped for good in the middle of something."""


@frozen(kw_only=True)
class Note:
    """What a file holds: rows by name, and the partition's money if it is the file that has it."""

    rows: tuple[str, ...] = ()
    money: int = 0


@frozen(kw_only=True)
class WriteResult:
    """One run: what was done, and what was wrong."""

    seed: int
    acknowledged: int
    transfers: int
    reads: int
    replica_reads: int
    compactions: int
    collected: int
    wrong: tuple[str, ...]


@define
class WriteSimulation:
    """One run of `minutes` of virtual time. The same seed replays.

    >>> WriteSimulation(1, minutes=2).run().wrong
    ()
    """

    seed: int
    minutes: float = 12.0
    min_age_ms: float = MAX_WRITE_MS
    catches_up: bool = True
    _notes: dict[str, Note] = field(factory=dict, init=False)
    _epochs: dict[int, int] = field(factory=dict, init=False)
    _acknowledged: dict[str, float] = field(factory=dict, init=False)  # row -> when
    _sent: set[str] = field(factory=set, init=False)
    _done: Counter[str] = field(factory=Counter, init=False)
    _wrong: list[str] = field(factory=list, init=False)
    _moves: dict[str, tuple[int, int, int]] = field(factory=dict, init=False)
    _names: int = field(default=0, init=False)
    _calm: bool = field(default=False, init=False)
    _world: World = field(init=False)
    _store: MemoryStore = field(init=False)
    _replicas: dict[str, VirtualReplica] = field(factory=dict, init=False)
    _history: History = field(init=False, factory=History)
    _faults: Faults = field(init=False, factory=lambda: evolve(Faults(), slow_ms=30_000.0, lost_reply=0.1))

    def __attrs_post_init__(self) -> None:
        self._world = World(self.seed)
        self._store = _JudgedStore(Machine(self._world, "store"), self._wrong)

    def run(self) -> WriteResult:
        """Live through the minutes, let everything come to rest, and judge."""
        world = self._world
        try:
            self._start("founder", 0.0, self._found)
            world.run(10_000.0)
            for number in range(3):
                self._start(f"writer-{number}", 4_000.0, self._append)
                self._start(f"mover-{number}", 3_000.0, self._transfer)
                self._start(f"reader-{number}", 5_000.0, self._read)
            self._start("replica", 5_000.0, partial(self._read_replica, 0.0))
            self._start("replica-late", 5_000.0, partial(self._read_replica, LAG_MS))
            self._start("compactor", 6_000.0, self._compact)
            self._start("collector", 60_000.0, self._collect)
            self._start("sweeper", 20_000.0, self._sweep)
            self._start("owners", 90_000.0, self._change_owner)
            world.run(self.minutes * 60_000.0)
            self._calm = True
            self._faults = Faults.none()
            world.run(world.now_ms + CALM_MS)
            self._judge()
        finally:
            world.close()
        return WriteResult(
            seed=self.seed,
            acknowledged=len(self._acknowledged),
            transfers=self._done["transfer"],
            reads=self._done["read"],
            replica_reads=self._done["replica read"],
            compactions=self._done["compaction"],
            collected=self._done["collected"],
            wrong=tuple(self._wrong),
        )

    def _start(self, name: str, every_ms: float, act: Callable[[Machine], None]) -> None:
        """A machine that does `act` again and again, each time as if it were started anew."""

        def live() -> None:
            while True:
                try:
                    act(machine)
                except (BallistaError, _GoneError):
                    self._done[f"{name.split('-')[0]} failed"] += 1
                if not every_ms or (self._calm and not name.startswith(("sweeper", "collector"))):
                    return
                machine.sleep_ms(every_ms * 2 * machine.random())

        machine = Machine(self._world, name)
        machine.spawn(live)

    def _step(self, machine: Machine) -> None:
        """A place where a machine may stand still, or stop for good."""
        chance = machine.random()
        if self._calm:
            return
        if chance < GIVES_UP:
            raise _GoneError
        if chance < GIVES_UP + STANDS_STILL:
            machine.sleep_ms(240_000.0 * machine.random())

    def _found(self, machine: Machine) -> None:
        for partition in range(PARTITIONS):
            storage = self._storage(machine, partition, calm=True)
            storage.create()
            storage.activate(1)
            self._epochs[partition] = 1
            file = self._file(machine, Note(money=MONEY), calm=True)
            storage.commit(add=[file], epoch=1, token=f"founded-{partition}")

    def _append(self, machine: Machine) -> None:
        """One row, sent until it is acknowledged or the writer gives up; each time as a file of its own."""
        token = self._name("row")
        partition = self._some(machine)
        while True:
            epoch = self._epochs[partition]
            self._step(machine)
            began_ms = self._world.now_ms
            self._sent.add(token)
            try:
                file = self._file(machine, Note(rows=(token,)))
                self._step(machine)
                if self._world.now_ms - began_ms < MAX_WRITE_MS:
                    storage = self._storage(machine, partition, epoch=epoch)
                    storage.commit(add=[file], epoch=epoch, token=token)
                    if machine.random() >= LOST_ANSWER:
                        self._acknowledged[token] = self._world.now_ms
                        return
            except BallistaError:
                machine.sleep_ms(1_000.0)

    def _transfer(self, machine: Machine) -> None:
        """Move money from one partition to another, from all rows that were read, or not at all."""
        statements = self._statements(machine)
        begun = statements.read().decisions_made
        token, attempt = self._name("statement"), self._name("attempt")
        giver = self._some(machine)
        taker = (giver + 1 + int(machine.random() * (PARTITIONS - 1))) % PARTITIONS
        epochs = dict(self._epochs)
        amount = 1 + int(machine.random() * 50)
        self._moves[attempt] = (giver, taker, amount)
        try:
            for partition, change in ((giver, -amount), (taker, amount)):
                storage = self._storage(machine, partition)
                files = storage.read().document.files
                self._step(machine)
                file = self._file(machine, self._sum(files, change))
                self._step(machine)
                paths = [old.path for old in files]
                prepared = Prepared(attempt=attempt, token=token, add=(file,), remove=tuple(paths))
                storage.prepare(prepared, epoch=epochs[partition], base=paths)
        except BallistaError:
            statements.abort(attempt, token)
            return
        self._step(machine)
        decision = statements.commit(attempt, token, affected=2, begun=begun)
        self._done["transfer"] += decision.committed
        self._step(machine)
        for partition in (giver, taker):
            self._end(machine, partition, attempt, decision.sequence if decision.committed else None)
        statements.settle(attempt)

    def _read(self, machine: Machine) -> None:
        """Add up all partitions as of one sequence, and look for every row acknowledged before."""
        expected = set(self._acknowledged)
        sequence = self._statements(machine).read().sequence
        found: list[str] = []
        money: dict[int, int] = {}
        for partition in range(PARTITIONS):
            if not self._calm and machine.random() < GIVES_UP:
                machine.sleep_ms(100_000.0 * machine.random())
            manifest = self._caught_up(machine, partition, sequence)
            if sequence < manifest.readable_from:
                return
            paths = list(_visible(manifest, sequence))
            money[partition] = sum(self._notes[path].money for path in paths)
            found += paths
        again = self._some(machine)
        manifest = self._caught_up(machine, again, sequence)
        if sequence >= manifest.readable_from:
            now = sum(self._notes[path].money for path in _visible(manifest, sequence))
            self._expect(now == money[again], f"sequence {sequence} held {money[again]} and later {now}")
        self._done["read"] += 1
        self._look(found, expected, f"a reader at sequence {sequence}")

    def _read_replica(self, lag_ms: float, machine: Machine) -> None:
        """The same at a replica, which lives on from one read to the next, and may be so much behind."""
        replica = self._replicas.get(machine.name)
        if replica is None:
            replica = self._replicas[machine.name] = VirtualReplica(
                machine,
                self._seen_by(machine),
                TABLE,
                PARTITIONS,
                path=lambda partition: f"p={partition}",
                rows_of=lambda path: len(self._notes[path].rows),
            )
        surely_seen_ms = self._world.now_ms - lag_ms * FASTEST
        expected = {row for row, at_ms in self._acknowledged.items() if at_ms <= surely_seen_ms}
        sequence = self._statements(machine).read().sequence
        if machine.random() < STANDS_STILL:
            machine.sleep_ms(60_000.0 * machine.random())
        found = replica.read(sequence, lag_ms)
        self._done["replica read"] += 1
        self._look(found, expected, f"a replica at sequence {sequence}")

    def _look(self, paths: Iterable[str], expected: set[str], who: str) -> None:
        """Whether what was read adds up."""
        notes = [self._notes[path] for path in paths]
        money, rows = sum(note.money for note in notes), [row for note in notes for row in note.rows]
        self._expect(money == MONEY * PARTITIONS, f"{who} saw {money}")
        missing = expected - set(rows)
        self._expect(
            not missing, f"{who} missed {len(missing)} acknowledged row(s), such as {min(missing, default='')}"
        )
        self._expect(len(rows) == len(set(rows)), f"{who} saw a row twice")

    def _caught_up(self, machine: Machine, partition: int, sequence: int) -> ManifestDocument:
        """The manifest, in which all that was committed up to the sequence is folded in."""
        storage = self._storage(machine, partition)
        manifest = storage.read().document
        if manifest.prepared and self.catches_up:
            decisions = self._statements(machine).read()
            for waiting in manifest.prepared:
                decision = decisions.on(waiting.attempt)
                if decision is not None and decision.committed and decision.sequence <= sequence:
                    manifest = storage.fold(
                        waiting.attempt, epoch=manifest.epoch, sequence=decision.sequence
                    ).document
        return manifest

    def _compact(self, machine: Machine) -> None:
        partition = self._some(machine)
        storage = self._storage(machine, partition)
        manifest = storage.read().document
        epoch = self._epochs[partition]
        files = to_compact(manifest.files, manifest.prepared, CompactionPolicy(min_files=4))
        if files:
            self._step(machine)
            merged = self._file(machine, self._sum(files))
            self._step(machine)
            self._done["compaction"] += storage.compact(add=[merged], remove=[f.path for f in files], epoch=epoch)

    def _collect(self, machine: Machine) -> None:
        store = self._seen_by(machine)
        garbage = find_garbage(store, {TABLE}, min_age_ms=self.min_age_ms, runtime=machine)
        self._step(machine)
        self._done["collected"] += remove_garbage(store, garbage)

    def _sweep(self, machine: Machine) -> None:
        """End what somebody left prepared, as owners do."""
        for partition in range(PARTITIONS):
            for waiting in self._storage(machine, partition).read().document.prepared:
                if self._calm or self._since(waiting.attempt) > UNDECIDED_MS:
                    decision = self._statements(machine).abort(waiting.attempt)
                    self._step(machine)
                    self._end(
                        machine, partition, waiting.attempt, decision.sequence if decision.committed else None
                    )

    def _change_owner(self, machine: Machine) -> None:
        """A partition gets its next owner, which raises the fence before it does anything."""
        partition = self._some(machine)
        self._epochs[partition] += 1
        self._storage(machine, partition, calm=True).activate(self._epochs[partition])

    def _end(self, machine: Machine, partition: int, attempt: str, sequence: int | None) -> None:
        storage = self._storage(machine, partition)
        epoch = self._epochs[partition]
        if sequence is None:
            storage.abandon(attempt, epoch=epoch)
        else:
            storage.fold(attempt, epoch=epoch, sequence=sequence)

    def _judge(self) -> None:
        machine = Machine(self._world, "judge")
        money, rows = [0] * PARTITIONS, Counter[str]()
        for partition in range(PARTITIONS):
            manifest = PartitionStorage(self._store, TABLE, f"p={partition}", runtime=machine).read().document
            self._expect(not manifest.prepared, f"partition {partition} still waits for a decision")
            for file in manifest.files:
                self._expect(bool(list(self._store.list(file.path))), f"file {file.path} is named and gone")
                money[partition] += self._notes[file.path].money
                rows.update(self._notes[file.path].rows)
        expected = [MONEY] * PARTITIONS
        for decision in Statements(self._store, TABLE, runtime=machine).read().decisions:
            if decision.committed:
                giver, taker, amount = self._moves[decision.attempt]
                expected[giver] -= amount
                expected[taker] += amount
        self._expect(money == expected, f"{money} is left in the end, not {expected}")
        lost = self._acknowledged.keys() - rows.keys()
        self._expect(not lost, f"{len(lost)} acknowledged row(s) are lost")
        doubled = [row for row, count in rows.items() if count > 1]
        self._expect(not doubled, f"{len(doubled)} row(s) are there twice")
        self._expect(rows.keys() <= self._sent, "a row is there that nobody sent")

    def _sum(self, files: tuple[DataFile, ...], change: int = 0) -> Note:
        notes = [self._notes[file.path] for file in files]
        return Note(rows=tuple(r for note in notes for r in note.rows), money=sum(n.money for n in notes) + change)

    def _file(self, machine: Machine, note: Note, *, calm: bool = False) -> DataFile:
        path = f"snapshots/{TABLE}/data/{self._name('file')}"
        self._notes[path] = note
        (self._store if calm else self._seen_by(machine)).create(path, b"rows")
        return DataFile(path=path, rows=len(note.rows), bytes=4)

    def _storage(
        self, machine: Machine, partition: int, *, calm: bool = False, epoch: int | None = None
    ) -> PartitionStorage:
        """The manifest as a machine sees it, which signs what it commits with its epoch."""
        store = self._store if calm else self._seen_by(machine)
        by = "" if epoch is None else str(epoch)
        return PartitionStorage(store, TABLE, f"p={partition}", runtime=machine, committed_by=by)

    def _statements(self, machine: Machine) -> Statements:
        return Statements(self._seen_by(machine), TABLE, runtime=machine)

    def _seen_by(self, machine: Machine) -> VirtualStore:
        return VirtualStore(machine, self._store, self._history, lambda: self._faults)

    def _name(self, kind: str) -> str:
        self._names += 1
        return f"{kind}-{self._names}-{self._world.now_ms:.0f}"

    def _since(self, name: str) -> float:
        return self._world.now_ms - float(name.rpartition("-")[2])

    def _some(self, machine: Machine) -> int:
        return int(machine.random() * PARTITIONS)

    def _expect(self, holds: bool, what: str) -> None:
        if not holds:
            self._wrong.append(what)


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
