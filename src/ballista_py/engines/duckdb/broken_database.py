"""DuckDB databases that a failed assertion has made unusable, statements that do not end, and who sent them.

An INTERNAL error of DuckDB invalidates the whole database, for whoever uses it: every later statement fails with a
FATAL error until it is opened anew. A file that could not be written at a checkpoint, on a full disk, invalidates the
database in it, the attached one, and no other.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from hashlib import blake2b
from typing import TypeVar

from ballista_py.engines.duckdb.library import duckdb
from ballista_py.runtime import Runtime
from ballista_py.sql.parse.plain_text import is_plain, masked

K = TypeVar("K")
V = TypeVar("V")
MAX_REMEMBERED = 256
SUSPECT_MS = 600_000.0
BROKE = ("INTERNAL Error", "FATAL Error")
INVALIDATED = "has been invalidated"
# At the beginning: anywhere else it may be what a statement says.
DAMAGED = (
    r"(?:(?:IO |Data Corruption )?Error: )?"
    r"(?:Corrupt database file: computed checksum|Could not read enough bytes from file)"
)
_DAMAGE = re.compile(DAMAGED)


def is_broken(connection: duckdb.DuckDBPyConnection, look: str = "select 1") -> bool:
    """Whether the database that the statement `look` reads can be used no more."""
    try:
        with connection.cursor() as cursor:
            cursor.execute(look)
    except duckdb.FatalException:
        return True
    except duckdb.Error as error:  # without the word it is closed
        return INVALIDATED in str(error)
    return False


def is_damage(error: BaseException) -> bool:
    """Whether what lies in a database file is not what was written there: cut, or other than its checksum says."""
    return _DAMAGE.match(str(error)) is not None


class Offenders:
    """Kinds of statements that broke a database or did not end, and the clients who sent them: they run apart.

    Statements of one kind differ in the values of constants alone. Whose statement broke a database has all that is
    out of the ordinary run apart for `SUSPECT_MS`: the next one may be of another kind. Whose statement went on for
    long after it was stopped has everything run apart: nothing can end it but the end of its process.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._kinds: OrderedDict[bytes, None] = OrderedDict()
        self._clients: OrderedDict[str, float] = OrderedDict()
        self._endless: OrderedDict[str, float] = OrderedDict()

    def note(self, sql: str, client: str, error: BaseException) -> None:
        """Remember the statement if it was the one that broke the database, and not one that met it broken."""
        text = str(error)
        if text.startswith(BROKE) and INVALIDATED not in text:
            _remember(self._kinds, _mark(sql), None)
            _remember(self._clients, client, self._runtime.monotonic_ms())

    def note_endless(self, sql: str, client: str) -> None:
        """Remember a statement that was stopped and goes on."""
        _remember(self._kinds, _mark(sql), None)
        _remember(self._endless, client, self._runtime.monotonic_ms())

    def may_break(self, sql: str, client: str) -> bool:
        """Whether the statement, sent by this client, is not to run where others do."""
        if not self._kinds:
            return False
        suspect = self._is_suspect(self._clients, client) and not is_plain(masked(sql))
        return suspect or self._is_suspect(self._endless, client) or _mark(sql) in self._kinds

    def _is_suspect(self, clients: OrderedDict[str, float], client: str) -> bool:
        since_ms = clients.get(client)
        return since_ms is not None and self._runtime.monotonic_ms() - since_ms < SUSPECT_MS


def _remember(known: OrderedDict[K, V], key: K, value: V) -> None:
    known[key] = value
    known.move_to_end(key)
    if len(known) > MAX_REMEMBERED:
        known.popitem(last=False)


def _mark(sql: str) -> bytes:
    """What is kept of a statement, which may be long."""
    kind = masked(sql) or sql
    return blake2b(kind.encode(errors="surrogatepass"), digest_size=16).digest()
