"""In which order the merge joins what it gathered.

A stream tells the engine no size: it takes every one for a single row and joins in the order of FROM. So that order is
made here, by the estimates: the largest relation first, which is then read past the hash tables of the others, and
after it whatever is connected and smallest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ballista_py.sql.bind.expressions import equated_columns, free_aliases
from ballista_py.sql.bind.query import Draft, Query, Select
from ballista_py.sql.place.join_groups import Unit, pooled


def join_order(
    select: Select, units: Sequence[Unit], rows_of: Callable[[Unit], float], draft: Draft
) -> list[Unit]:
    """The units of a block as the merge joins them: inner ones by size, then those of a LEFT JOIN as they stand.

    They stay as they are where an ON or a correlated relation ties them down.
    """
    if not all(unit.join == "left" or (unit.join == "inner" and not unit.on) for unit in units):
        return list(units)
    inner = [unit for unit in units if unit.join == "inner"]
    left = [unit for unit in units if unit.join == "left"]
    if len(inner) < 2 or any(_is_correlated(unit, draft) for unit in inner):
        return [*inner, *left]
    sizes = {id(unit): rows_of(unit) for unit in inner}
    pairs = [(one[0], other[0]) for one, other in filter(None, map(equated_columns, pooled(select)))]
    waiting = list(inner)
    first = max(waiting, key=lambda unit: sizes[id(unit)])
    waiting.remove(first)
    ordered, seen = [first], set(first.aliases)
    while waiting:
        touched = {b for a, b in pairs if a in seen} | {a for a, b in pairs if b in seen}
        chosen = min(waiting, key=lambda unit: (unit.aliases.isdisjoint(touched), sizes[id(unit)]))
        waiting.remove(chosen)
        ordered.append(chosen)
        seen |= chosen.aliases
    return [*ordered, *left]


def _is_correlated(unit: Unit, draft: Draft) -> bool:
    return any(
        isinstance(source.relation, Query) and bool(free_aliases(source.relation, draft))
        for source in unit.sources
    )
