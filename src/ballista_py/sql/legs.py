"""From the fragments of a plan to legs: which executor runs each fragment over which partitions.

Every partition that a fragment needs is in exactly one of its legs, and partitions of equal value of co-located
tables are in the same one. The same plan, maps and members give the same legs on every machine.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from attrs import evolve

from ballista_py.errors import PartitionsUnassigned
from ballista_py.partitions.map import NOBODY, Owner, PartitionMap
from ballista_py.partitions.set_cover import SetCoverSelector, unassigned
from ballista_py.scans.task import ScanTask
from ballista_py.sql.barriers import barred
from ballista_py.sql.plan import Catalog, Fragment, FragmentTable, Leg, LegTable, QueryPlan

AT_SCHEDULER = ""
"""Stands for an executor where the scheduler runs a leg itself."""
Slots = npt.NDArray[np.int64]
"""One row per partition value, one column per table: the table's partition of that value, or -1."""


def legs_of(
    plan: QueryPlan, catalog: Catalog, live: Collection[Owner], owners_only: bool = False
) -> tuple[Leg, ...]:
    """The legs of all fragments, by fragment and executor id. A fragment that was pruned to nothing has none.

    `live` are the members as (executor id, instance id); who is not among them owns nothing. A fragment over
    replicated tables only runs on one executor: the owner of the first of them if it is live. With `owners_only` no
    replica is asked of a fragment whose partitions all have live owners that agree.

    Raises `PartitionsUnassigned`, naming some of the partitions, if a needed one has no live owner.
    """
    members = frozenset(live)
    kept = (fragment for fragment in plan.fragments if not scanned_by(fragment, catalog))
    return tuple(leg for fragment in kept for leg in _legs_of(fragment, catalog, members, owners_only))


def scanned_by(fragment: Fragment, catalog: Catalog) -> tuple[str, ...]:
    """The tables of a fragment that are scanned where they lie: its legs are made of tasks, by whoever knows these."""
    return tuple(t.table for t in fragment.tables if t.table in catalog.scanned) if catalog.scanned else ()


def legs_of_tasks(
    fragment: Fragment, catalog: Catalog, tasks: Sequence[tuple[str, Mapping[str, tuple[ScanTask, ...]]]]
) -> tuple[Leg, ...]:
    """One leg for each of these executors (`AT_SCHEDULER`: none of them) with its tasks, by table.

    Replicated tables are read beside them. Raises `PartitionsUnassigned` if one of those has no owner.
    """
    whole = [table for table in fragment.tables if table.whole]
    if not all(_is_assigned(table, catalog) for table in whole):
        raise unassigned([partition for table in whole for partition in table.partitions])
    names = [name for name, _ in tasks]
    tables = [[_meant(leg, catalog) for leg in _whole_table(one, names, catalog.maps[one.table])] for one in whole]
    read = list(zip(*tables, strict=True)) if tables else [()] * len(names)
    sql = _barred(fragment, catalog)
    return tuple(
        Leg(fragment=fragment.name, executor_id=name, sql=sql, tables=beside, scans=scans)
        for (name, scans), beside in zip(tasks, read, strict=True)
    )


def copies_of(failed: Leg, plan: QueryPlan, catalog: Catalog, live: Collection[Owner]) -> tuple[Leg, ...]:
    """The legs that read what a leg of the plan was to read, as of the same moment, at executors among `live`.

    Raises `PartitionsUnassigned` where one of the partitions has no copy there.
    """
    (fragment,) = (one for one in plan.fragments if one.name == failed.fragment)
    if failed.scans:
        others = sorted(name for name, _ in live if name != failed.executor_id)
        return () if not others else (moved_leg(failed, fragment, catalog, others[0]),)
    read = {table.table: table for table in failed.tables}
    rest = tuple(
        table if table.whole else evolve(table, partitions=read[table.table].partitions)
        for table in fragment.tables
    )
    found = _legs_of(evolve(fragment, tables=rest), catalog, frozenset(live), owners_only=False)
    return tuple(
        evolve(
            failed,
            executor_id=leg.executor_id,
            tables=tuple(evolve(table, sequence=read[table.table].sequence) for table in leg.tables),
        )
        for leg in found
    )


def moved_leg(leg: Leg, fragment: Fragment, catalog: Catalog, executor_id: str) -> Leg:
    """The leg of tasks at another executor, as of the same moment."""
    (made,) = legs_of_tasks(fragment, catalog, [(executor_id, leg.scans)])
    read = {table.table: table.sequence for table in leg.tables}
    tables = tuple(evolve(table, sequence=read[table.table]) for table in made.tables)
    return evolve(leg, executor_id=executor_id, tables=tables)


