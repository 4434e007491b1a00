"""CREATE VIEW, DROP VIEW and COMMENT ON VIEW at a scheduler: each is one conditional write of the catalog.

A view has a name as a table has one, and whoever is first gets it. Its statement is remembered by its mark in the same
commit, so that it does nothing when it is sent again. That no view reads itself is asked of the very catalog that is
replaced, so two statements at once cannot make it so together.
"""

from __future__ import annotations

from hashlib import sha256

import pyarrow as pa
from attrs import evolve, frozen

from ballista_py.coordinator.cluster_view import ClusterView, words_of
from ballista_py.coordinator.queries.service import QueryService
from ballista_py.coordinator.queries.written_views import WrittenViews, cycle_of, depth_of
from ballista_py.coordinator.tables.ddl import MAX_DROPPED, mark_of, marks_of
from ballista_py.coordinator.tables.definitions import TableMaker
from ballista_py.engines.engine import Engine
from ballista_py.errors import ConfigError, SqlError
from ballista_py.partitions.bounds import MAX_COMMENT_CHARS, MAX_NAME_CHARS, require_chars
from ballista_py.partitions.columns import two_alike
from ballista_py.partitions.sql_view import (
    CLIENT_SHARE,
    MAX_ALL_VIEWS_CHARS,
    MAX_VIEW_CHARS,
    MAX_VIEW_COLUMNS,
    MAX_VIEW_DEPTH,
    MAX_VIEWS,
    SqlView,
)
from ballista_py.partitions.table import check_names
from ballista_py.sql.own_words import own_places
from ballista_py.sql.parse.pivots import mentions_pivot, open_pivot
from ballista_py.sql.parse.travels import travels
from ballista_py.sql.parse.view_statements import CommentView, CreateView, DropViews, ViewStatement
from ballista_py.sql.plan import Catalog
from ballista_py.state.documents.documents import ClusterDocument
from ballista_py.work import current_client, require_wanted

_DIGITS = 16


@frozen
class SqlViewDefinitions:
    """Makes and ends views. Thread-safe; raises what `ObjectState` raises."""

    queries: QueryService
    tables: TableMaker
    engine: Engine

    def carry_out(self, change: ViewStatement, token: str) -> int:
        """Do what the statement says; 0, as no row is counted. The same sent again does nothing.

        Raises `ConfigError` for a name that is taken and what has no bounds, `SqlError` for a query that cannot be a
        view, and for a view that is not there; nothing was changed then.
        """
        if self.tables.done(*marks_of(token)) is not None:
            self._shown()
            return 0
        mark = mark_of(token)
        if isinstance(change, CreateView):
            self._create(change, mark)
        elif isinstance(change, DropViews):
            self.tables.commit(lambda cluster: _without(cluster, change, mark))
        else:
            self.tables.commit(lambda cluster: _commented(cluster, change, mark))
        self._shown()
        return 0

    def _shown(self) -> None:
        """Let whoever asks this scheduler next see it."""
        self.queries.views.refresh(())

    def _create(self, change: CreateView, mark: str) -> None:
        cluster = self.tables.cluster()
        if change.if_not_exists and change.view in cluster.views:
            self.tables.note(mark)
            return
        _require_addable(cluster, change)
        made = evolve(self.declared(change), maker=maker_of(current_client()))
        require_wanted()
        self.tables.commit(lambda now: with_declared(now, change, made, mark))

    def declared(self, change: CreateView) -> SqlView:
        """The view with the columns that its query gives now. Raises `SqlError` and `ConfigError` as `carry_out`."""
        require_query(change, self.engine)
        with self.queries.reading(change.query.strip()):
            words = words_of(change.query)
            view = self.queries.views.refresh(words)
            view.require_usable(words)
            return declared_view(change, view, self.queries.inlined.writer)


def view_of_documents(cluster: ClusterDocument) -> ClusterView:
    """The tables and views of a catalog, for whoever plans nothing over them."""
    catalog = Catalog(tables=cluster.tables, maps={})
    return ClusterView(catalog=catalog, members=frozenset(), addresses={}, sql_views=cluster.views)


def require_query(change: CreateView, engine: Engine) -> None:
    """Raise `SqlError` for a query that no view can have, whatever tables there are."""
    sql = change.query.strip()
    if len(sql) > MAX_VIEW_CHARS:
        raise SqlError(
            f"the query of view '{change.view}' has {len(sql):,} characters: {MAX_VIEW_CHARS:,} are the most"
        )
    if mentions_pivot(sql) and open_pivot(sql) is not None:
        raise SqlError(
            f"view '{change.view}' has a PIVOT without IN, whose columns depend on rows: say with IN which they are"
        )
    if engine.parameters(travels(sql)[0]):
        raise SqlError(f"view '{change.view}' has a parameter in its query: a view takes none, write a value")


def declared_view(change: CreateView, view: ClusterView, written: WrittenViews) -> SqlView:
    """The view with the columns that its query gives over the tables and views of now.

    Raises `SqlError` for a query that does not bind over them, with its place, and for columns that a view cannot have.
    """
    require_query(change, written.engine)
    text = written.query_of(change.view, change.query, view)
    with own_places(change.query, text):
        schemas = written.seen(view, text).catalog.schemas
        kinds = written.engine.types(text, schemas)
        schema = written.engine.describe(text, schemas)
    names = _names(change, [name for name, _ in kinds])
    fields = [pa.field(name, field.type) for name, field in zip(names, schema, strict=True)]
    return SqlView(
        name=change.view,
        sql=change.query.strip(),
        schema=pa.schema(fields),
        types=tuple(kind for _, kind in kinds),
        answers=tuple(name for name, _ in kinds),
        reads=change.reads,
    )


