"""The main job: TPC-H on a real local cluster, answers compared with DuckDB, before and after `kill -9`.

The eight queries of the demo: seven of TPC-H and a top-10, in DuckDB's dialect.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from attrs import Factory, define, frozen
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ballista_py.engines.same_answer import difference
from ballista_py.errors import BallistaError
from ballista_py.node.cli.progress import Steps
from ballista_py.node.demo.tpch_data import TABLES, generate_tpch
from ballista_py.node.demo.tpch_queries import QUERIES as TPCH
from ballista_py.node.local.cluster import LocalCluster
from ballista_py.runtime import Runtime, SystemRuntime

QUERIES: Mapping[str, str] = {
    **{f"Q{number}": TPCH[f"q{number:02}"] for number in (1, 3, 5, 6, 10, 13, 18)},
    "top-10": """
        select l_orderkey, l_linenumber, l_extendedprice, l_shipdate
        from lineitem
        where l_shipmode = 'AIR'
        order by l_extendedprice desc, l_orderkey, l_linenumber
        limit 10""",
}


SCHEDULERS, EXECUTORS = 2, 3
APP = Path(__file__).parent / "app.yaml"
VICTIMS = ("scheduler-1", "executor-1")
TTL_MS = 3_000
RETRY_FOR_MS = 60_000
RETRY_EVERY_MS = 250
TAKE_OVER_LIMIT_MS = 120_000
HEAD_ROWS = 3
MAX_SHOWN_COLUMNS = 6


@frozen(kw_only=True)
class QueryOutcome:
    """How one query went. `wrong` says what differs from DuckDB's answer; None means that it is right."""

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
            with steps.step("answer the queries with DuckDB alone"):
                expected = _expected(data)
            app = data / APP.name
            shutil.copyfile(APP, app)
            state = Path(tempfile.mkdtemp(prefix="state-", dir=folder))
            cluster = LocalCluster(
                schedulers=SCHEDULERS,
                executors=EXECUTORS,
                state_location=(state / "cluster").as_uri(),
                ttl_ms=TTL_MS,
                detached=self.keep,
                app=app,
            )
            stays = False
            try:
                with steps.step(f"start {SCHEDULERS} schedulers and {EXECUTORS} executors"):
                    cluster.start(applied=False)
                with steps.step(f"partition the tables of {APP.name} on Spark, assign and load them") as advance:
                    cluster.wait_until_applied(progress=advance)
                right = self._before_and_after(cluster, expected)
                stays = self.keep and right
            finally:
                if not stays:
                    cluster.stop()
            if stays:
                self._say_how_to_go_on(cluster, folder)
        return right

    def _before_and_after(self, cluster: LocalCluster, expected: dict[str, pa.Table]) -> bool:
        """Ask all, kill, ask all again while the survivors take over; returns whether every answer was right."""
        first = self._ask_all("before", cluster, expected)
        self.console.rule("kill -9")
        self.console.print(
            f"leases last {TTL_MS / 1e3:g} s here instead of 30; killing {' and '.join(VICTIMS)}", highlight=False
        )
        with ThreadPoolExecutor(1) as watcher:
            for victim in VICTIMS:
                cluster.kill(victim)
            took_over: Future[float] = watcher.submit(self._take_over_ms, cluster)
            second = self._ask_all("after kill -9", cluster, expected)
            took_ms = took_over.result()
        self.console.print(
            f"take-over: every partition served by the survivors {took_ms / 1e3:.1f} s after the kill"
        )
        self._summary(first, second, took_ms)
        return all(answer.wrong is None for answer in (*first, *second))

    def _take_over_ms(self, cluster: LocalCluster) -> float:
        """How long after now the victims are no members any more and the survivors serve everything."""
        killed_ms = self.runtime.monotonic_ms()
        while True:
            try:
                if not {row["node_id"] for row in cluster.members()} & set(VICTIMS):
                    cluster.wait_until_loaded(timeout_ms=TAKE_OVER_LIMIT_MS)
                    return self.runtime.monotonic_ms() - killed_ms
            except BallistaError:
                if self.runtime.monotonic_ms() - killed_ms > TAKE_OVER_LIMIT_MS:
                    raise
            self.runtime.sleep_ms(RETRY_EVERY_MS / 5)

    def _ask_all(self, when: str, cluster: LocalCluster, expected: dict[str, pa.Table]) -> list[QueryOutcome]:
        self.console.rule(f"eight queries, {when}")
        answers = []
        for name, query in QUERIES.items():
            answer, table = self._ask(cluster, name, query, expected[name])
            answers.append(answer)
            self._show(answer, table)
        return answers

    def _ask(
        self, cluster: LocalCluster, name: str, query: str, expected: pa.Table
    ) -> tuple[QueryOutcome, pa.Table | None]:
        """Ask until an answer comes or a minute has passed; an error is retried, a wrong answer is not."""
        started_ms = self.runtime.monotonic_ms()
        retries = 0
        last_error: str | None = None
        while True:
            asked_ms = self.runtime.monotonic_ms()
            try:
                with cluster.client() as client:
                    result = client.query(query)
                wrong, stats, table = difference(result.table, expected), dict(result.stats), result.table
                break
            except BallistaError as error:
                retries, last_error = retries + 1, str(error)
                if self.runtime.monotonic_ms() - started_ms > RETRY_FOR_MS:
                    wrong, stats, table = f"no answer: {last_error}", {}, None
                    break
                self.runtime.sleep_ms(RETRY_EVERY_MS)
        took_ms = self.runtime.monotonic_ms() - asked_ms
        answer = QueryOutcome(
            name=name, wrong=wrong, took_ms=took_ms, stats=stats, retries=retries, last_error=last_error
        )
        return answer, table

    def _show(self, answer: QueryOutcome, table: pa.Table | None) -> None:
        verdict = "[green]right[/green]" if answer.wrong is None else f"[red]WRONG: {escape(answer.wrong)}[/red]"
        touched, shipped = _touched(answer)
        self.console.print(
            f"[bold]{answer.name}[/bold] {verdict}, {answer.took_ms:.0f} ms, {touched}, {shipped} shipped",
            highlight=False,
        )
        if answer.retries:
            self.console.print(
                f"  asked {answer.retries + 1} times, last error: {escape(answer.last_error or '')}"
            )
        if table is not None:
            self.console.print(_head(table))

    def _summary(self, first: list[QueryOutcome], second: list[QueryOutcome], took_over_ms: float) -> None:
        table = Table(
            "query", "before ms", "partitions", "executors", "shipped", "after ms", "retries", "answers",
            title=f"TPC-H scale {self.scale:g}; take-over {took_over_ms / 1e3:.1f} s",
        )  # fmt: skip
        for before, after in zip(first, second, strict=True):
            right = before.wrong is None and after.wrong is None
            stats = before.stats
            table.add_row(
                before.name,
                f"{before.took_ms:.0f}",
                f"{stats.get('partitions', 0)} of {stats.get('partitions_total', 0)}",
                str(len(stats.get("executors", ()))),
                _size(stats.get("shipped_bytes", 0)),
                f"{after.took_ms:.0f}",
                str(after.retries),
                "[green]right[/green]" if right else "[red]WRONG[/red]",
            )
        self.console.print(table)

    def _say_how_to_go_on(self, cluster: LocalCluster, folder: Path) -> None:
        address = cluster.addresses()[0]
        pids = " ".join(str(cluster.pid(node)) for node in cluster.node_ids if node not in VICTIMS)
        self.console.print(
            f"The cluster stays up. Query it:\n\n"
            f'  ballista-py sql --connect {address} "select count(*) from lineitem"\n'
            f"  ballista-py members --connect {address}\n\n"
            f"End it:  kill {pids}; rm -r {folder}",
            highlight=False,
            soft_wrap=True,
            markup=False,
        )

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


