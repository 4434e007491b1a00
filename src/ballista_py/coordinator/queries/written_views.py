"""The views that a statement reads, written out in its text as subqueries, before anything plans it.

What comes after that sees tables alone: a view is pruned, placed and joined as its query is in its place. The names of
its columns, and their types, are those of its making; where its query gives them no more, the error says which. A table
that is scanned where it lies becomes the snapshot that is meant, by its name, so that whatever plans the text again,
after an error or in a part of it, reads that one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from attrs import define, field, frozen

from ballista_py.coordinator.cluster_view import ClusterView, Lakes, Views, words_of
from ballista_py.engines.engine import Engine
from ballista_py.errors import SqlError
from ballista_py.partitions.scanned_table import AT, ScannedTable
from ballista_py.partitions.sql_view import MAX_VIEW_DEPTH, SqlView
from ballista_py.remembered import Remembered
from ballista_py.runtime import Runtime
from ballista_py.sql.own_words import edited_places, without_position
from ballista_py.sql.parse.edits import Edit, edited
from ballista_py.sql.parse.kind import is_of_view, statement_kind
from ballista_py.sql.parse.parsing import MAX_STATEMENT_BYTES, measure, tokenized
from ballista_py.sql.parse.table_references import TableReference, table_references
from ballista_py.sql.parse.travels import MAY_TRAVEL, Travel, travels

MAX_REMEMBERED, MAX_REMEMBERED_BYTES, LEAST_BYTES = 1_024, 16 << 20, 512
UNSEEN = "__ballista_"  # before what no column of a view is called
AS_MADE = "make it anew with CREATE OR REPLACE VIEW"

T = TypeVar("T")


@frozen
class StatementOfTables:
    """A statement without views: what is to be put where, in the text that was sent, and the text with it."""

    text: str
    edits: tuple[Edit, ...] = ()


@define
class WrittenViews:
    """Writes views out, and remembers them as they are over the tables of now. Thread-safe."""

    engine: Engine
    runtime: Runtime | None = None
    lakes: Lakes | None = None
    _known: Remembered[str] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._known = Remembered(MAX_REMEMBERED, MAX_REMEMBERED_BYTES, self.runtime)

    def written_out(self, statement: str, view: ClusterView) -> StatementOfTables:
        """The statement with the query of each view in the place of its name.

        Raises `SqlError`, which names the view, for one whose query does not give what it gave, for views that read
        views more than `MAX_VIEW_DEPTH` deep, and for what grows beyond the limits of a statement.
        """
        return _Writing(self, view).without_views(statement, ())

    def query_of(self, name: str, sql: str, view: ClusterView) -> str:
        """The query of a view that is to be made, without the views that it reads. Raises as `written_out`."""
        return _Writing(self, view).without_views(sql, (name,)).text

    def shaped(self, one: SqlView, query: str, view: ClusterView) -> str:
        """The query of a view as an item of FROM, held against what it gave when the view was made."""
        return _shaped(one, query, self.engine.types(query, self.seen(view, query).catalog.schemas))

    def seen(self, view: ClusterView, query: str) -> ClusterView:
        """The view with the snapshots that a query without views reads."""
        if self.lakes is None or not view.scanned or AT not in query:
            return view
        return self.lakes.with_snapshots(view, words_of(query), None)

    def snapshot(self, table: ScannedTable, meant: Travel | None) -> str:
        """What is put in the place of a table that is scanned where it lies. Raises what opening it raises."""
        if self.lakes is None:
            raise SqlError(f"table '{table.name}' is scanned where it lies, and this node scans nothing")
        said = (None, None) if meant is None else (meant.version, meant.timestamp)
        return self.lakes.pinned(table, *said)

    def known(self, key: str) -> str | None:
        """What was made of a view over these very tables and views."""
        return self._known.get(key)

    def learn(self, key: str, item: str) -> None:
        """Remember it."""
        self._known.put(key, item, len(key) + len(item) + LEAST_BYTES)


@frozen
class Inlining:
    """Reads the views of statements as those of now. Thread-safe."""

    views: Views
    writer: WrittenViews

    def written_out(self, statement: str) -> StatementOfTables:
        """The statement with the query of each view in the place of its name, as of now.

        Raises `SqlError`, naming the view, for one that cannot be read any more.
        """
        words = words_of(statement)
        known = self.views.current(())
        may_travel = MAY_TRAVEL.search(statement) is not None
        if not (may_travel or known.named_views(words) or known.names_scanned(words)):
            return StatementOfTables(statement)
        return self.writer.written_out(statement, self.views.current(words))

    def run(self, statement: str, run: Callable[[str], T]) -> T:
        """What `run` gives of the statement without views; once more if one that was not known is in it."""
        found = self.written_out(statement)
        try:
            with edited_places(statement, found.edits):
                return run(found.text)
        except SqlError:
            other = self.written_out(statement)
            if other.text == found.text:
                raise
        with edited_places(statement, other.edits):
            return run(other.text)

    def to_try(self, statement: str) -> str:
        """The statement as engines will see it, without its views, if it can be told."""
        try:
            return statement if is_of_view(statement) else self.written_out(statement).text
        except SqlError:
            return statement


@define
class _Writing:
    """One statement on its way: each view is looked at once, however often it is read."""

    of: WrittenViews
    view: ClusterView
    items: dict[str, str] = field(factory=dict)
    pinned: dict[tuple[str, Any], str] = field(factory=dict)

    def without_views(self, text: str, within: tuple[str, ...]) -> StatementOfTables:
        """The text with what each view is in its place; `within` are the views whose queries are around it."""
        sent = text
        meant: tuple[Travel, ...] = ()
        if self.view.scanned or MAY_TRAVEL.search(text):
            text, meant = travels(text)
        references = table_references(tokenized(text))
        snapshots = self._snapshots(references, meant) if self.view.scanned or meant else ()
        found = [one for one in references if one.name in self.view.sql_views]
        if not found and not snapshots:
            return StatementOfTables(sent)
        for one in found:
            self._require_own_tables(one)
        items = {name: self._item(name, within) for name in dict.fromkeys(one.name for one in found)}
        grown = sum(len(items[one.name]) for one in found)
        if grown > MAX_STATEMENT_BYTES:
            raise SqlError(
                f"the views that are read have {grown:,} characters when they are written out, more than "
                f"{MAX_STATEMENT_BYTES:,}: keep the rows of one of them with CREATE TABLE … AS"
            )
        named = statement_kind(text) == "change"  # of which engines read no names of columns behind USING
        edits = (*snapshots, *(_edit(one, items[one.name], named) for one in found))
        made = edited(text, edits)
        _require_measured(text, made)
        return StatementOfTables(made, edits)

    def _snapshots(self, references: Sequence[TableReference], meant: Sequence[Travel]) -> tuple[Edit, ...]:
        """What is put in the place of each table that is scanned where it lies: one snapshot for all references to it
        that mean no other."""
        edits, behind = [], {one.behind: one for one in meant}
        for one in references:
            table, travel = self.view.scanned.get(one.name), behind.pop(one.end, None)
            if table is None:
                if travel is not None:
                    raise SqlError(f"'{one.name}' is no table of which older snapshots can be read")
                continue
            key = (one.name, travel and (travel.version, travel.timestamp))
            if key not in self.pinned:
                self.pinned[key] = self.of.snapshot(table, travel)
            item = _quoted(self.pinned[key]) + ("" if one.has_alias else f" as {_quoted(one.name)}")
            edits.append((one.start, one.end, f"from {item}" if one.form == "whole" else item))
        if behind:
            raise SqlError("a snapshot is named behind what is no table that is scanned where it lies")
        return tuple(edits)

    def _require_own_tables(self, one: TableReference) -> None:
        """Raise `SqlError` where a table of a view would be the query that WITH gives its name to around it."""
        if not one.given:
            return
        read = all_read(self.view.sql_views[one.name].reads, self.view.sql_views)
        taken = min(one.given & (read - self.view.sql_views.keys()), default=None)
        if taken is not None:
            raise SqlError(
                f"view '{one.name}' reads table '{taken}', and WITH gives that name to a query here: "
                "call that otherwise"
            )

    def _item(self, name: str, within: tuple[str, ...]) -> str:
        """The item of FROM that the view is, with its name and those of its columns."""
        known = self.items.get(name)
        if known is not None:
            return known
        way = (*within, name)
        if name in within:
            raise SqlError(f"view '{name}' reads itself: {' reads '.join(way)}", view=name)
        if len(way) > MAX_VIEW_DEPTH:
            said = f"view '{way[0]}' reads views that read views more than {MAX_VIEW_DEPTH} deep"
            raise SqlError(said, view=way[0])
        one = self.view.sql_views[name]
        try:
            read = all_read(one.reads, self.view.sql_views)
            marks = self.view.marks(read)
            if self.view.scanned:
                marks |= {n: self._newest(table) for n, table in self.view.scanned.items() if n in read}
            key = repr((name, one.mark, sorted(marks.items())))
            item = self.of.known(key)
            if item is None:
                item = self.of.shaped(one, self.without_views(one.sql, way).text, self.view)
                self.of.learn(key, item)
        except SqlError as error:
            if (
                within and "view" in error.details
            ):  # the one that is at fault is named, and the one that was asked for
                raise
            told = without_position(error)
            raise SqlError(f"view '{name}' cannot be read: {told.message}", view=name) from None
        self.items[name] = item
        return item

    def _newest(self, table: ScannedTable) -> str:
        key = (table.name, None)
        if key not in self.pinned:
            self.pinned[key] = self.of.snapshot(table, None)
        return self.pinned[key]


def all_read(reads: Sequence[str], views: Mapping[str, SqlView]) -> frozenset[str]:
    """The names of tables and views that are read by what reads these, through views."""
    pending, seen = [*reads], set[str]()
    while pending:
        name = pending.pop()
        if name not in seen:
            seen.add(name)
            pending += views[name].reads if name in views else ()
    return frozenset(seen)


def _require_measured(text: str, made: str) -> None:
    """Raise `SqlError` if the text is too large or too deep with its views, though it is not without them."""
    if len(text) > MAX_STATEMENT_BYTES:
        return  # it grew by the values of its parameters, and has limits of its own
    try:
        measure(made)
    except SqlError as error:
        raise SqlError(f"with the views that it reads written out, {error.message}") from None


def _edit(found: TableReference, item: str, named: bool) -> Edit:
    """What stands in the place of a view; `named` by one name alone, as a subquery around it is."""
    if found.form == "whole":
        return found.start, found.end, f"from {item}"
    name = "" if found.has_alias else f" as {_quoted(found.name)}"
    return found.start, found.end, f"(from {item}\n){name}" if named or found.has_alias else item


def _shaped(one: SqlView, query: str, now: Sequence[tuple[str, str]]) -> str:
    """The query as an item of FROM that has the columns of the view, whatever else the query gives by now."""
    places = _places(one, now)
    labels = [f"{UNSEEN}{number}" for number in range(len(now))]
    for place, name in zip(places, one.schema.names, strict=True):
        labels[place] = name
    item = f"({query}\n) as {_quoted(one.name)}({', '.join(map(_quoted, labels))})"
    if places == list(range(len(now))):
        return item
    columns = ", ".join(_quoted(name) for name in one.schema.names)
    return f"(select {columns} from {item}) as {_quoted(one.name)}"


def _places(one: SqlView, now: Sequence[tuple[str, str]]) -> list[int]:
    """At which places the query gives the columns of the view now: those of the same names, in the same order."""
    left: dict[str, list[int]] = {}
    for place, (name, _) in enumerate(now):
        left.setdefault(name.lower(), []).append(place)
    places = []
    for answer, column, kind in zip(one.answers, one.schema.names, one.types, strict=True):
        found = left.get(answer.lower())
        if not found:
            raise SqlError(f"its query gives no column '{answer}' any more: {AS_MADE}")
        place = found.pop(0)
        if now[place][1] != kind:
            raise SqlError(
                f"its column '{column}' was {kind} when it was made, and its query gives {now[place][1]} now: {AS_MADE}"
            )
        places.append(place)
    return places


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def depth_of(name: str, reads: Sequence[str], views: Mapping[str, SqlView]) -> int:
    """How many views read one another, that of this name counted, if it reads these; one too many for any more."""
    level, depth = {name: tuple(reads)}, 0
    while level and depth <= MAX_VIEW_DEPTH:
        depth += 1
        level = {one: views[one].reads for read in level.values() for one in read if one in views and one != name}
    return depth


class ReadsNames(Protocol):
    """What names the tables and views that it reads."""

    @property
    def reads(self) -> tuple[str, ...]: ...


def cycle_of(name: str, reads: Sequence[str], views: Mapping[str, ReadsNames]) -> tuple[str, ...] | None:
    """The way by which a view of that name that reads these would read itself; None if it would not.

    >>> cycle_of("v", ("t", "v"), {})
    ('v', 'v')
    """
    pending: list[tuple[str, ...]] = [(name, one) for one in reads]
    seen = set[str]()
    while pending:
        *way, last = pending.pop()
        if last == name:
            return (*way, last)
        if last in views and last not in seen:
            seen.add(last)
            pending += [(*way, last, one) for one in views[last].reads]
    return None
