"""Mutants of documents and stores. Each function gives what to replace: (owner, name, replacement)."""

from __future__ import annotations

from typing import Any

from ballista_py.errors import RetriesExhausted
from ballista_py.state.documents import landing, object_state
from ballista_py.state.documents.landing import Attempt, Landing, Read
from ballista_py.state.stores.memory import MemoryStore

Patches = list[tuple[Any, str, Any]]


def blind_retry() -> Patches:
    def judge(attempt: Attempt[Any], current: Read[Any] | None) -> Landing:
        return Landing.LOST

    return [(object_state, "judge", judge)]


def conflict_believed() -> Patches:
    real = landing.judge

    def judge(attempt: Attempt[Any], current: Read[Any] | None) -> Landing:
        return real(attempt, current) if attempt.blind else Landing.LOST

    return [(object_state, "judge", judge)]


def unknown_reported_failed() -> Patches:
    def unknown(self: Any, reason: str) -> RetriesExhausted:
        return RetriesExhausted(f"document '{self.key}' was not changed: {reason}", key=self.key, attempts=0)

    return [(object_state.ObjectState, "_unknown", unknown)]


def unconditional_write() -> Patches:
    def replace(self: Any, key: str, data: bytes, version: str) -> str:
        return str(self._put(key, data))

    return [(MemoryStore, "replace", replace)]
