"""Expressions and queries as people write them in other dialects, to be compared with those dialects' own engines.

Templates hold names of types in braces; a generated expression puts columns, literals and other expressions there. Many
of them are refused by the reader of dialects: what matters is that none is read and has another value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ballista_py.runtime import seeded_chance

COLUMNS: Mapping[str, Sequence[str]] = {
    "int": ("i", "j"), "long": ("l",), "small": ("h",), "double": ("d", "e"), "float": ("f",), "dec": ("n", "m"),
    "text": ("s", "t", "z"), "bool": ("b",), "date": ("dt", "du"), "ts": ("ts",), "tz": ("tz",),
}  # fmt: skip
# The same rows in words of every engine; the last has what is at the ends of types.
_NAMES = ("id", "i", "j", "l", "h", "d", "e", "f", "n", "m", "s", "t", "z", "b", "dt", "du", "ts", "tz")
ROWS: Sequence[Mapping[str, str | None]] = tuple(
    dict(zip(_NAMES, row.split("|"), strict=True))
    for row in (
        "1|1|2|3|4|1.5|-2.5|0.5|1.25|0.0001|abc|b|12|true|2024-02-29|2024-01-07|2024-02-29 23:59:58.5"
        "|2024-01-01 05:06:07",
        "2|-7|3|-9000000000|-5|-0.5|3.25|-1.5|-2.35|-1.5000|Straße|é|-7|false|1999-12-31|2000-01-01|1999-12-31 00:00:00"
        "|1970-01-01 00:00:00",
        "3|||||||||||||||||",
        "4|5|-5|10000000000|100|2.5|0.25|3.0|2.50|12.3456||a%b_| 15 |true|2021-01-03|2020-12-31"
        "|2021-03-28 02:30:00.123456|2030-07-04 12:00:00.000001",
        "5|100|7|7|1|1e10|1e-3|1e3|99999.99|10000.5000|😀é|\\|3|false|1582-10-15|0001-01-01|0001-01-01 00:00:00"
        "|2024-12-30 23:59:59",
        "6|3|-3|1|2|-2.5|7.0|0.25|-0.05|0.5000| pad  |PAD|007|true|2024-12-31|9999-12-31|2024-12-30 12:34:56"
        "|2024-05-05 05:05:05",
        "7|0|0|0|0|0.0|0.0|0.0|0.00|0.0000|a\tb|it's|x|false|2024-03-31|2024-02-28|2024-03-31 10:00:00"
        "|2000-02-29 00:00:00",
        "8|2147483647|-2147483648|9223372036854775807|32767|1e300|-1e300|1e30|9999999.99|99999999999999.9999|ΑΣ|ß|1e3"
        "|true|9999-12-31|1970-01-01|9999-12-31 23:59:59.999999|1969-12-31 23:59:59",
    )
)
EMPTY = {"s": "4"}  # in that row it is an empty text, not null
_LITERALS: Mapping[str, Sequence[str]] = {
    "int": ("0", "1", "2", "-3", "7", "100"), "long": ("3000000000",), "small": ("1",),
    "double": ("cast('0.5' as DOUBLE)",), "float": ("cast('0.5' as FLOAT4)",),
    "dec": ("1.5", "0.05", "-2.345", "10.0"), "text": ("'a'", "''", "'é'", "'it''s'", "' x '", "'b%'"),
    "bool": ("true", "false"), "date": ("date '2024-02-29'", "date '2023-12-31'"),
    "ts": ("TSTYPE '2024-02-29 12:30:00'",), "tz": ("TZTYPE '2024-02-29 12:30:00'",),
}  # fmt: skip
_SHARED: Mapping[str, Sequence[str]] = {
    "int": (
        "{int} + {int}", "{int} - {int}", "{int} * {int}", "- {int}", "{int} % {int}", "{int} / {int}",
        "abs({int})",
        "length({text})", "char_length({text})", "octet_length({text})",
        "case when {bool} then {int} else {int} end",
        "coalesce({int}, {int})", "nullif({int}, {int})", "greatest({int}, {int})", "least({int}, {int})",
        "cast({double} as int)", "cast({dec} as int)", "cast({text} as int)", "cast({bool} as int)",
        "cast({int} as int)", "mod({int}, {int})", "({int})", "case {int} when {int} then {int} end",
        "{int} + {small}",
        "{small} * {small}", "cast({long} as int)", "cast({int} as smallint)",
    ),
    "long": ("{long} + {int}", "{long} - {long}", "{long} * {int}", "cast({int} as bigint)", "{long} % {int}",
             "coalesce({long}, {int})", "cast({double} as bigint)", "cast({dec} as bigint)", "{long} / {int}"),
    "double": (
        "{double} + {double}", "{double} * {int}", "{double} / {double}", "{double} / {int}", "{double} - {dec}",
        "sqrt({double})", "ln({double})", "abs({double})", "cast({int} as DOUBLE)", "cast({dec} as DOUBLE)",
        "cast({text} as DOUBLE)", "round({double})", "ceil({double})", "floor({double})", "{float} + {double}",
        "coalesce({double}, {int})", "- {double}", "round({double}, 2)", "log(abs({int}) + 1)",
        "{double} % {double}",
        "power({int}, 2)", "exp({int})", "cast({float} as DOUBLE)", "sign({int})", "sqrt({int})",
        "trunc({double})",
    ),
    "float": ("{float} + {float}", "{float} * {int}", "cast({double} as FLOAT4)", "- {float}"),
    "dec": (
        "{dec} + {dec}", "{dec} - {int}", "{dec} * {dec}", "{dec} / {dec}", "{dec} / {int}", "{dec} % {dec}",
        "round({dec}, 1)", "round({dec})", "abs({dec})", "- {dec}", "cast({dec} as decimal(12, 1))",
        "cast({int} as decimal(12, 2))", "cast({double} as decimal(12, 2))", "cast({text} as decimal(9, 2))",
        "coalesce({dec}, {int})", "ceil({dec})", "floor({dec})", "greatest({dec}, {dec})", "nullif({dec}, 0)",
        "cast({dec} as numeric)", "case when {bool} then {dec} else {int} end",
    ),
    "text": (
        "upper({text})", "lower({text})", "{text} || {text}", "concat({text}, {text})", "trim({text})",
        "ltrim({text})", "rtrim({text})", "substring({text}, {int}, {int})", "substring({text}, {int})",
        "substring({text} from 2 for 2)", "substr({text}, 2)", "left({text}, {int})", "right({text}, {int})",
        "replace({text}, {text}, {text})", "repeat({text}, 2)", "lpad({text}, 5, {text})", "lpad({text}, 4)",
        "rpad({text}, 3, 'xy')", "coalesce({text}, {text})", "nullif({text}, {text})", "cast({int} as TEXTTYPE)",
        "cast({dec} as TEXTTYPE)", "cast({double} as TEXTTYPE)", "cast({date} as TEXTTYPE)",
        "cast({ts} as TEXTTYPE)",
        "cast({bool} as TEXTTYPE)", "case when {bool} then {text} end", "concat_ws('-', {text}, {text})",
        "split_part({text}, 'b', 1)", "md5({text})", "greatest({text}, {text})", "{text} || {int}",
        "reverse({text})", "initcap({text})", "translate({text}, 'ab', 'x')", "cast({tz} as TEXTTYPE)",
        "trim(both 'a' from {text})", "concat({text}, {int}, null)", "{text} || null",
    ),
    "bool": (
        "{int} = {int}", "{int} < {dec}", "{double} >= {int}", "{text} = {text}", "{text} < {text}",
        "{date} < {date}",
        "{date} <= {ts}", "{ts} > {tz}", "{dec} <> {dec}", "{int} is null", "{text} is not null", "not {bool}",
        "{bool} and {bool}", "{bool} or {bool}", "{int} between {int} and {int}", "{int} in (1, {int}, null)",
        "{text} in ('a', {text})", "{text} like 'a%'", "{text} like '%\\\\%'", "{text} like '_b%'",
        "{text} not like '%b'", "{text} ilike 'A%'", "{int} is distinct from {int}", "{date} = '2024-02-29'",
        "{int} = '5'", "{ts} >= '2024-01-01'", "{float} = {double}", "{dec} = {double}", "{bool} is true",
        "({bool}) is not false", "{long} > {double}", "{text} like {text}", "{bool} = {bool}",
        "{date} between {date} and {date}",
        "{bool} = {int} is null", "{text} = {int}", "{float} = 0.1", "{text} between 'a' and {text}",
        "case when {bool} then {bool} else {bool} end", "cast({int} as boolean)", "cast('true' as boolean)",
    ),
    "date": (
        "{date} + 1", "{date} - 30", "cast({ts} as date)", "cast({text} as date)", "coalesce({date}, {date})",
        "greatest({date}, {date})", "case when {bool} then {date} end", "cast('2024-01-05' as date)",
        "make_date(2024, {int}, 1)", "cast({tz} as date)", "{date} + {int}",
    ),
    "ts": (
        "{ts} + interval '1' day", "{ts} - interval '3' month", "{date} + interval '1' month",
        "{ts} + interval '5' hour",
        "cast({date} as TSTYPE)", "date_trunc('month', {ts})", "date_trunc('week', {ts})",
        "date_trunc('hour', {ts})",
        "date_trunc('year', {date})", "date_trunc('day', {tz})", "coalesce({ts}, {date})",
        "cast({text} as TSTYPE)",
        "{date} + interval '5' hour", "greatest({ts}, {ts})", "cast({tz} as TSTYPE)",
    ),
    "tz": ("{tz} + interval '2' day", "cast({ts} as TZTYPE)", "cast({date} as TZTYPE)", "coalesce({tz}, {ts})",
           "date_trunc('quarter', {tz})", "cast('2024-01-05 01:02:03' as TZTYPE)"),
    "small": ("{small} + {small}", "cast({int} as smallint)", "- {small}", "abs({small})"),
    "part": (
        "extract(year from {date})", "extract(month from {ts})", "extract(dow from {date})",
        "extract(doy from {date})",
        "extract(week from {date})", "extract(quarter from {ts})", "extract(hour from {ts})",
        "extract(minute from {tz})",
        "extract(second from {ts})", "extract(day from {tz})", "extract(epoch from {ts})",
        "extract(isodow from {date})",
        "extract(hour from {date})",
    ),
}  # fmt: skip
_OWN: Mapping[str, Mapping[str, Sequence[str]]] = {
    "spark": {
        "int": (
            "dayofweek({date})", "weekday({date})", "year({date})", "month({ts})", "day({tz})", "quarter({date})",
            "dayofyear({date})", "weekofyear({date})", "hour({ts})", "minute({tz})", "second({ts})",
            "datediff({date}, {date})", "datediff({ts}, {date})", "instr({text}, {text})",
            "locate({text}, {text})",
            "position({text} in {text})", "if({bool}, {int}, {int})", "nvl({int}, {int})",
            "nvl2({text}, {int}, {int})",
            "ifnull({int}, 0)", "pmod({int}, {int})", "ascii({text})", "{int} & {int}", "round({int}, -1)",
            "!{bool}",
        ),
        "long": ("{int} div {int}", "{long} div {int}", "ceil({double})", "floor({int})", "1L",
                 "unix_timestamp({tz})"),
        "double": ("log10({double})", "log({double})", "log(2, {int})", "pow({double}, 2)", "1e3", "2.5D",
                   "rand(1)",
                   "exp({dec})", "sqrt({dec})", "signum({dec})"),
        "dec": ("1.5BD", "avg({dec}) over ()", "bround({dec}, 1)"),
        "text": (
            "date_format({date}, 'yyyy-MM-dd')", "date_format({ts}, 'dd/MM/yyyy HH:mm:ss')",
            "date_format({date}, 'yyyy''Q''MM')", "date_format({date}, 'EEE')", "ucase({text})",
            "nvl({text}, 'n')",
            "'a\\\\n\\\\'b'", "\"dq\"", "r'a\\\\b'", "'\\\\u0041'", "replace({text}, {text})",
            "if({bool}, {text}, {text})",
            "'a' 'b'", "regexp_replace({text}, 'a', 'b')", "left({text}, -1)", "try_cast({text} as string)",
            "concat({text}, {date})", "split({text}, 'b')[0]",
        ),
        "bool": ("{int} <=> {int}", "{text} <=> {text}", "startswith({text}, {text})", "endswith({text}, {text})",
                 "contains({text}, {text})", "{int} == {int}", "isnull({text})", "{text} rlike 'a'",
                 "isnotnull({int})"),
        "date": ("date_add({date}, {int})", "date_sub({date}, 3)", "add_months({date}, {int})",
                 "last_day({date})",
                 "trunc({date}, 'MM')", "trunc({date}, 'week')", "to_date({ts})", "{date} + interval 2 months",
                 "{date} - interval 1 day", "next_day({date}, 'MO')", "date_add({ts}, 1)",
                 "make_date({int}, 1, 1)"),
    },
    "postgres": {
        "int": ("{date} - {date}", "strpos({text}, {text})", "position({text} in {text})", "{int}::int",
                "{dec}::int",
                "{double}::int", "{text}::int", "ascii({text})", "{int} & {int}", "div({int}, {int})",
                "{int} ^ 2"),
        "double": ("{int}::float8", "{dec}::float8", "log10({double})", "date_part('dow', {date})",
                   "avg({int}) over ()",
                   "{int} / {dec}", "cbrt({double})", "'1e3'::float8", "1e3", "avg({double}) over ()"),
        "dec": ("{dec}::numeric(8, 1)", "trunc({dec}, 1)", "sum({long}) over ()", "power({dec}, 2)",
                "sqrt({dec})",
                "log(2, {int})", "round({double}::numeric, 2)", "sum({dec}) over ()"),
        "text": ("to_char({date}, 'YYYY-MM-DD')", "to_char({ts}, 'HH24:MI:SS DD/MM/YYYY')",
                 "to_char({date}, 'Mon')",
                 "btrim({text}, 'ab')", "ltrim({text}, 'a')", "rtrim({text}, ' ')", "{int}::text",
                 "{text}::varchar(2)",
                 "$$a'b$$", "E'a\\\\n'", "string_agg({text}, ',') over ()", "overlay({text} placing 'x' from 2)",
                 "format('%s', {text})", "chr(233)", "concat({text}, {bool})"),
        "bool": ("starts_with({text}, {text})", "{text} ~ 'a'", "{text} similar to 'a%'", "{int}::bool",
                 "{text}::bool",
                 "{text} ilike '%É%'"),
        "ts": ("{ts}::timestamp(0)", "{ts} + interval '1 month 2 days'", "{date} + interval '36 hours'",
               "{ts} at time zone 'UTC'", "{ts}::date::timestamp", "date_trunc('decade', {ts})"),
    },
}  # fmt: skip
_WORDS: Mapping[str, Mapping[str, str]] = {
    "spark": {"DOUBLE": "double", "FLOAT4": "float", "TEXTTYPE": "string", "TSTYPE": "timestamp_ntz",
    "TZTYPE": "timestamp"},
    "postgres": {"DOUBLE": "double precision", "FLOAT4": "real", "TEXTTYPE": "text", "TSTYPE": "timestamp",
                 "TZTYPE": "timestamptz"},
}  # fmt: skip
_PLACE = re.compile(r"\{(\w+)\}")


def templates(dialect: str) -> list[tuple[str, str]]:
    """Every template of a dialect, with the type that it is of."""
    pairs = [(kind, text) for kind, texts in _SHARED.items() for text in texts]
    return pairs + [(kind, text) for kind, texts in _OWN[dialect].items() for text in texts]


def expressions(dialect: str, seed: int, count: int) -> list[str]:
    """Each template once over columns alone, then `count` generated ones, which other expressions stand in.

    >>> expressions("spark", 1, 2) == expressions("spark", 1, 2)
    True
    """
    chance, found = seeded_chance(seed), list[str]()
    by_kind: dict[str, list[str]] = {}
    for kind, text in templates(dialect):
        by_kind.setdefault(kind, []).append(text)

    def made(kind: str, depth: int) -> str:
        roll = chance.random()
        if depth <= 0 or kind not in by_kind or roll < 0.3:
            return chance.choice(_LITERALS[kind] if roll < 0.08 or kind not in COLUMNS else COLUMNS[kind])
        text = _PLACE.sub(lambda place: made(place[1], depth - 1), chance.choice(by_kind[kind]))
        return f"({text})" if chance.random() < 0.6 else text

    for _, text in templates(dialect):
        found.append(_PLACE.sub(lambda place: chance.choice(COLUMNS[place[1]]), text))
    kinds = list(by_kind)
    for _ in range(count):
        text = chance.choice(by_kind[chance.choice(kinds)])
        found.append(_PLACE.sub(lambda place: made(place[1], 2), text))
    return [_in_words(text, dialect) for text in found]


def _in_words(text: str, dialect: str) -> str:
    for word, meant in _WORDS[dialect].items():
        text = re.sub(rf"\b{word}\b", meant, text)
    return text
