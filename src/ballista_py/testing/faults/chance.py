"""Numbers that look like chance and come from a seed: the same seed, the same numbers, on every Python."""

from __future__ import annotations

import hashlib


class Chance:
    """A sequence of numbers in [0, 1) that is a function of `seed`.

    >>> Chance(7).random() == Chance(7).random()
    True
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._drawn = 0

    def random(self) -> float:
        """The next number."""
        self._drawn += 1
        digest = hashlib.blake2b(f"{self._seed}/{self._drawn}".encode(), digest_size=8).digest()
        return int.from_bytes(digest) / 2**64
