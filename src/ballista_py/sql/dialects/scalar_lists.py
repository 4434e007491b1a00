"""The functions of each dialect that are read, each with the engine's SQL for it.

Every line was compared with the dialect's own engine over generated values; a line comes here together with such
expressions (`testing/sql/dialect_expressions.py`). What is not here is refused by its name.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from ballista_py.sql.dialects import calls
from ballista_py.sql.dialects.calls import Rules, rules_of
from ballista_py.sql.dialects.formats import formatted, part_of
from ballista_py.sql.dialects.operators import joined_of, modulo_of
from ballista_py.sql.dialects.typed import Reader, Typed, cast_to, filled, refused
from ballista_py.sql.dialects.value_types import DATE, DOUBLE, TEXT, TIMESTAMP, TIMESTAMPTZ

# Letters that become several, none or others in Unicode's later versions: each engine has its own opinion.
_UPPER = (
    "[\u00df\u0149\u019b\u01f0\u0264\u0390\u03b0\u0587\u1c89\u1c8a\u1e96-\u1e9a\u1f50-\u1fff\ua7ca-\ua7dd\ufb00-\ufb17"
    "\U00010d50-\U00010d85\U00016ea0-\U00016ed3]"
)
_LOWER = "[\u0130\u03a3\u1c89\u1c8a\ua7ca-\ua7dd\U00010d50-\U00010d85\U00016ea0-\U00016ed3]"
_FOLDED = "error('the text has a letter that is not folded here as there')"


def _fold(name: str, letters: str, text: str = "{0}") -> str:
    return f"case when regexp_matches({text}, '{letters}') then {_FOLDED} else {name}({text}) end"


_SHARED: Sequence[tuple[str, str, str, str]] = (
    ("lower", "text", _fold("lower", _LOWER), "text"),
    ("length char_length character_length", "text", "length({0})", "int"),
    ("octet_length", "text", "strlen({0})", "int"),
    ("replace", "text text text", "replace({0}, {1}, {2})", "text"),
    ("repeat", "text int", "repeat({0}, {1})", "text"),
    ("split_part", "text L1 k>=1", "split_part({0}, {1}, {2})", "text"),
    ("lpad", "text k>=0", "lpad({0}, {1}, ' ')", "text"),
    ("lpad", "text k>=0 L1", "lpad({0}, {1}, {2})", "text"),
    ("rpad", "text k>=0", "rpad({0}, {1}, ' ')", "text"),
    ("rpad", "text k>=0 L1", "rpad({0}, {1}, {2})", "text"),
    ("md5", "text", "md5({0})", "text"),
    ("trim btrim", "text", "trim({0}, ' ')", "text"),
    ("ltrim", "text", "ltrim({0}, ' ')", "text"),
    ("rtrim", "text", "rtrim({0}, ' ')", "text"),
    ("abs", "number", "abs({0})", "0"),
    ("concat_ws", "L text", "concat_ws({0}, {1})", "text"),
    ("concat_ws", "L text text", "concat_ws({0}, {1}, {2})", "text"),
    ("concat_ws", "L text text text", "concat_ws({0}, {1}, {2}, {3})", "text"),
    ("concat_ws", "L text text text text", "concat_ws({0}, {1}, {2}, {3}, {4})", "text"),
    ("now current_timestamp", "", "now()", "tz"),
    (
        "make_date", "int int int",
        "case when {0} < 1 then error('a year before the first') else make_date({0}, {1}, {2}) end", "date",
    ),
)  # fmt: skip
_POSITIVE = "case when {0} > 0 then %s end"
_PLACE = "case when {1} < -1000000000 then error('a place so far from the end') when {1} = 0 then 1 else {1} end"
_SPARK: Sequence[tuple[str, str, str, str]] = (
    ("upper ucase", "text", _fold("upper", _UPPER, "replace({0}, 'ß', 'SS')"), "text"),
    ("lcase", "text", _fold("lower", _LOWER), "text"),
    ("len", "text", "length({0})", "int"),
    ("substring substr", "text int", "substring({0}, " + _PLACE + ")", "text"),
    (
        "substring substr", "text int int",
        "substring({0}, " + _PLACE + ", case when {2} < 0 then 0 else {2} end)", "text",
    ),
    ("left", "text int", "left({0}, case when {1} < 0 then 0 else {1} end)", "text"),
    ("right", "text int", "right({0}, case when {1} < 0 then 0 else {1} end)", "text"),
    ("replace", "text text", "replace({0}, {1}, '')", "text"),
    ("instr", "text text", "strpos({0}, {1})", "int"),
    ("locate position", "text text", "strpos({1}, {0})", "int"),
    ("startswith", "text text", "starts_with({0}, {1})", "bool"),
    ("endswith", "text text", "ends_with({0}, {1})", "bool"),
    ("contains", "text text", "contains({0}, {1})", "bool"),
    ("sign signum", "exact", "cast(sign({0}) as double)", "double"),
    ("sqrt", "real", "sqrt({0})", "double"),
    ("exp", "real", "exp({0})", "double"),
    ("ln log", "real", _POSITIVE % "ln({0})", "double"),
    ("log10", "real", _POSITIVE % "log({0})", "double"),
    ("power pow", "real real", "power({0}, {1})", "double"),
    ("isnull", "any", "({0} is null)", "bool"),
    ("isnotnull", "any", "({0} is not null)", "bool"),
    ("year", "moment", "year({0})", "int"),
    ("quarter", "moment", "quarter({0})", "int"),
    ("month", "moment", "month({0})", "int"),
    ("day dayofmonth", "moment", "day({0})", "int"),
    ("dayofyear", "moment", "dayofyear({0})", "int"),
    ("dayofweek", "moment", "dayofweek({0}) + 1", "int"),
    ("weekday", "moment", "isodow({0}) - 1", "int"),
    ("weekofyear", "moment", "weekofyear({0})", "int"),
    ("hour", "stamp", "hour({0})", "int"),
    ("minute", "stamp", "minute({0})", "int"),
    ("second", "stamp", "second({0})", "int"),
    ("date_add dateadd", "moment int", "cast({0} as date) + cast({1} as integer)", "date"),
    ("date_sub", "moment int", "cast({0} as date) - cast({1} as integer)", "date"),
    (
        "add_months", "moment int",
        "cast(cast({0} as date) + to_months(cast({1} as integer)) as date)", "date",
    ),
    ("datediff date_diff", "moment moment", "(cast({0} as date) - cast({1} as date))", "int"),
    ("last_day", "moment", "last_day(cast({0} as date))", "date"),
    ("to_date", "moment", "cast({0} as date)", "date"),
    ("current_date curdate", "", "current_date", "date"),
)  # fmt: skip
_POSITIVE_OR_ERROR = (
    "case when {0} > 0 then %s when {0} is null then null else error('a logarithm of what is not positive') end"
)
_POSTGRES: Sequence[tuple[str, str, str, str]] = (
    ("upper", "text", _fold("upper", _UPPER), "text"),
    (
        "substring substr", "text int",
        "case when {1} >= 1 then substring({0}, {1}) when {1} < 1 then {0} end", "text",
    ),
    (
        "substring substr", "text int int",
        "case when {2} < 0 then error('a text of negative length') when {1} >= 1 then substring({0}, {1}, {2}) "
        "when {1} + {2} > 1 then substring({0}, 1, {1} + {2} - 1) when {0} is not null and {1} + {2} <= 1 then '' end",
        "text",
    ),
    ("left", "text int", "left({0}, {1})", "text"),
    ("right", "text int", "case when {1} = -2147483648 then {0} else right({0}, {1}) end", "text"),
    ("strpos", "text text", "strpos({0}, {1})", "int"),
    ("starts_with", "text text", "starts_with({0}, {1})", "bool"),
    ("btrim", "text text", "trim({0}, {1})", "text"),
    ("ltrim", "text text", "ltrim({0}, {1})", "text"),
    ("rtrim", "text text", "rtrim({0}, {1})", "text"),
    ("sign", "int", "cast(sign({0}) as double)", "double"),
    (
        "sqrt", "real",
        "case when {0} < 0 then error('a square root of what is negative') else sqrt({0}) end", "double",
    ),
    ("ln", "real", _POSITIVE_OR_ERROR % "ln({0})", "double"),
    ("log log10", "real", _POSITIVE_OR_ERROR % "log({0})", "double"),
    ("trunc", "double", "trunc({0})", "double"),
    ("trunc", "int", "cast({0} as double)", "double"),
)  # fmt: skip


def _concat_of_spark(reader: Reader, node: exp.Expr, values: Sequence[Typed]) -> Typed:
    return joined_of(reader, node, values) if values else Typed(exp.Literal.string(""), TEXT)


def _concat_of_postgres(reader: Reader, node: exp.Expr, values: Sequence[Typed]) -> Typed:
    if not values or any(value.type.family not in ("text", "int", "null") for value in values):
        raise refused(node, reader.dialect, "cast them to text first")
    return Typed(exp.Anonymous(this="concat", expressions=[value.expr for value in values]), TEXT)


def _mod(reader: Reader, node: exp.Expr, values: Sequence[Typed]) -> Typed:
    if len(values) != 2:
        raise refused(node, reader.dialect)
    return modulo_of(reader, node, *values)


def _part(reader: Reader, node: exp.Expr, values: Sequence[Typed]) -> Typed:
    """`date_part` of PostgreSQL: EXTRACT as a double."""
    name = values[0].literal if len(values) == 2 else None
    if name is None:
        raise refused(node, reader.dialect)
    found = part_of(reader, node, name, values[1])
    return Typed(cast_to(found.expr, DOUBLE), DOUBLE)


_UNITS = {
    "year": "year", "yyyy": "year", "yy": "year", "quarter": "quarter", "month": "month", "mon": "month",
    "mm": "month", "week": "week", "day": "day", "dd": "day", "hour": "hour", "minute": "minute",
    "second": "second",
}  # fmt: skip


def _cut(reader: Reader, node: exp.Expr, values: Sequence[Typed]) -> Typed:
    """`date_trunc`: what is a date becomes a timestamp with zone in both dialects."""
    unit = (values[0].literal or "").lower() if len(values) == 2 else ""
    spark = reader.dialect == "spark"
    known = unit in _UNITS and (spark or unit == _UNITS[unit])
    if not known or not values[1].type.is_moment:
        raise refused(node, reader.dialect)
    keeps = values[1].type == TIMESTAMP and not spark
    operand = "{0}" if keeps else "cast({0} as timestamptz)"
    made = filled(f"date_trunc('{_UNITS[unit]}', {operand})", [values[1].expr], reader.dialect)
    return Typed(made, TIMESTAMP if keeps else TIMESTAMPTZ)


def _cut_date(reader: Reader, node: exp.Expr, values: Sequence[Typed]) -> Typed:
    """`trunc` of Spark, which takes dates."""
    unit = _UNITS.get((values[1].literal or "").lower(), "") if len(values) == 2 else ""
    if unit not in ("year", "quarter", "month", "week") or values[0].type != DATE:
        raise refused(node, reader.dialect)
    return Typed(filled(f"cast(date_trunc('{unit}', {{0}}) as date)", [values[0].expr], reader.dialect), DATE)


def _two(reader: Reader, node: exp.Expr, values: Sequence[Typed]) -> Typed:
    if len(values) != 2:
        raise refused(node, reader.dialect)
    return calls.coalesced(reader, node, values)


_SPECIAL: Rules = {
    "coalesce": calls.coalesced, "nullif": calls.nullif, "greatest": calls.greatest, "least": calls.least,
    "round": calls.rounded, "ceil": calls.up_or_down("ceil"), "ceiling": calls.up_or_down("ceil"),
    "floor": calls.up_or_down("floor"), "mod": _mod, "date_trunc": _cut,
}  # fmt: skip
SCALARS: dict[str, Rules] = {
    "spark": {
        **rules_of((*_SHARED, *_SPARK)), **_SPECIAL, "if": calls.chosen, "nvl2": calls.chosen_by_null, "nvl": _two,
        "ifnull": _two, "concat": _concat_of_spark, "trunc": _cut_date, "date_format": formatted,
    },
    "postgres": {
        **rules_of((*_SHARED, *_POSTGRES)), **_SPECIAL, "concat": _concat_of_postgres, "to_char": formatted,
        "date_part": _part,
    },
}  # fmt: skip
