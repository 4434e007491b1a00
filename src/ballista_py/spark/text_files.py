"""Text files of a source (CSV, JSON, XML), read so that nothing is left out, cut or made NULL without a word.

Spark's own defaults take a backslash for the sign that escapes a quote, drop the values that are too many in a line,
and make NULL of those that are missing or of another type. Here quotes are those of RFC 4180 and a line that does not
fit ends the run. What Spark cannot tell by itself is looked for by `text_check.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from ballista_py.errors import ConfigError
from ballista_py.one_line import ends_of, one_line

MAX_SHOWN_CHARACTERS = 80

_STRICT: Mapping[str, Mapping[str, str]] = {
    "csv": {
        "mode": "FAILFAST",
        "quote": '"',
        "multiLine": "true",
        "unescapedQuoteHandling": "RAISE_ERROR",
        "enforceSchema": "false",  # else the names in the header of a second file count for nothing
        "columnPruning": "false",  # else values are not counted where not all columns are asked for
    },
    "json": {"mode": "FAILFAST"},
    "xml": {"mode": "FAILFAST"},
}
_FILE = re.compile(r"(?:Encountered error while reading file|^CSV file:) (\S+?)\.?(?:\s|$)", re.MULTILINE)
_HEADER = re.compile(r"^ Header: (.*)\n Schema: (.*)$", re.MULTILINE)
_HEADER_SIZE = re.compile(r"^ Header length: (\d+), schema size: (\d+)$", re.MULTILINE)
_QUOTE = re.compile(r"Unescaped quote character .*? inside quoted value")
_QUOTE_LINE = re.compile(r"^Internal state when error was thrown: line=(\d+)", re.MULTILINE)
_RECORD = re.compile(r"Malformed CSV record: (.*?)(?: SQLSTATE: \w+)?$", re.MULTILINE)
_NOT_OF_TYPE = re.compile(r"MALFORMED_RECORD_IN_PARSING[^\n]*? record parsing: (.*?)\.?$", re.MULTILINE)
_VALUE = re.compile(
    r"(?:For input string: \"|The value '|Text '|the value )(.*?)"
    r"(?:\" *$|' of the type|' could not be parsed| of the JSON token)",
    re.MULTILINE,
)
_NO_JSON = re.compile(r"^Caused by: com\.fasterxml\.jackson\.\S+: ([^\n]*)", re.MULTILINE)


def is_csv(kind: str) -> bool:
    """Whether a reader of that name reads CSV."""
    return kind.lower() in ("csv", "com.databricks.spark.csv")


def strict_options(kind: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options for a reader of format `kind`: those that were given, and the strict ones that they do not name.

    An escape that is not given is the quote itself, which is doubled then. Raises `ConfigError` for a mode that leaves
    rows or values out.

    >>> strict_options("json", {"MULTILINE": "true"})
    {'MULTILINE': 'true', 'mode': 'FAILFAST'}
    >>> strict_options("parquet", {"path": "a"})
    {'path': 'a'}
    """
    strict = _STRICT.get("csv" if is_csv(kind) else kind.lower(), {})
    named = {name.lower(): value for name, value in given.items()}
    mode = str(named.get("mode", "failfast"))
    if strict and mode.lower() != "failfast":
        raise ConfigError(
            f"the option mode: {mode} leaves out rows or values that do not fit: take mode away, and mend the file"
        )
    options = {**given, **{name: value for name, value in strict.items() if name.lower() not in named}}
    if is_csv(kind) and "escape" not in named:
        options["escape"] = named.get("quote", '"')
    return options


def misfit_in(error: BaseException) -> str | None:
    """What does not fit in which text file, in words, if that is why Spark failed; None if it failed otherwise."""
    try:
        said = str(error)
    except Exception:  # of a JVM that is gone
        return None
    text = ends_of("\n".join(line for line in said.splitlines() if not line.lstrip().startswith("at ")))
    found = _FILE.search(text)
    where = f"file '{shown_file(found[1])}'" if found else "a file"
    if header := _HEADER.search(text):
        return (
            f"{where} has the header '{_cut(header[1])}', the columns are '{_cut(header[2])}': name each column once, "
            "in one order in all files, or say enforceSchema: 'true' to take them by their places alone"
        )
    if size := _HEADER_SIZE.search(text):
        return f"{where} has {size[1]} columns, not {size[2]}: the files of a source have the same columns"
    if _QUOTE.search(text):
        line = _QUOTE_LINE.search(text)
        near = f", about line {int(line[1]) + 1}," if line else ""
        return f'{where}{near} has a quote within quotes that is not doubled, as in "a ""b"""'
    if record := _RECORD.search(text):
        return f"{where} has a line with more or fewer values than there are columns: '{_cut(record[1])}'"
    if row := _NOT_OF_TYPE.search(text):
        if no_json := _NO_JSON.search(text):
            return f"{where} has a line that is no JSON: {_cut(no_json[1])}"
        value = _VALUE.search(text, row.end())
        which = f"the value '{_cut(value[1])}'" if value else f"a value in the row {_cut(row[1])}"
        return f"{where} has {which}, which is not of its column's type"
    return None


def shown_file(url: str) -> str:
    """What people call a file of which Spark has the address.

    >>> shown_file("file:///data/a%20b.csv"), shown_file("s3a://bucket/a.csv")
    ('/data/a b.csv', 's3a://bucket/a.csv')
    """
    path = re.sub(r"^file:/+", "/", unquote(url))
    return one_line(path, 500)


def _cut(text: str) -> str:
    return one_line(text.strip(), MAX_SHOWN_CHARACTERS)
