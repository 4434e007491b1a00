"""ALTER TABLE and COMMENT ON as what is to be done; pure.

The words are read one by one, because the parser does not know all that the engine does: whatever is not read here is
refused, at its own place.
"""

from __future__ import annotations

from typing import NoReturn, TypeAlias

from attrs import define, frozen
from sqlglot.tokenizer_core import Token, TokenType

from ballista_py.errors import SqlError
from ballista_py.partitions.refresh import Refresh, Retention
from ballista_py.sql.parse.constants import require_constant
from ballista_py.sql.parse.statement_text import StatementText
from ballista_py.sql.parse.table_names import table_of

_CONSTRAINTS = (
    "CONSTRAINT", "DEFAULT", "NULL", "PRIMARY", "UNIQUE", "CHECK", "REFERENCES", "COLLATE", "GENERATED", "USING",
    "COMPRESSION", "AS",
)  # fmt: skip
_FORMS = (
    "ADD COLUMN, DROP COLUMN, RENAME COLUMN, RENAME TO, ALTER COLUMN … SET or DROP DEFAULT, SET or DROP NOT NULL, "
    "TYPE, and SET (file_format = …)"
)
_NEW_TABLE = "rows that are there could violate it: make a table that has it, and fill it with INSERT … SELECT"


@frozen(kw_only=True)
class AddColumn:
    """A column more, behind all others. `kind` is its type as it was written, `default` an expression."""

    name: str
    kind: str
    if_not_exists: bool = False
    default: str | None = None
    required: bool = False


@frozen(kw_only=True)
class DropColumn:
    """A column less."""

    name: str
    if_exists: bool = False


@frozen(kw_only=True)
class RenameColumn:
    """Another name for a column."""

    name: str
    to: str


@frozen(kw_only=True)
class RenameTable:
    """Another name for the table."""

    to: str


@frozen(kw_only=True)
class SetDefault:
    """What INSERT takes for a column that it does not name; None for NULL."""

    name: str
    default: str | None


@frozen(kw_only=True)
class SetRequired:
    """Whether a column must have a value."""

    name: str
    required: bool


@frozen(kw_only=True)
class SetType:
    """Another type for a column."""

    name: str
    kind: str


@frozen(kw_only=True)
class SetTableOption:
    """Another value for an option of the table."""

    name: str
    value: str


@frozen(kw_only=True)
class SetFollows:
    """How the table follows its source, and what it forgets, all of it anew. No words of SQL say so."""

    refresh: Refresh | None
    retention: Retention | None


@frozen(kw_only=True)
class SetComment:
    """Words about a column, or (None) the table; none for None."""

    name: str | None
    text: str | None


Alteration: TypeAlias = (
    AddColumn
    | DropColumn
    | RenameColumn
    | RenameTable
    | SetDefault
    | SetRequired
    | SetType
    | SetTableOption
    | SetFollows
    | SetComment
)


@frozen(kw_only=True)
class AlterTable:
    """One change of what a table is."""

    table: str
    action: Alteration
    if_exists: bool = False


def read_alteration(text: StatementText) -> AlterTable:
    """The statement, which begins with ALTER TABLE or COMMENT ON. Raises `SqlError` for what is not done here."""
    words = _Words(text)
    if words.takes("COMMENT"):
        return _comment(words)
    words.must("ALTER")
    words.must("TABLE")
    if_exists = words.takes("IF", "EXISTS")
    table = words.table()
    action = _action(words)
    words.end()
    return AlterTable(table=table, action=action, if_exists=if_exists)


def _action(words: _Words) -> Alteration:
    if words.takes("ADD"):
        if words.next() in ("CONSTRAINT", "PRIMARY", "UNIQUE", "CHECK", "FOREIGN"):
            kind = words.next()
            raise words.refused(f"ADD {kind}{' KEY' if kind in ('PRIMARY', 'FOREIGN') else ''}", _NEW_TABLE)
        words.takes("COLUMN")
        return _added(words)
    if words.takes("DROP"):
        if words.next() == "CONSTRAINT":
            raise words.refused("DROP CONSTRAINT", "make a table without it, and fill it with INSERT … SELECT")
        words.takes("COLUMN")
        if_exists = words.takes("IF", "EXISTS")
        name = words.column()
        _ = words.takes("CASCADE") or words.takes("RESTRICT")  # nothing depends on a column that may be dropped
        return DropColumn(name=name, if_exists=if_exists)
    if words.takes("RENAME"):
        if words.next() == "TO":
            words.must("TO")
            return RenameTable(to=words.table())
        words.takes("COLUMN")
        name = words.column()
        words.must("TO")
        return RenameColumn(name=name, to=words.name())
    if words.takes("SET"):
        return _option(words)
    words.must("ALTER")
    words.takes("COLUMN")
    return _of_column(words, words.column())


def _added(words: _Words) -> AddColumn:
    if_not_exists = words.takes("IF", "NOT", "EXISTS")
    name = words.column()
    kind = words.until(_CONSTRAINTS)
    default, required = None, False
    while not words.is_over():
        if words.takes("DEFAULT"):
            default = words.until(_CONSTRAINTS)
        elif words.takes("NOT", "NULL"):
            required = True
        elif not words.takes("NULL"):
            raise words.refused(
                f"ADD COLUMN … {words.next()}", "add the column with its type, NOT NULL and DEFAULT alone"
            )
    if default is not None:
        require_constant(default)
    return AddColumn(name=name, kind=kind, if_not_exists=if_not_exists, default=default, required=required)


def _option(words: _Words) -> SetTableOption:
    if not words.takes("("):
        raise words.refused(
            f"SET {words.next()}", "it has SET (file_format = …), and intervals; keys of tables stay as they are"
        )
    name = words.name()
    words.must("=")
    value = words.value()
    words.must(")")
    return SetTableOption(name=name.lower(), value=value.lower())