def _names(change: CreateView, answers: list[str]) -> list[str]:
    """What the columns of the view are called: as it says, or as its query says."""
    view = change.view
    if change.columns and len(change.columns) != len(answers):
        raise SqlError(f"view '{view}' names {len(change.columns)} columns, and its query gives {len(answers)}")
    names = list(change.columns or answers)
    if len(names) > MAX_VIEW_COLUMNS:
        raise SqlError(f"view '{view}' would have {len(names):,} columns: {MAX_VIEW_COLUMNS:,} are the most")
    if len({name.lower() for name in names}) != len(names):
        raise SqlError(f"view '{view}' would have {two_alike(names)}: name them with AS, or behind its own name")
    for name in names:
        require_chars(name, MAX_NAME_CHARS, f"the name of a column of view '{view}'")
    try:
        check_names(view, names, managed=False)
    except ConfigError as error:
        raise ConfigError(error.message.replace(f"table '{view}'", f"view '{view}'", 1)) from None
    return names


def with_declared(
    cluster: ClusterDocument, change: CreateView, made: SqlView, mark: str | None
) -> ClusterDocument:
    """The catalog with the view. Raises as `SqlViewDefinitions.carry_out`; pure."""
    if mark is not None and mark in cluster.definitions:
        return cluster
    before = cluster.views.get(change.view)
    if change.if_not_exists and before is not None:
        return cluster if mark is None else cluster.noted(mark)
    _require_addable(cluster, change)
    others = [view for name, view in cluster.views.items() if name != change.view]
    if len(others) >= MAX_VIEWS or sum(len(view.sql) for view in (*others, made)) > MAX_ALL_VIEWS_CHARS:
        raise ConfigError(
            f"the cluster has as many views as it can: {MAX_VIEWS:,}, with {MAX_ALL_VIEWS_CHARS:,} characters together"
        )
    own = [view for view in others if made.maker and view.maker == made.maker]
    most, chars = MAX_VIEWS // CLIENT_SHARE, MAX_ALL_VIEWS_CHARS // CLIENT_SHARE
    if len(own) >= most or (own and sum(len(view.sql) for view in (*own, made)) > chars):
        raise ConfigError(
            f"this client has its share of the cluster's views: {most:,}, with {chars:,} characters together; drop "
            "those that nobody reads"
        )
    kept = evolve(made, comment=None if before is None else before.comment)
    return cluster.with_view(kept, mark)


def maker_of(client: str) -> str:
    """What a view says of the client who made it; nothing where clients show no tokens."""
    return sha256(client.encode()).hexdigest()[:_DIGITS] if client else ""


def _require_addable(cluster: ClusterDocument, change: CreateView) -> None:
    """Raise `ConfigError` for a name that is taken, and `SqlError` for a view that would read itself, or too deep."""
    name = change.view
    if name in cluster.tables or name in cluster.unreadable or name in cluster.scanned:
        raise ConfigError(f"'{name}' is a table: take another name for the view")
    if name in cluster.views and not change.replaces:
        raise ConfigError(f"view '{name}' exists already: CREATE OR REPLACE VIEW gives it another query")
    way = cycle_of(name, change.reads, cluster.views)
    if way is not None:
        raise SqlError(f"view '{name}' would read itself: {' reads '.join(way)}")
    if depth_of(name, change.reads, cluster.views) > MAX_VIEW_DEPTH:
        raise SqlError(
            f"view '{name}' would be one too many of views that read one another: {MAX_VIEW_DEPTH} are the most"
        )


def _without(cluster: ClusterDocument, change: DropViews, mark: str) -> ClusterDocument:
    if mark in cluster.definitions:
        return cluster
    if len(change.views) > MAX_DROPPED:
        raise SqlError(f"DROP names {len(change.views):,} views, more than {MAX_DROPPED}: send several")
    for name in change.views:
        if name in cluster.tables and cluster.tables[name].query is not None:
            raise SqlError(f"'{name}' is a materialized view: drop it with DROP MATERIALIZED VIEW")
        if name in cluster.tables or name in cluster.unreadable or name in cluster.scanned:
            raise SqlError(f"'{name}' is a table: drop it with DROP TABLE")
        if name not in cluster.views and not change.if_exists:
            nothing = ": nothing was dropped" if len(change.views) > 1 else ""
            raise SqlError(f"view '{name}' does not exist{nothing}")
    for name in change.views:
        cluster = cluster.without_view(name)
    return cluster.noted(mark)


def _commented(cluster: ClusterDocument, change: CommentView, mark: str) -> ClusterDocument:
    if mark in cluster.definitions:
        return cluster
    found = cluster.views.get(change.view)
    if found is None:
        raise SqlError(f"view '{change.view}' does not exist")
    require_chars(change.text, MAX_COMMENT_CHARS, f"the comment on view '{change.view}'")
    return cluster.with_commented_view(change.view, change.text, mark)
