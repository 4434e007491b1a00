"""What a scheduler answers to Agents: messages to read jobs and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any, Protocol

import pyarrow as pa
from attrs import define, frozen

from ballista_py.coordinator.queries.service import QueryService
from ballista_py.coordinator.reads.division import RestWriter
from ballista_py.coordinator.reads.places import TablePlaces
from ballista_py.coordinator.reads.planning import PartPlan
from ballista_py.coordinator.reads.service import PlacedPart, PlannedRead, ReadHints
from ballista_py.errors import InvalidData, SqlError, Unsupported, UnsupportedExpression
from ballista_py.partitions.columns import plain
from ballista_py.sql.parse.kind import engine_sql
from ballista_py.sql.parts import is_row_by_row, require_condition
from ballista_py.transport.table_read.messages import pb


class ReadJobs(Protocol):
    """What begins read jobs and knows them: `TableReads` of a cluster, or `PlainReads` of a folder."""

    @property
    def queries(self) -> QueryService: ...
    def begin(
        self,
        statement: str,
        hints: ReadHints,
        client: str,
        *,
        one_instant: bool = True,
        writer: RestWriter | None = None,
    ) -> PlannedRead: ...
    def described(self, statement: str) -> pa.Schema: ...
    def renew(self, read_id: str, client: str) -> int: ...
    def located(self, read_id: str, numbers: Sequence[int], client: str) -> tuple[PlacedPart, ...]: ...
    def close(self, read_id: str, client: str) -> None: ...
    def tick(self) -> int: ...


@define
class ReadAnswers:
    """A `Coordinator` over read jobs. Without `places` nothing is known of changes."""

    reads: ReadJobs
    places: TablePlaces | None = None

    def plan(self, plan: Any, client: str) -> Any:
        """Begin the read job of a `Plan`. Raises as `TableReads.begin`."""
        what, writer = plan.WhichOneof("what"), None
        one_instant = plan.consistency == pb.CONSISTENCY_SNAPSHOT
        if what == "place":
            return self._place(plan, client, one_instant=one_instant)
        if what == "between":
            asked, lease_ms = plan.between, plan.hints.lease_ms
            return _slices(*self._changes().between(asked.since, asked.until, client, lease_ms=lease_ms))
        if what == "substrait":
            text, dialect = self._read(plan.substrait), None
            writer = SubstraitRest(plan.substrait)
        else:
            text, dialect = _statement(plan)
        queries = self.reads.queries
        with queries.reading(text, dialect=dialect):
            text = engine_sql(text) if dialect is None else queries.engine_sql(text, dialect)
        if plan.schema_only:
            return pb.Slices(schema=_bytes(self.reads.described(text)))
        hints = ReadHints(
            target_bytes=plan.hints.target_bytes,
            max_partitions=plan.hints.max_partitions,
            prefer_client_processing=plan.hints.prefer_client_processing,
            lease_ms=plan.hints.lease_ms,
        )
        return _slices(self.reads.begin(text, hints, client, one_instant=one_instant, writer=writer))

    def _place(self, plan: Any, client: str, *, one_instant: bool) -> Any:
        asked, lease_ms = plan.place, plan.hints.lease_ms
        found = self._changes().begin(
            asked.table, client, lease_ms=lease_ms, unless=asked.unless, one_instant=one_instant
        )
        return pb.Slices(
            read_id=found.read_id, lease_ms=found.lease_ms, schema=_bytes(found.columns), mark=found.mark
        )

    def _changes(self) -> TablePlaces:
        if self.places is None:
            raise Unsupported("plain files have no history: read the table, not its changes")
        return self.places

    def _read(self, data: bytes) -> str:
        """The plan of another engine as SQL. Raises `UnsupportedExpression`, `InvalidData` and `MissingExtra`."""
        from ballista_py.sql.substrait.reading import read_plan, table_of

        views = self.reads.queries.views
        schemas = views.current(()).catalog.schemas
        if table_of(data) not in schemas:
            schemas = views.refresh(()).catalog.schemas
        return read_plan(data, schemas).sql

    def renew(self, renew: Any, client: str) -> Any:
        """Keep the files of a job on. Raises `SnapshotGone`."""
        return pb.Renewed(lease_ms=self.reads.renew(renew.read_id, client))

    def locate(self, locate: Any, client: str) -> Any:
        """Where partitions are served by now. Raises `SnapshotGone`."""
        return pb.Located(partitions=_partitions(self.reads.located(locate.read_id, locate.partitions, client)))

    def close(self, close: Any, client: str) -> Any:
        """End a job."""
        self.reads.close(close.read_id, client)
        return pb.Closed()


@frozen
class SubstraitRest:
    """Says what is left of a plan of Substrait in Substrait."""

    plan: bytes

    def rest_of(self, plan: PartPlan, given: pa.Schema) -> bytes | None:
        """See `RestWriter`."""
        from ballista_py.sql.substrait.writing import write_plan

        try:
            return write_plan(plan.rest or "", {plan.relation: given})
        except UnsupportedExpression:
            return None

    def all_of(self, columns: Sequence[str]) -> bytes:
        """See `RestWriter`."""
        from ballista_py.sql.substrait.narrowing import with_columns

        return with_columns(self.plan, columns)


def _statement(plan: Any) -> tuple[str, str | None]:
    """The query of a `Plan`, and its dialect. Raises `InvalidData` and `SqlError`."""
    what = plan.WhichOneof("what")
    if what == "sql":
        if not plan.sql.strip():
            raise SqlError("the statement is empty")
        return plan.sql, plan.dialect or None
    if what == "scan":
        return scan_sql(plan.scan.table, plan.scan.columns, plan.scan.filter), None
    raise InvalidData("a Plan says what is to be read: a query in SQL, or a scan of a table")


def scan_sql(table: str, columns: Iterable[str], condition: str) -> str:
    """The query that reads these columns (none: all) of the rows of a table for which a condition holds.

    Raises `SqlError` for a text that is more than a condition.

    >>> scan_sql("orders", ["id", "a b"], "id > 3")
    'SELECT "id", "a b" FROM "orders" WHERE (id > 3\\n)'
    """
    chosen = ", ".join(map(_quoted, columns)) or "*"
    if condition.strip():
        require_condition(condition)
    where = f" WHERE ({condition}\n)" if condition.strip() else ""  # it may end in a comment
    return f"SELECT {chosen} FROM {_quoted(table)}{where}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _slices(read: PlannedRead, former: Sequence[int] = ()) -> Any:
    plan, rest = read.plan, None
    if plan.rest is not None:
        rest = pb.Remainder(sql=plan.rest, relation=plan.relation, substrait=read.rest)
    one = pb.Slice(
        plan=plan.sql,
        schema=_bytes(read.given),
        remainder=rest,
        partitions=_partitions(read.parts, former),
        relation=plan.table,
        base_schema=_bytes(read.base),
        passes_rows=plan.passes_rows and read.base.types == read.given.types,
        row_by_row=is_row_by_row(plan.sql),
    )
    return pb.Slices(read_id=read.read_id, lease_ms=read.lease_ms, schema=_bytes(read.output), slices=[one])


def _partitions(parts: Iterable[PlacedPart], former: Sequence[int] = ()) -> list[Any]:
    return [
        pb.Partition(
            number=part.number,
            rows=part.rows,
            bytes=part.data_bytes,
            sections=part.sections,
            locations=[
                pb.Location(
                    uri=uri, hints=pb.ServingHints(priority=priority, behaviour=_behaviour(part), load=load)
                )
                for priority, uri, load in zip(
                    part.priorities or range(len(part.locations)),
                    part.locations,
                    part.loads or (0,) * len(part.locations),
                    strict=True,
                )
            ],
            ticket=part.ticket,
            former=went,
            section_rows=part.section_rows,
        )
        for part, went in zip(parts, former or repeat(0), strict=False)
    ]


def _behaviour(part: PlacedPart) -> Any:
    return pb.BEHAVIOUR_DYNAMIC if part.processed else pb.BEHAVIOUR_ALWAYS_REFUSE


def _bytes(schema: pa.Schema) -> bytes:
    return bytes(plain(schema).serialize().to_pybytes())