def _of_column(words: _Words, name: str) -> Alteration:
    if words.takes("SET", "DEFAULT"):
        default = words.until(())
        require_constant(default)
        return SetDefault(name=name, default=default)
    if words.takes("DROP", "DEFAULT"):
        return SetDefault(name=name, default=None)
    if words.takes("SET", "NOT", "NULL"):
        return SetRequired(name=name, required=True)
    if words.takes("DROP", "NOT", "NULL"):
        return SetRequired(name=name, required=False)
    if words.takes("SET", "DATA", "TYPE") or words.takes("TYPE") or words.takes("SET", "TYPE"):
        kind = words.until(("USING", "COLLATE"))
        if words.next() in ("USING", "COLLATE"):
            raise words.refused(f"TYPE … {words.next()}", "add a column and fill it with UPDATE")
        return SetType(name=name, kind=kind)
    raise words.refused(f"ALTER COLUMN … {words.next()}", f"it has {_FORMS}")


def _comment(words: _Words) -> AlterTable:
    words.must("ON")
    column = None
    if words.takes("COLUMN"):
        path = words.path()
        if len(path) < 2:
            raise SqlError("COMMENT ON COLUMN names a table and its column, as in t.a")
        table, column = table_of(path[:-1]), path[-1]
    else:
        if not words.takes("TABLE"):
            raise SqlError(f"COMMENT ON {words.next()} cannot be run here: only tables and columns have comments")
        table = words.table()
    words.must("IS")
    text = None if words.takes("NULL") else words.value()
    words.end()
    return AlterTable(table=table, action=SetComment(name=column, text=text))


@define
class _Words:
    """The words of a statement, one after the other; some of the parser's are several."""

    text: StatementText
    place: int = 0
    part: int = 0

    def _token(self) -> Token | None:
        return self.text.tokens[self.place] if self.place < len(self.text.tokens) else None

    def next(self) -> str:
        """The next word in capitals; nothing at the end, and for a name in quotes."""
        token = self._token()
        if token is None:
            return ""
        if token.token_type in (TokenType.IDENTIFIER, TokenType.STRING):
            return f'"{token.text}"'
        return token.text.upper().split()[self.part]

    def _step(self) -> None:
        token = self._token()
        quoted = token is not None and token.token_type in (TokenType.IDENTIFIER, TokenType.STRING)
        if token is not None and not quoted and self.part + 1 < len(token.text.split()):
            self.part += 1
        else:
            self.place, self.part = self.place + 1, 0

    def takes(self, *words: str) -> bool:
        """Whether these words come next, which are behind us then."""
        before = self.place, self.part
        for word in words:
            if self.next() != word:
                self.place, self.part = before
                return False
            self._step()
        return True

    def must(self, word: str) -> None:
        if not self.takes(word):
            self._wrong()

    def name(self) -> str:
        """An identifier, as it is written."""
        token = self._token()
        is_word = token is not None and (token.text[:1].isalpha() or token.text[:1] == "_")
        if token is None or token.token_type == TokenType.STRING:
            self._wrong()
        if token.token_type != TokenType.IDENTIFIER and not is_word:
            self._wrong()
        self.place, self.part = self.place + 1, 0
        return token.text

    def column(self) -> str:
        """The name of a column, which has no parts of its own."""
        found = self.name()
        if self.next() == ".":
            raise SqlError(
                f"ALTER TABLE changes columns, not fields of the column '{found}': add a column of the new type, and "
                "fill it with UPDATE"
            )
        return found

    def path(self) -> list[str]:
        """Names with dots between them."""
        found = [self.name()]
        while self.takes("."):
            found.append(self.name())
        return found

    def table(self) -> str:
        """The name of a table."""
        return table_of(self.path())

    def value(self) -> str:
        """A text or a word."""
        token = self._token()
        if token is None or token.token_type in (TokenType.L_PAREN, TokenType.R_PAREN):
            self._wrong()
        self.place, self.part = self.place + 1, 0
        return token.text

    def until(self, stops: tuple[str, ...]) -> str:
        """The text up to one of these words, or NOT NULL, outside of brackets; or to the end."""
        first, depth = self.place, 0
        while (token := self._token()) is not None:
            begins_not_null = bool(stops) and self.next() == "NOT" and self._is_not_null()
            if depth == 0 and self.place > first and (self.next() in stops or begins_not_null):
                break
            depth += token.token_type in (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
            depth -= token.token_type in (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)
            self.place, self.part = self.place + 1, 0
        if self.place == first:
            self._wrong()
        return self.text.between(first - 1, self.place)

    def _is_not_null(self) -> bool:
        before = self.place, self.part
        found = self.takes("NOT", "NULL")
        self.place, self.part = before
        return found

    def is_over(self) -> bool:
        return self._token() is None

    def end(self) -> None:
        """Raise `SqlError` unless all words were read."""
        if not self.is_over():
            self._wrong()

    def _wrong(self) -> NoReturn:
        is_comment = self.text.tokens[0].text.upper() == "COMMENT"
        verb, has = (
            ("COMMENT", "COMMENT ON TABLE t IS 'text'") if is_comment else ("ALTER TABLE", f"it has {_FORMS}")
        )
        if self.is_over():
            raise SqlError(f"{verb} ends too early: {has}")
        said = self.next().strip('"')
        raise SqlError(f"{verb} cannot be run with '{said}' at that place: {has}")

    def refused(self, form: str, instead: str) -> SqlError:
        return SqlError(f"ALTER TABLE with {form} cannot be run here: {instead}")
