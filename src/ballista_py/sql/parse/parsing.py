"""The only door to the parser: a text is measured in one pass over its tokens before anything reads it as a tree.

Parsers, tree walks and the engine call themselves for what is nested, and for operators in a row; some of them are
compiled and have no limit but the stack of the thread, so that one statement could end the process. What passes
here is safe for all of them. The limits of a client's own text are narrower than those of a text that grew here by
the values of its parameters.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from attrs import define
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError, TokenError
from sqlglot.expressions import Expr
from sqlglot.parser import Parser
from sqlglot.tokenizer_core import Token, TokenType

from ballista_py.errors import SqlError
from ballista_py.sql.parse.measures import (
    require_few_elements,
    require_few_readings,
    require_few_windows,
    signs_of,
)
from ballista_py.sql.parse.parameter_marks import tokens_apart
from ballista_py.sql.parse.quotes import settled

ENGINE_DIALECT = "duckdb"
ENGINE = Dialect.get_or_raise(ENGINE_DIALECT)
MAX_STATEMENT_BYTES = 1 << 20
MAX_NESTING = 200
MAX_ELEMENTS = 100_000
MAX_OPERATORS = 4_000
MAX_DOTS = 64  # of one name: engines look at each part of it once for each part
MAX_DIGITS = 1_100  # of one number: a double that is written out has some fewer
MAX_BOUND_CHARS = 4_000_000
MAX_BOUND_ELEMENTS = 1_000_000
# What reading a text takes: trees of the parser, the plan of the engine, its fragments, up to 2 kB a character where
# they are made, and 0.9 kB in the process of the engine where the statement is bound there.
READ_BYTES_PER_CHARACTER = 3_072

_DIGITS = re.compile(r"[0-9_.]++")
_LEVEL = re.compile(r"[(\[{<+\-~@!]|\bnot\b|\bcase\b", re.IGNORECASE)
_CASE = re.compile(r"\bcase\b", re.IGNORECASE)
_WINDOW = re.compile(r"\bwindow\b", re.IGNORECASE)
_FEW_CASES = 3  # in each other, with fewer pieces than the next, they are few written out
_FEW_PIECES = 1_000  # that many levels, of whatever kind, are safe
_OPENING = frozenset((TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE))
_CLOSING = frozenset((TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END))
_QUOTED = (TokenType.STRING, TokenType.IDENTIFIER, TokenType.BYTE_STRING, TokenType.HEREDOC_STRING)
_OPERANDS = frozenset((
    TokenType.STRING, TokenType.NUMBER, TokenType.VAR, TokenType.IDENTIFIER, TokenType.NULL, TokenType.TRUE,
    TokenType.FALSE,
))  # fmt: skip
_TYPES_OF_TYPES = frozenset((TokenType.ARRAY, TokenType.MAP, TokenType.STRUCT, TokenType.LIST, TokenType.NULLABLE))
_TYPES = frozenset(Parser.TYPE_TOKENS) - {TokenType.INTERVAL}  # of which the parser reads the literal alone
_FOLLOWING = frozenset((*Parser.COLUMN_OPERATORS, TokenType.L_BRACKET))
_ZONED = (("with", "time", "zone"), ("without", "time", "zone"))  # TIMESTAMP WITH TIME ZONE '…'


def measure(sql: str, dialect: str | None = None) -> None:
    """Raise `SqlError` for a client's text that is longer, has more elements or is nested deeper than is read here.

    >>> measure("select " + "(" * 201 + "1" + ")" * 201)
    Traceback (most recent call last):
    ballista_py.errors.SqlError: the statement is nested more than 200 levels deep
    """
    require_length(sql)
    if _may_be_too_much(sql):
        known = _dialect(dialect)
        require_few_elements(sql, known, MAX_ELEMENTS)
        _measured(_tokens(sql, known), MAX_ELEMENTS)


def require_length(sql: str) -> None:
    """Raise `SqlError` for a client's text that is longer than is read here."""
    if len(sql) > MAX_STATEMENT_BYTES or len(sql.encode()) > MAX_STATEMENT_BYTES:
        raise SqlError(
            f"the statement has {len(sql):,} characters, more than {MAX_STATEMENT_BYTES:,} bytes: "
            "send values as parameters, and rows by ingest"
        )


def _may_be_too_much(sql: str) -> bool:
    """Whether its tokens have to be looked at: there are signs enough for what is refused."""
    return (
        signs_of(sql) >= _FEW_PIECES  # first: it is the quickest
        or sql.count(".") > MAX_DOTS
        or len(_LEVEL.findall(sql)) >= MAX_NESTING
        or len(_CASE.findall(sql)) >= _FEW_CASES
        or _WINDOW.search(sql) is not None
        or (len(sql) > MAX_DIGITS and any(len(run) > MAX_DIGITS for run in _DIGITS.findall(sql)))
    )


