"""What pages are shown of a node: parts, each made anew as often as it may change, once for all who look."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import orjson
from attrs import define, field, frozen

from ballista_py.node.http.errors import told
from ballista_py.runtime import Runtime

FORGOTTEN_MS = 60_000.0  # after which what nobody looks at is forgotten
_OPTIONS = orjson.OPT_NON_STR_KEYS


@frozen(kw_only=True)
class Part:
    """One part of a page. `make` gives JSON-ready values, on the thread and as work of who looks.

    It is told which client that is, or None of a viewer. What `differs` by client is made for each of them; what is
    `of_client`, too, is shown to no viewer.
    """

    name: str
    every_ms: float
    make: Callable[[str | None], Any]
    of_client: bool = False
    differs: bool = False


@frozen
class _Made:
    at_ms: float
    data: bytes


@define(eq=False)
class Feed:
    """The parts of one node. Thread-safe: however many look, a part is made by one of them at a time."""

    parts: Sequence[Part]
    runtime: Runtime
    _made: dict[tuple[str, str | None], _Made] = field(init=False, factory=dict)
    _making: set[tuple[str, str | None]] = field(init=False, factory=set)
    _lock: AbstractContextManager[object] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._lock = self.runtime.lock()

    def look(self, client: str | None) -> Mapping[str, bytes]:
        """The parts as JSON, by name; for a `client` (of no name where none needs one), or with None for a viewer.

        A part that cannot be made says `error` and `code` instead. One that another look is making is as it was, or
        missing if it never was.
        """
        found = {}
        for part in self.parts:
            if part.of_client and client is None:
                continue
            data = self._part(part, client if part.of_client or part.differs else None)
            if data is not None:
                found[part.name] = data
        return found

    def _part(self, part: Part, client: str | None) -> bytes | None:
        key = (part.name, client)
        with self._lock:
            now_ms = self.runtime.monotonic_ms()
            made = self._made.get(key)
            if key in self._making or (made is not None and now_ms - made.at_ms < part.every_ms):
                return None if made is None else made.data
            self._making.add(key)
        try:
            data = _dumped(part, client)
        finally:
            with self._lock:
                self._making.discard(key)
        with self._lock:
            now_ms = self.runtime.monotonic_ms()
            self._made[key] = _Made(now_ms, data)
            for other in [k for k, one in self._made.items() if now_ms - one.at_ms > FORGOTTEN_MS]:
                del self._made[other]
        return data


def _dumped(part: Part, client: str | None) -> bytes:
    try:
        return orjson.dumps(part.make(client), default=str, option=_OPTIONS)
    except Exception as error:  # the others are shown all the same
        return orjson.dumps(told(error))
