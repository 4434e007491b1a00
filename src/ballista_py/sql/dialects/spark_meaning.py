"""What a statement may consist of so that Spark gives the values that the engine gives.

Both read much of the same text and mean other things by it: a backslash in a pattern, a quote in a format, the place
of an element, how a cast rounds. Promises that literals, formats, patterns, casts and functions of a tree that passes
mean on Spark what they mean to the engine. A function or cast that is not on the lists here is refused by its name, as
is what depends on a type that is not known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import pyarrow as pa
from sqlglot import exp

from ballista_py.errors import UnsupportedExpression

Columns: TypeAlias = Mapping[str, pa.DataType]
"""The types of columns by their names in small letters; a name that stands for several is not there."""

_FUNCTIONS: frozenset[type] = frozenset((
    exp.And, exp.Or, exp.Xor, exp.Case, exp.If, exp.Coalesce, exp.Nullif, exp.Exists, exp.Cast, exp.TimeToStr,
    exp.Sum, exp.Count, exp.Min, exp.Max, exp.Avg, exp.LogicalAnd, exp.LogicalOr, exp.Stddev, exp.StddevSamp,
    exp.StddevPop, exp.Variance, exp.VariancePop, exp.RowNumber, exp.Rank, exp.DenseRank, exp.Lag, exp.Lead, exp.Ntile,
    exp.FirstValue, exp.LastValue, exp.PercentRank, exp.CumeDist, exp.Abs, exp.Length, exp.Substring, exp.Repeat,
    exp.Replace, exp.Concat, exp.StartsWith, exp.EndsWith, exp.Year, exp.Month, exp.Day, exp.Hour, exp.Minute,
    exp.Quarter, exp.Extract, exp.TimestampTrunc, exp.DateTrunc, exp.CurrentDate, exp.CurrentTimestamp, exp.Array,
    exp.Struct, exp.Map, exp.ToMap,
))  # fmt: skip
_NAMED = frozenset(("raise_error",))
_REFUSED = (
    exp.Bracket, exp.Lambda, exp.Glob, exp.SimilarTo, exp.ILike, exp.Collate,
    exp.HexString, exp.BitString, exp.ByteString, exp.AtTimeZone, exp.Slice, exp.JSONExtract, exp.JSONExtractScalar,
    exp.BitwiseLeftShift, exp.BitwiseRightShift, exp.BitwiseNot, exp.Placeholder, exp.Parameter,
)  # fmt: skip
_UNITS = frozenset(("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND"))
_STEPS = _UNITS - {"QUARTER", "WEEK"}
_PARTS = frozenset(("YEAR", "QUARTER", "MONTH", "DAY", "HOUR", "MINUTE", "DOY"))

_INTEGERS = frozenset(("TINYINT", "SMALLINT", "INT", "BIGINT"))
_PLAIN = {
    **dict.fromkeys(_INTEGERS, re.compile(r"-?\d+")),
    **dict.fromkeys(("DOUBLE", "FLOAT", "DECIMAL"), re.compile(r"-?\d+(\.\d+)?")),
    "DATE": re.compile(r"\d{4}-\d\d-\d\d"),
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMPNTZ"), re.compile(r"\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d(\.\d{1,6})?)?")),
    "TIMESTAMPTZ": re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,6})?[+-]\d\d"),
    "BOOLEAN": re.compile("true|false"),
    **dict.fromkeys(("VARCHAR", "TEXT"), re.compile(r"(?s:.*)")),
}
_NUMBERS = (
    exp.Sum, exp.Avg, exp.Count, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg, exp.RowNumber, exp.Rank, exp.DenseRank,
)  # fmt: skip
_WHOLE = (exp.Count, exp.RowNumber, exp.Rank, exp.DenseRank, exp.Year, exp.Month, exp.Day, exp.Length)
_FORMATS = {"Y": "yyyy", "m": "MM", "d": "dd", "H": "HH", "M": "mm", "S": "ss", "f": "SSSSSS", "%": "%"}
_BYTE = re.compile(r"\\x([0-9A-Fa-f]{2})|([\x00-\x5b\x5d-\x7f])")


def with_same_meaning(tree: exp.Expr, columns: Columns) -> exp.Expr:
    """The tree, changed where Spark says the same in other words. Raises `UnsupportedExpression`, naming the piece."""
    known = _with_names_of(tree, columns)
    for node in tree.walk():
        _require_known(node, known)
    return tree.transform(_in_words_of_spark)


def _with_names_of(tree: exp.Expr, columns: Columns) -> Columns:
    """The columns without those for which the statement has a name of its own, but for casts to whole numbers."""
    known = dict(columns)
    named = [alias for alias in tree.find_all(exp.Alias) if alias.this.name.lower() != alias.alias.lower()]
    for alias in named:
        known.pop(alias.alias.lower(), None)
    for name in {alias.alias.lower() for alias in named} - columns.keys():
        meant = [alias.this for alias in named if alias.alias.lower() == name]
        if all(isinstance(one, exp.Cast) and one.to.this.value in _INTEGERS for one in meant):
            known[name] = pa.int64()
    return known


def _refuse(node: exp.Expr | str) -> UnsupportedExpression:
    shown = node if isinstance(node, str) else node.sql("duckdb", comments=False)
    short = " ".join(shown.split())
    short = short if len(short) <= 80 else short[:79] + "…"
    return UnsupportedExpression(
        f"'{short}' can mean something else on Spark than it means here: send the statement without engine=\"spark\""
    )


def _require_known(node: exp.Expr, columns: Columns) -> None:
    if isinstance(node, _REFUSED):
        raise _refuse(node)
    if isinstance(node, exp.Anonymous):
        if str(node.this).lower() not in _NAMED:
            raise _refuse(node)
    elif isinstance(node, exp.Func) and type(node) not in _FUNCTIONS:
        raise _refuse(node)
    if isinstance(node, exp.Cast):
        _require_same_cast(node, columns)
    elif isinstance(node, exp.Like):
        if not _text_of(node.expression):
            raise _refuse(node)
    elif isinstance(node, exp.Escape):
        by = node.expression
        if not isinstance(node.this, exp.Like) or not _text_of(by) or len(by.name) != 1 or by.name == "\\":
            raise _refuse(node)
    elif isinstance(node, exp.Interval):
        number = node.this
        if not isinstance(number, exp.Literal) or not re.fullmatch(r"-?\d{1,9}", number.name):
            raise _refuse(node)
        if str(node.args.get("unit")).upper() not in _STEPS:
            raise _refuse(node)
    elif isinstance(node, exp.TimestampTrunc | exp.DateTrunc):
        if node.text("unit").upper() not in _UNITS:
            raise _refuse(node)
    elif isinstance(node, exp.Extract):
        if node.name.upper() not in _PARTS:
            raise _refuse(node)
    elif isinstance(node, exp.Substring):
        places = [node.args.get("start"), node.args.get("length")]
        if not all(one is None or (isinstance(one, exp.Literal) and one.name.isdigit()) for one in places):
            raise _refuse(node)
        if places[0] is None or places[0].name == "0":
            raise _refuse(node)


def _text_of(node: object) -> bool:
    return isinstance(node, exp.Literal) and node.is_string


def _require_same_cast(node: exp.Cast, columns: Columns) -> None:
    """Whatever a text holds, however a number is rounded: only casts that leave no choice."""
    operand, kind = node.this, node.to.this.value
    while isinstance(operand, exp.Paren):
        operand = operand.this
    if type(node) is not exp.Cast or (kind == "DECIMAL" and not node.to.expressions):
        raise _refuse(node)
    if isinstance(operand, exp.Literal):
        if kind not in ("VARBINARY", "BLOB", "BINARY") and not _is_plain(operand, node.to):
            raise _refuse(node)
    elif isinstance(operand, exp.Null | exp.Boolean):
        if kind not in _PLAIN:
            raise _refuse(node)
    elif not _keeps(operand, kind, columns):
        raise _refuse(node)


def _is_plain(literal: exp.Literal, to: exp.DataType) -> bool:
    text, pattern = literal.name, _PLAIN.get(to.this.value)
    if not literal.is_string and not _PLAIN["DOUBLE"].fullmatch(text):
        return False
    if pattern is None or not pattern.fullmatch(text):
        return False
    if to.this.value != "DECIMAL":
        return True
    scale = int(to.expressions[1].name) if len(to.expressions) > 1 else 0
    return len(text.partition(".")[2]) <= scale


def _keeps(operand: exp.Expr, kind: str, columns: Columns) -> bool:
    if kind == "DOUBLE" and isinstance(operand, _NUMBERS):
        return True
    held = columns.get(operand.name.lower()) if isinstance(operand, exp.Column) else None
    whole = isinstance(operand, _WHOLE) or (held is not None and pa.types.is_integer(held))
    if whole:
        return kind in _INTEGERS or kind in ("DOUBLE", "FLOAT", "DECIMAL", "VARCHAR", "TEXT")
    if held is None:
        return False
    if pa.types.is_decimal(held):
        return kind in ("DOUBLE", "DECIMAL")
    if pa.types.is_floating(held):
        return kind == "DOUBLE"
    if pa.types.is_date(held):
        return kind in ("DATE", "TIMESTAMP", "TIMESTAMPNTZ", "VARCHAR", "TEXT")
    if pa.types.is_timestamp(held):
        return kind == "DATE" and held.tz is None
    return (pa.types.is_string(held) or pa.types.is_large_string(held)) and kind in ("VARCHAR", "TEXT")


def _in_words_of_spark(node: exp.Expr) -> exp.Expr:
    if isinstance(node, exp.Cast) and node.to.this.value in ("VARBINARY", "BLOB", "BINARY"):
        return _bytes(node)
    if isinstance(node, exp.TimeToStr):
        return exp.Anonymous(this="DATE_FORMAT", expressions=[node.this, exp.Literal.string(_format(node))])
    if isinstance(node, exp.Like) and not isinstance(
        node.parent, exp.Escape
    ):  # the engine has no character that escapes, unless one is named
        node.set("expression", exp.Literal.string(node.expression.name.replace("\\", "\\\\")))
    # The engine divides doubles; Spark's quotient of decimals has few digits.
    if isinstance(node, exp.Div):
        node.set("this", exp.cast(node.this, "DOUBLE"))
        node.set("expression", exp.cast(node.expression, "DOUBLE"))
    return node


def _bytes(node: exp.Cast) -> exp.Expr:
    """The engine reads `\\x` and two digits as a byte and takes all else for itself, if it is ASCII."""
    text, found, place = node.this.name, bytearray(), 0
    while place < len(text):
        one = _BYTE.match(text, place)
        if one is None:
            raise _refuse(node)
        found.append(int(one[1], 16) if one[1] else ord(one[2]))
        place = one.end()
    return exp.Unhex(this=exp.Literal.string(found.hex()))


def _format(node: exp.TimeToStr) -> str:
    """
    >>> from sqlglot import parse_one
    >>> _format(parse_one("strftime(d, '%d''th of %m')", dialect="duckdb"))
    "dd'''th of 'MM"
    """
    if not _text_of(node.args.get("format")):
        raise _refuse(node)
    found, plain = "", ""
    pieces = re.findall(r"%(.?)|([^%]+)", node.args["format"].name, re.DOTALL)
    for letter, text in pieces:
        if text or letter == "%":
            plain += text or "%"
            continue
        if letter not in _FORMATS:
            raise _refuse(node)
        found, plain = found + _quoted(plain) + _FORMATS[letter], ""
    return found + _quoted(plain)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'" if text else ""


def known_columns(schemas: Iterable[pa.Schema]) -> Columns:
    """The types of the columns of some tables, without those of which two have another."""
    found: dict[str, pa.DataType] = {}
    several: set[str] = set()
    for field in (field for schema in schemas for field in schema):
        if found.setdefault(field.name.lower(), field.type) != field.type:
            several.add(field.name.lower())
    return {name: kind for name, kind in found.items() if name not in several}
