"""INSERT OVERWRITE: rows in the place of all, or of those of some partitions; with the meaning that it has in Spark.

The engine has no such statement. So its words are told before the engine reads the text, and blanks take their place.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from attrs import frozen
from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from ballista_py.errors import SqlError
from ballista_py.sql.parse.kind import tokens_of, verb_place
from ballista_py.sql.parse.statement_text import StatementText
from ballista_py.sql.parse.table_names import named_tables

_MENTIONED = re.compile(r"\boverwrite\b", re.IGNORECASE)
_INTO = "INTO"
_DIRECTORY = "INSERT OVERWRITE DIRECTORY cannot be run here: COPY (query) TO 'file' writes a file"
_EACH = "give each column of PARTITION a constant, or leave PARTITION out to replace every row of the table"


@frozen
class Overwrite:
    """That an INSERT, which is `plain` without these words, replaces rows with these values; all where none are named.

    `fixed` are columns and the constant of each, as SQL; they are no columns of the query.
    """

    plain: str
    fixed: tuple[tuple[str, str], ...]


def read_overwrite(sql: str) -> Overwrite | None:
    """What an INSERT OVERWRITE says besides being an INSERT; None for any other statement. Raises `SqlError`.

    >>> read_overwrite("insert overwrite table t partition (k = 1) select 2")
    Overwrite(plain='insert into            t                   select 2', fixed=(('k', '1'),))
    >>> read_overwrite("insert into overwrite select 1") is None
    True
    """
    if not _MENTIONED.search(sql):  # cheaper than to cut a long text into words
        return None
    text, tokens = tokens_of(sql)
    verb = verb_place(tokens)
    if not _says(tokens, verb, "INSERT") or not _says(tokens, verb + 1, "OVERWRITE"):
        return None
    whole = StatementText(text, tokens)
    place = verb + 2
    if _says(tokens, place, "DIRECTORY", "LOCAL"):
        raise SqlError(_DIRECTORY)
    plain = _exchanged(text, tokens[verb + 1], _INTO)
    if _says(tokens, place, "TABLE", "INTO"):
        plain = _exchanged(plain, tokens[place], "")
        place += 1
    place += 1
    while place + 1 < len(tokens) and tokens[place].token_type == TokenType.DOT:
        place += 2
    fixed: tuple[tuple[str, str], ...] = ()
    if _says(tokens, place, "PARTITION"):
        if not whole.opens(place + 1):
            raise SqlError(f"PARTITION needs columns and their values in brackets: {_EACH}")
        end = whole.group_end(place + 1)
        fixed = tuple(_fixed(whole, start, stop) for start, stop in whole.pieces(place + 1, end))
        plain = _blanked(plain, tokens[place].start, tokens[end].end + 1)
        place = end + 1
    if _says(tokens, place, "IF"):
        raise SqlError(
            "INSERT OVERWRITE with IF NOT EXISTS cannot be run here: ask first whether there are such rows"
        )
    return Overwrite(plain, fixed)


def require_other_sources(table: str, query: str, *, whole_table: bool = False) -> None:
    """Raise `SqlError` if the query reads the table whose rows it is to replace: what comes between would be lost.

    `whole_table` tells that the table itself is to be another one.
    """
    _, tokens = tokens_of(query)
    if not any(found.words[-1] == table for found in named_tables(tokens)):
        return
    if whole_table:
        raise SqlError(
            f"CREATE OR REPLACE of table '{table}', which its query reads, cannot be run here, as rows that come in "
            "between would be lost: make another table of the query, and replace this one by the rows of that"
        )
    raise SqlError(
        f"INSERT OVERWRITE of table '{table}', which its query reads, cannot be run here, nor on Spark: change "
        "rows with UPDATE, DELETE or MERGE INTO"
    )


def table_query(tree: exp.Expr) -> None:
    """INSERT … TABLE s of another dialect is one of `select * from s`."""
    source = tree.args.get("source")
    if isinstance(tree, exp.Insert) and isinstance(source, exp.Table) and tree.args.get("expression") is None:
        tree.set("expression", exp.select("*").from_(source.copy()))
        tree.set("source", None)


def partition_taken_out(tree: exp.Expr) -> exp.Expr | None:
    """The PARTITION of an INSERT OVERWRITE, taken out of it; None if there is none."""
    if not isinstance(tree, exp.Insert) or not tree.args.get("overwrite"):
        return None
    target = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    if isinstance(target, exp.Directory):
        raise SqlError(_DIRECTORY)
    partition: exp.Expr | None = target.args.get("partition") if isinstance(target, exp.Table) else None
    if partition is not None:
        target.set("partition", None)
    return partition


def _fixed(text: StatementText, start: int, stop: int) -> tuple[str, str]:
    """Column and value of one item of PARTITION, which stands behind one token and before another."""
    tokens = text.tokens
    if stop - start < 4 or tokens[start + 2].text not in ("=", "=="):
        shown = text.between(start, stop)
        raise SqlError(f"INSERT OVERWRITE with PARTITION ({shown}) cannot be run here: {_EACH}")
    return tokens[start + 1].text.lower(), text.between(start + 2, stop)


def _says(tokens: Sequence[Token], place: int, *words: str) -> bool:
    if place >= len(tokens) or tokens[place].token_type in (TokenType.STRING, TokenType.IDENTIFIER):
        return False
    return tokens[place].text.upper() in words


def _exchanged(text: str, token: Token, word: str) -> str:
    """The text with a shorter word in the place of one."""
    return text[: token.start] + word.lower().ljust(token.end + 1 - token.start) + text[token.end + 1 :]


def _blanked(text: str, start: int, stop: int) -> str:
    return text[:start] + "".join(c if c == "\n" else " " for c in text[start:stop]) + text[stop:]
