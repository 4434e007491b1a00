"""SQL text in: one query, parsed, or an error that says where it is wrong."""

from __future__ import annotations

import re
from collections.abc import Sequence

from attrs import frozen
from sqlglot import exp, parse, parse_one
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ErrorLevel, ParseError, SqlglotError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from ballista_py.errors import SqlError
from ballista_py.planning.sql.query import Expr, UnplannableError

ENGINE_DIALECT = "duckdb"
ENGINE = Dialect.get_or_raise(ENGINE_DIALECT)
MAX_SQL_CHARS = 4_000_000
_WORDS = frozenset((TokenType.STRING, TokenType.IDENTIFIER, TokenType.VAR, TokenType.NUMBER, TokenType.PARAMETER))
_OPERATORS = frozenset((
    "(", ")", "[", "]", "{", "}", ",", ".", ";", ":", "::", "+", "-", "*", "/", "//", "%", "^", "**", "||", "=",
    "==", "<>", "!=", "<", "<=", ">", ">=", "&", "|", "<<", ">>",
))  # fmt: skip
_TYPES = ENGINE.parser_class.TYPE_TOKENS
_UNIT_FIRST = frozenset(
    ("date_trunc", "datetrunc", "date_part", "datepart", "date_diff", "datediff", "date_sub", "datesub")
)
_QUERY_WORDS = frozenset(("SELECT", "WITH", "FROM", "VALUES", "TABLE", "PIVOT", "UNPIVOT", "("))


@frozen(eq=False)
class Statement:
    """One query: its text in the engine's dialect, its tokens, and its tree if it could be parsed."""

    text: str
    tokens: tuple[Token, ...]
    tree: Expr | None


def engine_sql(sql: str, dialect: str | None = None) -> str:
    """`sql` in the engine's dialect. Text that is in it already comes back as it is.

    Raises `SqlError` for text that does not parse, with `line` and `column`, and for an unknown dialect.

    >>> engine_sql("select `a` from t", dialect="spark")
    'SELECT "a" FROM t'
    """
    if dialect is None or dialect.lower() == ENGINE_DIALECT:
        return sql
    try:
        trees = [tree for tree in parse(sql, dialect=dialect) if tree is not None]
        return "; ".join(tree.sql(ENGINE_DIALECT, unsupported_level=ErrorLevel.RAISE) for tree in trees)
    except ParseError as error:
        raise _positioned(error) from None
    except (SqlglotError, ValueError) as error:
        raise SqlError(f"the statement cannot be read as {dialect} SQL: {_one_line(str(error))}") from None


def gives_rows(sql: str) -> bool:
    """Whether the statement, in the engine's dialect, is a query; anything else changes something or is refused.

    >>> gives_rows("with a as (select 1) from a"), gives_rows("insert into t select 1")
    (True, False)
    """
    try:
        tokens = ENGINE.tokenize(sql)
    except TokenError as error:
        raise SqlError(f"the statement does not parse: {_one_line(str(error))}") from None
    if not tokens:
        raise SqlError("the statement is empty")
    words = {token.text.upper() for token in tokens}
    if tokens[0].text.upper() == "WITH" and words & {"INSERT", "UPDATE", "DELETE", "MERGE"}:
        try:
            return isinstance(parse_one(sql, dialect=ENGINE_DIALECT), exp.Query)
        except (SqlglotError, RecursionError):
            return True
    return tokens[0].text.upper() in _QUERY_WORDS or tokens[0].token_type == TokenType.L_PAREN


def explained(sql: str) -> str | None:
    """The statement that `EXPLAIN` stands before; None for any other.

    >>> explained("explain select 1"), explained("select 1")
    ('select 1', None)
    """
    found = re.match(r"\s*explain\s+(?!analyze\b)(?=\S)", sql, re.IGNORECASE)
    return sql[found.end() :] if found else None


