"""Who a client is, by a JSON Web Token that an identity provider has signed.

The provider's public keys (its JWKS) are fetched when a token names one that is not known, and now and then. No
algorithm is taken but the ones that were allowed, all of which sign with a key that only the provider has: neither
`none`, nor a secret that both sides share, for which a public key could be taken.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import orjson
from attrs import define, field, frozen

from ballista_py.errors import ConfigError, Unauthenticated
from ballista_py.principal import MAX_GROUPS, Principal
from ballista_py.runtime import Runtime
from ballista_py.secret import Secret

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
MAX_TOKEN_CHARS = 16_384
MAX_JWKS_BYTES = 1 << 20
MAX_KEYS = 128
RSA_BITS = range(2_048, 8_193)
FETCH_S = 5.0
REFRESH_MS = 600_000.0  # after which the keys are fetched again, whoever asks
FETCH_AGAIN_MS = 10_000.0  # between two fetches, whatever keys tokens name
KEPT_MS = 3_600_000.0  # for how long keys count while the provider cannot be reached
_KINDS = {"RSA": ("RS", "PS"), "EC": ("ES",), "OKP": ("Ed",)}
_LOOPBACK = ("localhost", "127.0.0.1", "::1")

_log = logging.getLogger(__name__)
Fetch = Callable[[], bytes]


@frozen(kw_only=True)
class JwtSettings:
    """Which tokens count: those of one `issuer` for one `audience`, signed with a key at `jwks_url`.

    `name_claim` has the name of the client and `groups_claim` the list of its groups, if there is one. Clocks may
    differ by `leeway_s` seconds. `ca_file` (PEM) is the authority of the provider's certificate; None: the system's.

    Raises `ConfigError` for what would let in whoever asks: an algorithm that is not in `ALGORITHMS`, an address
    without TLS, a leeway of more than five minutes.
    """

    issuer: str
    audience: str
    jwks_url: str
    algorithms: tuple[str, ...] = ("RS256", "ES256")
    name_claim: str = "sub"
    groups_claim: str = "groups"
    leeway_s: float = 60.0
    ca_file: str | None = None

    def __attrs_post_init__(self) -> None:
        for name in ("issuer", "audience", "name_claim", "groups_claim"):
            if not getattr(self, name):
                raise ConfigError(
                    f"tokens of a provider need their {name}: without it those of others would count"
                )
        wrong = [one for one in self.algorithms if one not in ALGORITHMS]
        if wrong or not self.algorithms:
            raise ConfigError(
                f"tokens are signed by one of {', '.join(ALGORITHMS)}, and not by {wrong or 'nothing'}"
            )
        if not 0 <= self.leeway_s <= 300:
            raise ConfigError("clocks may differ by 0 to 300 seconds (leeway_s)")
        url = urlsplit(self.jwks_url)
        if url.scheme != "https" and not (url.scheme == "http" and url.hostname in _LOOPBACK):
            raise ConfigError(f"the keys of a provider are fetched over https://, and not from '{self.jwks_url}'")


@define(eq=False)
class JwtTokens:
    """A `TokenVerifier` for the tokens of a provider. Safe to share between threads.

    While the provider cannot be reached the keys that are known count for an hour, and tokens that name another one are
    refused. One that takes a key out has its tokens refused ten minutes later at most.
    """

    settings: JwtSettings
    runtime: Runtime
    fetch: Fetch | None = None
    _keys: Mapping[str, Any] = field(factory=dict, init=False, repr=False)
    _fetched_ms: float | None = field(default=None, init=False)
    _tried_ms: float | None = field(default=None, init=False)
    _fetching: bool = field(default=False, init=False)
    _changed: Any = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self._changed = self.runtime.condition()

    def verify(self, token: str) -> Principal:
        """The client with its groups. Raises `Unauthenticated`, which says what is wrong and repeats nothing."""
        import jwt
        from jwt.utils import base64url_decode

        if len(token) > MAX_TOKEN_CHARS or token.count(".") != 2:
            raise Unauthenticated("the token is not valid: it is no JSON Web Token")
        try:
            for part in token.split(".")[:2]:
                json.loads(base64url_decode(part), object_pairs_hook=_each_once)
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError, RecursionError):
            raise Unauthenticated("the token is not valid: it is no JSON Web Token") from None
        algorithm, kid = header.get("alg"), header.get("kid", "")
        if algorithm not in self.settings.algorithms:
            raise Unauthenticated(
                f"the token is not valid: it is not signed by {' or '.join(self.settings.algorithms)}"
            )
        if "crit" in header or not isinstance(kid, str):
            raise Unauthenticated("the token is not valid: its header asks for what is not known here")
        key = self._key(kid)
        if not _fits(key, algorithm):
            raise Unauthenticated("the token is not valid: its key is for another algorithm")
        try:
            claims = jwt.decode(
                token,
                key.key,
                algorithms=[algorithm],
                audience=self.settings.audience,
                issuer=self.settings.issuer,
                options={
                    "require": ["exp", "iss", "aud"],
                    "verify_exp": False,  # by the clock of the runtime, below
                    "verify_nbf": False,
                    "verify_iat": False,
                    "verify_sub": False,
                    "verify_jti": False,
                },
            )
        except jwt.PyJWTError as error:
            raise Unauthenticated(f"the token is not valid: {_reason(error)}") from None
        self._require_now(claims)
        return self._principal(claims, token)

    def _require_now(self, claims: Mapping[str, Any]) -> None:
        now_s, leeway_s = self.runtime.wall_ms() / 1e3, self.settings.leeway_s
        for name in ("exp", "nbf", "iat"):
            value = claims.get(name)
            if name != "exp" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e12:
                raise Unauthenticated(f"the token is not valid: its {name} is no time")
            late = value + leeway_s <= now_s if name == "exp" else value - leeway_s > now_s
            if late:
                said = "its time is over" if name == "exp" else "its time has not come"
                raise Unauthenticated(f"the token is not valid: {said} ({name})")

    def _principal(self, claims: Mapping[str, Any], token: str) -> Principal:
        name, groups = claims.get(self.settings.name_claim), claims.get(self.settings.groups_claim)
        groups = [] if groups is None else groups
        if not isinstance(name, str) or not isinstance(groups, list) or len(groups) > MAX_GROUPS:
            raise Unauthenticated(
                "the token is not valid: it names no client, or no list of groups that can be one"
            )
        if not all(isinstance(one, str) for one in groups):
            raise Unauthenticated("the token is not valid: a group of it has no name")
        try:
            return Principal(name, groups, Secret(token))
        except ConfigError as error:
            raise Unauthenticated(f"the token is not valid: {error.message}") from None

    def _key(self, kid: str) -> Any:
        """The key of that name, or the only one for a token that names none. Raises `Unauthenticated`."""
        now_ms = self.runtime.monotonic_ms()
        with self._changed:
            known = self._found(kid, now_ms)
            is_due = self._fetched_ms is None or now_ms - self._fetched_ms >= REFRESH_MS
            may_try = self._tried_ms is None or now_ms - self._tried_ms >= FETCH_AGAIN_MS
            if (known is None or is_due) and may_try and not self._fetching:
                self._fetching, self._tried_ms = True, now_ms
            elif known is None and self._fetching:
                self._changed.wait(FETCH_S * 1e3)
                known = self._found(kid, self.runtime.monotonic_ms())
                return known or self._refuse()
            else:
                return known or self._refuse()
        self._fetch(now_ms)
        with self._changed:
            return self._found(kid, self.runtime.monotonic_ms()) or self._refuse()

    def _fetch(self, now_ms: float) -> None:
        found: Mapping[str, Any] | None = None
        try:
            data = fetched(self.settings.jwks_url, self.settings.ca_file) if self.fetch is None else self.fetch()
            found = keys_of(data)
        except (OSError, ValueError, ConfigError) as error:
            _log.warning("the keys of %s cannot be fetched: %s", self.settings.issuer, type(error).__name__)
        finally:
            with self._changed:
                if found is not None:
                    self._keys, self._fetched_ms = found, now_ms
                self._fetching = False
                self._changed.notify_all()

    def _found(self, kid: str, now_ms: float) -> Any:
        if self._fetched_ms is None or now_ms - self._fetched_ms >= KEPT_MS:
            return None
        if not kid and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(kid) if kid else None

    def _refuse(self) -> Any:
        raise Unauthenticated(
            "the token is not valid: its provider is known by no such key, or cannot be reached now"
        )


def keys_of(data: bytes) -> dict[str, Any]:
    """The public keys of a JWKS by their names. What is no key to verify with is left out.

    Raises `ConfigError` for what is no JWKS, or none that is bounded.
    """
    import jwt

    if len(data) > MAX_JWKS_BYTES:
        raise ConfigError("the keys of a provider are too many bytes")
    try:
        said = orjson.loads(data)
    except orjson.JSONDecodeError:
        raise ConfigError("the keys of a provider are no JSON") from None
    listed = said.get("keys") if isinstance(said, dict) else None
    if not isinstance(listed, list) or len(listed) > MAX_KEYS:
        raise ConfigError("the keys of a provider are no list of keys, or too many")
    found: dict[str, Any] = {}
    for one in listed:
        if not isinstance(one, dict) or one.get("kty") not in _KINDS or one.get("use", "sig") != "sig":
            continue
        kid = one.get("kid", "")
        if not isinstance(kid, str) or kid in found:
            continue
        algorithm = one.get("alg") or {"RSA": "RS256", "OKP": "EdDSA"}.get(one["kty"])
        try:
            key = jwt.PyJWK(one, algorithm)
        except (jwt.PyJWTError, ValueError, TypeError, KeyError):
            continue
        if one["kty"] != "RSA" or getattr(key.key, "key_size", 0) in RSA_BITS:
            found[kid] = _Key(key=key.key, kind=one["kty"], algorithm=one.get("alg"), curve=one.get("crv", ""))
    return found


@frozen(kw_only=True)
class _Key:
    key: Any = field(repr=False)
    kind: str
    algorithm: str | None
    curve: str


def _each_once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """The object. Raises `Unauthenticated` for a name that is there twice: of two readers each might believe another
    one of its values."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise Unauthenticated("the token is not valid: it says something twice")
    return found


