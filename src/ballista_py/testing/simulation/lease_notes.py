"""Spans of time in which somebody had a right, gathered from glimpses of how long it would last."""

from __future__ import annotations

from collections.abc import Callable

from ballista_py.testing.simulation.time import World

Note = Callable[[str, float, float], object]


class LeaseNotes:
    """Merges renewals in time into one span; `note(instance, from_ms, until_ms)` takes it once it is over."""

    def __init__(self, world: World, note: Note) -> None:
        self._world = world
        self._note = note
        self._open: tuple[str, float, float] | None = None

    def seen(self, instance: str, left_ms: float) -> None:
        """That instance now has the right for `left_ms` more; 0 means not at all, however long it was before."""
        now_ms = self._world.now_ms
        if self._open is not None:
            held_by, from_ms, until_ms = self._open
            if held_by == instance and now_ms <= until_ms and left_ms > 0.0:
                self._open = (instance, from_ms, max(until_ms, now_ms + left_ms))
                return
            self._note(held_by, from_ms, min(until_ms, now_ms))
            self._open = None
        if left_ms > 0.0:
            self._open = (instance, now_ms, now_ms + left_ms)

    def flush(self) -> None:
        """Note what of the open span is over by now."""
        if self._open is None:
            return
        now_ms = self._world.now_ms
        held_by, from_ms, until_ms = self._open
        self._note(held_by, from_ms, min(until_ms, now_ms))
        self._open = (held_by, now_ms, until_ms) if until_ms > now_ms else None
