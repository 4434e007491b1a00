"""Parts of an answer: what of a plan one reader takes, named by partitions, so that it can be planned again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import SqlglotError

from ballista_py.errors import SqlError
from ballista_py.partitions.scanned_table import AT
from ballista_py.sql.parse.parsing import parsed, parsed_one
from ballista_py.sql.plan import Fragment, Leg, QueryPlan
from ballista_py.sql.prune.file_bounds import Condition
from ballista_py.sql.prune.files import FilePruner

Partitions = Mapping[str, Sequence[int]]
"""The partitions of each table that is not read whole."""


@attrs.frozen
class Portion:
    """What one reader takes of an answer: these partitions, as of these sequences of the tables that have one."""

    partitions: Partitions
    sequences: Mapping[str, int]


def is_divisible(plan: QueryPlan) -> bool:
    """Whether the batches of the legs, taken together in any order, are the answer, and need nothing first.

    Not of snapshots of a lake: nobody holds their parts, so nobody else can be sent to them.
    """
    alone = plan.merge_sql is None and len(plan.fragments) == 1 and not plan.broadcasts
    return alone and not any(AT in table.table for table in plan.fragments[0].tables)


def portion_of(plan: QueryPlan, leg: Leg) -> Portion:
    """What this leg covers of a divisible plan."""
    whole = {table.table for table in plan.fragments[0].tables if table.whole}
    return Portion(
        partitions={table.table: table.partitions for table in leg.tables if table.table not in whole},
        sequences={table.table: table.sequence for table in leg.tables if table.sequence is not None},
    )


def is_row_by_row(fragment_sql: str) -> bool:
    """Whether the SQL of a fragment gives for the rows of several files together what it gives for each alone.

    >>> is_row_by_row("SELECT id + 1 AS n FROM t WHERE id > 2"), is_row_by_row("SELECT DISTINCT id FROM t")
    (True, False)
    >>> is_row_by_row("SELECT SUM(id) AS n FROM t"), is_row_by_row("SELECT id FROM t LIMIT 1")
    (False, False)
    """
    tree = _tree(fragment_sql)
    if not isinstance(tree, exp.Select) or any(tree.args.get(name) for name in _MEETING):
        return False
    others = (
        exp.Query,
        exp.AggFunc,
        exp.Window,
        exp.Anonymous,
        exp.AnonymousAggFunc,
        exp.UDTF,
        exp.Unnest,
        exp.Join,
    )
    return not any(isinstance(node, others) for node in tree.walk() if node is not tree)


def condition_of(fragment_sql: str, schema: pa.Schema) -> Condition:
    """What rows of a table with this schema must be to count for the SQL of a fragment over it, as far as it is known.

    >>> schema = pa.schema([("id", pa.int64())])
    >>> condition_of("SELECT COUNT(*) FROM t WHERE t.id = 3", schema)
    (((ColumnTest(column='id', operator='=', value=3),),),)
    >>> condition_of("SELECT id FROM t TABLESAMPLE 1 PERCENT WHERE id = 3", schema)
    ()
    """
    tree = _tree(fragment_sql)
    where = tree.args.get("where")
    if not isinstance(tree, exp.Select) or where is None or any(tree.args.get(name) for name in _OTHER_ROWS):
        return ()
    source = tree.args["from_"].this
    if not isinstance(source, exp.Table) or {name for name, value in source.args.items() if value} - _TABLE:
        return ()
    return FilePruner(where=where.this, names=(source.alias_or_name.lower(),), schema=schema).condition()


_OTHER_ROWS = ("joins", "laterals", "sample", "with_", "with", "match")


def columns_read(fragment_sql: str, names: Sequence[str]) -> tuple[str, ...]:
    """Those of a table's columns `names` that the SQL of a fragment over it reads, in their order.

    Rows without columns cannot be counted: it is one at least.

    >>> columns_read("SELECT t.a FROM t WHERE B > 1", ["a", "b", "c"]), columns_read("SELECT * FROM t", ["a", "b"])
    (('a', 'b'), ('a', 'b'))
    >>> columns_read("SELECT COUNT(*) FROM t", ["a", "b"])
    ('a',)
    """
    tree = _tree(fragment_sql)
    if any(True for _ in tree.find_all(exp.Star)) and not _counts_only(tree):
        return tuple(names)
    read = {node.name.lower() for node in tree.walk() if isinstance(node, exp.Identifier)}
    return tuple(name for name in names if name.lower() in read) or tuple(names[:1])


def columns_named(fragment_sql: str, names: Sequence[str]) -> tuple[str, ...] | None:
    """The columns that the SQL of a fragment gives of every row of its table, if that is all it does; else None.

    >>> columns_named("SELECT t.b, A FROM t", ["a", "b"]), columns_named("SELECT * FROM t", ["a", "b"])
    (('b', 'a'), ('a', 'b'))
    >>> columns_named("SELECT a FROM t WHERE a > 1", ["a"]), columns_named("SELECT a + 1 AS a FROM t", ["a"])
    (None, None)
    """
    tree = _tree(fragment_sql)
    if not isinstance(tree, exp.Select) or {name for name, value in tree.args.items() if value} - _PLAIN:
        return None
    source = tree.args["from_"].this
    if not isinstance(source, exp.Table) or {name for name, value in source.args.items() if value} - _TABLE:
        return None
    given = [one.this if isinstance(one, exp.Alias) else one for one in tree.expressions]
    if len(given) == 1 and isinstance(given[0], exp.Star) and not any(given[0].args.values()):
        return tuple(names)
    known = {name.lower(): name for name in names}
    tables = {"", source.alias_or_name.lower()}
    if not all(
        isinstance(one, exp.Column) and one.table.lower() in tables and not one.args.get("db") for one in given
    ):
        return None
    found = [known.get(one.name.lower(), "") for one in given]
    return tuple(found) if all(found) and len(set(found)) == len(found) else None


_PLAIN = {"from_", "expressions"}
_TABLE = {"this", "alias"}
_MEETING = (
    "distinct",
    "group",
    "having",
    "qualify",
    "limit",
    "offset",
    "order",
    "with_",
    "with",
    "sample",
    "windows",
    "joins",
)


def require_condition(text: str) -> None:
    """Raise `SqlError` for a text that stands in brackets and is more than a condition then.

    What cannot be read here is left to whoever reads the statement that it becomes a part of.

    >>> require_condition("id > 3 -- few")
    >>> require_condition("true) OR (true")
    Traceback (most recent call last):
    ...
    ballista_py.errors.SqlError: the filter is more than a condition: write a query
    >>> require_condition("true) UNION SELECT 1 FROM (SELECT 1")
    Traceback (most recent call last):
    ...
    ballista_py.errors.SqlError: the filter is more than a condition: write a query
    """
    try:
        trees = parsed(f"SELECT 1 WHERE ({text}\n)", "duckdb")
    except SqlglotError:
        return
    tree = trees[0] if len(trees) == 1 else None
    given = {name for name, value in tree.args.items() if value} if isinstance(tree, exp.Select) else set()
    # Brackets that belong together in the text alone, and not in the statement: `a) OR (b`.
    if tree is None or given != {"expressions", "where"} or not isinstance(tree.args["where"].this, exp.Paren):
        raise SqlError("the filter is more than a condition: write a query")


def rows_of(fragment_sql: str, table: str, columns: Sequence[str]) -> str:
    """The SQL that gives these columns of the rows that a fragment over a table looks at.

    >>> rows_of("SELECT COUNT(*) AS n FROM t WHERE t.a > 1 GROUP BY t.b", "t", ["a", "b"])
    'SELECT "a", "b" FROM "t" WHERE t.a > 1'
    """
    tree = _tree(fragment_sql)
    rows = exp.select(*(exp.column(exp.to_identifier(name, quoted=True)) for name in columns))
    rows = rows.from_(exp.Table(this=exp.to_identifier(table, quoted=True)))
    where = tree.args.get("where")
    is_plain = isinstance(tree, exp.Select) and not tree.args.get("joins") and not tree.args.get("with_")
    if where is not None and is_plain and where.find(exp.Query, exp.Window) is None:
        rows = rows.where(where.this.copy())
    return rows.sql("duckdb")


def _counts_only(tree: exp.Expr) -> bool:
    return all(isinstance(star.parent, exp.Count) for star in tree.find_all(exp.Star))


def _tree(fragment_sql: str) -> exp.Expr:
    return parsed_one(fragment_sql, "duckdb")


def restricted(plan: QueryPlan, only: Partitions) -> QueryPlan:
    """The plan over these partitions alone, as far as it needs them.

    The restrictions to the partitions of all legs of one plan share the answer between them: each row is in one.

    Raises `SqlError` for a plan that is not divisible, as one may be when it is made again.
    """
    if not is_divisible(plan):
        raise SqlError("the statement is not answered in parts any more: run it again")
    return attrs.evolve(plan, fragments=tuple(_restricted(fragment, only) for fragment in plan.fragments))


def _restricted(fragment: Fragment, only: Partitions) -> Fragment:
    tables = []
    for table in fragment.tables:
        if not table.whole:
            kept = frozenset(only.get(table.table, ()))
            partitions = tuple(partition for partition in table.partitions if partition in kept)
            table = attrs.evolve(table, partitions=partitions)
        tables.append(table)
    return attrs.evolve(fragment, tables=tuple(tables))
