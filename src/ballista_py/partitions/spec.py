"""How a table is split: the partition keys, what they evaluate to, and their rendering for Spark.

A spec promises that one row has one partition value for ever: its hash, its time zone and the types of the columns
it reads are part of it and of its JSON form, so a change that would move rows cannot pass unseen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from attrs import field, frozen

from ballista_py.errors import SchemaMismatch, UnsupportedExpression
from ballista_py.partitions.bucket import HASH_NAME, BucketUDF
from ballista_py.partitions.expression.functions import buckets_in, buckets_of, is_bucket
from ballista_py.partitions.expression.nodes import ColumnNode, columns_of, render
from ballista_py.partitions.expression.parser import parse_expression
from ballista_py.partitions.expression.time_zones import check_zone
from ballista_py.partitions.key import PartitionKey
from ballista_py.partitions.partition_sameness import check_same_partitions, forms_of
from ballista_py.partitions.type_names import type_name
from ballista_py.partitions.values import key_type, path_of, type_of_text, type_text

__all__ = ["MAX_STATIC_PARTITIONS", "PARTITION_COLUMN", "PartitionBy", "PartitionKey", "PartitionSpec"]

MAX_TOLD = 10**12
MAX_STATIC_PARTITIONS = 2_000_000
PARTITION_COLUMN = "__partition"

PartitionBy: TypeAlias = Sequence[str | Mapping[str, str]]


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
                raise UnsupportedExpression(f"partition key '{text}': it reads no column")
            keys.append(PartitionKey(name, node))
        return cls(tuple(keys), check_zone(time_zone))

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
        return all(is_bucket(key.node) for key in self.keys)

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
        sizes = [buckets_of(key.node) + key.nullable for key in self.keys]  # null comes last
        total = math.prod(sizes)
        if total > MAX_STATIC_PARTITIONS:
            count = f"{total:,}" if total < MAX_TOLD else f"more than {MAX_TOLD:,}"
            raise UnsupportedExpression(
                f"the keys make {count} partitions, and {MAX_STATIC_PARTITIONS:,} is the most: use fewer buckets"
            )
        columns: list[pa.Array] = []
        repeats = total
        for key, size in zip(self.keys, sizes, strict=True):
            repeats //= size
            places = np.tile(np.repeat(np.arange(size, dtype=np.int32), repeats), total // (size * repeats))
            columns.append(pa.array(places, mask=places == size - 1 if key.nullable else None))
        return tuple(columns)

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

    def duckdb_sql(self) -> tuple[str, ...]:
        """The keys as DuckDB SQL, in order; they give what `evaluate` gives after `register_duckdb`."""
        return tuple(render(key.node, "duckdb", self.time_zone) for key in self.keys)

    def register_duckdb(self, connection: Any) -> None:
        """Register the functions that `duckdb_sql` calls on a DuckDB `connection`."""
        calls = {
            (buckets_of(call), key_type(call.arguments[1].type))
            for key in self.keys
            for call in buckets_in(key.node)
        }
        for num_buckets, arrow_type in sorted(calls, key=str):
            BucketUDF(num_buckets).duckdb(connection, arrow_type)

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

    def check_successor(self, successor: PartitionSpec) -> None:
        """Raises `UnsupportedExpression`, with the reason, if `successor` would put rows into other partitions."""
        check_same_partitions(self.keys, self.time_zone, successor.keys, successor.time_zone)

    def colocates_with(self, other: PartitionSpec) -> bool:
        """Whether equal key columns give equal partition values in both, so that the tables can share owners."""
        return forms_of(self.keys, self.time_zone) == forms_of(other.keys, other.time_zone)


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
    raise SchemaMismatch(
        f"column '{column.name}' is {type_name(values.type)} in the rows, the table declares "
        f"{type_name(column.type)}"
    )