def read(sql: str, dialect: str | None = None, described: bool = True) -> Statement:
    """The one query in `sql`.

    `described` says that the engine has accepted the text: then a query that only the parser here does not
    understand is no error, it has no tree. Raises `SqlError` for anything that is not exactly one query.
    """
    if len(sql) > MAX_SQL_CHARS:
        raise SqlError(f"the statement has {len(sql):,} characters, more than {MAX_SQL_CHARS:,}")
    text = engine_sql(sql, dialect)
    try:
        tokens = ENGINE.tokenize(text)
    except TokenError as error:
        raise SqlError(f"the statement does not parse: {_one_line(str(error))}") from None
    while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        tokens.pop()
    if not tokens:
        raise SqlError("the statement is empty")
    text = text[: tokens[-1].end + 1]
    if tokens[0].text.upper() not in _QUERY_WORDS and tokens[0].token_type != TokenType.L_PAREN:
        _refuse(tokens, text)
    try:
        trees = ENGINE.parser().parse(tokens, text)
    except ParseError as error:
        if described and not any(token.token_type == TokenType.SEMICOLON for token in tokens):
            return Statement(text, tuple(tokens), None)
        raise _positioned(error) from None
    except RecursionError:
        raise SqlError("the statement is nested too deeply") from None
    if len(trees) != 1:
        raise SqlError(f"the text holds {len(trees)} statements: send them one by one")
    (tree,) = trees
    if not isinstance(tree, exp.Query | exp.Values | exp.Pivot):
        raise SqlError(f"only queries can run here, not {tokens[0].text.upper()}", line=1, column=1)
    return Statement(text, tuple(tokens), tree)


def check_faithful(statement: Statement) -> None:
    """Raise `UnplannableError` for what the parser is not known to read as the engine does.

    Of the operators that it accepts, `~` becomes another match and `^@` gets another precedence; rare ones are not
    tried.
    It takes a column for the name of a unit, and `date '2020-01-01'::text` for a text that becomes a date.
    """
    tokens = statement.tokens
    for place, token in enumerate(tokens):
        text = token.text
        if text and token.token_type not in _WORDS and not text[0].isalnum() and text not in _OPERATORS:
            raise UnplannableError(f"the operator {text}")
        if text.lower() in _UNIT_FIRST and _kinds(tokens, place + 1, 2) == [TokenType.L_PAREN, None]:
            raise UnplannableError(f"{text} with a unit that is no constant")
        if token.token_type in _TYPES and _kinds(tokens, place + 1, 2) == [TokenType.STRING, TokenType.DCOLON]:
            raise UnplannableError(f"a cast of a constant of type {text}")


def _kinds(tokens: Sequence[Token], start: int, count: int) -> list[TokenType | None]:
    """Of which kinds some tokens are: parentheses, texts and casts, or else None."""
    told = (TokenType.L_PAREN, TokenType.STRING, TokenType.DCOLON)
    return [token.token_type if token.token_type in told else None for token in tokens[start : start + count]]


def _refuse(tokens: list[Token], text: str) -> None:
    """Raise the error for a statement that does not begin as a query does."""
    try:
        trees = ENGINE.parser().parse(tokens, text)
    except ParseError as error:
        raise _positioned(error) from None
    if not isinstance(trees[0], exp.Query):
        word = tokens[0]
        column = word.col - len(word.text) + 1
        raise SqlError(
            f"only queries can run here, not {word.text.upper()} (line {word.line}, column {column})",
            line=word.line,
            column=column,
        )


def _positioned(error: ParseError) -> SqlError:
    first = error.errors[0] if error.errors else {}
    description = str(first.get("description") or "syntax error").rstrip(".")
    near = str(first.get("highlight") or "")
    line, end = int(first.get("line") or 1), int(first.get("col") or 1)
    column = max(1, end - len(near) + 1)
    return SqlError(
        f"the statement does not parse: {_one_line(description)} near '{_one_line(near)}' "
        f"(line {line}, column {column})",
        line=line,
        column=column,
    )


def _one_line(text: str) -> str:
    return " ".join(text.replace("\x1b[4m", "").replace("\x1b[0m", "").split())[:300]
