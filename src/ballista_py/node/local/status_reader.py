"""Reading what a node shows on its HTTP ports."""

from __future__ import annotations

import ssl
from contextlib import suppress
from urllib.request import Request, urlopen

import orjson

from ballista_py.errors import TransportError
from ballista_py.secret import Secret
from ballista_py.transport.security.credentials import Tls

TIMEOUT_S = 5.0


def read_status(url: str, tls: Tls | None = None, token: Secret | None = None) -> bytes:
    """The bytes at `url`, from a node that proves itself by `tls` if it is `https`.

    Raises `TransportError` with the reason when there are none: no answer, no certificate that is trusted, no token
    that is valid, or a node that is not ready.
    """
    request = Request(url)  # noqa: S310 - the URL is a node's
    if token is not None:
        request.add_header("Authorization", f"Bearer {token.reveal()}")
    context = ssl.create_default_context(cafile=tls.ca_file) if tls is not None else None
    try:
        with urlopen(request, timeout=TIMEOUT_S, context=context) as reply:  # noqa: S310  # nosec B310
            body: bytes = reply.read()
            return body
    except OSError as error:
        raise TransportError(f"{url} gives no answer: {error}") from None


def told_ports(log: str, node_id: str) -> dict[str, str]:
    """The ports that a node said last in its log, of either form, that it listens at; nothing before it does.

    >>> told_ports("2026-01-01T00:00:00.000Z INFO s1 ports node=s1 http=1 metrics=2", "s1")
    {'http': '1', 'metrics': '2'}
    """
    for line in reversed(log.splitlines()):
        if line.startswith("{") and '"ports"' in line:
            with suppress(orjson.JSONDecodeError):
                said = orjson.loads(line)
                if said.get("event") == "ports" and said.get("node") == node_id:
                    return {name: str(said[name]) for name in ("http", "metrics")}
        if f" ports node={node_id} " in line:
            said = dict(word.split("=", 1) for word in line.split() if "=" in word)
            return {name: said[name] for name in ("http", "metrics")}
    return {}
