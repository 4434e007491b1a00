"""Expressions of a statement as those of a plan, so that DataFusion gives what the engine gives.

Where the two differ on what a plan says plainly, it says it in another way: sums and products of whole numbers go by
a wider type and an error where they do not fit, since DataFusion's wrap around; floats are compared with zero added,
since to it -0.0 lies before 0.0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
from attrs import frozen
from sqlglot import exp

from ballista_py.errors import UnsupportedExpression
from ballista_py.sql.substrait.casts import writes_alike
from ballista_py.sql.substrait.kinds import UTC, decimal
from ballista_py.sql.substrait.written_kinds import arithmetic, as_decimal, common, comparison, is_number
from ballista_py.sql.substrait.written_pieces import (
    Functions,
    Term,
    call,
    cast_to,
    choice,
    expression,
    field_ref,
    fits_whole,
    float_of,
    known,
    null,
    number_of,
    text_of,
    truth,
    whole_as,
)

_types = pa.types
BOOL, I64, FP64, TEXT, HUGE = pa.bool_(), pa.int64(), pa.float64(), pa.string(), decimal(38, 0)
_KINDS = {
    "BOOLEAN": BOOL, "TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INT": pa.int32(), "BIGINT": I64, "INT128": HUGE,
    "FLOAT": pa.float32(), "DOUBLE": FP64, "TEXT": TEXT, "VARCHAR": TEXT, "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us"), "TIMESTAMPNTZ": pa.timestamp("us"), "TIMESTAMPTZ": pa.timestamp("us", UTC),
    "UTINYINT": pa.uint8(), "USMALLINT": pa.uint16(), "UINT": pa.uint32(), "UBIGINT": pa.uint64(),
}  # fmt: skip
_COMPARISONS: Mapping[type, str] = {
    exp.EQ: "equal", exp.NEQ: "not_equal", exp.LT: "lt", exp.LTE: "lte", exp.GT: "gt", exp.GTE: "gte",
    exp.NullSafeEQ: "is_not_distinct_from", exp.NullSafeNEQ: "is_distinct_from",
}  # fmt: skip
_ARITHMETIC: Mapping[type, str] = {exp.Add: "add", exp.Sub: "subtract", exp.Mul: "multiply"}


@frozen(eq=False)
class Meanings:
    """What names mean: columns by (relation, name) in small letters, and whole expressions that were computed below."""

    columns: Mapping[tuple[str, str], tuple[int, pa.DataType]]
    computed: Mapping[str, Term]

    def column(self, node: exp.Column) -> Term:
        """The field that a column is."""
        wanted, name = node.table.lower(), node.name.lower()
        found = [
            place
            for (relation, column), place in self.columns.items()
            if column == name and wanted in ("", relation)
        ]
        if len(found) != 1:
            raise UnsupportedExpression(f"column '{node.name}' cannot be found where it is used")
        return field_ref(*found[0])


@frozen(eq=False)
class TermWriter:
    """What writes expressions over the fields of one relation."""

    functions: Functions
    scope: Meanings

    def value(self, node: exp.Expr) -> Term:
        """The expression. Raises `UnsupportedExpression` for one that cannot be said with the same meaning."""
        while isinstance(node, exp.Paren):
            node = node.this
        if self.scope.computed and (found := self.scope.computed.get(form(node))) is not None:
            return found
        if type(node) in _COMPARISONS:
            return self._compared(_COMPARISONS[type(node)], self.value(node.this), self.value(node.expression))
        if type(node) in _ARITHMETIC:
            return self._arithmetic(node)
        made = _WRITERS.get(type(node))
        if made is None:
            raise UnsupportedExpression(f"'{form(node)[:80]}' cannot be said in Substrait with the same meaning")
        return made(self, node)

    def condition(self, node: exp.Expr) -> Term:
        """An expression that is true or false."""
        found = self.value(node)
        if found.kind is None:
            return null(BOOL)
        if found.kind != BOOL:
            raise UnsupportedExpression(f"'{form(node)[:80]}' is no condition")
        return found

    def call(self, name: str, values: Sequence[Term], kind: pa.DataType) -> Term:
        """A call of a function."""
        return call(self.functions, name, values, kind)

    def settled(self, value: Term) -> Term:
        """The value, where it is compared: of floats that are equal to the engine, one that stands for them.

        Zero is added, which makes -0.0 zero. To DataFusion a NaN with a sign, as 0.0 / 0.0 gives, lies before all else.
        """
        kind = value.kind
        if kind is None or not _types.is_floating(kind):
            return value
        strange = self.call("lt", [value, float_of("-inf", kind)], BOOL)
        return choice(strange, float_of("nan", kind), self.call("add", [value, float_of("0", kind)], kind))

    def _compared(self, name: str, left: Term, right: Term) -> Term:
        kind = comparison(left, right)
        return self.call(name, [self.settled(cast_to(one, kind)) for one in (left, right)], BOOL)

    def _arithmetic(self, node: exp.Expr) -> Term:
        name = _ARITHMETIC[type(node)]
        left, right = self.value(node.this), self.value(node.expression)
        kind = arithmetic(name, left, right)
        if _types.is_floating(kind):
            return self.call(name, [cast_to(left, kind), cast_to(right, kind)], kind)
        if _types.is_decimal(kind):
            return self._decimal(name, left, right, kind)
        return self._whole(name, left, right, kind)

    def _whole(self, name: str, left: Term, right: Term, kind: pa.DataType) -> Term:
        """In a type in which nothing overflows, and from there to the type that it has."""
        if kind == I64 or kind == pa.uint64():
            wide, made = decimal(19 if kind == I64 else 20, 0), decimal(38, 0)
            made = decimal(wide.precision + 1, 0) if name != "multiply" else made
        else:
            wide = made = I64
        return cast_to(self.call(name, [cast_to(left, wide), cast_to(right, wide)], made), kind)

    def _decimal(self, name: str, left: Term, right: Term, kind: pa.DataType) -> Term:
        values = [cast_to(one, as_decimal(known(one))) for one in (left, right)]
        first, second = (known(one) for one in values)
        if name == "multiply":
            scale = first.scale + second.scale
            digits = first.precision + second.precision + 1
        else:
            scale = max(first.scale, second.scale)
            digits = max(first.precision - first.scale, second.precision - second.scale) + scale + 1
        if digits > 38 and scale > 0:
            raise UnsupportedExpression("a decimal with more than 38 digits cannot be said in Substrait")
        return cast_to(self.call(name, values, decimal(min(38, digits), scale)), kind)

    def _column(self, node: exp.Expr) -> Term:
        assert isinstance(node, exp.Column)
        return self.scope.column(node)

    def _literal(self, node: exp.Expr) -> Term:
        return text_of(node.name) if node.args["is_string"] else number_of(node.name)

    def _boolean(self, node: exp.Expr) -> Term:
        return truth(bool(node.this))

    def _null(self, _node: exp.Expr) -> Term:
        return Term(expression(), None)

    def _negated(self, node: exp.Expr) -> Term:
        value = self.value(node.this)
        if value.whole is not None and known(value) in (pa.int32(), I64):
            number = -value.whole
            return whole_as(number, pa.int32() if fits_whole(number, pa.int32()) else I64)
        kind = known(value)
        if _types.is_decimal(kind) or _types.is_floating(kind):
            return self.call("negate", [value], kind)
        return self._whole("subtract", whole_as(0, I64), value, kind)

    def _divided(self, node: exp.Expr) -> Term:
        values = [self.value(node.this), self.value(node.expression)]
        kind = FP64 if any(one.kind != pa.float32() for one in values) else pa.float32()
        for one in values:
            if one.kind is not None and not is_number(one.kind):
                raise UnsupportedExpression("only numbers are divided")
        return self.call("divide", [cast_to(one, kind) for one in values], kind)

    def _whole_divided(self, node: exp.Expr) -> Term:
        name = "divide" if isinstance(node, exp.IntDiv) else "modulus"
        left, right = self.value(node.this), self.value(node.expression)
        kind = arithmetic(name, left, right)
        if not _types.is_integer(kind):
            raise UnsupportedExpression(
                "quotients and rests of whole numbers alone can be said with the same meaning"
            )
        return self.call(name, [cast_to(left, kind), cast_to(right, kind)], kind)

    def _connected(self, node: exp.Expr) -> Term:
        parts = [self.condition(one) for one in node.flatten(unnest=False)]
        return self.call("and" if isinstance(node, exp.And) else "or", parts, BOOL)

    def _not(self, node: exp.Expr) -> Term:
        return self.call("not", [self.condition(node.this)], BOOL)

    def _is(self, node: exp.Expr) -> Term:
        what = node.expression
        if isinstance(what, exp.Null):
            value = self.value(node.this)
            return truth(True) if value.kind is None else self.call("is_null", [value], BOOL)
        if isinstance(what, exp.Boolean):
            return self.call("is_true" if what.this else "is_false", [self.condition(node.this)], BOOL)
        raise UnsupportedExpression(f"'{form(node)[:80]}' cannot be said in Substrait")

    def _in(self, node: exp.Expr) -> Term:
        if node.args.get("query") or node.args.get("unnest") or not node.expressions:
            raise UnsupportedExpression("a query within IN cannot be said in this plan")
        value, options = self.value(node.this), [self.value(one) for one in node.expressions]
        kind = value.kind
        for one in options:
            kind = comparison(Term(value.message, kind, value.whole), one)
        made = expression()
        made.singular_or_list.value.CopyFrom(self.settled(cast_to(value, kind)).message)
        for one in options:
            made.singular_or_list.options.add().CopyFrom(self.settled(cast_to(one, kind)).message)
        return Term(made, BOOL)

    def _between(self, node: exp.Expr) -> Term:
        value = self.value(node.this)
        low = self._compared("gte", value, self.value(node.args["low"]))
        high = self._compared("lte", value, self.value(node.args["high"]))
        return self.call("and", [low, high], BOOL)

    def _case(self, node: exp.Expr) -> Term:
        pairs = node.args.get("ifs") or [node]
        match = node.this if isinstance(node, exp.Case) else None
        wanted = None if match is None else self.value(match)
        conditions = [
            self.condition(one.this) if wanted is None else self._compared("equal", wanted, self.value(one.this))
            for one in pairs
        ]
        results = [self.value(one.args["true"]) for one in pairs]
        otherwise = node.args.get("default") if isinstance(node, exp.Case) else node.args.get("false")
        results.append(Term(expression(), None) if otherwise is None else self.value(otherwise))
        kind = common(results)
        made = expression()
        for condition, result in zip(conditions, results, strict=False):
            clause = made.if_then.ifs.add()
            getattr(clause, "if").CopyFrom(condition.message)
            clause.then.CopyFrom(cast_to(result, kind).message)
        getattr(made.if_then, "else").CopyFrom(cast_to(results[-1], kind).message)
        return Term(made, kind)

    def _coalesce(self, node: exp.Expr) -> Term:
        values = [self.value(one) for one in (node.this, *node.expressions)]
        kind = common(values)
        return self.call("coalesce", [cast_to(one, kind) for one in values], kind)

    def _cast(self, node: exp.Expr) -> Term:
        kind = kind_of_name(node.args["to"])
        value = self.value(node.this)
        if value.kind is None or value.kind == kind:
            return cast_to(value, kind)
        if not writes_alike(value.kind, kind, isinstance(node.this, exp.Literal)):
            raise UnsupportedExpression(f"a cast from {value.kind} to {kind} is done in several ways")
        return cast_to(value, kind)

    def _abs(self, node: exp.Expr) -> Term:
        value = self.value(node.this)
        if not (_types.is_decimal(known(value)) or _types.is_floating(known(value))):
            raise UnsupportedExpression("the absolute of a whole number wraps around for some")
        return self.call("abs", [value], known(value))

    def _root(self, node: exp.Expr) -> Term:
        value = self.value(node.this)
        if not is_number(known(value)):
            raise UnsupportedExpression("only numbers have a root")
        return self.call("sqrt", [cast_to(value, FP64)], FP64)

    def _text(self, node: exp.Expr) -> Term:
        value = self.value(node.this)
        if value.kind != TEXT:
            raise UnsupportedExpression(f"'{form(node)[:80]}' takes a text")
        return self.call("upper" if isinstance(node, exp.Upper) else "lower", [value], TEXT)

    def _like(self, node: exp.Expr) -> Term:
        pattern = node.expression
        value = self.value(node.this)
        fits = isinstance(pattern, exp.Literal) and pattern.is_string and "\\" not in pattern.name
        if not fits or value.kind != TEXT:
            raise UnsupportedExpression("LIKE can be said with a pattern of the statement, without a backslash")
        return self.call("like", [value, text_of(pattern.name)], BOOL)


def form(node: exp.Expr) -> str:
    """The text by which equal expressions are known."""
    return node.sql("duckdb", comments=False)


def kind_of_name(to: exp.DataType) -> pa.DataType:
    """The type of a name of the engine. Raises `UnsupportedExpression` for one that cannot be said."""
    name = to.this.value
    if name == "DECIMAL" and len(to.expressions) == 2:
        return decimal(*(int(one.name) for one in to.expressions))
    if name not in _KINDS or to.expressions:
        raise UnsupportedExpression(f"the type {to.sql('duckdb')} cannot be said in Substrait")
    return _KINDS[name]


_WRITERS: Mapping[type, Callable[[TermWriter, exp.Expr], Term]] = {
    exp.Column: TermWriter._column,
    exp.Literal: TermWriter._literal,
    exp.Boolean: TermWriter._boolean,
    exp.Null: TermWriter._null,
    exp.Neg: TermWriter._negated,
    exp.Div: TermWriter._divided,
    exp.IntDiv: TermWriter._whole_divided,
    exp.Mod: TermWriter._whole_divided,
    exp.And: TermWriter._connected,
    exp.Or: TermWriter._connected,
    exp.Not: TermWriter._not,
    exp.Is: TermWriter._is,
    exp.In: TermWriter._in,
    exp.Between: TermWriter._between,
    exp.Case: TermWriter._case,
    exp.If: TermWriter._case,
    exp.Coalesce: TermWriter._coalesce,
    exp.Cast: TermWriter._cast,
    exp.Abs: TermWriter._abs,
    exp.Sqrt: TermWriter._root,
    exp.Upper: TermWriter._text,
    exp.Lower: TermWriter._text,
    exp.Like: TermWriter._like,
}
