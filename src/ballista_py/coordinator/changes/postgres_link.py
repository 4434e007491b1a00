"""A connection to a PostgreSQL, and its errors as ours: the table and the database's own words, no address."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from attrs import define, field

from ballista_py.coordinator.changes.postgres_types import SESSION
from ballista_py.errors import (
    BallistaError,
    MissingExtra,
    SchemaMismatch,
    SourceUnavailable,
    SourceUnfit,
    TryLater,
)

CONNECT_S = 10
# By what the database calls an error (SQLSTATE, the longest beginning that is known): what it means for a statement.
_MEANINGS: Final[dict[str, type[BallistaError]]] = {
    "08": SourceUnavailable,  # connections
    "22": SchemaMismatch,  # values
    "23": SchemaMismatch,  # constraints
    "25006": SourceUnavailable,  # a standby, for as long as it is one
    "25P": TryLater,  # the transaction was idle for too long
    "40": TryLater,  # deadlocks, and what cannot be put in an order
    "42": SourceUnfit,  # what is not there, or not allowed
    "44": SchemaMismatch,  # WITH CHECK
    "53": SourceUnavailable,  # no room
    "55": TryLater,  # locks of others
    "57": SourceUnavailable,  # it is ended, or begins
    "57014": TryLater,  # it took too long
    "P0": SchemaMismatch,  # what triggers say
}
_LONGEST: Final = 5


@define(eq=False)
class PostgresLink:
    """One connection, made when it is first needed, for table `name` that follows the table `there`."""

    name: str
    there: str
    _dsn: str = field(repr=False)
    _connection: Any = field(default=None, init=False, repr=False)

    @property
    def connection(self) -> Any:
        """The connection, in which nothing is committed by itself."""
        if self._connection is None or self._connection.closed:
            with self.told():
                self._connection = driver().connect(
                    self._dsn,
                    autocommit=False,
                    connect_timeout=CONNECT_S,
                    application_name="ballista_py",
                    options=" ".join(f"-c {name}={value.replace(' ', '')}" for name, value in SESSION.items()),
                )
                self._connection.prepare_threshold = None
        return self._connection

    def ask(self, statement: str, *parameters: Any) -> list[Any]:
        """The rows that a statement gives. Raises as `told`."""
        with self.told():
            done = self.connection.execute(statement, parameters or None)
            return [] if done.description is None else list(done.fetchall())

    def change(self, statement: str, *parameters: Any) -> int:
        """How many rows a statement changed. Raises as `told`."""
        with self.told():
            return int(self.connection.execute(statement, parameters or None).rowcount)

    def commit(self) -> None:
        """Commit what was done since the last one. Raises as `told`."""
        with self.told():
            self.connection.commit()

    def roll_back(self) -> None:
        """Undo it. A connection that is in doubt is not used again."""
        if self._connection is not None and not self._connection.closed:
            try:
                self._connection.rollback()
            except driver().Error:
                self.close()

    def close(self) -> None:
        """Give the connection up."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @contextmanager
    def told(self) -> Iterator[None]:
        """Errors of the database as ours: `SourceUnavailable`, `TryLater`, `SourceUnfit`, `SchemaMismatch`.

        Details, which hold values of rows that others wrote, are left out.
        """
        try:
            yield
        except driver().Error as error:
            state = error.sqlstate or ""
            said = error.diag.message_primary or without_address(error)
            prefixes = (state[:size] for size in range(_LONGEST, 1, -1))
            kind = next((_MEANINGS[one] for one in prefixes if one in _MEANINGS), None)
            if kind is None:
                kind = SourceUnavailable if not state else SourceUnfit
            raise kind(f"the source {self.there} of table '{self.name}': {said}", sqlstate=state) from None


def driver() -> Any:
    """The module of the driver. Raises `MissingExtra`."""
    try:
        import psycopg
    except ImportError:
        raise MissingExtra.of("psycopg", "postgres") from None
    return psycopg


def without_address(error: Exception) -> str:
    """What kind of failure it was: what the client library says holds addresses and users."""
    return f"no connection ({type(error).__name__})"
