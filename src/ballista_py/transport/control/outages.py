"""What an executor says of schedulers that it waits for: once at first, then each minute; and whether it is in vain."""

from __future__ import annotations

from collections.abc import Collection

from attrs import define, field

from ballista_py.errors import BallistaError, WrongCluster
from ballista_py.transport.control.grpc import StatusCode, aio

SAY_EVERY_MS = 60_000.0
FOREIGN = StatusCode.PERMISSION_DENIED  # of a call that a scheduler of another cluster refuses


def is_foreign(error: BaseException) -> bool:
    """Whether an error says that the scheduler is one of another cluster."""
    return isinstance(error, WrongCluster) or (isinstance(error, aio.AioRpcError) and error.code() is FOREIGN)


@define
class Outages:
    """Of the schedulers at some addresses. `seeds` are those that the executor was told of at its start.

    >>> outages = Outages(["a:1"])
    >>> [outages.says("a:1", now_ms) for now_ms in (0.0, 1_000.0, 60_000.0, 61_000.0)]
    [True, False, True, False]
    """

    seeds: Collection[str]
    _said_ms: dict[str, float] = field(factory=dict, init=False)
    _since_ms: dict[str, float] = field(factory=dict, init=False)
    _foreign: set[str] = field(factory=set, init=False)
    _was_heard: bool = field(default=False, init=False)

    def heard(self, address: str) -> None:
        """A scheduler of this cluster answered there: whatever fails from now on is another outage."""
        self._was_heard = True
        self._said_ms.pop(address, None)
        self._since_ms.pop(address, None)
        self._foreign.discard(address)

    def says(self, address: str, now_ms: float) -> bool:
        """Whether to say now that nobody answers there."""
        self._since_ms.setdefault(address, now_ms)
        said_ms = self._said_ms.get(address)
        if said_ms is not None and now_ms - said_ms < SAY_EVERY_MS:
            return False
        self._said_ms[address] = now_ms
        return True

    def lasted_s(self, address: str, now_ms: float) -> float:
        """For how many seconds nobody has answered there."""
        return (now_ms - self._since_ms.get(address, now_ms)) / 1e3

    def failed(self, address: str, error: BaseException) -> WrongCluster | None:
        """A try failed; the error to end with if all schedulers that the executor was told of are another cluster's.

        Not of one that has ever heard a scheduler of its own: an address may be given to another cluster later.
        """
        if not is_foreign(error):
            self._foreign.discard(address)
            return None
        self._foreign.add(address)
        if self._was_heard or not self._foreign >= set(self.seeds):
            return None
        said = error.message if isinstance(error, BallistaError) else ""
        return WrongCluster(
            f"the scheduler at {address} is one of another cluster: give the --scheduler-address of this one, or "
            f"the --state-location of that one{f' ({said})' if said else ''}"
        )

    def forget(self, address: str) -> None:
        """Nobody is tried there any more."""
        self._said_ms.pop(address, None)
        self._since_ms.pop(address, None)
        self._foreign.discard(address)
