"""The data pipeline of this process, on the Spark of its settings, which is opened at the first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from attrs import evolve

from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import Runtime
from ballista_py.secret import Secret
from ballista_py.spark.elsewhere import NO_SETTINGS, SparkSettings
from ballista_py.state.documents.secret_references import with_secrets
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.threads import spawn

if TYPE_CHECKING:
    from ballista_py.spark.pipeline import SparkPipeline

DISCOVERY_TIMEOUT_MS = 60_000.0
STORE_WORKERS = 8

Source = str | Mapping[str, Any]


class EmbeddedPipeline:
    """One pipeline over `store`. Raises what `open_spark` raises where Spark cannot be had.

    `secrets` take the place of the references to them in sources. They belong into options, not into a path, which
    errors name. `settings` say which Spark it is; for one of this process they count for who starts it.
    """

    def __init__(
        self,
        store: ConditionalStore,
        runtime: Runtime,
        *,
        discovery_timeout_ms: float = DISCOVERY_TIMEOUT_MS,
        secrets: Mapping[str, Secret] | None = None,
        settings: SparkSettings = NO_SETTINGS,
    ) -> None:
        self._settings = settings
        self._secrets = secrets or {}
        self._store = store
        self._runtime = runtime
        self._discovery_timeout_ms = discovery_timeout_ms
        self._pipeline: SparkPipeline | None = None
        self._stop_spark: Callable[[], None] = lambda: None
        self._ended: Callable[[], bool] = lambda: False

    def get(self) -> SparkPipeline:
        """The pipeline; the first call starts Spark, and so does one that finds it ended.

        To be called from one thread at a time.
        """
        if self._ended():
            self.close()
        if self._pipeline is None:
            from ballista_py.spark.opening import open_spark
            from ballista_py.spark.pipeline import SparkPipeline

            opened = open_spark(self._settings, self._runtime)
            workers = ThreadPoolExecutor(STORE_WORKERS, thread_name_prefix="publish")

            def stop() -> None:
                workers.shutdown()
                opened.stop()

            self._stop_spark = stop
            self._ended = opened.ended
            self._pipeline = SparkPipeline(
                opened.session,
                self._store,
                runtime=self._runtime,
                spawn=spawn,
                run_all=workers.map,
                discovery_timeout_ms=self._discovery_timeout_ms,
                tasks=self._settings.needed_tasks(),
            )
        return self._pipeline

    def find(self, table: TableSpec, pmap: PartitionMap) -> Sequence[tuple[Any, ...]]:
        """The partition values that the source of `table` shows now.

        Those that `pmap` lacks get their partitions, with all their rows, before this returns: once the map names
        them they can be asked.
        """
        return self.get().extend(self.opened(table), lambda value: pmap.index(value) is not None)

    def opened(self, table: TableSpec) -> TableSpec:
        """The table with the secrets that its source references, for Spark alone: it must not be kept or shown."""
        return evolve(table, source=with_secrets(table.source, self._secrets))

    def opened_source(self, source: Source) -> Source:
        """The same for a source that has no table yet."""
        return with_secrets(source, self._secrets)

    def close(self) -> None:
        """End the session, if one was started."""
        if self._pipeline is not None:
            self._pipeline = None
            self._ended = lambda: False
            self._stop_spark()
