"""CREATE TABLE … LIKE: which columns a new table takes from one that there is, and what else of it; pure.

The engine has no such statement, so it never sees these words. There are two forms, with the meanings that they have
where people know them from. `CREATE TABLE t LIKE s` is Spark's: the columns of `s` with all that is said of each, its
partitions and its form of files. `CREATE TABLE t (LIKE s [INCLUDING …], …)` is PostgreSQL's: columns, types and NOT
NULL, and what INCLUDING names besides; the table has the partitions that the statement itself declares.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from attrs import frozen
from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from ballista_py.errors import SqlError
from ballista_py.sql.parse.creates import require_one_of
from ballista_py.sql.parse.inserts import table_name
from ballista_py.sql.parse.kind import tokens_of
from ballista_py.sql.parse.statement_text import StatementText
from ballista_py.sql.parse.table_names import plain_table

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
