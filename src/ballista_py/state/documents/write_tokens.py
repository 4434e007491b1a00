"""Tokens of writes: the client's word for one statement, kept with a short digest of what that statement was.

Two statements under one word are two tokens, and so is one statement of two clients: whoever guesses another client's
word can neither keep it from being used nor be told what was done under it. That another statement comes under the
word of an earlier one is refused before anything is written (`state/documents/token_claims.py`); an owner of a
partition takes each for itself, so that what is not refused is applied whole. Tokens of earlier releases, and of the
data pipeline, have no digest: they stand for whatever comes under them, and those without a client for that of any.
The digest is made of what a statement sent again has in common with the first one: its kind, table, mode, text, and,
for a token that the client gave, its rows in whatever order.

For how long a statement may be sent again, and for how long it is remembered: times that depend on each other.

A client sends a statement again for `RESEND_MS`; the scheduler that got it last asks owners again for `PATIENCE_MS`.
So an owner may be asked for the same thing once more that long after it did it. It remembers it twice as long, by its
own clock, from when it knows of it: the other half is for what is under way longer than anybody waits.
"""

from __future__ import annotations

from hashlib import sha256

import orjson
from attrs import evolve, frozen

_MARK = "~"
_DIGITS = 16
_HEX = frozenset("0123456789abcdef")


@frozen
class WriteToken:
    """The token `name` of one statement, told by what it says and by the `client` that sends it, if clients prove who
    they are. One `given` by the client is claimed before a write. Of one that its library made that says whether it is
    sent `again`; None where nobody says so.

    >>> WriteToken("load-1", ("execute", "delete from t", False)).kept
    'load-1~756d7000a7cf39d1'
    >>> WriteToken("load-1", ("execute", "delete from t", False), client="ada").kept
    'load-1~756d7000a7cf39d1~fdee430d40bd57de'
    """

    name: str
    statement: tuple[str | bool, ...]
    given: bool = False
    client: str = ""
    again: bool | None = None

    @property
    def fresh(self) -> bool:
        """Whether nobody can have sent the statement before."""
        return not self.given and self.again is False

    @property
    def kept(self) -> str:
        """The token as manifests keep it."""
        return token_for(self.name, *self.statement, client=self.client)

    def of_rows(self, digest: str) -> WriteToken:
        """The token of the statement with rows of this digest."""
        return evolve(self, statement=(*self.statement, digest))


def token_for(token: str, *statement: str | bool, client: str = "") -> str:
    """The token as it is kept: with the digest of the statement, and that of the client's name if it has one.

    >>> token_for("load-1", "execute", "delete from t", False)
    'load-1~756d7000a7cf39d1'
    """
    kept = f"{token}{_MARK}{sha256(orjson.dumps(statement)).hexdigest()[:_DIGITS]}"
    return kept if not client else f"{kept}{_MARK}{sha256(client.encode()).hexdigest()[:_DIGITS]}"


def name_of(token: str) -> str:
    """The token as the client gave it.

    >>> name_of("load-1~0123456789abcdef"), name_of("load-1~0123456789abcdef~0123456789abcdef"), name_of("load-1")
    ('load-1', 'load-1', 'load-1')
    """
    return _parts(token)[0]


def client_of(token: str) -> str:
    """The digest of the client whose token it is; nothing for one of nobody in particular."""
    return _parts(token)[2]


def of_nobody(token: str) -> str:
    """The token as releases kept it that did not tell clients apart."""
    return token[: -_DIGITS - 1] if client_of(token) else token


def is_same(kept: str, token: str) -> bool:
    """Whether both are the token of one statement of one client, as far as they say.

    >>> is_same("a~0123456789abcdef", "a"), is_same("a~0123456789abcdef", "a~0000456789abcdef"), is_same("a", "b")
    (True, False, False)
    >>> is_same("a~0123456789abcdef", "a~0123456789abcdef~0000000000000001")
    True
    >>> is_same("a~0123456789abcdef~0000000000000002", "a~0123456789abcdef~0000000000000001")
    False
    """
    if kept == token:
        return True
    name, *said = _parts(kept)
    other, *asked = _parts(token)
    return name == other and all(one == two for one, two in zip(said, asked, strict=True) if one and two)


def _parts(token: str) -> tuple[str, str, str]:
    """The word, the digest of the statement and that of the client, as far as there are any."""
    rest, last = _split(token)
    if not last:
        return token, "", ""
    word, digest = _split(rest)
    return (word, digest, last) if digest else (rest, last, "")


def _split(token: str) -> tuple[str, str]:
    end = token[-_DIGITS:]
    is_digest = token[-_DIGITS - 1 : -_DIGITS] == _MARK and _HEX.issuperset(end)
    return (token[: -_DIGITS - 1], end) if is_digest else (token, "")


RESEND_MS = 30_000.0
PATIENCE_MS = 30_000.0
TOKENS_KEPT_MS = 2 * (RESEND_MS + PATIENCE_MS)
