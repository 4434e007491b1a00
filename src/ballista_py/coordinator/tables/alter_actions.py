"""What the words of an ALTER TABLE make of the declaration of a table: each action as a function of its definition."""

from __future__ import annotations

import re

import pyarrow as pa
from attrs import frozen

from ballista_py.coordinator.tables.follows import require_follows
from ballista_py.coordinator.tables.held_columns import require_columns
from ballista_py.coordinator.writes.checks import RowChecks
from ballista_py.errors import ConfigError, SqlError
from ballista_py.partitions import alterations
from ballista_py.partitions.alterations import Alter
from ballista_py.partitions.bounds import MAX_DEFAULT_CHARS, require_bounded, require_chars
from ballista_py.partitions.columns import is_required
from ballista_py.partitions.table import TableSpec
from ballista_py.sql.parse.alterations import (
    AddColumn,
    Alteration,
    DropColumn,
    RenameColumn,
    RenameTable,
    SetDefault,
    SetFollows,
    SetRequired,
    SetTableOption,
    SetType,
)
from ballista_py.storage.formats.formats import require_held

_WORD = re.compile(r'"((?:[^"]|"")*)"|(\w+)')


@frozen
class AlterActions:
    """Makes out, with the engine of a node, what is to be done to whatever is the newest definition then."""

    checks: RowChecks

    def of(self, table: str, action: Alteration) -> Alter:
        """What is to be done to whatever is the newest definition then."""
        if isinstance(action, AddColumn):
            return self._added(table, action)
        if isinstance(action, DropColumn):
            return lambda now: alterations.drop_column(now, action.name, mentions, if_exists=action.if_exists)
        if isinstance(action, RenameTable):
            return lambda now: self._renamed(now, action.to)
        if isinstance(action, RenameColumn):
            return lambda now: alterations.rename_column(now, action.name, action.to, mentions)
        if isinstance(action, SetDefault):
            return lambda now: self._defaulted(now, action)
        if isinstance(action, SetRequired):
            return lambda now: alterations.set_optional(now, action.name)
        if isinstance(action, SetType):
            kind = self.checks.type_of(table, action.name, action.kind)
            return lambda now: alterations.set_type(now, action.name, kind, mentions)
        if isinstance(action, SetTableOption):
            return lambda now: alterations.set_option(now, action.name, action.value)
        if isinstance(action, SetFollows):
            return lambda now: self._following(now, action)
        return lambda now: alterations.set_comment(now, action.name, action.text)

    def _added(self, table: str, action: AddColumn) -> Alter:
        kind = self.checks.type_of(table, action.name, action.kind)
        column = pa.field(action.name, kind, not action.required)
        initial = self._constant(column, action.default)
        return lambda now: alterations.add_column(
            now, column, initial, action.default, if_not_exists=action.if_not_exists
        )

    def _following(self, now: TableSpec, action: SetFollows) -> TableSpec:
        wanted = alterations.set_follows(now, action.refresh, action.retention)
        if wanted is not now:
            require_follows(wanted)
            if wanted.retention is not None:
                self.checks.require_retention(wanted.name, wanted.schema, wanted.retention)
        return wanted

    def _renamed(self, now: TableSpec, to: str) -> TableSpec:
        wanted = alterations.rename_table(now, to)
        if now.retention is not None and wanted is not now:
            raise SqlError(f"table '{now.name}' has a retention, which names it, so it cannot be renamed")
        try:
            self.checks.require_valid(to, now.schema, now.checks)
        except SqlError:
            raise SqlError(f"table '{now.name}' has a CHECK that names it, so it cannot be renamed") from None
        return wanted

    def _defaulted(self, now: TableSpec, action: SetDefault) -> TableSpec:
        column = now.schema.field(alterations.column_of(now, action.name))
        value = self._constant(column, action.default)
        if value.null_count and action.default is not None and is_required(column):
            raise SqlError(f"column '{column.name}' of table '{now.name}' is NOT NULL: NULL cannot be its default")
        return alterations.set_default(now, action.name, action.default)

    def _constant(self, column: pa.Field, text: str | None) -> pa.Array:
        """The value of a default, of which nothing is worked out that is too long to be one. Raises `SqlError`."""
        try:
            require_chars(text, MAX_DEFAULT_CHARS, f"the default of column '{column.name[:80]}'")
        except ConfigError as error:
            raise SqlError(error.message) from None
        return self.checks.constant(column, text)

    def checked(self, alter: Alter) -> Alter:
        """The same, held against what engines and files can hold."""

        def checked(now: TableSpec) -> TableSpec:
            wanted = alter(now)
            if wanted is not now:
                try:
                    require_bounded(wanted, now)
                    require_columns(wanted.name, wanted.schema)
                    require_held(wanted.name, wanted.file_format, wanted.schema)
                except ConfigError as error:
                    raise SqlError(error.message) from None
            return wanted

        return checked


def mentions(condition: str) -> frozenset[str]:
    """The names in a condition, in lower case; also words that are none."""
    found = _WORD.findall(condition)
    return frozenset((quoted_.replace('""', '"') or word).lower() for quoted_, word in found)
