"""INSERT: whose rows go into which columns, what happens to those that are there already, what comes back; pure.

A plain INSERT gives rows of its query to owners. One with ON CONFLICT, OR REPLACE, OR IGNORE or RETURNING is run by the
engine, over the rows that its query gave: then it is the user's own text, with the query exchanged for those rows.

INSERT OVERWRITE: rows in the place of all, or of those of some partitions; with the meaning that it has in Spark.

The engine has no such statement. So its words are told before the engine reads the text, and blanks take their place.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from attrs import evolve, frozen
from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from ballista_py.errors import ConfigError, SqlError
from ballista_py.partitions.table import folded
from ballista_py.sql.parse.constants import require_partition_value
from ballista_py.sql.parse.edits import Edit, edited
from ballista_py.sql.parse.kind import blank, tokens_of, verb_place
from ballista_py.sql.parse.parsing import ENGINE_DIALECT
from ballista_py.sql.parse.statement_text import StatementText
from ballista_py.sql.parse.table_names import named_tables

GIVEN_ROWS = "r "  # a name that no table can have
_FROM_GIVEN = f'from "{GIVEN_ROWS}"'


@frozen(kw_only=True)
class Insert:
    """Rows of `query` for `columns` (None: all, in order; with `by_name`: those that the query names).

    `constant` says that the query gives the same rows whenever it is run. With `defaults` its one row is without a
    value for any column. `whole` is the statement over the rows `GIVEN_ROWS`, if it is to be run by the engine;
    `on_key` says that it asks for the primary key, `sets` which columns it changes in rows that are there. One that
    `overwrites` replaces the rows with the values of the `fixed` columns, which its query does not give; or all.
    `edits` make values those of their columns.
    """

    table: str
    columns: tuple[str, ...] | None
    query: str
    by_name: bool = False
    constant: bool = False
    defaults: bool = False
    whole: str | None = None
    on_key: bool = False
    sets: tuple[str, ...] = ()
    returning: bool = False
    text_length: int = 0
    overwrites: bool = False
    fixed: tuple[tuple[str, str], ...] = ()
    edits: tuple[Edit, ...] = ()

    @property
    def run(self) -> str:
        """The query as it is run, with its `edits`."""
        return edited(self.query, self.edits)


def read_insert(tree: exp.Insert, text: StatementText) -> Insert:
    """What an INSERT says. Raises `SqlError` for a form of it that cannot be run."""
    target = tree.this
    columns: tuple[str, ...] | None = None
    if isinstance(target, exp.Schema):
        columns = tuple(column.name for column in target.expressions)
        target = target.this
    query, defaults = tree.args.get("expression"), bool(tree.args.get("default"))
    if query is None and not defaults:
        raise SqlError("INSERT needs VALUES or a query")
    table = table_name(target)
    on_key = _asks_for_key(tree)
    returning = tree.args.get("returning") is not None
    if target.args.get("alias") is not None and not (on_key or returning):
        raise SqlError("INSERT with an alias of the table cannot be run here: leave it out")
    if query is not None and tree.args.get("with_") is not None and query.args.get("with_") is not None:
        raise SqlError("INSERT with two WITH clauses cannot be run here: put all into the one before its query")
    by_name = bool(tree.args.get("by_name"))
    if by_name and query is not None and isinstance(query.unnest(), exp.Values):
        raise SqlError(
            "INSERT BY NAME needs a query that names its columns, VALUES has no names: leave BY NAME out"
        )
    verb = verb_place(text.tokens)
    start = _query_place(text, verb, columns is not None)
    end = _end_of_query(text, start, on_conflict=tree.args.get("conflict") is not None, returning=returning)
    found = text.plain if end >= len(text.tokens) else text.plain[: text.tokens[end].start].rstrip()
    return Insert(
        table=table,
        columns=columns,
        query="select null" if defaults else text.without(verb, start)[: len(found)],
        by_name=by_name,
        constant=defaults
        or (
            isinstance(query, exp.Values)
            and not any(True for _ in query.find_all(exp.Func, exp.Column, exp.Query))
        ),
        defaults=defaults,
        whole=_whole(text, verb, start, end) if on_key or returning else None,
        on_key=on_key,
        sets=_assigned(tree),
        returning=returning,
        text_length=len(text.plain),
    )


def overwriting(insert: Insert, overwrite: Overwrite) -> Insert:
    """The INSERT as one that replaces. Raises `SqlError` where nobody has said what that means."""
    if insert.whole is not None:
        raise SqlError(
            "INSERT OVERWRITE with ON CONFLICT, OR REPLACE, OR IGNORE or RETURNING cannot be run here: leave it out"
        )
    for column, constant in overwrite.fixed:
        require_partition_value(column, constant)
    names = [name for name, _ in overwrite.fixed]
    named = {name.lower() for name in insert.columns or ()}
    twice = next((name for name in names if names.count(name) > 1 or name in named), None)
    if twice is not None:
        raise SqlError(f"column '{twice}' is named twice: PARTITION gives its value")
    return evolve(insert, overwrites=True, fixed=overwrite.fixed)


def upsert_of(table: str) -> Insert:
    """Rows of all columns in the place of those with their keys."""
    name = '"' + table.replace('"', '""') + '"'
    return Insert(
        table=table, columns=None, query="", whole=f"insert or replace into {name} {_FROM_GIVEN}", on_key=True
    )


def _asks_for_key(tree: exp.Insert) -> bool:
    """Whether rows whose key is there are treated otherwise. Raises `SqlError` for what cannot be told of them."""
    alternative = str(tree.args.get("alternative") or "").lower()
    if alternative not in ("", "replace", "ignore"):
        raise SqlError(f"INSERT OR {alternative.upper()} cannot be run here: use OR REPLACE or OR IGNORE")
    conflict = tree.args.get("conflict")
    if conflict is not None and next(conflict.find_all(exp.Query), None) is not None:
        raise SqlError("ON CONFLICT with a query in it cannot be run here: use MERGE INTO")
    return conflict is not None or bool(alternative)


def _assigned(tree: exp.Insert) -> tuple[str, ...]:
    """The columns that DO UPDATE sets to something else than the row that comes has in that very column.

    A key that is set so stays as it is, because the rows meet by it: programs that write upserts set all columns.
    """
    conflict = tree.args.get("conflict")
    items = conflict.expressions if conflict is not None else ()
    found = (item for item in items if isinstance(item, exp.EQ))
    return tuple(column.name for item in found if not _is_own(item) for column in item.this.find_all(exp.Column))


def _is_own(item: exp.EQ) -> bool:
    """Whether it is `c = excluded.c`."""
    target, value = item.this, item.expression
    if not isinstance(target, exp.Column) or not isinstance(value, exp.Column):
        return False
    return value.table.lower() == "excluded" and value.name.lower() == target.name.lower()


def _query_place(text: StatementText, verb: int, has_columns: bool) -> int:
    """Where the query begins: behind INTO, the table and its alias, the list of columns and BY NAME."""
    tokens = text.tokens
    place = verb + 1
    place += 2 if place < len(tokens) and tokens[place].text.upper() == "OR" else 0
    place += place < len(tokens) and tokens[place].text.upper() == "INTO"
    place += 1
    if place + 1 < len(tokens) and text.says(place, "AS"):
        place += 2
    if has_columns:
        place = text.group_end(place) + 1
    while place < len(tokens) and tokens[place].text.upper() in (
        "BY",
        "NAME",
        "POSITION",
        "BY NAME",
        "BY POSITION",
    ):
        place += 1
    if place >= len(tokens):
        raise SqlError("INSERT needs VALUES or a query")
    return place


def _end_of_query(text: StatementText, start: int, *, on_conflict: bool, returning: bool) -> int:
    """Which token the clauses behind the query begin with."""
    ends = []
    for place, word in text.top_level(start):
        if returning and word == "RETURNING":
            ends.append(place)
            break
        follows = " ".join(token.text.upper() for token in text.tokens[place : place + 3])
        if on_conflict and follows in ("ON CONFLICT DO", "ON CONFLICT ("):
            ends = [place]
    if (on_conflict or returning) and not ends:
        raise SqlError("the clauses behind the query of the INSERT cannot be told apart")
    return ends[0] if ends else len(text.tokens)


def _whole(text: StatementText, verb: int, start: int, end: int) -> str:
    """The statement with `GIVEN_ROWS` in place of its query, and blanks for what stands before it.

    What follows has the place that it has in the user's text, unless the query is shorter than these words.
    """
    plain, tokens = text.plain, text.tokens
    first, stop = tokens[start].start, tokens[end].start if end < len(tokens) else len(plain)
    room = blank(plain[first:stop])
    if "\n" not in room[: len(_FROM_GIVEN)]:
        room = room[len(_FROM_GIVEN) :]
    before = blank(plain[: tokens[verb].start]) + plain[tokens[verb].start : first]
    return f"{before}{_FROM_GIVEN}{room or ' '}{plain[stop:]}"


def table_name(node: exp.Expr) -> str:
    """The name of a table. Raises `SqlError` for what is none."""
    if not isinstance(node, exp.Table) or node.args.get("db") is not None or not node.name:
        raise SqlError(f"'{node.sql(ENGINE_DIALECT)}' is no table: tables have plain names here")
    try:
        return folded(node.name)
    except ConfigError as error:
        raise SqlError(error.message) from None


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
