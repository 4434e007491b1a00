"""Parts of an answer: what of a plan one reader takes, named by partitions, so that it can be planned again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from ballista_py.errors import SqlError
from ballista_py.sql.plan import Fragment, Leg, QueryPlan

Partitions = Mapping[str, Sequence[int]]
"""The partitions of each table that is not read whole."""


@attrs.frozen
class Portion:
    """What one reader takes of an answer: these partitions, as of these sequences of the tables that have one."""

    partitions: Partitions
    sequences: Mapping[str, int]


def is_divisible(plan: QueryPlan) -> bool:
    """Whether the batches of the legs, taken together in any order, are the answer, and need nothing first."""
    return plan.merge_sql is None and len(plan.fragments) == 1 and not plan.broadcasts


def portion_of(plan: QueryPlan, leg: Leg) -> Portion:
    """What this leg covers of a divisible plan."""
    whole = {table.table for table in plan.fragments[0].tables if table.whole}
    return Portion(
        partitions={table.table: table.partitions for table in leg.tables if table.table not in whole},
        sequences={table.table: table.sequence for table in leg.tables if table.sequence is not None},
    )


def restricted(plan: QueryPlan, only: Partitions) -> QueryPlan:
    """The plan over these partitions alone, as far as it needs them.

    The restrictions to the partitions of all legs of one plan share the answer between them: each row is in one.

    Raises `SqlError` for a plan that is not divisible, as one may be when it is made again.
    """
    if not is_divisible(plan):
        raise SqlError("the statement is not answered in parts any more: run it again")
    return attrs.evolve(plan, fragments=tuple(_restricted(fragment, only) for fragment in plan.fragments))


def _restricted(fragment: Fragment, only: Partitions) -> Fragment:
    tables = []
    for table in fragment.tables:
        if not table.whole:
            kept = frozenset(only.get(table.table, ()))
            partitions = tuple(partition for partition in table.partitions if partition in kept)
            table = attrs.evolve(table, partitions=partitions)
        tables.append(table)
    return attrs.evolve(fragment, tables=tuple(tables))
