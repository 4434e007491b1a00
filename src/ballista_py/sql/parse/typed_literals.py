"""Literals behind the name of their type, as `date '2020-01-05'`, kept apart from what follows them; pure.

Of `int '5'::float8` the parser makes the cast of a cast inside out: the text as a float, and that as an integer. SQL
means the literal first, and then the cast of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.parser import Parser
from sqlglot.tokenizer_core import Token, TokenType

_TYPES = frozenset(Parser.TYPE_TOKENS) - {TokenType.INTERVAL}  # of which the parser reads the literal alone
_FOLLOWING = frozenset((*Parser.COLUMN_OPERATORS, TokenType.L_BRACKET))
_ZONED = (("with", "time", "zone"), ("without", "time", "zone"))  # TIMESTAMP WITH TIME ZONE '…'


def with_literals_apart(tokens: list[Token]) -> list[Token]:
    """The tokens with brackets around each literal of a named type that an operator of the parser follows."""
    strings = [
        place
        for place in range(1, len(tokens) - 1)
        if tokens[place].token_type == TokenType.STRING and tokens[place + 1].token_type in _FOLLOWING
    ]
    spans = [(begin, place) for place in strings if (begin := _begin(tokens, place - 1)) is not None]
    if not spans:
        return tokens
    opened, closed = {begin for begin, _ in spans}, {end for _, end in spans}
    made: list[Token] = []
    for place, token in enumerate(tokens):
        if place in opened:
            made.append(_sign(TokenType.L_PAREN, "(", token, token.start))
        made.append(token)
        if place in closed:
            made.append(_sign(TokenType.R_PAREN, ")", token, token.end))
    return made


def _begin(tokens: Sequence[Token], place: int) -> int | None:
    """Where the name of a type begins that ends at a place; None if none does."""
    words = tuple(token.text.lower() for token in tokens[max(0, place - 2) : place + 1])
    if words in _ZONED:
        place -= len(words)
    if tokens[place].token_type == TokenType.R_PAREN:  # NUMERIC(3, 1) '2.5'
        while place > 0 and tokens[place].token_type != TokenType.L_PAREN:
            place -= 1
        place -= 1
    return place if place >= 0 and tokens[place].token_type in _TYPES else None


def _sign(kind: TokenType, text: str, near: Token, place: int) -> Token:
    return Token(kind, text, near.line, near.col, place, place, [])
