"""CREATE TABLE: its columns and what each must be, its keys and conditions, or the query it is made of; pure."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen
from sqlglot import exp

from ballista_py.errors import ConfigError, SqlError
from ballista_py.partitions.bounds import require_count
from ballista_py.partitions.refresh import Refresh, Retention
from ballista_py.partitions.write_modes import WRITE_OPTIONS, refuse_write_options
from ballista_py.sql.parse.constants import require_constant
from ballista_py.sql.parse.follow_options import OPTIONS, declared_in
from ballista_py.sql.parse.inserts import table_name
from ballista_py.sql.parse.statement_text import StatementText

_BEHIND_TYPES = (
    "CONSTRAINT", "DEFAULT", "NOT", "NULL", "PRIMARY", "UNIQUE", "CHECK", "REFERENCES", "COLLATE", "GENERATED",
)  # fmt: skip


@frozen(kw_only=True)
class CreateTable:
    """A managed table; `columns` are (name, nullable), or None to take them from `query`.

    If it `replaces`, it takes the place of a table of that name. One that is `kept_up` is a materialized view: it has
    the rows of its query from then on, too. Columns have the `defaults` that are named, as SQL.
    `declaration` is the text of the statement without what no engine would take, for the types of the columns.
    """

    table: str
    columns: tuple[tuple[str, bool], ...] | None
    declaration: str
    partition_by: tuple[str, ...]
    primary_key: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    defaults: tuple[tuple[str, str], ...] = ()
    query: str | None = None
    if_not_exists: bool = False
    replaces: bool = False
    file_format: str = "parquet"
    refresh: Refresh | None = None
    retention: Retention | None = None
    kept_up: bool = False


def read_create(tree: exp.Create, text: StatementText) -> CreateTable:
    """What a CREATE TABLE says. Raises `SqlError` for a form of it that cannot be run.

    Raises `ConfigError` for too many columns, before any of them is looked at.
    """
    target, definitions = tree.this, None
    if isinstance(target, exp.Schema):
        target, definitions = target.this, target.expressions
    table = table_name(target)
    query = tree.args.get("expression")
    require_one_of(bool(tree.args.get("exists")), bool(tree.args.get("replace")))
    if query is not None and definitions is not None:
        raise SqlError(
            "CREATE TABLE with columns and AS cannot be run here: take one of them, and INSERT … SELECT"
        )
    require_count(table, sum(1 for item in definitions or () for _ in item.find_all(exp.ColumnDef)))
    columns: list[tuple[str, bool]] = []
    primary: list[str] = []
    checks = 0
    named = [(item.expressions if isinstance(item, exp.Constraint) else [item]) for item in definitions or ()]
    for item in (part for parts in named for part in parts):
        if isinstance(item, exp.ColumnDef):
            nullable, more = _column(item, primary)
            columns.append((item.name, nullable))
            checks += more
        elif isinstance(item, exp.PrimaryKey):
            primary.extend(part.name for part in item.expressions)
        else:
            checks += 1
    conditions = _checks(text)
    if len(conditions) != checks:
        raise SqlError("the CHECK conditions of the statement cannot be told apart")
    written = {name.lower(): name for name, _ in columns}
    primary = [written.get(name.lower(), name) for name in primary]
    names = {name.lower() for name in primary}
    options = _options(tree)
    refresh, retention = declared_in(options)
    as_place = next((place for place, word in text.top_level(0) if word == "AS"), None)
    return CreateTable(
        table=table,
        columns=tuple((name, nullable and name.lower() not in names) for name, nullable in columns) or None,
        declaration=_without_options(text),
        partition_by=text.keys,
        primary_key=tuple(primary),
        checks=conditions,
        defaults=_defaults(text, definitions or ()),
        query=text.without(0, as_place + 1) if query is not None and as_place is not None else None,
        if_not_exists=bool(tree.args.get("exists")),
        replaces=bool(tree.args.get("replace")),
        file_format=options.get("file_format", "parquet").lower(),
        refresh=refresh,
        retention=retention,
    )


def require_one_of(if_not_exists: bool, replaces: bool) -> None:
    """Raise `SqlError` for a table that is to be kept and to be replaced."""
    if if_not_exists and replaces:
        raise SqlError("CREATE OR REPLACE with IF NOT EXISTS cannot be run here: say one of them")


def _checks(text: StatementText) -> tuple[str, ...]:
    """The conditions of the CHECK constraints, as they stand in the text."""
    return tuple(
        text.between(place + 1, text.group_end(place + 1))
        for place in range(len(text.tokens))
        if text.says(place, "CHECK") and text.opens(place + 1)
    )


def _defaults(text: StatementText, definitions: Sequence[exp.Expr]) -> tuple[tuple[str, str], ...]:
    """The columns with a DEFAULT, and the text of each. Raises `SqlError` for one that is no constant."""
    if not definitions:
        return ()
    first = next(place for place in range(len(text.tokens)) if text.opens(place))
    pieces = [(start, end) for start, end in text.pieces(first, text.group_end(first)) if end > start + 1]
    found = []
    for item, (start, end) in zip(definitions, pieces, strict=True):
        words = [place for place, word in text.top_level(start + 1, end) if word.split()[0] in _BEHIND_TYPES]
        for number, place in enumerate(words):
            if not isinstance(item, exp.ColumnDef) or not text.says(place, "DEFAULT"):
                continue
            stop = next((later for later in words[number + 1 :] if later > place + 1), end)
            default = text.between(place, stop)
            require_constant(default)
            if default.upper() != "NULL":
                found.append((item.name, default))
    return tuple(found)


def _without_options(text: StatementText) -> str:
    """The text without `WITH (…)`, which is for tables of a cluster alone."""
    for place, word in text.top_level(0):
        if word == "WITH" and text.opens(place + 1):
            return text.without(place, text.group_end(place + 1) + 1)
        if word == "AS":
            break
    return text.plain


def _options(tree: exp.Create) -> dict[str, str]:
    """Those of `WITH (name = 'value', …)`. Raises `SqlError` for one that there is not, or that is given twice."""
    found: dict[str, str] = {}
    properties = tree.args.get("properties")
    for item in properties.expressions if properties is not None else ():
        name, value = item.name.lower(), item.args.get("value")
        if name == "partition_by":
            raise SqlError("what splits a table stands before WITH: PARTITION BY (bucket(16, column))")
        if name not in (*OPTIONS, *WRITE_OPTIONS) or not isinstance(value, exp.Expr):
            raise SqlError(
                f"a table has no option '{name[:80]}' here: WITH (file_format = 'parquet' or 'vortex', …), with "
                f"{', '.join(OPTIONS[1:])}"
            )
        if name in found:
            raise SqlError(f"the option '{name}' is given twice")
        found[name] = value.name
    try:
        refuse_write_options(found)
    except ConfigError as error:
        raise SqlError(error.message) from None
    return found


def _column(item: exp.ColumnDef, primary: list[str]) -> tuple[bool, int]:
    """Whether the column is nullable, and how many CHECK conditions it has."""
    nullable, checks = True, 0
    for constraint in item.args.get("constraints") or ():
        kind = constraint.args.get("kind")
        if isinstance(kind, exp.NotNullColumnConstraint):
            nullable = nullable and bool(kind.args.get("allow_null"))  # NOT NULL stays, whatever stands beside it
        elif isinstance(kind, exp.PrimaryKeyColumnConstraint):
            primary.append(item.name)
        elif not isinstance(kind, exp.DefaultColumnConstraint):
            checks += 1
    if item.args.get("kind") is None:
        raise SqlError(f"column '{item.name}' has no type")
    return nullable, checks
