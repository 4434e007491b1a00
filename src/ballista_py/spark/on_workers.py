"""Work on the workers of a Spark elsewhere, from the side of the driver: how it is sent, and what its errors mean."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from ballista_py import errors
from ballista_py.errors import BallistaError, ConfigError
from ballista_py.runtime import SystemRuntime
from ballista_py.spark import task_entry
from ballista_py.spark.elsewhere import TaskStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

FIT = "release string"
_UNFIT = re.compile(rf"{task_entry.UNFIT}: ([^\n]*)")
_FAILED = re.compile(rf"{task_entry.FAILED} ([A-Za-z]+): ([^\n]*)")
_OTHER_PYTHON = re.compile(r"PYTHON_VERSION_MISMATCH\]([^\n]*)")
_NO_PYTHON = re.compile(r'Cannot run program "([^"\n]*)"')
# What a task may end with; anything else that claims to be one is an error of Spark.
_KNOWN = (
    "ConfigError", "MissingExtra", "StoreUnavailable", "TryLater", "VersionConflict", "DocumentUnreadable",
    "ObjectMissing", "SchemaMismatch", "MergeTooLarge", "SqlError",
)  # fmt: skip
_INSTALL = (
    "install this release of ballista_py, with the extras of its store and 'spark', in the Python of every worker "
    "(spark.pyspark.python)"
)


def on_workers(rows: DataFrame, name: str, arguments: tuple[Any, ...], schema: str | StructType) -> DataFrame:
    """What the function `name` of `worker_tasks` makes of each task's part of `rows`; nothing runs yet.

    The arguments are plain values, and may be secrets: they are in no plan that Spark shows.
    """
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(task_entry)  # type: ignore[no-untyped-call]
    return rows.mapInArrow(task_entry.entry(release_here(), name, arguments), schema)


def release_here() -> str:
    """The release of this package, which workers have to have, too."""
    return str(import_module("ballista_py").__version__)


def sent_ahead(spark: SparkSession, tasks: TaskStore | None) -> TaskStore | None:
    """How tasks of the session open the store: the options go to one of Spark Connect as a file.

    A server writes what it is asked into its log, with all that is inside of a task; files it keeps for the session,
    and for those that are cloned of it.
    """
    if tasks is None or tasks.is_in_file or getattr(spark, "_jvm", None) is not None:
        return tasks
    name = f"ballista-store-{SystemRuntime().new_id()}"
    with TemporaryDirectory(prefix="ballista-sent-") as folder:  # nobody else may look into it
        path = Path(folder) / name
        path.write_text(tasks.payload()[1])
        spark.addArtifact(str(path), file=True)
    return tasks.as_file(name)


def require_fit(spark: SparkSession, tasks: TaskStore) -> None:
    """See that a worker has this package, and the client of the store. Raises `ConfigError` that says what is not."""
    tasks = sent_ahead(spark, tasks) or tasks
    try:
        on_workers(spark.range(0, 1, 1, 1), "tell_release", (tasks.payload(), release_here()), FIT).collect()
    except Exception as error:  # pyspark and py4j have no common one
        named = failure_on_a_worker(error)
        if named is None:
            raise
        raise named from None


def failure_on_a_worker(error: BaseException) -> BallistaError | None:
    """The error of ours with which a task ended, or what is wrong with its worker; None for any other."""
    try:
        text = str(error)
    except Exception:  # of a JVM that is gone
        return None
    if (unfit := _UNFIT.search(text)) is not None:
        return ConfigError(f"a worker of Spark cannot run tasks of ballista_py, {unfit[1].strip()}: {_INSTALL}")
    if (other := _OTHER_PYTHON.search(text)) is not None:
        return ConfigError(f"the workers of Spark have another Python than this process: {other[1].strip()}")
    if (missing := _NO_PYTHON.search(text)) is not None:
        return ConfigError(
            f"the workers of Spark have no '{missing[1]}': name their Python as spark.pyspark.python"
        )
    if (failed := _FAILED.search(text)) is None or failed[1] not in _KNOWN:
        return None
    found: BallistaError = getattr(errors, failed[1])(failed[2].strip())
    return found
