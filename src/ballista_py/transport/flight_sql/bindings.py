"""Parameters that were bound to prepared statements, for clients that go on with the handle they had before.

The answer to a bind is a handle that holds the parameters, and newer clients use it. Older ones know nothing of
that answer; for them the parameters are remembered here: within bounds, for a while, at this scheduler alone, and for
the client alone that bound them. Where there is no room the client with the most parameters loses its oldest.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Any, TypeAlias

import pyarrow as pa
from attrs import define, field, frozen

from ballista_py.runtime import Runtime
from ballista_py.transport.flight_sql.statement import SqlStatement
from ballista_py.work import current_client

MAX_STATEMENTS = 1_000
MAX_BYTES = 64 << 20
REMEMBERED_MS = 600_000

_Key: TypeAlias = tuple[str, str]  # whose it is, and its `run_id`


@frozen
class _Binding:
    parameters: pa.RecordBatch
    until_ms: float


@define
class Bindings:
    """The last parameters of each prepared statement, by its `run_id`. Safe to share between threads."""

    _runtime: Runtime
    _found: OrderedDict[_Key, _Binding] = field(factory=OrderedDict)
    _bytes: int = 0
    _lock: Any = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._lock = self._runtime.lock()

    def __len__(self) -> int:
        return len(self._found)

    def remember(self, statement: SqlStatement) -> None:
        """Keep the parameters of the statement until they are replaced, forgotten, or room is needed."""
        if statement.run_id is None:
            return
        key = current_client(), statement.run_id
        with self._lock:
            self._forget(key)
            if statement.parameters is not None:
                until_ms = self._runtime.monotonic_ms() + REMEMBERED_MS
                self._found[key] = _Binding(statement.parameters, until_ms)
                self._bytes += statement.parameters.nbytes
            self._make_room()

    def complete(self, statement: SqlStatement) -> SqlStatement:
        """The statement with the parameters that were bound to it, if it does not bring its own."""
        if statement.parameters is not None or statement.run_id is None:
            return statement
        with self._lock:
            self._make_room()
            found = self._found.get((current_client(), statement.run_id))
        return statement if found is None else statement.bound(found.parameters)

    def forget(self, statement: SqlStatement) -> None:
        """The client has closed the statement."""
        with self._lock:
            self._forget((current_client(), statement.run_id or ""))

    def _forget(self, key: _Key) -> None:
        gone = self._found.pop(key, None)
        if gone is not None:
            self._bytes -= gone.parameters.nbytes

    def _make_room(self) -> None:
        """Those go whose time is over, and where there is no room the oldest of whoever takes up most of it."""
        now_ms = self._runtime.monotonic_ms()
        while self._found and next(iter(self._found.values())).until_ms <= now_ms:
            self._forget(next(iter(self._found)))
        while self._found and (len(self._found) > MAX_STATEMENTS or self._bytes > MAX_BYTES):
            taken: Counter[str] = Counter()
            for (client, _), binding in self._found.items():
                taken[client] += max(binding.parameters.nbytes, MAX_BYTES // MAX_STATEMENTS)
            most = max(taken, key=taken.__getitem__)
            self._forget(next(key for key in self._found if key[0] == most))
