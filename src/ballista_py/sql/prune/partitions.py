"""Which partitions a predicate leaves: the values that the partition keys can have in rows that satisfy it.

A partition is dropped only if no row of it can satisfy the predicate. A comparison counts only if its constant is
surely a value of the column's type, because a cast could change what is equal to what; everything else prunes
nothing. The predicate itself stays in the fragment.
"""

from __future__ import annotations

import datetime as dt
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen
from sqlglot import exp

from ballista_py.errors import BallistaError
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.spec import PartitionKey
from ballista_py.sql.bind.expressions import conjuncts, disjuncts
from ballista_py.sql.bind.query import Expr, column_id
from ballista_py.sql.place.placement import Split

Constraints: TypeAlias = dict[int, frozenset[Any]]

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}\Z")
_DECIMAL = re.compile(r"-?\d{1,26}(\.\d{1,26})?\Z")
_TIMESTAMP = re.compile(r"\d{4}-\d{2}-\d{2}( \d{2}:\d{2}:\d{2}(\.\d{1,6})?)?\Z")
_NUMBER = re.compile(r"-?\d+(\.\d+)?\Z")
_NOT_OF_THE_TYPE = (BallistaError, pa.ArrowException, OverflowError, ValueError)
_MAX_EXACT_FLOAT = 2**53
_COMPARISONS: dict[type[Expr], Callable[[Any, Any], bool]] = {
    exp.LT: operator.lt, exp.LTE: operator.le, exp.GT: operator.gt, exp.GTE: operator.ge,
}  # fmt: skip
# A function that never falls keeps an order, but may give two values one key.
_LOOSE: dict[type[Expr], type[Expr]] = {exp.LT: exp.LTE, exp.LTE: exp.LTE, exp.GT: exp.GTE, exp.GTE: exp.GTE}
_WHOLE_NUMBERS = {
    f"{sign}{name}": (0 if sign else -(2 ** (bits - 1)), 2**bits - 1 if sign else 2 ** (bits - 1) - 1)
    for name, bits in (("TINYINT", 8), ("SMALLINT", 16), ("INT", 32), ("BIGINT", 64))
    for sign in ("", "U")
}
_MIRRORED: dict[type[Expr], type[Expr]] = {exp.LT: exp.GT, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.GTE: exp.LTE}


class InexactError(Exception):
    """The constant is not surely a value of the column's type."""


