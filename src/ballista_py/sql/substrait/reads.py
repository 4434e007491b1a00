"""What a plan reads: its table, the fields that it takes the table to have, and which of them go on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from attrs import frozen
from sqlglot import exp

from ballista_py.errors import InvalidData, UnsupportedExpression
from ballista_py.sql.substrait.calls import Value
from ballista_py.sql.substrait.kinds import fits, kind_of, of_column, shown
from ballista_py.sql.substrait.messages import unset


@frozen(eq=False)
class Unreadable(Value):
    """A column whose type the plan says in words of its own: it may be given, and no expression may use it."""


@frozen(kw_only=True, eq=False)
class TableRead:
    """The table, the columns that the plan takes it to have (by the table's own names), and the places that go on."""

    table: str
    columns: tuple[str, ...]
    base: tuple[Value, ...]
    places: tuple[int, ...]


def read_of(said: Any, schemas: Mapping[str, pa.Schema]) -> TableRead:
    """What a relation reads, held against the table: columns go by their names, and their types must be those.

    Raises `UnsupportedExpression` for anything but a table that is here, and `InvalidData` for columns that do not fit.
    """
    table = _table(said, schemas)
    schema = schemas[table]
    columns, base = [], []
    for name, kind in base_columns(said):
        held = _held(schema, name, table)
        columns.append(held.name)
        base.append(_column(table, held, kind))
    return TableRead(table=table, columns=tuple(columns), base=tuple(base), places=tuple(mask_of(said, len(base))))


def base_columns(said: Any) -> list[tuple[str, Any]]:
    """The columns that a relation takes its table to have, with the messages of their types."""
    if not said.HasField("base_schema"):
        raise unset("the columns of a table")
    names, found, place = list(said.base_schema.names), [], 0
    for kind in said.base_schema.struct.types:
        if place >= len(names):
            raise InvalidData("the plan is malformed: a table has fewer names than columns")
        found.append((names[place], kind))
        place += name_count(kind)
    if place != len(names):
        raise InvalidData("the plan is malformed: a table has more names than columns")
    if len({name for name, _ in found}) < len(found):
        raise InvalidData("the plan is malformed: a table has two columns of one name")
    return found


def name_count(kind: Any) -> int:
    """How many names a column takes: its own, and those of the fields of structs within."""
    which = kind.WhichOneof("kind")
    if which == "struct":
        return 1 + sum(name_count(one) for one in kind.struct.types)
    if which == "list":
        return name_count(kind.list.type)
    if which == "map":
        return name_count(kind.map.key) + name_count(kind.map.value) - 1
    return 1


def mask_of(said: Any, width: int) -> Sequence[int]:
    """The places of the columns that go on, among `width`."""
    if not said.HasField("projection"):
        return range(width)
    items = said.projection.select.struct_items
    if any(item.HasField("child") for item in items):
        raise UnsupportedExpression("parts of columns in a read are not taken: project them above it")
    places = [item.field for item in items]
    if any(not 0 <= place < width for place in places):
        raise InvalidData(f"the plan is malformed: a read goes on with a column that is not among its {width}")
    return places


def _table(said: Any, schemas: Mapping[str, pa.Schema]) -> str:
    kind = said.WhichOneof("read_type")
    if kind != "named_table":
        raise UnsupportedExpression(f"a read of '{kind or 'nothing'}' is not taken: name a table")
    name = ".".join(said.named_table.names)
    if name not in schemas:
        raise UnsupportedExpression(f"the plan reads '{name[:200]}', and there is no such table here")
    return name


def _held(schema: pa.Schema, name: str, table: str) -> pa.Field:
    """The column of that name, or else the one that the engine takes for it."""
    place = schema.get_field_index(name)
    if place >= 0:
        return schema.field(place)
    alike = [one for one in schema if one.name.lower() == name.lower()]
    if len(alike) != 1:
        raise InvalidData(f"table '{table}' has no column '{name[:200]}': read its schema again")
    return alike[0]


def _column(table: str, held: pa.Field, said: Any) -> Value:
    tree = exp.column(exp.to_identifier(held.name, quoted=True), table=exp.to_identifier(table, quoted=True))
    kind = of_column(held.type)
    try:
        wanted = kind_of(said)
    except UnsupportedExpression:
        return Unreadable(tree, kind)
    if not fits(wanted, kind):
        raise InvalidData(
            f"column '{held.name}' of table '{table}' is {shown(kind)}, and the plan takes it for {shown(wanted)}: "
            "read the schema again"
        )
    return Value(tree, kind)
