"""`RestCatalogCredentials`: the credentials that an Iceberg REST catalog vends for a table, to the client himself.

The catalog is asked with the bearer token of the client who asked here, so it decides by its own rules who may read
what. It is a server of somebody else: what it says is bounded, it leads to no other address, and no text of it is
repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlencode, urlsplit

import orjson
from attrs import define, field, frozen

from ballista_py.coordinator.credentials.vendor import below, checked_values
from ballista_py.errors import ConfigError, SourceUnavailable, SourceUnfit
from ballista_py.principal import Principal
from ballista_py.runtime import Runtime
from ballista_py.scans.storage_credentials import StorageCredentials
from ballista_py.secret import Secret

MAX_REPLY_BYTES = 16 << 20
MAX_LISTED = 1_000
ASKING_S = 10.0
READING_MS = 30_000.0
_PART_BYTES = 64 << 10
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_STORAGE = ("s3.", "gcs.", "adls.", "client.region")  # of what a catalog tells of a table, that which opens files
_EXPIRY = ("s3.session-token-expires-at-ms", "gcs.oauth2.token-expires-at", "adls.sas-token-expires-at-ms")
_CREDENTIALS = "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/credentials"


@frozen
class _Told:
    """An answer: what it says, and the time by the clock of the server."""

    said: Mapping[str, Any] = field(repr=False)
    server_ms: float


@define(kw_only=True, eq=False)
class RestCatalogCredentials:
    """A `CredentialVendor` that asks an Iceberg REST catalog for the credentials of `table` (`namespace.name`).

    `uri` is that of the catalog, before `/v1`; https, or http on this machine. `warehouse` is told to it where it has
    several. A client whose own token is not known here (he showed none that may be handed on, or his job runs
    without him) is refused, unless there is a `token` of the cluster's own for such, whose rights are then those that
    count.

    How long credentials are good is reckoned from the time that the server names in the same answer, so that two
    clocks that differ do no harm. Without a time they are renewed as if they were good for `unsaid_ms`.

    Raises `ConfigError` for an address that a token is not sent to.
    """

    uri: str
    table: str
    runtime: Runtime
    warehouse: str | None = None
    token: Secret | None = None
    ca_file: str | None = None
    unsaid_ms: float = 900_000.0
    _config: Mapping[str, Any] | None = field(default=None, init=False, repr=False)
    _opener: Any = field(default=None, init=False, repr=False)
    _lock: Any = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self._lock = self.runtime.lock()
        parts = urlsplit(self.uri)
        if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOOPBACK):
            raise ConfigError(f"a catalog is shown tokens over https://, and not at '{self.uri}'")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ConfigError("the address of a catalog has neither a user nor a query in it")
        if not all(self.table.split(".")) or "." not in self.table:
            raise ConfigError(f"'{self.table}' is no table of a catalog: name it like namespace.table")

    def vend(self, principal: str, location: str) -> StorageCredentials:
        """See `CredentialVendor`."""
        place, token = below(location), self._token_of(principal)
        began_ms = self.runtime.monotonic_ms()
        config = self._catalog_config(token, principal)
        told = self._asked(self._table_path(config), token, principal)
        found = self._chosen(told.said, place, principal)
        until_ms = _expires_at_ms(found)
        valid_ms = self.unsaid_ms if until_ms is None else max(0.0, until_ms - told.server_ms)
        made = StorageCredentials(
            location=place,
            values=checked_values(found, f"the catalog of {self.table}"),
            expires_at_ms=until_ms,
            valid_ms=valid_ms,
        )
        return made.after(self.runtime.monotonic_ms() - began_ms)

    def _token_of(self, principal: str) -> Secret:
        own = principal.token if isinstance(principal, Principal) else None
        token = own or self.token
        if token is None:
            raise SourceUnfit(
                f"the catalog of {self.table} gives credentials to whoever shows a token of his own, and none of client"
                f" '{principal}' is known here: ask with a token of the identity provider, not in a job"
            )
        return token

    def _catalog_config(self, token: Secret, principal: str) -> Mapping[str, Any]:
        with self._lock:
            known = self._config
        if known is None:
            query = "" if self.warehouse is None else f"?{urlencode({'warehouse': self.warehouse})}"
            known = self._asked(f"config{query}", token, principal).said
            with self._lock:
                self._config = known
        return known

    def _table_path(self, config: Mapping[str, Any]) -> str:
        """Where its credentials are; a catalog without a place for them tells them with the table itself."""
        settings = {**_mapping(config.get("defaults")), **_mapping(config.get("overrides"))}
        prefix = settings.get("prefix")
        below_v1 = f"{quote(prefix, safe='')}/" if isinstance(prefix, str) and prefix else ""
        *levels, name = self.table.split(".")
        separator = settings.get("namespace-separator")
        joined = quote("\x1f".join(levels), safe="")
        if isinstance(separator, str) and 0 < len(separator) <= 8:
            joined = separator.join(quote(level, safe="") for level in levels)
        path = f"{below_v1}namespaces/{joined}/tables/{quote(name, safe='')}"
        endpoints = config.get("endpoints")
        if isinstance(endpoints, list) and _CREDENTIALS in endpoints[:MAX_LISTED]:
            return f"{path}/credentials"
        return f"{path}?snapshots=refs"

    def _chosen(self, said: Mapping[str, Any], place: str, principal: str) -> dict[str, Any]:
        """Of what the catalog gave that which is for the place most narrowly, and opens files."""
        listed = said.get("storage-credentials") or []
        fitting = [
            one
            for one in (listed[:MAX_LISTED] if isinstance(listed, list) else [])
            if isinstance(one, dict) and isinstance(one.get("prefix"), str) and place.startswith(one["prefix"])
        ]
        best = max(fitting, key=lambda one: len(one["prefix"]), default=None)
        config = said.get("config") if best is None else best.get("config")
        found = {
            name: value
            for name, value in _mapping(config).items()
            if isinstance(name, str) and name.startswith(_STORAGE)
        }
        if not any("key" in name or "token" in name for name in found):
            raise SourceUnfit(
                f"the catalog of {self.table} vends client '{principal}' no credentials for '{place}': allow it there,"
                " or give the table credentials of its own"
            )
        return found

    def _asked(self, path: str, token: Secret, principal: str) -> _Told:
        """What the catalog answers. Raises `SourceUnavailable` or `SourceUnfit`, without a word of the answer."""
        try:
            data, date = self._fetched(f"{self.uri.rstrip('/')}/v1/{path}", token)
        except HTTPError as error:
            error.close()
            if error.code == 429 or error.code >= 500:
                raise SourceUnavailable(f"the catalog of {self.table} is busy (HTTP {error.code})") from None
            raise SourceUnfit(
                f"the catalog of {self.table} refuses client '{principal}' (HTTP {error.code}): see there who may read"
            ) from None
        except (OSError, ValueError, HTTPException) as error:
            kind = type(error).__name__
            raise SourceUnavailable(
                f"the catalog of {self.table} cannot be asked for credentials ({kind})"
            ) from None
        try:
            said = orjson.loads(data) if len(data) <= MAX_REPLY_BYTES else None
        except orjson.JSONDecodeError:
            said = None
        if not isinstance(said, dict):
            raise SourceUnfit(f"the catalog of {self.table} answers with what is no JSON, or too much of it")
        return _Told(said, self._server_ms(date))

    def _fetched(self, url: str, token: Secret) -> tuple[bytes, str | None]:
        """What lies at the address, and the time there. No other address is followed, so none gets the token."""
        from urllib.request import Request

        request = Request(  # noqa: S310 - the scheme was checked: https, or http on this machine
            url,
            headers={
                "Authorization": f"Bearer {token.reveal()}",
                "X-Iceberg-Access-Delegation": "vended-credentials",
                "Accept": "application/json",
            },
        )
        with self._lock:
            self._opener = opener = self._opener or _opener(self.uri, self.ca_file)
        until_ms = self.runtime.monotonic_ms() + READING_MS
        data = bytearray()
        with opener.open(request, timeout=ASKING_S) as reply:
            while part := reply.read1(_PART_BYTES):
                data += part
                if len(data) > MAX_REPLY_BYTES:
                    break
                if self.runtime.monotonic_ms() > until_ms:
                    raise TimeoutError
            if reply.length and len(data) <= MAX_REPLY_BYTES:
                raise ConnectionError
            return bytes(data), reply.headers.get("Date")

    def _server_ms(self, date: str | None) -> float:
        """The time that the answer names; in whole seconds, so its end is what counts."""
        try:
            return parsedate_to_datetime(date or "").timestamp() * 1e3 + 999.0
        except (ValueError, TypeError, OverflowError):
            return float(self.runtime.wall_ms())


def _opener(uri: str, ca_file: str | None) -> Any:
    """What asks; it follows no other address."""
    import ssl
    from urllib.request import HTTPRedirectHandler, HTTPSHandler, build_opener

    class Nowhere(HTTPRedirectHandler):
        def redirect_request(self, *_arguments: Any, **_named: Any) -> None:
            return None

    if not uri.startswith("https:"):
        return build_opener(Nowhere())
    return build_opener(Nowhere(), HTTPSHandler(context=ssl.create_default_context(cafile=ca_file)))


def _expires_at_ms(found: Mapping[Any, Any]) -> int | None:
    """The first moment at which one of the values expires."""
    said = [value for name, value in found.items() if name.startswith(_EXPIRY)]
    moments = [
        int(one) for one in said if isinstance(one, str) and one.isascii() and one.isdigit() and len(one) < 16
    ]
    if len(moments) != len(said):
        raise SourceUnfit("a catalog says of its credentials that they expire, and not when")
    return min(moments, default=None)


def _mapping(value: Any) -> Mapping[Any, Any]:
    return value if isinstance(value, dict) else {}
