"""Statements bound and planned; what was planned last is remembered for as long as its catalog is the newest.

So is what statements of one shape have in common: the second one leaves a template, from which the others are planned
without being bound and parsed.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
from attrs import define, evolve, field, frozen

from ballista_py.coordinator.queries.statement_turns import PlanningTurns
from ballista_py.engines.engine import Engine
from ballista_py.errors import SqlError
from ballista_py.figures import UNSEEN, Figures
from ballista_py.memory_budget import MemoryBudget
from ballista_py.partitions.scanned_table import with_own_names
from ballista_py.remembered import Remembered
from ballista_py.runtime import Runtime
from ballista_py.sql.barriers import is_behind_barriers
from ballista_py.sql.bind.now import mentions_moment
from ballista_py.sql.parse.shape import Shape, shapes_of
from ballista_py.sql.plan import Catalog, QueryPlan
from ballista_py.sql.plan_template import PlanTemplate, marked, plan_template
from ballista_py.sql.planner import plan_query
from ballista_py.traces import spanned

MAX_REMEMBERED = 256
MAX_REMEMBERED_CHARACTERS = 16_384
MAX_REMEMBERED_BYTES = 64 << 20
BYTES_PER_CHARACTER = 400  # of a text that is kept as a tree
LEAST_BYTES = 2_048
MAX_CATALOGS = 2  # the newest, and the one without broadcasts of a statement that is planned again
MAX_CLIENTS_CATALOGS = 8  # where clients see otherwise


@frozen(kw_only=True)
class _Known:
    """What one statement means by one catalog, which is told by its identity."""

    catalog: Catalog
    output: pa.Schema
    plan: QueryPlan | None = None


@frozen(kw_only=True)
class _Shared:
    """What statements of one shape share by one catalog: nothing is tried before the second one."""

    catalog: Catalog
    tried: bool = False
    template: PlanTemplate | None = None


@define
class Plans:
    """Binds and plans, and remembers `MAX_REMEMBERED` statements, and shapes of such. Thread-safe.

    The same statement and catalog give the same plan, so a plan that is remembered is the one that would be made, and
    a template gives none but that.
    """

    engine: Engine
    runtime: Runtime
    budget: MemoryBudget | None = None  # of the node
    figures: Figures = UNSEEN
    _known: Remembered[_Known] = field(init=False)
    _shared: Remembered[_Shared] = field(init=False)
    _catalogs: tuple[Catalog, ...] = field(init=False, default=())  # the one used last comes last
    _lock: Any = field(init=False)
    turns: PlanningTurns = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._lock = self.runtime.lock()
        self.turns = PlanningTurns(self.runtime, self.budget)
        self._known = Remembered(MAX_REMEMBERED, MAX_REMEMBERED_BYTES, self.runtime)
        self._shared = Remembered(MAX_REMEMBERED, MAX_REMEMBERED_BYTES, self.runtime)

    def output(self, statement: str, catalog: Catalog) -> pa.Schema:
        """The columns of the answer, as a single node gives them. Raises `SqlError`."""
        with self.turns.turn(statement):
            return self._bound(statement, catalog).output

    def plan(self, statement: str, catalog: Catalog, timed: bool = False) -> QueryPlan:
        """How the statement runs; with `timed`, at this moment. Raises `SqlError` and the other planning errors."""
        with self.turns.turn(statement), spanned("plan"):
            began_ms = self.runtime.monotonic_ms()
            plan, is_new = self._planned(statement, catalog, timed)
            took_ms = self.runtime.monotonic_ms() - began_ms
            self.figures.record("scheduler_planning_duration_ms", took_ms, cached="false" if is_new else "true")
            if catalog.barriers and is_behind_barriers(plan, catalog):
                return evolve(plan, guarded=True, notes=())
            return plan

    def _planned(self, statement: str, catalog: Catalog, timed: bool) -> tuple[QueryPlan, bool]:
        """The plan, and whether it was made now."""
        known = self._bound(statement, catalog)
        if mentions_moment(statement):
            moment_ms = self.runtime.wall_ms() if timed else None
            return plan_query(statement, catalog, known.output, moment_ms=moment_ms), True
        if known.plan is not None:
            return known.plan, False
        plan = plan_query(statement, catalog, known.output)
        self._remember(statement, evolve(known, plan=plan))
        self._learn(statement, plan, catalog)
        return plan, True

    def _bound(self, statement: str, catalog: Catalog) -> _Known:
        with self._lock:
            self._use(catalog)
        remembered = self._known.get(statement)
        if remembered is not None and remembered.catalog is catalog:
            return remembered
        known = self._like_others(statement, catalog) or _Known(
            catalog=catalog, output=self._described(statement, catalog)
        )
        self._remember(statement, known)
        return known

    def _described(self, statement: str, catalog: Catalog) -> pa.Schema:
        try:
            found = self.engine.describe(statement, catalog.schemas)
            return found if not catalog.scanned else with_own_names(found)
        except SqlError as error:
            # Which table was asked for is DuckDB's to say: it stands in its words for one that it does not know.
            for name, reason in catalog.left_out.items():
                if re.match(rf"Table '{re.escape(name)}' does not exist", error.message, re.IGNORECASE):
                    raise SqlError(f"table '{name}' cannot be used: {reason}") from None
            raise

    def _use(self, catalog: Catalog) -> None:
        """Forget what belongs to catalogs that were used longer ago: they may be large."""
        if self._catalogs and self._catalogs[-1] is catalog:
            return
        others = [other for other in self._catalogs if other is not catalog]
        most = MAX_CLIENTS_CATALOGS if any(one.of_client for one in (catalog, *others)) else MAX_CATALOGS
        dropped = others[: 1 - most]
        self._catalogs = (*others[len(dropped) :], catalog)
        if dropped:
            kept = set(map(id, self._catalogs))
            self._known.keep(lambda one: id(one.catalog) in kept)
            self._shared.keep(lambda one: id(one.catalog) in kept)

    def _like_others(self, statement: str, catalog: Catalog) -> _Known | None:
        """What the template of the statement's shape gives, if there is one."""
        if mentions_moment(statement):
            return None
        for shape in shapes_of(statement):
            shared = self._shared.get(shape.key)
            if shared is None or shared.template is None or shared.catalog is not catalog:
                continue
            plan = shared.template.filled(shape.constants)
            return None if plan is None else _Known(catalog=catalog, output=shared.template.output, plan=plan)
        return None

    def _learn(self, statement: str, plan: QueryPlan, catalog: Catalog) -> None:
        """Note the shapes of a statement; at the second of one, make the template of those to come."""
        if len(statement) > MAX_REMEMBERED_CHARACTERS:
            return
        for shape in shapes_of(statement):
            shared = self._shared.get(shape.key)
            if shared is None or shared.catalog is not catalog:
                shared = _Shared(catalog=catalog)
            elif not shared.tried:
                shared = _Shared(catalog=catalog, tried=True, template=self._template(shape, plan, catalog))
            per_character = 4 if shared.template is None else BYTES_PER_CHARACTER
            self._shared.put(shape.key, shared, LEAST_BYTES + per_character * len(statement))
            if shared.template is not None:
                return

    def _template(self, shape: Shape, plan: QueryPlan, catalog: Catalog) -> PlanTemplate | None:
        """A template that gives this very plan for this statement; None where the engine makes a difference."""
        text = marked(shape)
        try:
            output = None if text is None else self.engine.describe(text, catalog.schemas)
        except SqlError:
            return None
        if output is None or not output.equals(plan.output, check_metadata=True):
            return None
        template = plan_template(shape, catalog, output)
        return template if template is not None and template.filled(shape.constants) == plan else None

    def _remember(self, statement: str, known: _Known) -> None:
        if len(statement) > MAX_REMEMBERED_CHARACTERS:
            return
        per_character = 4 if known.plan is None else BYTES_PER_CHARACTER
        self._known.put(statement, known, LEAST_BYTES + per_character * len(statement))
