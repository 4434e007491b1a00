"""Queries of another dialect: every clause read with the columns that it can name, every output column typed."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from ballista_py.errors import SqlError, UnsupportedExpression
from ballista_py.sql.dialects.aggregates import ordered
from ballista_py.sql.dialects.operators import condition
from ballista_py.sql.dialects.typed import Reader, Relation, Typed, TypedScope, refused, require_only
from ballista_py.sql.dialects.value_types import UNKNOWN, ValueType, common

_SELECT = (
    "with_", "expressions", "distinct", "from_", "joins", "where", "group", "having", "order", "limit", "offset",
)  # fmt: skip
_SET = ("with_", "this", "expression", "distinct", "order", "limit", "offset")
_SIDES = ("", "LEFT", "RIGHT", "FULL")
_KINDS = ("", "INNER", "OUTER", "CROSS")


def read_query(reader: Reader, node: exp.Expr, parent: TypedScope | None) -> Relation:
    """Rewrite a query in place; its columns."""
    if isinstance(node, exp.Subquery):
        require_only(node, reader.dialect, "this", "alias")
        return read_query(reader, node.this, parent)
    if isinstance(node, exp.Select):
        return _select(reader, node, parent)
    if isinstance(node, exp.Union | exp.Except | exp.Intersect):
        return _set_operation(reader, node, parent)
    if isinstance(node, exp.Values):
        return values(reader, node, parent)
    raise refused(node, reader.dialect)


def values(reader: Reader, node: exp.Expr, parent: TypedScope | None) -> Relation:
    """The rows of VALUES; each column of one type."""
    scope = TypedScope(parent)
    rows = []
    for row in node.expressions:
        cells = (
            row.expressions if isinstance(row, exp.Tuple) else [row.this if isinstance(row, exp.Paren) else row]
        )
        rows.append([reader.value(cell, scope) for cell in cells])
    kinds = []
    for column in zip(*rows, strict=True):
        kind = common([value.type for value in column])
        if kind is None:
            raise refused(node, reader.dialect, "write the values of a column in one type")
        kinds.append(kind)
    tuples = [exp.Tuple(expressions=[value.expr for value in row]) for row in rows]
    node.set("expressions", tuples)
    return Relation(tuple(("", kind) for kind in kinds))


def _select(reader: Reader, node: exp.Select, parent: TypedScope | None) -> Relation:
    require_only(node, reader.dialect, *_SELECT)
    scope = TypedScope(parent)
    _common_tables(reader, node, scope)
    read_from(reader, node, scope)
    distinct = node.args.get("distinct")
    if distinct is not None:
        require_only(distinct, reader.dialect)
    where, group, having = (node.args.get(key) for key in ("where", "group", "having"))
    if where is not None:
        where.set("this", condition(reader, where.this, scope))
    columns: list[tuple[str, ValueType]] = []
    items: list[exp.Expr] = []
    known = True
    for item in node.expressions:
        made, found, all_known = _item(reader, item, scope)
        items.append(made)
        columns += found
        known = known and all_known
    node.set("expressions", items)
    if group is not None:
        _group(reader, group, scope)
    if having is not None:
        having.set("this", condition(reader, having.this, scope))
    _tail(reader, node, scope, columns)
    return Relation(tuple(columns), known)


def _item(reader: Reader, item: exp.Expr, scope: TypedScope) -> tuple[exp.Expr, list[tuple[str, ValueType]], bool]:
    """An output, named as the dialect names it."""
    star = item if isinstance(item, exp.Star) else item.this if isinstance(item, exp.Column) else None
    if isinstance(star, exp.Star):
        require_only(star, reader.dialect)
        qualifier = item.args["table"].name.lower() if isinstance(item, exp.Column) else ""
        sources = [scope.sources.get(qualifier)] if qualifier else list(scope.sources.values())
        if any(source is None for source in sources):
            raise SqlError(f"there is no table '{qualifier}' in FROM")
        found = [source for source in sources if source is not None]
        return item, [column for source in found for column in source.columns], all(s.known for s in found)
    alias = item.alias if isinstance(item, exp.Alias) else ""
    name = alias or _name(item, reader.dialect)[:100]
    value = reader.value(item.this if alias else item, scope)
    quoted = bool(item.args["alias"].args.get("quoted")) if alias else True
    made = value.expr
    if alias or not isinstance(item, exp.Column):
        made = exp.Alias(this=value.expr, alias=exp.to_identifier(name, quoted=quoted))
    if alias:
        scope.aliases.setdefault(name.lower(), value.type)
    return made, [(name, value.type)], True


def _name(item: exp.Expr, dialect: str) -> str:
    """What an output without an alias is called."""
    if isinstance(item, exp.Column):
        return item.name
    if dialect == "postgres":
        inner = item
        while isinstance(inner, exp.Paren | exp.Cast | exp.Window | exp.Filter):
            inner = inner.this
        if isinstance(inner, exp.Column):
            return inner.name
        if isinstance(inner, exp.Anonymous):
            return str(inner.this)[1:]
        told: dict[type[exp.Expr], str] = {exp.Case: "case", exp.Extract: "extract", exp.Exists: "exists"}
        return told.get(type(inner), "?column?")
    if item.find(exp.Query, exp.Exists) is not None:
        return "scalarsubquery()"
    return item.sql(dialect, comments=False).replace("\x01", "")


_SETS = (exp.Tuple, exp.Cube, exp.Rollup, exp.GroupingSets)


def _group(reader: Reader, group: exp.Expr, scope: TypedScope) -> None:
    require_only(group, reader.dialect, "expressions")  # WITH ROLLUP and the like stand in others
    _require_named(reader, group)
    group.set("expressions", [_grouping(reader, item, scope) for item in group.expressions])


def _require_named(reader: Reader, group: exp.Expr) -> None:
    """Refuse sets of keys some of which are places and others names: the engine takes one column for two then."""
    keys = [key for item in group.expressions for key in _keys(item)]
    places = [key for key in keys if isinstance(key, exp.Literal)]
    if places and len(places) < len(keys) and any(isinstance(item, _SETS) for item in group.expressions):
        raise refused(places[0], reader.dialect, "name the column, as the other keys do")


def _keys(node: exp.Expr) -> Iterator[exp.Expr]:
    if isinstance(node, _SETS):
        for item in node.expressions:
            yield from _keys(item)
    else:
        yield node.unnest()


def _grouping(reader: Reader, node: exp.Expr, scope: TypedScope) -> exp.Expr:
    """A key, or several in parentheses, in ROLLUP, CUBE or GROUPING SETS."""
    if isinstance(node, _SETS):
        require_only(node, reader.dialect, "expressions")
        made = type(node)()
        made.set("expressions", [_grouping(reader, item, scope) for item in node.expressions])
        return made
    if isinstance(node, exp.Paren):
        return exp.Paren(this=_key(reader, node.this, scope))
    return _key(reader, node, scope)


def _key(reader: Reader, node: exp.Expr, scope: TypedScope) -> exp.Expr:
    value = reader.value(node, scope)
    if isinstance(value.expr, exp.Literal | exp.Neg | exp.Null) and value.whole is None:
        raise refused(node, reader.dialect)
    return value.expr


def _tail(reader: Reader, node: exp.Expr, scope: TypedScope, columns: list[tuple[str, ValueType]]) -> None:
    order = node.args.get("order")
    if order is not None:
        for term in order.expressions:
            _require_told(reader, term, scope)
        named = TypedScope(scope.parent, scope.sources, {**scope.aliases}, scope.tables)
        for name, kind in columns:
            named.aliases.setdefault(name.lower(), kind)
        node.set("order", exp.Order(expressions=ordered(reader, order, named)))
    for key in ("limit", "offset"):
        clause = node.args.get(key)
        if clause is not None:
            require_only(clause, reader.dialect, "expression")
            what = clause.expression
            plain = isinstance(what, exp.Literal) and what.name.isdigit()
            if not plain and not isinstance(what, exp.Placeholder | exp.Parameter):
                raise refused(clause, reader.dialect, "write a number")


def _require_told(reader: Reader, term: exp.Expr, scope: TypedScope) -> None:
    """Refuse a term that computes with a name that is one of an output and one of a column: each has its rule."""
    if isinstance(term.this, exp.Column):
        return
    for column in term.find_all(exp.Column):
        name = column.name.lower()
        both = name in scope.aliases and _held(scope, name)
        if both and not column.args.get("table"):
            raise refused(term, reader.dialect, f"'{name}' is a column and an output, name the table before it")


def _held(scope: TypedScope, name: str) -> bool:
    return any(
        not source.known or any(column.lower() == name for column, _ in source.columns)
        for source in scope.sources.values()
    )


def _set_operation(reader: Reader, node: exp.Expr, parent: TypedScope | None) -> Relation:
    require_only(node, reader.dialect, *_SET)
    scope = TypedScope(parent)
    _common_tables(reader, node, scope)
    left = read_query(reader, node.this, scope)
    right = read_query(reader, node.args["expression"], scope)
    if not (left.known and right.known) or len(left.columns) != len(right.columns):
        raise refused(node, reader.dialect, "both sides must have columns that are known, and as many")
    columns = []
    for (name, one), (_, other) in zip(left.columns, right.columns, strict=True):
        kind = common((one, other))
        floats = "float" in (one.family, other.family) and one != other
        if kind is None or floats or kind.family in ("unknown", "parameter"):
            raise refused(node, reader.dialect, f"cast both sides of column '{name}' to one type")
        columns.append((name, kind))
    _tail(reader, node, TypedScope(parent, {"": Relation(tuple(columns))}), [])
    return Relation(tuple(columns))


def _common_tables(reader: Reader, node: exp.Expr, scope: TypedScope) -> None:
    with_ = node.args.get("with_")
    if with_ is None:
        return
    require_only(with_, reader.dialect, "expressions")
    for table in with_.expressions:
        require_only(table, reader.dialect, "this", "alias", "materialized")
        found = read_query(reader, table.this, scope)
        scope.tables[table.alias.lower()] = _renamed(reader, table, found)


def _renamed(reader: Reader, node: exp.Expr, relation: Relation) -> Relation:
    """The columns by the names that an alias gives them."""
    alias = node.args.get("alias")
    names = [column.name for column in (alias.args.get("columns") or ())] if alias is not None else []
    if len(names) > len(relation.columns) and relation.known:
        raise refused(node, reader.dialect)
    columns = tuple(
        (names[place] if place < len(names) else name, kind) for place, (name, kind) in enumerate(relation.columns)
    )
    lower = [name.lower() for name, _ in columns]
    if len(set(lower)) < len(lower):
        raise refused(node, reader.dialect, "give each of its columns a name of its own")
    return Relation(columns, relation.known)


def read_from(reader: Reader, node: exp.Expr, scope: TypedScope) -> None:
    """The relations of FROM and its joins, with their conditions."""
    from_ = node.args.get("from_")
    if from_ is not None:
        _source(reader, from_.this, scope)
    starred = any(isinstance(item, exp.Star) for item in node.expressions)
    for join in node.args.get("joins") or ():
        _join(reader, join, scope, starred)


def _join(reader: Reader, join: exp.Expr, scope: TypedScope, starred: bool) -> None:
    require_only(join, reader.dialect, "this", "side", "kind", "on", "using")
    side, kind = (str(join.args.get(key) or "").upper() for key in ("side", "kind"))
    half = kind in ("SEMI", "ANTI") and side in ("", "LEFT")
    if (kind not in _KINDS and not half) or side not in _SIDES:
        raise refused(join, reader.dialect)
    right = TypedScope(scope.parent, {}, {}, scope.tables)
    _source(reader, join.this, right)
    using, on = join.args.get("using"), join.args.get("on")
    if using and (starred or half):
        raise refused(join, reader.dialect, "name the columns of the answer, or write the condition with ON")
    both = TypedScope(scope.parent, {**scope.sources, **right.sources}, {}, scope.tables)
    if len(both.sources) < len(scope.sources) + len(right.sources):
        raise refused(join, reader.dialect, "give each table a name of its own")
    if on is not None:
        join.set("on", condition(reader, on, both))
    if half:
        join.set("side", None)
        return
    for column in using or ():
        name = column.name.lower()
        kinds = [{n.lower(): k for n, k in s.columns}.get(name) for s in both.sources.values()]
        if len({found for found in kinds if found is not None}) > 1:
            raise refused(join, reader.dialect, "cast one side to the type of the other, with ON")
        scope.aliases.setdefault("\x01using " + name, UNKNOWN)
    scope.sources.update(right.sources)


def _source(reader: Reader, node: exp.Expr, scope: TypedScope) -> None:
    """One relation of FROM, under its name."""
    alias = node.alias.lower() if node.alias else ""
    if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
        require_only(node, reader.dialect, "this", "alias", "db")
        name = node.name.lower()
        found = None if node.args.get("db") else _common_table(scope, name)
        found = found or table_of(reader, node)
        scope.sources[alias or name] = _renamed(reader, node, found)
        return
    if isinstance(node, exp.Subquery):
        require_only(node, reader.dialect, "this", "alias")
        outer = TypedScope(scope.parent, {}, {}, scope.tables)
        found = read_query(reader, node.this, outer)
    elif isinstance(node, exp.Values):
        require_only(node, reader.dialect, "expressions", "alias")
        found = values(reader, node, TypedScope(scope.parent, {}, {}, scope.tables))
        if node.args.get("alias") is None or len(node.args["alias"].args.get("columns") or ()) != len(
            found.columns
        ):
            raise refused(node, reader.dialect, "name its columns, as in AS v (a, b)")
    else:
        raise refused(node, reader.dialect)
    name = alias or f"\x01{len(scope.sources)}"
    if name in scope.sources:
        raise refused(node, reader.dialect, "give each table a name of its own")
    scope.sources[name] = _renamed(reader, node, found)


def table_of(reader: Reader, node: exp.Expr) -> Relation:
    """The columns of a table of the cluster; those of what has a schema's name before it, nobody tells."""
    return Relation(known=False) if node.text("db") else reader.table(node.name.lower())


