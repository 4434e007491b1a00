"""Options of a client's session, kept by the client: its cookie carries them to whichever scheduler it asks next.

Nothing of it is remembered here: calls that may set options send their headers after they have, so that the cookie
that goes back says them. No client can make a node forget another one's, nor does time.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from http.cookies import CookieError, SimpleCookie
from typing import Any

from attrs import evolve, frozen

from ballista_py.errors import SqlError, TransportError, Unsupported
from ballista_py.partitions.refresh import WRITE_WAITS
from ballista_py.sql.dialects.names import known_dialect
from ballista_py.sql.parse.session_statements import SetSessionOption, read_session_statement, read_verb
from ballista_py.transport.flight.wire import from_json, to_json
from ballista_py.transport.flight_sql.columns import CATALOG, SCHEMA
from ballista_py.transport.flight_sql.messages import message, read

COOKIE = "ballista_session"
TIMEOUT = "statement_timeout_ms"
WRITE_WAIT = "write_wait"
TOKEN_HEADER = "ballista-token"  # noqa: S105  # the name of a header
MAX_OPTIONS_BYTES = 64 << 10
ACTIONS = ("SetSessionOptions", "GetSessionOptions", "CloseSession")
# What SET calls an option: its name here, and its value as it is kept.
_BY_STATEMENT: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "dialect": ("dialect", str),
    "write_wait": (WRITE_WAIT, str),
    "statement_timeout": (TIMEOUT, lambda seconds: str(max(1, round(seconds * 1e3)))),
}
_INVALID_NAME, _INVALID_VALUE, _CLOSED = 1, 2, 1
_FIXED = {"catalog": CATALOG, "schema": SCHEMA}

Options = Mapping[str, str]


@frozen
class Session:
    """The session of one call: its id, its options, and the cookie to send back, if any.

    `returned` says that the client sent the cookie that it was given, so that it can have options at all. `token` is
    the client's name for what this call writes.
    """

    id: str
    options: Options
    returned: bool
    cookie: str | None
    token: str | None

    def headers(self) -> dict[str, str]:
        """What goes back before the answer."""
        return {} if self.cookie is None else {"set-cookie": f"{COOKIE}={self.cookie}; Path=/; HttpOnly"}

    def with_options(self, options: Options) -> Session:
        """The same session from now on: its cookie says them, and nobody else remembers them."""
        return evolve(self, options=options, cookie=_written(self.id, options))


def session_of(headers: Mapping[str, Sequence[str]], new_id: Callable[[], str]) -> Session:
    """The session of a call with these headers; a cookie that cannot be read starts a new one."""
    sent, token = _cookie(headers), next(iter(headers.get(TOKEN_HEADER, ())), None)
    found = None if sent is None else _parse(sent)
    if found is None:
        id_ = new_id()
        return Session(id_, {}, False, _written(id_, {}), token)
    id_, options = found
    return Session(id_, options, True, None, token)


def run_session_action(action: str, body: bytes, session: Session) -> tuple[bytes, Session]:
    """The result of one of `ACTIONS`, and the session after it. Raises `Unsupported` for a client without cookies."""
    if action == "CloseSession":
        return message("CloseSessionResult", status=_CLOSED).SerializeToString(), session.with_options({})
    if action == "GetSessionOptions":
        answer = message("GetSessionOptionsResult")
        for name, value in {**_FIXED, **session.options}.items():
            answer.session_options[name].string_value = value
        return answer.SerializeToString(), session
    if len(body) > MAX_OPTIONS_BYTES:
        raise TransportError(f"the options of a session have more than {MAX_OPTIONS_BYTES >> 10} KiB")
    request = read("SetSessionOptionsRequest", body)
    _require_cookies(session)
    answer = message("SetSessionOptionsResult")
    options = dict(session.options)
    for name, value in request.session_options.items():
        wrong = _set(options, name, value)
        if wrong:
            answer.errors[name].value = wrong
    return answer.SerializeToString(), session.with_options(options)


def set_by_statement(sql: str, session: Session) -> Session | None:
    """The session after what SET or RESET says; None for another statement.

    Raises `SqlError`, and `Unsupported` for a client that keeps no cookies.
    """
    said = read_session_statement(sql) if read_verb(sql) in ("SET", "RESET") else None
    if said is None:
        return None
    _require_cookies(session)
    options = dict(session.options) if isinstance(said, SetSessionOption) else {}
    if isinstance(said, SetSessionOption):
        if said.name not in _BY_STATEMENT:
            raise SqlError(f"a session of Flight SQL has no option '{said.name}': say it with Client.sql")
        name, write = _BY_STATEMENT[said.name]
        options.pop(name, None)
        if said.value is not None:
            options[name] = write(said.value)
    return session.with_options(options)


def _require_cookies(session: Session) -> None:
    if not session.returned:
        raise Unsupported(
            "a session has options only if its client keeps cookies; for ADBC connect with "
            "adbc.flight.sql.rpc.with_cookie_middleware=true"
        )


def _set(options: dict[str, str], name: str, value: Any) -> int:
    """Set one option; the number of the specification for what is wrong with it, or 0."""
    kind = value.WhichOneof("option_value")
    if name in _FIXED:
        return 0 if value.string_value == _FIXED[name] else _INVALID_VALUE
    if name == TIMEOUT:
        return _set_timeout(options, value)
    if name not in ("dialect", WRITE_WAIT):
        return _INVALID_NAME
    if kind is None or (kind == "string_value" and not value.string_value):
        options.pop(name, None)
        return 0
    fits = _is_dialect if name == "dialect" else _is_wait
    if kind != "string_value" or not fits(value.string_value.lower()):
        return _INVALID_VALUE
    options[name] = value.string_value.lower()
    return 0


def _set_timeout(options: dict[str, str], value: Any) -> int:
    """Milliseconds, as a number or in digits; nothing, or 0, for no limit of the session's own."""
    kind = value.WhichOneof("option_value")
    given = None if kind is None else getattr(value, kind)
    if given in (None, "", 0, "0"):
        options.pop(TIMEOUT, None)
        return 0
    if isinstance(given, bool) or not _is_duration(str(given)):
        return _INVALID_VALUE
    options[TIMEOUT] = str(int(float(given)))
    return 0


