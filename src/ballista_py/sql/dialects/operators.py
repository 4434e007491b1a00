"""Operators, literals and conditions of another dialect in the engine's."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from sqlglot import exp

from ballista_py.sql.dialects import casts
from ballista_py.sql.dialects.typed import (
    Reader,
    Typed,
    TypedScope,
    cast_to,
    enclosed,
    filled,
    refused,
    require_only,
)
from ballista_py.sql.dialects.value_types import (
    BIGINT,
    BOOL,
    COMPUTED,
    DATE,
    DOUBLE,
    INTEGER,
    NULL,
    PARAMETER,
    QUOTIENT,
    SMALLINT,
    TEXT,
    TIMESTAMP,
    ValueType,
    as_decimal,
    common,
)

Handler: TypeAlias = Callable[[Reader, exp.Expr, TypedScope], Typed]
_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ)
# Which of these binds tighter is told otherwise by each parser.
_CONDITIONS = (*_COMPARISONS, exp.Is, exp.In, exp.Between, exp.Like, exp.ILike, exp.Not, exp.Exists)
_STEPS = frozenset(("YEAR", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND"))
_DAYS = frozenset(("YEAR", "MONTH", "WEEK", "DAY"))
_DOUBLE_HINT = "cast both sides to double, as the engine divides"
_NOT_EVEN = "'<', '>' and a difference tell what is near, '=' does not"


def number(reader: Reader, node: exp.Expr, scope: TypedScope) -> Typed:
    """A literal."""
    text = node.name
    if node.is_string:
        return Typed(exp.Literal.string(text), TEXT)
    if text.isdigit():
        if int(text) >= 2**63:
            raise refused(node, reader.dialect)
        return Typed(exp.Literal.number(text), INTEGER if int(text) < 2**31 else BIGINT)
    whole, point, rest = text.partition(".")
    if point and (whole + rest).isdigit() and whole and rest and len(whole + rest) <= 38:
        digits = len(whole.lstrip("0")) + len(rest)
        return Typed(exp.Literal.number(text), ValueType("decimal", digits, len(rest)))
    if re.fullmatch(r"\d+(\.\d+)?[eE][+-]?\d{1,3}", text) and reader.dialect == "spark":
        return Typed(exp.Literal.number(text), DOUBLE)
    raise refused(node, reader.dialect, "write the number with all its digits, or cast a text of it to double")


def joined_literals(reader: Reader, node: exp.Expr, scope: TypedScope) -> Typed:
    """Texts that stand beside each other."""
    parts = [reader.value(part, scope) for part in node.expressions]
    if any(part.literal is None for part in parts):
        raise refused(node, reader.dialect)
    return Typed(exp.Literal.string("".join(part.literal or "" for part in parts)), TEXT)


def raw(reader: Reader, node: exp.Expr, scope: TypedScope) -> Typed:
    """A text in which nothing is escaped."""
    return Typed(exp.Literal.string(node.name), TEXT)


def parentheses(reader: Reader, node: exp.Expr, scope: TypedScope) -> Typed:
    inner = reader.value(node.this, scope)
    return Typed(exp.Paren(this=inner.expr), inner.type)


def negative(reader: Reader, node: exp.Expr, scope: TypedScope) -> Typed:
    inner = reader.value(node.this, scope)
    if not inner.type.is_number:
        raise refused(node, reader.dialect)
    made = exp.Neg(this=enclosed(inner.expr))
    plain = isinstance(inner.expr, exp.Literal) or inner.type.family != "int"
    return Typed(made if plain else cast_to(made, inner.type), _computed(inner.type))


def arithmetic(reader: Reader, node: exp.Expr, scope: TypedScope) -> Typed:
    """`+`, `-` and `*`."""
    if isinstance(node.args.get("expression"), exp.Interval):
        return _stepped(reader, node, scope)
    left, right = reader.value(node.this, scope), reader.value(node.expression, scope)
    if left.type == DATE:
        return _with_date(reader, node, left, right)
    kind = _arithmetic_type(reader, node, left.type, right.type)
    one, other = _operands(left, kind), _operands(right, kind)
    one = left.expr if _same_level(node, node.this) else enclosed(one)
    return Typed(type(node)(this=one, expression=enclosed(other)), kind)


def _same_level(node: exp.Expr, operand: exp.Expr) -> bool:
    """Whether a sum (or product) has one as its first operand, so that no parentheses are needed."""
    sums = isinstance(node, exp.Add | exp.Sub) and isinstance(operand, exp.Add | exp.Sub)
    return sums and not isinstance(operand.args.get("expression"), exp.Interval)


def _arithmetic_type(reader: Reader, node: exp.Expr, left: ValueType, right: ValueType) -> ValueType:
    null = left == NULL or right == NULL
    kind = common((left, right))
    if kind is None and left.is_exact and right.is_exact:
        kind = ValueType("decimal", 38, max(left.scale, right.scale))
    if kind is None or not kind.is_number or null:
        raise refused(node, reader.dialect)
    if kind.family == "int" and reader.dialect == "postgres":
        return max(kind, SMALLINT, key=lambda one: one.size)
    if kind.family == "decimal":
        return _decimal_type(reader, node, as_decimal(left), as_decimal(right))
    return _computed(kind)


def _decimal_type(reader: Reader, node: exp.Expr, left: ValueType, right: ValueType) -> ValueType:
    """The type of Spark. Beyond 38 digits it gives some up behind the point, which the engine does not."""
    if isinstance(node, exp.Mul):
        scale, size = left.scale + right.scale, left.size + right.size + 1
    else:
        scale = max(left.scale, right.scale)
        size = max(left.size - left.scale, right.size - right.scale) + scale + 1
    kept = max(38 - (size - scale), min(scale, 6)) if size > 38 else scale
    if (kept < scale and reader.dialect == "spark") or scale > 38:
        raise refused(node, reader.dialect, "cast one side to double, or to a decimal of fewer digits")
    return ValueType("decimal", min(size, 38), scale)


def _computed(kind: ValueType) -> ValueType:
    return COMPUTED if kind.family == "quotient" else kind


def _operands(value: Typed, kind: ValueType) -> exp.Expr:
    """An operand as wide as the result, where the engine would compute in a narrower type."""
    narrow = kind.family == "int" and value.type.size < kind.size
    if (narrow or (kind == DOUBLE and value.type.family == "float")) and not isinstance(value.expr, exp.Literal):
        return cast_to(value.expr, kind)
    return value.expr


def _with_date(reader: Reader, node: exp.Expr, left: Typed, right: Typed) -> Typed:
    if isinstance(node, exp.Add | exp.Sub) and right.type.family == "int" and right.type.size <= 32:
        sign = "+" if isinstance(node, exp.Add) else "-"
        days = right.expr if isinstance(right.expr, exp.Literal) else cast_to(right.expr, INTEGER)
        return Typed(filled(f"{{0}} {sign} {{1}}", [left.expr, days], reader.dialect), DATE)
    if isinstance(node, exp.Sub) and right.type == DATE and reader.dialect == "postgres":
        return Typed(filled("cast({0} - {1} as integer)", [left.expr, right.expr], reader.dialect), INTEGER)
    raise refused(node, reader.dialect)


def _stepped(reader: Reader, node: exp.Expr, scope: TypedScope) -> Typed:
    """A moment and an interval that is a literal."""
    left, steps = reader.value(node.this, scope), _steps(reader, node.args["expression"])
    if not isinstance(node, exp.Add | exp.Sub) or not left.type.is_moment:
        raise refused(node, reader.dialect)
    sign = "+" if isinstance(node, exp.Add) else "-"
    made = filled("{0}", [left.expr], reader.dialect)
    for count, unit in steps:
        made = filled(f"{{0}} {sign} interval ({count}) {unit}", [made], reader.dialect)
    kind = left.type
    if kind == DATE:
        whole = all(unit in _DAYS for _, unit in steps)
        if reader.dialect == "spark" and not whole:
            raise refused(node, reader.dialect, "cast the date to timestamp_ntz first")
        kind = DATE if reader.dialect == "spark" else TIMESTAMP
        made = cast_to(made, kind)
    return Typed(made, kind)


def _steps(reader: Reader, node: exp.Expr) -> list[tuple[int, str]]:
    require_only(node, reader.dialect, "this", "unit")
    unit, count = str(node.args.get("unit") or "").upper().removesuffix("S"), node.this
    text = count.name if isinstance(count, exp.Literal) else ""
    if isinstance(count, exp.Neg) and isinstance(count.this, exp.Literal):
        text = f"-{count.this.name}"
    if unit:
        pairs = [(text, unit)]
    else:
        words = text.split()
        pairs = [(a, b.upper().removesuffix("S")) for a, b in zip(words[::2], words[1::2], strict=False)]
        pairs = pairs if len(words) % 2 == 0 else []
    if not pairs or any(not re.fullmatch(r"[+-]?\d{1,6}", a) or b not in _STEPS for a, b in pairs):
        raise refused(node, reader.dialect, "write it as a whole number of years, months, days, hours or the like")
    return [(int(a), b) for a, b in pairs]


def _divided(template: str, left: Typed, right: Typed, dialect: str) -> exp.Expr:
    """A quotient that is an error where both dialects say so and the engine does not."""
    text = right.expr.name if isinstance(right.expr, exp.Literal) else ""
    if text.strip("0.eE+-"):
        return filled(template, [left.expr, right.expr], dialect)
    whole = f"case when {{1}} = 0 then error('division by zero') else {template} end"
    return filled(whole, [left.expr, right.expr], dialect)


def division(reader: Reader, node: exp.Expr, scope: TypedScope) -> Typed:
    left, right = reader.value(node.this, scope), reader.value(node.expression, scope)
    kind = common((left.type, right.type))
    if kind is None and left.type.is_exact and right.type.is_exact:
        kind = ValueType("decimal", 38, 0)
    if kind is None or not kind.is_number or NULL in (left.type, right.type):
        raise refused(node, reader.dialect)
    if reader.dialect == "postgres" and kind.family == "int":
        kind = max(kind, SMALLINT, key=lambda one: one.size)
        one, other = _operands(left, kind), _operands(right, kind)
        return Typed(filled("({0} // {1})", [one, other], reader.dialect), kind)
    if reader.dialect == "postgres" and kind.family in ("decimal", "quotient"):
        simple = left.type.is_exact and right.type.is_exact
        made = _divided("cast({0} as double) / cast({1} as double)", left, right, reader.dialect)
        return Typed(made, QUOTIENT if simple else COMPUTED)
    if kind.family == "decimal" or (kind.family == "float" and reader.dialect == "postgres"):
        raise refused(node, reader.dialect, _DOUBLE_HINT)
    made = _divided("cast({0} as double) / cast({1} as double)", left, right, reader.dialect)
    return Typed(made, DOUBLE)


def whole_division(reader: Reader, node: exp.Expr, scope: TypedScope) -> Typed:
    """`div` of Spark."""
    left, right = reader.value(node.this, scope), reader.value(node.expression, scope)
    if reader.dialect != "spark" or left.type.family != "int" or right.type.family != "int":
        raise refused(node, reader.dialect)
    one, other = cast_to(left.expr, BIGINT), cast_to(right.expr, BIGINT)
    return Typed(filled("({0} // {1})", [one, other], reader.dialect), BIGINT)


def modulo(reader: Reader, node: exp.Expr, scope: TypedScope) -> Typed:
    left, right = reader.value(node.this, scope), reader.value(node.expression, scope)
    return modulo_of(reader, node, left, right)


def modulo_of(reader: Reader, node: exp.Expr, left: Typed, right: Typed) -> Typed:
    """The rest of a division; its sign is that of the first number everywhere."""
    kind = common((left.type, right.type))
    if kind is None or NULL in (left.type, right.type) or kind.family not in ("int", "decimal"):
        raise refused(node, reader.dialect)
    if kind.family == "decimal":
        return Typed(_divided("{0} % {1}", left, right, reader.dialect), kind)
    if reader.dialect == "postgres":
        kind = max(kind, SMALLINT, key=lambda one: one.size)
    made = filled("{0} % {1}", [_operands(left, kind), _operands(right, kind)], reader.dialect)
    return Typed(exp.Paren(this=made), kind)


def joined(reader: Reader, node: exp.Expr, scope: TypedScope) -> Typed:
    """`||` over texts and what has one text only."""
    parts = [reader.value(node.this, scope), reader.value(node.expression, scope)]
    return joined_of(reader, node, parts)


def joined_of(reader: Reader, node: exp.Expr, parts: Sequence[Typed]) -> Typed:
    """Texts one after the other, null if one is."""
    texts = [_text(reader, node, part) for part in parts]
    made = texts[0]
    for text in texts[1:]:
        made = exp.DPipe(this=made if isinstance(made, exp.DPipe) else enclosed(made), expression=enclosed(text))
    return Typed(made, TEXT)


def _text(reader: Reader, node: exp.Expr, part: Typed) -> exp.Expr:
    if part.type == TEXT:
        return part.expr
    if part.type.family not in ("int", "null") and not (part.type == DATE and reader.dialect == "spark"):
        raise refused(node, reader.dialect, "cast it to text first")
    return casts.moment_as_text(part.expr) if part.type == DATE else cast_to(part.expr, TEXT)


def compared(reader: Reader, node: exp.Expr, scope: TypedScope) -> Typed:
    for operand in (node.this, node.expression):
        if isinstance(operand, _CONDITIONS):
            raise refused(node, reader.dialect, "put the inner condition in parentheses")
    left, right = reader.value(node.this, scope), reader.value(node.expression, scope)
    even = not isinstance(node, exp.GT | exp.GTE | exp.LT | exp.LTE)
    one, other = comparable(reader, node, left, right, even)
    return Typed(type(node)(this=enclosed(one), expression=enclosed(other)), BOOL)


def comparable(
    reader: Reader, node: exp.Expr, left: Typed, right: Typed, even: bool = True
) -> tuple[exp.Expr, exp.Expr]:
    """Both sides of a comparison in types that the engine compares as the dialect does."""
    for one, other, turned in ((left, right, False), (right, left, True)):
        told = one.literal is not None and other.type.family in casts.PLAIN and other.type.family != "bool"
        if told and (other.type.family in ("int", "date", "timestamp", "timestamptz") or other.literal is None):
            if other.type.family not in ("int", "date", "timestamp", "timestamptz"):
                raise refused(node, reader.dialect, "write the number without quotes")
            target = BIGINT if other.type.family == "int" else other.type
            made = casts.of_literal(one, target, node, reader.dialect).expr
            return (other.expr, made) if turned else (made, other.expr)
    if PARAMETER in (left.type, right.type):
        return left.expr, right.expr
    kind = common((left.type, right.type))
    if kind is None and left.type.is_exact and right.type.is_exact:
        kind = ValueType("decimal", 38, 0)
    if kind is None or kind.family == "unknown":
        raise refused(node, reader.dialect, "" if kind else "cast one side to the type of the other")
    quotients = [one for one in (left.type, right.type) if one.family == "quotient"]
    if quotients and (even or COMPUTED in quotients):
        raise refused(node, reader.dialect, f"cast it to double precision; {_NOT_EVEN}")
    return _wide(left, kind), _wide(right, kind)


def _wide(value: Typed, kind: ValueType) -> exp.Expr:
    """A float is compared as the double that it is; the engine would make floats of decimals."""
    return cast_to(value.expr, DOUBLE) if kind == DOUBLE and value.type.family == "float" else value.expr


def united(reader: Reader, node: exp.Expr, values: Sequence[Typed]) -> tuple[list[exp.Expr], ValueType]:
    """Values of one column or result, and their type."""
    kind = common([value.type for value in values])
    if kind is None or kind.family == "parameter":
        raise refused(node, reader.dialect, "cast them to one type")
    return [_wide(value, kind) for value in values], kind


def both(reader: Reader, node: exp.Expr, scope: TypedScope) -> Typed:
    """AND and OR, of any number of conditions."""
    kind = type(node)
    parts = [_condition(reader, part, scope) for part in node.flatten(unnest=False)]
    made = parts[0]
    for part in parts[1:]:
        made = kind(this=made, expression=part)
    return Typed(made, BOOL)


def _condition(reader: Reader, node: exp.Expr, scope: TypedScope) -> exp.Expr:
    found = condition(reader, node, scope)
    return exp.Paren(this=found) if isinstance(found, exp.And | exp.Or) else found


def condition(reader: Reader, node: exp.Expr, scope: TypedScope) -> exp.Expr:
    """What must be true, false or null."""
    found = reader.value(node, scope)
    if found.type not in (BOOL, NULL):
        raise refused(node, reader.dialect, "write it as a condition")
    return found.expr


def negated(reader: Reader, node: exp.Expr, scope: TypedScope) -> Typed:
    return Typed(exp.Not(this=enclosed(condition(reader, node.this, scope))), BOOL)


def is_(reader: Reader, node: exp.Expr, scope: TypedScope) -> Typed:
    """IS NULL, TRUE or FALSE."""
    what = node.expression
    if isinstance(node.this, _CONDITIONS) or not isinstance(what, exp.Null | exp.Boolean):
        raise refused(node, reader.dialect)
    told = isinstance(what, exp.Boolean)
    left = condition(reader, node.this, scope) if told else reader.value(node.this, scope).expr
    return _maybe_not(node, exp.Is(this=enclosed(left), expression=what.copy()))


def _maybe_not(node: exp.Expr, made: exp.Expr) -> Typed:
    return Typed(exp.Not(this=enclosed(made)) if node.args.get("negate") else made, BOOL)


def between(reader: Reader, node: exp.Expr, scope: TypedScope) -> Typed:
    value = reader.value(node.this, scope)
    (one, low), (other, high) = (
        comparable(reader, node, value, reader.value(node.args[key], scope), even=False) for key in ("low", "high")
    )
    if one is value.expr and other is value.expr:
        return Typed(exp.Between(this=enclosed(one), low=enclosed(low), high=enclosed(high)), BOOL)
    made = filled("({0} >= {1} and {2} <= {3})", [one, low, other, high], reader.dialect)
    return Typed(made, BOOL)


def among(reader: Reader, node: exp.Expr, scope: TypedScope) -> Typed:
    """IN, with values or a query."""
    value = reader.value(node.this, scope)
    query = node.args.get("query")
    if query is not None:
        columns = reader.query(query, scope).columns
        if len(columns) != 1:
            raise refused(node, reader.dialect)
        comparable(reader, node, Typed(exp.null(), value.type), Typed(exp.null(), columns[0][1]))
        if "float" in (value.type.family, columns[0][1].family) and value.type != columns[0][1]:
            raise refused(node, reader.dialect)
        return Typed(exp.In(this=enclosed(value.expr), query=query.copy()), BOOL)
    pairs = [comparable(reader, node, value, reader.value(item, scope)) for item in node.expressions]
    left = pairs[0][0]
    if any(one != left for one, _ in pairs):
        raise refused(node, reader.dialect, "write the values in one type")
    return Typed(exp.In(this=enclosed(left), expressions=[other for _, other in pairs]), BOOL)


def like(reader: Reader, node: exp.Expr, scope: TypedScope) -> Typed:
    """LIKE and ILIKE with a literal; a backslash before `%`, `_` or itself takes their meaning away."""
    value, pattern = reader.value(node.this, scope), reader.value(node.expression, scope)
    if value.type not in (TEXT, NULL) or pattern.literal is None:
        raise refused(node, reader.dialect, "write the pattern as a literal")
    text = pattern.literal
    if not re.fullmatch(r"(?s:\\[\\%_]|[^\\])*", text):
        raise refused(node, reader.dialect)
    if isinstance(node, exp.ILike) and not text.isascii():
        raise refused(node, reader.dialect)
    made: exp.Expr = type(node)(this=enclosed(value.expr), expression=exp.Literal.string(text))
    if "\\" in text:
        made = exp.Escape(this=made, expression=exp.Literal.string("\\"))
    return _maybe_not(node, made)


def case(reader: Reader, node: exp.Expr, scope: TypedScope) -> Typed:
    subject = reader.value(node.this, scope) if node.this is not None else None
    tests: list[exp.Expr] = []
    for branch in node.args["ifs"]:
        if subject is None:
            tests.append(condition(reader, branch.this, scope))
        else:
            one, other = comparable(reader, node, subject, reader.value(branch.this, scope))
            tests.append(exp.EQ(this=enclosed(one.copy()), expression=enclosed(other)))
    values = [reader.value(branch.args["true"], scope) for branch in node.args["ifs"]]
    default = node.args.get("default")
    otherwise = [reader.value(default, scope)] if default is not None else []
    results, kind = united(reader, node, [*values, *otherwise])
    ifs = [exp.If(this=test, true=result) for test, result in zip(tests, results, strict=False)]
    return Typed(exp.Case(ifs=ifs, default=results[-1] if otherwise else None), kind)


def written_cast(reader: Reader, node: exp.Expr, scope: TypedScope) -> Typed:
    to = casts.type_of(node.args["to"], reader.dialect)
    inner = node.this
    if to == DOUBLE and isinstance(inner, exp.Literal) and re.fullmatch(r"[\d.]+[eE][+-]?\d+", inner.name):
        return Typed(cast_to(exp.Literal.number(inner.name), DOUBLE), DOUBLE)
    return casts.converted(reader.value(inner, scope), to, node, reader.dialect)


def constant(reader: Reader, node: exp.Expr, scope: TypedScope) -> Typed:
    return Typed(node.copy(), BOOL if isinstance(node, exp.Boolean) else NULL)


def parameter(reader: Reader, node: exp.Expr, scope: TypedScope) -> Typed:
    return Typed(node.copy(), PARAMETER)


_PAIR = ("this", "expression")
# The arguments of each that are used; a node with another one is refused.
ARGUMENTS: Mapping[type[exp.Expr], tuple[str, ...]] = {
    exp.Literal: ("this", "is_string"), exp.Null: (), exp.Boolean: ("this",), exp.Placeholder: ("this",),
    exp.Parameter: ("this",), exp.Concat: ("expressions", "safe", "coalesce"), exp.RawString: ("this",),
    exp.Paren: ("this",), exp.Neg: ("this",), exp.Add: _PAIR, exp.Sub: _PAIR, exp.Mul: _PAIR,
    exp.Div: (*_PAIR, "typed", "safe"), exp.IntDiv: _PAIR, exp.Mod: _PAIR, exp.DPipe: (*_PAIR, "safe"),
    exp.And: _PAIR, exp.Or: _PAIR, exp.Not: ("this",), exp.Is: (*_PAIR, "negate"),
    exp.Between: ("this", "low", "high"), exp.In: ("this", "expressions", "query"), exp.Like: (*_PAIR, "negate"),
    exp.ILike: (*_PAIR, "negate"), exp.Case: ("this", "ifs", "default"), exp.Cast: ("this", "to", "_type"),
    exp.TryCast: ("this", "to", "_type", "requires_string"), **dict.fromkeys(_COMPARISONS, _PAIR),
    exp.Anonymous: ("this", "expressions"),
}  # fmt: skip
OPERATORS: Mapping[type[exp.Expr], Handler] = {
    exp.Literal: number, exp.Null: constant, exp.Boolean: constant, exp.Placeholder: parameter,
    exp.Parameter: parameter, exp.Concat: joined_literals, exp.RawString: raw, exp.Paren: parentheses,
    exp.Neg: negative, exp.Add: arithmetic, exp.Sub: arithmetic, exp.Mul: arithmetic, exp.Div: division,
    exp.IntDiv: whole_division, exp.Mod: modulo, exp.DPipe: joined, exp.And: both, exp.Or: both, exp.Not: negated,
    exp.Is: is_, exp.Between: between, exp.In: among, exp.Like: like, exp.ILike: like, exp.Case: case,
    exp.Cast: written_cast, exp.TryCast: written_cast, **dict.fromkeys(_COMPARISONS, compared),
}  # fmt: skip
