"""What a Coordinator answers to an Agent: the actions of Table Read at a scheduler's public port."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ballista_py.transport.table_read.messages import PACKAGE, known, pb


class Coordinator(Protocol):
    """What decides about read jobs. `client` is who asks; each function raises what is wrong with the request."""

    def plan(self, plan: Any, client: str) -> Any:
        """`Slices` for a `Plan`."""
        ...

    def renew(self, renew: Any, client: str) -> Any:
        """`Renewed`."""
        ...

    def locate(self, locate: Any, client: str) -> Any:
        """`Located`."""
        ...

    def close(self, close: Any, client: str) -> Any:
        """`Closed`."""
        ...


_ACTIONS: Mapping[str, Callable[[Coordinator], Callable[[Any, str], Any]]] = {
    "Plan": lambda found: found.plan,
    "Renew": lambda found: found.renew,
    "Locate": lambda found: found.locate,
    "Close": lambda found: found.close,
}
READ_ACTIONS = {f"{PACKAGE}.{name}": name for name in _ACTIONS}


def answer_action(coordinator: Coordinator, action: str, body: bytes, client: str) -> bytes:
    """The result of an action of `READ_ACTIONS`. Raises `InvalidData` for a body that is not its message."""
    name = READ_ACTIONS[action]
    result = _ACTIONS[name](coordinator)(known(name, body), client)
    return bytes(result.SerializeToString())


__all__ = ["PACKAGE", "READ_ACTIONS", "Coordinator", "answer_action", "pb"]
