"""How many rows and bytes a relation will have, guessed from the sizes of its partitions. Never exact.

An estimate chooses between plans that give the same answer; it never drops a row. Rows of a table are those of the
partitions that pruning left, as their owners report them from the manifests; each filter keeps a share of them that
depends on its form alone, and a join has as many rows as its largest side.

Which part of a column conditions keep that compare it with constants, where it is known how its values lie.

For estimates: what is not understood is not told, and a month has as many days as the mean of all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import TypeAlias

import pyarrow as pa
from sqlglot import exp

from ballista_py.errors import BallistaError
from ballista_py.partitions.table import TableSpec
from ballista_py.sql.bind.expressions import equated_columns, facts_of, free_aliases, nested_of
from ballista_py.sql.bind.query import (
    ColumnId,
    Draft,
    Expr,
    Query,
    Relation,
    Scan,
    Select,
    SetOperation,
    SharedScan,
    column_id,
)
from ballista_py.sql.bind.types import Kind, kinds_of_query
from ballista_py.sql.estimate.statistics import TEXT_BYTES, Spread, position_of
from ballista_py.sql.place.placement import Placement, Split, left_of
from ballista_py.sql.prune.partitions import InexactError, constant

Ends: TypeAlias = tuple[float | None, float | None]
_NO_CONSTANT = (InexactError, BallistaError, pa.ArrowException, OverflowError, TypeError, ValueError)
_BELOW, _ABOVE = (exp.LT, exp.LTE), (exp.GT, exp.GTE)
_DAYS = {
    "SECOND": 1 / 86_400, "MINUTE": 1 / 1_440, "HOUR": 1 / 24, "DAY": 1.0, "WEEK": 7.0, "MONTH": 30.44,
    "QUARTER": 91.31, "YEAR": 365.24,
}  # fmt: skip


def share_of_ranges(conjuncts: Iterable[Expr], draft: Draft) -> tuple[float, list[Expr]]:
    """The share of rows that conditions on ranges of columns keep together, and the other conjuncts."""
    ends: dict[ColumnId, Ends] = {}
    spreads: dict[ColumnId, Spread] = {}
    others: list[Expr] = []
    for conjunct in conjuncts:
        found = _range_of(conjunct.unnest(), draft)
        if found is None:
            others.append(conjunct)
            continue
        name, spreads[name], (low, high) = found[0], found[1], found[2]
        before = ends.get(name, (None, None))
        ends[name] = _later(before[0], low), _earlier(before[1], high)
    share = 1.0
    for name, (low, high) in ends.items():
        share *= spreads[name].share(low, high)
    return share, others


def _range_of(node: Expr, draft: Draft) -> tuple[ColumnId, Spread, Ends] | None:
    if isinstance(node, exp.Between):
        return _told(node.this, node.args["low"], node.args["high"], draft)
    if not isinstance(node, (*_BELOW, *_ABOVE)):
        return None
    left, right = node.this, node.expression
    below = isinstance(node, _BELOW)
    if isinstance(left.unnest(), exp.Column):
        return _told(left, None, right, draft) if below else _told(left, right, None, draft)
    return _told(right, left, None, draft) if below else _told(right, None, left, draft)


def _told(node: Expr, low: Expr | None, high: Expr | None, draft: Draft) -> tuple[ColumnId, Spread, Ends] | None:
    node = node.unnest()
    if not isinstance(node, exp.Column):
        return None
    name = column_id(node)
    source = draft.sources.get(name[0])
    if source is None or not isinstance(source.relation, Scan):
        return None
    table = source.relation.table
    spread = draft.catalog.spread(table.name, name[1])
    if spread is None:
        return None
    kind = table.schema.field(name[1]).type
    try:
        return name, spread, (_position(low, kind), _position(high, kind))
    except _NO_CONSTANT:
        return None


def _position(node: Expr | None, kind: pa.DataType) -> float | None:
    if node is None:
        return None
    node = node.unnest()
    if isinstance(node, exp.Add | exp.Sub) and isinstance(node.expression.unnest(), exp.Interval):
        start = _position(node.this, kind)
        days = _days_of(node.expression.unnest())
        if start is None:
            raise InexactError
        return start + days if isinstance(node, exp.Add) else start - days
    found = position_of(constant(node, kind))
    if found is None:
        raise InexactError
    return found


def _days_of(interval: Expr) -> float:
    number, unit = interval.args.get("this"), interval.args.get("unit")
    days = None if unit is None else _DAYS.get(unit.name.upper().removesuffix("S"))
    if not isinstance(number, exp.Literal) or days is None:
        raise InexactError
    return float(number.name) * days


def _later(one: float | None, other: float | None) -> float | None:
    return max((end for end in (one, other) if end is not None), default=None)


def _earlier(one: float | None, other: float | None) -> float | None:
    return min((end for end in (one, other) if end is not None), default=None)


_OTHER_BYTES = 16
_DEFAULT_SHARE = 0.5
_EQUAL_SHARE = 0.1
_GROUPED_SHARE = 0.2
_PROBE_BYTES = 64  # a row that asks a correlated query takes as long as 60 to 100 bytes to the merge
_KIND_BYTES: dict[Kind | None, int] = {
    "int": 8, "float": 4, "double": 8, "bool": 1, "date": 4, "timestamp": 8, "time": 8, "text": TEXT_BYTES,
}  # fmt: skip
_SHARES: dict[type[Expr], float] = {
    exp.EQ: _EQUAL_SHARE, exp.NullSafeEQ: _EQUAL_SHARE, exp.Is: _EQUAL_SHARE, exp.Like: 0.15, exp.Between: 0.25,
    exp.LT: 0.4, exp.LTE: 0.4, exp.GT: 0.4, exp.GTE: 0.4, exp.NEQ: 0.9, exp.Not: 0.9,
}  # fmt: skip


def rows_of_table(table: TableSpec, placement: Placement, draft: Draft) -> float:
    """The rows of the partitions that `placement` leaves of a table."""
    found = left_of(table, placement, draft) if isinstance(placement, Split) else None
    if found is None:
        return draft.catalog.total_rows(table.name)
    return float(draft.catalog.rows(table.name)[found].sum())


def rows_of_query(query: Query, draft: Draft) -> float:
    """The rows of a query, without regard to pruning."""
    if isinstance(query, SetOperation):
        left, right = rows_of_query(query.left, draft), rows_of_query(query.right, draft)
        rows = left + right if query.kind == "union" else left
        return min(rows, query.limit) if query.limit is not None else rows
    rows = max((rows_of_relation(source.relation, draft) for source in query.sources), default=1.0)
    rows *= share_of(query.where, draft)
    if query.grouped:
        rows = max(1.0, rows * _GROUPED_SHARE) if query.group else 1.0
    return min(rows, query.limit) if query.limit is not None else rows


def rows_of_relation(relation: Relation, draft: Draft) -> float:
    """The rows of a FROM item, without regard to pruning."""
    if isinstance(relation, Scan):
        return draft.catalog.total_rows(relation.table.name)
    if isinstance(relation, SharedScan):
        return _rows_of_shared(relation.shared.query, draft)
    return rows_of_query(relation, draft) if isinstance(relation, Query) else 1.0


def _rows_of_shared(query: Query, draft: Draft) -> float:
    """Reckoned once, however many lead to it: of a chain in which each uses the one before twice, 2 ** n would."""
    known = draft.rows_of.get(id(query))
    if known is None or known[0] is not query:
        known = draft.rows_of[id(query)] = (query, rows_of_query(query, draft))
    return known[1]


def bytes_of_query(query: Query, placement: Placement, draft: Draft) -> float:
    """The bytes that a query gives over the partitions which its placement leaves."""
    rows = rows_of_query(query, draft) * share_of_partitions(placement, draft)
    return rows * bytes_of_row(query, draft)


def share_of_partitions(placement: Placement, draft: Draft) -> float:
    """The share of the rows of its tables that is in the partitions which a placement leaves."""
    if not isinstance(placement, Split) or all(values is None for values in placement.allowed):
        return 1.0
    tables = [draft.catalog.tables[name] for name in sorted(placement.tables)]
    whole = sum(draft.catalog.total_rows(table.name) for table in tables)
    return sum(rows_of_table(table, placement, draft) for table in tables) / max(whole, 1.0)


def bytes_of_row(query: Query, draft: Draft) -> float:
    """The bytes of one row that a query gives."""
    return 1 + sum(_output_bytes(query, draft))


def _output_bytes(query: Query, draft: Draft) -> Iterator[float]:
    """The bytes of one value of each output."""
    first = query
    while isinstance(first, SetOperation):
        first = first.left
    for item, kind in zip(first.items, kinds_of_query(query, draft), strict=True):
        if isinstance(item.expr, exp.Column) and kind == "text":
            yield _width(column_id(item.expr), draft)
        else:
            yield _KIND_BYTES.get(kind, _OTHER_BYTES)


def share_of(conjuncts: Iterable[Expr], draft: Draft) -> float:
    """The share of rows that conjuncts are guessed to keep; what only joins keeps all."""
    share, others = share_of_ranges(conjuncts, draft)
    return share * prod(_share(conjunct, draft) for conjunct in others)


def _share(conjunct: Expr, draft: Draft) -> float:
    node = conjunct.unnest()
    if equated_columns(node) is not None:
        return 1.0
    if isinstance(node, exp.In) and node.expressions:
        return min(_DEFAULT_SHARE, _EQUAL_SHARE * len(node.expressions))
    if isinstance(node, exp.In) and node.args.get("query") is not None:
        return _share_of_members(nested_of(node, draft), draft)
    return _SHARES.get(type(node), _DEFAULT_SHARE)


def _share_of_members(members: Iterable[Query], draft: Draft) -> float:
    """What `x IN (query)` keeps: of all values of x as many as the query's filters leave of its own rows."""
    kept = prod(share_of(query.where, draft) for query in members if isinstance(query, Select))
    return min(_DEFAULT_SHARE, kept)


