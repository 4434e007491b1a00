"""A table of a PostgreSQL database as a source of changes, by logical replication over ordinary connections.

Each copy has a replication slot of its own, which is the `log` of its positions: the slot is made together with the
snapshot that is copied, so the log goes on exactly where the copy ends. What was not confirmed is sent again. A slot is
dropped when a later copy was confirmed, or when its copy came to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
from attrs import define, field, frozen

from ballista_py.coordinator.changes.pgoutput import lsn, lsn_text, read_message
from ballista_py.coordinator.changes.postgres_copy import rows_of_copy
from ballista_py.coordinator.changes.postgres_form import (
    FORM,
    PREFIX,
    RIGHTS,
    UNIQUE,
    RelationForm,
    form_of,
    oid_in,
    publication_of,
    require_followable,
    require_published,
    require_rights,
    require_same,
    require_unique,
)
from ballista_py.coordinator.changes.postgres_link import driver as psycopg_module
from ballista_py.coordinator.changes.postgres_link import without_address
from ballista_py.coordinator.changes.postgres_rows import LogRows, require_declared, require_identity
from ballista_py.coordinator.changes.postgres_types import SESSION, column_type
from ballista_py.coordinator.changes.source import ChangeBatch, Described, SourceLag
from ballista_py.errors import ConfigError, SourceError, SourceLost, SourceUnavailable, SourceUnfit
from ballista_py.partitions.table import TableSpec
from ballista_py.state.documents.decisions import SourcePosition

CONNECT_S = 10
IDLE_BYTES = 16 << 20  # of log without a change of the table, after which it moves on nevertheless
MAX_BATCH_BYTES = 512 << 20  # of log, in one batch: a transaction comes whole
STREAMED_ROWS = 1_000
MAX_LOGS = 4  # of one table that nobody has confirmed or discarded
OPTIONS = frozenset(("format", "dsn", "table", "max_lag_bytes"))
_PASSING = frozenset(("42710", "42704"))  # what somebody else makes or drops just now


@frozen
class _Column:
    name: str
    type_id: int
    modifier: int
    shown: str
    required: bool
    filled: bool


def open_postgres(name: str, source: Mapping[str, Any], table: TableSpec | None = None) -> PostgresSource:
    """The source of table `name`, which is `table` once it was made; secrets are in their places.

    Raises `ConfigError` for options that are lacking, unknown or no texts.
    """
    unknown = sorted(set(source) - OPTIONS)
    if unknown:
        raise ConfigError(f"the source of table '{name}' has an option '{unknown[0]}' that is none: {_OPTIONS}")
    for option in ("dsn", "table"):
        if not isinstance(source.get(option), str) or not source[option]:
            raise ConfigError(f"the source of table '{name}' needs '{option}', a text: {_OPTIONS}")
    max_lag_bytes(name, source)
    return PostgresSource(name, source["dsn"], source["table"], table)


def max_lag_bytes(name: str, source: Mapping[str, Any]) -> int | None:
    """How much log the database may keep for a table that stands still; None for any. Raises `ConfigError`."""
    given = source.get("max_lag_bytes")
    if given is None:
        return None
    if isinstance(given, bool) or not str(given).isdecimal() or not int(given):
        raise ConfigError(f"the source of table '{name}': max_lag_bytes is a positive number of bytes")
    return int(given)


_OPTIONS = "format, dsn (postgresql://user:${secrets:key}@host/database), table (schema.table) and max_lag_bytes"


@define(eq=False)
class PostgresSource:
    """One table of a database; a `ChangeSource` once the `table` that follows it is there. Used by one thread.

    Errors name the table and the database's own words, never the `dsn`.
    """

    name: str
    _dsn: str = field(repr=False)
    there: str
    table: TableSpec | None = None
    _connection: Any = field(default=None, init=False, repr=False)
    _copying: Any = field(default=None, init=False, repr=False)
    _read_to: int | None = field(default=None, init=False)  # the end of the log when it was read last

    # What it is.

    def describe(self, primary_key: Sequence[str] = ()) -> Described:
        """The columns and the primary key of the table, or these columns as its key; what cannot be followed raises.

        Raises `SourceUnfit` with the statement to run there, and `SourceUnavailable`.
        """
        with self._asked() as ask:
            form = self._form(ask)
            require_followable(self.there, form)
            if ask("select current_setting('wal_level')")[0][0] != "logical":
                raise SourceUnfit(
                    "the log of the database does not tell changes: run ALTER SYSTEM SET wal_level = logical there, "
                    "and restart it"
                )
            self._require_rights(ask, form)
            columns = self._columns(ask, form.oid)
            told = {row[0] for row in ask(_IDENTIFYING, form.oid)}
            key = tuple(primary_key) or tuple(row[0] for row in ask(_PRIMARY_KEY, form.oid))
            unique = [set(row[0]) for row in ask(UNIQUE, form.oid)]
        if not key:
            raise SourceUnfit(
                f"{self.there} has no primary key: run ALTER TABLE {self.there} ADD PRIMARY KEY (…) there, or name "
                "columns that are unique and never null by primary_key=[…]"
            )
        require_unique(key, self.there, unique)
        require_identity(key, self.there, form.identity, sorted(told))
        schema = pa.schema(
            [
                pa.field(
                    column.name,
                    column_type(self.there, column.name, column.type_id, column.modifier, column.shown),
                    not column.required and column.name not in key,
                )
                for column in columns
            ]
        )
        filled = frozenset(column.name for column in columns if column.filled)
        return Described(schema=schema, primary_key=key, filled=filled)

    # As a source of changes.

    def snapshot(self) -> tuple[SourcePosition, Iterator[pa.RecordBatch]]:
        """See `ChangeSource.snapshot`."""
        require_declared(self._mine, self.there, self.describe(self._mine.primary_key).schema)
        with self._asked() as ask:
            self._publish(ask)
            form = self._form(ask)
            require_published(self.there, form)
            logs = self._logs(ask)
            for log in logs[: max(0, len(logs) - MAX_LOGS + 1)]:
                self._drop(ask, log)
            here = ask("select pg_current_wal_lsn()::text")[0][0]
        log = f"{self._prefix}{lsn(here):016x}_{form.marks}"
        copying = self._copying = self._connected(replication="database")
        with self._told():
            made = copying.execute(
                f"CREATE_REPLICATION_SLOT {log} LOGICAL pgoutput (SNAPSHOT 'export')"
            ).fetchone()
        position = SourcePosition(lsn(made[1]), log)
        return position, self._rows(made[2], log, form)

    def _rows(self, snapshot: str, log: str, form: RelationForm) -> Iterator[pa.RecordBatch]:
        """The rows as of a snapshot. What `form` says must be so still once they cannot be altered any more."""
        table, there, whole = self._mine, self.there, False
        with self._asked() as ask:
            names = [row[0] for row in ask("select quote_ident(c) from unnest(%s::text[]) c", table.schema.names)]
            quoted = self._quoted(ask)
        connection = self._connected()
        try:
            with self._told(), connection.transaction():
                connection.execute("set transaction isolation level repeatable read read only")
                connection.execute(f"set transaction snapshot '{snapshot}'")
                texts = ", ".join(f"{name}::text" for name in names)
                statement = f"copy (select {texts} from only {quoted}) to stdout (format csv)"
                with connection.cursor() as cursor, cursor.copy(statement) as lines:
                    with self._asked() as ask:
                        if self._form(ask) != form:  # as it is altered or emptied, old snapshots lose its rows
                            raise SourceUnavailable(f"{there} was altered while it was copied: it is copied again")
                    yield from rows_of_copy(there, table.schema, lines)
            whole = True
        finally:
            connection.close()
            self._end_copying()
            if not whole:
                with suppress(SourceUnavailable), self._asked() as ask:
                    self._drop(ask, log)

    def read(self, after: SourcePosition, limit: int) -> ChangeBatch:
        """See `ChangeSource.read`."""
        peek = f"{_PEEK}, 'messages', 'true')" if self._mine.is_written_through else f"{_PEEK})"
        with self._asked() as ask:
            self._require_log(ask, after)
            form = self._require_same(ask, after.log)
            rows = LogRows(self._mine, self.there, self._later(ask, form))
            ahead = self._read_to = lsn(ask(_FLUSHED)[0][0])
            asked = (after.log, limit, publication_of(form.oid))
            size = count = 0
            with self._told():
                for (data,) in self._streamed(peek, asked):
                    size, count = size + len(data), count + 1
                    if size > MAX_BATCH_BYTES:
                        raise SourceUnfit(
                            f"a transaction of {self.there} has more than {MAX_BATCH_BYTES >> 20} MiB of changes, more "
                            "than can be applied at once: copy the table anew"
                        )
                    rows.take([read_message(data)])
            if count or ahead - after.at > IDLE_BYTES:
                self._require_same(ask, after.log)  # so it was while all of this was written
        if rows.end is not None:
            return rows.batch(SourcePosition(max(rows.end, after.at), after.log))
        moves = ahead - after.at > IDLE_BYTES
        return rows.batch(SourcePosition(ahead, after.log) if moves else after)

    def _streamed(self, peek: str, asked: tuple[Any, ...]) -> Iterator[Any]:
        """The rows of a query as they come, not all of them at once; many at a time where the library can do that."""
        chunks = psycopg_module().capabilities.has_stream_chunked()
        cursor = self._connection.cursor(binary=True)
        return iter(cursor.stream(peek, asked, size=STREAMED_ROWS) if chunks else cursor.stream(peek, asked))

    def confirm(self, position: SourcePosition) -> None:
        """See `ChangeSource.confirm`."""
        self._end_copying()
        with self._asked() as ask:
            confirmed = self._require_log(ask, position)
            if confirmed < position.at:
                ask("select pg_replication_slot_advance(%s, %s::pg_lsn)", position.log, lsn_text(position.at))
            for log in self._logs(ask):
                if log < position.log:
                    self._drop(ask, log)

    def discard(self, position: SourcePosition) -> None:
        """See `ChangeSource.discard`."""
        self._end_copying()
        with self._asked() as ask:
            self._drop(ask, position.log)

    def lag(self, position: SourcePosition) -> SourceLag:
        """See `ChangeSource.lag`."""
        with self._asked() as ask:
            return SourceLag(bytes=max(0, lsn(ask("select pg_current_wal_lsn()::text")[0][0]) - position.at))

    def stirs(self) -> bool:
        """See `DescribedSource.stirs`: by the end of the log, which all tables of all databases there share."""
        if self._read_to is None:
            return False
        with self._asked() as ask:
            return lsn(ask(_FLUSHED)[0][0]) > self._read_to

    def left_over(self, position: SourcePosition) -> tuple[str, ...]:
        """See `DescribedSource.left_over`: slots whose copy may be under way elsewhere, so nobody here drops them."""
        with self._asked() as ask:
            return tuple(
                f"SELECT pg_drop_replication_slot('{log}')" for log in self._logs(ask) if log > position.log
            )

    def give_up(self) -> None:
        """See `ChangeSource.give_up`. The publication goes with the last log of its relation, whosever that is."""
        self._end_copying()
        with self._asked() as ask:
            logs = self._logs(ask)
            for log in logs:
                self._drop(ask, log)
            for oid in {oid for log in logs if (oid := oid_in(log)) is not None} | self._oids(ask):
                if not ask(_FOLLOWED, f"^{PREFIX}[^_]+_[0-9a-f]{{16}}_{oid:x}_"):
                    with suppress(SourceError):  # it is somebody else's
                        ask(f"drop publication if exists {publication_of(oid)}")

    def close(self) -> None:
        """See `ChangeSource.close`."""
        self._end_copying()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # How it is asked.

    @property
    def _mine(self) -> TableSpec:
        assert self.table is not None
        return self.table

    @property
    def _prefix(self) -> str:
        """How the names of this table's logs begin; those of no other table, of no cluster, do."""
        return f"{PREFIX}{self._mine.incarnation}_"

    def _require_log(self, ask: Ask, position: SourcePosition) -> int:
        """What was confirmed of the log. Raises `SourceLost` for one that is gone, or has a gap after the position."""
        found = ask(_SLOT, position.log)
        way_out = f"table '{self.name}' stands at {position} and needs a new copy"
        if not found:
            raise SourceLost(f"{self.there} has no replication slot '{position.log}' any more: {way_out}")
        confirmed, status = found[0]
        if status == "lost" or confirmed is None:
            raise SourceLost(f"the database has thrown away log that slot '{position.log}' needs: {way_out}")
        if lsn(confirmed) > position.at:
            raise SourceLost(f"slot '{position.log}' was moved on to {confirmed} by somebody else: {way_out}")
        return lsn(confirmed)

    def _logs(self, ask: Ask) -> list[str]:
        """The logs of this table that nobody reads now, oldest first."""
        return [row[0] for row in ask(_SLOTS, self._prefix)]

    def _drop(self, ask: Ask, log: str) -> None:
        if log.startswith(self._prefix):
            with suppress(SourceUnavailable):  # somebody else dropped it, or reads it
                ask(_DROP, log)

    def _form(self, ask: Ask) -> RelationForm:
        """What the name of the table there means now. Raises `SourceUnfit` if it means nothing."""
        found = ask(FORM, self.there)
        if not found:
            raise SourceUnfit(f"the database has no table '{self.there}' that its user may see")
        return form_of(found[0])

    def _oids(self, ask: Ask) -> set[int]:
        found = ask(FORM, self.there)
        return {form_of(found[0]).oid} if found else set()

    def _require_same(self, ask: Ask, log: str) -> RelationForm:
        """What the log was made of, which is so still and can be followed. Raises `SourceUnfit` and `SourceLost`."""
        found, called = ask(FORM, self.there), ask(_CALLED, oid_in(log))
        form = form_of(found[0]) if found else None
        names = self._mine.schema.names
        require_same(self.name, self.there, log, form, called[0][0] if called else None, names)
        assert form is not None
        require_followable(self.there, form)
        if form.identity == "n":
            require_identity(self._mine.primary_key, self.there, form.identity, ())
        return form

    def _require_rights(self, ask: Ask, form: RelationForm) -> None:
        """Raise `SourceUnfit`, with the statement to run there, for what the user may not do or see."""
        require_published(self.there, form)
        *rights, reads_log = ask(RIGHTS, form.oid)[0]
        require_rights(self.there, form, rights, self._published(ask, form))
        try:
            self._connected(replication="database").close()
        except SourceUnavailable:
            if not reads_log:
                raise SourceUnfit(
                    f"user {rights[0]} may not read the log of the database: run ALTER ROLE {rights[0]} "
                    "REPLICATION there"
                ) from None
            raise

    def _quoted(self, ask: Ask) -> str:
        return str(ask("select %s::regclass::text", self.there)[0][0])

    def _columns(self, ask: Ask, oid: int) -> list[_Column]:
        return [_Column(*row) for row in ask(_COLUMNS, oid)]

    def _later(self, ask: Ask, form: RelationForm) -> frozenset[str]:
        """The columns that the table may have had from its source after it was made: what was logged before is null."""
        refresh = self._mine.refresh
        if refresh is None or refresh.on_schema_change != "append":
            return frozenset()
        there = {column.name for column in self._columns(ask, form.oid)}
        return frozenset(column.name for column in self._mine.schema if column.nullable and column.name in there)

    def _published(self, ask: Ask, form: RelationForm) -> str:
        """The statement that has the changes of the table told: of it alone, and of no table that inherits from it."""
        return f"CREATE PUBLICATION {publication_of(form.oid)} FOR TABLE ONLY {self._quoted(ask)}"

    def _publish(self, ask: Ask) -> None:
        """Have the changes of the table told. Whoever may not do that is told the statement."""
        form = self._form(ask)
        if form.publication is not None:
            return
        statement = self._published(ask, form)
        try:
            ask(statement)
        except SourceError as error:
            if self._form(ask).publication is None:
                raise SourceUnfit(f"{error.message}: run {statement} there as the owner of the table") from error

    def _end_copying(self) -> None:
        if self._copying is not None:
            self._copying.close()
            self._copying = None

    def _connected(self, **options: str) -> Any:
        driver = psycopg_module()
        with self._told():
            connection = driver.connect(
                self._dsn,
                autocommit=True,
                connect_timeout=CONNECT_S,
                options=" ".join(f"-c {name}={value.replace(' ', '')}" for name, value in SESSION.items()),
                **options,
            )
            connection.prepare_threshold = None
        return connection

    @contextmanager
    def _asked(self) -> Iterator[Ask]:
        """Asks statements; the connection is kept while it is good."""
        if self._connection is None or self._connection.closed:
            self._connection = self._connected()

        def ask(statement: str, *parameters: Any) -> list[Any]:
            with self._told():
                done = self._connection.execute(statement, parameters or None)
                return [] if done.description is None else list(done.fetchall())

        yield ask

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Errors of the database, as ours; a connection in doubt is not used again."""
        driver = psycopg_module()
        try:
            yield
        except driver.Error as error:
            if isinstance(error, driver.OperationalError | driver.InterfaceError) and self._connection is not None:
                self._connection.close()
            said = getattr(error.diag, "message_primary", None) or without_address(error)
            state = error.sqlstate or ""  # 42: a right that is lacking, a name that is none; 0A: what it cannot do
            kind = SourceUnfit if state.startswith(("42", "0A")) and state not in _PASSING else SourceUnavailable
            raise kind(f"the source {self.there} of table '{self.name}': {said}") from None


Ask = Callable[..., list[Any]]


_CALLED = "select oid::regclass::text from pg_class where oid = %s::int8"
_COLUMNS = """
select attname::text, atttypid::int8, atttypmod, format_type(atttypid, atttypmod), attnotnull,
    atthasmissing or atthasdef or attidentity <> '' from pg_attribute
