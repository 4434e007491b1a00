"""The views of a file: read as CREATE VIEW reads them, held against those of the catalog, made one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from ballista_py.coordinator.app.application import Application, DeclaredDataset, DeclaredView, Problem
from ballista_py.coordinator.queries.written_views import WrittenViews, cycle_of
from ballista_py.coordinator.tables.declarations import declare_table
from ballista_py.coordinator.tables.materialized_views import BY_ITSELF, query_of, require_other_reads
from ballista_py.coordinator.tables.sql_views import declared_view, view_of_documents, with_declared
from ballista_py.engines.engine import Engine
from ballista_py.errors import BallistaError, ConfigError, SqlError
from ballista_py.partitions.sql_view import SqlView
from ballista_py.partitions.table import QUERY
from ballista_py.sql.column_types import require_kept_answer
from ballista_py.sql.own_words import without_position
from ballista_py.sql.parse.changes import quoted, read_change
from ballista_py.sql.parse.creates import CreateTable
from ballista_py.sql.parse.view_statements import CreateView
from ballista_py.state.documents.documents import ClusterDocument


def read_view(view: DeclaredView, engine: Engine) -> CreateView:
    """The CREATE VIEW that makes it. Raises `SqlError` for a text that is no single query."""
    text = f"CREATE OR REPLACE VIEW {quoted(view.name)} AS\n{view.sql.strip()}"
    try:
        engine.require_change(text)
        made = read_change(text)
    except SqlError as error:  # its place is one in a text that nobody wrote
        raise without_position(error) from None
    if not isinstance(made, CreateView):
        raise SqlError("it is no query")
    return made


def is_as_said(view: DeclaredView, now: SqlView | None, engine: Engine) -> bool:
    """Whether the catalog has the view as the file says it."""
    if now is None or now.comment != view.description:
        return False
    made = read_view(view, engine)
    return now.sql == made.query.strip() and tuple(now.schema.names) == now.answers


def as_dataset(view: DeclaredView, engine: Engine) -> DeclaredDataset:
    """The table that a materialized view is. Raises what CREATE MATERIALIZED VIEW raises of its query."""
    query = read_view(view, engine).query
    change = CreateTable(
        table=view.name,
        columns=None,
        declaration="",
        partition_by=tuple(map(str, view.partition_by)),
        query=query,
        refresh=view.refresh,
        kept_up=True,
    )
    return DeclaredDataset(
        name=view.name,
        source={"format": QUERY, "sql": query_of(change, engine)},
        partition_by=view.partition_by,
        description=view.description,
        refresh=view.refresh or BY_ITSELF,
    )


def columns_of(view: DeclaredView, cluster: ClusterDocument, engine: Engine) -> pa.Schema:
    """The columns of a materialized view over the tables and views of a catalog.

    Raises `SqlError` for a query that does not bind over them, or gives what a table does not keep.
    """
    seen = view_of_documents(cluster)
    try:
        made = declared_view(read_view(view, engine), seen, WrittenViews(engine))
    except SqlError as error:
        raise without_position(error) from None
    for name, kind in zip(made.schema.names, made.types, strict=True):
        require_kept_answer(view.name, name, kind)
    require_other_reads(view.name, made.sql, seen)
    return made.schema


def with_rows(view: DeclaredView, cluster: ClusterDocument, engine: Engine) -> ClusterDocument:
    """The catalog with the table that a materialized view is. Raises what `TableMaker.create` raises of it."""
    dataset = as_dataset(view, engine)
    table = declare_table(
        cluster,
        view.name,
        columns_of(view, cluster, engine),
        dataset.partition_by,
        source=dataset.source,
        comment=dataset.description,
        refresh=dataset.refresh,
    )
    return cluster.with_table(table)


def with_view(
    view: DeclaredView, cluster: ClusterDocument, engine: Engine, mark: str | None = None
) -> ClusterDocument:
    """The catalog with the view. Raises what CREATE OR REPLACE VIEW raises."""
    if view.keeps_rows:
        return with_rows(view, cluster, engine)
    change = read_view(view, engine)
    try:
        made = declared_view(change, view_of_documents(cluster), WrittenViews(engine))
    except SqlError as error:
        raise without_position(error) from None
    done = with_declared(cluster, change, made, None).with_commented_view(view.name, view.description)
    return done if mark is None else done.noted(mark)


def views_in_order(views: Sequence[DeclaredView], engine: Engine) -> list[DeclaredView]:
    """The views, each after those that it reads; those of a circle, and those that cannot be read, last."""
    reads: dict[str, frozenset[str]] = {}
    for view in views:
        try:
            reads[view.name] = frozenset(read_view(view, engine).reads)
        except BallistaError:
            reads[view.name] = frozenset((view.name,))
    placed: list[DeclaredView] = []
    waiting = list(views)
    while waiting:
        names = {view.name for view in waiting}
        ready = [view for view in waiting if not reads[view.name] & names] or waiting
        placed += ready
        waiting = [view for view in waiting if view not in ready]
    return placed


def view_problems(app: Application, catalog: ClusterDocument, engine: Engine) -> list[Problem]:
    """What an engine finds wrong with views, and which would read themselves.

    A view that reads nothing but tables of the `catalog`, and views that do so, is made over them; of any other the
    text alone is looked at, since the columns of sources, and tables that a file does not name, are not known here.
    """
    found = [*_problems(app, engine)]
    wrong = {problem.path for problem in found}
    for view in views_in_order(app.views, engine):
        path = f"{app.path_of(view.name)}.sql"
        if path in wrong or not set(read_view(view, engine).reads) <= {*catalog.tables, *catalog.views}:
            continue
        try:
            catalog = with_view(view, catalog, engine)
        except BallistaError as error:
            found.append(Problem(path, error.message))
    return found


def _problems(app: Application, engine: Engine) -> Iterator[Problem]:
    made: dict[str, CreateView] = {}
    for number, view in enumerate(app.views):
        try:
            made[view.name] = read_view(view, engine)
        except BallistaError as error:
            yield Problem(f"views[{number}].sql", error.message)
    for number, view in enumerate(app.views):
        way = cycle_of(view.name, made[view.name].reads, made) if view.name in made else None
        if way is not None:
            yield Problem(f"views[{number}].sql", f"view '{view.name}' would read itself: {' reads '.join(way)}")


def expected_with(
    view: DeclaredView,
    app: Application,
    cluster: ClusterDocument,
    expected: ClusterDocument,
    engine: Engine,
    unsettled: set[str],
) -> ClusterDocument:
    """The catalog that is expected with the view, as far as that is known before its tables are made.

    What reads one of the `unsettled` tables and views is one of them: its columns are known once those are altered.
    Raises `ConfigError` and `SqlError` for a view that cannot be made, also then.
    """
    change = read_view(view, engine)
    coming = {dataset.name for dataset in app.datasets} | {one.name for one in app.views}
    there = {*expected.tables, *expected.views, *expected.scanned}
    scanned = sorted(set(change.reads) & expected.scanned.keys())
    if scanned:
        raise SqlError(
            f"view '{view.name}' reads '{scanned[0]}', which is scanned where it lies: make it with CREATE VIEW, once "
            "the file is applied"
        )
    if view.keeps_rows and view.name in cluster.views:
        raise ConfigError(f"'{view.name}' is a view without rows: end it with DROP VIEW, then this file makes it")
    if (view.name in cluster.tables and not view.keeps_rows) or view.name in cluster.unreadable:
        raise ConfigError(f"'{view.name}' is a table: take another name for the view")
    others = {one.name: read_view(one, engine) for one in app.views if one.name != view.name}
    way = cycle_of(view.name, change.reads, {**expected.views, **others})
    if way is not None:
        raise SqlError(f"view '{view.name}' would read itself: {' reads '.join(way)}")
    unknown = sorted(set(change.reads) - there - coming)
    if unknown:
        raise SqlError(f"view '{view.name}' reads '{unknown[0]}', which is no table, no view and no dataset")
    if not set(change.reads) <= there - unsettled:
        unsettled.add(view.name)
        return expected
    return with_view(view, expected, engine)
