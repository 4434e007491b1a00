"""Which files a predicate leaves, by the bounds of their columns: a file is dropped only if no row of it can match.

As with partitions, a comparison counts only if its constant is surely a value of the column's type, and everything
that is not understood drops nothing. NaN lies outside the bounds of a column and above every number.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import pyarrow as pa
from attrs import frozen
from sqlglot import exp

from ballista_py.errors import BallistaError
from ballista_py.sql.bind.expressions import conjuncts, disjuncts
from ballista_py.sql.bind.query import Expr
from ballista_py.sql.prune.file_bounds import ColumnBounds, ColumnTest, Condition, Operator
from ballista_py.sql.prune.partitions import InexactError, constant

_NO_CONSTANT = (InexactError, BallistaError, pa.ArrowException, OverflowError, TypeError, ValueError)
_MIRRORED: dict[type[Expr], type[Expr]] = {
    exp.LT: exp.GT, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.GTE: exp.LTE, exp.EQ: exp.EQ,
}  # fmt: skip

_OPERATORS: dict[type[Expr], Operator] = {exp.EQ: "=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}


@frozen(kw_only=True)
class FilePruner:
    """Reads a predicate over one table, which it calls by any of `names`; `where` None is true for every row.

    >>> from sqlglot import parse_one
    >>> where = parse_one("id > 7 and kind = 'a'")
    >>> pruner = FilePruner(where=where, names=("t",), schema=pa.schema([("id", pa.int64()), ("kind", pa.string())]))
    >>> [pruner.may_match(10, {"id": ColumnBounds(low=1, high=high)}) for high in (7, 8)]
    [False, True]
    """

    where: Expr | None
    names: Collection[str]
    schema: pa.Schema

    def may_match(self, rows: int, columns: Mapping[str, ColumnBounds]) -> bool:
        """Whether a file of so many rows, with these bounds by column, may hold a row for which `where` is true."""
        return rows > 0 and (self.where is None or self._may(self.where, rows, columns))

    def condition(self) -> Condition:
        """What `where` asks of single columns, as far as it is understood, to be tested without it.

        >>> from sqlglot import parse_one
        >>> schema = pa.schema([("id", pa.int64()), ("v", pa.float64())])
        >>> where = parse_one("(id > 7 or id < 2) and v > 2 and v + id < 3")
        >>> ((more, less),) = FilePruner(where=where, names=("t",), schema=schema).condition()
        >>> more, less
        ((ColumnTest(column='id', operator='>', value=7),), (ColumnTest(column='id', operator='<', value=2),))
        """
        if self.where is None:
            return ()
        found = (self._clause(part) for part in conjuncts(self.where))
        return tuple(clause for clause in found if all(clause))

    def _clause(self, node: Expr) -> tuple[tuple[ColumnTest, ...], ...]:
        """The branches of a part of the condition; one of them without tests if that is not understood."""
        branches: list[tuple[ColumnTest, ...]] = []
        for branch in disjuncts(node):
            items = branch.unnest()
            if isinstance(items, exp.In) and items.expressions and not items.args.get("negate"):
                branches += [self._written(exp.EQ, items.this, item) for item in items.expressions]
            else:
                branches.append(tuple(test for part in conjuncts(branch) for test in self._tests(part.unnest())))
        return tuple(branches)

    def _tests(self, node: Expr) -> tuple[ColumnTest, ...]:
        left, right = node.args.get("this"), node.args.get("expression")
        if not isinstance(left, exp.Expr) or node.args.get("negate"):
            return ()
        tested = left.unnest()
        is_not = isinstance(node, exp.Not) and isinstance(tested, exp.Is)
        if is_not and isinstance(tested.args["expression"], exp.Null):
            return self._of_column(tested.this, "is not null")
        if isinstance(node, exp.Is) and isinstance(right, exp.Null):
            return self._of_column(left, "is null")
        if isinstance(node, exp.Between):
            low, high = node.args["low"], node.args["high"]
            first = self._written(exp.GTE, left, low, nan=not _is_number(high))
            return first + self._written(exp.LTE, left, high)
        if type(node) not in _MIRRORED or not isinstance(right, exp.Expr):
            return ()
        return self._written(type(node), left, right) or self._written(_MIRRORED[type(node)], right, left)

    def _written(
        self, comparison: type[Expr], column: Expr, value: Expr, *, nan: bool = True
    ) -> tuple[ColumnTest, ...]:
        field = self._field(column)
        if field is None or (nan and pa.types.is_floating(field.type) and comparison in (exp.GT, exp.GTE)):
            return ()
        try:
            limit = constant(value, field.type)
        except _NO_CONSTANT:
            return ()
        return () if limit is None else (ColumnTest(field.name, _OPERATORS[comparison], limit),)

    def _of_column(self, node: Expr, operator: Operator) -> tuple[ColumnTest, ...]:
        field = self._field(node)
        return () if field is None else (ColumnTest(field.name, operator),)

    def _field(self, node: Expr) -> pa.Field | None:
        """The column of the table that this is, if its bounds are what they are."""
        node = node.unnest()
        if not isinstance(node, exp.Column) or node.args.get("db") is not None:
            return None
        if node.table and node.table.lower() not in self.names:
            return None
        field = next((field for field in self.schema if field.name.lower() == node.name.lower()), None)
        return None if field is None or _is_rounded(field.type) else field

    def _may(self, node: Expr, rows: int, columns: Mapping[str, ColumnBounds]) -> bool:
        parts = list(conjuncts(node))
        if len(parts) > 1:
            return all(self._may(part, rows, columns) for part in parts)
        branches = list(disjuncts(node))
        if len(branches) > 1:
            return any(self._may(branch, rows, columns) for branch in branches)
        node = node.unnest()
        if isinstance(node, exp.Boolean):
            return bool(node.this)
        return self._may_compare(node, rows, columns)

    def _may_compare(self, node: Expr, rows: int, columns: Mapping[str, ColumnBounds]) -> bool:
        left, right = node.args.get("this"), node.args.get("expression")
        if node.args.get("negate"):  # NOT LIKE is a LIKE with this mark
            return True
        if isinstance(node, exp.Not) and isinstance(left, exp.Expr):
            tested = left.unnest()
            is_null = isinstance(tested, exp.Is) and isinstance(tested.args["expression"], exp.Null)
            return not is_null or self._test(tested.args["this"], columns, lambda b, _: b.nulls != rows)
        if isinstance(node, exp.Is) and isinstance(right, exp.Null) and isinstance(left, exp.Expr):
            return self._test(left, columns, lambda b, _: b.nulls is None or b.nulls > 0)
        if not isinstance(left, exp.Expr):
            return True
        if isinstance(node, exp.In) and node.expressions:
            return any(self._compare(exp.EQ, left, item, rows, columns) for item in node.expressions)
        if isinstance(node, exp.Between):
            low, high = node.args["low"], node.args["high"]
            # NaN is not below an upper end that is a number, so there the lower one tells, too.
            nan = not _is_number(high)
            return self._compare(exp.GTE, left, low, rows, columns, nan=nan) and self._compare(
                exp.LTE, left, high, rows, columns
            )
        if not isinstance(right, exp.Expr):
            return True
        if isinstance(node, exp.Like):
            return self._test(left, columns, lambda b, kind: _may_begin(b, right, kind))
        if type(node) in _MIRRORED:
            return self._compare(type(node), left, right, rows, columns) and self._compare(
                _MIRRORED[type(node)], right, left, rows, columns
            )
        return True

    def _compare(
        self,
        comparison: type[Expr],
        column: Expr,
        value: Expr,
        rows: int,
        columns: Mapping[str, ColumnBounds],
        *,
        nan: bool = True,
    ) -> bool:
        def may(bounds: ColumnBounds, kind: pa.DataType) -> bool:
            limit = constant(value, kind)
            if limit is None or bounds.nulls == rows:
                return False
            above_all = nan and pa.types.is_floating(kind) and comparison in (exp.GT, exp.GTE)
            return above_all or _within(comparison, bounds, limit)

        return self._test(column, columns, may)

    def _test(
        self, node: Expr, columns: Mapping[str, ColumnBounds], may: Callable[[ColumnBounds, pa.DataType], bool]
    ) -> bool:
        """What `may` says of a column whose bounds are known; True for everything else."""
        field = self._field(node)
        if field is None or field.name not in columns:
            return True
        try:
            return may(columns[field.name], field.type)
        except _NO_CONSTANT:
            return True


def _within(comparison: type[Expr], bounds: ColumnBounds, limit: Any) -> bool:
    low, high = bounds.low, bounds.high
    if comparison is exp.EQ:
        return (low is None or low <= limit) and (high is None or high >= limit)
    if comparison is exp.LT:
        return bool(low is None or low < limit)
    if comparison is exp.LTE:
        return bool(low is None or low <= limit)
    if comparison is exp.GT:
        return bool(high is None or high > limit)
    return bool(high is None or high >= limit)


def _may_begin(bounds: ColumnBounds, pattern: Expr, kind: pa.DataType) -> bool:
    """Whether a text between the bounds can begin as the pattern of a LIKE does."""
    text = constant(pattern, kind)
    if not isinstance(text, str):
        return text is not None
    begin = text[: min(text.find(mark) % (len(text) + 1) for mark in "%_")]
    low, high = bounds.low, bounds.high
    return (high is None or high >= begin) and (low is None or low[: len(begin)] <= begin)


def _is_number(value: Expr) -> bool:
    value = value.unnest()
    value = value.this if isinstance(value, exp.Neg) else value
    return isinstance(value, exp.Literal) and not value.is_string


def _is_rounded(kind: pa.DataType) -> bool:
    """Whether a bound of the type may have lost digits on its way through text."""
    return bool(pa.types.is_timestamp(kind) and kind.unit == "ns")