def _expected(data: Path) -> dict[str, pa.Table]:
    """DuckDB's answers over the files as they were generated."""
    with duckdb.connect() as connection:
        for table in TABLES:
            connection.read_parquet(str(data / f"{table}.parquet")).create_view(table)
        return {name: connection.sql(query).to_arrow_table() for name, query in QUERIES.items()}


def _touched(answer: QueryOutcome) -> tuple[str, str]:
    stats = answer.stats
    executors = len(stats.get("executors", ()))
    partitions = f"{stats.get('partitions', 0)} of {stats.get('partitions_total', 0)} partitions"
    return f"{partitions} on {executors} executors", _size(stats.get("shipped_bytes", 0))


def _head(table: pa.Table) -> Table:
    names = table.column_names[:MAX_SHOWN_COLUMNS]
    shown = Table(*(escape(name) for name in names), *(["…"] if len(names) < table.num_columns else []))
    for row in table.slice(0, HEAD_ROWS).to_pylist():
        shown.add_row(*(escape(str(row[name])) for name in names))
    return shown


def _size(count: float) -> str:
    """Bytes in words.

    >>> _size(1_234), _size(5_600_000)
    ('1.2 kB', '5.6 MB')
    """
    if count < 1_000:
        return f"{count:.0f} B"
    return f"{count / 1e3:.1f} kB" if count < 1e6 else f"{count / 1e6:.1f} MB"