def tokenized(sql: str, dialect: str | None = None) -> list[Token]:
    """The tokens of a text that was measured, or that grew here. Raises `SqlError` for one that cannot be read."""
    if len(sql) > MAX_BOUND_CHARS:
        raise SqlError(f"the statement has {len(sql):,} characters, more than {MAX_BOUND_CHARS:,}")
    return _tokens(sql, _dialect(dialect))


def as_settled(sql: str) -> str:
    """The text, which is in the engine's dialect, `settled`: everybody who looks for quotes finds the same ones.

    Raises `SqlError` where the tokens would not be what they are. What cannot be cut into tokens is left to whoever
    reads it.

    >>> as_settled("/* don't */ select 'it''s'")
    "/* don t */ select 'it''s'"
    """
    made = settled(sql)
    if made == sql:
        return sql
    kinds = None if sql.isascii() else _QUOTED  # odd blanks outside of quotes make other tokens
    before = _signs(sql, kinds)
    if before is not None and before != _signs(made, kinds):
        raise SqlError(
            "what is in quotes cannot be told from comments and blanks of other kinds in the statement: leave those out"
        )
    return made


def _signs(sql: str, kinds: Collection[TokenType] | None) -> list[tuple[TokenType, str]] | None:
    """What a text is made of, as far as it is of these kinds; None where it cannot be told."""
    try:
        tokens = tokenized("select " + sql)  # none of its words begins what is one token to its end
    except SqlError:
        return None
    return [
        (TokenType.STRING if token.token_type == TokenType.HEREDOC_STRING else token.token_type, token.text)
        for token in tokens
        if kinds is None or token.token_type in kinds
    ]


def parsed(sql: str, dialect: str | None = None) -> list[Expr | None]:
    """The trees of the statements in a text. Raises `SqlError` beyond a limit, `SqlglotError` as the parser does."""
    return parsed_tokens(tokenized(sql, dialect), sql, dialect)


def parsed_tokens(tokens: list[Token], sql: str, dialect: str | None = None) -> list[Expr | None]:
    """As `parsed`, of tokens that are there already."""
    _measured(tokens, MAX_BOUND_ELEMENTS)
    known = _dialect(dialect)
    read = _with_literals_apart(_with_empty_maps(tokens) if known is ENGINE else tokens)
    try:
        trees: list[Expr | None] = known.parser().parse(read, sql)
    except RecursionError:
        raise SqlError("the statement is nested too deeply") from None
    return trees


def _with_empty_maps(tokens: list[Token]) -> list[Token]:
    """The tokens with `map()` for `map {}`: the parser makes MAP MAP() of a cast of the latter."""
    places = [
        place
        for place, token in enumerate(tokens[:-2])
        if token.token_type == TokenType.MAP
        and tokens[place + 1].token_type == TokenType.L_BRACE
        and tokens[place + 2].token_type == TokenType.R_BRACE
    ]
    if not places:
        return tokens
    made = [*tokens]
    for place in places:
        for next_, kind, text in ((1, TokenType.L_PAREN, "("), (2, TokenType.R_PAREN, ")")):
            old = tokens[place + next_]
            made[place + next_] = Token(kind, text, old.line, old.col, old.start, old.end, old.comments)
    return made


def _with_literals_apart(tokens: list[Token]) -> list[Token]:
    """The tokens with brackets around each literal of a named type that an operator of the parser follows.

    Of `int '5'::float8` the parser makes the cast of a cast inside out: the text as a float, and that as an integer.
    SQL means the literal first, and then the cast of it.
    """
    strings = [
        place
        for place in range(1, len(tokens) - 1)
        if tokens[place].token_type == TokenType.STRING and tokens[place + 1].token_type in _FOLLOWING
    ]
    spans = [(begin, place) for place in strings if (begin := _type_begin(tokens, place - 1)) is not None]
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


def _type_begin(tokens: Sequence[Token], place: int) -> int | None:
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


def parsed_one(sql: str, dialect: str | None = None) -> Expr:
    """The tree of the one statement in a text. Raises as `parsed`, and `SqlError` for more or fewer."""
    trees = parsed(sql, dialect)
    if len(trees) != 1 or trees[0] is None:
        raise SqlError(f"the text holds {len(trees)} statements: send them one by one")
    return trees[0]


