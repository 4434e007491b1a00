"""Writers, changers and readers of one table while nodes are killed; in the end every row is counted.

The workload knows what every statement must have done: a statement that was acknowledged counts once, one that
failed is sent again with its token until it is acknowledged, and every row says which statement made it. So the rows
that are left must be exactly those, each once. A cluster is anything with the methods of `SoakCluster`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import pyarrow as pa
from attrs import Factory, define, frozen

from ballista_py.errors import BallistaError
from ballista_py.runtime import Runtime, seeded_chance

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("writer", pa.int32()), ("version", pa.int64())])
ROWS_PER_STATEMENT = 50
SETTLE_MS = 120_000.0
AGAIN_MS = 200.0


class SoakClient(Protocol):
    """What a writer or reader does; `ballista_py.Client` is one."""

    def sql(self, query: str, *, token: str | None = None) -> pa.Table: ...
    def ingest(self, table: str, data: pa.Table, *, token: str | None = None) -> int: ...


class SoakCluster(Protocol):
    """What is put under load; `LocalCluster` is one."""

    def client(self) -> SoakClient: ...
    def kill(self, node_id: str) -> None: ...
    def start(self, node_id: str) -> object: ...


@define
class SoakReport:
    """What a run did and found. `wrong` is empty if every acknowledged row was there exactly once.

    `errors` counts what clients saw by code, `said` has the first message of each.
    """

    seconds: float = 0.0
    statements: int = 0
    rows: int = 0
    updates: int = 0
    deletes: int = 0
    moves: int = 0
    queries: int = 0
    kills: int = 0
    resent: int = 0
    errors: dict[str, int] = Factory(dict)
    said: dict[str, str] = Factory(dict)
    wrong: list[str] = Factory(list)

    def text(self) -> str:
        """The report in one paragraph."""
        errors = ", ".join(f"{code} {count}" for code, count in sorted(self.errors.items())) or "none"
        return (
            f"{self.seconds:.0f} s, {self.kills} kills: {self.statements:,} statements acknowledged "
            f"({self.rows:,} rows in, {self.updates:,} updates, {self.deletes:,} deletes, {self.moves:,} moves), "
            f"{self.resent:,} sent again, {self.queries:,} queries; errors that clients saw: {errors}; "
            f"wrong: {'; '.join(self.wrong) or 'nothing'}"
        )


@frozen
class Load:
    """How long the load lasts, and how often a node is killed; `writers` and a reader run at the same time."""

    duration_ms: float
    kill_every_ms: float = 5_000.0
    down_ms: float = 1_500.0
    writers: int = 3
    seed: int = 0


class Soak:
    """One run against one table, which exists and is empty, with the columns of `SCHEMA`.

    `run_all` runs functions at the same time, on threads, and returns when all have ended.
    """

    def __init__(
        self,
        cluster: SoakCluster,
        table: str,
        nodes: Sequence[str],
        load: Load,
        runtime: Runtime,
        run_all: Callable[[Sequence[Callable[[], None]]], object],
    ) -> None:
        self._cluster = cluster
        self._table = table
        self._nodes = nodes
        self._load = load
        self._runtime = runtime
        self._run_all = run_all
        self._lock = runtime.lock()
        self._report = SoakReport()
        self._expected: dict[int, tuple[int, int]] = {}
        self._until_ms = 0.0

    def run(self) -> SoakReport:
        """Run the load, let everything come back, compare the rows."""
        started_ms = self._runtime.monotonic_ms()
        self._until_ms = started_ms + self._load.duration_ms
        writers = [partial(self._write, n) for n in range(self._load.writers)]
        self._run_all([*writers, self._read, self._kill])
        self._compare()
        self._report.seconds = (self._runtime.monotonic_ms() - started_ms) / 1e3
        return self._report

    def _over(self) -> bool:
        return self._runtime.monotonic_ms() >= self._until_ms

    def _write(self, writer: int) -> None:
        chance = seeded_chance(self._load.seed * 1_000 + writer)
        number = 0
        mine: dict[int, tuple[int, int]] = {}
        while not self._over():
            number += 1
            token = f"soak-{self._load.seed}-{writer}-{number}"
            kind = chance.choice(["insert", "insert", "update", "delete", "move"]) if mine else "insert"
            after = dict(mine)
            if kind == "insert":
                first = (number * self._load.writers + writer) * ROWS_PER_STATEMENT
                ids = list(range(first, first + ROWS_PER_STATEMENT))
                after |= dict.fromkeys(ids, (writer, number))
                rows = pa.table([ids, [writer] * len(ids), [number] * len(ids)], schema=SCHEMA)
                self._until_acknowledged(token, partial(_ingest, self._table, rows))
                self._count("rows", len(ids))
            else:
                low = chance.choice(sorted(mine))
                chosen = [i for i in mine if low <= i < low + ROWS_PER_STATEMENT // 2]
                where = f"id in ({', '.join(map(str, chosen))})"
                if kind == "update":
                    after |= dict.fromkeys(chosen, (writer, number))
                    text = f"update {self._table} set version = {number} where {where}"
                elif kind == "delete":
                    after = {i: row for i, row in mine.items() if i not in set(chosen)}
                    text = f"delete from {self._table} where {where}"
                else:
                    step = 1_000_000_000 * (1 + number)
                    after = {i + step if i in set(chosen) else i: row for i, row in mine.items()}
                    text = f"update {self._table} set id = id + {step} where {where}"
                self._until_acknowledged(token, partial(_sql, text))
                self._count(f"{kind}s", len(chosen))
            mine = after
            self._count("statements", 1)
        with self._lock:
            self._expected |= mine

    def _until_acknowledged(self, token: str, send: Callable[[Any, str], object]) -> None:
        give_up_ms = self._until_ms + SETTLE_MS
        while True:
            try:
                with self._cluster.client() as client:  # type: ignore[attr-defined]
                    send(client, token)
                return
            except BallistaError as error:
                self._saw(error)
                if self._runtime.monotonic_ms() > give_up_ms:
                    raise
            self._count("resent", 1)
            self._runtime.sleep_ms(AGAIN_MS)

    def _read(self) -> None:
        """A sum over all rows must never be short: every query covers every partition or fails."""
        while not self._over():
            try:
                with self._cluster.client() as client:  # type: ignore[attr-defined]
                    client.sql(f"select count(*) as n, count(distinct id) as d from {self._table}")
                self._count("queries", 1)
            except BallistaError as error:
                self._saw(error)
            self._runtime.sleep_ms(AGAIN_MS)

    def _kill(self) -> None:
        chance = seeded_chance(self._load.seed)
        while not self._over():
            self._runtime.sleep_ms(self._load.kill_every_ms * (0.5 + chance.random()))
            if self._over():
                return
            node = chance.choice(list(self._nodes))
            self._cluster.kill(node)
            self._count("kills", 1)
            self._runtime.sleep_ms(self._load.down_ms)
            self._cluster.start(node)

    def _compare(self) -> None:
        found: pa.Table | None = None
        give_up_ms = self._runtime.monotonic_ms() + SETTLE_MS
        while found is None:
            try:
                with self._cluster.client() as client:  # type: ignore[attr-defined]
                    found = client.sql(f"select id, writer, version from {self._table}")
            except BallistaError as error:
                self._saw(error)
                if self._runtime.monotonic_ms() > give_up_ms:
                    raise
                self._runtime.sleep_ms(AGAIN_MS)
        rows = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
        held = {row[0]: row[1:] for row in rows}
        doubled = len(rows) - len(held)
        missing = [i for i, row in self._expected.items() if i not in held]
        extra = [i for i in held if i not in self._expected]
        other = [i for i, row in self._expected.items() if i in held and held[i] != row]
        for name, ids in (("missing", missing), ("never acknowledged", extra), ("of another version", other)):
            if ids:
                self._report.wrong.append(f"{len(ids)} row(s) {name}, such as {sorted(ids)[:3]}")
        if doubled:
            self._report.wrong.append(f"{doubled} row(s) doubled")

    def _saw(self, error: BallistaError) -> None:
        with self._lock:
            self._report.errors[error.code] = self._report.errors.get(error.code, 0) + 1
            self._report.said.setdefault(error.code, str(error))

    def _count(self, name: str, more: int) -> None:
        with self._lock:
            setattr(self._report, name, getattr(self._report, name) + more)


def _ingest(table: str, rows: pa.Table, client: SoakClient, token: str) -> object:
    return client.ingest(table, rows, token=token)


def _sql(text: str, client: SoakClient, token: str) -> object:
    return client.sql(text, token=token)
