"""The `Engine` protocol: what a node needs of a SQL engine.

The same face serves an executor (files loaded, fragments run over some of them) and the merge at a scheduler
(streams of legs as relations, a bind of the statement against empty tables).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import pyarrow as pa

from ballista_py.engines.apart.change import ChangeOutcome
from ballista_py.errors import BallistaError
from ballista_py.storage.formats.deletion_vector import Places
from ballista_py.storage.formats.files import Loadable, LocalFile, RowsAtHand


class RunningQuery(Protocol):
    """A query under way. `batches` yields its rows lazily; `cancel` may come from any thread, more than once.

    With a `reason` its batches raise that.
    """

    schema: pa.Schema

    def batches(self) -> Iterator[pa.RecordBatch]: ...
    def cancel(self, reason: BallistaError | None = None) -> None: ...


class Engine(Protocol):
    """SQL over loaded files and registered streams. Safe to share between threads.

    Errors: `SqlError` for a statement that does not bind or fails on its data, in one line; `MergeTooLarge` when
    the engine ran out of memory and of spill space.
    """

    dialect: str  # sqlglot's name of the SQL it speaks

    def create_table(self, table: str, schema: pa.Schema) -> None:
        """Make an empty table; a table of that name and schema may exist already."""
        ...

    def alter_table(self, table: str, schema: pa.Schema) -> bool:
        """Give a table, with what is loaded of it, other columns; False, and nothing done, where that cannot be.

        Columns are told by their stored names (`planning.columns`). Queries that already run see none of it.
        """
        ...

    def drop_table(self, table: str) -> None:
        """Forget a table and all its files; a missing table is fine."""
        ...

    def load(self, table: str, files: Sequence[Loadable]) -> int:
        """Make the rows of `files` readable, all or none; a loaded file is skipped. Returns the rows loaded."""
        ...

    def unload(self, table: str, file_ids: Iterable[int]) -> None:
        """Forget files; queries that already run over them finish undisturbed."""
        ...

    def derive(self, table: str, file_id: int, of: int, gone: Places) -> bool:
        """Make the rows of a loaded file but for those at the places `gone` readable as another file, by its new id.

        False, and nothing done, where that cannot be: then the file is to be loaded."""
        ...

    def places(
        self, table: str, file_id: int, sql: str, streams: Mapping[str, pa.Table] | None = None
    ) -> Places | None:
        """The places, ascending, in a loaded file of the rows of which `sql`, over it, gives the column `PLACE`.

        None if they are not known, or the statement is none that runs beside others."""
        ...

    def watch(self) -> None:
        """Look what the process and those of its engine take; a node calls it ten times a second."""
        ...

    def tidy(self) -> None:
        """Do what may wait until there is time; a node calls it now and then."""
        ...

    def query(
        self,
        sql: str,
        scans: Mapping[str, Iterable[int]] | None = None,
        streams: Mapping[str, pa.RecordBatchReader | pa.Table] | None = None,
    ) -> RunningQuery:
        """Run `sql`. Each table named in `scans` shows exactly the rows of those file ids; each name in
        `streams` is a relation over that stream, which is read once and lazily."""
        ...

    def describe(self, sql: str, schemas: Mapping[str, pa.Schema]) -> pa.Schema:
        """The result schema of `sql` over empty tables of these schemas: names and types as of a single node."""
        ...

    def parameters(self, sql: str) -> frozenset[str]:
        """The names of the parameters in `sql`, which may be any statement; `?` are numbered from 1."""
        ...

    def parameter_columns(self, sql: str) -> tuple[str | None, ...]:
        """For each item of a query's list: what one node calls that column, if it has a parameter and no name.

        Empty for what is no query, or has no list of that kind."""
        ...

    def require_change(self, sql: str) -> None:
        """Raise `SqlError`, with its position, unless `sql` is one statement that changes something."""
        ...

    def bind_change(self, sql: str, schemas: Mapping[str, pa.Schema], same: str | None = None) -> bool:
        """Whether a statement that changes a table of these schemas has the same plan as `same`; it must bind."""
        ...

    def types(self, sql: str, schemas: Mapping[str, pa.Schema]) -> tuple[tuple[str, str], ...]:
        """Name and type, as the engine's SQL writes it, of each column that `sql` gives."""
        ...

    def described(
        self, sql: str, schemas: Mapping[str, pa.Schema], keys: Mapping[str, Sequence[str]]
    ) -> tuple[tuple[str | None, ...], ...]:
        """What DESCRIBE says of each column that `sql` gives: name, type, whether it may be null, key, default."""
        ...

    def declared(self, sql: str) -> tuple[tuple[str, str], ...]:
        """Name and type of each column that a CREATE TABLE declares."""
        ...

    def sql_types(self, schema: pa.Schema) -> tuple[str, ...]:
        """The types of the columns as the engine's SQL writes them."""
        ...

    def change(
        self,
        sql: str,
        table: str,
        rows: pa.RecordBatchReader,
        others: Mapping[str, pa.RecordBatchReader],
        memory_limit: str,
        key: Sequence[str] = (),
        returning: bool = False,
    ) -> AbstractContextManager[ChangeOutcome]:
        """What `sql`, which changes `table` (these `rows`) and may read `others`, does; until the block ends."""
        ...

    def close(self) -> None:
        """Release everything; running queries are cancelled."""
        ...


__all__ = ["Engine", "Loadable", "LocalFile", "RowsAtHand", "RunningQuery"]
