"""Parameters of a statement: where they stand, what type they probably have, and literals put in their places.

Values become literals before a statement is planned, so that partitions are pruned by them as if they had been
written there. A literal is made as a syntax tree and written by its generator; no text of a value is ever pasted
into SQL.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from itertools import pairwise

import pyarrow as pa
from attrs import frozen
from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from ballista_py.errors import SqlError
from ballista_py.sql.bind.query import Expr
from ballista_py.sql.parse.nested_literals import (
    MAX_VALUES,
    engine_type,
    held_by,
    is_bytes,
    is_nested,
    is_text,
    nested_literal,
)
from ballista_py.sql.parse.parsing import ENGINE_DIALECT, MAX_BOUND_CHARS, tokenized
from ballista_py.sql.parse.time_texts import date_text, time_text, timestamp_text

_NAMES = (TokenType.NUMBER, TokenType.VAR)


@frozen
class ParameterPlace:
    """One mention of a parameter: its name (a number for `?` and `$1`) and the characters that it takes."""

    name: str
    start: int
    stop: int


def places_of(sql: str) -> tuple[ParameterPlace, ...]:
    """Every mention of a parameter, in the order of the text, which is in the engine's dialect.

    Raises `SqlError` for text that cannot be read.

    >>> places_of("select ?, '?' from t where a = ?")
    (ParameterPlace(name='1', start=7, stop=8), ParameterPlace(name='2', start=31, stop=32))
    """
    tokens = tokenized(sql)
    found: list[ParameterPlace] = []
    for token, following in pairwise([*tokens, None]):
        assert token is not None
        if token.token_type == TokenType.PLACEHOLDER and _is_numbered(token, following):
            assert following is not None
            found.append(ParameterPlace(following.text, token.start, following.end + 1))
        elif token.token_type == TokenType.PLACEHOLDER:
            found.append(
                ParameterPlace(str(1 + sum(place.name.isdigit() for place in found)), token.start, token.end + 1)
            )
        elif token.token_type == TokenType.PARAMETER and token.text == "$" and _follows(token, following):
            assert following is not None
            found.append(ParameterPlace(following.text, token.start, following.end + 1))
    return tuple(found)


def names_of(places: Sequence[ParameterPlace]) -> tuple[str, ...]:
    """The parameters, each once: numbers in their order, then names in that of the text."""
    names = dict.fromkeys(place.name for place in places)
    numbers = sorted((name for name in names if name.isdigit()), key=int)
    return (*numbers, *(name for name in names if not name.isdigit()))


def bound(sql: str, values: Mapping[str, pa.Scalar]) -> str:
    """The statement with a literal for every parameter.

    Each value is written once and counts wherever it is named, so nothing is made that is larger than what is taken.

    Raises `SqlError` for a parameter without a value, for a value of a type that has no literal, and where the values
    are more than `MAX_VALUES`, or longer than `MAX_BOUND_CHARS`, at all places together.

    >>> bound("select * from t where a = ?", {"1": pa.scalar("it's")})
    "select * from t where a = 'it''s'"
    """
    places = places_of(sql)
    for place in places:
        if place.name not in values:
            raise SqlError(f"parameter {place.name} has no value")
    _require_few(places, values)
    literals: dict[str, str] = {}
    written: list[str] = []
    done, length = 0, len(sql)
    for place in places:
        if place.name not in literals:
            literals[place.name] = literal(values[place.name]).sql(ENGINE_DIALECT)
        length += len(literals[place.name])
        if length > MAX_BOUND_CHARS:
            raise SqlError(
                f"with its parameters the statement has more than {MAX_BOUND_CHARS:,} characters: name them at fewer "
                "places, or ingest them into a table and join it"
            )
        # Blanks, because `1?` must not become `11`.
        before = " " if place.start and (sql[place.start - 1].isalnum() or sql[place.start - 1] == "-") else ""
        after = " " if sql[place.stop : place.stop + 1].isalnum() else ""
        written += [sql[done : place.start], before, literals[place.name], after]
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
    if not value.is_valid:
        return exp.null()
    if types.is_dictionary(kind):
        return literal(value.dictionary[value.index.as_py()])
    if types.is_boolean(kind):
        return exp.true() if value.as_py() else exp.false()
    if types.is_integer(kind):
        return _cast(_number(value.as_py()), kind)
    if types.is_floating(kind):
        return _cast(exp.Literal.string(repr(float(value.as_py()))), kind)
    if types.is_decimal(kind):
        return _cast(exp.Literal.string(format(Decimal(value.as_py()), "f")), kind)
    if is_text(kind):
        return _text(value.as_py())
    if isinstance(kind, pa.UuidType):
        return _text(str(value.as_py()))  # as columns have them
    if is_bytes(kind):
        return exp.func("unhex", exp.Literal.string(value.as_py().hex()))
    if types.is_date(kind):
        return _cast(exp.Literal.string(date_text(value)), kind)
    if types.is_timestamp(kind):
        return _cast(exp.Literal.string(timestamp_text(value)), kind)
    if types.is_time(kind):
        return _cast(exp.Literal.string(time_text(value)), kind)
    if types.is_duration(kind):
        return _duration(value)
    if types.is_interval(kind):
        months, days, nanos = value.as_py()
        return _interval(months, days, nanos)
    if is_nested(kind):
        return nested_literal(value, literal)
    raise SqlError(f"a parameter of type {kind} cannot be bound")


def _require_few(places: Sequence[ParameterPlace], values: Mapping[str, pa.Scalar]) -> None:
    """Raise `SqlError` for too many values, each counted wherever it is named, before any of them is a tree."""
    times = Counter(place.name for place in places)
    count = sum(held_by(values[name]) * number for name, number in times.items())
    if count > MAX_VALUES and count > len(places):
        raise SqlError(
            f"the parameters hold {count:,} values at the places where they are named, more than {MAX_VALUES:,}: "
            "ingest them into a table and join it"
        )


def _follows(token: Token, following: Token | None) -> bool:
    """Whether the token after a `$` is the name of a parameter: nothing stands between them."""
    return following is not None and following.start == token.end + 1 and following.token_type in _NAMES


def _is_numbered(token: Token, following: Token | None) -> bool:
    """Whether a `?` says which parameter it is, as `?1` does."""
    return _follows(token, following) and following is not None and following.text.isdigit()


def _cast(node: Expr, kind: pa.DataType) -> Expr:
    return exp.Cast(this=node, to=engine_type(kind))


def _duration(value: pa.Scalar) -> Expr:
    try:
        return _interval(0, 0, 1_000 * value.cast(pa.duration("us")).cast(pa.int64()).as_py())
    except pa.ArrowInvalid:
        raise SqlError("a duration parameter is finer than a microsecond, or too long") from None


def _interval(months: int, days: int, nanos: int) -> Expr:
    if nanos % 1_000:
        raise SqlError("an interval parameter is finer than a microsecond")
    parts = {"to_months": months, "to_days": days, "to_microseconds": nanos // 1_000}
    first, second, third = (exp.func(name, _number(count)) for name, count in parts.items())
    return exp.Paren(this=exp.Add(this=exp.Add(this=first, expression=second), expression=third))


def _number(value: int) -> Expr:
    return exp.Neg(this=exp.Literal.number(-value)) if value < 0 else exp.Literal.number(value)


def _text(value: str) -> Expr:
    if "\x00" in value:
        raise SqlError("a text parameter holds a NUL character, which no SQL text can")
    return exp.Literal.string(value)