def bytes_of_probes(sources: Iterable[tuple[Relation, Placement]], where: Sequence[Expr], draft: Draft) -> float:
    """What evaluating correlated queries costs a leg, as the bytes that could be shipped in that time."""
    asked = [part for part in where if any(free_aliases(query, draft) for query in nested_of(part, draft))]
    if not asked:
        return 0.0
    plain = [part for part in where if not facts_of(part, draft).nested]
    return rows_of_select_unit(sources, plain, draft) * len(asked) * _PROBE_BYTES


def bytes_of_columns(columns: Iterable[ColumnId], draft: Draft) -> float:
    """The bytes of one row of these columns, as Arrow holds them."""
    return 1 + sum(_width(column, draft) for column in columns)


def _width(column: ColumnId, draft: Draft) -> float:
    relation = draft.sources[column[0]].relation
    if not isinstance(relation, Scan):
        return _OTHER_BYTES
    return draft.catalog.column_bytes(relation.table.name)[column[1]]


def rows_of_select_unit(
    sources: Iterable[tuple[Relation, Placement]], where: Iterable[Expr], draft: Draft
) -> float:
    """The rows of joined sources under a placement that pruned them."""
    rows = 1.0
    for relation, placement in sources:
        if isinstance(relation, Scan) and relation.table.distribution != "replicated":
            rows = max(rows, rows_of_table(relation.table, placement, draft))
        elif not isinstance(relation, Scan):
            rows = max(rows, rows_of_relation(relation, draft))
    return rows * share_of(where, draft)
