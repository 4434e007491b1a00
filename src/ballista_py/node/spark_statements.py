"""Queries that clients send to Spark: planned here for their partitions, run there over the files."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from attrs import define, field

from ballista_py.errors import SqlError
from ballista_py.node.query_service import QueryService
from ballista_py.planning.query_plan import QueryPlan
from ballista_py.runtime import Runtime
from ballista_py.state.store import ConditionalStore

if TYPE_CHECKING:
    from ballista_py.spark.statements import SparkStatements

ENGINES = ("spark", "auto")
_WORD = re.compile(r"\w+")


@define
class SparkQueries:
    """Starts Spark with the first query that needs it. Safe to share between threads; queries run one by one."""

    queries: QueryService
    store: ConditionalStore
    runtime: Runtime
    max_merge_bytes: int
    _lock: Any = field(init=False)
    _spark: SparkStatements | None = field(init=False, default=None)
    _stop: Callable[[], None] = field(init=False, default=lambda: None)

    def __attrs_post_init__(self) -> None:
        self._lock = self.runtime.lock()

    def takes(self, statement: str, engine: object) -> bool:
        """Whether a statement goes to Spark. Raises `SqlError` for an engine that there is not."""
        if engine is None:
            return False
        if engine not in ENGINES:
            raise SqlError(f"there is no engine '{engine}': take {' or '.join(ENGINES)}, or none")
        return engine == "spark" or self.queries.planned(statement)[0].merge_bytes > self.max_merge_bytes

    def run(self, statement: str) -> tuple[pa.Table, dict[str, Any]]:
        """The answer and its stats: the map of each table is that of one planning.

        Raises what planning raises, `MissingExtra` or `ConfigError` where Spark cannot start, and what
        `SparkStatements.run` raises.
        """
        started_ms = self.runtime.monotonic_ms()
        plan, view = self.queries.planned(statement, fresh=True)
        needed = _needed(plan, statement, view.catalog.tables)
        with self._lock:
            from ballista_py.spark.statements import TablePart

            parts = [
                TablePart(
                    table=view.catalog.tables[name], map=view.catalog.maps[name], partitions=sorted(partitions)
                )
                for name, partitions in sorted(needed.items())
            ]
            rows = self._started().run(statement, parts, plan.output)
        stats = {
            "engine": "spark",
            "partitions": sum(map(len, needed.values())),
            "partitions_total": sum(len(view.catalog.maps[name].ids()) for name in needed),
            "executors": [],
            "legs": 0,
            "shipped_bytes": 0,
            "took_ms": self.runtime.monotonic_ms() - started_ms,
            "replans": 0,
        }
        return rows, stats

    def close(self) -> None:
        """End Spark, if it was started."""
        with self._lock:
            if self._spark is not None:
                self._spark.close()
                self._spark = None
                self._stop()

    def _started(self) -> SparkStatements:
        if self._spark is None:
            from ballista_py.spark.session import embedded_session, stop_session
            from ballista_py.spark.statements import SparkStatements

            session = embedded_session()
            self._stop = lambda: stop_session(session)
            self._spark = SparkStatements(session, self.store, self.runtime)
        return self._spark


def _needed(plan: QueryPlan, statement: str, tables: Mapping[str, object]) -> dict[str, set[int]]:
    """The partitions that any fragment reads of each table; a table that is named and not read has none."""
    words = {word.lower() for word in _WORD.findall(statement)}
    needed: dict[str, set[int]] = {name: set() for name in words & set(tables)}
    for fragment in plan.fragments:
        for table in fragment.tables:
            needed.setdefault(table.table, set()).update(table.partitions)
    return needed