_CURVES = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}


def _fits(key: _Key, algorithm: str) -> bool:
    """Whether a key is one for the algorithm that a token says it was signed by."""
    if not algorithm.startswith(_KINDS[key.kind]) or (key.algorithm is not None and key.algorithm != algorithm):
        return False
    return key.kind != "EC" or _CURVES.get(algorithm) == key.curve


def fetched(url: str, ca_file: str | None = None) -> bytes:
    """What lies at the address, which answers by itself: no other one is followed. Raises `OSError`, `ConfigError`."""
    import ssl
    from urllib.request import HTTPRedirectHandler, HTTPSHandler, build_opener

    class Nowhere(HTTPRedirectHandler):
        def redirect_request(self, *_arguments: Any, **_named: Any) -> None:
            return None

    opener = build_opener(Nowhere(), HTTPSHandler(context=ssl.create_default_context(cafile=ca_file)))
    with opener.open(url, timeout=FETCH_S) as reply:  # the scheme was checked: https, or http on this machine
        data: bytes = reply.read(MAX_JWKS_BYTES + 1)
    return data


def _reason(error: Exception) -> str:
    """What is wrong with a token, in our words: those of the library may repeat it."""
    import jwt

    reasons: dict[type[Exception], str] = {
        jwt.InvalidSignatureError: "its signature is not that of its key",
        jwt.InvalidAudienceError: "it is for another audience",
        jwt.InvalidIssuerError: "it is of another issuer",
        jwt.MissingRequiredClaimError: "it does not say when it ends, by whom it is and for whom",
    }
    return next((said for kind, said in reasons.items() if isinstance(error, kind)), "it cannot be read")
