"""CREATE TABLE of files that lie elsewhere and stay there: `CREATE EXTERNAL TABLE`, `CREATE TABLE … USING … LOCATION`.

The engine has no such statement, so it never sees these words; they are read one by one, and what is not read is
refused by its name. `scanned_table.external_table` writes what `read_external` reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen
from sqlglot.tokenizer_core import Token, TokenType

from ballista_py.errors import ConfigError, SqlError
from ballista_py.partitions.scanned_table import SCAN_FORMATS, scan_of
from ballista_py.partitions.table import folded
from ballista_py.sql.parse.statement_text import StatementText
from ballista_py.sql.parse.table_names import plain_table

_FORM = (
    "CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION '…' [OPTIONS ('name' 'value', …)], "
    "or CREATE TABLE t USING DELTA LOCATION '…'"
)


@frozen(kw_only=True)
class CreateScanned:
    """A name for files that lie where `scan` says. One that `replaces` takes the place of another scanned table."""

    table: str
    scan: Mapping[str, Any]
    if_not_exists: bool = False
    replaces: bool = False
    comment: str | None = None


def is_external(tokens: Sequence[Token]) -> bool:
    """Whether a statement of these tokens makes a scanned table.

    >>> from ballista_py.sql.parse.parsing import tokenized
    >>> texts = "create external table t", "create table t using delta location 'a'", "create table t (external int)"
    >>> [is_external(tokenized(text)) for text in texts]
    [True, True, False]
    """
    words = [_word(token) for token in tokens[:12]]
    if words[:1] != ["CREATE"]:
        return False
    if "EXTERNAL" in words[1:4]:
        return True
    behind = next((place for place, word in enumerate(words) if word == "TABLE"), len(words))
    name = behind + (4 if words[behind + 1 : behind + 4] == ["IF", "NOT", "EXISTS"] else 1)
    while words[name + 1 : name + 2] == ["."]:
        name += 2
    using = words[name + 1 : name + 2] == ["USING"] and words[name + 2 : name + 3] != []
    return using and (
        words[name + 2].lower() in ("delta", "iceberg") or any(_word(token) == "LOCATION" for token in tokens)
    )


def read_external(text: StatementText) -> CreateScanned:
    """What a statement says of which `is_external` is true. Raises `SqlError` for what is not done here.

    >>> from ballista_py.sql.parse.kind import tokens_of
    >>> sql = "create external table t stored as delta location '/lake/t' options ('shared' 'true')"
    >>> read_external(StatementText(*tokens_of(sql))).scan
    {'format': 'delta', 'path': '/lake/t', 'shared': True}
    """
    replaces, place = _says(text, 1, "OR", "REPLACE"), 1
    place += 2 * replaces
    place += _says(text, place, "EXTERNAL")
    if not _says(text, place, "TABLE"):
        raise SqlError(f"{text.plain[:40]}… cannot be run here: say {_FORM}")
    place += 1
    if_not_exists = _says(text, place, "IF", "NOT", "EXISTS")
    place += 3 * if_not_exists
    if if_not_exists and replaces:
        raise SqlError("CREATE OR REPLACE with IF NOT EXISTS cannot be run here: say one of them")
    end = place + 1
    while end + 1 < len(text.tokens) and text.tokens[end].token_type == TokenType.DOT:
        end += 2
    name = plain_table(text.tokens[place:end])
    try:
        name = folded(name)
    except ConfigError as error:
        raise SqlError(error.message) from None
    found = _Clauses(text, name)
    found.read(end)
    return CreateScanned(
        table=name,
        scan=found.scan(),
        if_not_exists=if_not_exists,
        replaces=replaces,
        comment=found.comment,
    )


class _Clauses:
    """What stands behind the name, clause by clause."""

    def __init__(self, text: StatementText, name: str) -> None:
        self._text = text
        self._name = name
        self._format: str | None = None
        self._path: str | None = None
        self._options: dict[str, str] = {}
        self.comment: str | None = None

    def read(self, place: int) -> None:
        while place < len(self._text.tokens):
            place = self._clause(place)

    def _clause(self, place: int) -> int:
        """Take in the clause at a place; the place behind it."""
        if _says(self._text, place, "STORED", "AS"):
            return self._take_format(place + 2)
        if _says(self._text, place, "USING"):
            return self._take_format(place + 1)
        if _says(self._text, place, "LOCATION"):
            if self._path is not None:
                raise SqlError(f"table '{self._name}': LOCATION stands there twice")
            self._path = self._string(place + 1, "LOCATION")
            return place + 2
        if _says(self._text, place, "COMMENT"):
            self.comment = self._string(place + 1, "COMMENT")
            return place + 2
        if self._text.opens(place + 1) and _word(self._text.tokens[place]) in ("OPTIONS", "WITH"):
            return self._take_options(place + 1)
        raise SqlError(f"{self._refused(place)}: say {_FORM}")

    def _refused(self, place: int) -> str:
        if self._text.opens(place):
            return f"table '{self._name}' declares columns, and a scanned table has those of its snapshot"
        shown = self._text.tokens[place].text[:80]
        if _word(self._text.tokens[place]).startswith("PARTITION"):
            return f"table '{self._name}' is split by its files, not by {shown}"
        return f"'{shown}' cannot stand in the declaration of the scanned table '{self._name}'"

    def _take_format(self, place: int) -> int:
        if self._format is not None or place >= len(self._text.tokens):
            raise SqlError(f"table '{self._name}' needs one format: say {_FORM}")
        self._format = self._text.tokens[place].text.lower()
        if self._format not in SCAN_FORMATS:
            raise SqlError(
                f"tables are not scanned as {self._format[:80]}: their format is one of {', '.join(SCAN_FORMATS)}"
            )
        return place + 1

    def _take_options(self, place: int) -> int:
        end = self._text.group_end(place)
        for start, stop in self._text.pieces(place, end):
            item = self._text.tokens[start + 1 : stop]
            parts = [token for token in item if token.token_type != TokenType.EQ]
            value = parts.pop() if len(parts) > 1 else None
            key = "".join(token.text for token in parts)
            named = key and (len(parts) == 1 or all(t.token_type != TokenType.STRING for t in parts))
            if value is None or not named or len(item) - len(parts) > 2:
                raise SqlError(
                    f"an option of table '{self._name}' is written as 'name' 'value', or name = 'value'"
                )
            if key in self._options:
                raise SqlError(f"table '{self._name}': the option '{key[:80]}' is given twice")
            self._options[key] = value.text
        return end + 1

    def _string(self, place: int, word: str) -> str:
        if place >= len(self._text.tokens) or self._text.tokens[place].token_type != TokenType.STRING:
            raise SqlError(f"{word} of table '{self._name}' takes a text in single quotes")
        return self._text.tokens[place].text

    def scan(self) -> dict[str, Any]:
        """What was said."""
        if self._format is None:
            raise SqlError(f"table '{self._name}' has no format: say {_FORM}")
        found = {"format": self._format}
        if self._path is not None:
            found["path"] = self._path
        for key in self._options:
            if key in ("format", "path"):
                raise SqlError(f"table '{self._name}': the option '{key}' is said by STORED AS and LOCATION")
        try:
            return scan_of({**found, **self._options})
        except ConfigError as error:
            raise SqlError(f"table '{self._name}': {error.message}") from None


def _word(token: Token) -> str:
    """The word in capitals, as far as it is one; no name in quotes and no text."""
    quoted = token.token_type in (TokenType.STRING, TokenType.IDENTIFIER)
    return "" if quoted else token.text.upper()


def _says(text: StatementText, place: int, *words: str) -> bool:
    inside = place + len(words) <= len(text.tokens)
    return inside and all(text.says(place + number, word) for number, word in enumerate(words))
