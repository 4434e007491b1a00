"""Tokens of writes: the client's word for one statement, kept with a short digest of what that statement was.

A token that comes with another statement is refused, so that no statement is taken for done because another one was.
Tokens of earlier releases, and of the data pipeline, have no digest: they stand for whatever comes under them. The
digest is made of what a statement sent again has in common with the first one, whoever cuts its rows into batches: its
kind, table, mode, text; the rows of an ingest are not in it.
"""

from __future__ import annotations

from hashlib import sha256

import orjson

from ballista_py.errors import SqlError

_MARK = "~"
_DIGITS = 16
_HEX = frozenset("0123456789abcdef")


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


def require_own(kept: str, token: str) -> None:
    """Raises `SqlError` when `kept` is the same client's word for another statement."""
    if name_of(kept) == name_of(token) and not is_same(kept, token):
        raise SqlError(
            f"token '{name_of(token)}' was used for another statement: take a new token", token=name_of(token)
        )


def _digest(token: str) -> str:
    end = token[-_DIGITS:]
    return end if token[-_DIGITS - 1 : -_DIGITS] == _MARK and _HEX.issuperset(end) else ""