where attrelid = %s and attnum > 0 and not attisdropped order by attnum"""
_PRIMARY_KEY = """
select a.attname::text from pg_index i, unnest(i.indkey) with ordinality k(number, place), pg_attribute a
where i.indrelid = %s and i.indisprimary and a.attrelid = i.indrelid and a.attnum = k.number order by k.place"""
_IDENTIFYING = """
select a.attname::text from pg_class c, pg_index i, unnest(i.indkey) k(number), pg_attribute a
where c.oid = %s and i.indrelid = c.oid and a.attrelid = c.oid and a.attnum = k.number
and ((c.relreplident = 'd' and i.indisprimary) or (c.relreplident = 'i' and i.indisreplident))"""
_FLUSHED = "select pg_current_wal_flush_lsn()::text"
_SLOT = "select confirmed_flush_lsn::text, wal_status from pg_replication_slots where slot_name = %s"
_SLOTS = """
select slot_name::text from pg_replication_slots where starts_with(slot_name, %s) and not active order by slot_name"""
_DROP = "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = %s and not active"
_FOLLOWED = "select 1 from pg_replication_slots where database = current_database() and slot_name ~ %s limit 1"
_PEEK = """
select data from pg_logical_slot_peek_binary_changes(%s, null, %s, 'proto_version', '1', 'publication_names', %s"""