def timeout_ms(session: Session) -> float | None:
    """The time limit of the session's statements."""
    return float(session.options[TIMEOUT]) if TIMEOUT in session.options else None


def _is_duration(text: str) -> bool:
    return re.fullmatch(r"[1-9][0-9]{0,11}(\.0*)?", text, re.ASCII) is not None


def write_wait(session: Session) -> str:
    """For what the session's statements wait; nothing: as their tables say."""
    return session.options.get(WRITE_WAIT, "")


def _is_wait(name: object) -> bool:
    return name in WRITE_WAITS


def _is_dialect(name: str) -> bool:
    try:
        return bool(known_dialect(name))
    except SqlError:
        return False


def _cookie(headers: Mapping[str, Sequence[str]]) -> str | None:
    for line in headers.get("cookie", ()):
        try:
            found = SimpleCookie(line).get(COOKIE)
        except CookieError:
            continue
        if found is not None:
            return found.value
    return None


def _written(id_: str, options: Options) -> str:
    return f"{id_}.{base64.urlsafe_b64encode(to_json(options)).decode().rstrip('=')}"


def _parse(cookie: str) -> tuple[str, dict[str, str]] | None:
    """Id and options; None for what `_written` did not write."""
    id_, _, coded = cookie.partition(".")
    try:
        options = from_json(base64.urlsafe_b64decode(coded + "=" * (-len(coded) % 4)))
    except (ValueError, TransportError):
        return None
    dialect = options.get("dialect")
    if not id_.isalnum() or len(id_) > 64 or set(options) - {"dialect", TIMEOUT, WRITE_WAIT}:
        return None
    if TIMEOUT in options and not (isinstance(options[TIMEOUT], str) and _is_duration(options[TIMEOUT])):
        return None
    if WRITE_WAIT in options and not _is_wait(options[WRITE_WAIT]):
        return None
    if dialect is not None and not (isinstance(dialect, str) and _is_dialect(dialect)):
        return None
    return id_, options