@frozen(eq=False)
class Pruner:
    """Reads predicates over one split relation; `pmap` is the map of one of its tables."""

    split: Split
    pmap: PartitionMap

    def constraints(self, predicate: Expr) -> Constraints:
        """For each key that the predicate bounds, by its place, the values that its rows can have."""
        parts = list(conjuncts(predicate))
        if len(parts) > 1:
            return _all(self.constraints(part) for part in parts)
        branches = list(disjuncts(predicate))
        if len(branches) > 1:
            return _any([self.constraints(branch) for branch in branches])
        return self._of_comparison(predicate.unnest())

    def _of_comparison(self, node: Expr) -> Constraints:
        left, right = node.args.get("this"), node.args.get("expression")
        if not isinstance(left, exp.Expr):
            return {}
        if isinstance(node, exp.EQ | exp.NullSafeEQ) and isinstance(right, exp.Expr):
            keep_null = isinstance(node, exp.NullSafeEQ)
            return _all([self._values(left, [right], keep_null), self._values(right, [left], keep_null)])
        if isinstance(node, exp.In) and node.expressions:
            return self._values(left, node.expressions)
        if isinstance(node, exp.Is) and isinstance(right, exp.Null):
            return self._values(left, [right], keep_null=True)
        if isinstance(node, exp.Not) and isinstance(left, exp.Paren | exp.Is):
            tested = left.unnest()
            if isinstance(tested, exp.Is) and isinstance(tested.args["expression"], exp.Null):
                return self._there(tested.args["this"])
        if isinstance(node, exp.Between):
            low = self._range(left, exp.GTE, node.args["low"])
            return _all([low, self._range(left, exp.LTE, node.args["high"])])
        if type(node) in _COMPARISONS and isinstance(left, exp.Expr) and isinstance(right, exp.Expr):
            return _all([self._range(left, type(node), right), self._range(right, _MIRRORED[type(node)], left)])
        return {}

    def _keys_of(self, node: Expr) -> Iterable[tuple[int, PartitionKey]]:
        """The keys that are a function of this column alone, with their places."""
        node = node.unnest()
        if not isinstance(node, exp.Column) or not any(column_id(node) in names for names in self.split.carriers):
            return
        place = 0
        for position, key in enumerate(self.split.spec.keys):
            if key.column is not None and column_id(node) in self.split.carriers[place]:
                yield position, key
            place += len(key.columns)

    def _values(self, node: Expr, constants: list[Expr], keep_null: bool = False) -> Constraints:
        found: Constraints = {}
        for position, key in self._keys_of(node):
            kind = key.column_type  # found anew each time it is asked for
            try:
                values = [constant(item, kind) for item in constants]
                kept = [value for value in values if value is not None or keep_null]
                found[position] = self._key_values(key, kept)
            except (InexactError, *_NOT_OF_THE_TYPE):
                continue
        return found

    def _key_values(self, key: PartitionKey, column_values: list[Any]) -> frozenset[Any]:
        """What the key gives for these values of its only column."""
        (column,) = key.columns
        array = pa.array(column_values, column.type)
        return frozenset(key.evaluate({column.name: array}, len(array), self.split.spec.time_zone).to_pylist())

    def _range(self, node: Expr, comparison: type[Expr], bound: Expr) -> Constraints:
        found: Constraints = {}
        for position, key in self._keys_of(node):
            if pa.types.is_floating(key.column_type) or not (key.kind == "column" or key.is_monotonic):
                continue
            try:
                limit, holds = constant(bound, key.column_type), _COMPARISONS[comparison]
                if key.kind == "function" and limit is not None:
                    limit, holds = (
                        key.value_for(limit, self.split.spec.time_zone),
                        _COMPARISONS[_LOOSE[comparison]],
                    )
                present = self._present(position)
                found[position] = frozenset(v for v in present if limit is not None and holds(v, limit))
            except (InexactError, TypeError, *_NOT_OF_THE_TYPE):
                continue
        return found

    def _there(self, node: Expr) -> Constraints:
        """For `node IS NOT NULL`: the keys that are null exactly if their column is."""
        keys = self._keys_of(node)
        return {place: frozenset(self._present(place)) for place, key in keys if key.kind in ("column", "bucket")}

    def _present(self, position: int) -> list[Any]:
        """The values, not null, that a key has in any partition."""
        values: list[Any] = pc.unique(self.pmap.columns[position]).drop_null().to_pylist()
        return values


def constant(node: Expr, arrow_type: pa.DataType | None) -> Any:
    """The Python value that a constant has as a value of the column type; None for NULL.

    Raises `InexactError` for anything whose comparison with such a column could involve a cast that is not exact.
    """
    node = _without_cast(node.unnest())
    if isinstance(node, exp.Null):
        return None
    types = pa.types
    if arrow_type is not None and types.is_dictionary(arrow_type):
        arrow_type = arrow_type.value_type
    if arrow_type is None:
        raise InexactError
    if types.is_integer(arrow_type):
        return _integer(node)
    if types.is_decimal(arrow_type):
        return _decimal(node, arrow_type)
    if types.is_floating(arrow_type):
        number = _integer(node)
        if abs(number) > (_MAX_EXACT_FLOAT if types.is_float64(arrow_type) else 2**24):
            raise InexactError
        return float(number)
    if types.is_string(arrow_type) or types.is_large_string(arrow_type) or types.is_string_view(arrow_type):
        return _text(node)
    if types.is_boolean(arrow_type) and isinstance(node, exp.Boolean):
        return bool(node.this)
    if types.is_date(arrow_type):
        return dt.date.fromisoformat(_temporal(node, _DATE, ("DATE",)))
    if types.is_timestamp(arrow_type) and arrow_type.tz is None:
        return dt.datetime.fromisoformat(_temporal(node, _TIMESTAMP, ("TIMESTAMP", "TIMESTAMPNTZ", "DATE")))
    raise InexactError


