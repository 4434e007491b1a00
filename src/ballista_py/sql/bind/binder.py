"""From a parsed statement to a bound query: every name resolved, every `*` and alias expanded.

What it does not understand raises `UnplannableError`. Binding consumes the parsed tree.
"""

from __future__ import annotations

from collections import Counter

import attrs
from sqlglot import exp

from ballista_py.sql.bind.clauses import CommonTable, Scope, bind_select, int_literal, only
from ballista_py.sql.bind.expressions import free_aliases
from ballista_py.sql.bind.from_items import FromBinder, with_distinct_names
from ballista_py.sql.bind.query import (
    Draft,
    Expr,
    Query,
    Select,
    SetKind,
    SetOperation,
    UnplannableError,
    renamed,
)

MAX_TABLES = 300
_SET_KINDS: dict[type[Expr], SetKind] = {exp.Union: "union", exp.Intersect: "intersect", exp.Except: "except"}


def bind(statement: Expr, draft: Draft) -> Query:
    """The bound form of a parsed query.

    Raises `SqlError` for a table that the catalog does not have and `UnplannableError` for what is not understood.
    """
    return _Binder(draft, statement).query(statement, None)


class _Binder:
    def __init__(self, draft: Draft, statement: Expr) -> None:
        self.draft = draft
        names = (table.name.lower() for table in statement.find_all(exp.Table))
        self.table_uses = Counter(names)
        if self.table_uses.total() > MAX_TABLES:
            raise UnplannableError(f"more than {MAX_TABLES} tables")

    def query(self, node: Expr, parent: Scope | None) -> Query:
        if isinstance(node, exp.Subquery):
            only(node, "this", "alias")
            return self.query(node.this, parent)
        if isinstance(node, exp.Select):
            return self._select(node, parent)
        if isinstance(node, exp.SetOperation):
            return self._set_operation(node, parent)
        raise UnplannableError(f"a query of the form {node.key.upper()}")

    def _select(self, node: exp.Select, parent: Scope | None) -> Select:
        only(
            node, "with_", "expressions", "from_", "joins", "where", "group", "having", "qualify", "windows",
            "distinct", "order", "limit", "offset",
        )  # fmt: skip
        scope = Scope(parent=parent)
        self._common_tables(node, scope)
        items = FromBinder(self, scope)
        items.bind(node)
        select = bind_select(self, node, scope, tuple(items.sources))
        return attrs.evolve(select, where=(*items.where, *select.where)) if items.where else select

    def _set_operation(self, node: exp.SetOperation, parent: Scope | None) -> SetOperation:
        only(node, "with_", "this", "expression", "distinct", "order", "limit", "offset")
        scope = Scope(parent=parent)
        self._common_tables(node, scope)
        left, right = self.query(node.this, scope), self.query(node.expression, scope)
        if len(left.names) != len(right.names):
            raise UnplannableError("set operation over different numbers of columns")
        operation = SetOperation(
            kind=_SET_KINDS[type(node)],
            distinct=bool(node.args.get("distinct")),
            left=left,
            right=right,
            limit=int_literal(node.args.get("limit")),
            offset=int_literal(node.args.get("offset")) or 0,
        )
        order = node.args.get("order")
        return attrs.evolve(operation, order=_positions(order, operation)) if order else operation

    def _common_tables(self, node: Expr, scope: Scope) -> None:
        with_ = node.args.get("with_")
        if with_ is None:
            return
        only(with_, "expressions")
        for table in with_.expressions:
            only(table, "this", "alias", "materialized")
            query = self.query(table.this, scope)
            labels = [column.name for column in table.args["alias"].args.get("columns") or ()]
            if labels:
                query = renamed(query, (*labels[: len(query.names)], *query.names[len(labels) :]))
            query = with_distinct_names(query)
            uses = self.table_uses[table.alias.lower()]
            if uses > 1 and free_aliases(query, self.draft):
                raise UnplannableError("a correlated common table expression with several uses")
            scope.common[table.alias.lower()] = CommonTable(table.alias, query, uses)


def _positions(order: exp.Order, operation: SetOperation) -> tuple[tuple[int, bool, bool], ...]:
    names = [name.lower() for name in operation.names]
    terms = []
    for term in order.expressions:
        only(term, "this", "desc", "nulls_first")
        key = term.this
        if isinstance(key, exp.Literal) and key.is_int:
            position = int(key.name) - 1
        elif isinstance(key, exp.Column) and not key.table and names.count(key.name.lower()) == 1:
            position = names.index(key.name.lower())
        else:
            raise UnplannableError("ORDER BY of a set operation over something else than its columns")
        terms.append((position, bool(term.args.get("desc")), bool(term.args.get("nulls_first"))))
    return tuple(terms)
