"""How an Agent reaches its Coordinators, and what it asks of them."""

from __future__ import annotations

from typing import Any

from attrs import field, frozen

from ballista_py.runtime import Runtime
from ballista_py.secret import Secret
from ballista_py.transport.client.schedulers import Schedulers
from ballista_py.transport.endpoints import TLS_SCHEMES, Address
from ballista_py.transport.flight.client import FlightPool
from ballista_py.transport.security.credentials import Tls
from ballista_py.transport.table_read.messages import MAX_SLICES_BYTES, PACKAGE, known


@frozen(kw_only=True)
class ReadSource:
    """How the cluster of a read job is reached: by any of its schedulers.

    It can be pickled, with the token in it: what workers are sent is as secret as that is.
    """

    url: str
    token: Secret | None = field(default=None, repr=False)
    tls: Tls | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _source, (self.url, None if self.token is None else self.token.reveal(), self.tls)

    def pool(self, runtime: Runtime, *, of_nodes: bool = False) -> FlightPool:
        """Connections; those to Servers show no token, because tickets are all that these ask for."""
        tls = Tls() if self.tls is None and self.url.startswith(TLS_SCHEMES) else self.tls
        return FlightPool(runtime, tls=tls, token=None if of_nodes else self.token)

    def addresses(self) -> list[str]:
        """The addresses of schedulers."""
        return [str(Address.parse(part)) for part in self.url.split(",")]


def _source(url: str, token: str | None, tls: Tls | None) -> ReadSource:
    return ReadSource(url=url, token=None if token is None else Secret(token), tls=tls)


class Agent:
    """Asks Coordinators: any scheduler that answers. Safe to share between threads."""

    def __init__(self, source: ReadSource, runtime: Runtime) -> None:
        self._pool = source.pool(runtime)
        self._schedulers = Schedulers(source.addresses(), self._pool, runtime)

    def ask(self, name: str, message: Any, answer: str, *, again: bool = True) -> Any:
        """The answer to a message. One that may not be asked `again` is sent to one scheduler that takes it."""
        return known(answer, self.ask_bytes(f"{PACKAGE}.{name}", message, again=again), MAX_SLICES_BYTES)

    def ask_bytes(
        self, action: str, message: Any, *, again: bool = True, timeout_ms: float | None = None
    ) -> bytes:
        """As `ask`, of an action by its full name; the answer as it came."""
        body = message.SerializeToString()
        return self._schedulers.first_of(
            lambda address: self._pool.call_bytes(address, action, body, timeout_ms),
            lambda _error, _address: again,
        )

    def close(self) -> None:
        """Give up the connections."""
        self._pool.close()
