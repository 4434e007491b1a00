"""What a client has to be let do for each kind of change; pure.

A change of a table of which he does not see all is refused: what it would do, or fail over, tells of what is hidden.
What stands in a definition runs for others, too, so what keeps rows of others (a materialized view, and whatever such
a one reads) is made by operators.
"""

from __future__ import annotations

from ballista_py.coordinator.cluster_view import ClusterView
from ballista_py.coordinator.queries.written_views import all_read
from ballista_py.partitions.policies import Rights
from ballista_py.sql.parse.alterations import AlterTable, RenameTable
from ballista_py.sql.parse.changes import Change, DropTable, General, Local, TruncateTable
from ballista_py.sql.parse.creates import CreateLike, CreateTable
from ballista_py.sql.parse.external_tables import CreateScanned
from ballista_py.sql.parse.inserts import Insert
from ballista_py.sql.parse.materialized_views import RefreshView
from ballista_py.sql.parse.parsing import tokenized
from ballista_py.sql.parse.table_references import read_names
from ballista_py.sql.parse.view_statements import CommentView, CreateView, DropViews


def require_change(rights: Rights, change: Change | None, view: ClusterView) -> None:
    """Raise `SqlError` unless the client may do all that the change does. `view` is the whole catalog."""
    if isinstance(change, Insert):
        _require_insert(rights, change)
    elif isinstance(change, Local | General):
        for action in ("select", "change"):
            rights.require(action, change.table)
        rights.require_whole(change.table, "a change of rows")
    elif isinstance(change, TruncateTable):
        rights.require("change", change.table)
        rights.require_whole(change.table, "TRUNCATE")
    elif isinstance(change, RefreshView):
        rights.require_operator("REFRESH MATERIALIZED VIEW")
    elif change is not None:
        _require_definition(rights, change, view)


def require_rows(rights: Rights, name: str, mode: str, *, exists: bool) -> None:
    """Raise `SqlError` unless the client may have a table take rows by the `mode` of an ingest or a write."""
    if not exists and mode in ("create", "create_append", "replace"):
        rights.require("create", name)
        return
    rights.require("insert", name)
    if mode not in ("append", "create", "create_append"):
        rights.require("change", name)
    if mode == "replace":
        rights.require("create", name)
    rights.require_whole(name, "a write of rows")


def kept_up_by(view: ClusterView) -> frozenset[str]:
    """The names of tables and views whose rows materialized views have, through whatever views they read them."""
    queries = [table.query for table in view.catalog.tables.values() if table.query is not None]
    read = {name for query in queries for name in read_names(tokenized(query))}
    return all_read(sorted(read), view.sql_views)


def _require_insert(rights: Rights, change: Insert) -> None:
    rights.require("insert", change.table)
    if change.overwrites or change.on_key or change.sets:
        rights.require("change", change.table)
    if change.on_key or change.returning:
        rights.require("select", change.table)
    rights.require_whole(change.table, "INSERT")


def _require_definition(rights: Rights, change: Change, view: ClusterView) -> None:
    names = _defined(change)
    for name in names:
        rights.require("create", name)
        rights.require_whole(name, "a definition")
    if kept_up_by(view).intersection(names):
        rights.require_operator("the definition of what a materialized view reads")
    if isinstance(change, CreateTable) and change.kept_up:
        rights.require_operator("CREATE MATERIALIZED VIEW")
    if isinstance(change, CreateLike):
        for piece in change.pieces:
            rights.require("select", piece.source)
    if (
        isinstance(change, CreateTable | CreateLike | CreateScanned)
        and change.replaces
        and _is_there(change.table, view)
    ):
        rights.require("change", change.table)
    if isinstance(change, AlterTable) and isinstance(change.action, RenameTable):
        rights.require("select", change.table)  # under the other name it may be granted


def _is_there(table: str, view: ClusterView) -> bool:
    return table in view.catalog.tables or table in view.scanned


def _defined(change: Change) -> tuple[str, ...]:
    """The names that stand for something else, or for nothing, afterwards."""
    if isinstance(change, AlterTable):
        to = change.action.to if isinstance(change.action, RenameTable) else change.table
        return change.table, to.lower()
    if isinstance(change, DropTable):
        return change.tables
    if isinstance(change, DropViews):
        return change.views
    if isinstance(change, CreateView | CommentView):
        return (change.view,)
    return (change.table,) if isinstance(change, CreateTable | CreateLike | CreateScanned) else ()
