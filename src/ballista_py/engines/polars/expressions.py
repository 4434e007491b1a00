"""Expressions of a bound plan as Polars expressions that give the same value for every input, or an error.

A whitelist: each entry was compared with DuckDB. Whole numbers are computed in 128 bits and cast back strictly, so
what overflows is an error as it is there. An operation that is not on the list is refused by its name.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import polars as pl

from ballista_py.engines.polars.types import Kind, refused
from ballista_py.errors import SqlError

Node = dict[str, Any]
BOOLEAN = Kind("BOOLEAN")
_KNOWN_KEYS = frozenset((
    "alias", "arguments", "case_checks", "children", "else_expr", "expression_class", "function_data",
    "has_serialize", "index", "is_operator", "qname", "query_location", "query_location_length", "return_type",
    "type", "value",
))  # fmt: skip
_COMPARISONS: dict[str, Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    "COMPARE_EQUAL": lambda a, b: a == b,
    "COMPARE_NOTEQUAL": lambda a, b: a != b,
    "COMPARE_LESSTHAN": lambda a, b: a < b,
    "COMPARE_GREATERTHAN": lambda a, b: a > b,
    "COMPARE_LESSTHANOREQUALTO": lambda a, b: a <= b,
    "COMPARE_GREATERTHANOREQUALTO": lambda a, b: a >= b,
    "COMPARE_NOT_DISTINCT_FROM": lambda a, b: a.eq_missing(b),
    "COMPARE_DISTINCT_FROM": lambda a, b: a.ne_missing(b),
}
_DATE_PARTS: dict[str, Callable[[pl.Expr], pl.Expr]] = {
    "year": lambda e: e.dt.year(),
    "month": lambda e: e.dt.month(),
    "day": lambda e: e.dt.day(),
    "quarter": lambda e: e.dt.quarter(),
    "dayofyear": lambda e: e.dt.ordinal_day(),
}
_ARITHMETIC = frozenset(("+", "-", "*", "%", "mod"))
_EXACT_IN_DOUBLE = 2**53
_EPOCH = dt.date(1970, 1, 1)


class Expressions:
    """Translates the expressions over one row: `names` and `kinds` are its columns, None for one not to be read."""

    def __init__(self, names: Sequence[str], kinds: Sequence[Kind | None]) -> None:
        self.names = names
        self.kinds = kinds

    def kind(self, node: Node) -> Kind:
        """The type of the value of a node."""
        if node.get("expression_class") == "BOUND_CONSTANT":
            return Kind.of(node["value"]["type"])
        if node.get("expression_class") == "BOUND_CONJUNCTION" or "return_type" not in node:
            return BOOLEAN
        return Kind.of(node["return_type"])

    def expr(self, node: Node) -> pl.Expr:
        """The node as a Polars expression. Raises `SqlError` naming what is not on the list."""
        unknown = node.keys() - _KNOWN_KEYS
        if unknown:
            raise refused(f"expressions with {min(unknown)}")
        method = _BY_CLASS.get(str(node.get("expression_class")))
        if method is None:
            raise refused(_named(node))
        return method(self, node)

    def condition(self, nodes: Sequence[Node]) -> pl.Expr:
        """All of these together."""
        return reduce(lambda a, b: a & b, map(self.expr, nodes))

    def _reference(self, node: Node) -> pl.Expr:
        index = int(node.get("index", 0))
        if self.kinds[index] is None:
            raise refused("the row id of a table")
        return pl.col(self.names[index])

    def _constant(self, node: Node) -> pl.Expr:
        return literal(node["value"])

    def _conjunction(self, node: Node) -> pl.Expr:
        parts = [self.expr(child) for child in node["children"]]
        if node["type"] == "CONJUNCTION_AND":
            return reduce(lambda a, b: a & b, parts)
        if node["type"] == "CONJUNCTION_OR":
            return reduce(lambda a, b: a | b, parts)
        raise refused(_named(node))

    def _case(self, node: Node) -> pl.Expr:
        kind = self.kind(node)
        chain: Any = pl
        for check in node["case_checks"]:
            chain = chain.when(self.expr(check["when_expr"])).then(self._branch(check["then_expr"], kind))
        otherwise = node.get("else_expr")
        last = pl.lit(None, kind.held) if otherwise is None else self._branch(otherwise, kind)
        found: pl.Expr = chain.otherwise(last)
        return found

    def _branch(self, node: Node, kind: Kind) -> pl.Expr:
        if self.kind(node) != kind:
            raise refused(f"CASE with a branch of {self.kind(node)} for {kind}")
        return self.expr(node)

    def _operator(self, node: Node) -> pl.Expr:
        kind, children = node["type"], node.get("children", [])
        if kind in ("COMPARE_IN", "COMPARE_NOT_IN"):
            value, *others = children
            found = reduce(lambda a, b: a | b, (self._compared("COMPARE_EQUAL", value, other) for other in others))
            return ~found if kind == "COMPARE_NOT_IN" else found
        if kind == "OPERATOR_COALESCE":
            return pl.coalesce([self._branch(child, self.kind(node)) for child in children])
        (only,) = map(self.expr, children) if len(children) == 1 else (None,)
        if only is not None and kind == "OPERATOR_NOT":
            return ~only
        if only is not None and kind == "OPERATOR_IS_NULL":
            return only.is_null()
        if only is not None and kind == "OPERATOR_IS_NOT_NULL":
            return only.is_not_null()
        raise refused(_named(node))

    def _compared(self, comparison: str, left: Node, right: Node) -> pl.Expr:
        a, b = self.kind(left), self.kind(right)
        if a != b and not (a.name == b.name == "DECIMAL" and a.scale == b.scale):
            raise refused(f"the comparison of {a} with {b}")
        return _COMPARISONS[comparison](self.expr(left), self.expr(right))

    def _function(self, node: Node) -> pl.Expr:
        kind, children = str(node["type"]), node.get("children", [])
        name = function_name(node)
        if kind in _COMPARISONS and len(children) == 2:
            return self._compared(kind, *children)
        if kind == "OPERATOR_CAST" and len(children) == 1:
            if node.get("function_data", {}).get("try_cast"):
                raise refused("TRY_CAST")
            return cast(self.expr(children[0]), self.kind(children[0]), self.kind(node))
        if name in _ARITHMETIC and len(children) in (1, 2):
            return self._arithmetic(name, node)
        if name == "abs" or (name == "/" and self.kind(node).is_float):
            return self._arithmetic(name, node)
        return self._called(name, node)

    def _called(self, name: str, node: Node) -> pl.Expr:
        children = node.get("children", [])
        kinds = [self.kind(child).name for child in children]
        if name in _DATE_PARTS and kinds in (["DATE"], ["TIMESTAMP"]):
            return _DATE_PARTS[name](self.expr(children[0])).cast(pl.Int64)
        if name in ("~~", "!~~") and kinds == ["VARCHAR", "VARCHAR"]:
            found = self.expr(children[0]).str.contains(like_as_regex(_text(children[1], "LIKE")))
            return ~found if name == "!~~" else found
        if name in ("contains", "prefix", "suffix", "starts_with", "ends_with") and kinds == ["VARCHAR"] * 2:
            value, wanted = self.expr(children[0]), _text(children[1], name)
            if name == "contains":
                return value.str.contains(wanted, literal=True)
            return (
                value.str.starts_with(wanted) if name in ("prefix", "starts_with") else value.str.ends_with(wanted)
            )
        if name in ("length", "len") and kinds == ["VARCHAR"]:
            return self.expr(children[0]).str.len_chars().cast(pl.Int64)
        if name == "||" and kinds == ["VARCHAR"] * 2:
            return self.expr(children[0]) + self.expr(children[1])
        if name in ("substring", "substr") and kinds == ["VARCHAR", "BIGINT", "BIGINT"]:
            start, length = (_number(child, "substring") for child in children[1:])
            if start < 1 or length < 0:
                raise refused("substring that counts from the end")
            return self.expr(children[0]).str.slice(start - 1, length)
        raise refused(_named(node))

    def _arithmetic(self, name: str, node: Node) -> pl.Expr:
        kind, children = self.kind(node), node["children"]
        kinds = [self.kind(child) for child in children]
        remainder = name in ("%", "mod")
        if remainder and (len(children) != 2 or not _divides(children[1])):
            raise refused(f"'{name}' by anything but a whole number above 0")
        if kind.is_float and not remainder and all(one == kind for one in kinds):
            return _apply(name, [self.expr(child) for child in children])
        if kind.is_integer and kind.name != "HUGEINT" and all(one == kind for one in kinds):
            wide = [self.expr(child).cast(_wider(kind)) for child in children]
            return within(_apply(name, wide), kind)
        if kind.name == "DECIMAL" and not remainder and all(one.name == "DECIMAL" for one in kinds):
            scales = [one.scale for one in kinds]
            expected = [kind.scale] * len(kinds) if name != "*" else [scales[0], kind.scale - scales[0]]
            digits = sum(one.width for one in kinds) if name == "*" else max(one.width for one in kinds) + 1
            if scales == expected and digits <= 38:
                # What fits 18 digits surely is computed in 64 bits, which is much faster.
                held = pl.Int64() if digits <= 18 else pl.Int128()
                made = _apply(name, [self.expr(child).cast(held) for child in children])
                return made.cast(kind.held) if digits <= kind.width else within(made, kind)
        raise refused(f"'{name}' over {', '.join(map(str, kinds))}")


def cast(value: pl.Expr, source: Kind, target: Kind) -> pl.Expr:
    """The value as `target`, with an error where DuckDB has one. Raises `SqlError` for a pair not on the list."""
    if source == target:
        return value
    if source.is_integer and target.is_integer:
        return within(value, target)
    if source.is_integer and target.name == "DECIMAL" and source.name != "HUGEINT":
        return within(_times(value.cast(pl.Int128), target.scale, 20), target)
    if source.name == target.name == "DECIMAL" and target.scale >= source.scale:
        return within(_times(value.cast(pl.Int128), target.scale - source.scale, source.width), target)
    if source.name == "DECIMAL" and target.name == "DOUBLE":
        return _as_double(value, source.scale)
    if source.is_integer and target.name == "DOUBLE":
        return value.cast(pl.Float64)
    if (source.name, target.name) == ("FLOAT", "DOUBLE") or (source == BOOLEAN and target.is_integer):
        return value.cast(target.held)
    if source.name == "DATE" and target.name == "TIMESTAMP":
        return value.cast(pl.Datetime("us"))
    if (source.name, target.name) == ("TIMESTAMP", "TIMESTAMP WITH TIME ZONE"):
        return value.dt.replace_time_zone("UTC")  # which is every session's
    if (source.name, target.name) == ("DATE", "TIMESTAMP WITH TIME ZONE"):
        return value.cast(pl.Datetime("us")).dt.replace_time_zone("UTC")
    raise refused(f"the cast of {source} to {target}")


def within(value: pl.Expr, kind: Kind) -> pl.Expr:
    """The whole number as `kind`; while it runs, one that does not fit is a `SqlError`."""
    if kind.name == "DECIMAL":
        bound = 10**kind.width

        def checked(numbers: pl.Series) -> pl.Series:
            low, high = numbers.min(), numbers.max()
            if low is not None and (low <= -bound or high >= bound):
                raise SqlError(f"a value is out of the range of {kind}")
            return numbers.cast(kind.held)
    else:

        def checked(numbers: pl.Series) -> pl.Series:
            try:
                return numbers.cast(kind.held)
            except pl.exceptions.InvalidOperationError:
                raise SqlError(f"a value is out of the range of {kind}") from None

    return value.map_batches(checked, return_dtype=kind.held, is_elementwise=True)


def literal(value: Node) -> pl.Expr:
    """A constant. Raises `SqlError` for one of a type that is not held."""
    if value["type"].get("id") == "NULL":
        raise refused("a NULL without a type")
    kind = Kind.of(value["type"])
    if value["is_null"]:
        return pl.lit(None, kind.held)
    found = value["value"]
    if isinstance(found, dict):
        found = int(found["upper"]) * 2**64 + int(found["lower"])
    if kind.name == "BLOB" or (kind.is_float and not isinstance(found, int | float)):
        raise refused(f"a constant of type {kind}")
    if kind.name == "DATE":
        try:
            return pl.lit(_EPOCH + dt.timedelta(days=int(found)), kind.held)
        except OverflowError:
            raise refused(f"the date that is {found} days from 1970") from None
    if kind.name in ("TIMESTAMP", "TIMESTAMP WITH TIME ZONE"):
        return pl.lit(int(found), pl.Int64).cast(kind.held)
    if kind.name == "TIME":
        return pl.lit(int(found) * 1_000, pl.Int64).cast(kind.held)
    return pl.lit(found, kind.held)


def like_as_regex(pattern: str) -> str:
    """A LIKE pattern as a regular expression.

    >>> like_as_regex("%special%re_uests%"), like_as_regex("a.b")
    ('(?s)special.*re.uests', '(?s)^a\\\\.b$')
    """
    body = "".join(".*" if c == "%" else "." if c == "_" else re.escape(c) for c in re.sub("%+", "%", pattern))
    start, end = "" if pattern[:1] == "%" else "^", "" if pattern[-1:] == "%" else "$"
    return f"(?s){start}{body.removeprefix('.*') if not start else body}".removesuffix("" if end else ".*") + end


def function_name(node: Node) -> str:
    """The name under which DuckDB knows a function."""
    path = node.get("qname", {}).get("path", [""])
    return str(path[-1])


def _apply(name: str, values: Sequence[pl.Expr]) -> pl.Expr:
    if name == "abs":
        return values[0].abs()
    if len(values) == 1:
        return 0 - values[0] if name == "-" else values[0]
    first, second = values
    if name == "/":
        return first / second
    if name in ("%", "mod"):  # with the sign of the first value; Polars takes that of the second
        rest = first.abs() % second.abs()
        return pl.when(first < 0).then(0 - rest).otherwise(rest)
    return first + second if name == "+" else first - second if name == "-" else first * second


def _divides(node: Node) -> bool:
    """Whether a node is a constant above zero: with any other a remainder may be an error, if its row is asked for."""
    value = node.get("value", {}) if node.get("expression_class") == "BOUND_CONSTANT" else {}
    return isinstance(value.get("value"), int) and int(value["value"]) > 0


def _wider(kind: Kind) -> pl.DataType:
    return pl.Int128() if kind.name in ("BIGINT", "UBIGINT") else pl.Int64()


def _times(value: pl.Expr, places: int, digits: int) -> pl.Expr:
    if digits + places > 38:
        raise refused("decimals of more than 38 digits")
    return value * pl.lit(10**places, pl.Int128) if places else value


def _as_double(value: pl.Expr, scale: int) -> pl.Expr:
    """As DuckDB does it: in one division where the number is exact, else the whole and the rest apart."""
    if scale == 0:
        return value.cast(pl.Float64)
    power = 10**scale
    wide = value.cast(pl.Int128)
    small = value.cast(pl.Float64) / float(power)
    whole = (wide.abs() // pl.lit(power, pl.Int128)).cast(pl.Float64)
    rest = (wide.abs() % pl.lit(power, pl.Int128)).cast(pl.Float64) / float(power)
    sign = pl.when(wide < 0).then(-1.0).otherwise(1.0)
    return pl.when(wide.abs() <= _EXACT_IN_DOUBLE).then(small).otherwise(sign * (whole + rest))


def _text(node: Node, what: str) -> str:
    value = node.get("value", {})
    if node.get("expression_class") != "BOUND_CONSTANT" or value["is_null"]:
        raise refused(f"{what} with a pattern that is no constant")
    return str(value["value"])


def _number(node: Node, what: str) -> int:
    value = node.get("value", {})
    if node.get("expression_class") != "BOUND_CONSTANT" or value["is_null"]:
        raise refused(f"{what} with a place that is no constant")
    return int(value["value"])


def _named(node: Node) -> str:
    """What to call a node in an error."""
    name = function_name(node)
    if name:
        return f"the function '{name}'"
    words = str(node.get("expression_class", "expression")).removeprefix("BOUND_").lower().replace("_", " ")
    return f"{words} expressions ({str(node.get('type', '')).lower()})"


_BY_CLASS: dict[str, Callable[[Expressions, Node], pl.Expr]] = {
    "BOUND_REF": Expressions._reference,
    "BOUND_CONSTANT": Expressions._constant,
    "BOUND_CONJUNCTION": Expressions._conjunction,
    "BOUND_CASE": Expressions._case,
    "BOUND_OPERATOR": Expressions._operator,
    "BOUND_FUNCTION": Expressions._function,
}
