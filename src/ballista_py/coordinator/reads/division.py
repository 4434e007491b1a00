"""What of a query is done at each part of a read job, and what is left, also in the words of whoever asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from ballista_py.coordinator.cluster_view import ClusterView, words_of
from ballista_py.coordinator.queries.service import QueryService
from ballista_py.coordinator.reads.planning import PartPlan, part_plan
from ballista_py.sql.plan import QueryPlan


class RestWriter(Protocol):
    """Says what is left of a query in the words of whoever asked."""

    def rest_of(self, plan: PartPlan, given: pa.Schema) -> bytes | None:
        """What is left, over rows of these columns; None where it cannot be said."""
        ...

    def all_of(self, columns: Sequence[str]) -> bytes:
        """All that was asked for, over rows with these columns of the table."""
        ...


def divided(
    queries: QueryService,
    text: str,
    plan: QueryPlan,
    view: ClusterView,
    writer: RestWriter | None,
    *,
    little: bool,
) -> tuple[PartPlan, pa.Schema, bytes]:
    """What is done for each part, the columns of what that gives, and what is left in the words of the `writer`.

    With `little` parts give rows and columns alone. So they do, too, where the writer cannot say what would be left.
    """
    named = words_of(text)
    tables = [name for name in view.catalog.tables if name.lower() in named]
    schemas = view.catalog.schemas

    def given_by(made: PartPlan) -> pa.Schema:
        return queries.engine.describe(made.sql, {made.table: schemas[made.table]})

    made = part_plan(plan, view.catalog, tables, little=little)
    given = given_by(made)
    if writer is None or made.rest is None:
        return made, given, b""
    if made.relation != made.table and (rest := writer.rest_of(made, given)) is not None:
        return made, given, rest
    made = part_plan(plan, view.catalog, tables, little=True)
    return made, given_by(made), writer.all_of(made.columns)
