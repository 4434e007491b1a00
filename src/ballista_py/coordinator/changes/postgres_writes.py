"""A table of a PostgreSQL database to which statements are written, each in one transaction together with its token.

What goes there are values, computed here, as parameters of a few statements that are always the same, for rows that are
told by the primary key of the one table that was declared. No text of a client is among them. Rows are locked and told
before they are changed, so that whoever computed from them can see whether they are still what they were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

import pyarrow as pa
from attrs import define, field, frozen

from ballista_py.coordinator.changes.pgoutput import lsn
from ballista_py.coordinator.changes.postgres_link import PostgresLink
from ballista_py.coordinator.changes.postgres_rows import MESSAGE_PREFIX
from ballista_py.coordinator.changes.postgres_types import values
from ballista_py.coordinator.changes.postgres_values import WrittenColumn, texts
from ballista_py.coordinator.changes.row_changes import (
    RowChanges,
    changed_columns,
)
from ballista_py.coordinator.changes.source_writer import LockedRows, Written
from ballista_py.errors import SchemaMismatch, SourceUnfit, TryLater
from ballista_py.partitions.same_key import keys_of_rows
from ballista_py.partitions.table import TableSpec

STATEMENTS_TABLE = "ballista_py_statements"
OLDEST_SERVER = 140_000  # which tells messages of applications in its log
IDLE_MS = 15_000  # after which the database ends a transaction that somebody began and does not go on with
ROWS_AT_ONCE = 10_000
FORGOTTEN_AT_ONCE = 1_000


@frozen(kw_only=True)
class _There:
    """The table as the database has it now: its name in SQL, its columns here by name, the key of its rows."""

    table: str
    columns: dict[str, WrittenColumn]
    key: tuple[str, ...]
    statements: str  # the table of tokens, beside it

    def quoted(self, name: str) -> str:
        return self.columns[name].quoted.replace("%", "%%")


def open_postgres_writer(table: TableSpec, source: Mapping[str, Any]) -> PostgresWriter:
    """What writes to the source of a table, whose secrets are in their places; nothing is connected yet."""
    return PostgresWriter(table, PostgresLink(table.name, source["table"], source["dsn"]))


@define(eq=False)
class PostgresWriter:
    """See `SourceWriter`. `table` follows the table `link.there`, and is written through."""

    table: TableSpec
    link: PostgresLink
    _known_there: _There | None = field(default=None, init=False)

    # What is made, and asked for, when the table is.

    def prepare(self) -> None:
        """Make the table of tokens, and see that all that statements need is allowed.

        Raises `SourceUnfit` naming the right that is missing and the statement that gives it.
        """
        try:
            there = self._there()
            found = self.link.ask("select to_regclass(%s) is not null", there.statements.replace("%%", "%"))
            if not found[0][0]:
                self._make(there)
            self._require_rights(there)
            self.link.commit()
        finally:
            self.link.roll_back()

    def _make(self, there: _There) -> None:
        name = there.statements
        made = (
            f"CREATE TABLE IF NOT EXISTS {name} (token text PRIMARY KEY, changed_table text NOT NULL, "
            "affected bigint NOT NULL, at timestamptz NOT NULL DEFAULT now())"
        )
        try:
            self.link.ask(made.replace("%%", "%"))
            self.link.commit()
        except (SourceUnfit, SchemaMismatch) as error:
            self.link.roll_back()
            if self.link.ask("select to_regclass(%s) is not null", name.replace("%%", "%"))[0][0]:
                return  # somebody else made it meanwhile
            raise SourceUnfit(
                f"{error.message}: statements are written there together with their tokens; run {made} there, and "
                f"GRANT SELECT, INSERT, UPDATE, DELETE ON {name} to the user of the dsn"
            ) from None

    def _require_rights(self, there: _There) -> None:
        for name in (there.table, there.statements):
            plain = name.replace("%%", "%")
            rights = self.link.ask(_RIGHTS, plain, plain, plain, plain)[0]
            lacking = [right for right, given in zip(_NEEDED, rights, strict=True) if not given]
            if lacking:
                raise SourceUnfit(
                    f"table '{self.table.name}' is written through, and its user at the source may not "
                    f"{', '.join(lacking)} there: run GRANT {', '.join(lacking)} ON {plain} TO it"
                )
        columns = {row[0] for row in self.link.ask(_THEIR_COLUMNS, there.statements.replace("%%", "%"))}
        if not columns >= {"token", "changed_table", "affected", "at"}:
            raise SourceUnfit(
                f"{there.statements} at the source of table '{self.table.name}' is not the table of tokens that "
                "statements are written with: give it another name there"
            )

    # As a `SourceWriter`.

    def key(self) -> tuple[str, ...]:
        """See `SourceWriter.key`."""
        try:
            return self._there().key
        finally:
            self.link.roll_back()

    def known(self, token: str) -> Written | None:
        """See `SourceWriter.known`."""
        try:
            there = self._there()
            found = self.link.ask(
                f"select affected from {there.statements} where token = %s", self._id(there, token)
            )
            return Written(affected=int(found[0][0]), repeated=True) if found else None
        finally:
            self.link.roll_back()

    def write(self, token: str, make: Callable[[LockedRows], RowChanges], limit_ms: float) -> Written:
        """See `SourceWriter.write`."""
        try:
            self._begin(limit_ms)
            there = self._there()
            mine = self._id(there, token)
            if not self.link.change(
                f"insert into {there.statements} (token, changed_table, affected) values (%s, %s, 0) "
                "on conflict (token) do nothing",
                mine,
                there.table.replace("%%", "%"),
            ):
                return self._before(there, mine)
            changes = make(_LockedRows(self, there))
            self._apply(there, changes)
            self.link.change(
                f"update {there.statements} set affected = %s where token = %s", changes.affected, mine
            )
            self.link.commit()
            return Written(affected=changes.affected)
        finally:
            self.link.roll_back()

    def reached(self) -> int:
        """See `SourceWriter.reached`: a message in the log, which the reader of this table takes for its own."""
        try:
            place = self.link.ask(_MESSAGE, MESSAGE_PREFIX, self.table.folder)[0][0]
            self.link.commit()
            return lsn(place)
        finally:
            self.link.roll_back()

    def forget(self, kept_s: float) -> int:
        """See `SourceWriter.forget`."""
        try:
            there = self._there()
            count = self.link.change(
                f"delete from {there.statements} where token in (select token from {there.statements} "
                "where at < now() - make_interval(secs => %s) limit %s for update skip locked)",
                kept_s,
                FORGOTTEN_AT_ONCE,
            )
            self.link.commit()
            return count
        finally:
            self.link.roll_back()

    def close(self) -> None:
        """See `SourceWriter.close`."""
        self.link.close()

    # How it is written.

    def _begin(self, limit_ms: float) -> None:
        limit = f"{max(1, round(limit_ms))}ms"
        self.link.ask("set transaction isolation level read committed")
        self.link.ask(_LIMITS, limit, limit, f"{IDLE_MS}ms")

    def _id(self, there: _There, token: str) -> str:
        """The token as it is kept: of one length, however long the client's is."""
        return sha256(f"{there.table}\0{token}".encode()).hexdigest()

    def _before(self, there: _There, mine: str) -> Written:
        found = self.link.ask(f"select affected from {there.statements} where token = %s", mine)
        if not found:
            raise TryLater(f"a token of table '{self.table.name}' is being forgotten: send the statement again")
        return Written(affected=int(found[0][0]), repeated=True)

    def _there(self) -> _There:
        """The table as it is there now. Raises `SourceUnfit` for one that cannot be written."""
        if self._known_there is not None:
            return self._known_there
        name, mine = self.link.there, f"table '{self.table.name}'"
        if int(self.link.ask("show server_version_num")[0][0]) < OLDEST_SERVER:
            raise SourceUnfit(f"{mine} is written through, which needs a PostgreSQL of version 14 or later")
        found = self.link.ask(_TABLE, name)
        if not found:
            raise SourceUnfit(f"the database has no table '{name}' that its user may see")
        oid, quoted, schema = found[0]
        columns = {row[0]: WrittenColumn(*row) for row in self.link.ask(_COLUMNS, oid)}
        lacking = next((one for one in self.table.schema.names if one not in columns), None)
        if lacking is not None:
            raise SourceUnfit(f"{name} has no column '{lacking}' any more, which {mine} has: make the table anew")
        key = tuple(row[0] for row in self.link.ask(_KEY, oid))
        if not key:
            raise SourceUnfit(
                f"{mine} is written through, and {name} has no primary key: run ALTER TABLE {name} ADD PRIMARY KEY (…) "
                "there"
            )
        outside = next((one for one in key if one not in self.table.primary_key), None)
        if outside is not None:
            raise SourceUnfit(
                f"{mine} is written through, and its primary key lacks '{outside}', which is in that of {name}: name "
                "it in primary_key=[…]"
            )
        statements = f"{schema}.{STATEMENTS_TABLE}".replace("%", "%%")
        self._known_there = _There(
            table=quoted.replace("%", "%%"), columns=columns, key=key, statements=statements
        )
        return self._known_there

    def locked(self, there: _There, keys: pa.Table) -> pa.Table:
        """The rows with these keys, locked in the order of the keys."""
        schema = pa.schema([pa.field(one.name, one.type) for one in self.table.schema])
        shown = ", ".join(f"t.{there.quoted(name)}::text" for name in schema.names)
        met, order = self._met(there), ", ".join(f"t.{there.quoted(name)}" for name in there.key)
        statement = (
            f"select {shown} from {there.table} as t, {self._given(there.key)} where {met} order by {order}"
        )
        found: list[tuple[str | None, ...]] = []
        distinct = list(dict.fromkeys(keys_of_rows(keys, there.key)))
        kinds = [self.table.schema.field(name).type for name in there.key]
        arrays = [
            pa.array([key[place] for key in distinct], kind) for place, kind in enumerate(kinds)
        ]  # sorted by the database
        rows = pa.Table.from_arrays(arrays, names=list(there.key))
        for part in self._parts(there, rows, there.key):
            found += self.link.ask(f"{statement} for update of t", *part)
        columns = list(zip(*found, strict=True)) or [()] * len(schema)
        return pa.Table.from_arrays(
            [
                values(self.link.there, one.name, cells, one.type)
                for one, cells in zip(schema, columns, strict=True)
            ],
            schema=schema,
        )

    def _apply(self, there: _There, changes: RowChanges) -> None:
        """Rows that go, then rows that are others, then rows that come."""
        met, key, table = self._met(there), there.key, there.table
        for part in self._parts(there, changes.gone, key):
            self._require(
                part, self.link.change(f"delete from {table} as t using {self._given(key)} where {met}", *part)
            )
        sets = changed_columns(changes, key) if len(changes.after) else []
        if sets:
            told = ", ".join(
                f"{there.quoted(name)} = u.c{len(key) + n}::{there.columns[name].cast}"
                for n, name in enumerate(sets)
            )
            for part in self._parts(there, changes.after, (*key, *sets)):
                statement = f"update {table} as t set {told} from {self._given((*key, *sets))} where {met}"
                self._require(part, self.link.change(statement, *part))
        names = ", ".join(there.quoted(name) for name in changes.columns)
        shown = ", ".join(f"u.c{n}::{there.columns[name].cast}" for n, name in enumerate(changes.columns))
        for part in self._parts(there, changes.come, changes.columns):
            statement = f"insert into {table} ({names}) select {shown} from {self._given(changes.columns)}"
            self._require(part, self.link.change(statement, *part))

    def _require(self, part: Sequence[Sequence[object]], done: int) -> None:
        if done != len(part[0]):
            raise SchemaMismatch(
                f"the source of table '{self.table.name}' took {done} of {len(part[0])} rows: a trigger or a policy "
                "there kept the others, and nothing was written"
            )

    def _given(self, names: Sequence[str]) -> str:
        """The relation `u` of the texts of so many columns."""
        arrays = ", ".join("%s::text[]" for _ in names)
        return f"unnest({arrays}) as u({', '.join(f'c{n}' for n in range(len(names)))})"

    def _met(self, there: _There) -> str:
        return " and ".join(
            f"t.{there.quoted(name)} = u.c{n}::{there.columns[name].cast}" for n, name in enumerate(there.key)
        )

    def _parts(self, there: _There, rows: pa.Table, names: Sequence[str]) -> Iterator[list[list[str | None]]]:
        """The texts of these columns, some rows at a time. Raises `SchemaMismatch` before any of them is given."""
        if not len(rows):
            return
        columns = [
            texts(self.table.name, there.columns[name], rows.column(name).combine_chunks()) for name in names
        ]
        for first in range(0, len(rows), ROWS_AT_ONCE):
            yield [column[first : first + ROWS_AT_ONCE] for column in columns]


