"""Two-phase aggregation: what a leg computes per group of its own rows, and how the merge puts it together.

A block is decomposed whole or not at all (`IndivisibleError`). Distinct aggregates ship the distinct values: these
become grouping keys of the leg. Results have the types that one node would give: counts are BIGINT, sums of
integers HUGEINT, and variances come from counts, means and sums of squared deviations, never from sums of squares.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
from attrs import Factory, define
from sqlglot import exp

from ballista_py.sql.bind.expressions import (
    aliases_of,
    copied,
    enclosed,
    free_aliases,
    is_aggregate,
    is_number,
    rewritten,
)
from ballista_py.sql.bind.query import Draft, Expr, FragmentScan, Item, OrderTerm, Select, Source, column
from ballista_py.sql.bind.types import NUMERIC, Kind, kind_of
from ballista_py.sql.place.join_groups import Unit
from ballista_py.sql.place.placer import Placer

_BITS = (exp.BitwiseAndAgg, exp.BitwiseOrAgg, exp.BitwiseXorAgg)
_SELF_MERGING = (exp.Min, exp.Max, exp.LogicalAnd, exp.LogicalOr, *_BITS)
_VARIANCES = (exp.Variance, exp.VariancePop, exp.Stddev, exp.StddevSamp, exp.StddevPop)
_MEAN = "mean_of_"


class IndivisibleError(Exception):
    """The block's aggregates cannot be put together from parts; the text says which and why."""


