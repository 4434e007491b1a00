"""Opens the Spark that settings name: that of this process, a standalone cluster of which it is the driver, a server.

Promises that one elsewhere is reached, has a worker, and that this worker has this package and the client of the store;
else one `ConfigError` says what is missing, without a credential.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

from attrs import frozen

from ballista_py.errors import BallistaError, ConfigError, MissingExtra
from ballista_py.runtime import Runtime
from ballista_py.spark.elsewhere import SparkSettings
from ballista_py.spark.on_workers import require_fit
from ballista_py.spark.reasons import reason_of
from ballista_py.spark.session import DRIVER_MEMORY, embedded_session, has_ended, kill_session, stop_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORKERS_MS = 60_000.0
LOOK_MS = 200.0
RECONNECTS = 5

_CONNECT_MODE = "SPARK_CONNECT_MODE_ENABLED"
# What a server might have otherwise, by which the same text has another value.
_MEANING = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
}


@frozen
class OpenSpark:
    """A session, and how it ends: `stop` gives it back, `kill` ends what runs there at once."""

    session: SparkSession
    ended: Callable[[], bool]
    stop: Callable[[], None]
    kill: Callable[[], None]


def open_spark(settings: SparkSettings, runtime: Runtime, *, memory: str = DRIVER_MEMORY) -> OpenSpark:
    """The Spark of the settings. `memory` is the heap of a JVM that is started here.

    One of this process is shared, and the settings count for who is first. Raises what `embedded_session` raises,
    `MissingExtra` and `ConfigError`.
    """
    if settings.remote is not None:
        return _connected(settings)
    if settings.master is None:
        return _of_this_process(embedded_session(memory=memory, options=settings.options()))
    options = settings.options()
    python = options.get("spark.pyspark.python")
    try:
        session = embedded_session(master=settings.master, memory=memory, options=options, python=python)
    except ConfigError as error:
        raise ConfigError(
            f"the Spark at {settings.place} was not reached: {error.message}; it has to be up, of the release of "
            "pyspark here, and to reach this process at spark.driver.host"
        ) from None
    found = _of_this_process(session)
    try:
        _require_worker(session, settings, runtime)
        _require_fit(session, settings)
    except BaseException:
        with suppress(Exception):
            found.stop()
        raise
    return found


def _of_this_process(session: SparkSession) -> OpenSpark:
    return OpenSpark(
        session, lambda: has_ended(session), lambda: stop_session(session), lambda: kill_session(session)
    )


def _require_worker(session: SparkSession, settings: SparkSettings, runtime: Runtime) -> None:
    """Wait until an executor has come: without one every job would wait for ever."""
    members = session.sparkContext._jsc.sc().getExecutorMemoryStatus  # the driver is one of them
    deadline_ms = runtime.monotonic_ms() + WORKERS_MS
    while members().size() < 2:
        if runtime.monotonic_ms() >= deadline_ms:
            raise ConfigError(
                f"no worker of the Spark at {settings.place} came within {WORKERS_MS / 1e3:g} s: it has none with the "
                "cores and the memory that are asked for (spark.cores.max, spark.executor.memory), or they do not "
                "reach this process at spark.driver.host"
            )
        runtime.sleep_ms(LOOK_MS)


def _require_fit(session: SparkSession, settings: SparkSettings) -> None:
    tasks = settings.needed_tasks()
    assert tasks is not None
    try:
        require_fit(session, tasks)
    except BallistaError:
        raise
    except Exception as error:
        raise ConfigError(f"the Spark at {settings.place} runs no tasks of Python: {reason_of(error)}") from None


def _connected(settings: SparkSettings) -> OpenSpark:
    try:
        import_module("grpc_status")
        from pyspark import SparkContext
        from pyspark.sql.connect.client.retries import DefaultPolicy
        from pyspark.sql.connect.session import SparkSession as ConnectSession
    except ImportError:
        raise MissingExtra.of("Spark Connect", "connect") from None
    if SparkContext._active_spark_context is not None:
        raise ConfigError("this process has a Spark of its own: a server of Spark Connect is for another process")
    os.environ[_CONNECT_MODE] = "1"  # functions of pyspark make columns for a server then
    session: SparkSession | None = None
    try:
        session = ConnectSession.builder.remote(settings.remote).create()  # type: ignore[arg-type, assignment]
        assert session is not None
        session.client.set_retry_policies([DefaultPolicy(max_retries=RECONNECTS)])
        _ = session.version
        _configure(session, settings)
        _require_fit(session, settings)
    except BaseException as error:
        if session is not None:
            with suppress(Exception):
                session.stop()
        if isinstance(error, BallistaError) or not isinstance(error, Exception):
            raise
        raise ConfigError(
            f"the server of Spark Connect at {settings.place} was not reached: {_shown(error, settings)}"
        ) from None
    return _of_a_server(session)


def _of_a_server(session: SparkSession) -> OpenSpark:
    def kill() -> None:
        with suppress(Exception):
            session.interruptAll()

    def ended() -> bool:
        try:
            return bool(session.is_stopped) or not session.conf.get("spark.sql.session.timeZone")  # type: ignore[attr-defined]
        except Exception:  # the server ended, or has forgotten the session
            return True

    return OpenSpark(session, ended, session.stop, kill)


def _configure(session: SparkSession, settings: SparkSettings) -> None:
    """Give the session its conf and jars, and see that it has them."""
    conf = {name: value for name, value in settings.conf.items() if name != "spark.jars"}
    for name, value in {**_MEANING, **conf}.items():
        try:
            session.conf.set(name, value)
            kept = session.conf.get(name)
        except Exception:  # its words may have the value
            kept = None
        if kept != value:
            raise ConfigError(
                f"spark: conf: the server at {settings.place} does not let '{name}' be set by a session: set it there"
            )
    for jar in filter(None, settings.options().get("spark.jars", "").split(",")):
        try:
            session.addArtifact(jar)
        except Exception as error:
            raise ConfigError(
                f"spark: jars: '{jar}' was not given to the server at {settings.place}: {_shown(error, settings)}"
            ) from None


def _shown(error: Exception, settings: SparkSettings) -> str:
    """What it says, without the token that a URL may have."""
    said = reason_of(error)
    for secret in (settings.remote or "").partition(";")[2].split(";"):
        value = secret.partition("=")[2]
        said = said.replace(value, "***") if len(value) > 3 else said
    return said
