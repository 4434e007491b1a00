"""What a Coordinator answers to whoever writes from many processes: the actions of Table Write at a scheduler."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ballista_py.transport.table_write.messages import PACKAGE, known_of_write


class WriteCoordinator(Protocol):
    """What decides about writes. `client` is who asks; each function raises what is wrong with the request."""

    def begin(self, begin: Any, client: str) -> Any:
        """`WriteBegun` for a `BeginWrite`."""
        ...

    def renew(self, renew: Any, client: str) -> Any:
        """`WriteRenewed`."""
        ...

    def commit(self, commit: Any, client: str) -> Any:
        """`WriteCommitted`."""
        ...

    def abort(self, abort: Any, client: str) -> Any:
        """`WriteAborted`."""
        ...


_ACTIONS: Mapping[str, Callable[[WriteCoordinator], Callable[[Any, str], Any]]] = {
    "BeginWrite": lambda found: found.begin,
    "RenewWrite": lambda found: found.renew,
    "CommitWrite": lambda found: found.commit,
    "AbortWrite": lambda found: found.abort,
}
WRITE_ACTIONS = {f"{PACKAGE}.{name}": name for name in _ACTIONS}


def answer_write_action(coordinator: WriteCoordinator, action: str, body: bytes, client: str) -> bytes:
    """The result of an action of `WRITE_ACTIONS`. Raises `InvalidData` for a body that is not its message."""
    name = WRITE_ACTIONS[action]
    result = _ACTIONS[name](coordinator)(known_of_write(name, body), client)
    return bytes(result.SerializeToString())