def _dialect(dialect: str | None) -> Dialect:
    return ENGINE if dialect is None or dialect.lower() == ENGINE_DIALECT else Dialect.get_or_raise(dialect)


def _tokens(sql: str, dialect: Dialect) -> list[Token]:
    try:
        return tokens_apart(sql, lambda text: list(dialect.tokenize(text)))
    except TokenError as error:
        text = " ".join(str(error).split())[:300]
        raise SqlError(f"the statement does not parse: {text}") from None
    except RecursionError:
        raise SqlError("the statement is nested too deeply") from None


def _measured(tokens: Sequence[Token], max_elements: int) -> None:
    elements = len(tokens) + sum(len(token.comments) for token in tokens)
    if elements > max_elements:
        raise SqlError(f"the statement has {elements:,} elements, more than {max_elements:,}")
    _require_short(tokens)
    if len(tokens) >= MAX_NESTING:
        _require_flat(tokens)
    _require_few_written_out(tokens, max_elements)
    require_few_windows(tokens)
    require_few_readings(tokens)


def _require_few_written_out(tokens: Sequence[Token], max_elements: int) -> None:
    """Raise `SqlError` where operands of CASE in each other have too many elements once they are written out.

    `CASE x WHEN 1 THEN … WHEN 2 THEN …` is read as a comparison of `x` in each of its branches.
    """
    cases: list[_Case] = []
    for token in tokens:
        kind = token.token_type
        if cases:
            cases[-1].count(1)
        if kind == TokenType.CASE:
            cases.append(_Case())
        elif cases and kind == TokenType.WHEN:
            cases[-1].branches += 1
        elif cases and kind == TokenType.END:
            size = cases.pop().size
            if size > max_elements:
                raise SqlError(
                    f"operands of CASE stand in each other so deep that they have more than {max_elements:,} elements "
                    "written out: compute the inner ones in a subquery"
                )
            if cases:
                cases[-1].count(size)


@define
class _Case:
    """A CASE that is not at its end yet: the elements of its operand, before the first WHEN, and all others."""

    branches: int = 0
    operand: int = 0
    others: int = 0

    def count(self, elements: int) -> None:
        if self.branches:
            self.others += elements
        else:
            self.operand += elements

    @property
    def size(self) -> int:
        return self.operand * max(1, self.branches) + self.others


def _require_short(tokens: Sequence[Token]) -> None:
    """Raise `SqlError` for a name of more parts, or a number of more digits, than anybody has use for."""
    dots = 0
    before: TokenType | None = None
    for token in tokens:
        kind = token.token_type
        if kind == TokenType.DOT:
            dots += 1
            if dots > MAX_DOTS:
                raise SqlError(f"a name in the statement has more than {MAX_DOTS} dots")
        elif before != TokenType.DOT:
            dots = 0
        if kind == TokenType.NUMBER and len(token.text) > MAX_DIGITS:
            raise SqlError(f"a number in the statement has more than {MAX_DIGITS:,} digits")
        before = kind


def _require_flat(tokens: Sequence[Token]) -> None:
    """Raise `SqlError` for tokens that no recursive reading may meet.

    A level is a bracket, a CASE, a type of types, or one of several words without an operand between them (`not not`).
    Operators count from the last comma, in all the brackets that are open: so many can stand in one chain.
    """
    levels: list[int] = []  # the operators of each open bracket when it opened
    operators = run = angles = 0
    before: TokenType | None = None
    for token in tokens:
        kind = token.token_type
        if kind in _OPENING:
            levels.append(operators)
        elif kind in _CLOSING:
            if levels:
                operators = levels.pop() + 1
            angles = 0 if not levels else angles
        elif kind == TokenType.COMMA or kind == TokenType.SEMICOLON:
            operators = levels[-1] if levels else 0
        elif kind == TokenType.LT and before in _TYPES_OF_TYPES:
            angles += 1
        elif kind == TokenType.GT and angles:
            angles -= 1
        elif kind not in _OPERANDS:
            operators += 1
            run += 1
        if kind in _OPERANDS or kind in _OPENING or kind == TokenType.COMMA:
            run = 0
        before = kind
        if len(levels) + run + angles > MAX_NESTING:
            raise SqlError(f"the statement is nested more than {MAX_NESTING} levels deep")
        if operators > MAX_OPERATORS:
            raise SqlError(f"the statement has more than {MAX_OPERATORS:,} operators in a row")


__all__ = [
    "ENGINE",
    "ENGINE_DIALECT",
    "MAX_BOUND_CHARS",
    "SqlglotError",
    "as_settled",
    "measure",
    "parsed",
    "parsed_one",
    "parsed_tokens",
    "require_length",
    "tokenized",
]
