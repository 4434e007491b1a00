"""How a file differs from the catalog: the changes that bring the catalog to it, and what is refused.

Nothing here loses a row: what would, or what cannot be done in place, is refused with what to do. A table that the
file does not name any more is left alone, unless the file says `prune`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import pyarrow as pa
from attrs import Factory, frozen

from ballista_py.coordinator.app.application import Application, DeclaredDataset, Problem
from ballista_py.coordinator.app.checks import in_order
from ballista_py.coordinator.app.declared import Declarations
from ballista_py.coordinator.app.declared_views import as_dataset, expected_with, is_as_said, views_in_order
from ballista_py.coordinator.app.standing import mark_of_change, named_in
from ballista_py.errors import BallistaError, ConfigError
from ballista_py.partitions.alterations import is_wider
from ballista_py.partitions.columns import comment_of, default_of, is_required
from ballista_py.partitions.scanned_table import ScannedTable
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import QUERY, TableSpec, check_same_keys
from ballista_py.sql.parse.alterations import (
    AddColumn,
    Alteration,
    SetComment,
    SetDefault,
    SetFollows,
    SetRequired,
    SetTableOption,
    SetType,
)
from ballista_py.state.documents.documents import ClusterDocument

DROPPED = "end it with DROP MATERIALIZED VIEW, then this file makes it anew"
ANEW = "make a dataset of another name with it, fill that with INSERT … SELECT, and rename it"


@frozen(kw_only=True)
class ApplicationChange:
    """One change: a table is made, altered by all of `actions` at once, or dropped; or `settings` are noted. A `view`
    is made, or given another query, in the place of the one of its name.

    `what` says it in words. `mark` is what the catalog remembers of it. `folder` is that of the table to be dropped,
    or the mark of the view.
    """

    kind: Literal["create", "alter", "drop", "view", "drop view", "scan", "drop scan", "policies", "settings"]
    dataset: str
    what: tuple[str, ...] = ()
    actions: tuple[Alteration, ...] = ()
    mark: str = ""
    folder: str = ""

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {"change": self.kind, "dataset": self.dataset, "what": list(self.what)}


@frozen(kw_only=True)
class Plan:
    """The changes, in the order in which they can be made; what is refused; tables that are left although unnamed.

    `agreeing` are the tables that are as the file says, by name, with their folders.
    """

    changes: tuple[ApplicationChange, ...] = ()
    refused: tuple[Problem, ...] = ()
    left: tuple[str, ...] = ()
    agreeing: Mapping[str, str] = Factory(dict)

    @property
    def tables(self) -> tuple[ApplicationChange, ...]:
        """The changes of tables."""
        return tuple(change for change in self.changes if change.kind not in ("policies", "settings"))


def plan_of(
    app: Application, cluster: ClusterDocument, declarations: Declarations, *, drift: bool = False
) -> Plan:
    """What brings the catalog to the file.

    What was done for a dataset is not done again, and what somebody has made of its table since is left alone: the
    catalog remembers it. With `drift` that is shown nevertheless.
    """
    changes: list[ApplicationChange] = []
    refused: list[Problem] = []
    agreeing: dict[str, str] = {}
    expected = cluster
    for dataset in in_order(app.datasets):
        try:
            if dataset.scan is not None:
                scanned = _planned_scan(dataset, app, cluster, drift, agreeing)
                changes += [] if scanned is None else [scanned]
                expected = expected.with_scanned(ScannedTable(name=dataset.name, scan=dataset.scan))
                continue
            change = _planned(dataset, app, cluster, declarations, drift, (refused, agreeing))
            if change is not None and change.kind == "create":
                expected = _with_declared(dataset, expected, declarations)
            changes += [] if change is None else [change]
        except BallistaError as error:
            refused.append(Problem(app.path_of(dataset.name), error.message))
    _plan_views(app, cluster, expected, declarations, drift, (changes, refused, agreeing))
    pruned, left = _unnamed(app, cluster)
    changes += [change for change in pruned if change.mark not in cluster.definitions]
    changes = [*_policies(app, cluster), *changes, *_settings(app, cluster)]
    return Plan(changes=tuple(changes), refused=tuple(refused), left=left, agreeing=agreeing)


def _planned(
    dataset: DeclaredDataset,
    app: Application,
    cluster: ClusterDocument,
    declarations: Declarations,
    drift: bool,
    found: tuple[list[Problem], dict[str, str]],
) -> ApplicationChange | None:
    """What is to be done for a dataset, if anything; what is refused, and tables that agree, come to what was `found`.

    Raises `ConfigError` and `SqlError`.
    """
    refused, agreeing = found
    mark, now = mark_of_change(app, dataset.name), cluster.tables.get(dataset.name)
    is_done = mark in cluster.definitions and not drift
    if dataset.name in cluster.unreadable:
        raise ConfigError(f"this release cannot read table '{dataset.name}', which is there")
    if now is None:
        return None if is_done else _created(dataset, mark)
    differences = _Differences(dataset, now, cluster, declarations)
    objections, actions = list(differences.refused()), tuple(differences.actions())
    if not actions and not objections:
        agreeing[dataset.name] = now.folder
    elif not is_done:
        if not objections:  # tried, so that nothing is begun that ALTER would refuse
            declarations.alteration(dataset.name, actions)(now)
        path = app.path_of(dataset.name)
        refused += [Problem(f"{path}{where}", text) for where, text in objections]
        return _altered(dataset, actions, mark) if actions else None
    return None


def _planned_scan(
    dataset: DeclaredDataset, app: Application, cluster: ClusterDocument, drift: bool, agreeing: dict[str, str]
) -> ApplicationChange | None:
    """What is to be done for a dataset that is scanned where it lies. Raises `ConfigError` for a name that is taken."""
    name = dataset.name
    if name in cluster.tables or name in cluster.unreadable or name in cluster.views:
        raise ConfigError(f"'{name}' is a table that the cluster keeps, or a view: take another name for the scan")
    mark, now = mark_of_change(app, name), cluster.scanned.get(name)
    if now is not None and (dict(now.scan), now.comment) == (dict(dataset.scan or {}), dataset.description):
        agreeing[name] = now.mark
        return None
    if mark in cluster.definitions and not drift:
        return None
    what = "scanned where it lies" if now is None else "lies elsewhere from now on, or has other words about it"
    return ApplicationChange(kind="scan", dataset=name, what=(what,), mark=mark)


def _plan_views(
    app: Application,
    cluster: ClusterDocument,
    expected: ClusterDocument,
    declarations: Declarations,
    drift: bool,
    found: tuple[list[ApplicationChange], list[Problem], dict[str, str]],
) -> None:
    """Add what is to be done for the views of the file, which come after all tables."""
    changes, refused, agreeing = found
    unsettled = {change.dataset for change in changes if change.kind == "alter"}
    engine = declarations.checks.engine
    for view in views_in_order(app.views, engine):
        mark, now = mark_of_change(app, view.name), cluster.views.get(view.name)
        try:
            if view.keeps_rows:
                dataset = as_dataset(view, engine)
                change = _planned(dataset, app, cluster, declarations, drift, (refused, agreeing))
                if change is not None and change.kind == "create":
                    expected = expected_with(view, app, cluster, expected, engine, unsettled)
                changes += [] if change is None else [change]
            elif is_as_said(view, now, engine):
                assert now is not None
                agreeing[view.name] = now.mark
            elif drift or mark not in cluster.definitions:
                expected = expected_with(view, app, cluster, expected, engine, unsettled)
                what = "with its query" if now is None else "gets another query, or other words about it"
                changes.append(ApplicationChange(kind="view", dataset=view.name, what=(what,), mark=mark))
        except BallistaError as error:
            refused.append(Problem(app.path_of(view.name), error.message))


def _with_declared(
    dataset: DeclaredDataset, expected: ClusterDocument, declarations: Declarations
) -> ClusterDocument:
    """With the table that a dataset will be, as far as that is known before its source is read."""
    mate = dataset.colocate_with
    if dataset.source is not None or (mate is not None and mate not in expected.tables):
        return expected
    return expected.with_table(declarations.table(dataset, expected))


class _Differences:
    """How a dataset differs from the table of its name."""

    def __init__(
        self, dataset: DeclaredDataset, now: TableSpec, cluster: ClusterDocument, declarations: Declarations
    ) -> None:
        self._dataset, self._now, self._cluster, self._declarations = dataset, now, cluster, declarations
        self._managed = dataset.source is None and now.source is None
        self._wanted = declarations.schema(dataset) if self._managed else now.schema

    def refused(self) -> Iterator[tuple[str, str]]:
        """What cannot be done in place, or would lose rows."""
        dataset, now = self._dataset, self._now
        if (dataset.source is None) != (now.source is None):
            if _is_of_query(dataset):
                yield "", f"'{now.name}' is a table: take another name for the view"
                return
            has = "has a source, and this says columns" if now.source else "has columns, and this says a source"
            yield "", f"table '{now.name}' {has}: {ANEW}"
            return
        if dataset.source is not None and not _is_same_source(dataset, now):
            if not _is_of_query(dataset):
                yield ".from", f"table '{now.name}' was made of another source, or with other params: {ANEW}"
            elif now.query is None:
                yield "", f"'{now.name}' is a table: take another name for the view"
            else:
                yield ".sql", f"'{now.name}' was made of another query: {DROPPED}"
        if (dataset.write_mode, dataset.write_wait) != (now.write_mode, now.write_wait):
            shown = f"{now.write_mode} and waits for '{now.write_wait}'"
            yield ".acceleration.write_mode", f"table '{now.name}' was made {shown}: {ANEW}"
        if dataset.distribution != now.distribution:
            yield ".distribution", f"table '{now.name}' is {now.distribution}: {ANEW}"
        elif dataset.distribution == "partitioned":
            yield from self._keys()
        if self._managed:
            yield from self._constraints()
            yield from self._columns()

    def actions(self) -> Iterator[Alteration]:
        """What ALTER TABLE can do, in place."""
        dataset, now = self._dataset, self._now
        if dataset.description != now.comment:
            yield SetComment(name=None, text=dataset.description)
        if (dataset.refresh, dataset.retention) != (now.refresh, now.retention):
            yield SetFollows(refresh=dataset.refresh, retention=dataset.retention)
        if not self._managed:
            return
        if dataset.file_format is not None and dataset.file_format != now.file_format:
            yield SetTableOption(name="file_format", value=dataset.file_format)
        had = {column.name.lower(): column for column in now.schema}
        for column, said in zip(self._wanted, dataset.columns, strict=True):
            old = had.get(column.name.lower())
            if old is None:
                yield AddColumn(
                    name=column.name, kind=said.kind, default=said.default, required=not column.nullable
                )
                if comment_of(column) is not None:
                    yield SetComment(name=column.name, text=comment_of(column))
                continue
            if not self._is_of_type(old, column) and is_wider(old.type, column.type):
                yield SetType(name=old.name, kind=said.kind)
            if default_of(old) != default_of(column):
                yield SetDefault(name=old.name, default=default_of(column))
            if column.nullable and is_required(old) and old.name not in now.primary_key:
                yield SetRequired(name=old.name, required=False)
            if comment_of(old) != comment_of(column):
                yield SetComment(name=old.name, text=comment_of(column))

    def _keys(self) -> Iterator[tuple[str, str]]:
        dataset, now = self._dataset, self._now
        try:
            wanted = PartitionSpec.parse(list(dataset.partition_by), now.schema)
            check_same_keys(now.name, now.spec, wanted)
        except BallistaError as error:
            yield ".acceleration.partition_by", f"{error.message}: {ANEW}"
        mates = {name for name, one in self._cluster.tables.items() if one.group == now.group and name != now.name}
        if dataset.colocate_with is not None and dataset.colocate_with not in mates:
            yield ".colocate_with", f"table '{now.name}' is not co-located with '{dataset.colocate_with}': {ANEW}"
        if dataset.colocate_with is None and now.group in mates:
            yield ".colocate_with", f"table '{now.name}' is co-located with '{now.group}': say so, or {ANEW}"

    def _constraints(self) -> Iterator[tuple[str, str]]:
        dataset, now = self._dataset, self._now
        told = now.by_changes and not dataset.primary_key  # it is that of the source
        if not told and [n.lower() for n in dataset.primary_key] != [n.lower() for n in now.primary_key]:
            has = f"({', '.join(now.primary_key)})" if now.primary_key else "none"
            yield ".acceleration.primary_key", f"the primary key of table '{now.name}' is {has}: {ANEW}"
        if [check.strip() for check in dataset.checks] != [check.strip() for check in now.checks]:
            yield ".checks", f"table '{now.name}' has other checks: {ANEW}"

    def _columns(self) -> Iterator[tuple[str, str]]:
        now = self._now
        wanted = {column.name.lower() for column in self._wanted}
        had = {column.name.lower(): column for column in now.schema}
        for column in now.schema:
            if column.name.lower() not in wanted:
                yield (
                    ".columns",
                    f"table '{now.name}' has a column '{column.name}', whose values would be lost: name it here, or "
                    f'drop it first with ALTER TABLE "{now.name}" DROP COLUMN "{column.name}"',
                )
        for number, column in enumerate(self._wanted):
            old, path = had.get(column.name.lower()), f".columns[{number}]"
            if old is None:
                if not column.nullable and default_of(column) is None:
                    yield (
                        path,
                        f"column '{column.name}' is new and rows that are there would have no value in it: give it a "
                        "default, or nullable: true",
                    )
                continue
            if not self._is_of_type(old, column) and not is_wider(old.type, column.type):
                yield (
                    f"{path}.type",
                    f"column '{old.name}' is {self._declarations.sql_type(old)}, which cannot become "
                    f"{self._declarations.sql_type(column)} in place: add a column, and fill it with UPDATE",
                )
            if not column.nullable and not is_required(old):
                yield (
                    f"{path}.nullable",
                    f'column \'{old.name}\' may be null: ALTER TABLE "{now.name}" ALTER COLUMN "{old.name}" SET NOT '
                    "NULL looks at its rows first; then this file agrees",
                )

    def _is_of_type(self, one: pa.Field, other: pa.Field) -> bool:
        if one.type == other.type:
            return True
        sql_type = self._declarations.sql_type
        return sql_type(one) == sql_type(other)


def _is_same_source(dataset: DeclaredDataset, now: TableSpec) -> bool:
    """Whether the rows come from the same; of a materialized view the query counts, and not whoever made it."""
    assert dataset.source is not None
    if _is_of_query(dataset):
        return now.query == str(dataset.source["sql"])
    return dict(dataset.source) == dict(now.source or {})


def _is_of_query(dataset: DeclaredDataset) -> bool:
    return dataset.source is not None and dataset.source.get("format") == QUERY


def _created(dataset: DeclaredDataset, mark: str) -> ApplicationChange:
    keys = ", ".join(key if isinstance(key, str) else next(iter(key.values())) for key in dataset.partition_by)
    split = f"split by {keys}" if keys else "whole on every executor"
    of = "of its source" if dataset.source is not None else f"with {len(dataset.columns)} column(s)"
    of = "of its query" if _is_of_query(dataset) else of
    mate = f", co-located with '{dataset.colocate_with}'" if dataset.colocate_with else ""
    return ApplicationChange(kind="create", dataset=dataset.name, what=(f"{of}, {split}{mate}",), mark=mark)


def _altered(dataset: DeclaredDataset, actions: tuple[Alteration, ...], mark: str) -> ApplicationChange:
    what = tuple(map(_in_words, actions))
    return ApplicationChange(kind="alter", dataset=dataset.name, what=what, actions=actions, mark=mark)


def _unnamed(app: Application, cluster: ClusterDocument) -> tuple[list[ApplicationChange], tuple[str, ...]]:
    """Tables that earlier revisions have named and this one does not: those that are dropped, and those that stay.

    One that was made anew under the name by somebody else is no table of the application: it stays.
    """
    known = cluster.app.datasets if cluster.app is not None and cluster.app.name == app.name else {}
    named = named_in(app)
    marks = {one.name: one.mark for one in cluster.views.values()}
    marks |= {one.name: one.mark for one in cluster.scanned.values()}
    folders = {**{name: table.folder for name, table in cluster.tables.items()}, **marks}
    gone = {name: folder for name, folder in known.items() if name not in named and name in folders}
    pruned = [name for name, folder in gone.items() if app.prune and folders[name] == folder]
    what = ("with all of its rows: the file does not name it and says prune",)
    return [
        ApplicationChange(
            kind="drop scan" if name in cluster.scanned else "drop view" if name in marks else "drop",
            dataset=name,
            what=("the file does not name it and says prune",) if name in marks else what,
            mark=mark_of_change(app, name),
            folder=gone[name],
        )
        for name in pruned
    ], tuple(name for name in gone if name not in pruned)


def _policies(app: Application, cluster: ClusterDocument) -> list[ApplicationChange]:
    """The change of policies, which comes before all tables: nothing is open for a moment."""
    wanted, known = app.policies, cluster.policies
    if wanted is None or (wanted.digest if wanted.on else "") == ("" if known is None else known.digest):
        return []
    rules = wanted.policies
    counts = f"{len(rules.grants)} grant(s), {len(rules.rows)} filter(s), {len(rules.masks)} mask(s)"
    what = counts if wanted.on else "none any more: everybody may do everything"
    return [ApplicationChange(kind="policies", dataset="", what=(what,))]


def _settings(app: Application, cluster: ClusterDocument) -> list[ApplicationChange]:
    before = dict(cluster.app.settings) if cluster.app is not None else {}
    after = dict(app.settings)
    what = [
        f"{name}: {before.get(name, 'the default')} becomes {after.get(name, 'the default')}"
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    ]
    if not what:
        return []
    return [
        ApplicationChange(
            kind="settings", dataset="", what=(*what, "each scheduler takes them when it starts next")
        )
    ]


def _in_words(action: Alteration) -> str:
    if isinstance(action, AddColumn):
        default = "" if action.default is None else f" default {action.default}"
        return f"add column {action.name} {action.kind}{' not null' if action.required else ''}{default}"
    if isinstance(action, SetType):
        return f"column {action.name} becomes {action.kind}"
    if isinstance(action, SetDefault):
        return f"default of {action.name} becomes {action.default or 'null'}"
    if isinstance(action, SetRequired):
        return f"column {action.name} may be null"
    if isinstance(action, SetTableOption):
        return f"{action.name} becomes {action.value}"
    if isinstance(action, SetFollows):
        return _follows_in_words(action)
    assert isinstance(action, SetComment)
    return f"comment on {'the table' if action.name is None else action.name}"


def _follows_in_words(action: SetFollows) -> str:
    refresh, retention = action.refresh, action.retention
    every = "" if refresh is None else f" every {refresh.every}" if refresh.every else " when it is asked for"
    one = "no refresh" if refresh is None else f"refresh by {refresh.mode}{every}"
    return f"{one}, {'no retention' if retention is None else f'retention every {retention.every}'}"
