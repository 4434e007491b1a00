"""ALTER TABLE of another dialect: the forms that mean the same there and here, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlglot import exp

from ballista_py.sql.dialects.casts import assigned, type_of
from ballista_py.sql.dialects.queries import table_of
from ballista_py.sql.dialects.typed import Reader, Relation, TypedScope, refused, require_only
from ballista_py.sql.dialects.value_types import UNKNOWN, ValueType, engine_name
from ballista_py.sql.parse.parsing import ENGINE_DIALECT

_ADDED = (exp.NotNullColumnConstraint, exp.DefaultColumnConstraint)
_ONE_BY_ONE = "one change of one column a statement"


def read_alteration(reader: Reader, tree: exp.Alter) -> None:
    """Rewrite the statement in place. Raises `UnsupportedExpression` for every other form."""
    actions: list[exp.Expr] = tree.args.get("actions") or []
    if any(isinstance(one, exp.ToTableProperty) for one in tree.args.get("options") or ()):  # RENAME a TO b
        raise refused(tree, reader.dialect, "say RENAME COLUMN … TO")
    require_only(tree, reader.dialect, "this", "kind", "exists", "actions")
    if str(tree.args.get("kind")).upper() != "TABLE":
        raise refused(tree, reader.dialect)
    if len(actions) != 1:
        raise refused(tree, reader.dialect, _ONE_BY_ONE)
    action = actions[0]
    if isinstance(action, exp.Schema):  # ADD COLUMNS (…) of Spark
        require_only(action, reader.dialect, "expressions")
        if len(action.expressions) != 1:
            raise refused(tree, reader.dialect, _ONE_BY_ONE)
        action = action.expressions[0]
        tree.set("actions", [action])
    read = _READ.get(type(action))
    if read is None:
        raise refused(tree, reader.dialect)
    read(reader, tree, action)


def declared_column(reader: Reader, item: exp.ColumnDef) -> ValueType:
    """Rewrite what a column is declared as, in place; its type."""
    if item.args.get("kind") is None:
        raise refused(item, reader.dialect, "say the type of the column")
    kind = type_of(item.args["kind"], reader.dialect)
    item.set("kind", exp.DataType.build(engine_name(kind), dialect=ENGINE_DIALECT))
    for default in item.find_all(exp.DefaultColumnConstraint):
        require_only(default, reader.dialect, "this")
        value = reader.value(default.this, TypedScope(sources={}))
        default.set("this", assigned(value, kind, default.this, reader.dialect))
    return kind


def _renamed_table(reader: Reader, tree: exp.Alter, action: exp.Expr) -> None:
    require_only(action, reader.dialect, "this")


def _added(reader: Reader, tree: exp.Alter, action: exp.Expr) -> None:
    require_only(action, reader.dialect, "this", "kind", "constraints", "exists")
    for constraint in action.args.get("constraints") or ():
        if not isinstance(constraint.args.get("kind"), _ADDED):
            raise refused(constraint, reader.dialect, "add the column with its type, NOT NULL and DEFAULT alone")
    assert isinstance(action, exp.ColumnDef)
    declared_column(reader, action)


def _dropped(reader: Reader, tree: exp.Alter, action: exp.Expr) -> None:
    require_only(action, reader.dialect, "tables", "kind", "exists")
    columns: list[exp.Expr] = action.args.get("tables") or []
    if action.args.get("kind") != "COLUMN" or len(columns) != 1 or not isinstance(columns[0], exp.Column):
        raise refused(tree, reader.dialect, _ONE_BY_ONE)
    require_only(columns[0], reader.dialect, "this")


def _renamed(reader: Reader, tree: exp.Alter, action: exp.Expr) -> None:
    require_only(action, reader.dialect, "this", "to")
    for name in (action.this, action.args["to"]):
        require_only(name, reader.dialect, "this", "quoted")


def _changed(reader: Reader, tree: exp.Alter, action: exp.Expr) -> None:
    """Another type or default, or none; NOT NULL dropped."""
    dropped = ("drop", "allow_null") if action.args.get("drop") else ()
    require_only(action, reader.dialect, "this", "dtype", "default", *dropped)
    if not any(action.args.get(key) for key in ("dtype", "default", "drop")):
        raise refused("set not null", reader.dialect)
    if action.args.get("dtype") is not None:
        kind = type_of(action.args["dtype"], reader.dialect)
        action.set("dtype", exp.DataType.build(engine_name(kind), dialect=ENGINE_DIALECT))
    if action.args.get("default") is not None:
        held: Relation = table_of(reader, tree.this)
        kinds = {name.lower(): kind for name, kind in held.columns}
        value = reader.value(action.args["default"], TypedScope(sources={}))
        to = kinds.get(action.name.lower(), UNKNOWN)
        action.set("default", assigned(value, to, action.args["default"], reader.dialect))


_READ: Mapping[type[exp.Expr], Callable[[Reader, exp.Alter, exp.Expr], None]] = {
    exp.AlterRename: _renamed_table,
    exp.ColumnDef: _added,
    exp.Drop: _dropped,
    exp.RenameColumn: _renamed,
    exp.AlterColumn: _changed,
}
__all__ = ["declared_column", "read_alteration"]
