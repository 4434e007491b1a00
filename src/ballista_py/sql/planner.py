"""`plan_query`: from SQL text to fragments and the merge that puts them together."""

from __future__ import annotations

import attrs
import pyarrow as pa
from attrs import frozen
from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from ballista_py.sql.bind.binder import bind
from ballista_py.sql.bind.now import at_moment, said
from ballista_py.sql.bind.query import Draft, Query, UnplannableError, renamed
from ballista_py.sql.distribute.fragments import (
    Fragments,
    broadcasts_of,
    fragment_table,
    fragment_uses,
    tables_of,
)
from ballista_py.sql.distribute.merge import Merger
from ballista_py.sql.distribute.render import render_merge
from ballista_py.sql.parse.text import Statement, check_faithful, read
from ballista_py.sql.place.placement import MERGED, WHOLE, Merged, Placement
from ballista_py.sql.place.placer import Placer
from ballista_py.sql.place.simplify import simplify
from ballista_py.sql.plan import Catalog, Fragment, QueryPlan


def plan_query(
    sql: str, catalog: Catalog, output: pa.Schema, dialect: str | None = None, moment_ms: int | None = None
) -> QueryPlan:
    """How a query runs over the partitions of `catalog`; the answer is the one that a single node would give.

    `output` is the schema that the engine gives for the statement over empty tables (`Engine.describe`), so names
    and column references are known to be good; an empty schema says that nobody asked the engine. `dialect` is one
    of `dialects.names.DIALECTS`, or the engine's own by default. What is not surely right to compute in a leg is
    computed at the merge; `QueryPlan.notes` say what and why. The same arguments give the same plan everywhere.
    `moment_ms` (since 1970) is what `now()` stands for; without it the merge says so.

    Raises `SqlError`, with `line` and `column` in its details where they are known, for text that does not parse,
    that is not one query, or that names a table the catalog does not have.

    >>> from ballista_py.partitions.map import PartitionMap
    >>> from ballista_py.partitions.spec import PartitionSpec
    >>> from ballista_py.partitions.table import TableSpec
    >>> schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("size", pa.int64())])
    >>> spec = PartitionSpec.parse(["bucket(8, id)"], schema)
    >>> table = TableSpec(name="events", schema=schema, spec=spec)
    >>> pmap = PartitionMap.build("events", spec, spec.static_values())
    >>> catalog = Catalog(tables={"events": table}, maps={"events": pmap})
    >>> plan = plan_query("select max(size) from events where id = 7", catalog, pa.schema([("max", pa.int64())]))
    >>> plan.fragments[0].sql
    'SELECT MAX(events.size) AS max FROM events WHERE events.id = 7'
    >>> plan.fragments[0].tables[0].partitions, plan.merge_sql
    ((1,), 'SELECT MAX(groups.max) AS max FROM f0 AS groups')
    """
    tables = {name: table.schema for name, table in catalog.tables.items()} if dialect else None
    statement = read(sql, dialect, len(output) > 0, tables)
    if moment_ms is not None and (timed := at_moment(statement, catalog, moment_ms)) is not None:
        try:
            plan = _plan(timed, catalog, output)
            return attrs.evolve(plan, moment_ms=moment_ms, notes=(*plan.notes, said(moment_ms)))
        except (UnplannableError, RecursionError):
            pass  # as written, then
    try:
        return _plan(statement, catalog, output)
    except UnplannableError as reason:
        return _everything_at_the_merge(statement, catalog, output, str(reason))
    except RecursionError:
        return _everything_at_the_merge(statement, catalog, output, "deep nesting")


@frozen(eq=False, kw_only=True)
class Planned:
    """A plan, the bound query that it was made from, where that was placed and in what fragments."""

    plan: QueryPlan
    query: Query
    placer: Placer
    fragments: Fragments


def _plan(statement: Statement, catalog: Catalog, output: pa.Schema) -> QueryPlan:
    return planned(statement, catalog, output).plan


