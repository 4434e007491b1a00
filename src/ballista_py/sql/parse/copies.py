"""COPY between a table or a query and a file of the client: read from its words, with DuckDB's options. Pure.

An option is on a list here or it is refused by name: those that leave rows out without a word are not on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from attrs import frozen
from sqlglot.tokenizer_core import Token, TokenType

from ballista_py.errors import SqlError
from ballista_py.sql.parse.kind import statement_kind, tokens_of
from ballista_py.sql.parse.statement_text import StatementText
from ballista_py.sql.parse.table_names import plain_table

OptionKind: TypeAlias = Literal["text", "number", "flag", "texts", "names"]
_BOTH: Mapping[str, tuple[str, OptionKind]] = {
    "delim": ("delim", "text"),
    "delimiter": ("delim", "text"),
    "sep": ("delim", "text"),
    "header": ("header", "flag"),
    "quote": ("quote", "text"),
    "escape": ("escape", "text"),
    "dateformat": ("dateformat", "text"),
    "date_format": ("dateformat", "text"),
    "timestampformat": ("timestampformat", "text"),
    "timestamp_format": ("timestampformat", "text"),
    "compression": ("compression", "text"),
}
_CSV_IN: Mapping[str, tuple[str, OptionKind]] = {
    **_BOTH,
    "null": ("nullstr", "texts"),
    "nullstr": ("nullstr", "texts"),
    "encoding": ("encoding", "text"),
    "decimal_separator": ("decimal_separator", "text"),
    "thousands": ("thousands", "text"),
    "comment": ("comment", "text"),
    "new_line": ("new_line", "text"),
    "skip": ("skip", "number"),
    "max_line_size": ("max_line_size", "number"),
    "allow_quoted_nulls": ("allow_quoted_nulls", "flag"),
    "null_padding": ("null_padding", "flag"),
    "force_not_null": ("force_not_null", "names"),
}
_CSV_OUT: Mapping[str, tuple[str, OptionKind]] = {
    **_BOTH,
    "null": ("nullstr", "text"),
    "nullstr": ("nullstr", "text"),
    "force_quote": ("force_quote", "names"),
}
_PARQUET_OUT: Mapping[str, tuple[str, OptionKind]] = {
    "compression": ("compression", "text"),
    "codec": ("compression", "text"),
    "compression_level": ("compression_level", "number"),
    "row_group_size": ("row_group_size", "number"),
}
_JSON_OUT: Mapping[str, tuple[str, OptionKind]] = {
    "array": ("array", "flag"),
    **{name: _BOTH[name] for name in ("dateformat", "timestampformat", "compression")},
}
READ_OPTIONS: Mapping[str, Mapping[str, tuple[str, OptionKind]]] = {"csv": _CSV_IN, "parquet": {}}
WRITE_OPTIONS: Mapping[str, Mapping[str, tuple[str, OptionKind]]] = {
    "csv": _CSV_OUT,
    "parquet": _PARQUET_OUT,
    "json": _JSON_OUT,
}
NOT_HERE = "COPY cannot be run here: its file is the client's, send it with Client.sql or ballista-py sql"
_LOSES = "it leaves rows out without a word"
_DECLARED = "the table says what its columns are; COPY table (a, b) FROM names those of the file in their order"
_INSTEAD: Mapping[str, str] = {
    **dict.fromkeys(("ignore_errors", "store_rejects", "rejects_table", "rejects_limit", "strict_mode"), _LOSES),
    **dict.fromkeys(("columns", "names", "types", "dtypes", "column_types", "all_varchar"), _DECLARED),
    **dict.fromkeys(("partition_by", "per_thread_output", "file_size_bytes"), "COPY writes one file"),
}
_ENDINGS = {"parquet": "parquet", "pq": "parquet", "csv": "csv", "tsv": "csv", "json": "json", "ndjson": "json"}
_COMPRESSED = ("gz", "zst")
_YES, _NO = ("true", "on", "1", "yes"), ("false", "off", "0", "no")


@frozen(kw_only=True)
class CopyFrom:
    """Rows of a file (`parquet` or `csv`) for a table; `columns` are those of the file in order, None for all.

    `options` are names and values in DuckDB's words.
    """

    table: str
    path: str
    format: str
    columns: tuple[str, ...] | None = None
    options: tuple[tuple[str, str], ...] = ()

    def option(self, name: str) -> str | None:
        """The value of an option, as it stands in SQL."""
        return dict(self.options).get(name)


@frozen(kw_only=True)
class CopyTo:
    """The rows of a query for a file; `query` stands where it stands in the user's text."""

    query: str
    path: str
    format: str
    options: tuple[tuple[str, str], ...] = ()