def _without_cast(node: Expr) -> Expr:
    """The number itself where its type is spelt out, as it is for a parameter that was bound."""
    if not isinstance(node, exp.Cast):
        return node
    inner, to = node.this, node.args["to"]
    if to.this in exp.DataType.INTEGER_TYPES:
        number = inner.this if isinstance(inner, exp.Neg) else inner
        return inner if isinstance(number, exp.Literal) and number.is_int else node
    if to.this == exp.DType.DECIMAL and isinstance(inner, exp.Literal) and _NUMBER.match(inner.name):
        digits = exp.Literal.number(inner.name.removeprefix("-"))
        return exp.Neg(this=digits) if inner.name.startswith("-") else digits
    return node


def _cast_decimal(node: Expr, arrow_type: pa.DataType) -> Decimal:
    """The value of `CAST('1.50' AS DECIMAL(4, 2))`, if no digit of the text is lost."""
    sizes = [int(size.name) for size in node.args["to"].expressions]
    inner = node.args["this"].unnest()
    if len(sizes) != 2 or not isinstance(inner, exp.Literal) or _DECIMAL.match(inner.name) is None:
        raise InexactError
    value = Decimal(inner.name)
    fits = value == round(value, sizes[1]) and abs(value) < Decimal(10) ** (sizes[0] - sizes[1])
    if not fits or value != round(value, arrow_type.scale):
        raise InexactError
    return value


def _text(node: Expr) -> str:
    if isinstance(node, exp.Cast) and node.args["to"].this.name in ("VARCHAR", "TEXT"):
        node = node.args["this"].unnest()
    if isinstance(node, exp.Literal) and node.is_string:
        return str(node.this)
    raise InexactError


def _integer(node: Expr) -> int:
    if isinstance(node, exp.Neg):
        return -_integer(node.args["this"].unnest())
    if isinstance(node, exp.Cast) and node.args["to"].this.name in _WHOLE_NUMBERS:
        low, high = _WHOLE_NUMBERS[node.args["to"].this.name]
        number = _integer(node.args["this"].unnest())
        if not low <= number <= high:
            raise InexactError
        return number
    if isinstance(node, exp.Literal) and node.is_int:
        return int(node.this)
    raise InexactError


def _decimal(node: Expr, arrow_type: pa.DataType) -> Decimal:
    if isinstance(node, exp.Neg):
        return -_decimal(node.args["this"].unnest(), arrow_type)
    if isinstance(node, exp.Cast) and node.args["to"].this.name == "DECIMAL":
        return _cast_decimal(node, arrow_type)
    if not isinstance(node, exp.Literal) or node.is_string or "e" in node.name.lower() or len(node.name) > 26:
        raise InexactError
    value = Decimal(node.name)
    scaled = value.scaleb(arrow_type.scale)
    if scaled != scaled.to_integral_value():
        raise InexactError
    return value


def _temporal(node: Expr, form: re.Pattern[str], types: tuple[str, ...]) -> str:
    if isinstance(node, exp.Cast) and node.args["to"].this.name in types:
        if node.args["to"].this.name == "DATE":
            form = _DATE
        node = node.args["this"]
    text = _text(node)
    if form.match(text) is None:
        raise InexactError
    try:
        dt.datetime.fromisoformat(text)
    except ValueError:
        raise InexactError from None
    return text


def _all(parts: Iterable[Mapping[int, frozenset[Any]]]) -> Constraints:
    merged: Constraints = {}
    for part in parts:
        for position, values in part.items():
            merged[position] = merged[position] & values if position in merged else values
    return merged


def _any(parts: list[Constraints]) -> Constraints:
    positions = set(parts[0]).intersection(*parts[1:])
    return {position: frozenset().union(*(part[position] for part in parts)) for position in positions}
