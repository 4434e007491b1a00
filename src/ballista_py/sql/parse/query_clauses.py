"""Which clauses of a query in another dialect are carried over into the engine's; every other one is refused by name.

The writer of the engine's text leaves out what that dialect has no word for, without saying so: a condition that it
leaves out (PREWHERE) gives rows that nobody asked for. The lists are of what is known to be written down.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from ballista_py.errors import SqlError
from ballista_py.sql.parse.used_clauses import is_given

_TAIL = (
    "match", "laterals", "joins", "connect", "pivots", "where", "group", "having", "qualify", "windows", "order",
    "limit", "offset", "sample",
)  # fmt: skip
_SET = frozenset(("with_", "this", "expression", "distinct", "by_name", "side", "kind", "on", *_TAIL))
CARRIED: Mapping[type[exp.Expr], frozenset[str]] = {
    exp.Select: frozenset(("with_", "expressions", "distinct", "from_", "exclude", *_TAIL)),
    exp.Union: _SET,
    exp.Except: _SET,
    exp.Intersect: _SET,
    exp.Subquery: frozenset(("with_", "this", "alias", *_TAIL)),
    # Hints of a table change no row.
    exp.Table: frozenset((
        "this", "alias", "db", "catalog", "laterals", "joins", "pivots", "ordinality", "rows_from", "sample", "hints",
    )),
    exp.TableSample: frozenset(("expressions", "method", "percent", "rows", "size", "seed")),
    exp.Limit: frozenset(("this", "expression", "offset", "limit_options")),
    exp.Order: frozenset(("this", "expressions")),
    exp.Ordered: frozenset(("this", "desc", "nulls_first")),
    exp.Group: frozenset(("expressions", "grouping_sets", "cube", "rollup", "all")),
    exp.With: frozenset(("expressions", "recursive")),
}  # fmt: skip
_NAMES: Mapping[str, str] = {
    "sort": "SORT BY",
    "distribute": "DISTRIBUTE BY",
    "cluster": "CLUSTER BY",
    "with_fill": "WITH FILL",
    "totals": "WITH TOTALS",
    "expressions": "BY",
    "version": "VERSION or TIMESTAMP AS OF",
    "when": "AT or BEFORE",
    "for_": "FOR",
    "kind": "AS STRUCT, AS VALUE or the like",
}
_SORTED = "ORDER BY sorts the whole answer, and rows find their partitions by themselves"
_NOW = "tables are read as they are now"
_INSTEAD: Mapping[str, str] = {
    "prewhere": "put its condition into WHERE",
    "sort": _SORTED,
    "distribute": _SORTED,
    "cluster": _SORTED,
    "version": _NOW,
    "when": _NOW,
    "system_time": _NOW,
    "changes": _NOW,
    "partition": "say with WHERE which rows are read",
    "into": "use CREATE TABLE … AS",
}


def require_carried(tree: exp.Expr) -> None:
    """Raise `SqlError` for a clause of any query in the statement that the engine's text would not have.

    >>> from sqlglot import parse_one
    >>> require_carried(parse_one("select a from t sort by a limit 1", dialect="hive"))
    Traceback (most recent call last):
    ballista_py.errors.SqlError: SELECT with SORT BY cannot be run here: ORDER BY sorts the whole answer, and rows \
find their partitions by themselves
    """
    for node in tree.walk():
        carried = CARRIED.get(type(node))
        if carried is None:
            continue
        for key, value in node.args.items():
            if key not in carried and is_given(value):
                owner = "a table" if isinstance(node, exp.Table) else node.key.upper()
                clause = _NAMES.get(key) or key.strip("_").upper().replace("_", " ")
                instead = _INSTEAD.get(key, "write the query in the engine's own dialect (duckdb)")
                raise SqlError(f"{owner} with {clause} cannot be run here: {instead}")
