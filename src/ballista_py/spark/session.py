"""An embedded Spark for a process that has none: `local[*]`, quiet, bound to this machine.

Promises one session a process that prints nothing, listens on the loopback address only, computes times in UTC
and keeps its files in a folder that goes away with it; of this process's environment it gets a few named variables
(`spark/java.py`), and takes text as it is written, without `${…}`. A Spark of one's own (any master) needs none of
this: hand its session to `SparkPipeline`.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from subprocess import Popen
from typing import TYPE_CHECKING, Any

from ballista_py.errors import ConfigError, MissingExtra
from ballista_py.runtime import SystemRuntime
from ballista_py.spark.java import find_java, make_java_home
from ballista_py.spark.text.settings import NO_SUBSTITUTION

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

DRIVER_MEMORY = "2g"

_USERS = "spark.ballista.users"
_starting = SystemRuntime().lock()  # a process has one Spark at most
_started: list[Popen[bytes]] = []  # the JVMs that were started here

# They print the Java stack of an exception that is raised anyway.
_CHATTY_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_BRIDGE_LOGGER = "py4j"  # says with a traceback that a JVM is gone, which is raised anyway

_LOGGING = """\
rootLogger.level = {level}
rootLogger.appenderRef.stderr.ref = stderr
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = {level}
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{{yy/MM/dd HH:mm:ss}} %p %c{{1}}: %m%n%ex
"""


def embedded_session(
    *,
    master: str = "local[*]",
    memory: str = DRIVER_MEMORY,
    log_level: str = "off",
    options: Mapping[str, str] | None = None,
    python: str | None = None,
) -> SparkSession:
    """The Spark of this process: the session that runs already, else a new one; also after its JVM was killed.

    The arguments count only for a new one. `master` is Spark's: all cores of this machine, or "local[2]" for two
    of them. `memory` is the JVM's heap ("2g"); `log_level` is log4j's (Spark's errors come as exceptions anyway);
    `options` are Spark settings that override ours; `python` is that of the workers of another `master`. Every call is
    answered by one of `stop_session`; the last one ends the JVM.

    Raises `MissingExtra` without pyspark and `ConfigError` without a Java or when the JVM does not start.
    """
    try:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession
    except ImportError:
        raise MissingExtra.of("pyspark", "spark") from None
    with _starting:
        active = SparkContext._active_spark_context
        if active is not None and _is_gone(active):
            _forget(active)
            active = None
        if active is not None:
            running = SparkSession.builder.getOrCreate()
            if running.conf.get(_USERS, None) is not None:
                running.conf.set(_USERS, str(_users(running) + 1))
            return running
        return _start(master, memory, log_level, dict(options or {}), python or sys.executable)


def has_ended(spark: SparkSession) -> bool:
    """Whether the session was stopped, or its JVM was killed: it answers nothing any more."""
    return _is_gone(spark.sparkContext)


def kill_session(spark: SparkSession) -> None:
    """End a session of `embedded_session` with its JVM at once, whoever uses it; they get errors.

    A session that was there before is left alone.
    """
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process in _started and spark.sparkContext is SparkContext._active_spark_context:
        process.kill()
        process.wait()


def stop_session(spark: SparkSession) -> None:
    """Give a session of `embedded_session` back: the last one stops Spark and its JVM and so frees their memory.

    A session that was there before is left alone.
    """
    from pyspark import SparkContext

    with _starting:
        if has_ended(spark) or (users := _users(spark)) == 0:
            return
        if users > 1:
            spark.conf.set(_USERS, str(users - 1))
            return
        spark.stop()
        gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
        if gateway is not None:
            gateway.shutdown()
            # The JVM ends when its standard input does.
            gateway.proc.stdin.close()
            gateway.proc.wait()


def _is_of_somebody_else(record: logging.LogRecord) -> bool:
    return record.name != "root" or f"{os.sep}{_BRIDGE_LOGGER}{os.sep}" not in record.pathname


def _is_gone(context: SparkContext) -> bool:
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)  # None where Spark was not started from this process
    active = context is SparkContext._active_spark_context and context._jsc is not None
    if not active or (process is not None and process.poll() is not None):
        return True
    try:
        return bool(context._jsc.sc().isStopped())  # one that ran out of memory lives on for a moment
    except Exception:  # whatever py4j says of a JVM that does not answer
        return True


def _forget(context: SparkContext) -> None:
    """Let pyspark start another JVM: of the killed one it keeps this."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.context import SQLContext

    context._jsc = None  # there is nobody to be told to stop
    context.stop()
    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
    SparkSession._instantiatedSession = SparkSession._activeSession = SQLContext._instantiatedContext = None
    if gateway is not None:
        with suppress(Exception):  # py4j raises what it likes of a JVM that is gone
            gateway.shutdown()
        if (process := getattr(gateway, "proc", None)) in _started:
            process.kill()
            process.wait()


def _users(spark: SparkSession) -> int:
    """How many callers share the embedded session; 0 for a session that is not ours."""
    return int(spark.conf.get(_USERS, None) or 0)


def _start(master: str, memory: str, log_level: str, options: dict[str, str], python: str) -> SparkSession:
    from pyspark import SparkContext
    from pyspark.logger import PySparkLogger
    from pyspark.sql import SparkSession

    for name in _CHATTY_LOGGERS:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)
    logging.getLogger(_BRIDGE_LOGGER).setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_of_somebody_else)  # the bridge says some of it as the root
    java = find_java()
    folder = Path(tempfile.mkdtemp(prefix="ballista-spark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    builder = SparkSession.builder.master(master).appName("ballista_py")
    for name, value in (quiet_settings(folder, memory, log_level) | options).items():
        builder = builder.config(name, value)
    # Python functions run in this very Python, which has this package, or in one of a worker that has it.
    home = str(make_java_home(java, folder / "java"))
    with variables_set(JAVA_HOME=home, PYSPARK_PYTHON=python), without_fork():
        try:
            session = builder.getOrCreate()
        except Exception as error:
            raise ConfigError(
                f"Spark did not start with Java {java.version} of {java.found_in}: {str(error).splitlines()[0]}"
            ) from error
    if (process := getattr(SparkContext._gateway, "proc", None)) is not None:
        _started.append(process)
    return session


@contextmanager
def without_fork() -> Iterator[None]:
    """PySpark runs Python code between fork and exec, so that an interrupt is for itself alone.

    That makes it a real fork, after which handlers of gRPC run in the child; where it is busy with calls they end it
    now and then, and there is no Java. A session of its own keeps interrupts away, too, and needs no such code.
    """
    java_gateway: Any = import_module("pyspark.java_gateway")
    plain = java_gateway.Popen

    def start(command: list[str], **options: Any) -> Any:
        options.pop("preexec_fn", None)
        return plain(command, start_new_session=True, **options)

    java_gateway.Popen = start
    try:
        yield
    finally:
        java_gateway.Popen = plain


def quiet_settings(folder: Path, memory: str, log_level: str) -> dict[str, str]:
    """The settings of a JVM that keeps to this machine, with its files in `folder`."""
    (folder / "log4j2.properties").write_text(_LOGGING.format(level=log_level))
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": (
            f"-Dlog4j2.configurationFile={(folder / 'log4j2.properties').as_uri()} -XX:+UseParallelGC"
        ),
        "spark.local.dir": str(folder / "local"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        **NO_SUBSTITUTION,
        _USERS: "1",
        "spark.sql.warehouse.dir": (folder / "warehouse").as_uri(),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


@contextmanager
def variables_set(**variables: str) -> Iterator[None]:
    """The variables are set inside the block: Spark's launcher reads them from the environment alone."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
