"""How often a text is read: what looks like a type before a bracket is read as a type first, and then again.

`array[array[…]]` or `date(date(…))` doubles at each level, in compiled code that nothing ends: 60 levels kept a thread
of the node for ever. In the place of a type (`x::map(int, struct(a int))`) it is read once.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.parser import Parser
from sqlglot.tokenizer_core import Token, TokenType

from ballista_py.errors import SqlError

MAX_READINGS = 500_000  # of elements, some seconds
MAX_LEVELS = 30
_FEW_TOKENS = 16  # in which no level is deep
_AGAIN = 2.5  # times that a level is read, as measured
_OPENS = frozenset((TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE))
_CLOSES = frozenset((TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE))
_BEFORE_TYPES = frozenset((
    TokenType.VAR, TokenType.IDENTIFIER, TokenType.DCOLON, TokenType.ALIAS,
))  # fmt: skip
_NESTED = frozenset((TokenType.MAP, TokenType.STRUCT, TokenType.UNION))
_TYPES = frozenset(Parser.TYPE_TOKENS)


def require_few_readings(tokens: Sequence[Token]) -> None:
    """Raise `SqlError` for types and lists in each other that would be read too often."""
    if len(tokens) < _FEW_TOKENS:
        return
    opened: list[tuple[bool, bool]] = []  # whether it is read again, and whether it holds types
    levels, readings = 0, 0.0
    for place, token in enumerate(tokens):
        kind = token.token_type
        if kind in _OPENS:
            name = tokens[place - 1].token_type if place else None
            before = tokens[place - 2].token_type if place > 1 else None
            is_typed = name in _TYPES
            in_map = name in _NESTED and bool(opened) and opened[-1][1]
            is_type = is_typed and kind == TokenType.L_PAREN and (before in _BEFORE_TYPES or in_map)
            again = is_typed and not is_type
            opened.append((again, is_type and name == TokenType.MAP))
            levels += again
        elif kind in _CLOSES and opened:
            levels -= opened.pop()[0]
        readings += _AGAIN**levels if levels <= MAX_LEVELS else MAX_READINGS
        if readings > MAX_READINGS:
            raise SqlError(
                "calls or lists that begin with the name of a type, such as array[…] or date(…), stand in each other "
                "too deep: write [ ] for lists, or compute the inner ones in a subquery"
            )


__all__ = ["require_few_readings"]
