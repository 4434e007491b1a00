"""One native table behind the loaded files: which of its rows are whose.

Each row carries a tag: a label, and its place in its data file. A file has the rows of one label, until another one is
derived from it that lacks some: those rows get a label of their own then, which the former file has, too. What an
earlier process has left is known by the marks of its files, until somebody gives them ids.

The rows of data files on their way into a native table: each tagged, counted and measured.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from ballista_py.engines.apart.large import LargeByFile
from ballista_py.engines.duckdb.alter import alter_native
from ballista_py.engines.duckdb.errors import translate
from ballista_py.engines.duckdb.kept_list import KeptFile, KeptTable
from ballista_py.engines.duckdb.large_rows import ROW_NUMBER
from ballista_py.engines.duckdb.library import duckdb
from ballista_py.engines.duckdb.types import quoted, whole_batch
from ballista_py.errors import SchemaMismatch
from ballista_py.partitions.columns import two_alike
from ballista_py.sql.rewrite import PLACE
from ballista_py.storage.formats.deletion_vector import Places
from ballista_py.storage.formats.files import Loadable

FILE_ID = "__file_id"  # of a row: the label above, its place in the data file below
PLACE_BITS = 32


def tags(label: int, places: Places) -> Places:
    """What rows at these places of a file are tagged with, under a label."""
    return (np.int64(label) << PLACE_BITS) + places


class TaggedRows:
    """The rows of files as one stream, each with its tag in front. Keeps the error that a file raised."""

    def __init__(
        self, schema: pa.Schema, files: Sequence[Loadable], labels: Mapping[int, int], counts: dict[int, int]
    ) -> None:
        self.error: BaseException | None = None
        self._schema = schema
        self._files = files
        self._labels = labels
        self._counts = counts
        self.bytes = 0
        self.large = LargeByFile()

    @property
    def rows(self) -> int:
        return sum(self._counts.values())

    def reader(self) -> pa.RecordBatchReader:
        fields = [(FILE_ID, pa.int64()), *zip(self._schema.names, self._schema.types, strict=True)]
        return pa.RecordBatchReader.from_batches(pa.schema(fields), self._batches(pa.schema(fields)))

    def _batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        try:
            for file in self._files:
                for places, batch in file.numbered(self._schema):
                    tag = pa.array(tags(self._labels[file.file_id], places))
                    self._counts[file.file_id] += batch.num_rows
                    self.bytes += batch.nbytes
                    self.large.note(file.file_id, batch)
                    yield whole_batch(pa.RecordBatch.from_arrays([tag, *batch.columns], schema=schema))
        except GeneratorExit:  # nobody reads on, which is no error of the rows
            raise
        except BaseException as error:
            self.error = error
            raise


MAX_RANGES = 2  # beyond it a join with the labels is faster
_PLACES = (1 << PLACE_BITS) - 1
_MOVED = "rows that are gone"
MAX_LABELS = 1 << 29  # of either kind in a table that a process takes over
FIRST_GONE = 1 << 30  # of labels of rows that are gone from some file: apart from others they make fewer ranges


class HeldTable:
    """One native table. `name` is its quoted, qualified name; `rows` counts the rows of each loaded file.

    `labels` are those of each loaded file, `marks` tell some of them from every other file there is. Those that nobody
    has given an id yet have one below 0, by their mark in `waiting`. Changed by one thread at a time.
    """

    def __init__(self, name: str, schema: pa.Schema) -> None:
        self.name = name
        self.schema = schema
        self.columns = ", ".join(quoted(column) for column in schema.names)
        self.rows: dict[int, int] = {}
        self.labels: dict[int, frozenset[int]] = {}
        self.marks: dict[int, str] = {}
        self.waiting: dict[str, int] = {}
        self.definition = 0
        self.large = LargeByFile()
        self._last_label, self._last_gone = 0, FIRST_GONE
        self._all: list[int] | None = None  # labels, in order; None after a change

    @classmethod
    def create(
        cls,
        connection: duckdb.DuckDBPyConnection,
        name: str,
        schema: pa.Schema,
        table: str,
        *,
        tagged: bool = True,
    ) -> HeldTable:
        """Make the native table, with the tag in front of the columns. Raises `SchemaMismatch`."""
        tag = f"0::bigint as {FILE_ID}," if tagged else ""
        if not all(name and "\0" not in name for name in schema.names):
            raise SchemaMismatch(f"table '{table}' has a column whose name is empty or holds a NUL", table=table)
        try:
            connection.register("no rows ", schema.empty_table())
            try:
                connection.execute(f'create table {name} as select {tag} * from "no rows "')
            finally:
                connection.unregister("no rows ")
        except (duckdb.Error, pa.ArrowException) as error:
            reason = translate(error, "").message
            raise SchemaMismatch(f"table '{table}' cannot be held by this engine: {reason}", table=table) from None
        made = [column[0] for column in connection.execute(f"from {name} limit 0").description]
        if made[len(made) - len(schema) :] != schema.names:  # DuckDB renames one of two that differ in case only
            connection.execute(f"drop table {name}")
            taken = FILE_ID in map(str.lower, schema.names)
            what = f"a column named {FILE_ID}" if taken else two_alike(schema.names)
            raise SchemaMismatch(f"table '{table}' has {what}", table=table)
        return cls(name, schema)

    @classmethod
    def restored(cls, name: str, kept: KeptTable) -> tuple[HeldTable, set[int]]:
        """The native table as it was kept, every file in it waiting; and those that nobody can ask for."""
        made, lost = cls(name, kept.schema), set()
        made._last_label, made._last_gone = kept.last_label, kept.last_gone
        made.definition = kept.definition
        for number, file in enumerate(kept.files, 1):
            made.rows[-number], made.labels[-number] = file.rows, file.labels
            made.large.restore(-number, file.large)
            if file.mark and file.mark not in made.waiting:
                made.marks[-number] = file.mark
                made.waiting[file.mark] = -number
            else:
                lost.add(-number)
        return made, lost

    def kept(self, native: str, name: str) -> KeptTable:
        """The native table as it is, for the list of what is kept."""
        return KeptTable(
            native=native,
            name=name,
            schema=self.schema,
            definition=self.definition,
            last_label=self._last_label,
            last_gone=self._last_gone,
            files=tuple(
                KeptFile(
                    mark=self.marks.get(file_id, ""),
                    rows=self.rows[file_id],
                    labels=labels,
                    large=self.large.said(file_id),
                )
                for file_id, labels in self.labels.items()
            ),
        )

    def take_back(self, marks: Mapping[int, str]) -> set[int]:
        """Give files that wait the ids under which they are asked for by their marks; which of the ids have rows."""
        found = set()
        for file_id, mark in marks.items():
            before = self.waiting.pop(mark, None)
            if before is not None:
                self.rows[file_id], self.labels[file_id] = self.rows.pop(before), self.labels.pop(before)
                self.marks[file_id] = self.marks.pop(before)
                self.large.copy(before, file_id)
                self.large.forget(before)
                found.add(file_id)
        return found

    def altered(self, connection: duckdb.DuckDBPyConnection, schema: pa.Schema) -> HeldTable | None:
        """The same native table with other columns, in one transaction; None, and nothing done, if it cannot be."""
        if not alter_native(connection, self.name, self.schema, schema):
            return None
        made = HeldTable(self.name, schema)
        made.rows, made.labels = self.rows, self.labels
        made.marks, made.waiting, made.definition = self.marks, self.waiting, self.definition
        made._last_label, made._last_gone = self._last_label, self._last_gone
        made.large = self.large.under(schema.names)
        return made

    def new_label(self) -> int:
        """One that no row has."""
        self._last_label += 1
        return self._last_label

    def labels_of(self, file_ids: Iterable[int]) -> set[int]:
        """The labels under which the rows of these files stand."""
        return set().union(*(self.labels[file_id] for file_id in file_ids))

    def show(self, cursor: duckdb.DuckDBPyConnection, table: str, file_ids: set[int]) -> None:
        """Make `table` a view of exactly these loaded files. It names the columns, not the tag."""
        rows = self.rows_of(file_ids)
        if rows is None:
            # The name is none that a table can have, so no statement and no other table means it.
            wanted = f"Files of {table} "
            labels = sorted(self.labels_of(file_ids))
            cursor.register(wanted, pa.table({"id": pa.array(labels, pa.int64())}))
            within = _within([(labels[0], labels[-1])])
            rows = self._select(
                f"where {within} and {FILE_ID} >> {PLACE_BITS} in (select id from {quoted(wanted)})"
            )
        cursor.execute(f"create temp view {quoted(table)} as {rows}")

    def rows_of(self, file_ids: set[int]) -> str | None:
        """A SELECT of the rows of exactly these loaded files; None if it takes more than `MAX_RANGES` ranges."""
        if not file_ids:
            return self._select("where false")
        spans = self._spans(self.labels_of(file_ids))
        if len(spans) > MAX_RANGES:
            return None
        return self._select("" if file_ids == self.rows.keys() else f"where {_within(spans)}")

    def numbered(self, file_ids: set[int]) -> str:
        """A SELECT of the rows of exactly these loaded files, their numbers as last column."""
        spans = self._spans(self.labels_of(file_ids))
        where = _within(spans) if spans else "false"
        return f"select {self.columns}, rowid as {quoted(ROW_NUMBER)} from {self.name} where {where}"

    def placed(self, file_id: int) -> str:
        """A SELECT of the rows of a loaded file, their places in it as last column."""
        within = _within(self._spans(self.labels_of({file_id})))
        return f"select {self.columns}, {FILE_ID} & {_PLACES} as {quoted(PLACE)} from {self.name} where {within}"

    def derive(self, loader: duckdb.DuckDBPyConnection, of: int, gone: Places) -> dict[int, int] | None:
        """Give the rows at these places of a file labels of their own, in the transaction of `loader`.

        The new label by the one that they had; None if the file does not have all of these rows.
        """
        moved: dict[int, int] = {}
        count = 0
        for label in sorted(self.labels[of]):
            self._last_gone += 1
            new = self._last_gone
            loader.register(_MOVED, pa.table({"tag": tags(label, gone)}))
            try:
                done = loader.execute(
                    f"update {self.name} set {FILE_ID} = {FILE_ID} + {(new - label) << PLACE_BITS} "
                    f"where {FILE_ID} in (select tag from {quoted(_MOVED)}) and {_within([(label, label)])}"
                ).fetchone()
            finally:
                loader.unregister(_MOVED)
            assert done is not None
            if done[0]:
                moved[label] = new
                count += done[0]
        return moved if count == len(gone) else None

    def derived(self, file_id: int, of: int, moved: dict[int, int], gone: int) -> None:
        """Note what was derived: every file that has the rows of a label keeps those that are labelled anew."""
        before = self.labels[of]
        for known, labels in self.labels.items():
            if not labels.isdisjoint(moved):
                self.labels[known] = labels | {moved[label] for label in labels & moved.keys()}
        self.labels[file_id] = before
        self.rows[file_id] = self.rows[of] - gone
        self.large.copy(of, file_id)
        self._all = None

    def loaded(self, counts: Mapping[int, int], labels: Mapping[int, int], large: LargeByFile) -> None:
        """Note what was loaded: how many rows of each file, under which label."""
        self.rows.update(counts)
        self.labels.update({file_id: frozenset((label,)) for file_id, label in labels.items()})
        self.large.take(large)
        self._all = None

    def without(self, file_ids: set[int]) -> str | None:
        """The condition of the rows that nobody has without these files; None if there are none."""
        left = self.labels_of(self.labels.keys() - file_ids)
        if not left:
            return "true"
        spans = self._spans(self.labels_of(file_ids) - left)
        return _within(spans) if spans else None

    def forget(self, file_ids: set[int]) -> None:
        """Note that files are not loaded any more."""
        for file_id in file_ids:
            del self.rows[file_id], self.labels[file_id]
            mark = self.marks.pop(file_id, "")
            if self.waiting.get(mark) == file_id:
                del self.waiting[mark]
            self.large.forget(file_id)
        self._all = None

    def _spans(self, labels: set[int]) -> list[tuple[int, int]]:
        if self._all is None:
            self._all = sorted(self.labels_of(self.labels))
        return ranges(labels, self._all)

    def _select(self, where: str) -> str:
        return f"select {self.columns} from {self.name} {where}"


def _within(spans: Sequence[tuple[int, int]]) -> str:
    """The condition that a row has one of the labels in these ranges."""
    bounds = [(low << PLACE_BITS, (high << PLACE_BITS) | _PLACES) for low, high in spans]
    return "(" + " or ".join(f"{FILE_ID} between {low} and {high}" for low, high in bounds) + ")"


def ranges(wanted: Collection[int], loaded: Sequence[int]) -> list[tuple[int, int]]:
    """The fewest inclusive ranges that hold all `wanted` and no other of the `loaded` labels, both in order.

    DuckDB skips whole row groups for a range, and looks at every row for a list.

    >>> ranges({1, 2, 3, 8, 9}, [1, 2, 3, 7, 8, 9])
    [(1, 3), (8, 9)]
    >>> ranges({1, 2, 3, 8, 9}, [1, 2, 3, 8, 9, 20])
    [(1, 9)]

    None goes from labels of rows that are there to those of rows that are gone: what is loaded next is between.

    >>> ranges({3, FIRST_GONE + 1}, [3, FIRST_GONE + 1])
    [(3, 3), (1073741825, 1073741825)]
    """
    found: list[tuple[int, int]] = []
    open_range = False
    for label in loaded:
        if label not in wanted:
            open_range = False
        elif open_range and (label < FIRST_GONE or found[-1][1] >= FIRST_GONE):
            found[-1] = (found[-1][0], label)
        else:
            found.append((label, label))
            open_range = True
    return found
