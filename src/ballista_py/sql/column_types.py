"""Which types the columns of a table may have: those that come back as they went in, through every door.

A type is kept, with the same values, type and text in the engine, in both file formats, over Flight SQL and in Spark;
or it is refused when the table is made, by its name and with what to take instead. Nothing is exchanged for another.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import pyarrow as pa

from ballista_py.errors import ConfigError, SqlError

KEPT = frozenset((
    "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "FLOAT",
    "DOUBLE", "DECIMAL", "VARCHAR", "BLOB", "DATE", "TIME", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS",
    "TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE", "LIST", "ARRAY", "STRUCT", "MAP",
))  # fmt: skip
_TEXT = "take VARCHAR, with a CHECK if need be"
INSTEAD: Mapping[str, str] = {
    "UUID": _TEXT,
    "JSON": _TEXT,
    "ENUM": "take VARCHAR with a CHECK that lists the values",
    "BIT": "take BLOB or VARCHAR",
    "GEOMETRY": "take BLOB with the well-known binary form",
    "VARIANT": "take VARCHAR with JSON text, or columns",
    "HUGEINT": "take BIGINT or DECIMAL(38, 0)",
    "UHUGEINT": "take UBIGINT or DECIMAL(38, 0)",
    "BIGNUM": "take DECIMAL or VARCHAR",
    "INTERVAL": "take BIGINT with a number of days or microseconds",
    "TIME WITH TIME ZONE": "take TIME, with the offset in a column of its own",
    "TIME_NS": "take TIME, or BIGINT with a number of nanoseconds",
    "TIMESTAMPTZ_NS": "take TIMESTAMP WITH TIME ZONE or TIMESTAMP_NS",
    "UNION": "take a STRUCT with a column for each form",
    "TUPLE": "take STRUCT with names",
    "NULL": "take the type that its values are to have",
    "TYPE": _TEXT,
}
# What a value of such a type is cast to, so that a table keeps it: the text loses nothing of most.
_CAST: Mapping[str, str] = {
    "HUGEINT": "BIGINT",
    "UHUGEINT": "UBIGINT",
    "GEOMETRY": "BLOB",
    "TIME_NS": "TIME",
    "TIMESTAMPTZ_NS": "TIMESTAMP WITH TIME ZONE",
}
_WORDS = re.compile(r'"(?:[^"]|"")*"|[A-Za-z_]\w*(?: WITH TIME ZONE)?|\'(?:[^\']|\'\')*\'|[\[\](),]|\d+|\s+')


def require_kept(table: str, column: str, kind: str) -> None:
    """Raise `SqlError` unless a column of a type, as the engine's SQL writes it, is kept as it is.

    >>> require_kept("t", "a", "STRUCT(b DECIMAL(9,2)[], c MAP(VARCHAR, DATE))")
    >>> require_kept("t", "a", "STRUCT(b UUID)[]")
    Traceback (most recent call last):
    ballista_py.errors.SqlError: column 'a' of table 't' cannot be UUID, which would not be kept: take VARCHAR, with a \
CHECK if need be
    """
    for name in parts_of(kind):
        if name not in KEPT:
            instead = INSTEAD.get(name, "take one of the types that the guide lists")
            raise SqlError(
                f"column '{column}' of table '{table}' cannot be {name}, which would not be kept: {instead}"
            )


def require_kept_answer(table: str, column: str, kind: str) -> None:
    """Raise `SqlError`, with the cast to write, unless a table keeps a column that a query gives.

    >>> require_kept_answer("t", "sum(i)", "HUGEINT")
    Traceback (most recent call last):
    ballista_py.errors.SqlError: column 'sum(i)' of table 't' would be HUGEINT, which a table does not keep: cast it \
