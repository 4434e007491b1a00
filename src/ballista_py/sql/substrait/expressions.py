"""Expressions of a plan over the fields of one relation, as values of the engine.

Whose function a name is: one of Substrait's own extensions, or of nobody's, as DataFusion writes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import frozen
from sqlglot import exp

from ballista_py.errors import InvalidData, UnsupportedExpression
from ballista_py.sql.substrait.aggregate_functions import aggregate, takes_frame, window
from ballista_py.sql.substrait.calls import BOOL, Call, Value, enclosed, holds_columns, plain_number
from ballista_py.sql.substrait.casts import cast_value
from ballista_py.sql.substrait.kinds import kind_of, shown
from ballista_py.sql.substrait.literals import literal
from ballista_py.sql.substrait.messages import Declared, unset
from ballista_py.sql.substrait.reads import Unreadable
from ballista_py.sql.substrait.scalar_functions import comparable, field_of, scalar

_URN = re.compile(r"(urn:)?extension:io\.substrait:functions_[a-z_]+")
_URI = re.compile(r"(https://github\.com/substrait-io/substrait/.{0,80}|/|)functions_[a-z_]+\.yaml")


def is_standard(declared: Declared) -> bool:
    """Whether the plan says that the function is of an extension of Substrait.

    Raises `UnsupportedExpression` if it is of anybody else's: the name alone says nothing then.

    >>> is_standard(Declared(name="add:i64_i64", origin="extension:io.substrait:functions_arithmetic"))
    True
    """
    if declared.origin in ("", "urn:", "/"):
        return False
    if _URN.fullmatch(declared.origin) or _URI.fullmatch(declared.origin):
        return True
    raise UnsupportedExpression(
        f"the function '{declared.name[:80]}' of '{declared.origin[:120]}' is not known: take one of Substrait's own"
    )


def plain_name(declared: Declared) -> str:
    """The name without the types that it may end in.

    >>> plain_name(Declared(name="add:i64_i64", origin=""))
    'add'
    """
    return declared.name.partition(":")[0][:80]


_WHOLE_RESULT = (0, 3)  # phases of an aggregate: unsaid, and from rows to the result
_ALL, _DISTINCT = (0, 1), 2
_ROWS, _RANGE = 1, 2
_DIRECTIONS = {1: (False, True), 2: (False, False), 3: (True, True), 4: (True, False)}


@frozen(eq=False)
class Key:
    """One key of an order."""

    value: Value
    descending: bool
    nulls_first: bool

    def ordered(self) -> exp.Expr:
        """The key as a part of ORDER BY."""
        return exp.Ordered(this=self.value.tree.copy(), desc=self.descending, nulls_first=self.nulls_first)


@frozen(eq=False)
class FieldReader:
    """What reads expressions over `fields`; `functions` are those of the plan by their anchors."""

    functions: Mapping[int, Declared]
    fields: Sequence[Value]

    def value(self, message: Any) -> Value:
        """The value of an expression.

        Raises `UnsupportedExpression` for what is not taken, and `InvalidData` for what cannot be.
        """
        kind = message.WhichOneof("rex_type")
        if kind is None:
            raise unset("an expression")
        said = getattr(message, kind)
        if kind == "literal":
            return literal(said)
        if kind == "selection":
            return self.reference(said)
        if kind == "scalar_function":
            return scalar(self._call(said))
        made = _OTHERS.get(kind)
        if made is None:
            raise UnsupportedExpression(
                f"an expression '{kind}' is not taken: compute it above what this plan gives"
            )
        return made(self, said)

    def condition(self, message: Any) -> exp.Expr:
        """A value that is true or false."""
        found = self.value(message)
        if found.kind != BOOL:
            raise InvalidData(f"the plan is malformed: a condition gives {shown(found.kind)}")
        return found.tree

    def reference(self, message: Any) -> Value:
        """A field by its place, or a field within it."""
        root, path = message.WhichOneof("root_type"), message.WhichOneof("reference_type")
        if root not in ("root_reference", None) or path != "direct_reference":
            raise UnsupportedExpression(
                f"a reference by '{root or path}' is not taken: refer to fields by their place"
            )
        segment = message.direct_reference
        found: Value | None = None
        while True:
            if segment.WhichOneof("reference_type") != "struct_field":
                raise UnsupportedExpression(
                    "elements of lists and maps are not taken: refer to fields by their place"
                )
            place = segment.struct_field.field
            found = self.field(place) if found is None else field_of(found, place)
            if not segment.struct_field.HasField("child"):
                return found
            segment = segment.struct_field.child

    def _require_place(self, place: int) -> None:
        if not 0 <= place < len(self.fields):
            raise InvalidData(f"the plan is malformed: there is no field {place} among {len(self.fields)}")

    def field(self, place: int) -> Value:
        """A field by its place."""
        self._require_place(place)
        found = self.fields[place]
        if isinstance(found, Unreadable):
            raise UnsupportedExpression("a column of a type of somebody's own is not taken in an expression")
        return found

    def plain_place(self, message: Any) -> int | None:
        """The place of the field that an expression is, if it is nothing else."""
        if message.WhichOneof("rex_type") != "selection":
            return None
        said = message.selection
        one = said.direct_reference
        if (
            said.WhichOneof("root_type") not in ("root_reference", None)
            or one.WhichOneof("reference_type") != "struct_field"
        ):
            return None
        if one.struct_field.HasField("child"):
            return None
        place = int(one.struct_field.field)
        self._require_place(place)
        return place

    def keys(self, sorts: Iterable[Any]) -> tuple[Key, ...]:
        """The keys of an order, without those that are the same for every row, or that come again."""
        found: list[Key] = []
        seen: set[int] = set()
        for sort in sorts:
            if sort.WhichOneof("sort_kind") != "direction" or sort.direction not in _DIRECTIONS:
                raise UnsupportedExpression(
                    "an order by a function, or clustered, is not taken: say ASC or DESC, and NULLS"
                )
            value = self.value(sort.expr)
            if not comparable(value.kind, value.kind):
                raise UnsupportedExpression(
                    f"rows cannot be ordered by {shown(value.kind)} here: order them by its fields"
                )
            if holds_columns(value.tree) and id(value) not in seen:
                seen.add(id(value))
                found.append(Key(value, *_DIRECTIONS[sort.direction]))
        return tuple(found)

    def measure(self, message: Any) -> Value:
        """An aggregate with its filter."""
        said = message.measure
        if not message.HasField("measure"):
            raise unset("a measure")
        only = self.condition(message.filter) if message.HasField("filter") else None
        _require_whole(said)
        if said.invocation not in (*_ALL, _DISTINCT):
            raise InvalidData("the plan is malformed: an aggregate is of all or of distinct values")

        def filtered(tree: exp.Expr) -> exp.Expr:
            return tree if only is None else exp.Filter(this=tree, expression=exp.Where(this=only))

        return aggregate(self._call(said), said.invocation == _DISTINCT, len(said.sorts) > 0, filtered)

    def window(self, said: Any, partitions: Iterable[Any], sorts: Iterable[Any]) -> Value:
        """A function of a window; its frame, partitions and order come with it or from its relation."""
        _require_whole(said)
        if said.invocation not in _ALL:
            raise UnsupportedExpression("DISTINCT in a window is not taken")
        call, by = self._call(said), [self.value(one) for one in partitions]
        order = self.keys(sorts)
        clause = exp.Order(expressions=[key.ordered() for key in order]) if order else None
        spec = _frame(said) if takes_frame(call.name) else None
        keys = [value.tree.copy() for value in by if holds_columns(value.tree)]

        def over(tree: exp.Expr) -> exp.Expr:
            return exp.Window(this=tree, partition_by=keys, order=clause, spec=spec)

        return window(call, over)

    def _call(self, said: Any) -> Call:
        declared = self.functions.get(said.function_reference)
        if declared is None:
            raise InvalidData(f"the plan is malformed: no function has the anchor {said.function_reference}")
        values: list[Value] = []
        words: list[str] = []
        for one in said.arguments:
            kind = one.WhichOneof("arg_type")
            if kind == "value":
                values.append(self.value(one.value))
            elif kind == "enum":
                words.append(one.enum[:40])
            else:
                raise UnsupportedExpression(f"'{plain_name(declared)}' of a type is not taken: give it values")
        values.extend(self.value(one) for one in getattr(said, "args", ()))  # of releases before 0.10
        return Call(
            name=plain_name(declared),
            values=tuple(values),
            words=tuple(words),
            options={one.name: tuple(one.preference) for one in said.options},
            said=kind_of(said.output_type) if said.HasField("output_type") else None,
            standard=is_standard(declared),
        )

    def _window_function(self, said: Any) -> Value:
        return self.window(said, said.partitions, said.sorts)

    def _cast(self, said: Any) -> Value:
        if not (said.HasField("input") and said.HasField("type")):
            raise unset("what is cast, or to what")
        return cast_value(self.value(said.input), said.type, said.failure_behavior)

    def _if_then(self, said: Any) -> Value:
        pairs = [(self.condition(getattr(one, "if")), self.value(one.then)) for one in said.ifs]
        return self._case(None, pairs, said)

    def _switch(self, said: Any) -> Value:
        if not said.HasField("match"):
            raise unset("what a switch looks at")
        match = self.value(said.match)
        pairs = []
        for one in said.ifs:
            wanted = literal(getattr(one, "if"))
            if not comparable(match.kind, wanted.kind):
                raise InvalidData(
                    f"the plan is malformed: a switch over {shown(match.kind)} asks for {shown(wanted.kind)}"
                )
            pairs.append((wanted.tree, self.value(one.then)))
        return self._case(enclosed(match.tree), pairs, said)

    def _case(self, match: exp.Expr | None, pairs: Sequence[tuple[exp.Expr, Value]], said: Any) -> Value:
        if not pairs:
            raise unset("the cases of a choice")
        otherwise = self.value(getattr(said, "else")) if said.HasField("else") else None
        results = [value for _, value in pairs] + ([otherwise] if otherwise is not None else [])
        kind = results[0].kind
        if any(one.kind != kind for one in results):
            raise UnsupportedExpression("a choice between values of several types is not taken: cast them to one")
        ifs = [exp.If(this=when, true=value.tree) for when, value in pairs]
        return Value(exp.Case(this=match, ifs=ifs, default=None if otherwise is None else otherwise.tree), kind)

    def _in_list(self, said: Any) -> Value:
        if not said.HasField("value") or not said.options:
            raise unset("the values of a list")
        value, options = self.value(said.value), [self.value(one) for one in said.options]
        odd = next((one.kind for one in options if not comparable(value.kind, one.kind)), None)
        if odd is not None:
            raise UnsupportedExpression(
                f"{shown(value.kind)} among {shown(odd)} is not taken: cast both sides to one type"
            )
        listed = [plain_number(one.tree) for one in options]
        return Value(exp.In(this=enclosed(value.tree), expressions=listed), BOOL)


_OTHERS = {
    "window_function": FieldReader._window_function,
    "cast": FieldReader._cast,
    "if_then": FieldReader._if_then,
    "switch_expression": FieldReader._switch,
    "singular_or_list": FieldReader._in_list,
}


def _require_whole(said: Any) -> None:
    if said.phase not in _WHOLE_RESULT:
        raise UnsupportedExpression(
            "parts of aggregates are not taken: send the whole aggregate, from rows to the result"
        )


def _frame(said: Any) -> exp.Expr:
    """The rows that a function of a window sees; a bound that is not said is the end of the partition."""
    if said.bounds_type not in (0, _ROWS, _RANGE):
        raise InvalidData("the plan is malformed: the frame of a window is of rows or of a range")
    by_rows = said.bounds_type == _ROWS
    start, start_side = _bound(said.lower_bound, "PRECEDING", by_rows)
    end, end_side = _bound(said.upper_bound, "FOLLOWING", by_rows)
    kind = "ROWS" if by_rows else "RANGE"
    return exp.WindowSpec(kind=kind, start=start, start_side=start_side, end=end, end_side=end_side)


def _bound(bound: Any, side: str, by_rows: bool) -> tuple[exp.Expr | str, str | None]:
    kind = bound.WhichOneof("kind")
    if kind in (None, "unbounded"):
        return "UNBOUNDED", side
    if kind == "current_row":
        return "CURRENT ROW", None
    offset = getattr(bound, kind).offset
    if not by_rows:
        raise UnsupportedExpression(
            "a window over a range of values is not taken: say it in rows, or without a bound"
        )
    if not 0 <= offset < 1 << 62:
        raise InvalidData("the plan is malformed: the bound of a window lies before its other side")
    return exp.Literal.number(str(offset)), kind.upper()
