"""A change as a query: one that computes and reads all that the change does, for whoever can judge queries only."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from ballista_py.sql.bind.query import Expr
from ballista_py.sql.parse.engine_words import for_parser
from ballista_py.sql.parse.parsing import ENGINE_DIALECT, parsed_one


def probe(sql: str) -> str:
    """A SELECT with every expression, every query and every relation of an UPDATE, DELETE, MERGE or INSERT.

    It is there to be read, not to be run: its columns may not even bind. Raises `SqlError` and `ParseError`.

    >>> probe("update t set a = upper(b) from u where t.i < u.i")
    'SELECT NULL, a, (UPPER(b)), t.i < u.i FROM t, u'
    """
    tree = parsed_one(for_parser(sql))
    expressions: list[Expr] = [exp.null()]
    relations: list[Expr] = []
    for piece in _pieces(tree):
        if isinstance(piece, exp.Table) or _is_join(piece):
            relations.append(piece.copy())
        elif isinstance(piece, exp.Query) and not isinstance(piece, exp.Subquery):
            expressions.append(exp.Subquery(this=piece.copy()))
        else:
            # What is set may be a comparison, which is none behind another `=`.
            sides = [piece.this, exp.paren(piece.expression)] if isinstance(piece, exp.EQ) else [piece]
            expressions += [_without_default(side.copy()) for side in sides]
    query = exp.Select(expressions=expressions)
    with_ = tree.args.get("with_")
    if with_ is not None:
        query.set("with_", with_.copy())
    if relations:
        first, *others = relations
        query.set("from_", exp.From(this=first))
        query.set("joins", [exp.Join(this=other) for other in others])
    return query.sql(ENGINE_DIALECT)


def _pieces(node: Expr) -> Iterator[Expr]:
    """The largest parts of a change that are expressions, queries or relations."""
    for key, value in node.args.items():
        for part in value if isinstance(value, list) else [value]:
            if not isinstance(part, exp.Expr) or (key == "with_"):
                continue
            if isinstance(part, exp.Table | exp.Query | exp.Condition) and not isinstance(part, exp.Identifier):
                yield part
            else:
                yield from _pieces(part)


def _is_join(piece: Expr) -> bool:
    """Whether it is a join in brackets, which stands where a table does."""
    return isinstance(piece, exp.Subquery) and isinstance(piece.unnest(), exp.Table)


def _without_default(piece: Expr) -> Expr:
    def replaced(node: Expr) -> Expr:
        is_default = isinstance(node, exp.Column) and not node.table and node.name.lower() == "default"
        return exp.null() if is_default else node

    return piece.transform(replaced)
