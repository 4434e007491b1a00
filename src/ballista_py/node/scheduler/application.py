"""A scheduler's application file: applied if it counts, and where it stands for people."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Any

from ballista_py.coordinator.app.application import SHOWN_DIGITS, Application, Problem
from ballista_py.coordinator.app.applying import AppApplier, Applied
from ballista_py.coordinator.app.declared import Declarations
from ballista_py.coordinator.app.standing import objection_of, path_of, standing_of
from ballista_py.coordinator.tables.definitions import TableMaker
from ballista_py.coordinator.tables.table_definitions import TableDefinitions
from ballista_py.coordinator.writes.checks import RowChecks
from ballista_py.engines.engine import Engine
from ballista_py.logs import log_event
from ballista_py.node.app_file import AppFile, Placed
from ballista_py.runtime import Runtime
from ballista_py.state.documents.documents import CLUSTER_KEY, ClusterDocument, SchedulerInfo
from ballista_py.state.documents.object_state import SHARED, ObjectState
from ballista_py.state.documents.policies import PolicyShelf
from ballista_py.state.members.membership import Membership
from ballista_py.state.stores.store import ConditionalStore

_log = logging.getLogger(__name__)
NAME, REVISION, DIGEST = "app", "app_revision", "app_digest"  # labels of a scheduler
_QUIET = ("new", "unfinished", "elsewhere", "applied")


def labels_of(app: Application | None) -> dict[str, str]:
    """What a scheduler tells the others about its file, as a member."""
    return {} if app is None else {NAME: app.name, REVISION: str(app.revision), DIGEST: app.digest}


class SchedulerApp:
    """Applies the file of this scheduler, by `tick`, until all of it is done; each tick reads the catalog once.

    A scheduler without a file applies nothing and shows what is applied. `told` tells executors of changed tables.
    """

    def __init__(
        self,
        file: AppFile | None,
        store: ConditionalStore,
        runtime: Runtime,
        engine: Engine,
        tables: TableMaker,
        membership: Membership,
        told: Callable[[Collection[str]], None],
    ) -> None:
        self._file = file
        self._app = None if file is None else file.require()
        self._store = store
        self._runtime = runtime
        self._tables = tables
        self._membership = membership
        self._told = told
        self._declarations = Declarations(RowChecks(engine))
        self._last: Applied | None = None
        self._said: tuple[str, ...] = ()

    def tick(self) -> None:
        """Apply the file, if it counts and nobody else is at it; say what became of it when that changes."""
        if self._app is None or not self._membership.valid():
            return
        try:
            self._last = self._applier().apply(self._app)
        finally:
            self._tables.close()  # a Spark that no table needs any more
        self._say(self._last)

    def shown(self) -> dict[str, Any]:
        """The files of all schedulers, what is applied, and where this one's file stands now, for `/status`."""
        cluster = self._tables.cluster()
        applied = cluster.app
        mine: dict[str, Any] | None = None
        standing: str | None = None
        shown: tuple[Placed, ...] = ()
        if self._app is not None and self._file is not None:
            mine = {"file": self._file.path, **_shown_file(self._app.name, self._app.revision, self._app.digest)}
            standing, problems = self._standing(self._app, cluster)
            shown = tuple(map(self._file.placed, problems))
        known = None
        if applied is not None:
            known = {**_shown_file(applied.name, applied.revision, applied.digest), "complete": applied.complete}
        return {
            "file": mine,
            "standing": standing,
            "problems": [str(problem) for problem in shown],
            "left": [] if self._last is None else list(self._last.left),
            "applied": known,
            "schedulers": [_of_member(info) for _, info in sorted(cluster.schedulers.items())],
        }

    def _standing(self, app: Application, cluster: ClusterDocument) -> tuple[str, tuple[Problem, ...]]:
        """As the catalog is now; as the last try left it while that is for this scheduler to change."""
        now = standing_of(app, cluster, self._membership.info.instance_id)
        last = self._last
        if now in ("new", "unfinished"):
            return ("waiting", ()) if last is None else (last.standing, last.problems)
        objection = objection_of(app, cluster, now)
        return now, ((Problem(path_of(now), objection),) if objection else ())

    def close(self) -> None:
        """End the Spark of this file, if one runs."""
        self._tables.close()

    def _applier(self) -> AppApplier:
        instance = self._membership.info.instance_id
        state = ObjectState(
            self._store, CLUSTER_KEY, ClusterDocument, runtime=self._runtime, retry=SHARED, committed_by=instance
        )
        return AppApplier(
            me=instance,
            catalog=state,
            tables=self._tables,
            definitions=TableDefinitions(self._store, self._runtime),
            declarations=self._declarations,
            policies=PolicyShelf(self._store, self._runtime, committed_by=instance),
            told=self._told,
        )

    def _say(self, applied: Applied) -> None:
        """Log a standing that is new; each problem once, as long as it stays the same."""
        assert self._app is not None
        assert self._file is not None
        said = (applied.standing, *(str(self._file.placed(problem)) for problem in applied.problems))
        if said == self._said:
            return
        self._said = said
        level = logging.INFO if applied.standing in _QUIET else logging.WARNING
        log_event(_log, "app_stands", level, app=self._app.label, standing=applied.standing)
        for problem in said[1:]:
            log_event(_log, "app_not_applied", logging.WARNING, app=self._app.label, reason=problem)


def _shown_file(name: str, revision: int, digest: str) -> dict[str, Any]:
    return {"name": name, "revision": revision, "digest": digest[:SHOWN_DIGITS]}


def _of_member(info: SchedulerInfo) -> dict[str, Any]:
    labels = info.labels
    revision = labels.get(REVISION, "")
    known = labels.get(NAME) is not None and revision.isdigit()
    file = _shown_file(labels[NAME], int(revision), labels.get(DIGEST, "")) if known else None
    return {"scheduler_id": info.scheduler_id, "file": file}
