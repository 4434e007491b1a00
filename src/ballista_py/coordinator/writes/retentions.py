"""The DELETE of a retention, with the moment at which it begins said once, so that files and partitions are told by it.

What an owner deletes it finds by the statement's own words. What is made out here only tells it which files need not be
looked into: a row that grows old while the statement runs may stay until the next one.
"""

from __future__ import annotations

from datetime import date, datetime

import pyarrow as pa
from attrs import evolve
from sqlglot import exp

from ballista_py.engines.engine import Engine
from ballista_py.errors import SqlError
from ballista_py.partitions.table import TableSpec
from ballista_py.sql.parse.changes import Local

_COMPARED = (exp.LT, exp.LTE, exp.GT, exp.GTE, exp.EQ)
_DIALECT = "duckdb"


def at_this_moment(change: Local, table: TableSpec, engine: Engine) -> Local:
    """The statement, in whose predicate for pruning every time that is worked out, as `now() - INTERVAL 30 DAY`, is a
    constant where it is exactly one of the column that it is compared with."""
    if change.tree is None:
        return change
    kinds = {column.name.lower(): column.type for column in table.schema}
    types = dict(zip(map(str.lower, table.schema.names), engine.sql_types(table.schema), strict=True))
    tree = change.tree.copy()
    for node in tree.find_all(*_COMPARED):
        for here, there in (("this", "expression"), ("expression", "this")):
            column, value = node.args[here], node.args[there]
            name = column.name.lower() if isinstance(column, exp.Column) else ""
            if name in kinds and _is_worked_out(value) and _is_of_times(kinds[name]):
                found = _value(value, types[name], engine)
                if found is not None:
                    node.set(there, found)
    return evolve(change, tree=tree)


def _is_of_times(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz is None))


def _is_worked_out(node: exp.Expr) -> bool:
    """Whether it is no constant yet, and depends on no row."""
    return not isinstance(node, exp.Literal | exp.Column) and not any(node.find_all(exp.Column, exp.Query))


def _value(node: exp.Expr, kind: str, engine: Engine) -> exp.Expr | None:
    """What it is now, as one of the type; None if it is none exactly, or cannot be worked out here."""
    text = node.sql(dialect=_DIALECT)
    try:
        running = engine.query(
            f"select cast(({text}\n) as {kind}) as v, cast(({text}\n) as {kind}) = ({text}\n) as e"
        )
        rows = pa.Table.from_batches(running.batches(), schema=running.schema).to_pylist()
    except (SqlError, pa.ArrowException, ValueError, OverflowError):
        return None
    if len(rows) != 1 or rows[0]["e"] is not True or not isinstance(rows[0]["v"], date):
        return None
    found = rows[0]["v"]
    said = found.isoformat(sep=" ") if isinstance(found, datetime) else found.isoformat()
    to = "TIMESTAMP" if isinstance(found, datetime) else "DATE"
    return exp.Cast(this=exp.Literal.string(said), to=exp.DataType.build(to, dialect=_DIALECT))


def pruned_by(change: Local) -> str | None:
    """The predicate by which files are told, as SQL."""
    return None if change.tree is None else change.tree.sql(dialect=_DIALECT)
