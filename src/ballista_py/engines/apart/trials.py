"""Statements that nobody has sent before are tried in a process that may end over them, before the node reads them.

Parsers and engines are large, partly compiled, and change with each version: nobody has a list of the texts that end
a process, break a database or are read for hours. What such a text ends is the process in which it was tried. What is
plain is not tried, nor what is like a statement that was: so a lookup pays some microseconds for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Protocol

import pyarrow as pa
from attrs import define, field

from ballista_py.engines.apart.shares import MIN_SHARE_BYTES
from ballista_py.errors import SqlError
from ballista_py.remembered import Remembered
from ballista_py.runtime import Runtime
from ballista_py.sql.parse.parsing import ENGINE_DIALECT, READ_BYTES_PER_CHARACTER
from ballista_py.sql.parse.plain_text import is_plain, masked
from ballista_py.turns import Turns
from ballista_py.work import current_client, pause, run_apart

MAX_REMEMBERED = 4_096
ENTRY_BYTES = 256
OF_CLIENT, IN_ALL = 2, 8
AFTER_DEATH_MS = (
    2_000.0  # that a client waits whose text has ended a process: another one takes half a second to start
)
_PLAIN_VALUES = (
    pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal128, pa.types.is_boolean, pa.types.is_string,
    pa.types.is_large_string, pa.types.is_date, pa.types.is_timestamp, pa.types.is_time, pa.types.is_null,
)  # fmt: skip

Tables = Callable[[bool], tuple[Mapping[str, pa.Schema], Mapping[str, str]]]
"""The tables that a statement may name, and what tells each from what it was and will be; with True as of now."""


class Tries(Protocol):
    """Where statements are tried: `Workers`."""

    def try_statement(
        self,
        sql: str,
        dialect: str | None,
        schemas: Mapping[str, pa.Schema],
        share: int,
        parameters: pa.Schema | None,
    ) -> bool: ...


@define
class Trials:
    """Remembers which statements were tried. Safe to share between threads."""

    tries: Tries
    runtime: Runtime
    _passed: Remembered[bool] = field(init=False)
    _turns: Turns = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._passed = Remembered(MAX_REMEMBERED, MAX_REMEMBERED * ENTRY_BYTES, self.runtime)
        self._turns = Turns(self.runtime, IN_ALL)

    def require_survived(
        self, text: str, dialect: str | None, tables: Tables, parameters: pa.Schema | None = None
    ) -> None:
        """Try a client's text, unless it is plain or like one that was tried over the same tables.

        `parameters` are the types of the values that it is to be run with, if they are known. A text that could not be
        run to its end there is no less hostile for that: whatever this call computes from it runs apart.

        Raises `SqlError` for a text over which a process ended, and as `Workers.try_statement`.
        """
        alike = masked(text) if dialect in (None, ENGINE_DIALECT) else None
        if is_plain(alike) and all(map(_is_plain_value, () if parameters is None else parameters.types)):
            return
        schemas, marks = tables(False)
        understood = self._passed.get(_key(alike or text, dialect, marks, parameters))
        if understood is None:
            understood = self._try(text, dialect, schemas, parameters)
            if not understood:  # it may be about a table that is new
                schemas, newer = tables(True)
                if newer != marks:
                    marks = newer
                    understood = self._try(text, dialect, schemas, parameters)
            self._passed.put(_key(alike or text, dialect, marks, parameters), understood, ENTRY_BYTES)
        if not understood:
            run_apart()

    def _try(
        self,
        text: str,
        dialect: str | None,
        schemas: Mapping[str, pa.Schema],
        parameters: pa.Schema | None,
    ) -> bool:
        share = max(MIN_SHARE_BYTES, READ_BYTES_PER_CHARACTER * len(text))
        with self._turns.turn(current_client(), OF_CLIENT):
            try:
                return self.tries.try_statement(text, dialect, schemas, share, parameters)
            except SqlError:
                pause(self.runtime, AFTER_DEATH_MS)
                raise


def _is_plain_value(kind: pa.DataType) -> bool:
    """Whether a parameter of the type stands in a text as an ordinary constant, perhaps with a cast.

    >>> _is_plain_value(pa.int64()), _is_plain_value(pa.duration("us"))
    (True, False)
    """
    return any(test(kind) for test in _PLAIN_VALUES)


def _key(alike: str, dialect: str | None, marks: Mapping[str, str], parameters: pa.Schema | None) -> bytes:
    """What is kept of a statement, which may be long."""
    given = "" if parameters is None else parameters.to_string(show_schema_metadata=False)
    parts = (dialect or ENGINE_DIALECT, given, alike, *(f"{name}\0{mark}" for name, mark in sorted(marks.items())))
    return blake2b("\0\0".join(parts).encode(errors="surrogatepass"), digest_size=16).digest()


__all__ = ["Tables", "Trials", "Tries"]
