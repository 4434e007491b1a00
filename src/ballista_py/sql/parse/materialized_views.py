"""CREATE, DROP and REFRESH of MATERIALIZED VIEW: a table whose rows are those of a query; pure.

Such a table is declared as CREATE TABLE … AS declares one, so the words that tell the two apart are exchanged for
TABLE, at the same places of the text, and whoever reads CREATE TABLE and DROP TABLE reads these.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen
from sqlglot.tokenizer_core import Token, TokenType

from ballista_py.errors import SqlError
from ballista_py.sql.parse.statement_text import StatementText
from ballista_py.sql.parse.table_names import plain_table

_NAMES = (TokenType.STRING, TokenType.IDENTIFIER)


@frozen(kw_only=True)
class RefreshView:
    """The rows of a materialized view are to be made anew, now."""

    view: str


def as_of_table(text: str, tokens: Sequence[Token]) -> str | None:
    """CREATE or DROP MATERIALIZED VIEW as the statement of a table, of the same length; None for any other.

    >>> from ballista_py.sql.parse.kind import tokens_of
    >>> as_of_table(*tokens_of("drop materialized view v"))
    'drop TABLE             v'
    >>> as_of_table(*tokens_of("drop table v")) is None
    True
    """
    first = _word(tokens, 0)
    place = 3 if first == "CREATE" and (_word(tokens, 1), _word(tokens, 2)) == ("OR", "REPLACE") else 1
    words = _word(tokens, place), _word(tokens, place + 1)
    if first not in ("CREATE", "DROP") or words != ("MATERIALIZED", "VIEW"):
        return None
    start, end = tokens[place].start, tokens[place + 1].end + 1
    return text[:start] + "TABLE".ljust(end - start) + text[end:]


def read_refresh(text: StatementText) -> RefreshView | None:
    """What REFRESH MATERIALIZED VIEW says; None for another statement. Raises `SqlError` for more than a name."""
    if [_word(text.tokens, place) for place in range(3)] != ["REFRESH", "MATERIALIZED", "VIEW"]:
        return None
    rest = text.tokens[3:]
    end = next((place for place in range(1, len(rest), 2) if rest[place].token_type != TokenType.DOT), len(rest))
    if not rest or end < len(rest):
        word = rest[end].text.upper() if rest else "nothing behind it"
        raise SqlError(f"REFRESH MATERIALIZED VIEW with {word[:80]} cannot be run here: say its name alone")
    return RefreshView(view=plain_table(rest))


def _word(tokens: Sequence[Token], place: int) -> str:
    """The word at a place; nothing for a name in quotes, and where there is none."""
    if place >= len(tokens) or tokens[place].token_type in _NAMES:
        return ""
    return tokens[place].text.upper()
