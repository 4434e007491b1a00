"""Those who change tables through their owners: appends, atomic inserts, transfers, deletes, merges, replacements."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from attrs import define, evolve, field

from ballista_py.coordinator.writes.owner_calls import Outcome
from ballista_py.errors import BallistaError
from ballista_py.sql.rewrite import Rewrite
from ballista_py.testing.simulation.machine import Machine
from ballista_py.testing.simulation.owners.row_engine import Program
from ballista_py.testing.simulation.owners.site import MONEY, PARTITIONS, OwnerSite, rows_of
from ballista_py.testing.simulation.owners.statements import EVERYWHERE, Ask, Order, StatementClient, UnsureError
from ballista_py.transport.flight.commands import PARTITION_COLUMN

MAX_MOVED = 50
TRUNCATES = 0.5
MERGE_MS = 5_000.0
MAIN, REPLACED = "t", "r"


@define
class OwnerActors:
    """What each does once, at a machine that may stop at any step."""

    site: OwnerSite
    _client: StatementClient = field(init=False)
    _inserted: list[tuple[str, ...]] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        self._client = StatementClient(self.site)

    def found(self, machine: Machine) -> None:
        """Put the money there, and the first generation of what is replaced."""
        rows = [(p, f"money-{p}", MONEY) for p in range(PARTITIONS)]
        for row in rows:
            self._client.applied(
                machine, Order(table=MAIN, token=f"founded-{row[0]}"), row[0], _writes(rows_of([row]))
            )
        self.replace(machine)

    def append(self, machine: Machine) -> None:
        """One row, sent until it is acknowledged."""
        book, token, partition = self.site.book, self.site.name("row"), self.site.some(machine)
        book.send([token], self.site.world.now_ms)
        rows = rows_of([(partition, token, 0)])
        try:
            self._client.applied(machine, Order(table=MAIN, token=token), partition, _writes(rows))
        except UnsureError:
            return
        book.acknowledged[token] = self.site.world.now_ms
        book.done["append"] += 1
        if machine.random() < 0.3:
            self._inserted.append((token,))

    def insert(self, machine: Machine) -> None:
        """A row in each of two partitions, both or none."""
        book, token, first = self.site.book, self.site.name("row"), self.site.some(machine)
        rows = {first: f"{token}-a", (first + 1) % PARTITIONS: f"{token}-b"}
        book.send(rows.values(), self.site.world.now_ms)

        def prepare(order: Order) -> Outcome:
            outcome = Outcome()
            for partition, row in rows.items():
                outcome.take(
                    self._client.ask(machine, order, [partition], _writes(rows_of([(partition, row, 0)])))
                )
            return outcome

        try:
            self._client.decided(machine, MAIN, token, prepare)
        except UnsureError:
            return
        book.acknowledged.update(dict.fromkeys(rows.values(), self.site.world.now_ms))
        if book.deleting.isdisjoint(rows.values()):
            self._inserted.append(tuple(rows.values()))
        book.done["insert"] += 1

    def transfer(self, machine: Machine) -> None:
        """UPDATE of two partitions: money goes from one to the other."""
        token, giver, taker, amount = self._begin_transfer(machine)
        name = f"update {token}"
        self.site.programs[name] = _update({f"money-{giver}": -amount, f"money-{taker}": amount})
        rewrite = Rewrite(rows=name)

        def prepare(order: Order) -> Outcome:
            return self._client.ask(machine, order, (giver, taker), _rewrites(rewrite))

        self._end_transfer(token, lambda: self._client.decided(machine, MAIN, token, prepare))

    def merge(self, machine: Machine) -> None:
        """The same by a statement that no owner can run by itself: rows are read, changed, and put in their place."""
        token, giver, taker, amount = self._begin_transfer(machine)
        change = _update({f"money-{giver}": -amount, f"money-{taker}": amount})

        def prepare(order: Order) -> Outcome:
            outcome = Outcome()
            for partition in (giver, taker):
                found: list[tuple[dict[str, object], pa.Table]] = []
                asked = self._client.ask(machine, order, [partition], _reads(found))
                if asked.errors:
                    asked.affected.clear()
                    outcome.take(asked)
                    return outcome
                trailer, rows = found[-1]
                machine.sleep_ms(MERGE_MS * machine.random())
                order = evolve(
                    order,
                    base={partition: tuple(trailer["base"][str(partition)])},  # type: ignore[index]
                    remove={partition: tuple(path for _, path, _ in trailer["read"])},  # type: ignore[attr-defined]
                )
                new = change(rows).drop_columns(["hit"])
                outcome.take(self._client.ask(machine, order, [partition], _writes(new)))
            return outcome

        self._end_transfer(token, lambda: self._client.decided(machine, MAIN, token, prepare, lambda: 2), "merge")

    def delete(self, machine: Machine) -> None:
        """Delete what one statement inserted, wherever it is."""
        if self._inserted:
            self._delete(machine, self._inserted.pop(int(machine.random() * len(self._inserted))))

    def delete_seen(self, machine: Machine) -> None:
        """Look into one partition, and delete what it holds a row of: whoever saw a row has all of its statement."""
        partition, book = self.site.some(machine), self.site.book
        sequence = self.site.statements(machine, MAIN).read().sequence
        ((owner, part),) = self.site.parts(MAIN, [partition])
        rows = self.site.call(machine, owner, lambda: owner.read(evolve(part, sequence=sequence)))
        names = [
            name for name in rows["name"].to_pylist() if name[-2:] in ("-a", "-b") and name not in book.deleting
        ]
        if names:
            self._delete(machine, (f"{names[-1][:-2]}-a", f"{names[-1][:-2]}-b"))

    def _delete(self, machine: Machine, rows: tuple[str, ...]) -> None:
        book, token = self.site.book, self.site.name("delete")
        gone = set(rows)
        if not book.deleting.isdisjoint(gone):
            return
        book.deleting |= gone
        name = f"delete {token}"
        self.site.programs[name] = _hits(gone)
        rewrite = Rewrite(rows=name, deletes=True)
        try:
            count = self._client.decided(
                machine,
                MAIN,
                token,
                lambda order: self._client.ask(machine, order, EVERYWHERE, _rewrites(rewrite)),
            )
        except UnsureError:
            return
        book.expect(count == len(gone), f"a DELETE found {count} of {len(gone)} acknowledged rows")
        book.deleted.update(dict.fromkeys(gone, self.site.world.now_ms))
        book.done["delete"] += 1

    def replace(self, machine: Machine) -> None:
        """A row for every partition, in the place of all that is there; or none at all (TRUNCATE)."""
        book, token = self.site.book, self.site.name("generation")
        book.begun[token] = self.site.world.now_ms
        truncates = machine.random() < TRUNCATES
        if truncates:
            book.emptied.add(token)

        def prepare(order: Order) -> Outcome:
            if truncates:
                return self._client.ask(machine, order, EVERYWHERE, _rewrites(Rewrite()))
            order, outcome = evolve(order, replace=True), Outcome()
            for partition in EVERYWHERE:
                rows = rows_of([(partition, token, 0)])
                outcome.take(self._client.ask(machine, order, [partition], _writes(rows)))
            return outcome

        try:
            self._client.decided(machine, REPLACED, token, prepare)
        except UnsureError:
            return
        book.replaced[token] = self.site.world.now_ms
        book.done["replace"] += 1

    def _begin_transfer(self, machine: Machine) -> tuple[str, int, int, int]:
        token, giver = self.site.name("transfer"), self.site.some(machine)
        taker = (giver + 1 + int(machine.random() * (PARTITIONS - 1))) % PARTITIONS
        amount = 1 + int(machine.random() * MAX_MOVED)
        self.site.book.moves[token] = giver, taker, amount
        self.site.book.unsure.add(token)
        return token, giver, taker, amount

    def _end_transfer(self, token: str, run: Callable[[], int], kind: str = "transfer") -> None:
        book = self.site.book
        try:
            count = run()
        except UnsureError:
            return
        except BallistaError:
            book.unsure.discard(token)
            raise
        book.unsure.discard(token)
        book.expect(count == 2, f"a transfer found {count} of 2 rows")
        book.moved.add(token)
        book.done[kind] += 1


def _writes(rows: pa.Table) -> Ask:
    """Send rows to an owner: those of its partitions."""
    column = rows.column("part").combine_chunks()
    batches = rows.append_column(PARTITION_COLUMN, column.cast(pa.int32())).combine_chunks().to_batches()
    return lambda owner, target: owner.writes.write(target, batches)


def _rewrites(rewrite: Rewrite) -> Ask:
    return lambda owner, target: owner.writes.rewrite(target, rewrite)


def _reads(found: list[tuple[dict[str, object], pa.Table]]) -> Ask:
    def read(owner: object, target: object) -> dict[str, dict[str, int]]:
        trailer, rows, _ = owner.writes.base(target, None, "")  # type: ignore[attr-defined]
        batches: Sequence[pa.RecordBatch] = list(rows())
        table = pa.Table.from_batches(batches).drop_columns([PARTITION_COLUMN]) if batches else rows_of([])
        found.append((trailer, table))
        return {str(partition): {"affected": 0} for partition in trailer["base"]}

    return read


def _update(changes: dict[str, int]) -> Program:
    def run(rows: pa.Table) -> pa.Table:
        names = rows["name"].to_pylist()
        money = [m + changes.get(n, 0) for n, m in zip(names, rows["money"].to_pylist(), strict=True)]
        rows = rows.set_column(2, rows.schema.field("money"), pa.array(money, pa.int64()))
        return rows.append_column("hit", pa.array([name in changes for name in names], pa.bool_()))

    return run


def _hits(gone: set[str]) -> Program:
    def run(rows: pa.Table) -> pa.Table:
        return rows.append_column("hit", pc.is_in(rows["name"], pa.array(sorted(gone))))

    return run
