"""Patterns of dates and times, and the fields of them that EXTRACT names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from sqlglot import exp

from ballista_py.sql.dialects.typed import Reader, Typed, TypedScope, filled, literal, refused, require_only
from ballista_py.sql.dialects.value_types import INTEGER, TEXT, ValueType

_LETTERS: Mapping[str, Mapping[str, str]] = {
    "spark": {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"},
    "postgres": {"YYYY": "%Y", "MM": "%m", "DD": "%d", "HH24": "%H", "MI": "%M", "SS": "%S"},
}
_PIECES = {
    "spark": re.compile(r"'((?:[^']|'')+)'|(([A-Za-z])\3*)|([^A-Za-z'\[\]{}#]+)", re.DOTALL),
    "postgres": re.compile(r"()(HH24|YYYY|MM|DD|MI|SS)()|([-/:. ,_]+)", re.DOTALL),
}
# Spark's years are those before 1, too, and have a sign where they have more or less than four digits.
_YEAR_OF_SPARK = (
    "case when year({0}) between 0 and 9999 then strftime({0}, '%Y') "
    "else (case when year({0}) < 0 then '-' else '+' end) "
    "|| (case when year({0}) > -10000 and year({0}) < 0 then right('000' || cast(-year({0}) as varchar), 4) "
    "else cast(abs(year({0})) as varchar) end) end"
)
_FIELDS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "spark": {
        **{name: (f"{name}({{0}})", "moment") for name in ("year", "quarter", "month", "day")},
        "doy": ("dayofyear({0})", "moment"),
        "dow": ("dayofweek({0}) + 1", "moment"),
        "dayofweek": ("dayofweek({0}) + 1", "moment"),
        "week": ("weekofyear({0})", "moment"),
        "hour": ("hour({0})", "stamp"),
        "minute": ("minute({0})", "stamp"),
    },
    "postgres": {
        **{name: (f"{name}({{0}})", "moment") for name in ("year", "quarter", "month", "day", "isodow")},
        "doy": ("dayofyear({0})", "moment"),
        "dow": ("dayofweek({0})", "moment"),
        "week": ("weekofyear({0})", "moment"),
        "hour": ("hour({0})", "stamp"),
        "minute": ("minute({0})", "stamp"),
        "second": ("cast(microsecond({0}) as decimal(18, 0)) * 0.000001", "stamp"),
        "epoch": ("cast(epoch_us({0}) as decimal(18, 0)) * 0.000001", "stamp"),
    },
}


def formatted(reader: Reader, node: exp.Expr, values: Sequence[Typed]) -> Typed:
    """`date_format` and `to_char` of a moment with a literal of digits: years, months, days, hours, and so on."""
    pattern = values[1].literal if len(values) == 2 else None
    if pattern is None or not values[0].type.is_moment:
        raise refused(node, reader.dialect)
    made, end = [""], 0  # with a piece behind each year that is written by hand
    for piece in _PIECES[reader.dialect].finditer(pattern):
        quoted, letters, _, other = piece.groups()
        known = _LETTERS[reader.dialect].get(letters or "")
        if piece.start() != end or (letters and known is None):
            break
        plain = (quoted or "").replace("''", "'") + (other or "")
        if known == "%Y" and reader.dialect == "spark":
            made.append("")
        else:
            made[-1] += known or plain.replace("%", "%%")
        end = piece.end()
    if end != len(pattern):
        raise refused(node, reader.dialect)
    texts = [
        f"strftime({{0}}, {{{place}}})" if piece or len(made) == 1 else "''" for place, piece in enumerate(made, 1)
    ]
    sql = f" || ({_YEAR_OF_SPARK}) || ".join(texts)
    return Typed(filled(sql, [values[0].expr, *map(literal, made)], reader.dialect), TEXT)


def extracted(reader: Reader, node: exp.Expr, scope: TypedScope) -> Typed:
    """EXTRACT. PostgreSQL's is a numeric, of which all but seconds have no digits behind the point."""
    require_only(node, reader.dialect, "this", "expression")
    return part_of(reader, node, node.name, reader.value(node.args["expression"], scope))


def part_of(reader: Reader, node: exp.Expr, name: str, value: Typed) -> Typed:
    """One field of a moment."""
    sql, over = _FIELDS[reader.dialect].get(name.lower(), ("", ""))
    stamp = value.type.family in ("timestamp", "timestamptz")
    if not sql or not (stamp or (over == "moment" and value.type.is_moment)):
        raise refused(node, reader.dialect)
    if reader.dialect == "spark":
        return Typed(filled(f"cast({sql} as integer)", [value.expr], reader.dialect), INTEGER)
    digits = 6 if over == "stamp" and "0.000001" in sql else 0
    if not digits:
        sql = f"cast({sql} as decimal(18, 0))"
    return Typed(filled(sql, [value.expr], reader.dialect), ValueType("decimal", 24, digits))
