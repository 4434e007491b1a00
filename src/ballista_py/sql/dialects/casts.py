"""Casts of another dialect in words of the engine, which rounds where Spark cuts off and reads more texts than both."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sqlglot import exp

from ballista_py.sql.dialects.typed import Typed, cast_to, filled, literal, refused
from ballista_py.sql.dialects.value_types import (
    BIGINT,
    BOOL,
    BYTES,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    NULL,
    SMALLINT,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    TINYINT,
    ValueType,
)

_DATE = r"(000[1-9]|00[1-9]\d|0[1-9]\d\d|[1-9]\d{3})-\d\d-\d\d"
# Texts that the dialects and the engine read alike; whatever else a column holds is an error here.
PLAIN: Mapping[str, str] = {
    "int": r" *[+-]?[0-9]+ *",
    "decimal": r" *[+-]?[0-9]+([.][0-9]+)? *",
    "double": r" *[+-]?[0-9]+([.][0-9]+)?([eE][+-]?[0-9]+)? *",
    "float": r" *[+-]?[0-9]+([.][0-9]+)?([eE][+-]?[0-9]+)? *",
    "bool": r"(?i:true|false)",
    "date": _DATE,
    "timestamp": _DATE + r"( [0-2]\d:[0-5]\d:[0-5]\d([.]\d{1,6})?)?",
    "timestamptz": _DATE + r"( [0-2]\d:[0-5]\d:[0-5]\d([.]\d{1,6})?)?",
}
_TYPES: Mapping[exp.DType, ValueType] = {
    exp.DType.TINYINT: TINYINT,
    exp.DType.SMALLINT: SMALLINT,
    exp.DType.INT: INTEGER,
    exp.DType.BIGINT: BIGINT,
    exp.DType.DOUBLE: DOUBLE,
    exp.DType.FLOAT: FLOAT,
    exp.DType.TEXT: TEXT,
    exp.DType.VARCHAR: TEXT,
    exp.DType.BOOLEAN: BOOL,
    exp.DType.DATE: DATE,
    exp.DType.TIMESTAMP: TIMESTAMP,
    exp.DType.TIMESTAMPNTZ: TIMESTAMP,
    exp.DType.TIMESTAMPTZ: TIMESTAMPTZ,
    exp.DType.TIMESTAMPLTZ: TIMESTAMPTZ,
    exp.DType.BINARY: BYTES,
    exp.DType.VARBINARY: BYTES,
}
_ONLY_TEXT = "a length of texts is not kept here, leave it out"
_MOMENT = "write the value as YYYY-MM-DD, with HH:MM:SS behind it"
_NUMERIC = "say how many digits it has, as in numeric(18, 2)"


def type_of(node: exp.DataType, dialect: str) -> ValueType:
    """The type that a declaration or a cast names. Raises `UnsupportedExpression` for one that is not kept here."""
    sizes = [item.name for item in node.expressions]
    if node.this == exp.DType.DECIMAL:
        if not sizes and dialect == "spark":
            return ValueType("decimal", 10, 0)
        if not sizes or not all(size.isdigit() for size in sizes) or int(sizes[0]) > 38:
            raise refused(node, dialect, _NUMERIC)
        return ValueType("decimal", int(sizes[0]), int(sizes[1]) if len(sizes) > 1 else 0)
    found = _TYPES.get(node.this) if not node.args.get("nested") else None
    if found is None or (found == TINYINT and dialect == "postgres"):
        raise refused(node, dialect)
    if sizes:
        raise refused(node, dialect, _ONLY_TEXT if found == TEXT else "leave out what stands in parentheses")
    return found


def converted(value: Typed, to: ValueType, node: exp.Expr, dialect: str) -> Typed:
    """The value in a cast that was written. Raises `UnsupportedExpression` where the type is not known, or differs."""
    kind = value.type
    if kind == to and kind.family not in ("unknown", "parameter"):
        return Typed(cast_to(value.expr, to), to)
    if kind == NULL and to != BYTES:
        return Typed(cast_to(value.expr, to), to)
    if value.literal is not None and to.family in PLAIN:
        return _of_text_literal(value, to, node, dialect)
    made = _made(value, to, dialect)
    if made is None:
        raise refused(node, dialect)
    return Typed(made, to)


def of_literal(value: Typed, to: ValueType, node: exp.Expr, dialect: str) -> Typed:
    """A text literal as the value of another type that it stands beside."""
    return _of_text_literal(value, to, node, dialect)


def _of_text_literal(value: Typed, to: ValueType, node: exp.Expr, dialect: str) -> Typed:
    text = value.literal or ""
    if not re.fullmatch(PLAIN[to.family], text):
        hint = "write true or false" if to == BOOL else "write it as a plain number" if to.is_number else _MOMENT
        raise refused(node, dialect, hint)
    return Typed(cast_to(literal(text.strip()), to), to)


def _made(value: Typed, to: ValueType, dialect: str) -> exp.Expr | None:
    kind, expr = value.type, value.expr
    if kind == TEXT and to.family in PLAIN:
        trimmed = "trim({0}, ' ')" if to.is_number else "{0}"
        template = (
            f"case when {{0}} is null or regexp_full_match({{0}}, {{1}}) then {trimmed} "
            f"else error('a text cannot be read as {to.family}') end"
        )
        return cast_to(filled(template, [expr, literal(PLAIN[to.family])], dialect), to)
    if to == TEXT:
        return _as_text(kind, expr, dialect)
    if kind.is_number:
        return _of_number(kind, expr, to, dialect)
    if kind == BOOL:
        return cast_to(expr, to) if to == INTEGER or (dialect == "spark" and to.family == "int") else None
    if kind.is_moment and to.is_moment:
        return cast_to(expr, to)
    return None


def _as_text(kind: ValueType, expr: exp.Expr, dialect: str) -> exp.Expr | None:
    if dialect == "spark" and kind.is_moment:
        return moment_as_text(cast_to(expr, TIMESTAMP) if kind == TIMESTAMPTZ else expr)
    if kind.family in ("int", "bool", "date", "timestamp"):
        return cast_to(expr, TEXT)
    if kind.family == "decimal" and kind.size and kind.scale <= 18 and dialect == "spark":
        # With the digits of its type behind the point, and one before it, for which the type may have no room.
        wide = ValueType("decimal", max(kind.size, kind.scale + 1), kind.scale)
        return cast_to(cast_to(expr, wide), TEXT)
    return None


# The engine counts the years before 1 from 1 on, and says (BC) behind the date.
_AS_SPARK_WRITES = (
    "case when year({0}) < 1 then (case when year({0}) < 0 then '-' else '' end) || "
    "regexp_replace('000' || cast(-year({0}) as varchar), '^0*([0-9][0-9][0-9][0-9]+)$', '\\1') || "
    "regexp_replace(regexp_replace({1}, '^[0-9]+', ''), ' [(]BC[)]', '') "
    "else regexp_replace({1}, '^([0-9][0-9][0-9][0-9][0-9])', '+\\1') end"
)


def moment_as_text(expr: exp.Expr) -> exp.Expr:
    """A date or timestamp as Spark writes it: years of more than four digits, and those before 0, with a sign."""
    return filled(_AS_SPARK_WRITES, [expr, cast_to(expr, TEXT)], "spark")


def _of_number(kind: ValueType, expr: exp.Expr, to: ValueType, dialect: str) -> exp.Expr | None:
    if kind.family == "quotient":
        return cast_to(expr, to) if to == DOUBLE else None
    if kind.family == "int":
        narrow = dialect == "postgres" and to == BOOL and kind != INTEGER
        return None if to.is_moment or to == BYTES or narrow else cast_to(expr, to)
    if to.family == "int" and dialect == "spark":
        return cast_to(filled("trunc({0})", [expr], dialect), to)
    if to.family == "int" or to in (DOUBLE, FLOAT):
        return cast_to(expr, to)  # PostgreSQL rounds as the engine does: decimals away from zero, floats to even
    if kind.family == "decimal" and to.family == "decimal":
        return cast_to(expr, to)
    return None


def assigned(value: Typed, to: ValueType, node: exp.Expr, dialect: str) -> exp.Expr:
    """The value as a column of that type takes it by itself in an INSERT, UPDATE or MERGE.

    Raises `UnsupportedExpression` where a cast has to be written.
    """
    kind = value.type
    if kind in (to, NULL) or kind.family == "parameter":
        return value.expr
    hint = f"write the cast to {to.family}"
    if value.literal is not None and to.family in PLAIN and dialect == "postgres":
        return of_literal(value, to, node, dialect).expr
    wider = kind.family == "int" and to.family in ("int", "decimal", "double", "float")
    exact = kind.family == "decimal" and to.family in ("decimal", "double", "float")
    floats = kind.family in ("double", "float", "quotient") and to.family in ("double", "float")
    moments = kind.is_moment and to.is_moment and to.family != "date"
    if wider or exact or floats or moments:
        return value.expr
    raise refused(node, dialect, hint)
