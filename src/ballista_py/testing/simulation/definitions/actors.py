"""Those who use tables while these are altered, renamed and replaced, and those who do that to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from attrs import define, evolve

from ballista_py.errors import (
    OwnershipError,
    SchemaMismatch,
    SqlError,
    StoreError,
    TransportError,
    WriteIncomplete,
)
from ballista_py.partitions.columns import is_required, stored_name
from ballista_py.partitions.table import TableSpec
from ballista_py.sql.parse.alterations import (
    AddColumn,
    Alteration,
    AlterTable,
    DropColumn,
    RenameColumn,
    RenameTable,
    SetDefault,
    SetRequired,
    SetType,
)
from ballista_py.sql.rewrite import Rewrite
from ballista_py.testing.simulation.definitions.ledger import KEY, Column
from ballista_py.testing.simulation.definitions.scheduler import Rows, VirtualScheduler
from ballista_py.testing.simulation.definitions.site import FIRST_COLUMNS, NAMES, DefinitionSite
from ballista_py.testing.simulation.machine import Machine
from ballista_py.testing.simulation.owners.row_engine import Program
from ballista_py.testing.simulation.owners.statements import UnsureError

STATEMENT_MS = 60_000.0
RESEND_MS = 60_000.0
RESEND_WAIT_MS = 2_000.0
MAX_COLUMNS = 6
FIRST_ROWS = 3
OWN = "column"
T = TypeVar("T")
SENT_AGAIN = (TransportError, StoreError, OwnershipError, WriteIncomplete)


@define
class DefinitionActors:
    """What each does once, as a client of some scheduler. One that stops in between is gone for good."""

    site: DefinitionSite

    def append(self, machine: Machine) -> None:
        """Two rows, which each owner takes by itself, or for half of the time both or none."""
        ledger, token, name = self.site.ledger, self.site.name("row"), self._name(machine)
        atomic = machine.random() < 0.5
        names = [f"{token}-1", f"{token}-2"] if atomic else [token]
        rows: Rows = lambda table: ledger.batch(table, names)  # noqa: E731
        began_ms = self.site.world.now_ms
        folder = self._sent(machine, lambda to, again: to.insert(name, token, rows, atomic=atomic, again=again))
        ledger.acknowledge(name, folder, names, began_ms, self.site.world.now_ms)
        self.site.book.done["append"] += 1

    def delete(self, machine: Machine) -> None:
        """Delete a row that was acknowledged, wherever its table is by now."""
        self._rewrite(machine, "delete", deletes=True)

    def touch(self, machine: Machine) -> None:
        """UPDATE of a row, which leaves each column as it is: what an older definition made of it must not count."""
        self._rewrite(machine, "touch", deletes=False)

    def _rewrite(self, machine: Machine, kind: str, *, deletes: bool) -> None:
        site, ledger, token = self.site, self.site.ledger, self.site.name(kind)
        names = {table.folder: name for name, table in ledger.now().items()}
        there = [(row, f) for row, (f, _) in ledger.rows.items() if f in names and row not in ledger.deleting]
        if not there:
            return
        row, folder = there[int(machine.random() * len(there))]
        if deletes:
            ledger.deleting.add(row)

        def made(table: TableSpec) -> Rewrite:
            text = f"{token} of {table.folder} as of {table.definition}"
            site.programs[text] = _hits(row, table)
            return Rewrite(rows=text, deletes=deletes)

        name, began_ms = names[folder], site.world.now_ms
        where, count = self._sent(machine, lambda to, again: to.rewrite(name, token, made, again=again))
        now_ms = site.world.now_ms
        met = [table for table in ledger.within(name, began_ms, now_ms) if table is not None]
        known = any(table.folder == where for table in met)
        site.book.expect(known, f"a change of '{name}' went into '{where}', which was not called so meanwhile")
        if deletes or row not in ledger.deleting:
            wanted = 1 if where == folder else 0
            site.book.expect(count == wanted, f"a {kind} found {count} of {wanted} row(s) '{row}' in '{where}'")
        if deletes and count:
            ledger.deleted[row] = now_ms
        site.book.done[kind] += 1

    def read(self, machine: Machine) -> None:
        """Read a table."""
        name, began_ms = self._name(machine), self.site.world.now_ms
        scheduler = self._scheduler(machine)
        try:
            table, rows = self.site.call(machine, scheduler, lambda: scheduler.read(name), STATEMENT_MS)
        except (TransportError, StoreError, OwnershipError):
            self.site.book.done["read failed"] += 1
            return
        self.site.ledger.seen(name, table, rows, began_ms, self.site.world.now_ms)
        self.site.book.done["read" if table is not None else "read of nothing"] += 1

    def alter(self, machine: Machine) -> None:
        """Add, drop or rename a column, widen its type, set its default, or SET and DROP NOT NULL."""
        site, ledger = self.site, self.site.ledger
        name = self._name(machine)
        table = ledger.now().get(name)
        if table is None:
            return
        action = self._action(machine, table)
        token = self.site.name("definition")
        column = (table.folder, action.name if isinstance(action, AddColumn) else _stored(table, action))
        if isinstance(action, DropColumn):
            ledger.dropping.add(column)
        change, began_ms = AlterTable(table=name, action=action), site.world.now_ms
        try:
            self._sent(machine, lambda to, _again: to.alter(change, token))
        except SchemaMismatch:
            site.book.done["rows without a value"] += 1
            return
        meant = ledger.within(name, began_ms, site.world.now_ms)
        site.book.done["alter"] += 1
        site.book.done[f"alter: {type(action).__name__}"] += 1
        if all(one is not None and one.folder == table.folder for one in meant):
            self._altered(action, column)

    def _altered(self, action: Alteration, column: Column) -> None:
        """Remember what a client was told that it did to the table that it meant."""
        ledger = self.site.ledger
        if isinstance(action, AddColumn) and column not in ledger.dropping:
            ledger.columns[column] = set()
        elif isinstance(action, DropColumn):
            ledger.dropped.add(column)
        elif isinstance(action, RenameColumn) and column in ledger.columns:
            ledger.columns[column].add(action.name)

    def _action(self, machine: Machine, table: TableSpec) -> Alteration:
        others = [column for column in table.schema if column.name != KEY]
        fresh = self.site.name(OWN)
        chance = machine.random()
        if not others or (chance < 0.3 and len(others) < MAX_COLUMNS):
            default = None if machine.random() < 0.3 else str(int(machine.random() * 100))
            if table.gone and machine.random() < 0.4:  # whose values must not come back
                fresh = table.gone[0]
            return AddColumn(name=fresh, kind="int", default=default)
        column = others[int(machine.random() * len(others))]
        if chance < 0.45:
            return DropColumn(name=column.name)
        if chance < 0.65:
            return RenameColumn(name=column.name, to=fresh)
        if chance < 0.75:
            return SetType(name=column.name, kind="bigint")
        if chance < 0.8:
            return SetDefault(name=column.name, default=str(int(chance * 100)))
        return SetRequired(name=column.name, required=not is_required(column))

    def rename(self, machine: Machine) -> None:
        """Give a table the name that is free; or exchange the names of two, by way of the free one.

        One is dropped where none is free, because a table was replaced that had lost its name meanwhile.
        """
        book, ledger = self.site.book, self.site.ledger
        if len(ledger.now()) == len(NAMES) and (self.site.calm or not ledger.drops):
            ledger.drops += 1
            token, gone = self.site.name("definition"), self._name(machine)
            self._sent(machine, lambda to, _again: to.drop(gone, token))
            book.done["drop"] += 1
        free = [name for name in NAMES if name not in ledger.now()]
        one, *others = sorted(ledger.now(), key=lambda _: machine.random())
        if not free:
            return
        self._renamed(machine, one, free[0])
        for other in others[:1] if machine.random() < 0.5 else ():
            self._renamed(machine, other, one)
            self._renamed(machine, free[0], other)
            book.done["swap"] += 1
        book.done["rename"] += 1

    def _renamed(self, machine: Machine, name: str, to: str) -> None:
        token, change = self.site.name("definition"), AlterTable(table=name, action=RenameTable(to=to))
        self._sent(machine, lambda scheduler, _again: scheduler.alter(change, token))

    def replace(self, machine: Machine) -> None:
        """CREATE OR REPLACE TABLE of a name that a table has, with rows."""
        site, token = self.site, self.site.name("table")
        here = sorted(site.ledger.now())
        name = here[int(machine.random() * len(here))]
        names = [f"{token}-{number}" for number in range(FIRST_ROWS)]
        batch = site.ledger.batch(evolve(site.ledger.now()[name], schema=FIRST_COLUMNS), names)
        began_ms = site.world.now_ms
        self._sent(machine, lambda to, _again: to.replace(name, token, FIRST_COLUMNS, batch))
        mine = [
            table for table in site.ledger.within(name, began_ms, site.world.now_ms)
            if table is not None and self._was_made_by(table, began_ms)
        ]  # fmt: skip
        site.book.expect(bool(mine), f"no other table was called '{name}' after it was replaced")
        site.book.done["replace"] += 1

    def _was_made_by(self, table: TableSpec, began_ms: float) -> bool:
        catalogs = self.site.ledger.catalogs
        first = next(c for c in catalogs if any(t.folder == table.folder for t in c.tables.values()))
        return first.since_ms >= began_ms

    def _sent(self, machine: Machine, act: Callable[[VirtualScheduler, bool], T]) -> T:
        """What a scheduler answers, asked again under the same token as clients do. Raises `UnsureError`."""
        began_ms, again = machine.monotonic_ms(), False
        while True:
            self.site.step(machine)
            to = self._scheduler(machine)
            try:
                return self.site.call(machine, to, lambda to=to, again=again: act(to, again), STATEMENT_MS)  # type: ignore[misc]
            except SENT_AGAIN as error:
                if machine.monotonic_ms() - began_ms > RESEND_MS:
                    raise UnsureError from error
                again = True
            except SqlError as error:
                self.site.book.done[f"refused: {error.message.split(' ', 2)[0]}"] += 1
                raise
            machine.sleep_ms(RESEND_WAIT_MS * machine.random())

    def _scheduler(self, machine: Machine) -> VirtualScheduler:
        schedulers = self.site.schedulers
        return schedulers[int(machine.random() * len(schedulers))]

    def _name(self, machine: Machine) -> str:
        """A name; most often one that a table has."""
        names = sorted(self.site.ledger.now()) if machine.random() < 0.9 or self.site.calm else NAMES
        return names[int(machine.random() * len(names))]


def _stored(table: TableSpec, action: Alteration) -> str:
    return stored_name(table.schema.field(action.name))  # type: ignore[union-attr]


def _hits(row: str, table: TableSpec) -> Program:
    """What a change makes of rows of a table: it names the columns that it has by this definition."""

    def run(rows: pa.Table) -> pa.Table:
        if not set(table.schema.names) <= set(rows.schema.names):
            raise SqlError(f"a column of {table.schema.names} is not there")
        return rows.select(table.schema.names).append_column("hit", pc.equal(rows[KEY], row))

    return run