def _common_table(scope: TypedScope | None, name: str) -> Relation | None:
    while scope is not None:
        if name in scope.tables:
            return scope.tables[name]
        scope = scope.parent
    return None


def column(reader: Reader, node: exp.Expr, scope: TypedScope) -> Typed:
    """A name, with the type of what it stands for."""
    require_only(node, reader.dialect, "this", "table")
    name, qualifier = node.name.lower(), node.args["table"].name.lower() if node.args.get("table") else ""
    around: TypedScope | None = scope
    while around is not None:
        found = _found(around, name, qualifier)
        if found is not None:
            return Typed(node.copy(), found)
        around = around.parent
    raise SqlError(f"there is no column '{node.sql(reader.dialect)}' where the statement names it")


def _found(scope: TypedScope, name: str, qualifier: str) -> ValueType | None:
    places = [source for label, source in scope.sources.items() if not qualifier or label == qualifier]
    kinds = [kind for source in places for label, kind in source.columns if label.lower() == name]
    if len(kinds) > 1 and "\x01using " + name not in scope.aliases:
        raise UnsupportedExpression(f"'{name}' is a column of several tables here: name the table before it")
    if kinds:
        return kinds[0]
    if any(not source.known for source in places):
        return UNKNOWN
    return None if qualifier else scope.aliases.get(name)
