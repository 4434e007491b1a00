"""Who a client is, by the bearer token that it sends."""

from __future__ import annotations

import hmac
import logging
import stat
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from attrs import frozen

from ballista_py.errors import ConfigError, Unauthenticated
from ballista_py.principal import Principal, groups_of
from ballista_py.runtime import Runtime
from ballista_py.short_file import read_short_file

MIN_TOKEN_CHARS = 16
MOST_TOKENS = 2  # of one client: the old one and the new one
RELOAD_MS = 1_000.0
GROUPS = "groups="
UNSENDABLE = "has a character that no header can carry: tokens are letters, digits and signs of ASCII"

_log = logging.getLogger(__name__)


class TokenVerifier(Protocol):
    """Decides about tokens. An application may bring its own; it is called for every request, on many threads."""

    def verify(self, token: str) -> str:
        """The name of the client that `token` belongs to: a `Principal`, if it is known in which groups he is.

        Raises `Unauthenticated` for a token of nobody.
        """
        ...


class StaticTokens:
    """The tokens in a file: a line for each, with a client's name, a space and the token; `#` starts a comment. Behind
    the token `groups=one,two` may say in which groups the client is, in every line of his the same.

    A client may have two tokens, so that a new one can be handed out before the old one goes. The file is read
    anew within `RELOAD_MS` of a change, and what it says counts at once: a file without a token revokes all of them,
    and while it cannot be read or has a wrong line nobody is let in, because a token that was meant to go must not
    stay for a slip of the pen. Both are errors in the log, once for each change; write the new file beside the old one
    and rename it, so that nobody ever reads half of it. Only digests are kept, and looking a token up takes the same
    time whether it is known or not.

    Raises `ConfigError` naming file and line, never a token, for a file that is wrong or empty from the start.
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

    def knows(self, client: str) -> bool:
        """Whether the file still has a token of the client. So it is held while the file cannot be read or is wrong:
        what a client has begun does not end for a slip of the pen."""
        self._reload()
        return not self._clients or client in self._names()

    def shared_with(self, other: StaticTokens) -> str:
        """Who of this file has a token that stands in the `other`, too; nobody for an empty text."""
        theirs = {digest for digest, _client in other._clients}
        return next((client for digest, client in self._clients if digest in theirs), "")

    def _reload(self) -> None:
        now_ms = self._runtime.monotonic_ms()
        if now_ms - self._looked_ms < RELOAD_MS:
            return
        self._looked_ms = now_ms
        stamp = self._stamp_now()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._clients = read_tokens(self._file)
        except ConfigError as error:
            self._clients = ()
            _log.error("no client is let in until the file of tokens is mended: %s", error)
            return
        _log.warning("the tokens were read anew: %s of %s client(s)", len(self._clients), len(self._names()))

    def _names(self) -> set[str]:
        return {client for _digest, client in self._clients}

    def _stamp_now(self) -> tuple[int, ...]:
        try:
            found = self._file.stat()
        except OSError as error:
            return (error.errno or 0,)
        return found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_size


@frozen
class AnyOf:
    """Knows the tokens that one of several verifiers knows."""

    verifiers: Sequence[TokenVerifier]

    def verify(self, token: str) -> str:
        """The name by the first that knows it. Raises `Unauthenticated`, as the last one does, if none does."""
        *others, last = self.verifiers
        for verifier in others:
            with suppress(Unauthenticated):
                return verifier.verify(token)
        return last.verify(token)


class NobodyKnown:
    """Refuses every token: the verifier of a node that is secured and was told of nobody."""

    def verify(self, token: str) -> str:
        """Raises `Unauthenticated`, with what the operator has to do."""
        raise Unauthenticated(
            "this node knows no token: start it with --status-tokens-file (those who may look), or with --open-metrics "
            "to show /metrics to everybody"
        )


def read_tokens(file: Path) -> tuple[tuple[bytes, str], ...]:
    """Digest and client of every token in the file. Raises `ConfigError` naming file and line."""
    lines = read_lines(file, "the tokens")
    found: dict[bytes, str] = {}
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) not in (2, 3) or (len(words) == 3 and not words[2].startswith(GROUPS)):
            raise ConfigError(
                f"{file}:{number}: write a client's name, a space and a token, and groups=… behind it"
            )
        client, token = words[:2]
        groups = words[2].removeprefix(GROUPS).split(",") if len(words) == 3 else []
        if len(token) < MIN_TOKEN_CHARS:
            raise ConfigError(f"{file}:{number}: the token is shorter than {MIN_TOKEN_CHARS} characters")
        if not is_sendable(token):
            raise ConfigError(f"{file}:{number}: the token {UNSENDABLE}")
        if not client.isprintable():
            raise ConfigError(f"{file}:{number}: the client's name has a character that cannot be printed")
        try:
            known = Principal(client, groups) if groups else client
        except ConfigError as error:
            raise ConfigError(f"{file}:{number}: {error.message}") from None
        if any(one == client and groups_of(one) != groups_of(known) for one in found.values()):
            raise ConfigError(
                f"{file}:{number}: the other token of client '{client}' has other groups: write the same"
            )
        if found.setdefault(_digest(token), known) != client:
            raise ConfigError(
                f"{file}:{number}: the token is that of another client, too: nobody could tell them apart"
            )
        if sum(one == client for one in found.values()) > MOST_TOKENS:
            raise ConfigError(
                f"{file}:{number}: client '{client}' has more than {MOST_TOKENS} tokens, the old one and the new one: "
                "take those out that are not used, or give the others a name of their own"
            )
    if not found:
        raise ConfigError(f"{file}: holds no token; nobody could connect")
    return tuple(found.items())


def is_sendable(token: str) -> bool:
    """Whether a header can carry the token.

    >>> is_sendable("s3cret~"), is_sendable("schlüssel"), is_sendable("a\\nb")
    (True, False, False)
    """
    return token.isascii() and token.isprintable()


def read_lines(file: Path, what: str) -> list[str]:
    """The lines of a file of secrets. Raises `ConfigError` naming the file, and the line that is no UTF-8.

    A file that everybody on the machine can write to says nothing of who may come in: it is refused, too.
    """
    try:
        data = read_short_file(file)
        can_be_written = file.stat().st_mode & stat.S_IWOTH
    except OSError as error:
        raise ConfigError(f"{file}: {what} cannot be read ({error.strerror})") from None
    if can_be_written:
        raise ConfigError(f"{file}: {what} can be written by everybody on this machine: chmod o-w {file}")
    lines = []
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        try:
            lines.append(line.decode())
        except UnicodeDecodeError:
            raise ConfigError(f"{file}:{number}: the line is not UTF-8") from None
    return lines


def bearer_token(authorization: str) -> str:
    """The token in an `Authorization` header. Raises `Unauthenticated` for another scheme or none.

    >>> bearer_token("Bearer abc")
    'abc'
    """
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthenticated(
            "this cluster asks for a token; connect with token=…, or ballista-py with --token (or BALLISTA_TOKEN)"
        )
    return token.strip()


def _digest(token: str) -> bytes:
    return sha256(token.encode(errors="surrogatepass")).digest()
