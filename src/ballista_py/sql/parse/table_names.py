"""How a table may be named: plainly, or with the schema and the catalog that every table here is in."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.tokenizer_core import Token, TokenType

from ballista_py.errors import SqlError

CATALOG, SCHEMA = "ballista", "main"


def plain_table(tokens: Sequence[Token]) -> str:
    """The name of the table that the tokens name: `t`, `main.t` or `ballista.main.t`. Raises `SqlError`."""
    parts = list(tokens[::2])
    dotted = all(token.token_type == TokenType.DOT for token in tokens[1::2])
    names = [token.text.lower() for token in parts]
    shown = "".join(token.text for token in tokens)
    if not tokens or len(tokens) % 2 == 0 or not dotted or not all(map(_is_name, parts)):
        raise SqlError(f"'{shown}' is no table: name one, as t, {SCHEMA}.t or {CATALOG}.{SCHEMA}.t")
    if names[:-1] not in ([], [SCHEMA], [CATALOG, SCHEMA], [CATALOG]):
        raise SqlError(f"'{shown}' is no table here: all tables are in the schema {SCHEMA} of {CATALOG}")
    return names[-1]


def _is_name(token: Token) -> bool:
    return token.token_type in (TokenType.IDENTIFIER, TokenType.STRING) or token.text.isidentifier()
