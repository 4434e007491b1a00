"""A statement of another dialect as one of the engine's, of the same values; what is not known to be so is refused."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from attrs import field, frozen
from sqlglot import exp

from ballista_py.errors import SqlError, UnsupportedExpression
from ballista_py.sql.dialects.aggregates import AGGREGATES, WINDOWS, over_rows
from ballista_py.sql.dialects.calls import called
from ballista_py.sql.dialects.changes import read_change
from ballista_py.sql.dialects.formats import extracted
from ballista_py.sql.dialects.operators import ARGUMENTS, OPERATORS, Handler
from ballista_py.sql.dialects.queries import column, read_query
from ballista_py.sql.dialects.scalar_lists import SCALARS
from ballista_py.sql.dialects.typed import Reader, Relation, Typed, TypedScope, filled, refused, require_only
from ballista_py.sql.dialects.value_types import BOOL, DATE, TEXT, TIMESTAMPTZ, of_arrow

Tables = Mapping[str, pa.Schema]
"""The columns of the tables of a cluster, by their names."""


@frozen
class StatementReader:
    """Reads statements of one dialect over the tables of a cluster; None where nobody knows which there are."""

    dialect: str
    tables: Tables | None
    unknown: list[str] = field(factory=list)  # names of tables that there are not

    def value(self, node: exp.Expr, scope: TypedScope) -> Typed:
        """See `Reader.value`."""
        handler = _HANDLERS.get(type(node))
        if handler is None:
            raise refused(node, self.dialect)
        if (used := ARGUMENTS.get(type(node))) is not None:
            require_only(node, self.dialect, *used)
        return handler(self, node, scope)

    def query(self, node: exp.Expr, scope: TypedScope | None) -> Relation:
        """See `Reader.query`."""
        return read_query(self, node, scope)

    def table(self, name: str) -> Relation:
        """See `Reader.table`."""
        schema = None if self.tables is None else self.tables.get(name)
        if schema is None:
            if self.tables is not None:
                self.unknown.append(name)
            return Relation(known=False)
        return Relation(tuple((field.name, of_arrow(field.type)) for field in schema))


def function_names(dialect: str) -> frozenset[str]:
    """The functions of a dialect that are read.

    >>> "dayofweek" in function_names("spark"), "dayofweek" in function_names("postgres")
    (True, False)
    """
    return frozenset((*SCALARS[dialect], *AGGREGATES[dialect], *WINDOWS))


def translate(tree: exp.Expr, dialect: str, tables: Tables | None, partition: exp.Expr | None = None) -> exp.Expr:
    """Rewrite a statement, parsed after `words.marked`, in place; the tree to be written in the engine's dialect.

    `partition` was taken out of an INSERT OVERWRITE and is put back there.
    Raises `UnsupportedExpression` for a piece that is not known to mean the same, `SqlError` for a wrong name.
    """
    held = None if tables is None else {name.lower(): schema for name, schema in tables.items()}
    reader = StatementReader(dialect, held)
    try:
        if isinstance(tree, exp.Query | exp.Values):
            read_query(reader, tree, None)
        else:
            read_change(reader, tree, partition)
    except UnsupportedExpression:
        if reader.unknown:  # what is refused for want of a type has none for that
            raise SqlError(f"Table '{reader.unknown[0]}' does not exist", table=reader.unknown[0]) from None
        raise
    return tree


def _call(reader: Reader, node: exp.Expr, scope: TypedScope) -> Typed:
    name = str(node.this)[1:] if str(node.this).startswith("\x01") else ""
    if name in AGGREGATES[reader.dialect]:
        return over_rows(reader, node, scope)
    if name not in SCALARS[reader.dialect]:
        raise refused(node, reader.dialect)
    return called(reader, node, scope, SCALARS[reader.dialect])  # type: ignore[arg-type]


def _renamed_call(name: str, *keys: str) -> Handler:
    """A call with words between its arguments, as one without."""

    def made(reader: Reader, node: exp.Expr, scope: TypedScope) -> Typed:
        require_only(node, reader.dialect, *keys)
        arguments = [node.args[key] for key in keys if node.args.get(key) is not None]
        return _call(reader, exp.Anonymous(this=f"\x01{name}", expressions=arguments), scope)

    return made


def _position(reader: Reader, node: exp.Expr, scope: TypedScope) -> Typed:
    name = "instr" if reader.dialect == "spark" else "strpos"
    return _renamed_call(name, "this", "substr")(reader, node, scope)


def _trimmed(reader: Reader, node: exp.Expr, scope: TypedScope) -> Typed:
    """TRIM with FROM; the letters are a set everywhere."""
    require_only(node, reader.dialect, "this", "position", "expression")
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position") or "").upper(), "trim")
    values = [reader.value(node.args[key], scope) for key in ("this", "expression") if node.args.get(key)]
    if any(value.type != TEXT for value in values):
        raise refused(node, reader.dialect)
    letters = values[1].expr if len(values) > 1 else exp.Literal.string(" ")
    return Typed(filled(f"{name}({{0}}, {{1}})", [values[0].expr, letters], reader.dialect), TEXT)


def _today(reader: Reader, node: exp.Expr, scope: TypedScope) -> Typed:
    require_only(node, reader.dialect)
    return Typed(filled("current_date", [], reader.dialect), DATE)


def _now(reader: Reader, node: exp.Expr, scope: TypedScope) -> Typed:
    require_only(node, reader.dialect)
    return Typed(filled("now()", [], reader.dialect), TIMESTAMPTZ)


def _scalar_query(reader: Reader, node: exp.Expr, scope: TypedScope) -> Typed:
    columns = reader.query(node, scope).columns
    if len(columns) != 1:
        raise refused(node, reader.dialect)
    return Typed(node.copy(), columns[0][1])


def _exists(reader: Reader, node: exp.Expr, scope: TypedScope) -> Typed:
    reader.query(node.this, scope)
    return Typed(node.copy(), BOOL)


_HANDLERS: Mapping[type[exp.Expr], Handler] = {
    **OPERATORS, exp.Column: column, exp.Anonymous: _call, exp.Window: over_rows, exp.Filter: over_rows,
    exp.Extract: extracted, exp.Substring: _renamed_call("substring", "this", "start", "length"),
    exp.StrPosition: _position, exp.Trim: _trimmed, exp.CurrentDate: _today, exp.CurrentTimestamp: _now,
    exp.Subquery: _scalar_query, exp.Exists: _exists,
}  # fmt: skip
