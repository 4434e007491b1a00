"""The values of an INSERT … VALUES, each as one of the column that it is meant for; pure.

In a query all values of a column have one type: `1` and `1.50` are 1.00 and 1.50. Those of an INSERT have not: the
engine makes each of them a value of the column by itself, so that a column of text gets '1' and '1.50'. A row without
names, `row(1, 'a')`, is a struct of the column's fields by their places; in an answer it has names that nobody gave it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from attrs import frozen
from sqlglot.tokenizer_core import Token, TokenType

from ballista_py.sql.parse.kind import tokens_of

_NULL, _DEFAULT = "null", "default"
_STRUCT = "STRUCT("  # the type of a column, of its elements, or of a part of those
_ROW = re.compile(r"\brow\s*\(", re.IGNORECASE)
_STEPS = {
    TokenType.L_PAREN: 1, TokenType.L_BRACKET: 1, TokenType.L_BRACE: 1,
    TokenType.R_PAREN: -1, TokenType.R_BRACKET: -1, TokenType.R_BRACE: -1,
}  # fmt: skip


@frozen
class Meant:
    """What a column of VALUES is meant for: its type and its default, as SQL."""

    kind: str
    default: str | None = None


def with_values_converted(query: str, meant: Sequence[Meant]) -> str:
    """VALUES with a cast of each value where those of one column could have different types, and without DEFAULT.

    Any other query is as it was, so is what has other than one value for each column.

    >>> with_values_converted("values (1, 'a'), (1.50, 'b')", [Meant("VARCHAR"), Meant("VARCHAR")])
    "values (cast(1\\n as VARCHAR), 'a'), (cast(1.50\\n as VARCHAR), 'b')"
    >>> with_values_converted("values (default), (2)", [Meant("INTEGER", "7")])
    'values (cast(7\\n as INTEGER)), (cast(2\\n as INTEGER))'
    >>> with_values_converted("values (row(1))", [Meant("STRUCT(a INTEGER)")])
    'values (cast(row(1)\\n as STRUCT(a INTEGER)))'
    >>> with_values_converted("select i, row(i) from t", [Meant("INTEGER"), Meant("STRUCT(a INTEGER)")])
    'select "1", cast("2" as STRUCT(a INTEGER)) as "2" from (\\nselect i, row(i) from t\\n) as "r "("1", "2")'
    >>> with_values_converted("values (1), (2)", [Meant("VARCHAR")])
    'values (1), (2)'
    """
    if query.lstrip().lstrip("(").lstrip()[:6].lower() != "values":
        return _with_rows_converted(query, meant) if _ROW.search(query) else query
    plain, tokens = tokens_of(query)
    rows = list(_rows(tokens))
    if any(len(row) != len(meant) for row in rows):
        return query
    forms: list[set[object]] = [set() for _ in meant]
    for row in rows:
        for form, (first, stop) in zip(forms, row, strict=True):
            form.add(_form(tokens, first, stop))
    mixed = [
        _DEFAULT in form or len(form - {_NULL}) > 1 or _STRUCT in one.kind
        for form, one in zip(forms, meant, strict=True)
    ]
    if not any(mixed):
        return query
    made, place = [], 0
    for row in rows:
        for (first, stop), one, is_mixed in zip(row, meant, mixed, strict=True):
            if is_mixed:
                start, end = tokens[first].start, tokens[stop - 1].end + 1
                value = (one.default or "null") if _form(tokens, first, stop) == _DEFAULT else plain[start:end]
                made += [plain[place:start], f"cast({value}\n as {one.kind})"]
                place = end
    return "".join((*made, plain[place:]))


def _with_rows_converted(query: str, meant: Sequence[Meant]) -> str:
    """A query in which rows without names become structs by their places, as in an INSERT, while they are rows."""
    if not any(_STRUCT in one.kind for one in meant):
        return query
    names = [f'"{place}"' for place in range(1, len(meant) + 1)]
    values = [
        f"cast({name} as {one.kind}) as {name}" if _STRUCT in one.kind else name
        for name, one in zip(names, meant, strict=True)
    ]
    return f'select {", ".join(values)} from (\n{query}\n) as "r "({", ".join(names)})'


def _rows(tokens: Sequence[Token]) -> Iterator[list[tuple[int, int]]]:
    """Of each row where its values are: from which token to before which."""
    place = next(n for n, token in enumerate(tokens) if token.token_type == TokenType.VALUES) + 1
    row: list[tuple[int, int]] = []
    depth = 0
    first = place + 1
    for n in range(place, len(tokens)):
        depth += _STEPS.get(tokens[n].token_type, 0)
        if depth == 1 and tokens[n].token_type == TokenType.COMMA:
            row.append((first, n))
            first = n + 1
        elif depth == 0 and tokens[n].token_type == TokenType.R_PAREN:
            yield [*row, (first, n)]
            row, first = [], n + 3  # behind the bracket, a comma and another bracket
        elif depth < 0:
            return


def _form(tokens: Sequence[Token], first: int, stop: int) -> object:
    """What tells the type of a value."""
    token = tokens[first]
    if stop - first == 2 and token.token_type == TokenType.DASH:
        first += 1
    return _word(tokens[first]) if stop - first == 1 else tuple(map(_word, tokens[first:stop]))


def _word(token: Token) -> object:
    if token.token_type == TokenType.STRING:
        return "'"
    if token.token_type != TokenType.NUMBER:
        return token.text.lower()
    number = token.text.lower()
    return "e" if "e" in number else len(number.partition(".")[2]) if "." in number else -1
