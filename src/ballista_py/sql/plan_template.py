"""A plan with holes: what statements of one shape share, so that the next one need not be planned from its text.

Promises that a filled template equals the plan that `plan_query` makes of the same statement. It rests on what the
planner reads of a constant that a condition of WHERE compares with: which partitions it leaves, and that is computed
anew, by the same code, and nothing else; everywhere else the constant is copied. Only statements that join tables where
their rows are, in one fragment, have a template: no size decides there. A LIMIT without OFFSET is copied, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

import attrs
import pyarrow as pa
from attrs import frozen
from sqlglot import exp

from ballista_py.errors import SqlError
from ballista_py.partitions.table import TableSpec
from ballista_py.sql.bind.expressions import equated_columns, nested_of, rewritten
from ballista_py.sql.bind.query import Draft, Expr, Scan, Select, Source, UnplannableError
from ballista_py.sql.distribute.fragments import fragment_table
from ballista_py.sql.estimate.sizes import bytes_of_row, rows_of_query, share_of_partitions
from ballista_py.sql.parse.shape import INTEGER, TEXT, Shape
from ballista_py.sql.parse.text import read
from ballista_py.sql.place.join_groups import pooled
from ballista_py.sql.place.placement import Placement, Split
from ballista_py.sql.place.placer import Placer, pruned, reason_of
from ballista_py.sql.plan import Catalog, QueryPlan
from ballista_py.sql.planner import planned

_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
_FIRST_MARK = 139_170_000
_FIRST_LONG_MARK = 857_142_000_000_000_000


@frozen(eq=False)
class _Text:
    """Text with places for constants."""

    pieces: tuple[str, ...]  # text and the number of a constant, in turn
    numbers: tuple[int, ...]

    @classmethod
    def of(cls, text: str, marks: Sequence[str]) -> _Text:
        pieces = re.split(f"({'|'.join(map(re.escape, marks))})", text)
        return cls(tuple(pieces[::2]), tuple(marks.index(mark) for mark in pieces[1::2]))

    def filled(self, constants: Sequence[str]) -> str:
        found = [self.pieces[0]]
        for number, piece in zip(self.numbers, self.pieces[1:], strict=True):
            found += (constants[number], piece)
        return "".join(found)


@frozen(eq=False)
class _Condition:
    """A conjunct that the legs apply, with marks in it, and how it is said."""

    tree: Expr
    reason: _Text

    def filled(self, marked: Mapping[str, Expr]) -> Expr:
        return _filled(self.tree, marked)


@frozen(eq=False, kw_only=True)
class PlanTemplate:
    """The plan of all statements of one shape, by one catalog and for one output."""

    _catalog: Catalog
    _marks: tuple[str, ...]
    _plan: QueryPlan
    _sql: _Text
    _fragment_sql: _Text
    _merge_sql: _Text | None
    _tables: tuple[TableSpec, ...]
    _split: Split
    _conditions: tuple[_Condition, ...]
    _legs: Select
    _sources: Mapping[str, Source]
    _row_bytes: float
    _limit: int | None  # the number of the constant that is one

    @property
    def output(self) -> pa.Schema:
        """The columns of the answers."""
        return self._plan.output

    def filled(self, constants: Sequence[str]) -> QueryPlan | None:
        """The plan of the statement with these constants; None for two that are equal.

        Equal ones may make expressions equal that are not in the template.
        """
        if len(set(constants)) < len(constants):
            return None
        draft, split = Draft(catalog=self._catalog, sources=dict(self._sources)), self._split
        marked = {mark: _literal(text) for mark, text in zip(self._marks, constants, strict=True)}
        for condition in self._conditions:
            split = pruned(split, condition.filled(marked), draft, partial(_said, condition.reason, constants))
        (fragment,) = self._plan.fragments
        legs = attrs.evolve(self._legs, where=tuple(_filled(tree, marked) for tree in self._legs.where))
        if self._limit is not None and legs.limit is not None:
            legs = attrs.evolve(legs, limit=int(constants[self._limit]))
        rows = rows_of_query(legs, draft)
        rows *= share_of_partitions(split, draft)
        fragment = attrs.evolve(
            fragment,
            sql=self._fragment_sql.filled(constants),
            tables=tuple(fragment_table(table, split, draft) for table in self._tables),
            estimated_bytes=int(rows * self._row_bytes),
        )
        merge = None if self._merge_sql is None else self._merge_sql.filled(constants)
        return attrs.evolve(self._plan, sql=self._sql.filled(constants), fragments=(fragment,), merge_sql=merge)


def marked(shape: Shape) -> str | None:
    """A statement of the shape in which every constant can be told from all else; None for text that has such a one."""
    marks = _marks(shape)
    return None if any(mark.strip("'") in shape.key for mark in marks) else shape.filled(marks)


def plan_template(shape: Shape, catalog: Catalog, output: pa.Schema) -> PlanTemplate | None:
    """What plans of statements of the shape have in common, or None if it is not known that nothing else differs.

    `output` is what the engine says of the statement that `marked` gives.
    """
    text, marks = marked(shape), _marks(shape)
    if text is None or not marks:
        return None
    try:
        found = planned(read(text), catalog, output)
    except (SqlError, UnplannableError, RecursionError):
        return None
    plan, query, draft = found.plan, found.query, found.placer.draft
    if len(plan.fragments) != 1 or plan.broadcasts or plan.notes or not isinstance(query, Select):
        return None
    scans = [source.relation for source in query.sources if isinstance(source.relation, Scan)]
    limit = _limit_of(query, marks)
    if len(scans) < len(query.sources) or not _compares_with(query, marks, limit, draft):
        return None
    place = found.placer.place(query)
    split = _unpruned(query, found.placer)
    if len(place.units) != 1 or place.rest or not isinstance(split, Split):
        return None
    (fragment,) = plan.fragments
    legs = found.fragments.queries[fragment.name]
    if not isinstance(legs, Select):
        return None
    template = PlanTemplate(
        catalog=catalog,
        marks=marks,
        plan=plan,
        sql=_Text.of(plan.sql, marks),
        fragment_sql=_Text.of(fragment.sql, marks),
        merge_sql=None if plan.merge_sql is None else _Text.of(plan.merge_sql, marks),
        tables=tuple(catalog.tables[table.table] for table in fragment.tables),
        split=split,
        conditions=tuple(_Condition(tree, _Text.of(reason_of(tree), marks)) for tree in place.units[0].where),
        legs=legs,
        sources=draft.sources,
        row_bytes=bytes_of_row(legs, draft),
        limit=limit,
    )
    return template if template.filled(marks) == plan else None


def _compares_with(query: Select, marks: Sequence[str], limit: int | None, draft: Draft) -> bool:
    """Whether every mark but that of LIMIT is what a comparison in WHERE has on its right, and is nowhere else."""
    if any(nested_of(expr, draft) for expr in query.expressions()):
        return False
    compared = [
        _written(one) for conjunct in pooled(query) for node in conjunct.walk() for one in _constants_of(node)
    ]
    found = [mark for mark in compared if mark in marks]
    if limit is not None:
        found.append(marks[limit])
    return sorted(found) == sorted(marks)


def _constants_of(node: Expr) -> Iterator[Expr]:
    """What a comparison compares with."""
    if isinstance(node, _COMPARISONS):
        yield node.expression
    elif isinstance(node, exp.Between):
        yield from (node.args["low"], node.args["high"])
    elif isinstance(node, exp.In):
        yield from node.expressions


def _limit_of(query: Select, marks: Sequence[str]) -> int | None:
    """The number of the mark that is the LIMIT; beside OFFSET legs would be told their sum."""
    text = str(query.limit)
    return marks.index(text) if text in marks and not query.offset else None


def _unpruned(query: Select, placer: Placer) -> Placement:
    """Where the joined rows are before a condition rules anything out."""
    sources = (
        attrs.evolve(source, on=_joining(source.on)) if source.join == "inner" else source
        for source in query.sources
    )
    return placer.place(attrs.evolve(query, sources=tuple(sources), where=_joining(query.where))).joined


def _joining(conjuncts: Iterable[Expr]) -> tuple[Expr, ...]:
    return tuple(part for part in conjuncts if equated_columns(part) is not None)


def _filled(tree: Expr, marked: Mapping[str, Expr]) -> Expr:
    return rewritten(tree, lambda node: marked.get(_written(node)))


def _marks(shape: Shape) -> tuple[str, ...]:
    return tuple(
        str(_FIRST_MARK + n)
        if kind == INTEGER
        else f"'mark {_FIRST_MARK + n}.'"
        if kind == TEXT
        else str(_FIRST_LONG_MARK + n)
        for n, kind in enumerate(shape.kinds)
    )


def _literal(text: str) -> Expr:
    return exp.Literal.string(text[1:-1]) if text.startswith("'") else exp.Literal.number(text)


def _written(node: Expr) -> str:
    if not isinstance(node, exp.Literal):
        return ""
    return f"'{node.this}'" if node.is_string else str(node.this)


def _said(text: _Text, constants: Sequence[str], _condition: Expr) -> str:
    return text.filled(constants)
