"""An INSERT of one row of parameters, as one statement for many rows of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
from attrs import frozen
from sqlglot.tokenizer_core import Token, TokenType

from ballista_py.errors import SqlError
from ballista_py.sql.parse.parameters import bound, places_of
from ballista_py.sql.parse.parsing import tokenized

MAX_ROWS = 1_000
MAX_CHARS = 1_000_000


@frozen
class RowTemplate:
    """`head` and then rows like `row`; `head` has no parameter."""

    head: str
    row: str

    def statements(self, rows: Iterable[Mapping[str, pa.Scalar]]) -> Iterator[str]:
        """Statements that insert these rows, up to `MAX_ROWS` and about `MAX_CHARS` each."""
        written: list[str] = []
        chars = 0
        for values in rows:
            written.append(bound(self.row, values))
            chars += len(written[-1])
            if len(written) == MAX_ROWS or chars > MAX_CHARS:
                yield self.head + ", ".join(written)
                written.clear()
                chars = 0
        if written:
            yield self.head + ", ".join(written)


def row_template(sql: str) -> RowTemplate | None:
    """The form of `INSERT … VALUES (…)` with one row in which all parameters are, and nothing after it, else None.

    >>> row_template("insert into t (a, b) values (?, upper(?));")
    RowTemplate(head='insert into t (a, b) values ', row='(?, upper(?))')
    """
    try:
        tokens = tokenized(sql)
    except SqlError:
        return None
    while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        tokens.pop()
    values = [place for place, token in enumerate(tokens) if token.token_type == TokenType.VALUES]
    if not tokens or tokens[0].token_type != TokenType.INSERT or len(values) != 1:
        return None
    if tokens[1].text.upper() == "OVERWRITE":  # the rows of each execution take the place of those before
        return None
    row = tokens[values[0] + 1 :]
    if not row or not _is_one_group(row):
        return None
    start, stop = row[0].start, row[-1].end + 1
    if any(place.start < start for place in places_of(sql)):
        return None
    return RowTemplate(head=sql[:start], row=sql[start:stop])


def _is_one_group(tokens: list[Token]) -> bool:
    """Whether the tokens are one pair of parentheses and what is in it."""
    depth = 0
    for place, token in enumerate(tokens):
        depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
        if depth == 0:
            return place == len(tokens) - 1 and place > 0
    return False
