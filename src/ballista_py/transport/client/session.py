"""What a client remembers between its statements: options that it was told by SET, and texts that it prepared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen

from ballista_py.errors import SqlError
from ballista_py.runtime import Runtime
from ballista_py.transport.client.given import Parameters, parameters_text, require_dialect
from ballista_py.transport.flight.commands import waiting_for
from ballista_py.transport.flight.wire import require_utf8

if TYPE_CHECKING:
    from ballista_py.sql.parse.session_statements import Execute, SessionStatement

MAX_PREPARED = 1_000


@frozen
class ClientQuery:
    """A statement as it is sent: with what the session says where the call said nothing.

    `beside` is what a command holds of its parameters: the `values` of EXECUTE, or `parameters`. They are sent apart
    from the text, which is what nodes show and keep of it.
    """

    query: str
    dialect: str | None
    engine: str | None
    timeout: float | None
    wait: str | None = None
    beside: Mapping[str, Any] = field(factory=dict)

    def whole(self) -> str:
        """The text with the values of EXECUTE in it, for what has no room for them."""
        from ballista_py.sql.parse.session_statements import executed

        values = self.beside.get("values")
        return executed(self.query, values) if values else self.query


@frozen
class _Prepared:
    text: str
    dialect: str | None


@define
class ClientSession:
    """The session of one client. Safe to share between threads, which share it then."""

    _runtime: Runtime
    _options: dict[str, Any] = field(factory=dict)
    _prepared: dict[str, _Prepared] = field(factory=dict)
    _lock: Any = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._lock = self._runtime.lock()

    def asked(
        self,
        query: str,
        dialect: str | None,
        engine: str | None = None,
        timeout: float | None = None,
        wait: str | None = None,
        parameters: Parameters | None = None,
    ) -> ClientQuery | None:
        """What is to be sent for a statement; None for one that was about the session, and is done.

        What is said beside the statement counts before the session. Raises `SqlError`, and `InvalidData` for text
        that is not UTF-8.
        """
        # A tokenizer, which a client that only sends rows does without.
        from ballista_py.sql.parse.session_statements import (
            Execute,
            before_execute,
            read_session_statement,
            read_verb,
        )

        require_dialect(dialect)
        require_utf8("the statement", query)
        waiting_for(wait)
        explain = before_execute(query)
        said = read_session_statement(query[len(explain) :])
        row = parameters_text(parameters)
        beside: dict[str, Any] = {"parameters": row} if row else {}
        with self._lock:
            if said is None:
                return self._with_options(ClientQuery(query, dialect, engine, timeout, wait, beside))
            if beside:
                raise SqlError(
                    f"{read_verb(query) or 'EXECUTE'} takes no parameters beside it: write values into it"
                )
            if isinstance(said, Execute):
                found = self._prepared_as(said)
                beside = {"values": dict(said.values)} if said.values else {}
                return self._with_options(
                    ClientQuery(explain + found.text, found.dialect, engine, timeout, wait, beside)
                )
            self._do(said, dialect)
            return None

    def rows_asked(
        self,
        query: str,
        dialect: str | None,
        engine: str | None = None,
        timeout: float | None = None,
        parameters: Parameters | None = None,
    ) -> ClientQuery:
        """As `asked`, where only rows will do. Raises `SqlError`, also for what only changes the session."""
        from ballista_py.sql.parse.session_statements import read_verb

        is_about_rows = read_verb(query) in ("", "EXECUTE")
        found = self.asked(query, dialect, engine, timeout, None, parameters) if is_about_rows else None
        if found is None:
            raise SqlError(f"{read_verb(query)} is about the session and gives no rows: send it with Client.sql")
        return found

    def time_limit(self, timeout: float | None) -> float | None:
        """The time limit of what is sent with this one, in seconds: that of the session where it says none."""
        with self._lock:
            return self._options.get("statement_timeout") if timeout is None else timeout

    def write_wait(self, wait: str | None) -> str | None:
        """For what the rows that are sent with this one wait: as the session says where it says nothing."""
        with self._lock:
            return self._options.get("write_wait") if wait is None else wait

    def _with_options(self, asked: ClientQuery) -> ClientQuery:
        options = self._options
        return ClientQuery(
            asked.query,
            options.get("dialect") if asked.dialect is None else asked.dialect,
            options.get("engine") if asked.engine is None else asked.engine,
            options.get("statement_timeout") if asked.timeout is None else asked.timeout,
            options.get("write_wait") if asked.wait is None else asked.wait,
            asked.beside,
        )

    def _prepared_as(self, said: Execute) -> _Prepared:
        """What was prepared under that name. Raises `SqlError` for none, and unless it takes these values."""
        from ballista_py.sql.parse.session_statements import with_values

        found = self._prepared.get(said.name)
        if found is None:
            raise SqlError(f"there is no prepared statement '{said.name}': PREPARE {said.name} AS … makes one")
        with_values(found.text, said.values)
        return found

    def _do(self, said: SessionStatement, dialect: str | None) -> None:
        from ballista_py.sql.parse.session_statements import Deallocate, Prepare, ResetAll, SetSessionOption

        if isinstance(said, ResetAll):
            self._options.clear()
        elif isinstance(said, SetSessionOption):
            self._options.pop(said.name, None)
            if said.value is not None:
                self._options[said.name] = said.value
        elif isinstance(said, Prepare):
            self._prepare(said.name, _Prepared(said.statement, dialect or self._options.get("dialect")))
        elif isinstance(said, Deallocate):
            if said.name is None:
                self._prepared.clear()
            elif self._prepared.pop(said.name, None) is None:
                raise SqlError(f"there is no prepared statement '{said.name}'")

    def _prepare(self, name: str, prepared: _Prepared) -> None:
        if name in self._prepared:
            raise SqlError(f"'{name}' is prepared already: DEALLOCATE {name} first")
        if len(self._prepared) >= MAX_PREPARED:
            raise SqlError(f"{MAX_PREPARED:,} statements are prepared: DEALLOCATE what is not needed any more")
        self._prepared[name] = prepared


def require_lasting(text: str, where: str) -> None:
    """Raise `SqlError` for a statement about a session `where` none lasts."""
    from ballista_py.sql.parse.session_statements import require_no_session  # a parser, which few clients need

    require_no_session(text, where)


def token_of(token: str | None, runtime: Runtime) -> tuple[str, bool]:
    """The token of a statement, and whether it was made here because none was given.

    Raises `SqlError` for an empty one: whoever lost it would have each resend applied once more.
    """
    if token == "":
        raise SqlError("the token is empty: give one of a character or more, or leave it out to have one made")
    return (runtime.new_id(), True) if token is None else (token, False)