def read_copy(sql: str) -> CopyFrom | CopyTo | None:
    """What a COPY between a file and a table or query says; None for another statement.

    Raises `SqlError` for an option that is not known and any other form.

    >>> read_copy("copy t from 'a.csv' (header, delim ';')").options
    (('header', 'true'), ('delim', "';'"))
    >>> read_copy("copy (select 1 as a) to 'a.parquet'").query
    '      select 1 as a'
    """
    if "copy" not in sql[:1_000].lower():
        return None
    text, tokens = tokens_of(sql)
    if tokens[0].text.upper() != "COPY":
        return None
    if any(token.token_type == TokenType.SEMICOLON for token in tokens):
        raise SqlError("the text holds more than one statement: send them one by one")
    statement = StatementText(text, tokens)
    way = next(((place, word) for place, word in statement.top_level(1) if word in ("FROM", "TO")), None)
    if way is None or way[0] == 1:
        raise SqlError("COPY needs a file: COPY table FROM 'file', COPY (query) TO 'file'")
    place, word = way
    path = _path(tokens, place + 1)
    given = _options(statement, place + 2)
    format_name = _format(given, path)
    known = READ_OPTIONS if word == "FROM" else WRITE_OPTIONS
    if format_name not in known:
        raise SqlError(f"COPY … {word} knows the formats {', '.join(sorted(known))}: name one, as in (FORMAT csv)")
    options = _checked(given, known[format_name], f"COPY … {word} ({format_name})")
    if word == "TO":
        query = _query(statement, place)
        if statement_kind(query) == "change":  # it would be done before the file shows to be none
            raise SqlError(
                "COPY of a change cannot be run here: run the change, and write the rows that it returns"
            )
        return CopyTo(query=query, path=path, format=format_name, options=options)
    table, columns = _target(statement, place)
    return CopyFrom(table=table, path=path, format=format_name, columns=columns, options=options)


def _path(tokens: Sequence[Token], place: int) -> str:
    following = tokens[place + 1].text if place + 1 < len(tokens) else ""
    if place >= len(tokens) or tokens[place].token_type != TokenType.STRING or following in ("||", ",", "::"):
        raise SqlError("COPY reads or writes one file, named by a text")
    return tokens[place].text


def _target(text: StatementText, end: int) -> tuple[str, tuple[str, ...] | None]:
    """The table before FROM, and the columns behind it."""
    opening = next((n for n in range(1, end) if text.tokens[n].token_type == TokenType.L_PAREN), end)
    table = plain_table(text.tokens[1:opening])
    if opening == end:
        return table, None
    if text.group_end(opening) != end - 1:
        raise SqlError("COPY needs the name of a table before FROM, and columns in brackets if need be")
    names = [text.tokens[start + 1 : stop] for start, stop in text.pieces(opening, end - 1)]
    if any(len(name) != 1 for name in names):
        raise SqlError("COPY names plain columns behind a table")
    return table, tuple(name[0].text for name in names)


def _query(text: StatementText, end: int) -> str:
    """The query before TO, as it stands; SELECT of the columns for a table."""
    if text.opens(1):
        close = text.group_end(1)
        if close != end - 1:
            raise SqlError("COPY needs one query in brackets before TO")
        head = text.plain[: text.tokens[1].end + 1]
        return " " * len(head) + text.plain[len(head) : text.tokens[close].start]
    table, columns = _target(text, end)
    quoted = ['"' + name.replace('"', '""') + '"' for name in (table, *(columns or ()))]
    return f"select {', '.join(quoted[1:]) or '*'} from {quoted[0]}"


def _format(given: Sequence[tuple[str, str | None]], path: str) -> str:
    for name, value in given:
        if name == "format":
            return (value or "").strip("'").lower()
    endings = path.lower().rsplit(".", 2)[1:]
    ending = endings[-2] if len(endings) == 2 and endings[-1] in _COMPRESSED else (endings or [""])[-1]
    found = _ENDINGS.get(ending)
    if found is None:
        raise SqlError(f"the format of '{path}' cannot be told by its ending: name it, as in (FORMAT csv)")
    return found


