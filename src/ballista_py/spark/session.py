"""An embedded Spark for a process that has none: `local[*]`, quiet, bound to this machine.

Promises one session a process that prints nothing, listens on the loopback address only, computes times in UTC
and keeps its files in a folder that goes away with it. A Spark of one's own (any master) needs none of this: hand
its session to `SparkPipeline`.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ballista_py.errors import ConfigError, MissingExtra
from ballista_py.spark.java import find_java, make_java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DRIVER_MEMORY = "2g"

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
    threads: int | None = None,
    memory: str = DRIVER_MEMORY,
    log_level: str = "off",
    options: Mapping[str, str] | None = None,
) -> SparkSession:
    """The Spark of this process: the session that runs already, else a new one on `threads` cores (None: all).

    The arguments count only for a new one. `memory` is the JVM's heap ("2g"); `log_level` is log4j's (Spark's
    errors come as exceptions anyway); `options` are Spark settings that override ours. End it with
    `stop_session`.

    Raises `MissingExtra` without pyspark and `ConfigError` without a Java or when the JVM does not start.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise MissingExtra.of("pyspark", "spark") from None
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    java = find_java()
    folder = Path(tempfile.mkdtemp(prefix="ballista-spark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "log4j2.properties").write_text(_LOGGING.format(level=log_level))
    builder = SparkSession.builder.master(f"local[{threads or '*'}]").appName("ballista_py")
    for name, value in (_settings(folder, memory) | dict(options or {})).items():
        builder = builder.config(name, value)
    with _java_home(make_java_home(java, folder / "java")):
        try:
            return builder.getOrCreate()
        except Exception as error:
            raise ConfigError(
                f"Spark did not start with Java {java.version} of {java.found_in}: {str(error).splitlines()[0]}"
            ) from error


def stop_session(spark: SparkSession) -> None:
    """Stop Spark and end its JVM, so that the memory is free again; a later `embedded_session` starts anew."""
    from pyspark import SparkContext

    spark.stop()
    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
    if gateway is not None:
        gateway.shutdown()
        # The JVM ends when its standard input does.
        gateway.proc.stdin.close()
        gateway.proc.wait()


def _settings(folder: Path, memory: str) -> dict[str, str]:
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
        "spark.sql.warehouse.dir": (folder / "warehouse").as_uri(),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


@contextmanager
def _java_home(home: Path) -> Iterator[None]:
    """JAVA_HOME is `home` inside the block: Spark's launcher reads it from the environment alone."""
    before = os.environ.get("JAVA_HOME")
    os.environ["JAVA_HOME"] = str(home)
    try:
        yield
    finally:
        if before is None:
            del os.environ["JAVA_HOME"]
        else:
            os.environ["JAVA_HOME"] = before
