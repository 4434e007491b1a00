"""How a table is split: the partition keys, what they evaluate to, and their rendering for Spark.

A spec promises that one row has one partition value for ever: its hash, its time zone and the types of the columns
it reads are part of it and of its JSON form, so a change that would move rows cannot pass unseen.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
from attrs import field, frozen

from ballista_py.errors import SchemaMismatch, UnsupportedExpression
from ballista_py.planning.bucket import HASH_NAME
from ballista_py.planning.expression import ColumnNode, Node, columns_of, evaluate, render
from ballista_py.planning.expression_functions import buckets_of, is_bucket_of_column
from ballista_py.planning.expression_parser import parse_expression
from ballista_py.planning.partition_values import as_key, key_type, path_of, type_of_text, type_text

MAX_STATIC_PARTITIONS = 2_000_000
PARTITION_COLUMN = "__partition"

KeyKind = Literal["bucket", "column", "function"]
PartitionBy: TypeAlias = Sequence[str | Mapping[str, str]]


@frozen
class PartitionKey:
    """One key: its name, and the expression that gives its value for a row."""

    name: str
    node: Node

    @property
    def expression(self) -> str:
        """The expression as text that parses to the same key."""
        return self.node.text()

    @property
    def type(self) -> pa.DataType:
        """The type of its values in a partition map."""
        return key_type(self.node.type)

    @property
    def nullable(self) -> bool:
        """Whether its value can be null."""
        return self.node.nullable

    @property
    def kind(self) -> KeyKind:
        """`bucket` for `bucket(N, column)`, `column` for a column itself, `function` for anything else."""
        if isinstance(self.node, ColumnNode):
            return "column"
        return "bucket" if is_bucket_of_column(self.node) else "function"

    @property
    def buckets(self) -> int | None:
        """N of a `bucket` key; None for the other kinds."""
        return buckets_of(self.node) if self.kind == "bucket" else None

    @property
    def columns(self) -> tuple[ColumnNode, ...]:
        """The columns it reads."""
        return columns_of(self.node)

    @property
    def column(self) -> str | None:
        """The column that it reads, if it reads exactly one."""
        return self.columns[0].name if len(self.columns) == 1 else None

    @property
    def column_type(self) -> pa.DataType | None:
        """The type of `column` in the table."""
        return self.columns[0].type if len(self.columns) == 1 else None

    def evaluate(self, columns: Mapping[str, pa.Array], length: int, time_zone: str = "UTC") -> pa.Array:
        """The key's value for each of `length` rows, as an array of `type`."""
        return as_key(evaluate(self.node, columns, length, time_zone), self.type)

    def value_for(self, column_value: Any, time_zone: str = "UTC") -> Any:
        """The key's value for one value of its only column.

        Raises `SchemaMismatch` if `column_value` is not one of the column's type.
        """
        (column,) = self.columns
        try:
            array = pa.array([column_value], column.type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
            raise SchemaMismatch(f"{column_value!r} is not a value of column '{column.name}'") from error
        return self.evaluate({column.name: array}, 1, time_zone)[0].as_py()


@frozen
class PartitionSpec:
    """The keys of one table, in order. Without keys (`whole()`) the table has one partition, of value `()`.

    >>> spec = PartitionSpec.parse(["bucket(4, id)"], pa.schema([pa.field("id", pa.int64(), nullable=False)]))
    >>> spec.keys[0].name, spec.static_values()
    ('expr0', [(0,), (1,), (2,), (3,)])
    """

    keys: tuple[PartitionKey, ...]
    time_zone: str = "UTC"
    hash_name: str = field(default=HASH_NAME)

    @hash_name.validator
    def _check_hash(self, _attribute: object, value: str) -> None:
        if value != HASH_NAME:
            raise UnsupportedExpression(
                f"the table was partitioned with hash '{value}', this release knows '{HASH_NAME}' only"
            )

    @classmethod
    def parse(cls, partition_by: PartitionBy, schema: pa.Schema, time_zone: str = "UTC") -> PartitionSpec:
        """The spec that a table declares: expression strings, or one-entry mappings `{name: expression}`.

        A bare expression is named `expr0`, `expr1`, … by its place. Raises `UnsupportedExpression` naming what the
        grammar does not admit.
        """
        if isinstance(partition_by, str | Mapping):
            raise UnsupportedExpression("partition_by is a list of expressions, not one expression")
        keys: list[PartitionKey] = []
        for place, entry in enumerate(partition_by):
            name, text = _named(place, entry)
            if name in {key.name for key in keys}:
                raise UnsupportedExpression(f"two partition keys are named '{name}'")
            node = parse_expression(text, schema)
            if not columns_of(node):
                raise UnsupportedExpression(f"partition key '{text}' reads no column")
            keys.append(PartitionKey(name, node))
        return cls(tuple(keys), time_zone)

    @classmethod
    def whole(cls) -> PartitionSpec:
        """The spec of a replicated table: no keys, one partition."""
        return cls(())

    @property
    def columns(self) -> tuple[ColumnNode, ...]:
        """The columns that the keys read, each once."""
        return tuple(dict.fromkeys(column for key in self.keys for column in key.columns))

    @property
    def is_static(self) -> bool:
        """Whether the partitions follow from the spec alone, so that no query is needed to discover them."""
        return all(key.kind == "bucket" for key in self.keys)

    def static_values(self) -> list[tuple[Any, ...]] | None:
        """Every partition value of a static spec in a fixed order; None if they must be discovered.

        Raises `UnsupportedExpression` if there are more than 2,000,000.
        """
        columns = self.static_columns()
        if columns is None:
            return None
        return list(zip(*(column.to_pylist() for column in columns), strict=True)) if columns else [()]

    def static_columns(self) -> tuple[pa.Array, ...] | None:
        """As `static_values`, one array per key."""
        if not self.is_static:
            return None
        ranges = [[*range(key.buckets or 0), *([None] if key.nullable else [])] for key in self.keys]
        total = int(np.prod([len(values) for values in ranges], dtype=np.int64))
        if total > MAX_STATIC_PARTITIONS:
            raise UnsupportedExpression(
                f"the keys make {total:,} partitions, more than {MAX_STATIC_PARTITIONS:,}: use fewer buckets"
            )
        if len(ranges) == 1:
            return (pa.array(ranges[0], pa.int32()),)
        rows = list(itertools.product(*ranges))
        return tuple(pa.array([row[place] for row in rows], pa.int32()) for place in range(len(ranges)))

    def evaluate(self, batch: pa.RecordBatch) -> tuple[pa.Array, ...]:
        """The key columns of the batch's rows: one array per key, of the key's type.

        Raises `SchemaMismatch` if the batch lacks a column or has it with another type.
        """
        columns: dict[str, pa.Array] = {}
        for column in self.columns:
            found = batch.schema.get_all_field_indices(column.name)
            if len(found) != 1:
                raise SchemaMismatch(f"the rows have no column '{column.name}', which a partition key reads")
            columns[column.name] = _as_declared(batch.column(found[0]), column)
        return tuple(key.evaluate(columns, batch.num_rows, self.time_zone) for key in self.keys)

    def spark_sql(self) -> tuple[str, ...]:
        """The keys as Spark SQL, in order; they give what `evaluate` gives."""
        return tuple(render(key.node, "spark", self.time_zone) for key in self.keys)

    def path(self, value: Sequence[Any]) -> str:
        """The stable text form of a partition value; it names the partition's folder."""
        return path_of([key.name for key in self.keys], value)

    def to_json(self) -> dict[str, Any]:
        """JSON-ready values; `from_json` reads them back without the table's schema."""
        columns = [
            {"name": column.name, "type": type_text(column.type), "nullable": column.nullable}
            for column in self.columns
        ]
        keys = [{"name": key.name, "expression": key.expression} for key in self.keys]
        return {"hash": self.hash_name, "time_zone": self.time_zone, "columns": columns, "keys": keys}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PartitionSpec:
        """The spec that `to_json` described; raises `UnsupportedExpression` for another hash."""
        cls((), hash_name=data["hash"])
        schema = pa.schema(
            [pa.field(item["name"], type_of_text(item["type"]), item["nullable"]) for item in data["columns"]]
        )
        keys = [{item["name"]: item["expression"]} for item in data["keys"]]
        return cls.parse(keys, schema, data["time_zone"])

    def colocates_with(self, other: PartitionSpec) -> bool:
        """Whether equal key columns give equal partition values in both, so that the tables can share owners."""
        return [_form(key, self.time_zone) for key in self.keys] == [
            _form(key, other.time_zone) for key in other.keys
        ]


def _named(place: int, entry: str | Mapping[str, str]) -> tuple[str, str]:
    if isinstance(entry, str):
        return f"expr{place}", entry
    if not isinstance(entry, Mapping) or len(entry) != 1:
        raise UnsupportedExpression(
            f"partition_by entry {place} is neither an expression nor one name: expression"
        )
    ((name, text),) = entry.items()
    if not isinstance(name, str) or not isinstance(text, str) or not name or name == PARTITION_COLUMN:
        raise UnsupportedExpression(f"partition_by entry {place} needs a name and an expression, both text")
    return name, text


def _as_declared(values: pa.Array, column: ColumnNode) -> pa.Array:
    if values.type == column.type:
        return values
    if key_type(values.type) == key_type(column.type):
        return values
    raise SchemaMismatch(f"column '{column.name}' is {values.type} in the rows, the table declares {column.type}")


def _form(key: PartitionKey, time_zone: str) -> tuple[Any, ...]:
    """What decides the partition value of a row, apart from the column's name."""
    places = {column.name: place for place, column in enumerate(key.columns)}
    shape = key.expression if key.kind == "function" else key.kind
    if key.kind == "function":
        zone: str | None = time_zone
    else:
        zone = None
    return (
        shape,
        key.buckets,
        zone,
        tuple(sorted(places.values())),
        tuple(_hash_class(c.type) for c in key.columns),
    )


def _hash_class(arrow_type: pa.DataType) -> str:
    if pa.types.is_dictionary(arrow_type):
        arrow_type = arrow_type.value_type
    for name, test in (("integer", pa.types.is_integer), ("float", pa.types.is_floating)):
        if test(arrow_type):
            return name
    return type_text(key_type(arrow_type))
