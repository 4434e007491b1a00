"""What a part that needs another thread asks its caller for."""

from __future__ import annotations

from collections.abc import Callable

Spawn = Callable[[Callable[[], None]], None]
"""Runs a function on another thread, which belongs to the caller, and returns at once."""
