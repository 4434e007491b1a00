"""What there was, by every commit of the catalog, and what clients were told: readers and the end are held against it.

Each row says by its name what it must have in every column: a number that follows from the name and from what the
column is called in files. So a value that got under another column, or of a dropped one that came back, is seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeAlias
from zlib import crc32

import pyarrow as pa
from attrs import define, field, frozen

from ballista_py.partitions.columns import initial_of, is_required, stored_name
from ballista_py.partitions.table import TableSpec
from ballista_py.state.documents.documents import ClusterDocument
from ballista_py.testing.simulation.owners.site import Book

KEY = "name"
MAX_VALUE = 1_000_000
NULLS = 4  # of so many values one is none
Column: TypeAlias = tuple[str, str]  # the folder of its table, and what it is called in files


@frozen
class Catalog:
    """The tables by their names, from an instant on."""

    since_ms: float
    tables: Mapping[str, TableSpec]


@define
class Ledger:
    """The truth. `book` takes what is wrong."""

    book: Book
    catalogs: list[Catalog] = field(factory=list)
    written: dict[str, list[dict[str, int | None]]] = field(
        factory=dict
    )  # by row: what attempts gave, by stored name
    rows: dict[str, tuple[str, float]] = field(factory=dict)  # acknowledged: the folder, and when
    deleting: set[str] = field(factory=set)
    deleted: dict[str, float] = field(factory=dict)
    columns: dict[Column, set[str]] = field(factory=dict)  # that were added: what each is called no more
    dropping: set[Column] = field(factory=set)
    dropped: set[Column] = field(factory=set)
    gone: set[str] = field(factory=set)  # folders that were replaced
    drops: int = 0  # that were sent and are not seen yet

    def note(self, now_ms: float, cluster: ClusterDocument) -> None:
        """Take in a commit of the catalog."""
        before = self.now() if self.catalogs else {}
        if len(cluster.tables) < len(before):
            self.book.expect(
                self.drops > 0, f"there are {len(cluster.tables)} tables, and there were {len(before)}"
            )
            self.drops -= 1
        here = {table.folder for table in cluster.tables.values()}
        back = sorted(here & self.gone)
        if back:
            self.book.wrong.append(f"'{back[0]}', which was replaced, is a table again")
        self.gone |= {table.folder for table in before.values()} - here
        self.catalogs.append(Catalog(now_ms, dict(cluster.tables)))

    def now(self) -> Mapping[str, TableSpec]:
        """The tables by their names."""
        return self.catalogs[-1].tables

    def within(self, name: str, since_ms: float, until_ms: float) -> list[TableSpec | None]:
        """The tables, or definitions of one, that had the name at an instant between the two."""
        found = []
        for place, catalog in enumerate(self.catalogs):
            ends_ms = self.catalogs[place + 1].since_ms if place + 1 < len(self.catalogs) else float("inf")
            if catalog.since_ms <= until_ms and ends_ms >= since_ms:
                found.append(catalog.tables.get(name))
        return found

    def batch(self, table: TableSpec, names: Iterable[str]) -> pa.RecordBatch:
        """Rows of these names by the definition that the table has, which an attempt is about to write."""
        names = list(names)
        values = {stored_name(c): [value_of(name, c) for name in names] for c in table.schema if c.name != KEY}
        for place, name in enumerate(names):
            given = {stored: column[place] for stored, column in values.items()}
            self.written.setdefault(name, []).append(given)
        arrays = [
            pa.array(names if c.name == KEY else values[stored_name(c)], c.type, from_pandas=False)
            for c in table.schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=table.schema)

    def acknowledge(self, name: str, folder: str, rows: Iterable[str], began_ms: float, now_ms: float) -> None:
        """A client was told that its rows, sent for the table `name`, are in the one that has this folder."""
        had = [
            table for table in self.within(name, began_ms, now_ms) if table is not None and table.folder == folder
        ]
        self.book.expect(bool(had), f"rows for '{name}' went into '{folder}', which was not called so meanwhile")
        self.rows.update(dict.fromkeys(rows, (folder, now_ms)))

    def seen(self, name: str, table: TableSpec | None, rows: pa.Table, began_ms: float, now_ms: float) -> None:
        """A reader of `name` saw these rows by a definition; None if there was no such table."""
        there = self.within(name, began_ms, now_ms)
        if table is None:
            self.book.expect(None in there, f"a reader found no table '{name}', and there was one all the time")
            return
        meant = [one for one in there if one is not None]
        right = [one for one in meant if (one.folder, one.definition) == (table.folder, table.definition)]
        shown = f"'{table.folder}' by definition {table.definition}"
        self.book.expect(bool(right), f"a reader of '{name}' saw {shown}, which it was not meanwhile")
        known = {row for row, (folder, at_ms) in self.rows.items() if folder == table.folder and at_ms <= began_ms}
        gone = {row for row, at_ms in self.deleted.items() if at_ms <= began_ms}
        self.judge(f"a reader of '{name}'", table, rows, known, gone)

    def judge(self, who: str, table: TableSpec, rows: pa.Table, known: set[str], gone: set[str]) -> None:
        """Hold rows against what was acknowledged of the table, and against its definition."""
        book = self.book
        book.expect(
            rows.schema.names == table.schema.names, f"{who} saw {rows.schema.names} of {table.schema.names}"
        )
        names = rows[KEY].to_pylist()
        twice = [name for name, count in Counter(names).items() if count > 1]
        book.expect(not twice, f"{who} saw '{min(twice, default='')}' twice")
        missing = known - set(names) - self.deleting
        book.expect(not missing, f"{who} missed '{min(missing, default='')}', which was acknowledged")
        book.expect(gone.isdisjoint(names), f"{who} saw a deleted row")
        for name in names:
            folder = self.rows.get(name, (table.folder, 0.0))[0]
            book.expect(folder == table.folder, f"{who} saw '{name}' of '{folder}' in '{table.folder}'")
        for column in table.schema:
            if column.name != KEY and column.name in rows.schema.names:
                self._judge_column(who, column, names, rows[column.name].to_pylist())

    def _judge_column(self, who: str, column: pa.Field, names: list[str], values: list[int | None]) -> None:
        stored, constant = stored_name(column), initial_of(column)
        initial = None if constant is None else constant[0].as_py()
        for name, value in zip(names, values, strict=True):
            allowed = {attempt.get(stored, initial) for attempt in self.written.get(name, ())}
            what = (
                f"{who} saw {value} in column '{column.name}' of '{name}', which has {sorted(map(str, allowed))}"
            )
            self.book.expect(value in allowed, what)
            self.book.expect(value is not None or column.nullable, f"{who} saw no value in '{column.name}'")

    def judge_columns(self) -> None:
        """What clients were told of columns holds in the end: those that were added are there, as they were called."""
        for table in self.now().values():
            here = {(table.folder, stored_name(column)): column.name for column in table.schema}
            back = sorted(self.dropped & here.keys())
            self.book.expect(not back, f"column '{back[:1]}' of '{table.name}' was dropped and is there")
            for known, former in self.columns.items():
                if known[0] == table.folder and known not in self.dropping:
                    called = here.get(known, "")
                    self.book.expect(
                        bool(called), f"column '{known[1]}' of '{table.name}' was added and is not there"
                    )
                    self.book.expect(
                        called not in former, f"column '{known[1]}' is called '{called}' as it was before"
                    )


def value_of(row: str, column: pa.Field) -> int | None:
    """What a row has in a column."""
    found = crc32(f"{row}/{stored_name(column)}".encode())
    if found % NULLS == 0 and not is_required(column):
        return None
    return found % MAX_VALUE
