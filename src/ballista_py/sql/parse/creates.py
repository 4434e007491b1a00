"""CREATE TABLE: its columns, keys, conditions and options, what it takes LIKE another table, or its query; pure.

The options of a table that say how it follows its source and what it forgets, by the names that the field has; pure.

The same names stand in `WITH (…)` of CREATE TABLE, in `ALTER TABLE … SET (…)` and in an application file.

CREATE TABLE … LIKE: which columns a new table takes from one that there is, and what else of it; pure.

The engine has no such statement, so it never sees these words. There are two forms, with the meanings that they have
where people know them from. `CREATE TABLE t LIKE s` is Spark's: the columns of `s` with all that is said of each, its
partitions and its form of files. `CREATE TABLE t (LIKE s [INCLUDING …], …)` is PostgreSQL's: columns, types and NOT
NULL, and what INCLUDING names besides; the table has the partitions that the statement itself declares.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen
from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from ballista_py.errors import ConfigError, SqlError
from ballista_py.partitions.bounds import require_count
from ballista_py.partitions.refresh import Refresh, Retention
from ballista_py.partitions.write_modes import WRITE_OPTIONS, refuse_write_options
from ballista_py.sql.parse.constants import require_constant
from ballista_py.sql.parse.inserts import table_name
from ballista_py.sql.parse.kind import tokens_of
from ballista_py.sql.parse.statement_text import StatementText
from ballista_py.sql.parse.table_names import plain_table

_OF_REFRESH: Mapping[str, str] = {
    "refresh_mode": "mode",
    "refresh_check_interval": "every",
    "refresh_append_overlap": "overlap",
    "time_column": "time_column",
    "on_schema_change": "on_schema_change",
}
_OF_RETENTION: Mapping[str, str] = {"retention_sql": "sql", "retention_check_interval": "every"}
FOLLOW_OPTIONS = (*_OF_REFRESH, *_OF_RETENTION)
OPTIONS = ("file_format", *FOLLOW_OPTIONS)


def follows_of(options: Mapping[str, Any]) -> tuple[Refresh | None, Retention | None]:
    """What these options declare; None where none of them says anything of it. Others are passed over.

    Raises `ConfigError` naming the option.

    >>> follows_of({"refresh_mode": "full", "refresh_check_interval": "5m"})[0].every
    '5m'
    """
    refresh = {field: options[name] for name, field in _OF_REFRESH.items() if name in options}
    retention = {field: options[name] for name, field in _OF_RETENTION.items() if name in options}
    if retention and "sql" not in retention:
        raise ConfigError("retention_sql: missing; write the DELETE that takes old rows away")
    return (
        _made(Refresh, refresh, _OF_REFRESH) if refresh else None,
        _made(Retention, retention, _OF_RETENTION) if retention else None,
    )


def declared_in(options: Mapping[str, str]) -> tuple[Refresh | None, Retention | None]:
    """As `follows_of`, for options of a statement: raises `SqlError`."""
    try:
        return follows_of(options)
    except ConfigError as error:
        raise SqlError(error.message) from None


def _made(kind: Any, fields: Mapping[str, Any], names: Mapping[str, str]) -> Any:
    """The value. An error names the option, not the field."""
    try:
        return kind(**fields)
    except ConfigError as error:
        field, colon, problem = error.message.partition(":")
        option = next((name for name, known in names.items() if known == field), field)
        raise ConfigError(f"{option}{colon}{problem}") from None


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


# What INCLUDING can name, of what a table has here; the names are PostgreSQL's.
DEFAULTS, COMMENTS, CONSTRAINTS, INDEXES = "DEFAULTS", "COMMENTS", "CONSTRAINTS", "INDEXES"
_ALL = frozenset((DEFAULTS, COMMENTS, CONSTRAINTS, INDEXES))
_NOTHING_OF_THE_KIND = frozenset(("GENERATED", "IDENTITY", "STATISTICS", "STORAGE", "COMPRESSION"))
_CREATE, _LIKE = (re.compile(rf"\b{word}\b", re.IGNORECASE) for word in ("create", "like"))
MAX_PIECES = 100
_ALONE = "CREATE TABLE t LIKE s takes the partitions and the form of files of s: to declare others use (LIKE s)"
_CALLED: Mapping[type[exp.Expr], str] = {exp.FileFormatProperty: "USING", exp.Property: "TBLPROPERTIES"}


@frozen(kw_only=True)
class Like:
    """The columns of the table `source`, with those things of it that are `copied`; where that stands in the text."""

    source: str
    copied: frozenset[str]
    start: int
    stop: int


@frozen(kw_only=True)
class CreateLike:
    """A CREATE TABLE with columns of other tables: `pieces` of its `text` stand for them.

    If it is `whole`, the only piece stands for the partitions of that table and the form of its files, too.
    """

    table: str
    text: str
    pieces: tuple[Like, ...]
    whole: bool
    if_not_exists: bool
    replaces: bool = False

    def expanded(self, written: Sequence[str]) -> str:
        """The statement with other text in place of its pieces."""
        made, place = "", 0
        for piece, text in zip(self.pieces, written, strict=True):
            made += self.text[place : piece.start] + text
            place = piece.stop
        return made + self.text[place:]


def read_like(sql: str) -> CreateLike | None:
    """What a CREATE TABLE with LIKE says; None for any other statement. Raises `SqlError` for a form that is not read.

    >>> read_like("create table t (like s including defaults, b int)").pieces[0].copied
    frozenset({'DEFAULTS'})
    >>> read_like("create table if not exists t like s").whole
    True
    >>> read_like('create table t ("like" int)') is None
    True
    """
    if not _CREATE.search(sql) or not _LIKE.search(sql):  # cheaper than to cut a long text into words
        return None
    text, tokens = tokens_of(sql)
    if tokens[0].text.upper() != "CREATE" or not any(map(_is_like, tokens)):
        return None
    whole = StatementText(text, tokens)
    name, if_not_exists = _named(tokens)
    if name is None or name + 1 >= len(tokens):
        return None
    pieces: tuple[Like, ...]
    if _is_like(tokens[name + 1]):
        pieces = (_plain_form(whole, name + 1),)
    elif whole.opens(name + 1):
        items = whole.pieces(name + 1, whole.group_end(name + 1))
        found = [(start + 1, stop) for start, stop in items if _is_like(tokens[start + 1])]
        if len(found) > MAX_PIECES:
            raise SqlError(f"a table can be LIKE at most {MAX_PIECES} others, not {len(found)}")
        pieces = tuple(_item(whole, start, stop) for start, stop in found)
    else:
        return None
    if not pieces:
        return None
    replaces = [token.text.upper() for token in tokens[1:3]] == ["OR", "REPLACE"]
    require_one_of(if_not_exists, replaces)
    return CreateLike(
        table=table_name(exp.Table(this=exp.to_identifier(tokens[name].text))),
        text=text,
        pieces=pieces,
        whole=_is_like(tokens[name + 1]),
        if_not_exists=if_not_exists,
        replaces=replaces,
    )


def _is_like(token: Token) -> bool:
    return token.token_type == TokenType.LIKE


def _named(tokens: Sequence[Token]) -> tuple[int | None, bool]:
    """Which token is the name of the table, and whether IF NOT EXISTS stands before it."""
    words = [token.text.upper() for token in tokens[:8]]
    if "TABLE" not in words:
        return None, False
    place = words.index("TABLE") + 1
    if_not_exists = words[place : place + 3] == ["IF", "NOT", "EXISTS"]
    place += 3 * if_not_exists
    return (place if place < len(tokens) else None), if_not_exists


def _plain_form(text: StatementText, like: int) -> Like:
    """Of `CREATE TABLE t LIKE s`, behind which nothing stands."""
    tokens = text.tokens
    source, behind = _source(tokens, like + 1, len(tokens))
    if len(tokens) > behind:
        raise SqlError(f"'{tokens[behind].text}' behind LIKE cannot be run here: {_ALONE}")
    return Like(
        source=source, copied=frozenset((DEFAULTS, COMMENTS)), start=tokens[like].start, stop=tokens[-1].end + 1
    )


def _item(text: StatementText, like: int, stop: int) -> Like:
    """Of one item in the brackets of a CREATE TABLE, which ends before the token `stop`."""
    tokens = text.tokens
    source, behind = _source(tokens, like + 1, stop)
    copied: frozenset[str] = frozenset()
    words = [token.text.upper() for token in tokens[behind:stop]]
    for place in range(0, len(words), 2):
        verb, name = words[place], words[place + 1] if place + 1 < len(words) else ""
        if verb not in ("INCLUDING", "EXCLUDING"):
            raise SqlError(f"'{tokens[behind + place].text}' behind LIKE cannot be run here: {_can_include()}")
        if name in _NOTHING_OF_THE_KIND:
            raise SqlError(
                f"LIKE with {verb} {name} cannot be run here: tables have nothing of that kind, leave it out"
            )
        if name != "ALL" and name not in _ALL:
            raise SqlError(f"LIKE with {verb} {name or 'nothing'} cannot be run here: {_can_include()}")
        named = _ALL if name == "ALL" else frozenset((name,))
        copied = copied | named if verb == "INCLUDING" else copied - named
    last = tokens[stop - 1].end + 1
    return Like(source=source, copied=copied, start=tokens[like].start, stop=last)


def _can_include() -> str:
    return f"it takes INCLUDING or EXCLUDING, each with ALL, {', '.join(sorted(_ALL))}"


def _source(tokens: Sequence[Token], place: int, stop: int) -> tuple[str, int]:
    """The table that is named from a token on, before `stop`, and which token follows."""
    if place >= stop or tokens[place].token_type in (TokenType.STRING, TokenType.L_PAREN):
        raise SqlError("LIKE needs the name of a table")
    behind = place + 1
    while behind + 1 < stop and tokens[behind].token_type == TokenType.DOT:
        behind += 2
    return plain_table(tokens[place:behind]), behind


def as_pieces(tree: exp.Expr) -> None:
    """Put the words of this module in the place of what a parser of another dialect made of LIKE.

    Raises `SqlError` for a form that is not read.
    """
    if isinstance(tree.this, exp.Schema):
        for item in tree.this.expressions:
            if isinstance(item, exp.LikeProperty):
                item.replace(exp.Var(this=_words_of(item)))


def plain_like(tree: exp.Expr) -> str | None:
    """The engine's dialect for `CREATE TABLE t LIKE s` of another one; None for any other statement.

    Raises `SqlError` for what else it says.
    """
    properties = tree.args.get("properties")
    items = properties.expressions if isinstance(tree, exp.Create) and properties is not None else []
    if not any(isinstance(item, exp.LikeProperty) for item in items):
        return None
    for item in items:
        if not isinstance(item, exp.LikeProperty):
            name = _CALLED.get(type(item), item.key.removesuffix("property").upper())
            raise SqlError(f"CREATE TABLE LIKE with {name} cannot be run here: {_ALONE}")
    exists = "IF NOT EXISTS " if tree.args.get("exists") else ""
    create = "CREATE OR REPLACE TABLE" if tree.args.get("replace") else "CREATE TABLE"
    (like,) = items
    return f"{create} {exists}{_written(tree.this)} {_words_of(like)}"


def _words_of(item: exp.LikeProperty) -> str:
    options = (f" {option.name.upper()} {option.args['value'].name.upper()}" for option in item.expressions)
    return f"LIKE {_written(item.this)}{''.join(options)}"


def _written(table: exp.Table) -> str:
    """The name with all its parts: whether it names one of ours is told where it is read."""
    return ".".join(_quoted(part.name) for part in table.parts)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
