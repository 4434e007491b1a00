"""How fast strangers may make calls: those of one address, and all of them together."""

from __future__ import annotations

from attrs import define, field, frozen


@frozen(kw_only=True)
class Pace:
    """So many at once, and so many a second after that."""

    burst: float
    per_s: float


@define
class _Left:
    calls: float
    at_ms: float

    def at(self, now_ms: float, pace: Pace) -> float:
        self.calls = min(pace.burst, self.calls + (now_ms - self.at_ms) / 1e3 * pace.per_s)
        self.at_ms = now_ms
        return self.calls


@define
class Turnstile:
    """Counts the calls of strangers; who has made too many waits, and what he made is not taken back.

    >>> turnstile = Turnstile(own=Pace(burst=2, per_s=10), together=Pace(burst=9, per_s=99))
    >>> turnstile.charge("10.0.0.7", 5, 0.0)
    >>> turnstile.wait_ms("10.0.0.7", 0.0), turnstile.wait_ms("10.0.0.8", 0.0)
    (300.0, 0.0)
    """

    own: Pace
    together: Pace
    _of: dict[str, _Left] = field(init=False, factory=dict)
    _all: _Left = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._all = _Left(self.together.burst, 0.0)

    def charge(self, group: str, calls: int, now_ms: float) -> None:
        """So many calls came from that address."""
        own = self._of.setdefault(group, _Left(self.own.burst, now_ms))
        own.at(now_ms, self.own)
        own.calls -= calls
        self._all.at(now_ms, self.together)
        self._all.calls -= calls

    def wait_ms(self, group: str, now_ms: float) -> float:
        """How long the next one from that address has to wait."""
        own = self._of.get(group)
        late = max(0.0, -own.at(now_ms, self.own) / self.own.per_s * 1e3) if own else 0.0
        return max(late, -self._all.at(now_ms, self.together) / self.together.per_s * 1e3, 0.0)

    def tick(self, now_ms: float) -> None:
        """Forget the addresses that need not be remembered."""
        self._of = {group: left for group, left in self._of.items() if left.at(now_ms, self.own) < self.own.burst}