in the query, with CAST(… AS BIGINT), or CAST(… AS DECIMAL(38, 0)) for larger values
    """
    refused = next((name for name in parts_of(kind) if name not in KEPT), None)
    if refused is None:
        return
    larger = ", or CAST(… AS DECIMAL(38, 0)) for larger values" if kind in ("HUGEINT", "UHUGEINT") else ""
    has = f"{kind}, which" if refused == kind else f"{kind}, of which {refused}"
    kept = "a table does not keep" if refused == kind else "is not kept by a table"
    raise SqlError(
        f"column '{column}' of table '{table}' would be {has} {kept}: cast it in the query, with "
        f"CAST(… AS {kept_form(kind)}){larger}"
    )


def kept_form(kind: str) -> str:
    """The type, with what is kept in the place of each part of it that is not.

    >>> kept_form("STRUCT(a HUGEINT, b ENUM('x', 'y')[])[3]"), kept_form("TUPLE(DECIMAL(9,2), INTERVAL)")
    ('STRUCT(a BIGINT, b VARCHAR[])[3]', 'STRUCT(v1 DECIMAL(9,2), v2 VARCHAR)')
    """
    found, place = _form(kind, 0)
    return found if place == len(kind) else "VARCHAR"


def _form(text: str, place: int) -> tuple[str, int]:
    name, place = _next(text, place)
    following, after = _next(text, place)
    fields = name in ("STRUCT", "MAP", "TUPLE")
    found = "STRUCT" if name == "TUPLE" else name if name in KEPT else _CAST.get(name, "VARCHAR")
    if following == "(":
        parts, place = _fields(text, after, name) if fields else _skipped(text, after)
        found += f"({', '.join(parts)})" if fields else f"({parts[0]})" if found == name else ""
    while _next(text, place)[0] == "[":
        end = text.index("]", place) + 1
        found, place = found + text[place:end].strip(), end
    return found, place


def _fields(text: str, place: int, name: str) -> tuple[list[str], int]:
    """The forms of the types in the brackets behind `name`, each with the name of its field; the place behind them."""
    found: list[str] = []
    word = ""
    while word != ")" and place < len(text):
        before = f"v{len(found) + 1} " if name == "TUPLE" else ""
        if name == "STRUCT":
            word, place = _next(text, place)
            before = f"{word} "
        inside, place = _form(text, place)
        found.append(before + inside)
        word, place = _next(text, place)
    return found, place


def _skipped(text: str, start: int) -> tuple[list[str], int]:
    """What stands between brackets, from behind the opening one, and the place behind the closing one."""
    place, depth, end = start, 1, start
    while depth and place < len(text):
        end = place
        word, place = _next(text, place)
        depth += (word == "(") - (word == ")")
    return [text[start:end]], place


def parts_of(kind: str) -> list[str]:
    """The names of all types in a type, without what stands in their brackets.

    >>> parts_of('STRUCT("a b" INTEGER, c VARCHAR[3])'), parts_of("ENUM('INTEGER', 'b')")
    (['STRUCT', 'INTEGER', 'VARCHAR', 'ARRAY'], ['ENUM'])
    """
    found, place = _type(kind, 0)
    return found if place == len(kind) else [kind]


def _type(text: str, place: int) -> tuple[list[str], int]:
    name, place = _next(text, place)
    found = [name.strip('"') if name == '"NULL"' else name]
    following, after = _next(text, place)
    if following == "(":
        inside, place = _inside(text, after, name)
        found += inside
    while _next(text, place)[0] == "[":
        size, place = _next(text, _next(text, place)[1])
        found.append("LIST" if size == "]" else "ARRAY")
        if size != "]":
            _, place = _next(text, place)
    return found, place


def _inside(text: str, place: int, name: str) -> tuple[list[str], int]:
    """The types in the brackets behind `name`, from behind the opening one; and the place behind the closing one."""
    found: list[str] = []
    word = ""
    while word != ")" and place < len(text):
        if name in ("STRUCT", "UNION"):
            _, place = _next(text, place)  # the name of a field
        if name in ("STRUCT", "UNION", "MAP", "TUPLE"):
            inside, place = _type(text, place)
            found += inside
        word, place = _next(text, place)
    return found, place


def _next(text: str, place: int) -> tuple[str, int]:
    """The next word and the place behind it."""
    while True:
        match = _WORDS.match(text, place)
        if match is None:
            return "", len(text) + 1 if place < len(text) else place
        place = match.end()
        if not match[0].isspace():
            return match[0], place


def require_kept_schema(table: str, schema: pa.Schema) -> None:
    """Raise `ConfigError` unless the columns of a managed table are of types that are kept."""
    for field in schema:
        if (reason := arrow_reason(field.type)) is not None:
            raise ConfigError(
                f"column '{field.name}' of table '{table}' cannot be {reason}, which would not be kept: take one of "
                "the types that the guide lists"
            )


def arrow_reason(kind: pa.DataType) -> str | None:
    """Why a column of an Arrow type would not be kept, in words; None for one that is."""
    types = pa.types
    if types.is_nested(kind) and not types.is_union(kind) and not types.is_list_view(kind):
        reasons = (arrow_reason(kind.field(n).type) for n in range(kind.num_fields))
        return next((reason for reason in reasons if reason is not None), None)
    if isinstance(kind, pa.BaseExtensionType):
        return f"{kind.extension_name}, an extension type"
    return None if any(check(kind) for check in _ARROW) else str(kind)


_ARROW = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_decimal128,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
    pa.types.is_date32,
    pa.types.is_time64,
    pa.types.is_timestamp,
)
