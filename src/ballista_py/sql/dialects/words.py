"""The words of another dialect's text before they are parsed: what the parser would take for something else.

Functions on the dialect's list get a mark before their names, so that the parser makes nothing else of them; texts get
the characters that they stand for; what the parser drops without saying so is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot.tokenizer_core import Token, TokenType

from ballista_py.sql.dialects.translation import function_names
from ballista_py.sql.dialects.typed import refused

_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_MEANT = {"\\": "\\", "'": "'", '"': '"', "n": "\n", "t": "\t", "r": "\r", "%": "\\%", "_": "\\_"}
_BETWEEN_WORDS = {"trim": "FROM", "substring": "FROM", "substr": "FROM", "position": "IN"}
_BEFORE_NAMES = frozenset(("INTO", "TABLE", "EXISTS", "WITH", "UPDATE", "."))


def marked(tokens: Sequence[Token], sql: str, dialect: str) -> list[Token]:
    """The words with marks before the functions that are read. Raises `UnsupportedExpression` for what is dropped."""
    names, made = function_names(dialect), list[Token]()
    for place, token in enumerate(tokens):
        follows = tokens[place + 1].token_type if place + 1 < len(tokens) else None
        if token.token_type == TokenType.STRING:
            token = _text(token, sql, dialect)
            before = made[-1] if made else None
            if dialect == "spark" and before is not None and _doubled(before, token, sql):
                made[-1] = _with(before, TokenType.STRING, before.text + sql[token.start] + token.text, token.end)
                continue
        elif follows == TokenType.L_PAREN and token.token_type != TokenType.IDENTIFIER:
            lower = token.text.lower()
            _require_kept(lower, dialect)
            before_text = tokens[place - 1].text.upper() if place else ""
            if lower in names and before_text not in _BEFORE_NAMES and not _has_words(tokens, place, lower):
                token = _with(token, TokenType.VAR, "\x01" + lower, token.end)
        made.append(token)
    return made


def _require_kept(name: str, dialect: str) -> None:
    if dialect == "spark" and name in ("try_cast", "varchar", "char"):
        hint = "write string" if name != "try_cast" else ""
        raise refused(name, dialect, hint)
    if dialect == "postgres" and name == "div":  # of which the parser makes casts and a division
        raise refused(name, dialect, "write a / b, which cuts a quotient of whole numbers off")


def _doubled(before: Token, token: Token, sql: str) -> bool:
    """Whether two texts are one with a quote in it."""
    return (
        before.token_type == TokenType.STRING
        and before.end + 1 == token.start
        and sql[before.end] == sql[token.start]
        and sql[token.start] in "'\""
    )


def _text(token: Token, sql: str, dialect: str) -> Token:
    raw = sql[token.start : token.end + 1]
    if dialect != "spark" or "\\" not in raw:
        return token
    if raw[0] not in "'\"" or any(found not in _MEANT for found in _ESCAPED.findall(raw[1:-1])):
        raise refused(raw, dialect, "write its characters themselves")
    text = _ESCAPED.sub(lambda found: _MEANT[found[1]], raw[1:-1])
    return _with(token, TokenType.STRING, text, token.end)


def _with(token: Token, kind: TokenType, text: str, end: int) -> Token:
    return Token(kind, text, token.line, token.col, token.start, end, token.comments)


def _has_words(tokens: Sequence[Token], place: int, name: str) -> bool:
    """Whether a call has words between its arguments, as in `trim(both 'x' from y)`."""
    word, depth = _BETWEEN_WORDS.get(name), 0
    if word is None:
        return False
    for token in tokens[place + 1 :]:
        depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
        if depth == 0:
            return False
        if depth == 1 and token.text.upper() == word:
            return True
    return False
