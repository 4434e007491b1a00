"""Names for the columns that a query computes from parameters: a value in a parameter's place changes no name."""

from __future__ import annotations

from collections.abc import Sequence

from ballista_py.sql.parse.edits import edited
from ballista_py.sql.parse.kind import tokens_of, verb_place
from ballista_py.sql.parse.statement_text import StatementText

# What can follow the list of a SELECT, as the tokenizer cuts it.
_ENDS = frozenset((
    "FROM", "WHERE", "GROUP", "GROUP BY", "HAVING", "QUALIFY", "WINDOW", "ORDER", "ORDER BY", "LIMIT", "OFFSET",
    "UNION", "INTERSECT", "EXCEPT", "USING SAMPLE", "USING",
))  # fmt: skip


def with_named_columns(sql: str, names: Sequence[str | None]) -> str:
    """The query with `AS` and its name behind each item of its list that is given one here.

    The text as it is where the list cannot be told, or has another length than `names`.

    >>> with_named_columns("select a, ? + 1 -- one more\\n from t", (None, "($1 + 1)"))
    'select a, ? + 1 AS "($1 + 1)" -- one more\\n from t'
    >>> with_named_columns("select a is distinct from ?", ("(a IS DISTINCT FROM $1)",))
    'select a is distinct from ? AS "(a IS DISTINCT FROM $1)"'
    """
    if not any(names):
        return sql
    statement = StatementText(*tokens_of(sql))
    tokens, verb = statement.tokens, verb_place(statement.tokens)
    words = [*statement.top_level(verb)]
    first = next((place for place, word in words if word == "SELECT"), None)
    if first is None:
        return sql
    last = next((place for place, word in words if place > first and _is_end(statement, place, word)), len(tokens))
    ends = [stop - 1 for _, stop in statement.pieces(first, last)]
    if len(ends) != len(names):
        return sql
    places = ((tokens[end].end + 1, name) for end, name in zip(ends, names, strict=True) if name is not None)
    return edited(sql, ((place, place, f' AS "{name.replace(chr(34), 2 * chr(34))}"') for place, name in places))


def _is_end(statement: StatementText, place: int, word: str) -> bool:
    """Whether the list ends before a word; `a IS DISTINCT FROM b` goes on."""
    is_part = word == "FROM" and statement.says(place - 1, "DISTINCT")
    return word in _ENDS and not is_part


__all__ = ["with_named_columns"]
