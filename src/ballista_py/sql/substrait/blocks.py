"""A plan's relations on their way to SQL: blocks that become SELECTs, one in another.

A relation becomes part of the block below it where that means the same and no expression is written twice; else the
block below becomes a subquery. The order of rows travels with the blocks, since Substrait keeps it through filters
and projections, and SQL does not keep that of a subquery.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs
import pyarrow as pa
from attrs import frozen
from sqlglot import exp

from ballista_py.sql.substrait.calls import Value, enclosed
from ballista_py.sql.substrait.expressions import Key

_QUERY, _COLUMN = "q", "c"


@frozen(eq=False, kw_only=True)
class Block:
    """A SELECT: columns over the names of its source; `groups` is None without grouping, () for one group of all rows.

    `level` counts the blocks below. `where` and `columns`, `groups` and the keys of `order` are over the source.
    """

    source: str | Block
    level: int
    columns: tuple[Value, ...]
    where: tuple[exp.Expr, ...] = ()
    groups: tuple[exp.Expr, ...] | None = None
    order: tuple[Key, ...] = ()
    limit: int | None = None
    offset: int = 0

    @property
    def cut(self) -> bool:
        """Whether it gives some of its rows only."""
        return self.limit is not None or self.offset > 0

    @property
    def plain(self) -> bool:
        """Whether expressions over its columns may be computed in it, by those that it has for them."""
        return not self.cut and self.groups is None and all(map(_is_small, self.columns))


def _is_small(value: Value) -> bool:
    """Whether a value may be written wherever it is named: a column, or a plain NULL."""
    tree = value.tree
    null = isinstance(tree, exp.Cast) and isinstance(tree.this, exp.Null) and not pa.types.is_nested(value.kind)
    return isinstance(tree, exp.Column) or null


def opened(block: Block) -> Block:
    """A block that gives the same rows, in which expressions over its columns may be computed."""
    return block if block.plain else wrapped(block)


def wrapped(block: Block) -> Block:
    """A block over this one: what orders the rows is handed up, and stays below only where some are cut off."""
    hidden = [key.value for key in block.order if not any(key.value is one for one in block.columns)]
    below = attrs.evolve(block, columns=(*block.columns, *hidden), order=block.order if block.cut else ())
    fields = tuple(Value(_field(block.level, n), one.kind) for n, one in enumerate(below.columns))
    places = {id(one): n for n, one in reversed(list(enumerate(below.columns)))}
    order = tuple(attrs.evolve(key, value=fields[places[id(key.value)]]) for key in block.order)
    return Block(source=below, level=block.level + 1, columns=fields[: len(block.columns)], order=order)


def chosen(block: Block, places: Sequence[int]) -> Block:
    """The block with these of its columns; one that is computed is not computed twice."""
    computed = [n for n in places if not _is_small(block.columns[n])]
    if len(set(computed)) < len(computed):
        block = wrapped(block)
    return attrs.evolve(block, columns=tuple(block.columns[n] for n in places))


def _field(level: int, place: int) -> exp.Expr:
    return exp.column(f"{_COLUMN}{place}", table=f"{_QUERY}{level}")


def select_of(block: Block, names: Sequence[str]) -> exp.Select:
    """The SELECT of the outermost block, with these names of its columns."""
    items = [
        exp.alias_(value.tree.copy(), exp.to_identifier(name, quoted=True))
        for value, name in zip(block.columns, names, strict=True)
    ]
    return _select(block, items)


def _inner(block: Block, needed: set[int]) -> exp.Select:
    if block.groups == () and not needed:
        needed = {0}  # without an aggregate it would have as many rows as its source
    items = [exp.alias_(block.columns[n].tree.copy(), f"{_COLUMN}{n}") for n in sorted(needed)]
    return _select(block, items or [exp.alias_(exp.Literal.number("1"), _COLUMN)])


def _select(block: Block, items: Sequence[exp.Expr]) -> exp.Select:
    made = exp.Select(expressions=list(items))
    if block.where:
        made.set("where", exp.Where(this=all_of(block.where)))
    if block.groups:
        made.set("group", exp.Group(expressions=[tree.copy() for tree in block.groups]))
    if block.order:
        made.set("order", exp.Order(expressions=[key.ordered() for key in block.order]))
    if block.limit is not None:
        made.set("limit", exp.Limit(expression=exp.Literal.number(str(block.limit))))
    if block.offset:
        made.set("offset", exp.Offset(expression=exp.Literal.number(str(block.offset))))
    return made.from_(_from(block, made), copy=False)


def _from(block: Block, made: exp.Select) -> exp.Expr:
    if isinstance(block.source, str):
        return exp.Table(this=exp.to_identifier(block.source, quoted=True))
    used = {column.name for column in made.find_all(exp.Column)}
    needed = {int(name[1:]) for name in used}
    alias = exp.TableAlias(this=exp.to_identifier(f"{_QUERY}{block.source.level}"))
    return exp.Subquery(this=_inner(block.source, needed), alias=alias)


def all_of(parts: Iterable[exp.Expr]) -> exp.Expr:
    """The conjunction of conditions, which become pieces of it: none stands anywhere else."""
    found: exp.Expr | None = None
    for part in parts:
        one = enclosed(part) if isinstance(part, exp.Or) else part
        found = one if found is None else exp.And(this=found, expression=one)
    assert found is not None
    return found
