"""Who asks an HTTP port, and who may see or do what: by the bearer token of a request."""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from attrs import field, frozen

from ballista_py.errors import Unauthenticated
from ballista_py.node.http.errors import HttpRefused
from ballista_py.transport.security.access import Access, Caller, Kind
from ballista_py.transport.security.callers import WhoeverBegan
from ballista_py.transport.security.tokens import TokenVerifier, bearer_token


@frozen
class HttpCallers:
    """Knows callers by the tokens of clients and by those for looking alone.

    `clients` None: statements need no token, as at the port for Flight. `viewers` None: whoever reaches the port may
    look; a verifier that knows nobody lets nobody.
    """

    clients: TokenVerifier | None = field(repr=False)
    viewers: TokenVerifier | None = field(repr=False)

    def caller(self, who: Collection[Kind], authorization: str, host: str) -> Caller:
        """The caller of a verb that is for `who`. Raises `Unauthenticated`.

        >>> HttpCallers(None, None).caller(("client",), "", "10.0.0.7")
        Caller(name='10.0.0.7', kind=None)
        """
        if "anyone" in who:
            return Caller(host, "anyone")
        for_viewers = "viewer" in who
        if (self.viewers if for_viewers else self.clients) is None:
            return Caller(host)
        token = bearer_token(authorization)
        if self.clients is not None:
            try:
                return Caller(self.clients.verify(token), "client")
            except Unauthenticated:
                if self.viewers is None:
                    raise
        assert self.viewers is not None
        # No client can have a name with a blank, so a viewer takes no call of one.
        return Caller(f"viewer {self.viewers.verify(token)}", "viewer")


class Shown(WhoeverBegan):
    """`Callers` for requests that have shown already who sends them."""

    def claimed(self, headers: Any) -> str:
        raise AssertionError("requests show who sends them before they are calls")

    def proved(self, claimed: str, context: Any) -> Caller:
        found: Caller = context.caller
        return found


def require_own_site(origin: str, fetched: str, host: str, is_proved: bool) -> None:
    """That a request was not made by a page of another site, in the browser of somebody who can reach the node.

    `origin` and `fetched` are the `Origin` and `Sec-Fetch-Site` that browsers send, `host` is the `Host`. A page of
    another site may send a text without leave. Where no token shows who asks, it could even have a name of its own for
    the address of the node; so a browser then has to name the address, or `localhost`. Raises `HttpRefused`.

    >>> require_own_site("", "", "node.example:8090", False)
    >>> require_own_site("http://127.0.0.1:8090", "same-origin", "127.0.0.1:8090", False)
    """
    if not origin and not fetched:
        return
    other = fetched == "cross-site" or (bool(origin) and urlsplit(origin).netloc.lower() != host.lower())
    if other:
        raise HttpRefused(403, "requests of pages of other sites are not answered", Unauthenticated.code)
    if not is_proved and not _is_address(host):
        raise HttpRefused(
            403,
            "without tokens a browser is answered only where it names the node by its address: give the cluster tokens",
            Unauthenticated.code,
        )


def _is_address(host: str) -> bool:
    name = urlsplit(f"//{host}").hostname or ""
    try:
        ip_address(name)
    except ValueError:
        return name == "localhost"
    return True


def required(access: Access, verb: str) -> Collection[Kind]:
    """Who may use the verb; nobody for one that the port does not have."""
    return access.verbs.get(verb, ())
