"""A text of several statements, one after the other: where each begins, and whether the last one is whole."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen
from sqlglot.tokenizer_core import TokenType

from ballista_py.errors import SqlError
from ballista_py.sql.parse.parsing import tokenized


@frozen
class ScriptStatement:
    """One statement of a script, without its semicolon; `line` is where it begins, from 1 on."""

    text: str
    line: int


def statements_of(script: str) -> tuple[ScriptStatement, ...]:
    """The statements of a script, which are parted by semicolons; those of blanks and comments alone are left out.

    Raises `SqlError` for a script that is too long, or ends amid a text in quotes or a comment.

    >>> [(one.line, one.text) for one in statements_of("select ';';\\n-- done\\nselect 2")]
    [(1, "select ';'"), (3, 'select 2')]
    """
    return tuple(_statements(script))


def is_whole(text: str) -> bool:
    """Whether a text ends with a semicolon, so that nothing more of its last statement is to come.

    >>> is_whole("select 1;"), is_whole("select ';"), is_whole("select 1 -- ;")
    (True, False, False)
    """
    try:
        tokens = tokenized(text)
    except SqlError:  # amid quotes or a comment
        return False
    return bool(tokens) and tokens[-1].token_type is TokenType.SEMICOLON


def _statements(script: str) -> Iterator[ScriptStatement]:
    first, last = -1, -1  # places in the script
    for token in tokenized(script):
        if token.token_type is not TokenType.SEMICOLON:
            first, last = token.start if first < 0 else first, token.end
        elif first >= 0:
            yield _statement(script, first, last)
            first = -1
    if first >= 0:
        yield _statement(script, first, last)


def _statement(script: str, first: int, last: int) -> ScriptStatement:
    return ScriptStatement(script[first : last + 1], script.count("\n", 0, first) + 1)
