"""Statements for a server of Spark Connect: looked at here, by a JVM of the same release, before the server gets them.

Over Spark Connect nobody can see what the server makes of a text before it runs. But a text means the same to the same
release with the same settings. So a JVM of this process reads it first, over views of the same columns without rows,
and `TextGuard` looks at what it made of it. A server of another release, or with extensions of SQL, is refused.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ballista_py.errors import ConfigError
from ballista_py.spark.java import find_java, make_java_home
from ballista_py.spark.session import quiet_settings, variables_set, without_fork
from ballista_py.spark.text.guard import TextGuard
from ballista_py.spark.text.settings import PLAIN_TEXT, require_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TWIN_MEMORY = "512m"
_EXTENSIONS = "spark.sql.extensions"
_SQL = "spark.sql."


class TwinGuard:
    """Takes texts to sessions of a server. Safe to share between threads.

    Raises `ConfigError` for a server of another release than the pyspark here, for one with extensions, and what
    starting a JVM raises.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        release, here = spark.version, _release_here()
        if release != here:
            raise ConfigError(
                f"the server of Spark Connect has Spark {release}, and pyspark here is {here}: statements run where "
                "both are one release; the data pipeline does not need that"
            )
        settings = {name: value for name, value in spark.conf.getAll.items() if name.startswith(_SQL)}
        if settings.get(_EXTENSIONS):
            raise ConfigError(
                f"the server of Spark Connect has extensions of SQL ({_EXTENSIONS}), so nobody here can tell what a "
                "text means there: it runs no statements"
            )
        self._jvm = _Jvm()
        try:
            self._guard = TextGuard(_Twin(self._jvm.session, settings, self._jvm.gateway))  # type: ignore[arg-type]
        except BaseException:
            self._jvm.close()
            raise

    def session(self) -> SparkSession:
        """A new session of the server that takes texts as they are. Raises `ConfigError` where none is to be had."""
        session: SparkSession = self._spark.cloneSession()  # type: ignore[attr-defined]
        require_settings(session, PLAIN_TEXT)
        return session

    def rows(self, session: SparkSession, text: str, tables: Collection[str]) -> DataFrame:
        """What `text` gives over the views `tables` of a session of ours; as `TextGuard.rows`."""
        twin: Any = self._guard.session()
        for name in tables:
            twin.show(name, session.table(f"`{name}`").schema.json())
        self._guard.rows(twin, text, tables)
        return session.sql(text)

    def close(self) -> None:
        """End the JVM."""
        self._jvm.close()


class _Twin:
    """As much of a session of pyspark as `TextGuard` asks for, without the rest, which a process has once."""

    def __init__(self, session: Any, settings: Mapping[str, str], gateway: Any) -> None:
        self._jsparkSession = session
        self._jvm = gateway.jvm
        self._gateway = gateway
        self._settings = settings
        self.conf = session.conf()

    def newSession(self) -> _Twin:  # noqa: N802 - the name is Spark's
        made = _Twin(self._jsparkSession.newSession(), self._settings, self._gateway)
        for name, value in self._settings.items():
            with suppress(Exception):  # one that no session can change, and that nothing of a text depends on
                made.conf.set(name, value)
        return made

    def show(self, name: str, columns: str) -> None:
        """Make a view without rows; `columns` is JSON of Spark."""
        kind = self._jvm.org.apache.spark.sql.types.DataType.fromJson(columns)
        rows = self._jsparkSession.createDataFrame(self._jvm.java.util.ArrayList(), kind)
        rows.createOrReplaceTempView(f"`{name}`")

    def sql(self, text: str) -> _Rows:
        return _Rows(self._jsparkSession.sql(text))

    def table(self, name: str) -> _Rows:
        return _Rows(self._jsparkSession.table(name))


class _Rows:
    def __init__(self, rows: Any) -> None:
        self._jdf = rows


class _Conf:
    """Settings as `launch_gateway` takes them."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings

    def getAll(self) -> list[tuple[str, str]]:  # noqa: N802 - the name is Spark's
        return list(self._settings.items())


class _Jvm:
    """A JVM with a session of Spark on one core, which no pyspark knows."""

    def __init__(self) -> None:
        from pyspark.java_gateway import launch_gateway

        java = find_java()
        self._folder = folder = Path(tempfile.mkdtemp(prefix="ballista-spark-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        settings = quiet_settings(folder, TWIN_MEMORY, "off")
        home = str(make_java_home(java, folder / "java"))
        with variables_set(JAVA_HOME=home), without_fork():
            try:
                self.gateway: Any = launch_gateway(_Conf(settings))  # type: ignore[no-untyped-call]
                _raise_its_own_errors(self.gateway._gateway_client)
                builder = self.gateway.jvm.org.apache.spark.sql.classic.SparkSession.builder()
                for name, value in {
                    **settings,
                    "spark.master": "local[1]",
                    "spark.app.name": "ballista_py",
                }.items():
                    builder = builder.config(name, value)
                self.session: Any = builder.getOrCreate()
            except Exception as error:
                raise ConfigError(
                    f"Spark did not start with Java {java.version} of {java.found_in}: {str(error).splitlines()[0]}; "
                    "texts for a server of Spark Connect are looked at here first"
                ) from error

    def close(self) -> None:
        """End it. Harmless twice."""
        with suppress(Exception):  # py4j raises what it likes of a JVM that is gone
            self.gateway.shutdown()
        process = self.gateway.proc
        with suppress(OSError):
            process.stdin.close()
        process.kill()  # it has nothing to finish
        process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


def _raise_its_own_errors(client: Any) -> None:
    """Let errors of this JVM be raised as they are.

    A process that had a Spark of its own leaves a hook in py4j for good: it asks *that* Spark what an error of any JVM
    means, and fails where it has ended.
    """
    from py4j import protocol  # type: ignore[import-untyped]

    send = client.send_command

    def send_command(*words: Any, **options: Any) -> Any:
        answer = send(*words, **options)
        if isinstance(answer, str) and protocol.is_error(answer)[0]:
            protocol.get_return_value(answer, client, "the JVM that reads texts", "it")
        return answer

    client.send_command = send_command


def _release_here() -> str:
    import pyspark

    return str(pyspark.__version__)
