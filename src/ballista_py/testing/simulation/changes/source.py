"""A database in virtual time: transactions that interleave, a log, and slots that send again and fall back."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from attrs import define, field, frozen

from ballista_py.coordinator.changes.source import ChangeBatch, SourceLag
from ballista_py.errors import SourceLost, SourceUnavailable
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.state.documents.decisions import SourcePosition
from ballista_py.testing.simulation.machine import Machine
from ballista_py.testing.simulation.writes.site import PARTITIONS, TABLE, WriteSite

KEYS = 12
OPEN = 3
REFUSED = 0.05
FALLS_BACK = 0.1
COLUMNS = pa.schema(
    [pa.field("p", pa.int64(), nullable=False), pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())]
)
FOLLOWING = TableSpec(
    name=TABLE, schema=COLUMNS, spec=PartitionSpec.parse(["p"], COLUMNS), primary_key=("p", "id"), incarnation=""
)
_KEY = pa.struct([COLUMNS.field("p"), COLUMNS.field("id")])
_CHANGES = pa.schema([("op", pa.string()), ("old", _KEY), ("new", pa.struct(list(COLUMNS))), ("at", pa.int64())])
Rows = dict[int, tuple[int, int]]  # by id: partition and value


@frozen
class Change:
    """One row before and after it."""

    number: int
    old: tuple[int, int] | None
    new: tuple[int, int] | None

    def to_json(self, at: int) -> dict[str, object]:
        """The change as a batch has it; an update that keeps its key does not tell the old one."""
        old = None if self.old is None else {"p": self.old[0], "id": self.number}
        new = None if self.new is None else {"p": self.new[0], "id": self.number, "v": self.new[1]}
        op = "insert" if self.old is None else "delete" if self.new is None else "update"
        if self.old is not None and self.new is not None and self.old[0] == self.new[0]:
            old = None
        return {"op": op, "old": old, "new": new, "at": at}


@define
class Slot:
    """What was confirmed of a log, and what of that is written down."""

    confirmed: int
    kept: int


@define(eq=False)
class VirtualDatabase:
    """All that outlives whoever asks it. `site` has its chance, and notes what is wrong."""

    site: WriteSite
    rows: Rows = field(factory=dict, init=False)
    history: list[tuple[int, Rows]] = field(factory=lambda: [(0, {})], init=False)
    log: list[tuple[int, tuple[Change, ...]]] = field(factory=list, init=False)
    slots: dict[str, Slot] = field(factory=dict, init=False)
    _open: list[list[tuple[int, float, int, int]]] = field(factory=list, init=False)
    _at: int = field(default=0, init=False)

    def work(self, machine: Machine) -> None:
        """Some statements of some transactions, of which some commit; all of them once it is calm."""
        chance, calm = machine.random, self.site.calm
        if not calm and chance() < 0.6 and len(self._open) < OPEN:
            self._open.append([])
        for transaction in list(self._open):
            if chance() < 0.7:
                place, value = int(chance() * PARTITIONS), int(chance() * 1_000)
                transaction.append((int(chance() * KEYS), chance(), place, value))
                self._at += 1
            if calm or chance() < 0.4:
                self._open.remove(transaction)
                self._commit(transaction)
        for slot in self.slots.values():
            if not calm and chance() < FALLS_BACK:
                slot.confirmed = slot.kept

    def _commit(self, transaction: list[tuple[int, float, int, int]]) -> None:
        locked = {number for other in self._open for number, *_ in other}
        changes = []
        for number, what, place, value in transaction:
            old = self.rows.get(number)
            if number in locked:
                continue
            new: tuple[int, int] | None = (place if what > 0.7 or old is None else old[0], value)
            if what < 0.2 and old is not None:
                new = None
            changes.append(Change(number, old, new))
            self.rows.pop(number, None)
            if new is not None:
                self.rows[number] = new
        if changes:
            self._at += 1
            self.log.append((self._at, tuple(changes)))
            self.history.append((self._at, dict(self.rows)))

    @property
    def position(self) -> int:
        """That of the last commit."""
        return self.history[-1][0]

    def at(self, position: int) -> list[str]:
        """The rows as of a position, as files have them."""
        found = next(rows for at, rows in reversed(self.history) if at <= position)
        return sorted(row_text(place, number, value) for number, (place, value) in found.items())


def row_text(place: int, number: int, value: int) -> str:
    """A row as a file has it."""
    return f"{place}:{number}={value}"


@define(eq=False)
class VirtualSource:
    """The table of the database, as one reader at a `machine` asks for it: a `ChangeSource`."""

    database: VirtualDatabase
    machine: Machine
    decided: Callable[[], SourcePosition | None]  # where the table stands in truth

    def snapshot(self) -> tuple[SourcePosition, Iterator[pa.RecordBatch]]:
        """See `ChangeSource`."""
        self._step()
        database = self.database
        position = SourcePosition(database.position, database.site.name("slot"))
        database.slots[position.log] = Slot(position.at, position.at)
        rows = dict(database.rows)

        def batches() -> Iterator[pa.RecordBatch]:
            self._step()
            found = [{"p": place, "id": number, "v": value} for number, (place, value) in rows.items()]
            yield pa.RecordBatch.from_pylist(found, schema=COLUMNS)

        return position, batches()

    def read(self, after: SourcePosition, limit: int) -> ChangeBatch:
        """See `ChangeSource`. It begins where the slot was confirmed, whatever is asked for."""
        self._step()
        slot = self._slot(after)
        if slot.confirmed > after.at:
            raise SourceLost(f"{after.log} was moved beyond {after}")
        sent = [one for one in self.database.log if one[0] > slot.confirmed][
            : 1 + int(self.machine.random() * limit)
        ]
        changes = [change.to_json(at) for at, changes in sent for change in changes]
        to = sent[-1][0] if sent else after.at
        return ChangeBatch(
            changes=pa.Table.from_pylist(changes, schema=_CHANGES), position=SourcePosition(to, after.log)
        )

    def confirm(self, position: SourcePosition) -> None:
        """See `ChangeSource`."""
        self._step()
        slot, stands = self._slot(position), self.decided()
        slot.confirmed = max(slot.confirmed, position.at)
        if self.machine.random() < 0.3:
            slot.kept = slot.confirmed
        here = stands is not None and (stands.log != position.log or stands.at >= position.at)
        self.database.site.expect(here, f"{position} was confirmed while the table stood at {stands}")
        for log in [log for log in self.database.slots if _age(log) < _age(position.log)]:
            del self.database.slots[log]

    def discard(self, position: SourcePosition) -> None:
        """See `ChangeSource`."""
        self._step()
        self.database.slots.pop(position.log, None)

    def lag(self, position: SourcePosition) -> SourceLag:
        """See `ChangeSource`."""
        return SourceLag(bytes=max(0, self.database.position - position.at))

    def give_up(self) -> None:
        """See `ChangeSource`."""
        self.database.slots.clear()

    def close(self) -> None:
        """See `ChangeSource`."""

    def _slot(self, position: SourcePosition) -> Slot:
        found = self.database.slots.get(position.log)
        if found is None:
            raise SourceLost(f"there is no slot {position.log}")
        return found

    def _step(self) -> None:
        self.database.site.step(self.machine)
        if not self.database.site.calm and self.machine.random() < REFUSED:
            raise SourceUnavailable("somebody else reads the slot")


def _age(log: str) -> int:
    return int(log.split("-")[1])
