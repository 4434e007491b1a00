"""Whether a change gives rows, told by its words: for clients and ports, before anybody parses it."""

from __future__ import annotations

from sqlglot.tokenizer_core import TokenType

from ballista_py.errors import SqlError
from ballista_py.sql.parse.kind import statement_kind
from ballista_py.sql.parse.parsing import tokenized

_NAMES = (TokenType.STRING, TokenType.IDENTIFIER)
_STEPS = {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}


def returns_rows(sql: str, dialect: str | None = None) -> bool:
    """Whether the text is a change with a RETURNING clause.

    >>> returns_rows("delete from t returning id"), returns_rows("select 1 as returning"), returns_rows("delete from t")
    (True, False, False)
    """
    if "returning" not in sql.lower():
        return False
    try:
        if statement_kind(sql, dialect) != "change":
            return False
        tokens = tokenized(sql, dialect)
    except (SqlError, ValueError):  # whoever runs it says what is wrong
        return False
    depth = 0
    for token in tokens:
        depth += _STEPS.get(token.token_type, 0)
        if depth == 0 and token.token_type not in _NAMES and token.text.upper() == "RETURNING":
            return True
    return False
