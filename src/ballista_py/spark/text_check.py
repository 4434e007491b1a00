"""A look through the CSV files of a source for what Spark reads as something else without a word.

Promises that text which is not UTF-8, a quote that is never closed and lines that end in two ways are one
`SchemaMismatch` that names the file. Spark would make signs of replacement of the first, one value of all lines that
follow the second, and leave a carriage return at the ends of values for the third.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ballista_py.errors import SchemaMismatch
from ballista_py.one_line import one_line
from ballista_py.spark.text_files import MAX_SHOWN_CHARACTERS, is_csv, shown_file

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_UTF8 = ("utf-8", "utf8")
_WIDE = ("utf-16", "utf-32", "utf16", "utf32", "unicode", "ucs")  # half a letter of theirs may look like a quote
_NOT_OF_LINES = ("wholetext", "linesep", "format", "schema", "path")


def checks_of(options: Mapping[str, Any]) -> dict[str, str]:
    """What to look for in the lines of a file: a name and the condition, in Spark's SQL, that none of them may meet.

    >>> sorted(checks_of({"format": "csv", "encoding": "latin1", "multiLine": "true", "quote": '"', "escape": '"'}))
    ['ends', 'quotes']
    >>> checks_of({"format": "parquet"})
    {}
    """
    if not is_csv(str(options["format"])):
        return {}
    named = {name.lower(): str(value) for name, value in options.items()}
    encoding = named.get("encoding", named.get("charset", "utf-8")).lower()
    if encoding.startswith(_WIDE):
        return {}
    found = {"text": "not is_valid_utf8(value)"} if encoding in _UTF8 else {}
    quote = named.get("quote", "")
    if len(quote) == 1 and quote == named.get("escape"):
        counted = f"length(value) - length(replace(value, {_literal(quote)}, ''))"
        comment = named.get("comment", "")
        apart = f"value not like {_literal(comment + '%')} and " if comment not in ("", "%", "_") else ""
        found["quotes"] = f"{apart}({counted}) % 2 = 1"
    if _lines_may_go_on(named) and "linesep" not in named:
        complete = f"not ({found['quotes']}) and " if "quotes" in found else ""
        found["ends"] = f"{complete}endswith(value, '\\r')"
    return found


def check_text(spark: SparkSession, options: Mapping[str, Any], owner: str) -> None:
    """Look through the files that `options`, which are complete, lead to: one more reading of them, without parsing.

    Raises `SchemaMismatch`, and what Spark raises.
    """
    checks = checks_of(options)
    if not checks:
        return
    whole = _lines_may_go_on({name.lower(): str(value) for name, value in options.items()})
    for row in _looked_through(spark, options, checks).toLocalIterator():
        lines = {name: row[f"{name}_in"] for name in checks}
        problem = _problem({name: row[name] for name in checks}, lines, whole, row["first_end"])
        if problem is not None:
            raise SchemaMismatch(f"{owner}: file '{shown_file(row['file'])}' {problem}")


def _lines_may_go_on(named: Mapping[str, str]) -> bool:
    return named.get("multiline", "false").lower() == "true"


def _looked_through(spark: SparkSession, options: Mapping[str, Any], checks: Mapping[str, str]) -> DataFrame:
    """A row a file: how many lines meet each condition, one of them, and whether the first one ends in two signs."""
    from pyspark.sql import functions as sf

    kept = {name: value for name, value in options.items() if name.lower() not in _NOT_OF_LINES}
    end = next((value for name, value in options.items() if name.lower() == "linesep"), "\n")
    lines = spark.read.format("text").options(**kept, lineSep=end).load(options.get("path"))
    placed = lines.select(
        "value",
        sf.expr("_metadata.file_path").alias("file"),
        sf.expr("struct(_metadata.file_block_start, monotonically_increasing_id())").alias("place"),
    )
    found = [sf.expr("min_by(endswith(value, '\\r'), place)").alias("first_end")]
    for name, condition in checks.items():
        found.append(sf.expr(f"count_if({condition})").alias(name))
        shown = f"left(make_valid_utf8(value), {MAX_SHOWN_CHARACTERS})"
        found.append(sf.expr(f"min_by({shown}, place) filter (where {condition})").alias(f"{name}_in"))
    return placed.groupBy("file").agg(*found)


def _problem(counts: Mapping[str, int], lines: Mapping[str, str], whole: bool, first_end: bool) -> str | None:
    """What is wrong with a file of which so many lines met the conditions; None if nothing is."""
    said = {name: one_line((line or "").strip(), MAX_SHOWN_CHARACTERS) for name, line in lines.items()}
    if counts.get("text"):
        return f"is not UTF-8, as in the line '{said['text']}': name its encoding, as in encoding: iso-8859-1"
    odd = counts.get("quotes", 0)
    if odd % 2 if whole else odd:
        where = "" if whole else " on its line (say multiLine: 'true' if it may be on another)"
        return (
            f"has an odd number of quotes, as in the line '{said['quotes']}': one is not closed{where}. "
            "If quotes are plain signs there, say quote: ''"
        )
    if counts.get("ends") and not first_end:
        return f"has lines that end in different ways, as in '{said['ends']}': let all of them end in one way"
    return None


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
