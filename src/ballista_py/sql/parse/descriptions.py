"""Statements about statements and tables: EXPLAIN, DESCRIBE, SHOW; read, not answered. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeAlias

from attrs import frozen
from sqlglot.tokenizer_core import Token, TokenType

from ballista_py.errors import SqlError
from ballista_py.sql.parse.kind import blank, refusal, statement_kind, tokens_of
from ballista_py.sql.parse.table_names import CATALOG, SCHEMA, catalog_query, told_tables

_HAS_OPTIONS = re.compile(r"\s*\(\s*(?!\(|(?:select|with|from|values|table|pivot|unpivot)\b)", re.IGNORECASE)
# SHOW of these is about something else than a table of that name.
_NO_TABLES = frozenset(("ALL", "FUNCTIONS", "SETTINGS", "VARIABLES", "VIEWS", "INDEXES", "COLUMNS", "SCHEMA"))
# What a query begins with, behind SHOW as behind DESCRIBE.
_QUERIES = frozenset(("SELECT", "WITH", "FROM", "("))
_MAX_SHOWN = 100
_QUOTED = (TokenType.IDENTIFIER, TokenType.STRING)


@frozen
class Explain:
    """How the query would run; with `analyze` it is run. `query` stands where it stands in the user's text."""

    query: str
    analyze: bool


@frozen
class DescribeTable:
    """The columns of a table."""

    table: str


@frozen
class DescribeQuery:
    """The columns of the answer of `query`, which stands where it stands in the user's text."""

    query: str


@frozen
class ShowTables:
    """The names of the tables."""


@frozen
class ShowAllTables:
    """The tables with their columns and types."""


@frozen
class ShowCreate:
    """The statement that would make the table."""

    table: str


@frozen
class ShowNames:
    """The one thing of a kind: the columns of the answer, and what is in them."""

    values: tuple[tuple[str, str | bool], ...]


@frozen
class CatalogQuery:
    """A query over `tables` of `information_schema` and `runtime`, which it names without their schema."""

    query: str
    tables: tuple[str, ...] = ()


Asked: TypeAlias = (
    Explain | DescribeTable | DescribeQuery | ShowTables | ShowAllTables | ShowNames | ShowCreate | CatalogQuery
)


def read_description(sql: str) -> Asked:
    """What a text of the kind `explain` or `describe` asks for. Raises `SqlError` for a form that is not known.

    >>> read_description("explain analyze select 1")
    Explain(query='                select 1', analyze=True)
    >>> read_description('show columns from "T"')
    DescribeTable(table='t')
    """
    text, tokens = tokens_of(sql)
    if any(token.token_type == TokenType.SEMICOLON for token in tokens):
        raise SqlError("the text holds more than one statement: send them one by one")
    catalog = (
        catalog_query(text) if tokens[0].text.upper() not in ("EXPLAIN", "DESCRIBE", "DESC", "SHOW") else None
    )
    if catalog is not None:
        return CatalogQuery(catalog, told_tables(text))
    word = tokens[0].text.upper()
    # The tokenizer takes what follows some of these words for one string.
    rest_at = _after_word(text, tokens[0].start)
    if word == "EXPLAIN":
        return _explain(text, rest_at)
    if not text[rest_at:].strip():
        if word == "SHOW":
            raise SqlError("SHOW needs TABLES, COLUMNS FROM a table, CREATE TABLE, or the name of a table")
        return ShowAllTables()
    _, after = tokens_of(text[rest_at:])
    words = [token.text.upper() for token in after]
    if word == "SHOW" and (words[0] not in _QUERIES or after[0].token_type in _QUOTED):
        return _show(words, after, text[rest_at:].strip())
    if words[0] == "TABLE" and len(after) > 1 and _is_name(after[1:]):
        return DescribeTable(_name(after[1:]))
    if _is_name(after) and after[0].text.upper() not in ("TABLE", "VALUES", "FROM"):
        return DescribeTable(_name(after))
    query = " " * rest_at + text[rest_at:]
    return DescribeQuery(_query(query, word))


def _explain(text: str, rest_at: int) -> Explain:
    words = text[rest_at:].split(maxsplit=1)
    analyze = bool(words) and words[0].upper() == "ANALYZE"
    if analyze:
        rest_at = text.index(words[0], rest_at) + len(words[0])
    if _HAS_OPTIONS.match(text, rest_at):
        raise SqlError("EXPLAIN takes no options here but ANALYZE")
    return Explain(_query(blank(text[:rest_at]) + text[rest_at:], "EXPLAIN"), analyze)


def _query(text: str, word: str) -> str:
    if not text.strip():
        raise SqlError(f"{word} needs a query")
    kind = statement_kind(text)
    if kind == "change":
        name = text.split(maxsplit=1)[0].upper()
        raise SqlError(f"{word} is about queries, {name} is none: ask for the query that it contains")
    if kind != "query":
        raise refusal(text)
    return text


def _show(words: Sequence[str], tokens: Sequence[Token], said: str) -> Asked:
    if words == ["ALL", "TABLES"]:
        return ShowAllTables()
    if words in (["TABLES"], ["TABLES", "FROM", SCHEMA.upper()]):
        return ShowTables()
    if words == ["DATABASES"]:
        return ShowNames((("database_name", CATALOG),))
    if words == ["SCHEMAS"]:
        return ShowNames((("database_name", CATALOG), ("schema_name", SCHEMA), ("current", True)))
    if words[0] == "COLUMNS" and len(words) > 1 and words[1] in ("FROM", "IN"):
        return DescribeTable(_name(tokens[2:]))
    if words[:2] == ["CREATE", "TABLE"] and len(words) > 2:
        return ShowCreate(_name(tokens[2:]))
    if _is_name(tokens) and not (words[0] in _NO_TABLES and tokens[0].token_type not in _QUOTED):
        return DescribeTable(_name(tokens))
    instead = "ask for TABLES, ALL TABLES, COLUMNS FROM a table, CREATE TABLE, or a table"
    if words[0] == "TABLES":
        instead = "some of the tables are told by a query of information_schema.tables with WHERE table_name …"
    shown = said if len(said) <= _MAX_SHOWN else f"{said[:_MAX_SHOWN]}…"
    raise SqlError(f"SHOW {' '.join(shown.split())} cannot be run here: {instead}")


def _is_name(tokens: Sequence[Token]) -> bool:
    return len(tokens) == 1 and (tokens[0].token_type in _QUOTED or tokens[0].text.isidentifier())


def _name(tokens: Sequence[Token]) -> str:
    if not _is_name(tokens):
        shown = " ".join(token.text for token in tokens)
        raise SqlError(f"'{shown}' is no table: tables have plain names here")
    return tokens[0].text.lower()


def _after_word(text: str, start: int) -> int:
    end = start
    while end < len(text) and (text[end].isalnum() or text[end] == "_"):
        end += 1
    return end
