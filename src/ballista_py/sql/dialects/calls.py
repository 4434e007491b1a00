"""How a call of another dialect is found in that dialect's list, and said in the engine's words.

A rule says what the arguments must be and what the engine's SQL for the call is. Arguments are told by words: a family
of types, `same` (of one type with those before it), `L` (a text literal), `L1` (one that is not empty), or a number
that is a literal: `k>=0`, `k>=1`. The last word may end with `*`: any number of such arguments. The result is a type,
the number of the argument whose type it has, or `same`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from attrs import frozen
from sqlglot import exp

from ballista_py.sql.dialects.operators import comparable, united
from ballista_py.sql.dialects.typed import Reader, Typed, TypedScope, cast_to, filled, refused
from ballista_py.sql.dialects.value_types import (
    BIGINT,
    BOOL,
    DATE,
    DOUBLE,
    INTEGER,
    NULL,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    ValueType,
)

_RESULTS: Mapping[str, ValueType] = {
    "int": INTEGER, "long": BIGINT, "double": DOUBLE, "text": TEXT, "bool": BOOL, "date": DATE, "stamp": TIMESTAMP,
    "tz": TIMESTAMPTZ, "numeric": ValueType("decimal", 38, 6), "whole": ValueType("decimal", 38, 0),
}  # fmt: skip


@frozen
class Rule:
    """One form of a call: its arguments, the engine's SQL for it, the type of the result."""

    arguments: str
    sql: str
    result: str


Special: TypeAlias = Callable[[Reader, exp.Expr, Sequence[Typed]], Typed]
Rules: TypeAlias = Mapping[str, Sequence[Rule] | Special]


def called(reader: Reader, node: exp.Anonymous, scope: TypedScope, rules: Rules) -> Typed:
    """The call in the engine's words. Raises `UnsupportedExpression` where no rule takes these arguments."""
    found = rules[str(node.this)[1:]]
    values = [reader.value(argument, scope) for argument in node.expressions]
    if callable(found):
        return found(reader, node, values)
    for rule in found:
        taken = _taken(reader, rule.arguments.split(), values)
        if taken is not None:
            return _made(reader, rule, taken)
    raise refused(node, reader.dialect)


def _taken(reader: Reader, words: Sequence[str], values: Sequence[Typed]) -> Sequence[Typed] | None:
    """The arguments as a rule wants them, or None."""
    if len(words) != len(values):
        return None
    taken = [_argument(reader, word, value) for word, value in zip(words, values, strict=True)]
    return None if any(one is None for one in taken) else [one for one in taken if one is not None]


def _argument(reader: Reader, word: str, value: Typed) -> Typed | None:
    kind, whole = value.type, value.whole
    if word in ("L", "L1"):
        return value if value.literal is not None and (value.literal or word == "L") else None
    if word.startswith("k>="):
        return value if whole is not None and int(word[3:]) <= whole < 2**31 else None
    if kind.family in ("unknown", "parameter"):
        return value if word == "any" else None
    if kind == NULL:
        return Typed(cast_to(value.expr, _NULLS[word]), _NULLS[word]) if word in _NULLS else value
    if word == "real":  # what is computed as a double
        if kind.family == "decimal" and reader.dialect == "postgres":
            return None
        if kind.family not in ("int", "decimal", "double", "float"):
            return None
        return value if kind == DOUBLE else Typed(cast_to(value.expr, DOUBLE), DOUBLE)
    fits = word == "any" or kind.family in _WORDS.get(word, (word,))
    return value if fits else None


_WORDS: Mapping[str, tuple[str, ...]] = {
    "exact": ("int", "decimal"),
    "number": ("int", "decimal", "double", "float"),
    "moment": ("date", "timestamp", "timestamptz"),
    "stamp": ("timestamp", "timestamptz"),
    "plain": ("date", "timestamp"),
}
_NULLS: Mapping[str, ValueType] = {
    "int": INTEGER, "text": TEXT, "date": DATE, "bool": BOOL, "real": DOUBLE, "double": DOUBLE, "moment": DATE,
    "stamp": TIMESTAMP, "decimal": ValueType("decimal", 18, 3), "plain": DATE, "timestamp": TIMESTAMP,
    "exact": INTEGER, "number": INTEGER,
}  # fmt: skip


def _made(reader: Reader, rule: Rule, taken: Sequence[Typed]) -> Typed:
    made = filled(rule.sql, [one.expr for one in taken], reader.dialect)
    if rule.result.isdigit():
        return Typed(made, taken[int(rule.result)].type)
    kind = _RESULTS[rule.result]
    return Typed(cast_to(made, INTEGER) if kind == INTEGER else made, kind)