def _options(text: StatementText, place: int) -> list[tuple[str, str | None]]:
    """Names and values, in brackets with commas or, as of old, behind WITH without."""
    tokens = text.tokens
    if place < len(tokens) and text.says(place, "WITH"):
        place += 1
    if place >= len(tokens):
        return []
    if not text.opens(place):
        return _old_options(text, place)
    end = text.group_end(place)
    if end != len(tokens) - 1:
        raise SqlError(f"'{tokens[end + 1].text}' behind the options of COPY is not known")
    found = []
    for start, stop in text.pieces(place, end):
        if stop == start + 1:
            raise SqlError("an option of COPY is missing before a comma or bracket")
        first = start + 2 + (stop > start + 2 and tokens[start + 2].text in ("=", ":="))
        if tokens[start + 1].text.lower() in _INSTEAD:
            first = stop  # whatever its value is
        found.append((tokens[start + 1].text.lower(), _value(text, first, stop) if first < stop else None))
    return found


def _old_options(text: StatementText, place: int) -> list[tuple[str, str | None]]:
    found: list[tuple[str, str | None]] = []
    values = (TokenType.STRING, TokenType.BYTE_STRING, TokenType.NUMBER, TokenType.TRUE, TokenType.FALSE)
    while place < len(text.tokens):
        name = text.tokens[place].text.lower()
        place += 1
        place += place < len(text.tokens) and text.says(place, "AS")
        if name in ("csv", "parquet", "json"):
            found.append(("format", name))
        elif place < len(text.tokens) and text.tokens[place].token_type in values:
            found.append((name, _value(text, place, place + 1)))
            place += 1
        else:
            found.append((name, None))
    return found


def _value(text: StatementText, start: int, stop: int) -> str:
    """A constant, or a list of them, as DuckDB's functions take it."""
    tokens = text.tokens[start:stop]
    kinds = [token.token_type for token in tokens]
    if len(tokens) == 1:
        if kinds[0] in (TokenType.STRING, TokenType.BYTE_STRING, TokenType.NUMBER):
            return text.plain[tokens[0].start : tokens[0].end + 1]
        if kinds[0] == TokenType.STAR:
            return "*"
        if tokens[0].text.lower() in (*_YES, *_NO):
            return tokens[0].text.lower()
        if tokens[0].text.replace("_", "").replace("-", "").isalnum() or kinds[0] == TokenType.IDENTIFIER:
            return _literal(tokens[0].text)
    elif kinds[0] in (TokenType.L_PAREN, TokenType.L_BRACKET) and text.group_end(start) == stop - 1:
        items = [(first, last) for first, last in text.pieces(start, stop - 1)]
        if all(last == first + 2 for first, last in items):
            return "[" + ", ".join(_value(text, first + 1, last) for first, last in items) + "]"
    shown = text.plain[tokens[0].start : tokens[-1].end + 1]
    raise SqlError(f"the value {shown} of an option of COPY is no constant")


def _checked(
    given: Sequence[tuple[str, str | None]], known: Mapping[str, tuple[str, OptionKind]], where: str
) -> tuple[tuple[str, str], ...]:
    found: dict[str, str] = {}
    for name, value in given:
        if name == "format":
            continue
        if name not in known:
            instead = _INSTEAD.get(name) or f"it knows {', '.join(sorted(known)) or 'none but FORMAT'}"
            raise SqlError(f"{where} does not take the option {name}: {instead}")
        plain, kind = known[name]
        if plain in found:
            raise SqlError(f"{where} has the option {plain} twice")
        found[plain] = _of_kind(value, kind, name)
    return tuple(found.items())


def _of_kind(value: str | None, kind: OptionKind, name: str) -> str:
    if kind == "flag":
        word = "true" if value is None else value.strip("'").lower()
        if word in (*_YES, *_NO):
            return "true" if word in _YES else "false"
    elif value is not None:
        is_text = value.startswith("'") or value[:2].lower() == "e'"
        if kind == "number" and value.isdecimal():
            return value
        if kind in ("text", "texts") and is_text:
            return value
        if kind in ("texts", "names") and value.startswith("["):
            return value
        if kind == "names" and (is_text or value == "*"):
            return value if value == "*" else f"[{value}]"
    wanted = {"flag": "true or false", "number": "a whole number", "text": "a text"}.get(kind, "a list of texts")
    raise SqlError(f"the option {name} of COPY needs {wanted}")


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
