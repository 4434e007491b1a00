"""`with_columns`: a client's own plan over rows that have only some columns of its table.

Everything above the read stays byte for byte as the client wrote it: between the two comes a projection that puts the
columns back where the plan looks for them, and NULL in place of those that nothing depends on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ballista_py.errors import InvalidData, UnsupportedExpression
from ballista_py.sql.substrait.messages import messages, plan_of, unset
from ballista_py.sql.substrait.reads import base_columns, mask_of, name_count


def with_columns(data: bytes, columns: Sequence[str]) -> bytes:
    """The same plan over the same table, whose rows have these columns only, in this order.

    It gives the rows of the plan over the whole table if `columns` are at least those of `columns_of`; what it would
    need beyond them is NULL to it. A filter of the read is applied again.

    Raises `InvalidData` for a column that the plan does not name, or names twice, and what `read_plan` raises for
    bytes that are no plan.

    >>> import pyarrow as pa
    >>> from ballista_py.sql.substrait.reading import columns_of, read_plan
    >>> from ballista_py.sql.substrait.writing import write_plan
    >>> events = pa.schema([("id", pa.int64()), ("size", pa.int64()), ("note", pa.string())])
    >>> data = write_plan("SELECT SUM(size) AS total FROM events", {"events": events})
    >>> columns_of(data, events)
    ('size',)
    >>> narrow = with_columns(data, ["size"])
    >>> read_plan(narrow, {"events": pa.schema([("size", pa.int64())])}).columns
    ('size',)
    """
    plan = plan_of(data)
    place = _read_place(plan.root)
    read = place.read
    known = [name for name, _ in base_columns(read)]
    if len(set(columns)) < len(columns) or not set(columns) <= set(known):
        raise InvalidData("the columns that a plan is narrowed to are not among those that it reads, each once")
    new = messages().algebra.Rel()
    _narrow(new, read, known, list(columns))
    place.CopyFrom(new)
    return bytes(plan.message.SerializeToString())


def _read_place(root: Any) -> Any:
    """The relation that is the read of the plan."""
    one = root.input
    while one.WhichOneof("rel_type") != "read":
        kind = one.WhichOneof("rel_type")
        below = getattr(one, kind) if kind is not None else None
        if below is None:
            raise unset("a relation")
        if "input" not in below.DESCRIPTOR.fields_by_name or not below.HasField("input"):
            raise UnsupportedExpression(f"a relation '{kind}' is not taken: a plan reads one table")
        one = below.input
    return one


def _narrow(new: Any, read: Any, known: Sequence[str], columns: Sequence[str]) -> None:
    """Into `new`: a read of the columns, a projection to all that were known, the filters, then what went on before."""
    goes_on = _places(read, mask_of(read, len(known)))
    filters = [getattr(read, name) for name in ("filter", "best_effort_filter") if read.HasField(name)]
    top = new
    for condition in reversed(filters):  # the first of them comes first
        top.filter.condition.CopyFrom(condition)
        top = top.filter.input
    if filters:
        _emit(new.filter.common, goes_on)
    project = top.project
    narrowed = project.input.read
    narrowed.CopyFrom(read)
    for name in ("filter", "best_effort_filter", "projection", "common"):
        narrowed.ClearField(name)
    _restrict(narrowed, read, columns)
    wanted = range(len(known)) if filters else goes_on
    added, places = 0, {}
    kinds = [kind for _, kind in base_columns(read)]
    for place in sorted(set(wanted)):
        if known[place] in columns:
            places[place] = columns.index(known[place])
            continue
        _null(project.expressions.add(), kinds[place])
        places[place] = len(columns) + added
        added += 1
    _emit(project.common, [places[place] for place in wanted])


def _places(read: Any, mask: Sequence[int]) -> list[int]:
    """The places, in the table, of what a read gives."""
    if not read.HasField("common") or read.common.WhichOneof("emit_kind") != "emit":
        return list(mask)
    chosen = read.common.emit.output_mapping
    if any(not 0 <= place < len(mask) for place in chosen):
        raise InvalidData("the plan is malformed: a relation gives a field that it does not have")
    return [mask[place] for place in chosen]


def _emit(common: Any, places: Sequence[int]) -> None:
    common.emit.output_mapping.extend(places)
    common.emit.SetInParent()


def _restrict(narrowed: Any, read: Any, columns: Sequence[str]) -> None:
    """Leave these columns of the table that a read is of, with the names of fields within them."""
    names = list(read.base_schema.names)
    starts, place = {}, 0
    for name, kind in base_columns(read):
        starts[name] = (place, name_count(kind), kind)
        place += name_count(kind)
    narrowed.ClearField("base_schema")
    for name in columns:
        start, count, kind = starts[name]
        narrowed.base_schema.names.extend(names[start : start + count])
        narrowed.base_schema.struct.types.add().CopyFrom(kind)
    narrowed.base_schema.struct.nullability = read.base_schema.struct.nullability


def _null(expression: Any, kind: Any) -> None:
    """NULL of a type, which says so itself."""
    literal = expression.literal
    literal.nullable = True
    literal.null.CopyFrom(kind)
    which = kind.WhichOneof("kind")
    said = getattr(literal.null, which) if which is not None else None
    if said is not None and hasattr(said, "nullability"):
        said.nullability = 1
