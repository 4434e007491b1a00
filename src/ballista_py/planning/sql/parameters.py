"""Parameters of a statement: where they stand, what type they probably have, and literals put in their places.

Values become literals before a statement is planned, so that partitions are pruned by them as if they had been
written there. A literal is made as a syntax tree and written by its generator; no text of a value is ever pasted
into SQL.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
from attrs import frozen
from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from ballista_py.errors import SqlError
from ballista_py.planning.sql.query import Expr
from ballista_py.planning.sql.statement import ENGINE_DIALECT

_NAMES = (TokenType.NUMBER, TokenType.VAR)
_INTEGERS = {8: "TINYINT", 16: "SMALLINT", 32: "INT", 64: "BIGINT"}


@frozen
class Place:
    """One mention of a parameter: its name (a number for `?` and `$1`) and the characters that it takes."""

    name: str
    start: int
    stop: int


def places_of(sql: str) -> tuple[Place, ...]:
    """Every mention of a parameter, in the order of the text, which is in the engine's dialect.

    Raises `SqlError` for text that cannot be read.

    >>> places_of("select ?, '?' from t where a = ?")
    (Place(name='1', start=7, stop=8), Place(name='2', start=31, stop=32))
    """
    try:
        tokens = Dialect.get_or_raise(ENGINE_DIALECT).tokenize(sql)
    except SqlglotError:
        raise SqlError("the statement does not parse") from None
    found: list[Place] = []
    for token, following in pairwise([*tokens, None]):
        assert token is not None
        if token.token_type == TokenType.PLACEHOLDER:
            found.append(Place(str(1 + sum(place.name.isdigit() for place in found)), token.start, token.end + 1))
        elif token.token_type == TokenType.PARAMETER and token.text == "$" and _follows(token, following):
            assert following is not None
            found.append(Place(following.text, token.start, following.end + 1))
    return tuple(found)


def names_of(places: Sequence[Place]) -> tuple[str, ...]:
    """The parameters, each once: numbers in their order, then names in that of the text."""
    names = dict.fromkeys(place.name for place in places)
    numbers = sorted((name for name in names if name.isdigit()), key=int)
    return (*numbers, *(name for name in names if not name.isdigit()))


def bound(sql: str, values: Mapping[str, pa.Scalar]) -> str:
    """The statement with a literal for every parameter.

    Raises `SqlError` for a parameter without a value, and for a value of a type that has no literal.

    >>> bound("select * from t where a = ?", {"1": pa.scalar("it's")})
    "select * from t where a = 'it''s'"
    """
    written: list[str] = []
    done = 0
    for place in places_of(sql):
        if place.name not in values:
            raise SqlError(f"parameter {place.name} has no value")
        # Blanks, because `1?` must not become `11`.
        before = " " if place.start and (sql[place.start - 1].isalnum() or sql[place.start - 1] == "-") else ""
        after = " " if sql[place.stop : place.stop + 1].isalnum() else ""
        written += [sql[done : place.start], before, literal(values[place.name]).sql(ENGINE_DIALECT), after]
        done = place.stop
    return "".join((*written, sql[done:]))


def with_nulls(sql: str) -> str:
    """The statement with NULL for every parameter: enough to find the columns that it gives."""
    return bound(sql, {place.name: pa.scalar(None) for place in places_of(sql)})


def literal(value: pa.Scalar) -> Expr:
    """The value as a tree of the same type. Text is a plain literal: the engine reads it as what is needed.

    Raises `SqlError` for types that cannot be written as a literal.

    >>> literal(pa.scalar(-5)).sql("duckdb"), literal(pa.scalar(None)).sql("duckdb")
    ('CAST(-5 AS BIGINT)', 'NULL')
    """
    kind, types = value.type, pa.types
    if types.is_dictionary(kind):
        return literal(value.as_py() if not value.is_valid else value.dictionary[value.index.as_py()])
    if not value.is_valid:
        return exp.null()
    if types.is_boolean(kind):
        return exp.true() if value.as_py() else exp.false()
    if types.is_integer(kind):
        name = _INTEGERS[kind.bit_width]
        return _cast(_number(value.as_py()), f"U{name}" if types.is_unsigned_integer(kind) else name)
    if types.is_floating(kind):
        return _cast(exp.Literal.string(repr(float(value.as_py()))), "DOUBLE" if kind.bit_width == 64 else "FLOAT")
    if types.is_decimal(kind):
        text = format(Decimal(value.as_py()), "f")
        return _cast(exp.Literal.string(text), f"DECIMAL({min(38, kind.precision)}, {kind.scale})")
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return _text(value.as_py())
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return exp.func("unhex", exp.Literal.string(value.as_py().hex()))
    if types.is_date(kind):
        return _cast(exp.Literal.string(value.as_py().isoformat()), "DATE")
    if types.is_timestamp(kind):
        return _timestamp(value)
    if types.is_time(kind):
        return _cast(exp.Literal.string(value.cast(pa.time64("us")).as_py().isoformat()), "TIME")
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return exp.Array(expressions=[literal(item) for item in value.values])
    raise SqlError(f"a parameter of type {kind} cannot be bound")


def _follows(token: Token, following: Token | None) -> bool:
    """Whether the token after a `$` is the name of a parameter: nothing stands between them."""
    return following is not None and following.start == token.end + 1 and following.token_type in _NAMES


def _cast(node: Expr, kind: str) -> Expr:
    return exp.Cast(this=node, to=exp.DataType.build(kind, dialect=ENGINE_DIALECT))


def _number(value: int) -> Expr:
    return exp.Neg(this=exp.Literal.number(-value)) if value < 0 else exp.Literal.number(value)


def _text(value: str) -> Expr:
    if "\x00" in value:
        raise SqlError("a text parameter holds a NUL character, which no SQL text can")
    return exp.Literal.string(value)


def _timestamp(value: pa.Scalar) -> Expr:
    kind = value.type
    try:
        moment: Any = value.cast(pa.timestamp("us", kind.tz)).as_py()
    except pa.ArrowInvalid:
        raise SqlError("a timestamp parameter is finer than a microsecond") from None
    if kind.tz is None:
        return _cast(exp.Literal.string(moment.isoformat(sep=" ")), "TIMESTAMP")
    return _cast(exp.Literal.string(moment.astimezone(dt.UTC).isoformat(sep=" ")), "TIMESTAMPTZ")
