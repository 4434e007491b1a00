"""DuckDB databases that a failed assertion has made unusable, and the statements at fault.

An INTERNAL error of DuckDB invalidates the whole database, for whoever uses it: every later statement fails with a
FATAL error until it is opened anew. A file that could not be written at a checkpoint, on a full disk, invalidates the
database in it, the attached one, and no other.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b

from ballista_py.engines.duckdb.library import duckdb

MAX_REMEMBERED = 256
BROKE = ("INTERNAL Error", "FATAL Error")
INVALIDATED = "has been invalidated"


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


class Offenders:
    """The statements that broke a database, the last few: they are not run where others run again."""

    def __init__(self) -> None:
        self._texts: OrderedDict[bytes, None] = OrderedDict()

    def note(self, sql: str, error: BaseException) -> None:
        """Remember the statement if it was the one that broke the database, and not one that met it broken."""
        text = str(error)
        if text.startswith(BROKE) and INVALIDATED not in text:
            self._texts[_mark(sql)] = None
            if len(self._texts) > MAX_REMEMBERED:
                self._texts.popitem(last=False)

    def __contains__(self, sql: str) -> bool:
        return bool(self._texts) and _mark(sql) in self._texts


def _mark(sql: str) -> bytes:
    """What is kept of a statement, which may be long."""
    return blake2b(sql.encode(errors="surrogatepass"), digest_size=16).digest()
