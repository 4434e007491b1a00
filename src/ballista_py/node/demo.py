"""The main job: TPC-H on a real local cluster, answers compared with DuckDB, before and after `kill -9`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from attrs import Factory, define, frozen
from rich.console import Console
from rich.table import Table

from ballista_py.engines.answers import difference
from ballista_py.errors import BallistaError
from ballista_py.node.demo_queries import QUERIES
from ballista_py.node.local_cluster import LocalCluster
from ballista_py.node.progress import Steps
from ballista_py.node.tpch_data import TABLES, create_tpch_tables, generate_tpch
from ballista_py.runtime import Runtime, SystemRuntime

SCHEDULERS, EXECUTORS = 2, 3
TTL_MS = 3_000
RETRY_FOR_MS = 60_000
RETRY_EVERY_MS = 250
HEAD_ROWS = 3


@frozen(kw_only=True)
class Answer:
    """How one query went. `wrong` says what differs from DuckDB's answer; None means it is right."""

    name: str
    wrong: str | None
    took_ms: float
    stats: dict[str, Any]
    retries: int
    last_error: str | None


@define
class Demo:
    """Runs the demo on `console`; `run` returns whether every answer was right."""

    scale: float
    console: Console
    folder: Path | None = None
    keep: bool = False
    runtime: Runtime = Factory(SystemRuntime)

    def run(self) -> bool:
        """All the steps, in order. The cluster and its data are removed at the end unless `keep`."""
        steps = Steps(self.console, self.runtime)
        with self._folder() as folder:
            with steps.step(f"generate TPC-H at scale {self.scale:g}") as advance:
                data = generate_tpch(folder / f"tpch-{self.scale:g}", self.scale, advance)
            expected = _expected(data)
            with steps.step(f"start {SCHEDULERS} schedulers and {EXECUTORS} executors"):
                cluster = LocalCluster(
                    schedulers=SCHEDULERS,
                    executors=EXECUTORS,
                    state_location=(folder / "state").as_uri(),
                    ttl_ms=TTL_MS,
                    detached=self.keep,
                ).start()
            try:
                with steps.step("partition the tables on Spark and load them") as advance:
                    create_tpch_tables(cluster, data, advance)
                first = self._ask_all("before", cluster, expected)
                took_over_ms = self._kill(cluster)
                second = self._ask_all("after kill -9", cluster, expected)
                self._say_take_over(cluster, took_over_ms)
                self._summary(first, second)
                right = all(answer.wrong is None for answer in (*first, *second))
                if self.keep and right:
                    self._say_how_to_go_on(cluster, folder)
            except BaseException:
                cluster.stop()
                raise
            if not self.keep:
                cluster.stop()
        return right

    @contextmanager
    def _folder(self) -> Iterator[Path]:
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            yield self.folder.resolve()
        elif self.keep:
            yield Path(tempfile.mkdtemp(prefix="ballista-demo-"))
        else:
            with tempfile.TemporaryDirectory(prefix="ballista-demo-", ignore_cleanup_errors=True) as folder:
                yield Path(folder)
