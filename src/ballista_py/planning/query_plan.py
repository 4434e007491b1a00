"""The values that say how one query runs: fragments over partitions, the legs that cover them, the merge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from attrs import frozen

from ballista_py.planning.partition_map import PartitionMap
from ballista_py.planning.table import TableSpec


@frozen(kw_only=True)
class Catalog:
    """What the planner knows of the tables at one instant. `maps` holds the committed map of every table."""

    tables: Mapping[str, TableSpec]
    maps: Mapping[str, PartitionMap]


@frozen(kw_only=True)
class FragmentTable:
    """The part of one table that a fragment reads.

    `partitions` are the ids that its legs must cover between them, each in exactly one leg; for a replicated
    table (`whole`) every leg reads all of it, and `partitions` is its one partition.
    """

    table: str
    partitions: tuple[int, ...]
    total: int
    whole: bool = False
    pruned_by: str = ""


@frozen(kw_only=True)
class Fragment:
    """SQL in the engine's dialect that runs over partitions where they are; `name` is its relation at the merge.

    Base tables appear in `sql` under their own (unqualified) names. When several partitioned tables appear, they
    are of one co-location group, and partitions of equal value belong together (`legs_of` puts them in one leg).
    `reused` says that the merge reads the relation more than once, so that a stream must be kept first. A fragment
    may have no legs (everything was pruned): its relation is then empty, with the columns that `sql` has over
    empty tables.
    """

    name: str
    sql: str
    tables: tuple[FragmentTable, ...]
    reused: bool = False


@frozen(kw_only=True)
class QueryPlan:
    """One query: fragments, then `merge_sql` over their names.

    `merge_sql` is None when the batches of the only fragment already are the answer: those of several legs in any
    order, those of a single leg in theirs. `output` is the schema that a single node would give. `notes` say in
    words what was not pushed down, and why.
    """

    sql: str
    output: pa.Schema
    fragments: tuple[Fragment, ...]
    merge_sql: str | None
    notes: tuple[str, ...] = ()


@frozen(kw_only=True)
class LegTable:
    """The exact partitions of one table that one leg must read, with the epochs the planner saw."""

    table: str
    revision: int
    partitions: tuple[int, ...]
    epochs: tuple[int, ...]


@frozen(kw_only=True)
class Leg:
    """One executor's part of a fragment. It answers for exactly these partitions or raises `NotOwner`."""

    fragment: str
    executor_id: str
    sql: str
    tables: tuple[LegTable, ...]

    def to_json(self) -> dict[str, Any]:
        """JSON-ready values; `leg_from_json` reads them back."""
        return {
            "fragment": self.fragment,
            "executor_id": self.executor_id,
            "sql": self.sql,
            "tables": [
                {"table": t.table, "revision": t.revision, "partitions": t.partitions, "epochs": t.epochs}
                for t in self.tables
            ],
        }


def leg_from_json(data: Mapping[str, Any]) -> Leg:
    """The leg that `Leg.to_json` described."""
    return Leg(
        fragment=data["fragment"],
        executor_id=data["executor_id"],
        sql=data["sql"],
        tables=tuple(
            LegTable(
                table=t["table"],
                revision=t["revision"],
                partitions=tuple(t["partitions"]),
                epochs=tuple(t["epochs"]),
            )
            for t in data["tables"]
        ),
    )
