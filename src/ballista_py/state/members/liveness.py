"""Who is alive, judged by one's own eyes and one's own clock only."""

from __future__ import annotations

from collections.abc import Collection

from attrs import frozen

from ballista_py.runtime import Runtime

TTL_MS = 30_000.0
SKEW_MS = 5_000.0
BEATS_PER_TTL = 3
JITTER = 0.2


def jittered_ms(interval_ms: float, chance: float) -> float:
    """`interval_ms`, 20 % more or less; `chance` is a random number in [0, 1). Take it anew for each wait.

    >>> [jittered_ms(100.0, chance) for chance in (0.0, 0.5)]
    [80.0, 100.0]
    """
    return interval_ms * (1 - JITTER + 2 * JITTER * chance)


@frozen
class _Sight:
    token: str
    since_ms: float


class Observer:
    """Tells who has not changed for `patience_ms` of this observer's monotonic clock.

    A first look never finds anybody dead, so a fresh observer waits `patience_ms` once. Not for several threads.
    """

    def __init__(self, runtime: Runtime, patience_ms: float) -> None:
        self._runtime = runtime
        self._patience_ms = patience_ms
        self._sights: dict[str, _Sight] = {}

    def unchanged(self, name: str, token: str, asked_ms: float) -> bool:
        """Whether `name` has shown this very `token` for all of `patience_ms`.

        `asked_ms` is when the request for it was sent; call this as soon as the reply is here. The time between
        the first reply and the last request is the part of the silence that is certain.
        """
        sight = self._sights.get(name)
        if sight is None or sight.token != token:
            self._sights[name] = _Sight(token, self._runtime.monotonic_ms())
            return False
        return asked_ms - sight.since_ms >= self._patience_ms

    def keep_only(self, names: Collection[str]) -> None:
        """Forget everybody else."""
        self._sights = {name: sight for name, sight in self._sights.items() if name in names}
