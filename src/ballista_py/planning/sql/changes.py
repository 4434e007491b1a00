"""SQL that changes something: one statement, parsed into what is to be done. Pure; a node carries it out.

A statement over one table whose conditions read that table alone is *local*: each owner can run its share by
itself. Everything else (MERGE, a source of rows besides the table, rows that move to other partitions) is *general*
and runs as a whole, over the table's rows and those of the tables that it reads.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeAlias

from attrs import frozen
from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from ballista_py.errors import SqlError
from ballista_py.planning.sql.query import Expr
from ballista_py.planning.sql.statement import (
    ENGINE_DIALECT,
    MAX_SQL_CHARS,
    _one_line,
    _positioned,
    engine_sql,
)


@frozen(kw_only=True)
class Insert:
    """Rows of `query` for `columns` (None: all, in order; with `by_name`: those that the query names).

    `constant` says that the query gives the same rows whenever it is run.
    """

    table: str
    columns: tuple[str, ...] | None
    query: str
    by_name: bool = False
    constant: bool = False


@frozen(kw_only=True)
class Local:
    """An UPDATE (with `assignments`) or DELETE whose expressions read the table alone, under `alias`."""

    table: str
    alias: str
    assignments: tuple[tuple[str, Expr], ...] | None
    where: Expr | None


@frozen(kw_only=True)
class General:
    """A statement to be run as a whole: `tree` changes `table` and reads the tables in `sources` besides.

    `reads_all` says that its subqueries read the changed table too.
    """

    table: str
    tree: Expr
    sources: tuple[str, ...]
    reads_all: bool = True


@frozen(kw_only=True)
class CreateTable:
    """A managed table; `columns` are (name, SQL type, nullable), or None to take them from `query`."""

    table: str
    columns: tuple[tuple[str, str, bool], ...] | None
    partition_by: tuple[str, ...]
    primary_key: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    query: str | None = None
    if_not_exists: bool = False
    file_format: str = "parquet"


@frozen(kw_only=True)
class DropTable:
    """The end of a table."""

    table: str
    if_exists: bool = False


@frozen(kw_only=True)
class Truncate:
    """The end of all rows of a table."""

    table: str


@frozen(kw_only=True)
class CopyFrom:
    """Rows of a file (`parquet` or `csv`) for all columns of the table."""

    table: str
    path: str
    format: str


Change: TypeAlias = Insert | Local | General | CreateTable | DropTable | Truncate | CopyFrom


_CHANGES = ("INSERT", "UPDATE", "DELETE", "MERGE", "CREATE", "DROP", "TRUNCATE", "COPY", "REPLACE", "WITH")
_IS_SELECT = re.compile(r"\s*select\b", re.IGNORECASE)  # in any dialect


def read_change(sql: str) -> Change | None:
    """What the statement (in the engine's dialect) changes; None for one that changes nothing.

    Raises `SqlError`, with `line` and `column` where they are known, for text that does not parse and for a change
    that no cluster can carry out.

    >>> read_change("delete from events where id = 3").table
    'events'
    >>> read_change("select 1") is None
    True
    """
    if len(sql) > MAX_SQL_CHARS:
        raise SqlError(f"the statement has {len(sql):,} characters, more than {MAX_SQL_CHARS:,}")
    engine = Dialect.get_or_raise(ENGINE_DIALECT)
    try:
        tokens = engine.tokenize(sql)
    except TokenError as error:
        raise SqlError(f"the statement does not parse: {_one_line(str(error))}") from None
    while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        tokens.pop()
    if not tokens or tokens[0].text.upper() not in _CHANGES:
        return None
    text = sql[: tokens[-1].end + 1]
    if any(token.token_type == TokenType.SEMICOLON for token in tokens):
        if tokens[0].text.upper() == "WITH":
            return None
        raise SqlError("the text holds more than one statement: send them one by one")
    text, keys = _without_keys(text, tokens)
    try:
        (tree,) = engine.parse(text)
    except ParseError as error:
        raise _positioned(error) from None
    except RecursionError:
        raise SqlError("the statement is nested too deeply") from None
    return _change_of(tree, keys)


def is_change(sql: str, dialect: str | None = None) -> bool:
    """Whether the statement is meant to change something, by its first words; also if it is wrong.

    >>> is_change("insert into t values"), is_change("with a as (select 1) select * from a")
    (True, False)
    """
    if _IS_SELECT.match(sql) is not None:
        return False
    try:
        tokens = Dialect.get_or_raise(dialect or ENGINE_DIALECT).tokenize(sql[:MAX_SQL_CHARS])
    except (TokenError, ValueError):
        return False
    word = tokens[0].text.upper() if tokens else ""
    if word != "WITH":
        return word in _CHANGES
    try:
        return read_change(engine_sql(sql, dialect)) is not None
    except SqlError:
        return False


def _change_of(tree: Expr | None, keys: tuple[str, ...]) -> Change | None:
    if isinstance(tree, exp.Query):
        return None
    if tree is not None and tree.args.get("returning") is not None:
        raise SqlError("RETURNING cannot be used here: a statement that changes rows gives their number")
    if isinstance(tree, exp.Insert):
        return _insert(tree)
    if isinstance(tree, exp.Update | exp.Delete | exp.Merge):
        return _update(tree)
    if isinstance(tree, exp.Create) and tree.args.get("kind") == "TABLE":
        return _create(tree, keys)
    if isinstance(tree, exp.Drop) and tree.args.get("kind") == "TABLE":
        return DropTable(
            table=_only_table(tree.args.get("tables") or [tree.this]), if_exists=bool(tree.args.get("exists"))
        )
    if isinstance(tree, exp.TruncateTable):
        return Truncate(table=_only_table(tree.expressions))
    if isinstance(tree, exp.Copy) and tree.args.get("kind"):
        return _copy(tree)
    word = tree.key.upper() if tree is not None else "this"
    raise SqlError(f"{word} of that form cannot be run here")


def _insert(tree: exp.Insert) -> Insert:
    if tree.args.get("alternative") or tree.args.get("conflict") is not None:
        raise SqlError("INSERT OR REPLACE and ON CONFLICT cannot be run here: use MERGE INTO")
    target = tree.this
    columns: tuple[str, ...] | None = None
    if isinstance(target, exp.Schema):
        columns = tuple(column.name for column in target.expressions)
        target = target.this
    query = tree.args.get("expression")
    if query is None:
        raise SqlError("INSERT needs VALUES or a query")
    if (with_ := tree.args.get("with_")) is not None:
        query.set("with_", with_)
    text = query.sql(ENGINE_DIALECT)
    return Insert(
        table=_name(target),
        columns=columns,
        query=f"select * from ({text}) as rows" if isinstance(query, exp.Values) else text,
        by_name=bool(tree.args.get("by_name")),
        constant=isinstance(query, exp.Values)
        and not any(True for _ in query.find_all(exp.Func, exp.Column, exp.Query)),
    )


def _update(tree: Expr) -> Local | General:
    target = tree.this
    table = _name(target)
    alias = (target.alias or table).lower()
    reads = sorted(
        {node.name.lower() for node in tree.find_all(exp.Table) if node is not target} - _common_names(tree)
    )
    if (
        isinstance(tree, exp.Merge)
        or reads
        or tree.args.get("using")
        or tree.args.get("from_")
        or tree.args.get("with_")
    ):
        return General(table=table, tree=tree, sources=tuple(n for n in reads if n != table), reads_all=True)
    where = tree.args.get("where")
    if tree.find(exp.Query) is not None:
        return General(table=table, tree=tree, sources=(), reads_all=True)
    if isinstance(tree, exp.Delete):
        return Local(table=table, alias=alias, assignments=None, where=where.this if where else None)
    assignments = []
    for item in tree.expressions:
        if not isinstance(item, exp.EQ) or not isinstance(item.this, exp.Column):
            raise SqlError("UPDATE sets one column at a time: column = value")
        assignments.append((item.this.name, item.expression))
    return Local(table=table, alias=alias, assignments=tuple(assignments), where=where.this if where else None)


def _create(tree: exp.Create, keys: tuple[str, ...]) -> CreateTable:
    target, definitions = tree.this, None
    if isinstance(target, exp.Schema):
        target, definitions = target.this, target.expressions
    if tree.args.get("replace"):
        raise SqlError("CREATE OR REPLACE cannot be run here: DROP the table first")
    query = tree.args.get("expression")
    columns: list[tuple[str, str, bool]] = []
    primary: list[str] = []
    checks: list[str] = []
    for item in definitions or ():
        if isinstance(item, exp.ColumnDef):
            columns.append(_column(item, primary, checks))
        elif isinstance(item, exp.PrimaryKey):
            primary.extend(part.name for part in item.expressions)
        elif isinstance(item, exp.CheckColumnConstraint):
            checks.append(item.this.sql(ENGINE_DIALECT))
        else:
            raise SqlError(f"'{item.sql(ENGINE_DIALECT)}' cannot be declared here")
    return CreateTable(
        table=_name(target),
        columns=tuple((n, kind, nullable and n not in primary) for n, kind, nullable in columns)
        if columns
        else None,
        partition_by=keys,
        primary_key=tuple(primary),
        checks=tuple(checks),
        query=query.sql(ENGINE_DIALECT) if query is not None else None,
        if_not_exists=bool(tree.args.get("exists")),
        file_format=_file_format(tree),
    )


def _file_format(tree: exp.Create) -> str:
    """That of `WITH (file_format = 'vortex')`."""
    found = "parquet"
    properties = tree.args.get("properties")
    for item in properties.expressions if properties is not None else ():
        name = item.name if isinstance(item, exp.Property) else item.key
        value = item.args.get("value")
        if name.lower() != "file_format" or not isinstance(value, exp.Expr):
            raise SqlError(
                f"a table has no option '{name.lower()}' here: WITH (file_format = 'parquet' or 'vortex')"
            )
        found = value.name.lower()
    return found


def _column(item: exp.ColumnDef, primary: list[str], checks: list[str]) -> tuple[str, str, bool]:
    nullable = True
    for constraint in item.args.get("constraints") or ():
        kind = constraint.args.get("kind")
        if isinstance(kind, exp.NotNullColumnConstraint):
            nullable = bool(kind.args.get("allow_null"))
        elif isinstance(kind, exp.PrimaryKeyColumnConstraint):
            primary.append(item.name)
        elif isinstance(kind, exp.CheckColumnConstraint):
            checks.append(kind.this.sql(ENGINE_DIALECT))
        else:
            raise SqlError(f"'{constraint.sql(ENGINE_DIALECT)}' of column '{item.name}' cannot be declared here")
    if item.args.get("kind") is None:
        raise SqlError(f"column '{item.name}' has no type")
    return item.name, item.args["kind"].sql(ENGINE_DIALECT), nullable


def _copy(tree: exp.Copy) -> CopyFrom:
    files = [str(item.this) for item in tree.args.get("files") or () if isinstance(item, exp.Literal)]
    if len(files) != 1:
        raise SqlError("COPY reads one file, named by a text")
    kind = files[0].rpartition(".")[2].lower()
    for param in tree.args.get("params") or ():
        if param.name.lower() != "format" or param.args.get("expression") is None:
            raise SqlError(f"COPY does not know the option {param.name}")
        kind = param.args["expression"].name.lower()
    if kind not in ("parquet", "csv"):
        raise SqlError("COPY reads Parquet and CSV: name the format, as in (FORMAT csv)")
    if isinstance(tree.this, exp.Schema):
        raise SqlError("COPY fills all columns of a table: name none")
    return CopyFrom(table=_name(tree.this), path=files[0], format=kind)


def _without_keys(text: str, tokens: Sequence[Token]) -> tuple[str, tuple[str, ...]]:
    """The text without its PARTITIONED BY clause, and the expressions of that clause."""
    # The two words are one token to the parser.
    for place, token in enumerate(tokens):
        if (
            token.text.upper().split() in (["PARTITIONED", "BY"], ["PARTITION", "BY"])
            and tokens[0].text.upper() == "CREATE"
        ):
            return _clause(text, tokens, place)
    return text, ()


def _clause(text: str, tokens: Sequence[Token], place: int) -> tuple[str, tuple[str, ...]]:
    depth, start, keys = 0, tokens[place + 1].end + 1, []
    for token in tokens[place + 1 :]:
        depth += (token.text == "(") - (token.text == ")")
        if depth == 0 or (depth == 1 and token.text == ","):
            keys.append(text[start : token.start].strip())
            start = token.end + 1
        if depth == 0:
            return text[: tokens[place].start] + text[token.end + 1 :], tuple(keys)
    raise SqlError("PARTITIONED BY needs a list of expressions in brackets")


def _common_names(tree: Expr) -> set[str]:
    return {table.alias.lower() for table in tree.find_all(exp.CTE)}


def _only_table(nodes: Sequence[Expr]) -> str:
    if len(nodes) != 1:
        raise SqlError("one table at a time")
    return _name(nodes[0])


def _name(node: Expr) -> str:
    if not isinstance(node, exp.Table) or node.args.get("db") is not None or not node.name:
        raise SqlError(f"'{node.sql(ENGINE_DIALECT)}' is no table: tables have plain names here")
    return node.name.lower()
