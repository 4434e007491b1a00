"""The values of an INSERT … VALUES, each as one of the column that it is meant for; pure.

In a query all values of a column have one type: `1` and `1.50` are 1.00 and 1.50. Those of an INSERT have not: the
engine makes each of them a value of the column by itself, so that a column of text gets '1' and '1.50'. A row without
names, `row(1, 'a')`, is a struct of the column's fields by their places; in an answer it has names that nobody gave it.
A map without entries, `map {}`, is one of the column's type; in an answer its keys would have none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from attrs import frozen
from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from ballista_py.errors import SqlError
from ballista_py.sql.parse.edits import Edit
from ballista_py.sql.parse.kind import tokens_of
from ballista_py.sql.parse.parsing import SqlglotError, parsed_one

_NULL, _DEFAULT = "null", "default"
_PARTED = ("STRUCT(", "MAP(")  # in the type of a column, of its elements, or of a part of those
_UNNAMED = re.compile(r"\brow\s*\(|\bmap\s*[({]", re.IGNORECASE)
_STEPS = {
    TokenType.L_PAREN: 1, TokenType.L_BRACKET: 1, TokenType.L_BRACE: 1,
    TokenType.R_PAREN: -1, TokenType.R_BRACKET: -1, TokenType.R_BRACE: -1,
}  # fmt: skip


@frozen
class Meant:
    """What a column of VALUES is meant for: its type and its default, as SQL."""

    kind: str
    default: str | None = None


def needs_conversion(query: str) -> bool:
    """Whether anything of a query that is no VALUES may be converted, told by its words."""
    return _UNNAMED.search(query) is not None


def names_of_columns(query: str) -> tuple[str, ...]:
    """What a query calls its columns; nothing if they cannot be told from its text.

    >>> names_of_columns("select 1 as a, t.b from t"), names_of_columns("select *, 2 as c from t")
    (('a', 'b'), ())
    """
    try:
        tree = parsed_one(query)
    except (SqlError, SqlglotError):
        return ()
    names = tuple(tree.named_selects) if isinstance(tree, exp.Query) else ()
    return () if any(name in ("", "*") for name in names) else names


def conversions(query: str, meant: Sequence[Meant], names: Sequence[str] = ()) -> tuple[Edit, ...]:
    """What makes each value one of its column, where those of one column could have different types, and DEFAULT one.

    Nothing for other queries, nor for what has other than one value for each column. With `names` the columns of a
    query are called so.

    >>> from ballista_py.sql.parse.edits import edited
    >>> def converted(query, *meant):
    ...     return edited(query, conversions(query, meant))
    >>> converted("values (1, 'a'), (1.50, 'b')", Meant("VARCHAR"), Meant("VARCHAR"))
    "values (cast(1 as VARCHAR), 'a'), (cast(1.50 as VARCHAR), 'b')"
    >>> converted("values (default), (2)", Meant("INTEGER", "7"))
    'values (cast(7\\n as INTEGER)), (cast(2 as INTEGER))'
    >>> converted("values (row(1))", Meant("STRUCT(a INTEGER)"))
    'values (cast(row(1) as STRUCT(a INTEGER)))'
    >>> converted("select i, row(i) from t", Meant("INTEGER"), Meant("STRUCT(a INTEGER)"))
    'select "1", cast("2" as STRUCT(a INTEGER)) as "2" from (select i, row(i) from t\\n) as "r "("1", "2")'
    >>> converted("values (1), (2)", Meant("VARCHAR"))
    'values (1), (2)'
    """
    if query.lstrip().lstrip("(").lstrip()[:6].lower() != "values":
        return _of_query(query, meant, names) if needs_conversion(query) else ()
    tokens = tokens_of(query)[1]
    rows = list(_rows(tokens))
    if any(len(row) != len(meant) for row in rows):
        return ()
    forms: list[set[object]] = [set() for _ in meant]
    for row in rows:
        for form, (first, stop) in zip(forms, row, strict=True):
            form.add(_form(tokens, first, stop))
    mixed = [
        _DEFAULT in form or len(form - {_NULL}) > 1 or _has_parts(one.kind)
        for form, one in zip(forms, meant, strict=True)
    ]
    made: list[Edit] = []
    for row in rows:
        for (first, stop), one, is_mixed in zip(row, meant, mixed, strict=True):
            if not is_mixed:
                continue
            start, end = tokens[first].start, tokens[stop - 1].end + 1
            if _form(tokens, first, stop) == _DEFAULT:
                made.append((start, end, f"cast({one.default or 'null'}\n as {one.kind})"))
            else:
                made += [(start, start, "cast("), (end, end, f" as {one.kind})")]
    return tuple(made)


def _has_parts(kind: str) -> bool:
    return any(part in kind for part in _PARTED)


def _of_query(query: str, meant: Sequence[Meant], names: Sequence[str]) -> tuple[Edit, ...]:
    """What makes rows without names, and maps without entries, those of the columns, as an INSERT does by itself."""
    if not any(_has_parts(one.kind) for one in meant):
        return ()
    places = [f'"{place}"' for place in range(1, len(meant) + 1)]
    called = ['"' + name.replace('"', '""') + '"' for name in names] or places
    values = [
        f"cast({place} as {one.kind}) as {name}"
        if _has_parts(one.kind)
        else place + (f" as {name}" if names else "")
        for place, name, one in zip(places, called, meant, strict=True)
    ]
    start = len(query) - len(query.lstrip())
    return (
        (start, start, f"select {', '.join(values)} from ("),
        (len(query), len(query), f'\n) as "r "({", ".join(places)})'),
    )


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
