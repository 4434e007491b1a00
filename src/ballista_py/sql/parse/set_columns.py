"""Which columns the UPDATE of a statement sets, be it the statement or a clause of a MERGE; pure."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from ballista_py.sql.parse.engine_words import for_parser
from ballista_py.sql.parse.parsing import SqlglotError, parsed_one


def may_set(sql: str, columns: frozenset[str]) -> bool:
    """Whether an UPDATE, or a clause of a MERGE, may set one of these columns; True where that cannot be told.

    >>> may_set("update t set v = id", frozenset(["id"])), may_set("update t set ID = 1", frozenset(["id"]))
    (False, True)
    >>> may_set("merge into t using s on t.id = s.id when matched then update set *", frozenset(["id"]))
    True
    >>> may_set("delete from t where id = 1", frozenset(["id"]))
    False
    """
    try:
        tree = parsed_one(for_parser(sql))
    except SqlglotError:
        return True
    wanted = {name.lower() for name in columns}
    return any(name is None or name.lower() in wanted for name in _set_in(tree))


def _set_in(tree: exp.Expr) -> Iterator[str | None]:
    """The columns that are set; None for those that have no name here."""
    clauses = [tree] if isinstance(tree, exp.Update) else []
    if isinstance(tree, exp.Merge):
        clauses = [when.args["then"] for when in tree.find_all(exp.When)]
    for clause in clauses:
        if isinstance(clause, exp.Update):
            items = clause.expressions
            if not items:
                yield None
            for item in items:
                target = item.this if isinstance(item, exp.EQ) else None
                parts = target.expressions if isinstance(target, exp.Tuple) else [target]
                yield from (part.name if isinstance(part, exp.Column) else None for part in parts)
        elif not isinstance(clause, exp.Insert | exp.Delete) and clause.name.upper() not in (
            "DELETE",
            "DO NOTHING",
        ):
            yield None
