"""An application file in the hands of somebody who is no node: checked with an engine, compared, applied from outside.

Whoever does so has the rights of a node on the state location; no port of a cluster takes a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from attrs import evolve

from ballista_py.coordinator.app.application import Application, Problem
from ballista_py.coordinator.app.applying import AppApplier, Applied
from ballista_py.coordinator.app.declared import Declarations, declared_problems
from ballista_py.coordinator.app.declared_views import view_problems
from ballista_py.coordinator.app.plan import ApplicationChange
from ballista_py.coordinator.app.standing import standing_of
from ballista_py.coordinator.tables.definitions import TableMaker
from ballista_py.coordinator.tables.table_definitions import TableDefinitions
from ballista_py.coordinator.writes.checks import RowChecks
from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.errors import ConfigError, TryLater
from ballista_py.node.app_file import AppFile, Placed, read_app_file
from ballista_py.node.config_values import value_of
from ballista_py.node.secrets_file import read_secrets
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.secret import Secret
from ballista_py.state.documents.documents import CLUSTER_KEY, ClusterDocument
from ballista_py.state.documents.object_state import SHARED, ObjectState
from ballista_py.state.documents.policies import PolicyShelf
from ballista_py.state.documents.secret_references import with_secrets
from ballista_py.state.members.location import check_location
from ballista_py.state.stores.store import ConditionalStore, open_store, require_location

PATIENCE_MS = 600_000.0
LOOK_MS = 500.0
# How long one that applies from outside, of whom no lease tells, may commit nothing before another one takes over.
# It doubles each time, so that two whose tables take long to copy do not do so for ever.
QUIET_MS = 15_000.0


def check_app(path: str) -> AppFile:
    """Read a file and check all of it that can be known without a cluster, with an engine for types and conditions."""
    file = read_app_file(path)
    if file.readable is None:
        return file
    with _declarations() as declarations:
        wrong, catalog = declared_problems(file.readable, declarations)
        wrong += view_problems(file.readable, catalog, declarations.checks.engine)
        wrong += _location_problems(file)
        found = [file.placed(problem) for problem in wrong]
    known = {(problem.place, problem.path) for problem in file.problems}
    texts = {problem.text for problem in file.problems}  # of a field: the whole dataset is wrong in the same words
    new = (one for one in found if (one.place, one.path) not in known and one.text not in texts)
    problems: tuple[Placed, ...] = (*file.problems, *new)
    return evolve(file, problems=problems, application=None if problems else file.application)


def _location_problems(file: AppFile) -> list[Problem]:
    if "state_location" not in file.options:
        return []
    try:
        require_location(str(value_of("state_location", str, file.options["state_location"])))
    except ConfigError as error:
        return [Problem("runtime.scheduler.state_location", error.message)]
    return []


@contextmanager
def applier_of(
    file: AppFile,
    state_location: str | None,
    store_options: Mapping[str, Any],
    secrets_file: str | None,
    runtime: Runtime | None = None,
) -> Iterator[AppApplier]:
    """What compares and applies a file at a state location (default: the one that the file names).

    Raises `ConfigError` for a location that cannot be used.
    """
    runtime = runtime or SystemRuntime()
    secrets = {} if secrets_file is None else read_secrets(secrets_file)
    store = _store(file, state_location, store_options, secrets, runtime)
    tables = TableMaker(store, runtime, secrets)
    with _declarations() as declarations:
        try:
            yield AppApplier(
                me=f"apply-{runtime.new_id()}",
                catalog=ObjectState(store, CLUSTER_KEY, ClusterDocument, runtime=runtime, retry=SHARED),
                tables=tables,
                definitions=TableDefinitions(store, runtime),
                declarations=declarations,
                policies=PolicyShelf(store, runtime),
            )
        finally:
            tables.close()


def apply_app(file: AppFile, applier: AppApplier, runtime: Runtime | None = None) -> Applied:
    """Apply a file; where another one with the same file is at it, wait until that is done.

    Raises `TryLater` when it is not within ten minutes.
    """
    runtime = runtime or SystemRuntime()
    app = file.require()
    until_ms = runtime.monotonic_ms() + PATIENCE_MS
    quiet_ms = QUIET_MS
    changes: tuple[ApplicationChange, ...] = ()
    while True:
        _wait_for_another(app, applier, runtime, min(quiet_ms, until_ms - runtime.monotonic_ms()))
        applied = applier.apply(app)
        changes += applied.changes
        taken_over = applied.known is not None and applied.known.by != applier.me
        if applied.standing != "elsewhere" and not (applied.standing in ("failed", "unfinished") and taken_over):
            return evolve(applied, changes=changes)
        if runtime.monotonic_ms() > until_ms:
            raise TryLater(f"{app.label} is being applied by another one, and is not done yet: see /status")
        runtime.sleep_ms(LOOK_MS)
        quiet_ms *= 2


def _wait_for_another(app: Application, applier: AppApplier, runtime: Runtime, quiet_ms: float) -> None:
    """Wait while somebody else from outside is at the file, and commits something every `quiet_ms`."""
    seen: ClusterDocument | None = None
    moved_ms = runtime.monotonic_ms()
    while True:
        cluster = applier.tables.cluster()
        if standing_of(app, cluster, applier.me) != "unfinished" or (
            cluster.app is not None and cluster.app.by == applier.me
        ):
            return
        if cluster != seen:
            seen, moved_ms = cluster, runtime.monotonic_ms()
        if runtime.monotonic_ms() - moved_ms > quiet_ms:
            return
        runtime.sleep_ms(LOOK_MS)


@contextmanager
def _declarations() -> Iterator[Declarations]:
    engine = DuckDBEngine()
    try:
        yield Declarations(RowChecks(engine))
    finally:
        engine.close()


def _store(
    file: AppFile,
    state_location: str | None,
    store_options: Mapping[str, Any],
    secrets: Mapping[str, Secret],
    runtime: Runtime,
) -> ConditionalStore:
    options: dict[str, Any] = dict(store_options)
    if state_location is None:
        if "state_location" not in file.options:
            raise ConfigError(
                f"{file.path}: says no runtime.scheduler.state_location: give --state-location, or say it there"
            )
        state_location = str(value_of("state_location", str, file.options["state_location"]))
        if "store_options" in file.options:
            given = value_of("store_options", Mapping[str, Any], file.options["store_options"], secret=True)
            options = {**with_secrets(given, secrets), **options}
    store = open_store(state_location, runtime=runtime, **options)
    check_location(store, state_location)
    return store
