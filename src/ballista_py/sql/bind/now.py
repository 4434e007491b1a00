"""The moment of a statement: what `now()` and `current_date` are, said once, so that legs may compute with it."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import attrs
from sqlglot import exp

from ballista_py.sql.bind.query import Expr
from ballista_py.sql.parse.text import Statement
from ballista_py.sql.plan import Catalog

_CALLS = frozenset(("now", "get_current_timestamp", "transaction_timestamp"))
_WORDS = frozenset(("current_timestamp", "current_date"))  # columns may be called so, too
_MENTIONED = re.compile(rf"\b({'|'.join(sorted(_CALLS | _WORDS | {'today'}))})\b", re.IGNORECASE)


def mentions_moment(sql: str) -> bool:
    """Whether a plan of the statement may depend on the time at which it was made.

    >>> mentions_moment("select now()"), mentions_moment("select known from t")
    (True, False)
    """
    return _MENTIONED.search(sql) is not None


def at_moment(statement: Statement, catalog: Catalog, moment_ms: int) -> Statement | None:
    """The statement with that moment as a constant; None if there is nothing to replace, or a name in doubt."""
    tree = statement.tree
    if tree is None or not mentions_moment(statement.text):
        return None
    if any(node.name.lower() in _WORDS for node in tree.find_all(exp.Identifier)):
        return None
    if any(name.lower() in _WORDS for table in catalog.tables.values() for name in table.schema.names):
        return None
    moment = datetime.fromtimestamp(moment_ms / 1e3, UTC)
    found: list[Expr] = []

    def replaced(node: Expr) -> Expr:
        made = _constant(node, moment)
        if made is not None:
            found.append(node)
        return node if made is None else made

    fresh = tree.transform(replaced)
    return attrs.evolve(statement, tree=fresh) if found else None


def said(moment_ms: int) -> str:
    """The moment in words, for the notes of a plan."""
    return f"the moment of the statement is {_text(datetime.fromtimestamp(moment_ms / 1e3, UTC))}"


def _constant(node: Expr, moment: datetime) -> Expr | None:
    if node.args.get("this") is not None and not isinstance(node, exp.Anonymous):
        return None
    called = isinstance(node, exp.Anonymous) and str(node.this).lower() in _CALLS and not node.expressions
    if called or isinstance(node, exp.CurrentTimestamp):
        return _cast(_text(moment), "TIMESTAMPTZ")
    if isinstance(node, exp.CurrentDate):
        return _cast(moment.date().isoformat(), "DATE")
    return None


def _cast(text: str, type_name: str) -> Expr:
    return exp.Cast(this=exp.Literal.string(text), to=exp.DataType.build(type_name, dialect="duckdb"))


def _text(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1_000:03}+00"
