"""Brings a cluster to an application file, once, whoever does it: a thin shell around `plan` and `standing`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Any

from attrs import Factory, evolve, frozen

from ballista_py.coordinator.app.application import Application, DeclaredDataset, Problem
from ballista_py.coordinator.app.declared import Declarations
from ballista_py.coordinator.app.declared_views import as_dataset, columns_of, with_view
from ballista_py.coordinator.app.plan import ApplicationChange, Plan, plan_of
from ballista_py.coordinator.app.standing import (
    Standing,
    begun,
    completed,
    guard_of,
    objection_of,
    path_of,
    standing_of,
)
from ballista_py.coordinator.tables.definitions import TableMaker
from ballista_py.coordinator.tables.table_definitions import Guard, TableDefinitions
from ballista_py.errors import BallistaError, ConfigError, ObjectExists, ObjectMissing, TryLater
from ballista_py.logs import log_event
from ballista_py.state.documents.documents import AppliedApp, ClusterDocument
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.documents.policies import PoliciesDocument, PolicyShelf

_log = logging.getLogger(__name__)
_MINE: tuple[Standing, ...] = ("new", "unfinished")


@frozen(kw_only=True)
class Applied:
    """What came of one try: where the file stands now, what was changed, and what stands in the way.

    `standing` is that of the file before, or `applied` once all is done, `refused` if nothing was begun because a
    change is refused, `failed` if it was begun and something could not be changed: the next try goes on from there.
    """

    standing: str
    changes: tuple[ApplicationChange, ...] = ()
    problems: tuple[Problem, ...] = ()
    left: tuple[str, ...] = ()
    known: AppliedApp | None = Factory(lambda: None)

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "standing": self.standing,
            "changes": [change.to_json() for change in self.changes],
            "problems": [{"path": problem.path, "problem": problem.text} for problem in self.problems],
            "left": list(self.left),
        }


@frozen(kw_only=True)
class AppApplier:
    """Applies files as the instance `me`. To be used by one thread at a time.

    `told` is called with the tables that were changed, so that executors hear of them soon.
    """

    me: str
    catalog: ObjectState[ClusterDocument]
    tables: TableMaker
    definitions: TableDefinitions
    declarations: Declarations
    policies: PolicyShelf
    told: Callable[[Collection[str]], None] = lambda _tables: None

    def look(self, app: Application) -> tuple[Standing, Plan, ClusterDocument]:
        """Where a file stands, and how it differs from the catalog; nothing is changed."""
        cluster = self.tables.cluster()
        standing = standing_of(app, cluster, self.me)
        return standing, plan_of(app, cluster, self.declarations, drift=standing == "applied"), cluster

    def apply(self, app: Application) -> Applied:
        """Make the changes that the catalog lacks, if the file counts and nobody else is at it.

        A change that failed stops no other; it is tried again by the next call. Raises what reading the catalog
        raises.
        """
        cluster = self.tables.cluster()
        if standing_of(app, cluster, self.me) not in _MINE:
            return self._stands(app, cluster)
        plan = plan_of(app, cluster, self.declarations)
        if plan.refused:
            return Applied(standing="refused", problems=plan.refused, left=plan.left, known=cluster.app)
        try:
            self._update(lambda now: begun(app, now, self.me))
        except (ConfigError, TryLater):
            return self._stands(app, self.tables.cluster())  # another one was quicker
        log_event(_log, "app_begun", app=app.label, changes=len(plan.tables))
        made, problems = self._make(app, plan_of(app, self.tables.cluster(), self.declarations))
        if any(change.dataset for change in made):
            self.told({change.dataset for change in made if change.dataset})
        cluster = self.tables.cluster()
        if standing_of(app, cluster, self.me) not in _MINE or (cluster.app and cluster.app.by != self.me):
            return evolve(self._stands(app, cluster), changes=tuple(made))  # it was taken over, or counts no more
        rest = plan_of(app, cluster, self.declarations)
        problems = problems or list(rest.refused)
        if problems:
            return Applied(standing="failed", changes=tuple(made), problems=tuple(problems), known=cluster.app)
        known = self._update(lambda now: completed(app, now, self.me, rest.agreeing)).app
        log_event(_log, "app_applied", app=app.label, changes=len(made))
        settings = tuple(change for change in plan.changes if change.kind == "settings")
        return Applied(standing="applied", changes=(*made, *settings), left=plan.left, known=known)

    def _stands(self, app: Application, cluster: ClusterDocument) -> Applied:
        """Where a file stands that is not for this instance to apply, and why."""
        standing = standing_of(app, cluster, self.me)
        objection = objection_of(app, cluster, standing)
        problems = (Problem(path_of(standing), objection),) if objection else ()
        return Applied(standing=standing, problems=problems, known=cluster.app)

    def _make(self, app: Application, plan: Plan) -> tuple[list[ApplicationChange], list[Problem]]:
        made: list[ApplicationChange] = []
        problems: list[Problem] = list(plan.refused)
        try:
            self._govern(app)
        except BallistaError as error:  # no table is made that might be open then
            return [], [*problems, Problem("policies", error.message)]
        made += [change for change in plan.changes if change.kind == "policies"]
        datasets = {dataset.name: dataset for dataset in app.datasets}
        for change in plan.tables:
            try:
                self._change(app, change, datasets.get(change.dataset))
            except BallistaError as error:
                problems.append(Problem(app.path_of(change.dataset), error.message))
                log_event(
                    _log, "app_change_failed", logging.WARNING, app=app.label, table=change.dataset,
                    change=change.kind, code=error.code, reason=error,
                )  # fmt: skip
                continue
            made.append(change)
            log_event(_log, "app_change", app=app.label, table=change.dataset, change=change.kind)
        return made, problems

    def _govern(self, app: Application) -> None:
        """Have the policies of the file count."""
        said = app.policies
        if said is None:
            return
        guard_of(app, self.me, [])(self.tables.cluster())
        self.policies.put(
            PoliciesDocument(
                number=0,
                policies=said.policies,
                on=said.on,
                digest=said.digest,
                app=app.name,
                revision=app.revision,
            )
        )

    def _change(self, app: Application, change: ApplicationChange, dataset: DeclaredDataset | None) -> None:
        guard = guard_of(app, self.me, [change.mark])
        guard(self.tables.cluster())  # before a source is read for nothing
        engine = self.declarations.checks.engine
        view = next((one for one in app.views if one.name == change.dataset), None)
        if change.kind == "view" and view is not None:
            declared, mark = view, change.mark

            def with_it(now: ClusterDocument) -> ClusterDocument:
                guard(now)
                return with_view(declared, now, engine, mark)

            self.tables.commit(with_it)
        elif change.kind == "scan" and dataset is not None and dataset.scan is not None:
            self.tables.scan(
                dataset.name,
                dataset.scan,
                replaces=True,
                comment=dataset.description,
                mark=change.mark,
                guard=guard,
            )
        elif change.kind == "drop scan":
            self.tables.drop(change.dataset, change.mark, _same_scan(change, guard))
        elif change.kind == "drop view":
            self.tables.commit(lambda now: _without_view(change, now, guard))
        elif change.kind == "drop":
            self.tables.drop(change.dataset, change.mark, _same_table(change, guard))
        elif change.kind == "alter":
            self._alter(change, guard)
        elif view is not None:
            made = as_dataset(view, engine)
            assert made.source is not None
            self.tables.create(
                view.name,
                None,
                made.partition_by,
                schema=columns_of(view, self.tables.cluster(), engine),
                query=made.source["sql"],
                comment=made.description,
                refresh=made.refresh,
                mark=change.mark,
                guard=guard,
            )
        elif dataset is not None:
            self.tables.create(
                dataset.name,
                dataset.source,
                dataset.partition_by,
                schema=None if dataset.source is not None else self.declarations.schema(dataset),
                distribution=dataset.distribution,
                colocate_with=dataset.colocate_with,
                primary_key=dataset.primary_key,
                checks=dataset.checks,
                file_format=dataset.file_format or "parquet",
                comment=dataset.description,
                refresh=dataset.refresh,
                retention=dataset.retention,
                write_mode=dataset.write_mode,
                write_wait=dataset.write_wait,
                mark=change.mark,
                guard=guard,
            )

    def _alter(self, change: ApplicationChange, guard: Callable[[ClusterDocument], None]) -> None:
        """All actions in one commit: the table is altered as the file says, or not at all."""
        table = self.definitions.newest(change.dataset)
        if table is None:
            raise ConfigError(f"table '{change.dataset}' was dropped meanwhile")
        alter = self.declarations.alteration(change.dataset, change.actions)
        self.definitions.commit(table, alter, change.mark, guard)

    def _update(self, change: Callable[[ClusterDocument], ClusterDocument]) -> ClusterDocument:
        try:
            return self.catalog.update(change).document
        except ObjectMissing:
            try:
                return self.catalog.create(change(ClusterDocument())).document
            except ObjectExists:
                return self.catalog.update(change).document


def _without_view(change: ApplicationChange, cluster: ClusterDocument, guard: Guard) -> ClusterDocument:
    """The catalog without the very view that the application has."""
    guard(cluster)
    found = cluster.views.get(change.dataset)
    if found is None or found.mark != change.folder:
        raise ConfigError(f"view '{change.dataset}' is another one by now: it stays")
    return cluster.without_view(change.dataset, change.mark)


def _same_scan(change: ApplicationChange, guard: Guard) -> Guard:
    """A guard that lets nothing be dropped but the very scanned table that the application has."""

    def same(cluster: ClusterDocument) -> None:
        guard(cluster)
        found = cluster.scanned.get(change.dataset)
        if found is not None and found.mark != change.folder:
            raise ConfigError(f"table '{change.dataset}' is another one by now: it stays")

    return same


def _same_table(change: ApplicationChange, guard: Guard) -> Guard:
    """A guard that lets nothing be dropped but the very table that the application has."""

    def same(cluster: ClusterDocument) -> None:
        guard(cluster)
        found = cluster.tables.get(change.dataset)
        if found is not None and found.folder != change.folder:
            raise ConfigError(f"table '{change.dataset}' is another one by now: it stays")

    return same
