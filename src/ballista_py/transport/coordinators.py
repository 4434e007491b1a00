"""What Coordinators answer to Agents: the actions of Table Read and of Table Write at a scheduler's public port."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Generic, Protocol, TypeVar

from attrs import frozen

from ballista_py.transport.table_read import messages as of_read
from ballista_py.transport.table_write import messages as of_write

C = TypeVar("C")


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


@frozen
class Actions(Generic[C]):
    """The actions of a package: each is the full name of a message, which `known` reads, and is answered by a function
    of a Coordinator.

    >>> "ballista_py.tableread.v1.Plan" in READ_ACTIONS.names, "ballista_py.tableread.v1.Slices" in READ_ACTIONS.names
    (True, False)
    """

    package: str
    known: Callable[[str, bytes], Any]
    functions: Mapping[str, str]

    @property
    def names(self) -> list[str]:
        """What an action is called."""
        return [f"{self.package}.{name}" for name in self.functions]

    def answer(self, coordinator: C, action: str, body: bytes, client: str) -> bytes:
        """The result of one of these actions. Raises `InvalidData` for a body that is not its message."""
        name = action.removeprefix(f"{self.package}.")
        asked = attrgetter(self.functions[name])(coordinator)
        return bytes(asked(self.known(name, body), client).SerializeToString())


READ_ACTIONS: Actions[Coordinator] = Actions(
    of_read.PACKAGE, of_read.known, {"Plan": "plan", "Renew": "renew", "Locate": "locate", "Close": "close"}
)
WRITE_ACTIONS: Actions[WriteCoordinator] = Actions(
    of_write.PACKAGE,
    of_write.known_of_write,
    {"BeginWrite": "begin", "RenewWrite": "renew", "CommitWrite": "commit", "AbortWrite": "abort"},
)