def _barred(fragment: Fragment, catalog: Catalog) -> str:
    if not catalog.barriers:
        return fragment.sql
    return barred(fragment.sql, [table.table for table in fragment.tables], catalog)


def _legs_of(fragment: Fragment, catalog: Catalog, live: frozenset[Owner], owners_only: bool) -> list[Leg]:
    if any(len(table.partitions) != table.total for table in fragment.tables if not table.whole):
        parts = _parts_of(fragment, catalog, live, owners_only)
    else:  # what a fragment over all partitions is cut into follows from the catalog
        key = tuple((table.table, table.whole) for table in fragment.tables), live, owners_only
        parts = catalog.once("legs", key, lambda: _parts_of(fragment, catalog, live, owners_only))
    sql = _barred(fragment, catalog)
    return [Leg(fragment=fragment.name, executor_id=name, sql=sql, tables=tables) for name, tables in parts]


def _parts_of(
    fragment: Fragment, catalog: Catalog, live: frozenset[Owner], owners_only: bool
) -> list[tuple[str, tuple[LegTable, ...]]]:
    """The executors of a fragment, and what each reads."""
    split = [table for table in fragment.tables if not table.whole]
    if not split:
        chosen = {_any_executor(fragment.tables, catalog, live): np.empty((1, 0), np.int64)}
    else:
        chosen = _cover(split, catalog, live, owners_only)
    if chosen and not all(_is_assigned(table, catalog) for table in fragment.tables if table.whole):
        raise unassigned([partition for table in fragment.tables if table.whole for partition in table.partitions])
    names = sorted(chosen)
    slots = [chosen[name] for name in names]
    found = [
        _whole_table(table, names, catalog.maps[table.table])
        if table.whole
        else _split_table(table, names, [part[:, split.index(table)] for part in slots], catalog.maps[table.table])
        for table in fragment.tables
    ]
    tables = [[_meant(leg, catalog) for leg in legs] for legs in found]
    return list(zip(names, zip(*tables, strict=True) if tables else [()] * len(names), strict=True))


def _meant(leg: LegTable, catalog: Catalog) -> LegTable:
    """With the table that the plan was made for, and the definition of it."""
    table = catalog.tables[leg.table]
    return evolve(leg, definition=table.definition, incarnation=table.incarnation)


def _whole_table(table: FragmentTable, names: Sequence[str], pmap: PartitionMap) -> list[LegTable]:
    """The same table for every leg."""
    epochs = tuple(pmap.epochs[np.array(table.partitions, np.int64)].tolist())
    owner = pmap.owner(table.partitions[0]) if table.partitions else None
    one = LegTable(table=table.table, revision=pmap.revision, partitions=table.partitions, epochs=epochs)
    copies = evolve(one, at_replicas=len(table.partitions))
    return [one if owner is not None and owner[0] == name else copies for name in names]


def _split_table(
    table: FragmentTable, names: Sequence[str], parts: Sequence[npt.NDArray[np.int64]], pmap: PartitionMap
) -> list[LegTable]:
    """The partitions of each leg in ascending order; one pass over all, because there may be many legs."""
    leg = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    partitions = np.concatenate(parts) if parts else np.empty(0, np.int64)
    kept = partitions != NOBODY
    leg, partitions = leg[kept], partitions[kept]
    order = np.lexsort((partitions, leg))
    leg, partitions = leg[order], partitions[order]
    ids, epochs = partitions.tolist(), pmap.epochs[partitions].tolist()
    ends = np.cumsum(np.bincount(leg, minlength=len(parts))).tolist()
    numbers = {name: place for place, name in enumerate(names)}
    owners = np.array([*(numbers.get(name, NOBODY) for name, _ in pmap.executors), NOBODY], np.int64)
    at_replicas = np.bincount(leg[owners[pmap.owner_index[partitions, 0]] != leg], minlength=len(parts)).tolist()
    return [
        LegTable(
            table=table.table,
            revision=pmap.revision,
            partitions=tuple(ids[start:end]),
            epochs=tuple(epochs[start:end]),
            at_replicas=copies,
        )
        for start, end, copies in zip([0, *ends], ends, at_replicas, strict=False)
    ]


def _any_executor(tables: Sequence[FragmentTable], catalog: Catalog, live: frozenset[Owner]) -> str:
    """Who runs a fragment that any executor could run."""
    owners = [owner for table in tables for owner in catalog.maps[table.table].owners(0) if owner in live]
    if owners:
        return owners[0][0]
    if not live:
        raise unassigned([partition for table in tables for partition in table.partitions])
    return min(live)[0]


def _is_assigned(table: FragmentTable, catalog: Catalog) -> bool:
    pmap = catalog.maps[table.table]
    return all(pmap.owner(partition) is not None for partition in table.partitions)


