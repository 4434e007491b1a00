"""MERGE … THEN ERROR, which the engine knows and the parser here does not: to that one it is an action like another."""

from __future__ import annotations

from sqlglot.tokenizer_core import Token, TokenType

from ballista_py.sql.parse.kind import verb_place
from ballista_py.sql.parse.parsing import tokenized

_NAMES = (TokenType.STRING, TokenType.IDENTIFIER)
_ANOTHER = "DO NOTHING"


def for_parser(sql: str) -> str:
    """The text with DO NOTHING for each `ERROR` (and its message) of a MERGE: what it reads and computes is the same.

    >>> for_parser("merge into t using u on t.i = u.i when matched then error 'twice'")
    'merge into t using u on t.i = u.i when matched then DO NOTHING'
    """
    if "error" not in sql.lower():
        return sql
    tokens = tokenized(sql)
    verb = verb_place(tokens)
    if verb >= len(tokens) or tokens[verb].text.upper() != "MERGE":
        return sql
    found = sql
    for place in range(len(tokens) - 2, verb, -1):
        if _says(tokens[place], "THEN") and _says(tokens[place + 1], "ERROR"):
            last = place + 1
            last += last + 1 < len(tokens) and tokens[last + 1].token_type == TokenType.STRING
            found = found[: tokens[place + 1].start] + _ANOTHER + found[tokens[last].end + 1 :]
    return found


def _says(token: Token, word: str) -> bool:
    return token.text.upper() == word and token.token_type not in _NAMES
