"""The data pipeline of this process, on an embedded Spark that starts with its first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from attrs import evolve, field, frozen

from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import Runtime
from ballista_py.secret import Secret
from ballista_py.state.documents.secret_references import with_secrets
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.threads import spawn

if TYPE_CHECKING:
    from ballista_py.spark.pipeline import SparkPipeline

DISCOVERY_TIMEOUT_MS = 60_000.0
STORE_WORKERS = 8

Source = str | Mapping[str, Any]


@frozen(kw_only=True)
class SparkSettings:
    """What an embedded Spark is given beside our own settings: its `conf`, and `jars` of drivers and formats."""

    conf: Mapping[str, str] = field(factory=dict, repr=False)  # may hold keys of object stores
    jars: tuple[str, ...] = ()

    def options(self) -> dict[str, str]:
        """As Spark is told. Jars that `conf` names stay."""
        jars = [*filter(None, self.conf.get("spark.jars", "").split(",")), *self.jars]
        return {**self.conf, **({"spark.jars": ",".join(jars)} if jars else {})}


NO_SETTINGS = SparkSettings()


class EmbeddedPipeline:
    """One pipeline over `store`. Raises what `embedded_session` raises where Spark cannot start.

    `secrets` take the place of the references to them in sources. They belong into options, not into a path, which
    errors name. `settings` count for the session that is started first in a process.
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
            from ballista_py.spark.pipeline import SparkPipeline
            from ballista_py.spark.session import embedded_session, has_ended, stop_session

            session = embedded_session(options=self._settings.options())
            workers = ThreadPoolExecutor(STORE_WORKERS, thread_name_prefix="publish")

            def stop() -> None:
                workers.shutdown()
                stop_session(session)

            self._stop_spark = stop
            self._ended = lambda: has_ended(session)
            self._pipeline = SparkPipeline(
                session,
                self._store,
                runtime=self._runtime,
                spawn=spawn,
                run_all=workers.map,
                discovery_timeout_ms=self._discovery_timeout_ms,
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