def _cover(
    tables: Sequence[FragmentTable], catalog: Catalog, live: frozenset[Owner], owners_only: bool
) -> dict[str, Slots]:
    """Executor id to the slots that it covers."""
    maps = [catalog.maps[table.table] for table in tables]
    slots = _slots(tables, maps)
    names = sorted({executor_id for pmap in maps for executor_id, _ in pmap.executors})
    holders = [_holders(pmap, slots[:, place], names, live) for place, pmap in enumerate(maps)]
    if owners_only:
        with suppress(PartitionsUnassigned):
            return _by_single_owner(slots, [held[:, :1] for held in holders], names)
    if all(held.shape[1] == 1 for held in holders):
        return _by_single_owner(slots, holders, names)
    candidates = {number: _common(holders, number, names) for number in range(len(slots))}
    lacking = [number for number, executors in candidates.items() if not executors]
    if lacking:
        raise unassigned(slots[lacking].max(axis=1).tolist())
    chosen = SetCoverSelector().select(range(len(slots)), candidates)
    return {executor_id: slots[numbers] for executor_id, numbers in chosen.items()}


def _slots(tables: Sequence[FragmentTable], maps: Sequence[PartitionMap]) -> Slots:
    """The partitions of all tables, those of equal value side by side."""
    ids = [_ids(table, pmap) for table, pmap in zip(tables, maps, strict=True)]
    if len(ids) == 1:
        return ids[0].reshape(-1, 1)
    values = [[column.take(pa.array(own)) for column in pmap.columns] for own, pmap in zip(ids, maps, strict=True)]
    if all(
        len(own) == len(ids[0]) and _equal(columns, values[0]) for own, columns in zip(ids, values, strict=True)
    ):
        return np.stack(ids, axis=1)
    rows: dict[tuple[Any, ...], list[int]] = {}
    for place, (own, columns) in enumerate(zip(ids, values, strict=True)):
        keys = zip(*(_hashable(column) for column in columns), strict=True)
        for partition, key in zip(own.tolist(), keys, strict=True):
            rows.setdefault(key, [NOBODY] * len(tables))[place] = partition
    return np.array(list(rows.values()), np.int64).reshape(-1, len(tables))


def _ids(table: FragmentTable, pmap: PartitionMap) -> npt.NDArray[np.int64]:
    """The table's partitions as an array; all of them are an array already."""
    if len(table.partitions) == table.total == len(pmap):
        return np.arange(len(pmap))
    return np.array(table.partitions, np.int64)


def _equal(left: Sequence[pa.Array], right: Sequence[pa.Array]) -> bool:
    return all(a.equals(b) for a, b in zip(left, right, strict=True))


def _hashable(column: pa.Array) -> list[Any]:
    """The values as Python objects that are equal exactly if the partitions are: NaN is one value here."""
    return ["NaN" if value != value else value for value in column.to_pylist()]


def _holders(
    pmap: PartitionMap, partitions: npt.NDArray[np.int64], names: Sequence[str], live: frozenset[Owner]
) -> npt.NDArray[np.int64]:
    """The live executors of each partition as places in `names`; -1 for nobody, -2 where there is no partition."""
    numbers = {name: place for place, name in enumerate(names)}
    places = [numbers[owner[0]] if owner in live else NOBODY for owner in pmap.executors]
    if not len(pmap):  # a table that was just made: it has nothing of any value
        return np.full((len(partitions), 1), -2, np.int64)
    held = np.array([*places, NOBODY], np.int64)[pmap.owner_index[partitions]]
    held[partitions == NOBODY] = -2
    return held


def _by_single_owner(
    slots: Slots, holders: Sequence[npt.NDArray[np.int64]], names: Sequence[str]
) -> dict[str, Slots]:
    owners = np.concatenate(holders, axis=1)
    best = owners.max(axis=1, initial=-2)
    agreed = ((owners == best[:, None]) | (owners == -2)).all(axis=1) & (best >= 0)
    if not agreed.all():
        raise unassigned(slots[~agreed].max(axis=1).tolist())
    order = np.argsort(best, kind="stable")
    found, starts = np.unique(best[order], return_index=True)
    parts = np.split(slots[order], starts[1:])
    return {names[place]: part for place, part in zip(found.tolist(), parts, strict=False)}


def _common(holders: Sequence[npt.NDArray[np.int64]], number: int, names: Sequence[str]) -> list[str]:
    """The executors that hold the partitions of one slot in every table that has one."""
    rows: list[Mapping[int, None]] = [dict.fromkeys(held[number].tolist()) for held in holders]
    common = set.intersection(*(set(row) for row in rows if -2 not in row))
    return sorted(names[place] for place in common if place >= 0)
