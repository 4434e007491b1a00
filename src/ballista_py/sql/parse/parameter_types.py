"""What type a parameter probably has: that of the column that it is compared with or inserted into.

For people and drivers that ask before they bind; binding does not depend on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import SqlglotError

from ballista_py.errors import SqlError
from ballista_py.sql.bind.query import Expr
from ballista_py.sql.parse.parameters import bound, names_of, places_of
from ballista_py.sql.parse.parsing import parsed_one

_MARK = "parameter \x01"
_COMPARISONS = (
    exp.EQ,
    exp.NEQ,
    exp.LT,
    exp.LTE,
    exp.GT,
    exp.GTE,
    exp.NullSafeEQ,
    exp.NullSafeNEQ,
    exp.Like,
    exp.ILike,
)


def parameter_schema(sql: str, tables: Mapping[str, pa.Schema]) -> pa.Schema:
    """A field for each parameter, in order, named as it is; of the null type where nothing tells the type.

    >>> parameter_schema("select ? from t where id > ?", {"t": pa.schema([("id", pa.int64())])})
    1: null
    2: int64
    """
    places = places_of(sql)
    names = names_of(places)
    if not names:
        return pa.schema([])
    found: dict[str, pa.DataType] = {}
    for name, node in _marked(sql, names):
        kind = _type_of(node, tables)
        if kind is not None:
            found.setdefault(name, kind)
    return pa.schema([(name, found.get(name, pa.null())) for name in names])


def _marked(sql: str, names: tuple[str, ...]) -> Iterator[tuple[str, Expr]]:
    """Every parameter with the literal that stands for it in the tree."""
    try:
        tree = parsed_one(bound(sql, {name: pa.scalar(_MARK + name) for name in names}))
    except (SqlglotError, SqlError):
        return
    for node in tree.find_all(exp.Literal):
        if node.is_string and node.name.startswith(_MARK):
            yield node.name.removeprefix(_MARK), node


def _type_of(node: Expr, tables: Mapping[str, pa.Schema]) -> pa.DataType | None:
    parent = node.parent
    while isinstance(parent, exp.Paren):
        parent = parent.parent
    if isinstance(parent, exp.Limit | exp.Offset):
        return pa.int64()
    if isinstance(parent, exp.Cast):
        return None
    if isinstance(parent, _COMPARISONS):
        sides = [parent.left.unnest(), parent.right.unnest()]
        return next((_column_type(side, tables) for side in sides if isinstance(side, exp.Column)), None)
    if isinstance(parent, exp.Between | exp.In) and isinstance(parent.this, exp.Column):
        return _column_type(parent.this, tables)
    if isinstance(parent, exp.Tuple) and isinstance(parent.parent, exp.Values):
        return _inserted(parent.parent.parent, parent.expressions.index(node), tables)
    return None


def _column_type(column: exp.Column, tables: Mapping[str, pa.Schema]) -> pa.DataType | None:
    """The type of the column if every table of the statement that has one of that name agrees."""
    root = column.root()
    kinds: set[pa.DataType] = set()
    for table in root.find_all(exp.Table):
        schema = tables.get(table.name.lower())
        if schema is None or (column.table and column.table.lower() != table.alias_or_name.lower()):
            continue
        kinds.update(field.type for field in schema if field.name.lower() == column.name.lower())
    return kinds.pop() if len(kinds) == 1 else None


def _inserted(insert: Expr | None, place: int, tables: Mapping[str, pa.Schema]) -> pa.DataType | None:
    """The type of the column that takes the value at `place` of a row."""
    if not isinstance(insert, exp.Insert):
        return None
    target = insert.this
    columns = [column.name for column in target.expressions] if isinstance(target, exp.Schema) else []
    table = target.this if isinstance(target, exp.Schema) else target
    schema = tables.get(table.name.lower())
    if schema is None:
        return None
    names = columns or schema.names
    fields = {field.name.lower(): field.type for field in schema}
    return fields.get(names[place].lower()) if place < len(names) else None
