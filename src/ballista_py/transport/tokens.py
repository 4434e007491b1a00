"""Who a client is, by the bearer token that it sends."""

from __future__ import annotations

import hmac
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from ballista_py.errors import ConfigError, Unauthenticated
from ballista_py.runtime import Runtime

MIN_TOKEN_CHARS = 16
RELOAD_MS = 1_000.0


class TokenVerifier(Protocol):
    """Decides about tokens. An application may bring its own; it is called for every request, on many threads."""

    def verify(self, token: str) -> str:
        """The name of the client that `token` belongs to. Raises `Unauthenticated` for a token of nobody."""
        ...


class StaticTokens:
    """The tokens in a file: a line for each, with a client's name, a space and the token; `#` starts a comment.

    A client may have several tokens, so that a new one can be handed out before the old one goes. The file is
    read anew within `RELOAD_MS` of a change; while it cannot be read or is wrong the tokens stay as they were.
    Only digests are kept, and looking a token up takes the same time whether it is known or not.

    Raises `ConfigError` naming file and line, never a token.
    """

    def __init__(self, file: str, runtime: Runtime) -> None:
        self._file = Path(file)
        self._runtime = runtime
        self._stamp = self._stamp_now()
        self._clients = read_tokens(self._file)
        self._looked_ms = runtime.monotonic_ms()

    def verify(self, token: str) -> str:
        """The name of the client. Raises `Unauthenticated`."""
        self._reload()
        wanted = _digest(token)
        found = ""
        for digest, client in self._clients:  # all of them, always: an early end would tell where it was found
            if hmac.compare_digest(digest, wanted):
                found = client
        if not found:
            raise Unauthenticated("the token is not valid; ask whoever runs the cluster for one")
        return found

    def _reload(self) -> None:
        now_ms = self._runtime.monotonic_ms()
        if now_ms - self._looked_ms < RELOAD_MS:
            return
        self._looked_ms = now_ms
        stamp = self._stamp_now()
        if stamp == self._stamp:
            return
        try:
            self._clients = read_tokens(self._file)
        except ConfigError:
            return
        self._stamp = stamp

    def _stamp_now(self) -> tuple[int, int]:
        try:
            found = self._file.stat()
        except OSError:
            return 0, 0
        return found.st_mtime_ns, found.st_size


def read_tokens(file: Path) -> tuple[tuple[bytes, str], ...]:
    """Digest and client of every token in the file. Raises `ConfigError` naming file and line."""
    try:
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: the tokens cannot be read ({type(error).__name__})") from None
    found: list[tuple[bytes, str]] = []
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2:
            raise ConfigError(f"{file}:{number}: write a client's name, a space and a token")
        client, token = words
        if len(token) < MIN_TOKEN_CHARS:
            raise ConfigError(f"{file}:{number}: the token is shorter than {MIN_TOKEN_CHARS} characters")
        found.append((_digest(token), client))
    if not found:
        raise ConfigError(f"{file}: holds no token; nobody could connect")
    return tuple(found)


def bearer_token(authorization: str) -> str:
    """The token in an `Authorization` header. Raises `Unauthenticated` for another scheme or none.

    >>> bearer_token("Bearer abc")
    'abc'
    """
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthenticated("this cluster asks for a token; connect with token=…")
    return token.strip()


def _digest(token: str) -> bytes:
    return sha256(token.encode(errors="surrogatepass")).digest()