@define(eq=False)
class TwoPhase:
    """Builds both halves of one grouped block whose rows are joined in the legs, as `unit`."""

    select: Select
    unit: Unit
    placer: Placer
    relation: str
    items: list[Item] = Factory(list)
    kinds: dict[str, Kind] = Factory(dict)
    means: dict[str, tuple[str, str]] = Factory(dict)
    _names: dict[Expr, str] = Factory(dict)
    _keys: dict[Expr, str] = Factory(dict)
    _leg_keys: list[Expr] = Factory(list)
    _shipped_keys: list[str] = Factory(list)

    @property
    def draft(self) -> Draft:
        return self.placer.draft

    def leg(self) -> Select:
        """The block that each leg runs. Call it after `merge`."""
        return Select(
            sources=tuple(self.unit.sources),
            where=tuple(self.unit.where),
            grouped=True,
            group=tuple(self._leg_keys),
            items=tuple(self.items),
        )

    def merge(self) -> Select:
        """The block that the merge runs over the legs' rows, `relation`.

        Raises `IndivisibleError`.
        """
        shipped = self._shipped_keys
        for key in self.select.group:
            shipped.append(self._ship_key(key, key.name if isinstance(key, exp.Column) else "key"))
            if not is_number(key):  # the same number elsewhere need not be the key
                self._keys[key.unnest()] = shipped[-1]
        block = attrs.evolve(
            self.select,
            sources=(),
            where=(),
            group=tuple(map(self._read, shipped)),
            having=tuple(self._final(expr) for expr in self.select.having),
            qualify=tuple(self._final(expr) for expr in self.select.qualify),
            items=tuple(Item(item.name, self._final(item.expr)) for item in self.select.items),
            order=tuple(
                OrderTerm(self._final(term.expr), term.descending, term.nulls_first) for term in self.select.order
            ),
        )
        if not self.items:
            raise IndivisibleError("it has neither groups nor aggregates")
        return attrs.evolve(block, sources=(self._source(),))

    def _source(self) -> Source:
        names = tuple(item.name for item in self.items)
        huge = frozenset(name for name, kind in self.kinds.items() if kind == "huge")
        scan = FragmentScan(self.relation, names, huge)
        if not self.means:
            return Source(alias=self.relation, relation=scan)
        if self.select.sets is not None:
            raise IndivisibleError("a variance under grouping sets")
        keys = self._shipped_keys
        inner = Select(
            sources=(Source(alias=self.relation, relation=scan),),
            items=(
                *(Item(name, column(self.relation, name)) for name in names),
                *(Item(mean, self._mean(count, part, keys)) for mean, (count, part) in self.means.items()),
            ),
        )
        return Source(alias=self.relation, relation=inner)

    def _mean(self, count: str, part: str, keys: list[str]) -> Expr:
        """The mean over all legs of one group, beside every leg's row."""

        def total(expr: Expr) -> Expr:
            over = [column(self.relation, key) for key in keys]
            return exp.Window(this=exp.Sum(this=expr), partition_by=over, over="OVER")

        n, mean = column(self.relation, count), column(self.relation, part)
        return exp.Div(this=total(exp.Mul(this=n.copy(), expression=mean)), expression=total(n))

    def _final(self, expr: Expr) -> Expr:
        return rewritten(expr, self._replace)

    def _replace(self, node: Expr) -> Expr | None:
        key = self._keys.get(node.unnest()) if self._keys else None
        if key is not None:
            return self._read(key)
        if isinstance(node, exp.Filter) and is_aggregate(node.args["this"]):
            return self._merged(node.args["this"], node.args["expression"].this)
        if is_aggregate(node) and not isinstance(node, exp.Grouping):
            return self._merged(node, None)
        if isinstance(node, exp.Column):
            raise IndivisibleError(f"column {node.name} is not grouped")
        if isinstance(node, exp.Placeholder):
            free = free_aliases(self.draft.nested[node.this], self.draft)
            if not free.isdisjoint(self.unit.aliases):
                raise IndivisibleError("a correlated subquery over groups")
        return None

    def _merged(self, node: Expr, condition: Expr | None) -> Expr:
        """The aggregate `node`, put together from what the legs ship."""
        if isinstance(node, exp.ArgMin | exp.ArgMax) and not node.args.get("count"):
            return self._by_other(node, condition)
        if any(node.args.get(extra) for extra in ("expressions", "count", "order")):
            raise IndivisibleError(f"{_called(node)} with several arguments")
        argument = node.args.get("this")
        if isinstance(node, exp.ApproxDistinct) and isinstance(argument, exp.Expr):
            return self._approximately_distinct(argument, condition)
        if isinstance(argument, exp.Distinct) and not isinstance(node, exp.Min | exp.Max):
            return self._of_distinct(node, argument, condition)
        if isinstance(argument, exp.Distinct):
            (argument,) = argument.expressions
        if isinstance(node, exp.Count):
            return self._count(exp.Count(this=copied(argument) if argument is not None else exp.Star()), condition)
        if isinstance(argument, exp.Expr):
            kind = kind_of(argument, self.draft)
            for classes, method in self._methods():
                if isinstance(node, classes):
                    return method(node, argument, kind, condition)
        raise IndivisibleError(f"{_called(node)} needs all rows of a group at once")

    def _methods(self) -> list[tuple[type[Expr] | tuple[type[Expr], ...], Callable[..., Expr]]]:
        return [
            (exp.Sum, self._sum),
            (exp.Avg, self._avg),
            (_SELF_MERGING, self._self_merging),
            (_VARIANCES, self._variance),
            (exp.CountIf, self._count_if),
        ]

    def _count(self, count: Expr, condition: Expr | None) -> Expr:
        part = self._ship(count, condition, "count", "int")
        return _cast(exp.Coalesce(this=exp.Sum(this=part), expressions=[exp.Literal.number(0)]), "BIGINT")

    def _count_if(self, node: Expr, _argument: Expr, _kind: Kind | None, condition: Expr | None) -> Expr:
        # As on one node it is NULL, not 0, where no row had a value.
        return exp.Sum(this=self._ship(copied(node), condition, "count", "huge"))

    def _sum(self, _node: Expr, argument: Expr, kind: Kind | None, condition: Expr | None) -> Expr:
        if kind not in NUMERIC and kind != "bool":
            raise IndivisibleError("sum over values of a type that is not known")
        result: Kind = "huge" if kind in ("int", "huge", "bool") else "decimal" if kind == "decimal" else "double"
        return exp.Sum(this=self._ship(exp.Sum(this=copied(argument)), condition, "sum", result))

    def _avg(self, node: Expr, argument: Expr, kind: Kind | None, condition: Expr | None) -> Expr:
        if kind not in NUMERIC:
            raise IndivisibleError("avg over values of a type that is not known")
        total = _cast(self._sum(node, argument, kind, condition), "DOUBLE")
        count = self._ship(exp.Count(this=copied(argument)), condition, "count", "int")
        return exp.Paren(this=exp.Div(this=total, expression=exp.Sum(this=count)))

    def _self_merging(self, node: Expr, _argument: Expr, kind: Kind | None, condition: Expr | None) -> Expr:
        if isinstance(node, exp.LogicalAnd | exp.LogicalOr):
            kind = "bool"
        if kind is None or (isinstance(node, _BITS) and kind != "int"):
            raise IndivisibleError(f"{node.key} over values of a type that is not known")
        part = self._ship(copied(node), condition, node.key[:3], kind)
        return type(node)(this=part)

    def _variance(self, node: Expr, argument: Expr, kind: Kind | None, condition: Expr | None) -> Expr:
        if kind not in NUMERIC:
            raise IndivisibleError(f"{node.key} over values of a type that is not known")
        count = self._ship(exp.Count(this=copied(argument)), condition, "count", "int")
        # Variances are of floats, and so is this mean: the exact sum of a leg may overflow where that of all does not.
        exact = kind in ("huge", "decimal")
        averaged = _cast(copied(argument), "DOUBLE") if exact else copied(argument)
        mean = self._ship(exp.Avg(this=averaged), condition, "mean", "double")
        spread = self._ship(exp.VariancePop(this=copied(argument)), condition, "spread", "double")
        overall = column(self.relation, _MEAN + mean.name)
        self.means[overall.name] = (count.name, mean.name)
        distance = exp.Paren(this=exp.Sub(this=mean, expression=overall))
        square = exp.Mul(this=distance, expression=distance.copy())
        within_and_between = exp.Paren(this=exp.Add(this=spread, expression=square))
        deviations = exp.Sum(this=exp.Mul(this=count.copy(), expression=within_and_between))
        population = isinstance(node, exp.VariancePop | exp.StddevPop)
        total = exp.Sum(this=count.copy())
        divisor = total if population else exp.Paren(this=exp.Sub(this=total, expression=exp.Literal.number(1)))
        ratio: Expr = exp.Div(this=deviations, expression=divisor)
        if not isinstance(node, exp.Variance | exp.VariancePop):
            ratio = exp.Sqrt(this=ratio)
        enough = exp.GT(this=total.copy(), expression=exp.Literal.number(0 if population else 1))
        return exp.Case(ifs=[exp.If(this=enough, true=ratio)])

    def _by_other(self, node: Expr, condition: Expr | None) -> Expr:
        """The value beside the least or greatest other one. A row counts only if both are there."""
        value, other = node.args["this"], node.args["expression"]
        kinds = kind_of(value, self.draft), kind_of(other, self.draft)
        if kinds[0] is None or kinds[1] is None:
            raise IndivisibleError(f"{node.key} over values of a type that is not known")
        least: type[Expr] = exp.Min if isinstance(node, exp.ArgMin) else exp.Max
        there: Expr = exp.Not(this=exp.Is(this=enclosed(copied(value)), expression=exp.Null()))
        if condition is not None:
            there = exp.And(this=exp.Paren(this=copied(condition)), expression=there)
        part = self._ship(copied(node), condition, "value", kinds[0])
        beside = self._ship(least(this=copied(other)), there, "beside", kinds[1])
        return type(node)(this=part, expression=beside)

    def _of_distinct(self, node: Expr, distinct: exp.Distinct, condition: Expr | None) -> Expr:
        if len(distinct.expressions) != 1:
            raise IndivisibleError(f"{node.key} over distinct rows")
        value = self._distinct_value(distinct.expressions[0], condition)
        return type(node)(**{**node.args, "this": exp.Distinct(expressions=[value])})

    def _approximately_distinct(self, argument: Expr, condition: Expr | None) -> Expr:
        """A sketch of the distinct values is that of all values: it keeps no count and no order."""
        if isinstance(argument, exp.Distinct):
            (argument,) = argument.expressions
        return exp.ApproxDistinct(this=self._distinct_value(argument, condition))

    def _distinct_value(self, argument: Expr, condition: Expr | None) -> Expr:
        """The value at the merge, at least once for each group in which it occurs under the condition."""
        value = copied(argument)
        if condition is not None:
            value = exp.Case(ifs=[exp.If(this=copied(condition), true=value)])
        return self._read(self._ship_key(value, "value"))

    def _ship_key(self, expr: Expr, wanted: str) -> str:
        """Make the legs group by `expr` too; returns its column."""
        kind = kind_of(expr, self.draft)
        if kind is None and not isinstance(expr, exp.Column):
            raise IndivisibleError(f"the type of {expr.sql('duckdb')} is not known")
        known = len(self._names)
        name = self._add(expr, wanted, kind or "plain")
        if len(self._names) > known:
            self._leg_keys.append(expr)
        return name

    def _ship(self, aggregate: Expr, condition: Expr | None, wanted: str, kind: Kind) -> Expr:
        """Make the legs compute `aggregate`; returns a reference to its column at the merge."""
        expr = aggregate
        if condition is not None:
            expr = exp.Filter(this=aggregate, expression=exp.Where(this=copied(condition)))
        return self._read(self._add(expr, wanted, kind))

    def _add(self, expr: Expr, wanted: str, kind: Kind) -> str:
        local = self.placer.is_local(expr, self.unit) and aliases_of(expr, self.draft) <= self.unit.aliases
        if not local:
            raise IndivisibleError("its groups or aggregates use what only the merge can evaluate")
        if expr not in self._names:
            taken = {item.name.lower() for item in self.items}
            name = wanted if wanted.lower() not in taken else _unused(wanted, taken)
            self._names[expr] = name
            self.items.append(Item(name, expr))
            self.kinds[name] = kind
        return self._names[expr]

    def _read(self, name: str) -> Expr:
        reference = column(self.relation, name)
        return _cast(reference, "HUGEINT") if self.kinds[name] == "huge" else reference


def _cast(expr: Expr, type_name: str) -> exp.Cast:
    return exp.Cast(this=expr, to=exp.DataType.build(type_name, dialect="duckdb"))


def _unused(wanted: str, taken: set[str]) -> str:
    number = 2
    while f"{wanted}_{number}".lower() in taken:
        number += 1
    return f"{wanted}_{number}"


def _called(node: Expr) -> str:
    return node.name.lower() if isinstance(node, exp.Anonymous) else node.key
