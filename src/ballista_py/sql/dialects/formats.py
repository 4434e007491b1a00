"""Patterns of dates and times, and the fields of them that EXTRACT names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from sqlglot import exp

from ballista_py.sql.dialects.typed import Reader, Scope, Typed, filled, literal, refused, require_only
from ballista_py.sql.dialects.value_types import INTEGER, TEXT, ValueType

_LETTERS: Mapping[str, Mapping[str, str]] = {
    "spark": {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"},
    "postgres": {"YYYY": "%Y", "MM": "%m", "DD": "%d", "HH24": "%H", "MI": "%M", "SS": "%S"},
}
_PIECES = {
    "spark": re.compile(r"'((?:[^']|'')+)'|(([A-Za-z])\3*)|([^A-Za-z'\[\]{}#]+)", re.DOTALL),
    "postgres": re.compile(r"()(HH24|YYYY|MM|DD|MI|SS)()|([-/:. ,_]+)", re.DOTALL),
}
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
    made, end = "", 0
    for piece in _PIECES[reader.dialect].finditer(pattern):
        quoted, letters, _, other = piece.groups()
        known = _LETTERS[reader.dialect].get(letters or "")
        if piece.start() != end or (letters and known is None):
            break
        plain = (quoted or "").replace("''", "'") + (other or "")
        made, end = made + (known or plain.replace("%", "%%")), piece.end()
    if end != len(pattern):
        raise refused(node, reader.dialect)
    return Typed(filled("strftime({0}, {1})", [values[0].expr, literal(made)], reader.dialect), TEXT)


def extracted(reader: Reader, node: exp.Expr, scope: Scope) -> Typed:
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
