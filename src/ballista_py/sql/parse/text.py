"""SQL text in: one query, parsed, or an error that says where it is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen
from sqlglot import exp
from sqlglot.errors import ParseError
from sqlglot.tokenizer_core import Token, TokenType

from ballista_py.errors import SqlError
from ballista_py.sql.bind.query import Expr, UnplannableError
from ballista_py.sql.parse.kind import (
    engine_sql,
    misread,
    positioned,
    refusal,
    statement_kind,
    tokens_of,
)
from ballista_py.sql.parse.parsing import parsed_tokens

if TYPE_CHECKING:
    from ballista_py.sql.dialects.translation import Tables


@frozen(eq=False)
class Statement:
    """One query: its text in the engine's dialect, its tokens, and its tree if it could be parsed."""

    text: str
    tokens: tuple[Token, ...]
    tree: Expr | None


def read(sql: str, dialect: str | None = None, described: bool = True, tables: Tables | None = None) -> Statement:
    """The one query in `sql`.

    `tables` are those that a text of another `dialect` is read with. `described` says that the engine has accepted
    the text: then a query that only the parser here does not understand is no error, it has no tree. Raises
    `SqlError` for anything that is not exactly one query.
    """
    text, tokens = tokens_of(engine_sql(sql, dialect, tables) if dialect else sql)
    if statement_kind(text) != "query":
        raise refusal(text)
    try:
        trees = parsed_tokens(tokens, text)
    except ParseError as error:
        if described and not any(token.token_type == TokenType.SEMICOLON for token in tokens):
            return Statement(text, tuple(tokens), None)
        raise positioned(error) from None
    if len(trees) != 1:
        raise SqlError(f"the text holds {len(trees)} statements: send them one by one")
    (tree,) = trees
    if isinstance(tree, exp.Query | exp.Values | exp.Pivot):
        return Statement(text, tuple(tokens), tree)
    if described or tokens[0].text.upper() == "SUMMARIZE":
        return Statement(text, tuple(tokens), None)
    raise refusal(text)


def check_faithful(statement: Statement) -> None:
    """Raise `UnplannableError` for what the parser is not known to read as the engine does; see `misread`."""
    reason = misread(statement.tokens)
    if reason is not None:
        raise UnplannableError(reason)
