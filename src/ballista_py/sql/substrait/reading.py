"""`read_plan`: a client's plan over one table as SQL of the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from attrs import frozen
from sqlglot import exp

from ballista_py.errors import InvalidData, UnsupportedExpression
from ballista_py.sql.substrait.blocks import Block, all_of, select_of
from ballista_py.sql.substrait.kinds import names_taken
from ballista_py.sql.substrait.messages import GivenPlan, plan_of
from ballista_py.sql.substrait.reads import TableRead
from ballista_py.sql.substrait.relations import Relations

MAX_SQL_CHARS = 8 << 20
_MAX_NAME_CHARS = 255


@frozen(kw_only=True, eq=False)
class SubstraitQuery:
    """A plan as SQL over its table.

    `names` are those of the plan's root and `schema` what the rows have by the plan; two may be equal. `columns` are
    those of the table on which the rows depend, in the table's order, and at least one. `filter` is what the plan asks
    of the table's rows before anything else: a condition over its columns, or None.
    """

    sql: str
    table: str
    names: tuple[str, ...]
    schema: pa.Schema
    columns: tuple[str, ...]
    filter: str | None


def read_plan(data: bytes, schemas: Mapping[str, pa.Schema]) -> SubstraitQuery:
    """The SQL that gives the rows of a plan over one of these tables, with the meaning of Substrait.

    The bytes may be anybody's. What Substrait leaves open is as the engine does it; note 206 lists it.

    Raises `UnsupportedExpression`, naming the relation or function, for what is not taken, `InvalidData` for bytes
    that are no sound plan or do not fit the table, and `MissingExtra` without the package `substrait`.

    >>> from ballista_py.sql.substrait.writing import write_plan
    >>> events = pa.schema([("id", pa.int64()), ("size", pa.int32())])
    >>> data = write_plan("SELECT size FROM events WHERE id > 7 LIMIT 3", {"events": events})
    >>> found = read_plan(data, {"events": events})
    >>> found.sql
    'SELECT "events"."size" AS "size" FROM "events" WHERE "events"."id" > 7 LIMIT 3'
    >>> found.columns, found.filter
    (('id', 'size'), '"id" > 7')
    """
    plan = plan_of(data)
    try:
        return _query(plan, schemas)
    except RecursionError:
        raise UnsupportedExpression("the plan is nested too deeply: send it in pieces") from None


def columns_of(data: bytes, schema: pa.Schema) -> tuple[str, ...]:
    """The columns of a plan's table, which has this schema, that its rows depend on: at least one, in its order.

    Raises what `read_plan` raises.
    """
    return read_plan(data, {table_of(data): schema}).columns


def table_of(data: bytes) -> str:
    """The name of the table that a plan reads. Raises as `read_plan`."""
    message = plan_of(data).root.input
    while (kind := message.WhichOneof("rel_type")) != "read":
        below = getattr(message, kind) if kind is not None else None
        if below is None or "input" not in below.DESCRIPTOR.fields_by_name or not below.HasField("input"):
            raise UnsupportedExpression(f"a relation '{kind}' is not taken: a plan reads one table")
        message = below.input
    return ".".join(message.read.named_table.names)


def _query(plan: GivenPlan, schemas: Mapping[str, pa.Schema]) -> SubstraitQuery:
    block, read = Relations(plan.functions, schemas).block(plan.root.input)
    names = _top_names(list(plan.root.names), block)
    first = _first_filter(block)
    tree = select_of(block, names)
    sql = tree.sql("duckdb", comments=False)
    if len(sql) > MAX_SQL_CHARS:
        raise UnsupportedExpression(f"the plan makes a statement of {len(sql):,} characters: make it smaller")
    return SubstraitQuery(
        sql=sql,
        table=read.table,
        names=tuple(names),
        schema=pa.schema([pa.field(name, value.kind) for name, value in zip(names, block.columns, strict=True)]),
        columns=_used(tree, read, schemas[read.table]),
        filter=first,
    )


def _top_names(names: Sequence[str], block: Block) -> list[str]:
    """The names of the columns, among which those of fields of structs stand too."""
    found, place = [], 0
    for value in block.columns:
        if place >= len(names):
            raise InvalidData("the plan is malformed: its root has fewer names than columns")
        found.append(names[place])
        fields = list(_fields_of(value.kind))
        if list(names[place + 1 : place + 1 + len(fields)]) != fields:
            raise UnsupportedExpression("fields of structs are not renamed here: name them as they are")
        place += names_taken(value.kind)
    if place != len(names) or not found:
        raise InvalidData("the plan is malformed: its root has other names than columns")
    if any(not name or "\0" in name or len(name) > _MAX_NAME_CHARS for name in found):
        raise InvalidData(f"the plan is malformed: a column has a name of 1 to {_MAX_NAME_CHARS} characters")
    return found


def _fields_of(kind: pa.DataType) -> Sequence[str]:
    if pa.types.is_struct(kind):
        return [name for one in kind for name in (one.name, *_fields_of(one.type))]
    return _fields_of(kind.value_type) if pa.types.is_list(kind) else []


def _used(tree: exp.Expr, read: TableRead, schema: pa.Schema) -> tuple[str, ...]:
    used = {column.name for column in tree.find_all(exp.Column) if column.args["table"].args.get("quoted")}
    found = tuple(name for name in schema.names if name in used)
    return found or read.columns[:1] or tuple(schema.names[:1])


def _first_filter(block: Block) -> str | None:
    """What the innermost block asks of the table's rows, without the name of the table."""
    while isinstance(block.source, Block):
        block = block.source
    if not block.where:
        return None
    made = all_of(block.where)
    columns = [(column, column.args["table"]) for column in made.find_all(exp.Column)]
    for column, _ in columns:
        column.set("table", None)
    text = made.sql("duckdb", comments=False)
    for column, table in columns:
        column.set("table", table)
    return text