def rules_of(table: Sequence[tuple[str, str, str, str]]) -> dict[str, list[Rule]]:
    """Rules by their names, of a list in which several names may share a line."""
    found: dict[str, list[Rule]] = {}
    for names, arguments, sql, result in table:
        for name in names.split():
            found.setdefault(name, []).append(Rule(arguments, sql, result))
    return found


def coalesced(reader: Reader, node: exp.Expr, values: Sequence[Typed]) -> Typed:
    """The first that is not null."""
    return _of_one_type("coalesce", reader, node, values)


def greatest(reader: Reader, node: exp.Expr, values: Sequence[Typed]) -> Typed:
    """The largest that is not null."""
    return _of_one_type("greatest", reader, node, values)


def least(reader: Reader, node: exp.Expr, values: Sequence[Typed]) -> Typed:
    """The smallest that is not null."""
    return _of_one_type("least", reader, node, values)


def _of_one_type(name: str, reader: Reader, node: exp.Expr, values: Sequence[Typed]) -> Typed:
    if not values:
        raise refused(node, reader.dialect)
    made, kind = united(reader, node, values)
    return Typed(exp.Anonymous(this=name, expressions=made), kind)


def nullif(reader: Reader, node: exp.Expr, values: Sequence[Typed]) -> Typed:
    """Null for what equals the second."""
    if len(values) != 2:
        raise refused(node, reader.dialect)
    one, other = comparable(reader, node, values[0], values[1])
    if one is not values[0].expr:
        raise refused(node, reader.dialect)
    made = filled("case when {0} = {1} then null else {0} end", [one, other], reader.dialect)
    return Typed(made, values[0].type)


def chosen(reader: Reader, node: exp.Expr, values: Sequence[Typed]) -> Typed:
    """`if` of Spark."""
    if len(values) != 3 or values[0].type not in (BOOL, NULL):
        raise refused(node, reader.dialect)
    (yes, no), kind = united(reader, node, values[1:])
    return Typed(filled("case when {0} then {1} else {2} end", [values[0].expr, yes, no], reader.dialect), kind)


def chosen_by_null(reader: Reader, node: exp.Expr, values: Sequence[Typed]) -> Typed:
    """`nvl2` of Spark."""
    if len(values) != 3:
        raise refused(node, reader.dialect)
    (yes, no), kind = united(reader, node, values[1:])
    sql = "case when {0} is not null then {1} else {2} end"
    return Typed(filled(sql, [values[0].expr, yes, no], reader.dialect), kind)


def rounded(reader: Reader, node: exp.Expr, values: Sequence[Typed]) -> Typed:
    """`round` to digits that are a literal: decimals alike everywhere, doubles to whole numbers only."""
    value, digits = values[0] if values else None, values[1].whole if len(values) > 1 else 0
    if value is None or len(values) > 2 or digits is None or not 0 <= digits <= 37:
        raise refused(node, reader.dialect, "say the digits with a literal, from 0 on")
    if value.type.family == "decimal":
        kind = ValueType("decimal", min(value.type.size + 1, 38), min(value.type.scale, digits))
        return Typed(filled(f"round({{0}}, {digits})", [value.expr], reader.dialect), kind)
    if value.type.family == "int" and (reader.dialect == "spark" or len(values) == 1):
        spark = reader.dialect == "spark"
        return value if spark else Typed(cast_to(value.expr, DOUBLE), DOUBLE)
    if value.type == DOUBLE and len(values) == 1:
        name = "round({0})" if reader.dialect == "spark" else "round_even({0}, 0)"
        return Typed(filled(name, [value.expr], reader.dialect), DOUBLE)
    raise refused(node, reader.dialect, "cast it to a decimal first")


def up_or_down(name: str) -> Special:
    """`ceil` or `floor`."""

    def made(reader: Reader, node: exp.Expr, values: Sequence[Typed]) -> Typed:
        kind = values[0].type if len(values) == 1 else NULL
        spark = reader.dialect == "spark"
        whole = BIGINT if spark else DOUBLE
        if kind.family == "int":
            return Typed(cast_to(values[0].expr, whole), whole)
        sql = filled(f"{name}({{0}})", [values[0].expr], reader.dialect) if values else exp.null()
        if kind.family == "decimal":
            return Typed(sql, ValueType("decimal", min(kind.size - kind.scale + 1, 38), 0))
        if kind == DOUBLE:
            return Typed(cast_to(sql, BIGINT) if spark else sql, whole)
        raise refused(node, reader.dialect)

    return made