@frozen
class _LockedRows:
    writer: PostgresWriter
    there: _There

    def rows(self, keys: pa.Table) -> pa.Table:
        """See `LockedRows.rows`."""
        return self.writer.locked(self.there, keys)


_NEEDED = ("SELECT", "INSERT", "UPDATE", "DELETE")
_RIGHTS = "select " + ", ".join(f"has_table_privilege(%s, '{right}')" for right in _NEEDED)
_TABLE = """
select c.oid::int8, quote_ident(n.nspname) || '.' || quote_ident(c.relname), quote_ident(n.nspname)
from pg_class c, pg_namespace n where c.oid = to_regclass(%s) and n.oid = c.relnamespace"""
_COLUMNS = """
select attname::text, quote_ident(attname), atttypid::int8, atttypmod from pg_attribute
where attrelid = %s and attnum > 0 and not attisdropped order by attnum"""
_KEY = """
select a.attname::text from pg_index i, unnest(i.indkey) with ordinality k(number, place), pg_attribute a
where i.indrelid = %s and i.indisprimary and a.attrelid = i.indrelid and a.attnum = k.number order by k.place"""
_THEIR_COLUMNS = """
select attname::text from pg_attribute where attrelid = to_regclass(%s) and attnum > 0 and not attisdropped"""
_LIMITS = """
select set_config('lock_timeout', %s, true), set_config('statement_timeout', %s, true),
set_config('idle_in_transaction_session_timeout', %s, true),
case when current_setting('synchronous_commit') = 'off' then set_config('synchronous_commit', 'on', true) end"""
_MESSAGE = "select pg_logical_emit_message(true, %s, %s)::text"
