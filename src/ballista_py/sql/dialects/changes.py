"""Statements of another dialect that change tables, and the columns that they declare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from ballista_py.errors import SqlError
from ballista_py.sql.dialects.alterations import declared_column, read_alteration
from ballista_py.sql.dialects.casts import assigned
from ballista_py.sql.dialects.operators import condition
from ballista_py.sql.dialects.queries import read_from, read_query, table_of
from ballista_py.sql.dialects.typed import Reader, Relation, Typed, TypedScope, refused, require_only
from ballista_py.sql.dialects.value_types import UNKNOWN, ValueType
from ballista_py.sql.parse.creates import as_pieces

_USED: Mapping[type[exp.Expr], tuple[str, ...]] = {
    exp.Insert: ("with_", "this", "expression", "by_name", "overwrite"),
    exp.Update: ("with_", "this", "expressions", "from_", "where"),
    exp.Delete: ("with_", "this", "using", "where"),
    exp.Merge: ("with_", "this", "using", "on", "using_cond", "whens"),
}
_CONSTRAINTS = (
    exp.NotNullColumnConstraint,
    exp.PrimaryKeyColumnConstraint,
    exp.CheckColumnConstraint,
    exp.DefaultColumnConstraint,
)


def read_change(reader: Reader, tree: exp.Expr, partition: exp.Expr | None = None) -> None:
    """Rewrite a statement that is no query in place; a clause that is not rewritten here is refused.

    `partition` is that of an INSERT OVERWRITE.
    """
    for key, clause in tree.args.items() if type(tree) in _USED else ():
        if key == "returning" and isinstance(tree, exp.Insert | exp.Update | exp.Delete):
            _returning(reader, tree, clause)
        elif key not in _USED[type(tree)] and clause:
            raise refused(clause if isinstance(clause, exp.Expr) else tree, reader.dialect)
    for constraint in tree.find_all(exp.ColumnConstraint):
        if not isinstance(constraint.args.get("kind"), _CONSTRAINTS):
            raise refused(constraint, reader.dialect)
    if isinstance(tree, exp.Insert):
        _insert(reader, tree, partition)
    elif isinstance(tree, exp.Update):
        _update(reader, tree)
    elif isinstance(tree, exp.Delete):
        _delete(reader, tree)
    elif isinstance(tree, exp.Merge):
        _merge(reader, tree)
    elif isinstance(tree, exp.Create):
        _create(reader, tree)
    elif isinstance(tree, exp.Alter):
        read_alteration(reader, tree)
    elif not isinstance(tree, exp.Drop | exp.TruncateTable | exp.Copy | exp.Command | exp.Describe | exp.Show):
        raise refused(tree, reader.dialect)


def _returning(reader: Reader, tree: exp.Expr, clause: exp.Expr | None) -> None:
    """Columns as they are, of a statement about one table: what else RETURNING gives is not the same everywhere."""
    if clause is None:
        return
    require_only(clause, reader.dialect, "expressions")
    is_one = not any(tree.args.get(key) for key in ("from_", "using"))
    for item in clause.expressions:
        inner = item.this if isinstance(item, exp.Alias) else item
        is_plain = isinstance(inner, exp.Column | exp.Star) and not inner.args.get("except_")
        if not is_one or not is_plain or reader.dialect != "postgres":
            raise refused(clause, reader.dialect)


def _no_with(reader: Reader, tree: exp.Expr) -> None:
    if tree.args.get("with_") is not None:
        raise refused(tree.args["with_"], reader.dialect, "put it into the query that needs it")


def _insert(reader: Reader, tree: exp.Expr, partition: exp.Expr | None) -> None:
    _no_with(reader, tree)
    target = tree.this
    named = [column.name.lower() for column in target.expressions] if isinstance(target, exp.Schema) else []
    table = table_of(reader, target.this if isinstance(target, exp.Schema) else target)
    fixed = _fixed(reader, table, partition) if partition is not None else ()
    if partition is not None:
        (target.this if isinstance(target, exp.Schema) else target).set("partition", partition)
    kinds = _kinds(table, named or [name.lower() for name, _ in table.columns if name.lower() not in fixed])
    source = tree.args.get("expression")
    if isinstance(source, exp.Values):
        _insert_values(reader, source, kinds, table)
        return
    if source is None:
        raise refused(tree, reader.dialect)
    found = read_query(reader, source, None)
    if tree.args.get("by_name"):
        kinds = _kinds(table, [name.lower() for name, _ in found.columns])
    for (name, kind), to in zip(found.columns, kinds, strict=False):
        assigned(Typed(exp.column(name), kind), to, exp.column(name), reader.dialect)


def _fixed(reader: Reader, table: Relation, partition: exp.Expr) -> Sequence[str]:
    """The columns that PARTITION gives values to, which are rewritten."""
    kinds = {name.lower(): kind for name, kind in table.columns}
    found = []
    for item in partition.expressions:
        if isinstance(item, exp.EQ) and isinstance(item.this, exp.Column):
            name = item.this.name.lower()
            value = reader.value(item.expression, TypedScope())
            to = _kind_of(kinds, name, table)
            item.set("expression", assigned(value, to, item.expression, reader.dialect))
            found.append(name)
    return found


def _insert_values(reader: Reader, source: exp.Expr, kinds: Sequence[ValueType], table: Relation) -> None:
    rows = []
    for row in source.expressions:
        cells = (
            row.expressions if isinstance(row, exp.Tuple) else [row.this if isinstance(row, exp.Paren) else row]
        )
        values = [reader.value(cell, TypedScope()) for cell in cells]
        _require_as_many(kinds, values, table)
        made = [
            assigned(value, kinds[place] if place < len(kinds) else UNKNOWN, cells[place], reader.dialect)
            for place, value in enumerate(values)
        ]
        rows.append(exp.Tuple(expressions=made))
    source.set("expressions", rows)


def _kinds(table: Relation, named: Sequence[str]) -> list[ValueType]:
    held = {name.lower(): kind for name, kind in table.columns}
    return [_kind_of(held, name, table) for name in named] if named else list(held.values())


def _kind_of(held: Mapping[str, ValueType], name: str, table: Relation) -> ValueType:
    """The type of the column of that name. Raises `SqlError` when the table is known and has none."""
    if name not in held and table.known:
        raise SqlError(f"the table has no column '{name}'")
    return held.get(name, UNKNOWN)


def _require_as_many(kinds: Sequence[ValueType], values: Sequence[object], table: Relation) -> None:
    """Raise `SqlError` for more values than columns."""
    if table.known and len(values) > len(kinds):
        raise SqlError(f"INSERT has {len(values)} value(s) for {len(kinds)} column(s)")


def _target(reader: Reader, node: exp.Expr) -> TypedScope:
    table = table_of(reader, node)
    return TypedScope(sources={(node.alias or node.name).lower(): table})


def _update(reader: Reader, tree: exp.Expr) -> None:
    _no_with(reader, tree)
    scope = _target(reader, tree.this)
    held = next(iter(scope.sources.values()))
    read_from(reader, tree, scope)
    _set(reader, tree, held, scope)
    if tree.args.get("where") is not None:
        tree.args["where"].set("this", condition(reader, tree.args["where"].this, scope))


def _set(reader: Reader, tree: exp.Expr, held: Relation, scope: TypedScope) -> None:
    """The assignments of SET."""
    kinds = {name.lower(): kind for name, kind in held.columns}
    for one in tree.expressions:
        if not isinstance(one, exp.EQ) or not isinstance(one.this, exp.Column):
            raise refused(one, reader.dialect)
        value = reader.value(one.expression, scope)
        to = _kind_of(kinds, one.this.name.lower(), held)
        one.set("expression", assigned(value, to, one.expression, reader.dialect))


def _delete(reader: Reader, tree: exp.Expr) -> None:
    _no_with(reader, tree)
    scope = _target(reader, tree.this)
    for item in tree.args.get("using") or ():
        read_from(reader, exp.Select(from_=exp.From(this=item)), scope)
    if tree.args.get("where") is not None:
        tree.args["where"].set("this", condition(reader, tree.args["where"].this, scope))


def _merge(reader: Reader, tree: exp.Expr) -> None:
    _no_with(reader, tree)
    if tree.args.get("using_cond"):
        raise refused(tree, reader.dialect, "write the condition with ON")
    scope = _target(reader, tree.this)
    held = next(iter(scope.sources.values()))
    read_from(reader, exp.Select(from_=exp.From(this=tree.args["using"])), scope)
    tree.set("on", condition(reader, tree.args["on"], scope))
    for when in tree.args["whens"].expressions:
        if when.args.get("condition") is not None:
            when.set("condition", condition(reader, when.args["condition"], scope))
        then = when.args["then"]
        if isinstance(then, exp.Update):
            _set(reader, then, held, scope)
        elif isinstance(then, exp.Insert):
            _merge_insert(reader, then, held, scope)


def _merge_insert(reader: Reader, then: exp.Expr, held: Relation, scope: TypedScope) -> None:
    cells = then.args.get("expression")
    if not isinstance(cells, exp.Tuple) or not isinstance(then.this, exp.Tuple | None):
        raise refused(then, reader.dialect, "name the columns and the values")
    kinds = _kinds(held, [column.name.lower() for column in then.this.expressions] if then.this else [])
    made = []
    _require_as_many(kinds, cells.expressions, held)
    for place, cell in enumerate(cells.expressions):
        to = kinds[place] if place < len(kinds) else UNKNOWN
        made.append(assigned(reader.value(cell, scope), to, cell, reader.dialect))
    cells.set("expressions", made)


def _create(reader: Reader, tree: exp.Expr) -> None:
    if tree.args.get("expression") is not None:
        read_query(reader, tree.args["expression"], None)
    if not isinstance(tree.this, exp.Schema):
        return
    columns = []
    for item in tree.this.expressions:
        if isinstance(item, exp.ColumnDef):
            columns.append((item.name, declared_column(reader, item)))
        elif isinstance(item, exp.LikeProperty):
            columns += table_of(reader, item.this).columns
    as_pieces(tree)
    scope = TypedScope(sources={"": Relation(tuple(columns))})
    for check in tree.this.find_all(exp.CheckColumnConstraint):
        require_only(check, reader.dialect, "this")
        check.set("this", condition(reader, check.this, scope))
