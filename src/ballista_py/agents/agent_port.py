"""The port of an Agent: workers ask there for rows to read, and say what became of them."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Collection, Mapping
from typing import Any

from attrs import frozen

from ballista_py.errors import TransportError, Unauthenticated
from ballista_py.runtime import Runtime
from ballista_py.secret import Secret
from ballista_py.threads import spawn
from ballista_py.transport.flight.calls import CallContext, OpenCalls
from ballista_py.transport.flight.listener import ServedCall
from ballista_py.transport.flight.server import SHUTDOWN_MS, DataHandler, FlightServer, FlightService, StreamResult
from ballista_py.transport.security.access import AGENT
from ballista_py.transport.security.callers import Clients
from ballista_py.transport.security.credentials import Tls
from ballista_py.transport.table_read.grant_messages import (
    AGENT_ACTION,
    AgentWord,
    ClientWord,
    agent_bytes,
    client_word,
)

MOST_SAID_BYTES = 64 << 10  # by a worker at once
WORKER = "worker"

Answers = Callable[[ClientWord], AgentWord]


@frozen
class OneSecret:
    """Lets in who has the secret of a job."""

    secret: Secret

    def verify(self, token: str) -> str:
        """See `TokenVerifier`."""
        if not hmac.compare_digest(token.encode(), self.secret.reveal().encode()):
            raise Unauthenticated("the secret is not that of the read job: use the handle that its Agent gave")
        return WORKER


class AgentService(FlightService):
    """Answers one action, with messages as they are."""

    spoken: Collection[str] = ("DoAction",)

    def __init__(self, handler: DataHandler, calls: OpenCalls, *, answers: Answers) -> None:
        self._answers = answers
        super().__init__(handler, calls)

    def verbs(self, handler: DataHandler) -> set[str]:
        return {f"DoAction {AGENT_ACTION}"}

    def do_action(self, call: ServedCall, action: Any) -> list[bytes]:
        with self._calls.enter(call, f"DoAction {action.type}"):
            return [agent_bytes(self._answers(client_word(action.body)))]


class _Nothing:
    """An Agent has neither streams nor questions in JSON."""

    verbs: Collection[str] = ()

    def stream(self, command: Mapping[str, Any], context: CallContext) -> StreamResult:
        raise TransportError("an Agent has no rows: they are at the executors")

    def write(self, command: Mapping[str, Any], rows: Any, context: CallContext) -> Mapping[str, Any]:
        raise TransportError("an Agent takes no rows")

    def action(self, name: str, body: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        raise TransportError("an Agent answers workers alone")


class AgentPort:
    """A listening port, from construction until `close`; `tick` it as `FlightServer`. Calls are answered on threads."""

    def __init__(self, address: str, answers: Answers, secret: Secret, runtime: Runtime, tls: Tls | None) -> None:
        self._server = FlightServer(
            address,
            _Nothing(),
            runtime,
            access=AGENT,
            spawn=spawn,
            callers=Clients(OneSecret(secret)),
            tls=tls,
            message_bytes=MOST_SAID_BYTES,
            service=lambda handler, calls: AgentService(handler, calls, answers=answers),
        )
        self.port = self._server.port

    def tick(self) -> None:
        """Cut connections that say nothing."""
        self._server.tick()

    def close(self) -> None:
        """Answer nobody any more."""
        self._server.shutdown(spawn, SHUTDOWN_MS / 5)
