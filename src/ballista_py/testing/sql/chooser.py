"""What is asked of chance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")


class Chooser(Protocol):
    """What is asked of chance: `random.Random`, or that of hypothesis."""

    def random(self) -> float: ...
    def choice(self, values: Sequence[T], /) -> T: ...
    def sample(self, values: Sequence[T], /, k: int) -> list[T]: ...
    def randrange(self, start: int, stop: int, /) -> int: ...