def planned(statement: Statement, catalog: Catalog, output: pa.Schema) -> Planned:
    """The plan of a statement by its tree. Raises `UnplannableError` for one that must run as it stands."""
    if statement.tree is None:
        raise UnplannableError("syntax that only the engine knows")
    check_faithful(statement)
    draft = Draft(catalog=catalog)
    query = simplify(bind(statement.tree, draft), draft)
    if len(output) and len(query.names) != len(output):
        raise UnplannableError("outputs that the planner counts differently from the engine")
    if len(output):
        query = renamed(query, tuple(output.names))
    placer, fragments = Placer(draft), Fragments(draft)
    try:
        plan = _placed(statement, query, placer, fragments, output)
    except ValueError as error:  # there are expressions that the parser reads and cannot write
        raise UnplannableError(f"what the parser cannot write: {error}") from error
    return Planned(plan=plan, query=query, placer=placer, fragments=fragments)


def _placed(
    statement: Statement, query: Query, placer: Placer, fragments: Fragments, output: pa.Schema
) -> QueryPlan:
    draft = placer.draft
    merger = Merger(draft, placer, fragments)
    if not any(True for _ in tables_of(query, draft)):
        # A table in a nested EXISTS may be named that no row depends on.
        text = render_merge(query, draft) if _named_tables(statement, draft.catalog) else statement.text
        return QueryPlan(sql=statement.text, output=output, fragments=(), merge_sql=text)
    whole = merger.runs_on_one_leg(query)
    if whole or not isinstance(placer.placement(query), Merged):
        fragments.add(query, _placement(query, placer, whole))
        return _finished(statement, output, draft, fragments, None)
    merge = merger.merged(query, final=True)
    plan = _finished(statement, output, draft, fragments, merge)
    found = tuple(merger.broadcaster.found)
    return (
        attrs.evolve(plan, broadcasts=found, merge_uses=broadcasts_of(merge, draft, shared=True))
        if found
        else plan
    )


def _placement(query: Query, placer: Placer, whole: bool) -> Placement:
    return WHOLE if whole else placer.placement(query)


def _finished(
    statement: Statement, output: pa.Schema, draft: Draft, fragments: Fragments, merge: Query | None
) -> QueryPlan:
    if merge is not None and len(output):
        merge = renamed(merge, tuple(output.names))
    return QueryPlan(
        sql=statement.text,
        output=output,
        fragments=fragments.fragments(fragment_uses(merge, draft) if merge is not None else {}),
        merge_sql=None if merge is None else render_merge(merge, draft),
        notes=tuple(draft.notes),
    )


def _all_of(table: str) -> str:
    return exp.select("*").from_(exp.to_table(table)).sql("duckdb")


def _named_tables(statement: Statement, catalog: Catalog) -> list[str]:
    """The tables that the text could mean."""
    words = {
        token.text.lower()
        for token in statement.tokens
        if token.token_type in (TokenType.VAR, TokenType.IDENTIFIER) or token.text.lower() in catalog.tables
    }
    return sorted(words & catalog.tables.keys())


def _everything_at_the_merge(statement: Statement, catalog: Catalog, output: pa.Schema, reason: str) -> QueryPlan:
    """Gather every table that the text could mean and run it as it stands, over relations of the tables' names."""
    fragments = []
    for name in _named_tables(statement, catalog):
        table = fragment_table(catalog.tables[name], MERGED, Draft(catalog=catalog))
        weight = int(catalog.total_rows(name)) * 16 * len(catalog.tables[name].schema)
        fragments.append(
            Fragment(name=name, sql=_all_of(name), tables=(table,), reused=True, estimated_bytes=weight)
        )
    return QueryPlan(
        sql=statement.text,
        output=output,
        fragments=tuple(fragments),
        merge_sql=statement.text,
        notes=(f"everything is computed at the merge, from the text as it stands: {reason}",),
    )
