"""From a parsed statement to a bound query: every name resolved, every `*` and alias expanded.

What it does not understand raises `UnplannableError`. Binding consumes the parsed tree.
"""

from __future__ import annotations

from collections import Counter

import attrs
from sqlglot import exp

from ballista_py.errors import SqlError
from ballista_py.planning.sql.clauses import bind_select, bound, int_literal, only
from ballista_py.planning.sql.expressions import conjuncts, free_aliases
from ballista_py.planning.sql.names import CommonTable, Scope, visible
from ballista_py.planning.sql.query import (
    Draft,
    Expr,
    JoinKind,
    Query,
    Relation,
    Scan,
    Select,
    SetKind,
    SetOperation,
    Shared,
    SharedScan,
    Source,
    UnplannableError,
    ValuesList,
    renamed,
)

_SET_KINDS: dict[type[Expr], SetKind] = {exp.Union: "union", exp.Intersect: "intersect", exp.Except: "except"}
_CONSTANTS = (exp.Literal, exp.Null, exp.Boolean, exp.Neg, exp.Cast, exp.DataType, exp.DataTypeParam)


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
        sources = self._sources(node, scope)
        return bind_select(self, node, scope, sources)

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
                query = renamed(query, (*labels, *query.names[len(labels) :]))
            query = _with_distinct_names(query)
            uses = self.table_uses[table.alias.lower()]
            if uses > 1 and free_aliases(query, self.draft):
                raise UnplannableError("a correlated common table expression with several uses")
            scope.common[table.alias.lower()] = CommonTable(table.alias, query, uses)

    def _sources(self, node: exp.Select, scope: Scope) -> tuple[Source, ...]:
        from_ = node.args.get("from_")
        if from_ is None:
            return ()
        sources = [self._source(from_.this, scope)]
        comma = False
        for join in node.args.get("joins") or ():
            only(join, "this", "on", "using", "side", "kind")
            kind = _join_kind(join)
            comma = comma or not (join.side or join.kind or join.args.get("on") or join.args.get("using"))
            if comma and kind in ("right", "full"):
                raise UnplannableError("a RIGHT or FULL JOIN beside a comma in FROM")
            sources.append(self._joined(join, kind, scope))
        return tuple(sources)

    def _joined(self, join: exp.Join, kind: JoinKind, scope: Scope) -> Source:
        source = self._source(join.this, scope)
        on: list[Expr] = []
        using = join.args.get("using")
        if using:
            on = self._using([key.name.lower() for key in using], kind, scope)
        elif join.args.get("on") is not None:
            on = list(conjuncts(bound(self, join.args["on"], scope)))
        return attrs.evolve(source, join=kind, on=tuple(on))

    def _using(self, keys: list[str], kind: JoinKind, scope: Scope) -> list[Expr]:
        if kind not in ("inner", "left"):
            raise UnplannableError(f"{kind.upper()} JOIN with USING")
        right = scope.sources.pop()
        pairs = [(scope.own(key, None), right.columns.get(key)) for key in keys]
        scope.sources.append(attrs.evolve(right, hidden=frozenset(keys)))
        on: list[Expr] = []
        for key, (left, _) in zip(keys, pairs, strict=True):
            right_column = scope.own(key, right.name)
            if left is None or right_column is None:
                raise UnplannableError(f"USING names '{key}', which is not on both sides")
            on.append(exp.EQ(this=left, expression=right_column))
        return on

    def _source(self, node: Expr, scope: Scope) -> Source:
        """Bind one FROM item and make it visible in `scope`."""
        if isinstance(node, exp.Table):
            only(node, "this", "alias", "db")
            relation, name = self._table(node, scope), node.alias_or_name
        elif isinstance(node, exp.Values):
            only(node, "expressions", "alias")
            relation, name = _values(node), node.alias
        elif isinstance(node, exp.Subquery):
            only(node, "this", "alias")
            relation, name = _with_distinct_names(self.query(node.this, scope)), node.alias
            if free_aliases(relation, self.draft):
                raise UnplannableError("a lateral subquery")
        else:
            raise UnplannableError(f"{node.key.upper()} in FROM")
        alias = self.draft.new_alias(name or "t")
        source = Source(alias=alias, relation=relation)
        self.draft.sources[alias] = source
        labels = node.args["alias"].args.get("columns") if node.args.get("alias") else None
        shown = tuple(label.name for label in labels) if labels else None
        if any(seen.name == name.lower() for seen in scope.sources if name):
            raise UnplannableError(f"two tables named '{name}' in one FROM")
        scope.sources.append(visible(name, source, shown))
        return source

    def _table(self, node: exp.Table, scope: Scope) -> Relation:
        if not isinstance(node.this, exp.Identifier) or node.db.lower() not in ("", "main"):
            raise UnplannableError(f"{node.sql('duckdb')} in FROM")
        name = node.name.lower()
        common = None if node.db else scope.common_table(name)
        if common is not None:
            return self._use(common)
        table = self.draft.catalog.tables.get(name)
        if table is None:
            raise unknown_table(node.this)
        return Scan(table)

    def _use(self, common: CommonTable) -> Relation:
        if common.uses == 1:
            return common.query
        for shared in self.draft.shared:
            if shared.query is common.query:
                return SharedScan(shared)
        shared = Shared(name=self.draft.new_alias(common.name), query=common.query)
        self.draft.shared.append(shared)
        self.draft.sources[shared.name] = Source(alias=shared.name, relation=common.query)
        return SharedScan(shared)


def _with_distinct_names(query: Query) -> Query:
    """Of several outputs with one name the first keeps it, as in the engine; the others cannot be named."""
    seen: set[str] = set()
    names = []
    for place, name in enumerate(query.names):
        names.append(name if name.lower() not in seen else f"{name}:{place}")
        seen.add(name.lower())
    return query if tuple(names) == query.names else renamed(query, tuple(names))


def unknown_table(node: exp.Identifier) -> SqlError:
    """The error for a table that the catalog does not have, with its place in the text."""
    line, column = position_of(node)
    where = f" (line {line}, column {column})" if line else ""
    return SqlError(f"Table '{node.name}' does not exist{where}", table=node.name, line=line, column=column)


def position_of(node: exp.Identifier) -> tuple[int, int]:
    """Line and column, from 1, where an identifier starts; (0, 0) if the parser did not say."""
    meta = node.meta
    if "line" not in meta:
        return 0, 0
    return int(meta["line"]), int(meta["col"]) - (int(meta["end"]) - int(meta["start"]))


def _join_kind(join: exp.Join) -> JoinKind:
    side, kind = (join.side or "").upper(), (join.kind or "").upper()
    if kind not in ("", "INNER", "OUTER", "CROSS") or side not in ("", "LEFT", "RIGHT", "FULL"):
        raise UnplannableError(f"{side} {kind} JOIN".strip())
    return side.lower() or "inner"  # type: ignore[return-value]


def _values(node: exp.Values) -> ValuesList:
    rows = tuple(tuple(row.expressions) for row in node.expressions if isinstance(row, exp.Tuple))
    if len(rows) != len(node.expressions) or len({len(row) for row in rows}) != 1:
        raise UnplannableError("VALUES of uneven rows")
    if not all(isinstance(part, _CONSTANTS) for row in rows for value in row for part in value.walk()):
        raise UnplannableError("VALUES that are not constants")
    return ValuesList(names=tuple(f"col{i}" for i in range(len(rows[0]))), rows=rows)


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
