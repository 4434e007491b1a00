"""Tokens of writes: the client's word for one statement, kept with a short digest of what that statement was.

Two statements under one word are two tokens. That another statement comes under the word of an earlier one is refused
before anything is written (`state/documents/token_claims.py`); an owner of a partition takes each for itself, so that
what is not refused is applied whole. Tokens of earlier releases, and of the data pipeline, have no digest: they stand
for whatever comes under them. The digest is made of what a statement sent again has in common with the first one: its
kind, table, mode, text, and, for a token that the client gave, its rows in whatever order.
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
    """The token `name` of one statement, told by what it says. One `given` by the client is claimed before a write.

    >>> WriteToken("load-1", ("execute", "delete from t", False)).kept
    'load-1~756d7000a7cf39d1'
    """

    name: str
    statement: tuple[str | bool, ...]
    given: bool = False

    @property
    def kept(self) -> str:
        """The token as manifests keep it."""
        return token_for(self.name, *self.statement)

    def of_rows(self, digest: str) -> WriteToken:
        """The token of the statement with rows of this digest."""
        return evolve(self, statement=(*self.statement, digest))


def token_for(token: str, *statement: str | bool) -> str:
    """The token as it is kept: with the digest of the statement.

    >>> token_for("load-1", "execute", "delete from t", False)
    'load-1~756d7000a7cf39d1'
    """
    return f"{token}{_MARK}{sha256(orjson.dumps(statement)).hexdigest()[:_DIGITS]}"


def name_of(token: str) -> str:
    """The token as the client gave it.

    >>> name_of("load-1~0123456789abcdef"), name_of("load-1")
    ('load-1', 'load-1')
    """
    return token[: -_DIGITS - 1] if _digest(token) else token


def is_same(kept: str, token: str) -> bool:
    """Whether both are the token of one statement, as far as they say.

    >>> is_same("a~0123456789abcdef", "a"), is_same("a~0123456789abcdef", "a~0000456789abcdef"), is_same("a", "b")
    (True, False, False)
    """
    if kept == token:
        return True
    return name_of(kept) == name_of(token) and not (_digest(kept) and _digest(token))


def _digest(token: str) -> str:
    end = token[-_DIGITS:]
    return end if token[-_DIGITS - 1 : -_DIGITS] == _MARK and _HEX.issuperset(end) else ""
