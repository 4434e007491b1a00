"""Tickets for parts of answers, which executors give to whoever holds one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from ballista_py.errors import Unauthenticated
from ballista_py.runtime import Runtime
from ballista_py.transport.security.credentials import Removed, Tls
from ballista_py.transport.security.signed_tickets import (
    Ticket,
    TicketCheck,
    TicketSigner,
    changed,
    safe_location,
)

_PURPOSE = b"ballista_py: a part of an answer\n"


@frozen(kw_only=True)
class LegTickets:
    """What a scheduler makes tickets with. With `tls` it signs them as the node that its certificate names."""

    cluster_id: str
    runtime: Runtime
    tls: Tls | None = None

    def issue(self, executor_id: str, command: Mapping[str, Any], digest: str) -> dict[str, str]:
        """A ticket for `command` at that executor, JSON-ready; `digest` is that of all else that goes with it.

        Raises `ConfigError` for a key that cannot sign.
        """
        signer = TicketSigner(purpose=_PURPOSE, cluster_id=self.cluster_id, runtime=self.runtime, tls=self.tls)
        return signer.issue({"executor": executor_id, "command": command, "digest": digest})

    def location(self, said: str | None, data_address: str) -> str | None:
        """The URI at which clients are sent to an executor that said it; None if they are not to go there."""
        return safe_location(said, data_address, is_plain=self.tls is None)


@frozen(kw_only=True)
class LegTicketCheck:
    """What an executor looks at tickets with; see `TicketCheck`."""

    executor_id: str
    cluster_id: str
    runtime: Runtime
    tls: Tls | None = None
    removed: Removed = field(factory=Removed)

    def command(self, ticket: Ticket, digest: str) -> dict[str, Any]:
        """The command in a ticket that was issued for this executor, and came with what has the `digest`.

        Raises `Unauthenticated` for one that was not, and as `TicketCheck.values`.
        """
        check = TicketCheck(
            purpose=_PURPOSE,
            cluster_id=self.cluster_id,
            runtime=self.runtime,
            tls=self.tls,
            removed=self.removed,
        )
        values = check.values(ticket)
        command = values.get("command")
        if values.get("executor") != self.executor_id or not isinstance(command, dict):
            raise Unauthenticated("the ticket is not for this executor")
        if values.get("digest") != digest:
            raise changed()
        return command
