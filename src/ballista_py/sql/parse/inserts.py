"""INSERT: whose rows go into which columns, what happens to those that are there already, what comes back; pure.

A plain INSERT gives rows of its query to owners. One with ON CONFLICT, OR REPLACE, OR IGNORE or RETURNING is run by the
engine, over the rows that its query gave: then it is the user's own text, with the query exchanged for those rows.
"""

from __future__ import annotations

from attrs import evolve, frozen
from sqlglot import exp

from ballista_py.errors import ConfigError, SqlError
from ballista_py.partitions.table_name import folded
from ballista_py.sql.parse.constants import require_partition_value
from ballista_py.sql.parse.edits import Edit, edited
from ballista_py.sql.parse.kind import blank, verb_place
from ballista_py.sql.parse.overwrites import Overwrite
from ballista_py.sql.parse.parsing import ENGINE_DIALECT
from ballista_py.sql.parse.statement_text import StatementText

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
