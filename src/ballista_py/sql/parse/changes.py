"""SQL that changes something: one statement, parsed into what is to be done. Pure; a node carries it out.

A statement over one table whose conditions read that table alone is *local*: each owner can run its share by
itself. Everything else (MERGE, a source of rows besides the table, rows that move to other partitions) is *general*
and runs as a whole, over the table's rows and those of the tables that it reads.

What the engine is to run is the user's own text wherever that is possible, at its own place in it, with blanks before
it, so that positions in errors are those of the user. A clause that is not used is refused (`used_clauses`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TypeAlias

from attrs import evolve, frozen
from sqlglot import exp
from sqlglot.errors import ParseError
from sqlglot.tokenizer_core import Token, TokenType

from ballista_py.errors import SqlError
from ballista_py.sql.parse.alterations import AlterTable, read_alteration
from ballista_py.sql.parse.copies import CopyFrom, read_copy
from ballista_py.sql.parse.creates import CreateLike, CreateTable, read_create, read_like
from ballista_py.sql.parse.engine_words import for_parser
from ballista_py.sql.parse.external_tables import CreateScanned, is_external, read_external
from ballista_py.sql.parse.inserts import Insert, overwriting, read_insert, read_overwrite, table_name
from ballista_py.sql.parse.kind import (
    is_of_view,
    misread,
    positioned,
    refusal,
    statement_kind,
    tokens_of,
    verb_place,
)
from ballista_py.sql.parse.materialized_views import RefreshView, as_of_table, read_refresh
from ballista_py.sql.parse.parsing import ENGINE_DIALECT, parsed
from ballista_py.sql.parse.statement_text import StatementText
from ballista_py.sql.parse.travels import travels
from ballista_py.sql.parse.used_clauses import COMPUTED, is_given, require_used
from ballista_py.sql.parse.view_statements import CommentView, CreateView, DropViews, read_view_statement


@frozen(kw_only=True)
class Local:
    """An UPDATE (with `assignments`) or DELETE whose expressions read the table alone, under `alias`.

    Expressions are pieces of `text`, the whole statement as it came; `put_together` is the statement made of them: if
    the engine plans both alike, no piece was cut wrongly. `tree` is the predicate for those who prune by it; None if
    there is none, or if the parser here may read it otherwise than the engine. `returning` is what it gives, if rows
    are asked for.
    """

    table: str
    alias: str
    assignments: tuple[tuple[str, str], ...] | None
    where: str | None
    tree: exp.Expr | None
    text: str
    returning: str | None = None

    @property
    def put_together(self) -> str:
        """The statement made of its pieces."""
        target = f'"{self.table}" as {quoted(self.alias)}'
        where = "" if self.where is None else f" where ({self.where}\n)"
        where += "" if self.returning is None else f" returning {self.returning}"
        if self.assignments is None:
            return f"delete from {target}{where}"
        sets = (
            f"{quoted(name)} = " + (value if is_default(value) else f"({value}\n)")
            for name, value in self.assignments
        )
        return f"update {target} set {', '.join(sets)}{where}"


@frozen(kw_only=True)
class General:
    """A statement to be run as a whole: `text` changes `table` and reads the tables in `sources` besides.

    One that is `returning` gives rows.
    """

    table: str
    text: str
    sources: tuple[str, ...]
    returning: bool = False


@frozen(kw_only=True)
class DropTable:
    """The end of one or several tables; if they are `kept_up`, of materialized views."""

    tables: tuple[str, ...]
    if_exists: bool = False
    kept_up: bool = False


@frozen(kw_only=True)
class TruncateTable:
    """The end of all rows of a table."""

    table: str


Change: TypeAlias = (
    Insert
    | Local
    | General
    | CreateTable
    | CreateLike
    | DropTable
    | TruncateTable
    | CopyFrom
    | AlterTable
    | CreateView
    | DropViews
    | CommentView
    | RefreshView
    | CreateScanned
)


def read_change(sql: str) -> Change | None:
    """What the statement (in the engine's dialect) changes; None for one that changes nothing.

    Raises `SqlError`, with `line` and `column` where they are known, for text that does not parse and for a change
    that no cluster can carry out, in whole or in a clause of it.

    >>> read_change("delete from events where id = 3").table
    'events'
    >>> read_change("select 1") is None
    True
    """
    kind = statement_kind(sql)
    if kind == "refused":
        raise refusal(sql)
    if kind != "change":
        return None
    text, tokens = tokens_of(sql)
    if any(token.token_type == TokenType.SEMICOLON for token in tokens):
        raise SqlError("the text holds more than one statement: send them one by one")
    if tokens[0].text.upper() == "COPY":
        return _copied(text)
    if _may_be_kept_up(tokens) and (kept_up := as_of_table(text, tokens)) is not None:
        return _kept_up(kept_up)
    if is_of_view(text):
        found = StatementText(text, tokens)
        return read_refresh(found) or read_view_statement(found)
    if tokens[0].text.upper() in _ALTERATIONS:
        return read_alteration(StatementText(text, tokens))
    if _may_be_scanned(tokens) and is_external(tokens):
        return read_external(StatementText(text, tokens))
    like = read_like(text)
    if like is not None:
        return like
    overwrite = read_overwrite(text)
    if overwrite is not None:
        text, tokens = tokens_of(overwrite.plain)
    plain, keys = _without_keys(text, tokens)
    try:
        (tree,) = parsed(for_parser(plain))
    except ParseError as error:
        raise _of_joined_sources(tokens) or _of_computed_columns(tokens) or positioned(error) from None
    change = _change_of(tree, StatementText(plain, tokens, keys))
    return overwriting(change, overwrite) if overwrite is not None and isinstance(change, Insert) else change


def _may_be_kept_up(tokens: Sequence[Token]) -> bool:
    return any(token.text.upper() == "MATERIALIZED" for token in tokens[:4])


def _may_be_scanned(tokens: Sequence[Token]) -> bool:
    return any(token.text.upper() in ("EXTERNAL", "USING") for token in tokens[1:12])


def _kept_up(sql: str) -> CreateTable | DropTable:
    """The statement of a materialized view, written as one of a table."""
    change = read_change(sql)
    if isinstance(change, CreateTable | DropTable):
        return evolve(change, kept_up=True)
    raise SqlError("CREATE MATERIALIZED VIEW of that form cannot be run here: say its query behind AS")


_JOINS = frozenset(
    ["JOIN", "NATURAL", "CROSS", "INNER", "LEFT", "RIGHT", "FULL", "POSITIONAL", "ASOF", "SEMI", "ANTI", ","]
)


def _of_joined_sources(tokens: Sequence[Token]) -> SqlError | None:
    """What is to be done about a MERGE whose source is a join, which the parser here does not read; None for others."""
    words, depth = [token.text.upper() for token in tokens], 0
    if words[verb_place(tokens)] != "MERGE" or "USING" not in words:
        return None
    for word in words[words.index("USING") + 1 :]:
        depth += (word == "(") - (word == ")")
        if depth == 0 and word in ("ON", "WHEN"):
            return None
        if depth == 0 and word in _JOINS:
            return SqlError(
                "MERGE takes one source: put the join into a query, USING (SELECT … FROM a JOIN b …) AS s"
            )
    return None


def _of_computed_columns(tokens: Sequence[Token]) -> SqlError | None:
    """What is to be done about a column that is said to be VIRTUAL or STORED, which the parser here does not read."""
    if tokens[0].text.upper() != "CREATE":
        return None
    kinds = (
        token.text
        for before, token in pairwise(tokens)
        if before.token_type == TokenType.R_PAREN and token.text.upper() in ("VIRTUAL", "STORED")
    )
    kind = next(kinds, None)
    return None if kind is None else SqlError(f"a column cannot be {kind.upper()} here: {COMPUTED}")


def _copied(text: str) -> CopyFrom:
    copy = read_copy(text)
    if not isinstance(copy, CopyFrom):
        raise refusal(text)
    return copy


def is_alteration(sql: str) -> bool:
    """Whether the text begins as ALTER or COMMENT does, which are read word by word here and have no parameters.

    >>> is_alteration("/* a */ alter table t add c int"), is_alteration("update t set a = 1")
    (True, False)
    """
    return tokens_of(sql)[1][0].text.upper() in _ALTERATIONS


_ALTERATIONS = ("ALTER", "COMMENT")
_OURS = ("COPY", "REFRESH")  # of which the engine reads nothing


def text_for_engine(sql: str) -> str | None:
    """What the parser of the engine is to accept of a change before anybody else reads it; None for other statements.

    That is all but PARTITIONED BY, whose keys are ours, what makes an INSERT one that overwrites, and all names of a
    DROP but the first: the engine takes one.
    COPY reads a file of the client and does not reach an engine, CREATE TABLE … LIKE not before its columns are known,
    and a table that is scanned where it lies has none that the engine could be told.
    A materialized view is a table to the engine.

    >>> text_for_engine("create table t (a int) partitioned by (a);")
    'create table t (a int)                   '
    """
    text, tokens = tokens_of(sql)
    if _may_be_kept_up(tokens) and (kept_up := as_of_table(text, tokens)) is not None:
        return text_for_engine(kept_up)
    if statement_kind(text) != "change" or tokens[0].text.upper() in _OURS or read_like(text) is not None:
        return None
    if _may_be_scanned(tokens) and is_external(tokens):
        return None
    if tokens[0].text.upper() == "DROP":
        comma = next((token.start for token in tokens if token.token_type == TokenType.COMMA), len(text))
        return text[:comma]
    if is_of_view(text):  # whose query may say of which snapshot it reads a table
        return travels(text)[0]
    overwrite = read_overwrite(text)
    return _without_keys(text, tokens)[0] if overwrite is None else overwrite.plain


def _change_of(tree: exp.Expr | None, text: StatementText) -> Change | None:
    if isinstance(tree, exp.Query):
        return None
    if tree is not None:
        require_used(tree)
    if isinstance(tree, exp.Insert):
        return read_insert(tree, text)
    if isinstance(tree, exp.Update | exp.Delete | exp.Merge):
        return _update(tree, text)
    if isinstance(tree, exp.Create) and tree.args.get("kind") == "TABLE":
        return read_create(tree, text)
    if isinstance(tree, exp.Drop) and tree.args.get("kind") == "TABLE":
        names = tuple(dict.fromkeys(table_name(node) for node in tree.args.get("tables") or []))
        if not names:
            raise SqlError("DROP TABLE needs the name of a table")
        return DropTable(tables=names, if_exists=bool(tree.args.get("exists")))
    if isinstance(tree, exp.TruncateTable):
        return TruncateTable(table=_only_table(tree.expressions))
    word = text.tokens[verb_place(text.tokens)].text.upper()
    if any(part.split()[0] == "SORTED" for _, part in text.top_level(0)):
        raise SqlError(f"{word} TABLE with SORTED BY cannot be run here: rows have no order, say it with ORDER BY")
    raise SqlError(f"{word} of that form cannot be run here")


def _update(tree: exp.Expr, text: StatementText) -> Local | General:
    target = tree.this
    table = table_name(target)
    if isinstance(tree, exp.Update) and not tree.expressions:
        raise SqlError("UPDATE without SET cannot be run here: say with SET which columns of which table change")
    alias = (target.alias or table).lower()
    _require_plain_columns(tree, {table, alias})
    reads = sorted(
        {
            node.name.lower()
            for node in tree.find_all(exp.Table)
            if node is not target and isinstance(node.this, exp.Identifier)  # else it is a table function
        }
        - _common_names(tree)
    )
    returning = tree.args.get("returning") is not None
    sources = tuple(n for n in reads if n != table)
    general = General(table=table, text=text.plain, sources=sources, returning=returning)
    is_one = not any(is_given(tree.args.get(key)) for key in ("using", "from_", "with_"))
    if isinstance(tree, exp.Merge) or reads or not is_one or tree.find(exp.Query) is not None:
        return general
    where = tree.args.get("where")
    told = ("SET", "WHERE", "RETURNING")
    places = {word: place for place, word in reversed([*text.top_level(0)]) if word in told}
    end = places.get("RETURNING", len(text.tokens)) if returning else len(text.tokens)
    stop = places.get("WHERE", end)
    if (where is not None and stop == end) or (returning and end == len(text.tokens)):
        return general
    assignments = None
    if isinstance(tree, exp.Update):
        names = [name for item in tree.expressions for name in _assigned(item)]
        values = list(_values(text, places["SET"], stop)) if "SET" in places else []
        if None in names or len(values) != len(names):
            return general
        assignments = tuple(zip((name for name in names if name is not None), values, strict=True))
    return Local(
        table=table,
        alias=alias,
        assignments=assignments,
        where=None if where is None else text.between(stop, end),
        tree=None if where is None or misread(text.tokens) is not None else where.this,
        text=text.plain,
        returning=text.between(end, len(text.tokens)) if returning else None,
    )


def _require_plain_columns(tree: exp.Expr, names: set[str]) -> None:
    """Refuse columns that are named with catalog and schema of their table: here a table has neither."""
    for column in tree.find_all(exp.Column):
        schema, catalog = column.text("db").lower(), column.text("catalog").lower()
        if schema == "main" and catalog and catalog not in names and column.table.lower() in names:
            text = column.sql(ENGINE_DIALECT)
            raise SqlError(
                f"'{text}' is no column: name columns by their table alone, as {column.table}.{column.name}"
            )


def _assigned(item: exp.Expr) -> list[str | None]:
    """The columns that an assignment sets; None for one that cannot be told."""
    target = item.this if isinstance(item, exp.EQ) else None
    columns = target.expressions if isinstance(target, exp.Tuple) else [target]
    return [c.name if isinstance(c, exp.Column) and not c.table else None for c in columns]


def _values(text: StatementText, first: int, last: int) -> Iterator[str]:
    """The text of each value behind SET; those of `(a, b) = (1, 2)` one by one."""
    for start, stop in text.pieces(first, last):
        if stop - start > 3 and text.tokens[start + 2].token_type == TokenType.EQ:
            yield text.between(start + 2, stop)
        elif stop - start > 6 and text.opens(start + 1):
            equals = text.group_end(start + 1) + 1
            if equals + 1 < stop and text.opens(equals + 1) and text.group_end(equals + 1) == stop - 1:
                for begin, end in text.pieces(equals + 1, stop - 1):
                    yield text.between(begin, end)


def is_default(value: str) -> bool:
    """Whether a value is DEFAULT, which is no expression."""
    return value.lower() == "default"


def quoted(name: str) -> str:
    """The name as an identifier."""
    return '"' + name.replace('"', '""') + '"'


def _without_keys(text: str, tokens: Sequence[Token]) -> tuple[str, tuple[str, ...]]:
    """The text without its PARTITIONED BY clause, and the expressions of that clause."""
    if tokens[0].text.upper() != "CREATE":
        return text, ()
    whole = StatementText(text, tokens)
    for place, word in whole.top_level(0):
        if word == "AS":
            break
        # The two words are one token to the parser.
        if word.split() in (["PARTITIONED", "BY"], ["PARTITION", "BY"]):
            if not whole.opens(place + 1):
                raise SqlError("PARTITIONED BY needs a list of expressions in brackets")
            end = whole.group_end(place + 1)
            return whole.without(place, end + 1), tuple(
                whole.between(*piece) for piece in whole.pieces(place + 1, end)
            )
    return text, ()


def _common_names(tree: exp.Expr) -> set[str]:
    return {table.alias.lower() for table in tree.find_all(exp.CTE)}


def _only_table(nodes: Sequence[exp.Expr]) -> str:
    if len(nodes) != 1:
        raise SqlError("one table at a time")
    return table_name(nodes[0])
