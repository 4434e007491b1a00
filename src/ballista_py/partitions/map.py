"""The partitions of one table and who owns them: an immutable, columnar value.

A partition is an index into its map, for the life of the table: discovery appends, and what vanishes leaves a gap
marked removed that is never used again. Changes give a new map; the old one stays as it was.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from attrs import field, frozen

from ballista_py.errors import PlanningError
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.type_names import type_name
from ballista_py.partitions.value_index import Ids, ValueIndex
from ballista_py.partitions.values import as_key, require_short_values

if TYPE_CHECKING:
    from ballista_py.partitions.assignment.plan import AssignmentPlan
    from ballista_py.partitions.discovery import PartitionDiff

Owner: TypeAlias = tuple[str, str]
NOBODY = -1
MISSING = 1
REMOVED = 2


def _same_columns(left: Sequence[pa.Array], right: Sequence[pa.Array]) -> bool:
    return len(left) == len(right) and all(_same(a, b) for a, b in zip(left, right, strict=True))


def _same(left: pa.Array, right: pa.Array) -> bool:
    if left.type == right.type and pa.types.is_floating(left.type):
        # NaN is a value like any other here.
        bits = pa.int32() if left.type.bit_width == 32 else pa.int64()
        return bool(left.view(bits).equals(right.view(bits)))
    return bool(left.equals(right))


_ARRAYS = attrs.cmp_using(eq=np.array_equal)


@frozen(kw_only=True, slots=False, repr=False)
class PartitionMap:
    """The map of one table at one revision. Build it with `build`, change it with `apply` and its siblings.

    The columns are numpy arrays with one row per partition, for codecs and planners; treat them as read-only:
    `owner_index` (row, replica; the first one writes), `target_index` and `former_index` index `executors` or are
    -1; `epochs`; `weights` (rows or bytes); `flags` (`MISSING`, `REMOVED`). `discoveries` counts those that changed
    a flag.

    >>> spec = PartitionSpec.parse(["bucket(2, id)"], pa.schema([pa.field("id", pa.int64(), nullable=False)]))
    >>> events = PartitionMap.build("events", spec, spec.static_values())
    >>> len(events), events.value(1), events.owner(1), events.path(1)
    (2, (1,), None, 'expr0=1')
    """

    table: str
    spec: PartitionSpec
    revision: int = 0
    columns: tuple[pa.Array, ...] = field(eq=attrs.cmp_using(eq=_same_columns))
    executors: tuple[Owner, ...] = field(default=())
    owner_index: npt.NDArray[np.int32] = field(eq=_ARRAYS)
    target_index: npt.NDArray[np.int32] = field(eq=_ARRAYS)
    former_index: npt.NDArray[np.int32] = field(eq=_ARRAYS)
    epochs: npt.NDArray[np.int64] = field(eq=_ARRAYS)
    weights: npt.NDArray[np.float64] = field(eq=_ARRAYS)
    flags: npt.NDArray[np.uint8] = field(eq=_ARRAYS)
    discoveries: int = 0

    @classmethod
    def build(
        cls,
        table: str,
        spec: PartitionSpec,
        values: Iterable[Sequence[Any]],
        weights: Sequence[float] | npt.NDArray[np.float64] | None = None,
    ) -> PartitionMap:
        """A map of unowned partitions at epoch 0: one tuple per partition, in key order; weight 1 if not given.

        Raises `PlanningError` for a value that occurs twice or is not of the key's type, and for weights that are
        negative, not finite, or not one per value.
        """
        rows = list(values)
        return cls.of_columns(table, spec, value_columns(spec, rows), len(rows), weights)

    @classmethod
    def of_columns(
        cls,
        table: str,
        spec: PartitionSpec,
        columns: Sequence[pa.Array],
        length: int,
        weights: Sequence[float] | npt.NDArray[np.float64] | None = None,
    ) -> PartitionMap:
        """As `build`, from one array per key. Raises `SchemaMismatch` as `require_short_values`, too."""
        require_short_values(table, [key.expression for key in spec.keys], columns)
        built = cls(
            table=table,
            spec=spec,
            columns=tuple(columns),
            owner_index=np.full((length, 1), NOBODY, np.int32),
            target_index=np.full(length, NOBODY, np.int32),
            former_index=np.full(length, NOBODY, np.int32),
            epochs=np.zeros(length, np.int64),
            weights=np.ones(length) if weights is None else np.array(weights, np.float64),
            flags=np.zeros(length, np.uint8),
        )
        if built.weights.shape != (length,) or not (np.isfinite(built.weights) & (built.weights >= 0)).all():
            raise PlanningError(f"table '{table}': weights must be one finite number >= 0 per partition")
        if not np.array_equal(built.value_index.lookup(built.columns, length), np.arange(length)):
            raise PlanningError(f"table '{table}': a partition value occurs twice")
        return built

    def __len__(self) -> int:
        return len(self.epochs)

    def value(self, partition: int) -> tuple[Any, ...]:
        """The typed value, one item per key."""
        return tuple(column[partition].as_py() for column in self.columns)

    def owners(self, partition: int) -> tuple[Owner, ...]:
        """Who holds it as (executor_id, instance_id): the owner first, then read replicas; empty if nobody."""
        return tuple(self.executors[index] for index in self.owner_index[partition] if index != NOBODY)

    def owner(self, partition: int) -> Owner | None:
        """The one executor that may write it, as (executor_id, instance_id)."""
        index = self.owner_index[partition, 0]
        return None if index == NOBODY else self.executors[index]

    def target(self, partition: int) -> Owner | None:
        """Who is to become its owner once loaded."""
        index = self.target_index[partition]
        return None if index == NOBODY else self.executors[index]

    def former(self, partition: int) -> Owner | None:
        """Who handed it over to its owner, and may not know yet, so that it still serves its old epoch."""
        index = self.former_index[partition]
        return None if index == NOBODY else self.executors[index]

    def epoch(self, partition: int) -> int:
        """How often its owner changed."""
        return int(self.epochs[partition])

    def weight(self, partition: int) -> float:
        """Its rows or bytes, whatever the map was built with."""
        return float(self.weights[partition])

    def path(self, partition: int) -> str:
        """The stable text form of its value."""
        return self.spec.path(self.value(partition))

    def is_removed(self, partition: int) -> bool:
        """Whether it left the table."""
        return bool(self.flags[partition] & REMOVED)

    def ids(self) -> Ids:
        """The partitions of the table: all that are not removed."""
        return np.flatnonzero((self.flags & REMOVED) == 0).astype(np.int32)

    @cached_property
    def value_index(self) -> ValueIndex:
        """From values to ids, over the partitions that are not removed."""
        ids = self.ids()
        columns = (
            self.columns if len(ids) == len(self) else [column.take(pa.array(ids)) for column in self.columns]
        )
        return ValueIndex.of(columns, ids)

    def index(self, value: Sequence[Any]) -> int | None:
        """The partition of a value; None if the table has none for it."""
        found = int(self.value_index.lookup(value_columns(self.spec, [value]), 1)[0])
        return None if found == NOBODY else found

    def lookup(self, columns: Sequence[pa.Array], length: int) -> Ids:
        """The partition of each row of key values (as `spec.evaluate` gives them); -1 for an unknown value."""
        return self.value_index.lookup(columns, length)

    def matching(self, allowed: Mapping[str, Collection[Any]]) -> Ids:
        """The partitions whose value of each named key is in the given set (None stands for null), ascending.

        A value that is not one of the key's type matches nothing. Raises `PlanningError` for an unknown key name.
        """
        keep = (self.flags & REMOVED) == 0
        for name, values in allowed.items():
            keep &= _is_in(self.columns[self._key_place(name)], values)
        return np.flatnonzero(keep).astype(np.int32)

    def within(self, key_name: str, low: Any = None, high: Any = None) -> Ids:
        """The partitions whose value of the key lies from `low` to `high`, both included; None is no bound.

        Null lies within no bounds. Ask it for ordered keys (`key.is_monotonic`) with bounds that went through
        `key.value_for`. Raises `PlanningError` for an unknown key or a bound that is not one of the key's type.
        """
        column = self.columns[self._key_place(key_name)]
        keep = ((self.flags & REMOVED) == 0) & column.is_valid().to_numpy(zero_copy_only=False)
        for bound, compare in ((low, pc.greater_equal), (high, pc.less_equal)):
            if bound is not None:
                held = compare(column, _scalar(bound, column.type, key_name))
                keep &= pc.fill_null(held, False).to_numpy(zero_copy_only=False)
        return np.flatnonzero(keep).astype(np.int32)

    def owned_by(self, executor_id: str, instance_id: str) -> Ids:
        """The partitions that this instance owns."""
        return self._where(self.owner_index[:, 0], (executor_id, instance_id))

    def replicated_at(self, executor_id: str, instance_id: str) -> Ids:
        """The partitions that this instance holds as a read replica."""
        place = self._place((executor_id, instance_id))
        return np.flatnonzero((self.owner_index[:, 1:] == place).any(axis=1) & (place >= 0)).astype(np.int32)

    def targeted_at(self, executor_id: str, instance_id: str) -> Ids:
        """The partitions that this instance is to take over."""
        found = self._where(self.target_index, (executor_id, instance_id))
        return np.asarray(found[self.owner_index[found, 0] != self.target_index[found]])

    def handed_over_by(self, executor_id: str, instance_id: str) -> Ids:
        """The partitions of which this instance is the `former` owner."""
        return self._where(self.former_index, (executor_id, instance_id))

    def orphans(self, live: Collection[Owner]) -> Ids:
        """The partitions without an owner among the instances `live`."""
        alive = np.array([owner in live for owner in self.executors] + [False], np.bool_)
        return np.flatnonzero(~alive[self.owner_index[:, 0]] & ((self.flags & REMOVED) == 0)).astype(np.int32)

    def apply(self, plan: AssignmentPlan) -> PartitionMap:
        """The map after the plan's moves. A move whose partition changed since it was planned is left out.

        `assign` makes the new owner now and adds 1 to the epoch; `move` names the target and leaves the epoch.
        Raises `PlanningError` for a plan of another table.
        """
        from ballista_py.partitions.moves import apply_plan

        return apply_plan(self, plan)

    def promote(self, partitions: Iterable[int]) -> PartitionMap:
        """The map in which the targets of these partitions own them, at the next epoch; those without stay.

        Who owned them is their `former` owner until `release`. A target that is the owner already only stops being
        a target: so a move is called off.
        """
        from ballista_py.partitions.moves import promote

        return promote(self, partitions)

    def call_off(self, partitions: Iterable[int]) -> PartitionMap:
        """The map in which these partitions have no target any more; owners and epochs stay."""
        from ballista_py.partitions.moves import call_off

        return call_off(self, partitions)

    def release(self, partitions: Iterable[int]) -> PartitionMap:
        """The map in which these partitions have no `former` owner any more: it knows, or is gone."""
        from ballista_py.partitions.moves import release

        return release(self, partitions)

    def hand_back(self, live: Collection[Owner]) -> PartitionMap:
        """The map in which partitions without an owner in `live` belong to their `former` owner again, if it is.

        It may still serve them, so nobody else could own them safely. They get the next epoch.
        """
        from ballista_py.partitions.moves import hand_back

        return hand_back(self, live)

    def apply_diff(self, diff: PartitionDiff, allow_empty: bool = False) -> PartitionMap:
        """The map after a discovery: new values appended, values missing once marked, missing twice removed.

        If another discovery has changed a flag since this one began (`diff.after`), what this one misses is left
        for the next to find: its look at the source was no later one.
        """
        from ballista_py.partitions.moves import apply_diff

        return apply_diff(self, diff, allow_empty)

    def of_table(self, name: str) -> PartitionMap:
        """The same map, of a table that is called so."""
        return self if name == self.table else attrs.evolve(self, table=name)

    def with_revision(self, revision: int) -> PartitionMap:
        """The same map under the revision of the document that holds it."""
        return attrs.evolve(self, revision=revision)

    def with_weights(self, weights: Mapping[int, float]) -> PartitionMap:
        """The map with fresh weights for some partitions."""
        fresh = self.weights.copy()
        for partition, weight in weights.items():
            fresh[partition] = weight
        return attrs.evolve(self, weights=fresh)

    def to_columns(self) -> dict[str, Any]:
        """All but `table` and `revision` as named columns; see `partition_columns` for the names."""
        from ballista_py.partitions.map_columns import to_columns

        return to_columns(self)

    @classmethod
    def from_columns(cls, table: str, revision: int, columns: Mapping[str, Any]) -> PartitionMap:
        """The map that `to_columns` wrote down; lists are as good as arrays."""
        from ballista_py.partitions.map_columns import from_columns

        return from_columns(table, revision, columns)

    def __repr__(self) -> str:
        from ballista_py.partitions.partition_text import summary

        return summary(self)

    def _repr_html_(self) -> str:
        from ballista_py.partitions.partition_text import html

        return html(self)

    def _key_place(self, name: str) -> int:
        names = [key.name for key in self.spec.keys]
        if name not in names:
            raise PlanningError(
                f"table '{self.table}' has no partition key '{name}': its keys are {', '.join(names)}"
            )
        return names.index(name)

    def _place(self, owner: Owner) -> int:
        return self.executors.index(owner) if owner in self.executors else -2

    def _where(self, column: npt.NDArray[np.int32], owner: Owner) -> Ids:
        place = self._place(owner)
        return np.flatnonzero(column == place).astype(np.int32) if place >= 0 else np.empty(0, np.int32)


def value_columns(spec: PartitionSpec, rows: Sequence[Sequence[Any]]) -> tuple[pa.Array, ...]:
    """Rows of partition values as one array per key; raises `PlanningError` for a row that does not fit."""
    if any(len(row) != len(spec.keys) for row in rows):
        raise PlanningError(f"a partition value must have {len(spec.keys)} item(s), one per key")
    columns: list[pa.Array] = []
    for place, key in enumerate(spec.keys):
        try:
            array = pa.array([row[place] for row in rows], key.type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
            raise PlanningError(
                f"a value of partition key '{key.expression}' is not of type {type_name(key.type)}"
            ) from error
        columns.append(as_key(array, key.type))
    return tuple(columns)


def _scalar(value: Any, kind: pa.DataType, key_name: str) -> pa.Scalar:
    try:
        return as_key(pa.array([value], kind), kind)[0]
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
        raise PlanningError(f"{value!r} is not a value of partition key '{key_name}'") from error


def _is_in(column: pa.Array, values: Collection[Any]) -> npt.NDArray[np.bool_]:
    if len(values) == 1 and pa.types.is_integer(column.type) and not column.null_count:
        (value,) = values
        if type(value) is int:  # one comparison instead of a set
            return np.asarray(column.to_numpy() == value)
    usable: list[Any] = []
    for value in values:
        try:
            usable.append(pa.array([value], column.type))
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
            continue
    if not usable:
        return np.zeros(len(column), np.bool_)
    value_set = as_key(pa.concat_arrays(usable), column.type)
    return np.asarray(pc.is_in(column, value_set=value_set).to_numpy(zero_copy_only=False), np.bool_)
