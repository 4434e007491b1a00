"""Tickets that whoever knows a secret makes and believes: servers without certificates of a cluster.

Whoever reads a ticket can have what it is for, for an hour.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from attrs import field, frozen

from ballista_py.errors import ConfigError, Unauthenticated
from ballista_py.runtime import Runtime
from ballista_py.secret import Secret
from ballista_py.transport.flight.wire import from_json, to_json
from ballista_py.transport.security.signed_tickets import TICKET_MS, changed, check_time
from ballista_py.transport.security.tokens import read_lines

MIN_SECRET_CHARS = 32
_FIELDS = frozenset(("body", "signature"))


@frozen(kw_only=True)
class SecretTickets:
    """Makes tickets and looks at them. One that was made for another `purpose` is none."""

    purpose: bytes
    secret: Secret = field(repr=False)
    runtime: Runtime

    def issue(self, values: Mapping[str, Any]) -> dict[str, str]:
        """A ticket that says these, JSON-ready as they are."""
        body = to_json({**values, "until_ms": self.runtime.wall_ms() + TICKET_MS})
        return {"body": base64.b64encode(body).decode(), "signature": self._signature(body)}

    def values(self, ticket: Mapping[str, Any]) -> dict[str, Any]:
        """What a ticket says. Raises `Unauthenticated` for one that is too old, or that nobody made who knows the
        secret."""
        body, signature = ticket.get("body"), ticket.get("signature")
        if ticket.keys() != _FIELDS or not isinstance(body, str) or not isinstance(signature, str):
            raise Unauthenticated("the ticket is none of this server")
        try:
            said = base64.b64decode(body, validate=True)
        except ValueError:
            raise Unauthenticated("the ticket is none of this server") from None
        if not hmac.compare_digest(self._signature(said).encode(), signature.encode(errors="replace")):
            raise changed()
        values = from_json(said)
        check_time(values.get("until_ms"), self.runtime.wall_ms())
        return values

    def _signature(self, body: bytes) -> str:
        return hmac.new(self.secret.reveal().encode(), self.purpose + body, sha256).hexdigest()


def read_ticket_secret(path: str) -> Secret:
    """The secret in a file, without blanks around it.

    Raises `ConfigError` for one that is too short or no text, and for a file that everybody can write to.
    """
    text = "\n".join(read_lines(Path(path), "the secret of tickets")).strip()
    if len(text) < MIN_SECRET_CHARS:
        raise ConfigError(
            f"the secret in '{path}' has fewer than {MIN_SECRET_CHARS} characters: take that of 'openssl rand -hex 32'"
        )
    return Secret(text)
