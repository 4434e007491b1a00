"""Statements bound and planned; what was planned last is remembered for as long as its catalog is the newest."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pyarrow as pa
from attrs import define, evolve, field, frozen

from ballista_py.engines.engine import Engine
from ballista_py.planning.query_plan import Catalog, QueryPlan
from ballista_py.planning.sql import mentions_moment, plan_query
from ballista_py.runtime import Runtime

MAX_REMEMBERED = 256
MAX_REMEMBERED_CHARACTERS = 16_384


@frozen(kw_only=True)
class _Known:
    """What one statement means by one catalog, which is told by its identity."""

    catalog: Catalog
    output: pa.Schema
    plan: QueryPlan | None = None


@define
class Plans:
    """Binds and plans, and remembers `MAX_REMEMBERED` statements. Thread-safe.

    The same statement and catalog give the same plan, so a plan that is remembered is the one that would be made.
    """

    engine: Engine
    runtime: Runtime
    _known: OrderedDict[str, _Known] = field(init=False, factory=OrderedDict)
    _lock: Any = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._lock = self.runtime.lock()

    def output(self, statement: str, catalog: Catalog) -> pa.Schema:
        """The columns of the answer, as a single node gives them. Raises `SqlError`."""
        return self._bound(statement, catalog).output

    def plan(self, statement: str, catalog: Catalog, timed: bool = False) -> QueryPlan:
        """How the statement runs; with `timed`, at this moment. Raises `SqlError` and the other planning errors."""
        known = self._bound(statement, catalog)
        if mentions_moment(statement):
            moment_ms = self.runtime.wall_ms() if timed else None
            return plan_query(statement, catalog, known.output, moment_ms=moment_ms)
        if known.plan is not None:
            return known.plan
        plan = plan_query(statement, catalog, known.output)
        self._remember(statement, evolve(known, plan=plan))
        return plan

    def _bound(self, statement: str, catalog: Catalog) -> _Known:
        with self._lock:
            known = self._known.get(statement)
            if known is not None and known.catalog is catalog:
                self._known.move_to_end(statement)
                return known
        known = _Known(catalog=catalog, output=self.engine.describe(statement, catalog.schemas))
        self._remember(statement, known)
        return known

    def _remember(self, statement: str, known: _Known) -> None:
        if len(statement) > MAX_REMEMBERED_CHARACTERS:
            return
        with self._lock:
            self._known[statement] = known
            self._known.move_to_end(statement)
            if len(self._known) > MAX_REMEMBERED:
                self._known.popitem(last=False)
