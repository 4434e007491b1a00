"""What the datasets of a file declare, as an engine reads it: columns with their types, keys and conditions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from attrs import evolve, field, frozen

from ballista_py.coordinator.app.application import Application, DatasetColumn, DeclaredDataset, Problem
from ballista_py.coordinator.app.checks import in_order
from ballista_py.coordinator.tables.alter_actions import AlterActions
from ballista_py.coordinator.tables.declarations import declare_table
from ballista_py.coordinator.tables.held_columns import require_columns
from ballista_py.coordinator.writes.checks import RowChecks
from ballista_py.errors import BallistaError, ConfigError, SqlError
from ballista_py.partitions.alterations import Alter
from ballista_py.partitions.bounds import columns_in, require_bounded, require_count
from ballista_py.partitions.columns import COMMENT, with_said
from ballista_py.partitions.table import TableSpec, check_names
from ballista_py.remembered import Remembered
from ballista_py.sql.column_types import require_kept_schema
from ballista_py.sql.own_words import without_position
from ballista_py.sql.parse.alterations import Alteration
from ballista_py.sql.parse.changes import quoted, read_change, text_for_engine
from ballista_py.sql.parse.creates import CreateTable
from ballista_py.state.documents.documents import ClusterDocument
from ballista_py.storage.formats.formats import require_held

MAX_REMEMBERED, MAX_REMEMBERED_BYTES = 1_024, 8 << 20
COLUMN_BYTES = 512


@frozen
class Declarations:
    """Reads declarations with the engine of `checks`, each once. Thread-safe."""

    checks: RowChecks
    _read: Remembered[pa.Schema] = field(
        factory=lambda: Remembered(MAX_REMEMBERED, MAX_REMEMBERED_BYTES), init=False, eq=False
    )

    def schema(self, dataset: DeclaredDataset) -> pa.Schema:
        """The columns of a dataset without a source. Raises `SqlError` and `ConfigError`, naming what is wrong."""
        constraints = dataset.primary_key, dataset.checks, dataset.retention
        key = (dataset.name, dataset.columns, dataset.file_format, constraints)
        found = self._read.get(key)
        if found is None:
            found = self._schema(dataset)
            self._read.put(key, found, COLUMN_BYTES * len(found))
        return found

    def _schema(self, dataset: DeclaredDataset) -> pa.Schema:
        """The columns as the engine reads them.

        They are read as CREATE TABLE reads them, so that whatever it refuses is refused here.
        """
        try:
            made = self._made(dataset)
            schema = self.checks.schema(made)
        except SqlError as error:  # its place is one in a text that nobody wrote
            raise without_position(error) from None
        self.checks.require_valid(dataset.name, schema, dataset.checks)
        if dataset.retention is not None:
            self.checks.require_retention(dataset.name, schema, dataset.retention)
        said = {column.name: column.description for column in dataset.columns}
        schema = pa.schema([with_said(column, COMMENT, said[column.name]) for column in schema])
        require_count(dataset.name, columns_in(schema.types))
        check_names(dataset.name, schema.names, managed=True)
        require_columns(dataset.name, schema)
        require_kept_schema(dataset.name, schema)
        require_held(dataset.name, dataset.file_format or "parquet", schema)
        return schema

    def alteration(self, name: str, actions: Sequence[Alteration]) -> Alter:
        """All `actions` on a table at once: its definition as it will be, of one as it is. That raises what ALTER does.

        Raises `SqlError` and `ConfigError` for what an engine cannot read.
        """
        made = AlterActions(self.checks)
        alters = [made.checked(made.of(name, action)) for action in actions]

        def alter(now: TableSpec) -> TableSpec:
            for one in alters:
                now = one(now)
            return now

        return alter

    def table(self, dataset: DeclaredDataset, cluster: ClusterDocument) -> TableSpec:
        """The table that a dataset without a source would be in a cluster that has no table of its name.

        Raises what `schema` and `declare_table` raise.
        """
        schema = self.schema(dataset)
        declared = declare_table(
            evolve(cluster, tables={n: t for n, t in cluster.tables.items() if n != dataset.name}),
            dataset.name,
            schema,
            dataset.partition_by,
            distribution=dataset.distribution,
            colocate_with=dataset.colocate_with,
            primary_key=dataset.primary_key,
            checks=dataset.checks,
            file_format=dataset.file_format or "parquet",
            comment=dataset.description,
            refresh=dataset.refresh,
            retention=dataset.retention,
        )
        require_bounded(declared)
        return declared

    def sql_type(self, column: pa.Field) -> str:
        """The type of a column as SQL writes it."""
        return self.checks.engine.sql_types(pa.schema([column]))[0]

    def _made(self, dataset: DeclaredDataset) -> CreateTable:
        """The CREATE TABLE of the dataset, read again. Raises `SqlError` where a piece of it says more than it may."""
        pieces = [_declaration(column) for column in dataset.columns]
        if dataset.primary_key:
            pieces.append(f"PRIMARY KEY ({', '.join(map(quoted, dataset.primary_key))})")
        pieces += [f"CHECK ({check}\n)" for check in dataset.checks]
        # Each on a line of its own: a comment in one ends there, and swallows nothing of the others.
        text = f"CREATE TABLE {quoted(dataset.name)} (" + "\n, ".join(pieces) + "\n)"
        self.checks.engine.require_change(text_for_engine(text) or text)
        made = read_change(text)
        if not isinstance(made, CreateTable) or made.columns is None:
            raise SqlError("its columns cannot be told apart: write one type for each column")
        keys = {name.lower() for name in dataset.primary_key}
        wanted = tuple((c.name, c.nullable and c.name.lower() not in keys) for c in dataset.columns)
        for column, found in zip(wanted, made.columns, strict=False):
            if column != found:
                raise SqlError(f"column '{column[0]}': its type says more than a type")
        if len(wanted) != len(made.columns):
            raise SqlError("the type of a column declares others: write one type for each column")
        defaults = {c.name: c.default for c in dataset.columns if c.default and c.default.upper() != "NULL"}
        if dict(made.defaults) != defaults:
            raise SqlError("the default of a column is no single constant, or its type says more than a type")
        if [check.strip() for check in made.checks] != [check.strip() for check in dataset.checks]:
            raise SqlError("a check is no single condition")
        if [name.lower() for name in made.primary_key] != [name.lower() for name in dataset.primary_key]:
            raise ConfigError("its primary key is said by acceleration.primary_key alone")
        return made


def declared_problems(app: Application, declarations: Declarations) -> tuple[list[Problem], ClusterDocument]:
    """What an engine finds wrong with the columns, keys and conditions of datasets without a source.

    Beside it a catalog of those in which it finds nothing.
    """
    found: list[Problem] = []
    cluster = ClusterDocument()
    for dataset in in_order(app.datasets):
        if dataset.source is not None:
            continue
        alone = dataset
        mate = next((one for one in app.datasets if one.name == dataset.colocate_with), None)
        if mate is not None and mate.name not in cluster.tables:  # with a source, or wrong itself
            alone = evolve(dataset, colocate_with=None)
        try:
            cluster = cluster.with_table(declarations.table(alone, cluster))
        except BallistaError as error:
            path = app.path_of(dataset.name)
            pieces = [*_wrong_pieces(alone, declarations)] or [("", error.message)]
            found += [Problem(f"{path}{where}", text) for where, text in pieces]
    return found, cluster


def _wrong_pieces(dataset: DeclaredDataset, declarations: Declarations) -> Iterator[tuple[str, str]]:
    """Which pieces of a wrong dataset are wrong without the others, and how: where they stand below it.

    Nothing for one whose pieces are wrong together only.
    """
    bare = evolve(
        dataset, primary_key=(), checks=(), retention=None, partition_by=(), distribution="replicated",
        colocate_with=None,
    )  # fmt: skip

    def wrong(**pieces: Any) -> str:
        try:
            declarations.table(evolve(bare, **pieces), ClusterDocument())
        except BallistaError as error:
            return error.message
        return ""

    columns_are_right = True
    for number, column in enumerate(dataset.columns):
        plain = evolve(column, default=None)
        if text := wrong(columns=(plain,)):
            yield f".columns[{number}].type", text
        elif column.default is not None and (text := wrong(columns=(column,))):
            yield f".columns[{number}].default", f"{column.default} is no constant of its type: {text}"
        else:
            continue
        columns_are_right = False
    if not columns_are_right:
        return
    for check in dataset.checks:
        if text := wrong(checks=(check,)):
            yield ".checks", text
    if dataset.primary_key and (text := wrong(primary_key=dataset.primary_key)):
        yield ".acceleration.primary_key", text
    if dataset.retention is not None and (text := wrong(retention=dataset.retention)):
        yield ".acceleration.retention_sql", text
    if dataset.partition_by:
        split = {"partition_by": dataset.partition_by, "distribution": dataset.distribution}
        if text := wrong(**split):
            yield ".acceleration.partition_by", text


def _declaration(column: DatasetColumn) -> str:
    default = "" if column.default is None else f" DEFAULT {column.default}"
    return f"{quoted(column.name)} {column.kind}{'' if column.nullable else ' NOT NULL'}{default}"
