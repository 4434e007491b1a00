"""What the engine reads in a change and the parser here does not, in words of the same meaning that it does; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from sqlglot.tokenizer_core import Token, TokenType

from ballista_py.sql.parse.edits import Edit, edited
from ballista_py.sql.parse.kind import verb_place
from ballista_py.sql.parse.parsing import tokenized

_NAMES = (TokenType.STRING, TokenType.IDENTIFIER)
_OPENS, _CLOSES = ("(", "[", "{", "CASE"), (")", "]", "}", "END")
_SIGNS = ("error", "x'", "name", "position")


def for_parser(sql: str) -> str:
    """The change for the parser here: what it reads and computes is the same.

    `ERROR` of a MERGE is DO NOTHING; a message that is computed becomes a part of the condition, where it is looked at
    as any other expression is. UPDATE BY NAME takes all columns, BY POSITION says nothing, x'00' is a call.

    >>> for_parser("merge into t using u on t.i = u.i when matched then error 'twice'")
    'merge into t using u on t.i = u.i when matched then DO NOTHING'
    >>> for_parser("merge into t using u on t.i = u.i when matched then error 'no ' || u.i")
    "merge into t using u on t.i = u.i when matched AND ('no ' || u.i IS NULL OR TRUE) then DO NOTHING"
    >>> for_parser("insert into t by position values (x'00ff')")
    "insert into t  values (unhex('00ff'))"
    """
    if not any(sign in sql.lower() for sign in _SIGNS):
        return sql
    sql = edited(sql, _hex_texts(tokenized(sql)))
    tokens = tokenized(sql)
    verb = verb_place(tokens)
    kind = tokens[verb].text.upper() if verb < len(tokens) else ""
    if kind == "MERGE":
        return edited(sql, _merge_actions(sql, tokens, verb))
    return edited(sql, _by_position(tokens, verb)) if kind == "INSERT" else sql


def _hex_texts(tokens: Sequence[Token]) -> Iterator[Edit]:
    for token, following in pairwise(tokens):
        is_hex = _says(token, "X") and following.token_type == TokenType.STRING
        if is_hex and following.start == token.end + 1:
            yield token.start, token.end + 1, "unhex("
            yield following.end + 1, following.end + 1, ")"


def _by_position(tokens: Sequence[Token], verb: int) -> Iterator[Edit]:
    depth = 0
    for place in range(verb, len(tokens) - 1):
        if _says(tokens[place], "VALUES") or _says(tokens[place], "SELECT"):
            return
        depth += _step(tokens[place])
        if depth == 0 and _says(tokens[place], "BY") and _says(tokens[place + 1], "POSITION"):
            yield tokens[place].start, tokens[place + 1].end + 1, ""
            return


def _merge_actions(sql: str, tokens: Sequence[Token], verb: int) -> Iterator[Edit]:
    for place in range(verb, len(tokens) - 1):
        then, action = tokens[place], tokens[place + 1]
        if not _says(then, "THEN"):
            continue
        if _says(action, "UPDATE") and [token.text.upper() for token in tokens[place + 2 : place + 4]] == [
            "BY",
            "NAME",
        ]:
            yield tokens[place + 2].start, tokens[place + 3].end + 1, "SET *"
        if _says(action, "ERROR"):
            last = _end_of_message(tokens, place + 2) - 1
            end = tokens[last].end + 1
            yield action.start, end, "DO NOTHING"
            if last > place + 2 or (last == place + 2 and tokens[last].token_type != TokenType.STRING):
                message = sql[tokens[place + 2].start : end]
                yield then.start, then.start, f"AND ({message} IS NULL OR TRUE) "


def _end_of_message(tokens: Sequence[Token], first: int) -> int:
    """The place of the first token after the expression that begins at `first`, which may be none."""
    depth = 0
    for place in range(first, len(tokens)):
        token = tokens[place]
        if depth == 0 and any(_says(token, word) for word in ("WHEN", "RETURNING", ";")):
            return place
        depth += _step(token)
    return len(tokens)


def _step(token: Token) -> int:
    return any(_says(token, word) for word in _OPENS) - any(_says(token, word) for word in _CLOSES)


def _says(token: Token, word: str) -> bool:
    return token.text.upper() == word and token.token_type not in _NAMES
