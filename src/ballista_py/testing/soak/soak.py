"""Writers, changers and readers of one table while nodes are killed; in the end every row is counted.

The workload knows what every statement must have done: a statement that was acknowledged counts once, one that
failed is sent again with its token until it is acknowledged, and every row says which statement made it. So the rows
that are left must be exactly those, each once, and no query may count fewer or more than can be there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeVar, cast

import pyarrow as pa
from attrs import frozen

from ballista_py.errors import BallistaError
from ballista_py.partitions.map import PartitionMap
from ballista_py.runtime import Runtime, seeded_chance
from ballista_py.state.documents.documents import CLUSTER_KEY, ClusterDocument
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.ownership.partition_store import PartitionStore
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.storage.upkeep.verify import verify_table
from ballista_py.testing.soak.ledger import Ledger, Row
from ballista_py.testing.soak.mischief import Mischief, MischiefClient, Processes
from ballista_py.testing.soak.soak_report import SoakReport

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("writer", pa.int32()), ("version", pa.int64())])
ROWS_PER_STATEMENT = 50
SETTLE_MS = 120_000.0
AGAIN_MS = 200.0
TWO_AT_ONCE = 0.25
MOVED_FURTHER = 1_000_000_000

T = TypeVar("T")


class SoakClient(Protocol):
    """What a writer or reader does; `ballista_py.Client` is one."""

    def __enter__(self) -> SoakClient: ...
    def __exit__(self, *exc: object) -> None: ...
    def sql(self, query: str, *, token: str | None = None, atomic: bool = False) -> pa.Table: ...
    def ingest(self, table: str, data: pa.Table, *, token: str | None = None, atomic: bool = False) -> int: ...


class SoakCluster(Protocol):
    """What is put under load; `LocalCluster` is one. `client` may raise while no scheduler runs.

    Of `node_ids` the later ones may need earlier ones to come up.
    """

    @property
    def node_ids(self) -> tuple[str, ...]: ...
    def client(self) -> SoakClient: ...
    def kill(self, node_id: str) -> None: ...
    def start(self, node_id: str) -> object: ...


@frozen
class Load:
    """How long the load lasts, how often nodes are killed and how long they stay away at most.

    `writers` and a reader run at the same time. Each of the `killers` has its share of the nodes; once in four times it
    kills two of them at once, and it waits until they have come back. With `mischief_lease_ms`, the time to live of a
    lease, there is mischief besides (`soak_mischief`).
    """

    duration_ms: float
    kill_every_ms: float = 2_500.0
    down_ms: float = 3_000.0
    writers: int = 3
    killers: int = 2
    seed: int = 0
    mischief_lease_ms: float | None = None


class Soak:
    """One run against one table of the cluster with the columns of `SCHEMA`, which exists and is empty.

    `store` is the state location of the cluster. `run_all` runs functions at the same time, on threads, and returns
    when all have ended. With `jump`, which sets the wall clock of a node so many seconds ahead, the mischief has
    clocks that jump.
    """

    def __init__(
        self,
        cluster: SoakCluster,
        store: ConditionalStore,
        table: str,
        load: Load,
        runtime: Runtime,
        run_all: Callable[[Sequence[Callable[[], None]]], object],
        jump: Callable[[str, float], None] | None = None,
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._table = table
        self._load = load
        self._runtime = runtime
        self._run_all = run_all
        self._jump = jump
        self._ledger = Ledger(runtime)
        self._lock = runtime.lock()
        self._report = SoakReport()
        self._until_ms = 0.0

    def run(self) -> SoakReport:
        """Run the load, let everything come back, compare the rows and read every file back."""
        started_ms = self._runtime.monotonic_ms()
        self._until_ms = started_ms + self._load.duration_ms
        owners_before = self._changes_of_owner()
        writers = [partial(self._write, n) for n in range(self._load.writers)]
        killers = [partial(self._kill, n) for n in range(self._load.killers)]
        mischief = self._mischief()
        self._run_all([*writers, self._read, *killers, *mischief])
        self._compare()
        self._verify()
        self._report.takeovers = self._changes_of_owner() - owners_before
        self._report.seconds = (self._runtime.monotonic_ms() - started_ms) / 1e3
        return self._report

    def _mischief(self) -> list[Callable[[], None]]:
        if self._load.mischief_lease_ms is None:
            return []
        made = Mischief(
            table=self._table,
            nodes=cast(Processes, self._cluster),
            runtime=self._runtime,
            over=self._over,
            until_acknowledged=self._until_done,
            count=lambda name: self._count(name, 1),
            wrong=self._found_wrong,
            lease_ms=self._load.mischief_lease_ms,
            jump=self._jump,
            seed=self._load.seed,
        )
        return [
            made.stop_and_go,
            made.set_clocks,
            made.make_and_drop,
            made.replace,
            made.look_at_replaced,
            made.refresh,
        ]

    def _until_done(self, do: Callable[[MischiefClient], object]) -> object:
        return self._until_acknowledged("", lambda client, _token: do(cast(MischiefClient, client)))

    def _over(self) -> bool:
        return self._runtime.monotonic_ms() >= self._until_ms

    def _write(self, writer: int) -> None:
        chance = seeded_chance(self._load.seed * 1_000 + writer)
        number = 0
        mine: dict[int, Row] = {}
        while not self._over():
            number += 1
            kind = chance.choice(["insert", "insert", "update", "delete", "move"]) if mine else "insert"
            if kind == "insert":
                first = (number * self._load.writers + writer) * ROWS_PER_STATEMENT
                ids = list(range(first, first + ROWS_PER_STATEMENT))
                rows = pa.table([ids, [writer] * len(ids), [number] * len(ids)], schema=SCHEMA)
                send = partial(_ingest, self._table, rows)
                after = mine | dict.fromkeys(ids, (writer, number))
            else:
                low = chance.choice(sorted(mine))
                ids = [i for i in mine if low <= i < low + ROWS_PER_STATEMENT // 2]
                text, after = self._change(kind, ids, mine, (writer, number))
                send = partial(_sql, text)
            added = len(ids) if kind in ("insert", "move") else 0
            removed = len(ids) if kind in ("delete", "move") else 0
            self._ledger.begin(added=added, removed=removed)
            token = f"soak-{self._load.seed}-{writer}-{number}"
            affected = self._until_acknowledged(token, partial(send, chance.random() < 0.5))
            self._ledger.done(added=added, removed=removed)
            if affected != len(ids):
                self._found_wrong(f"{kind} of {len(ids)} rows was acknowledged with {affected}")
            self._count(f"{kind}s", len(ids))
            self._count("statements", 1)
            mine = after
        self._ledger.keep(mine)

    def _change(
        self, kind: str, ids: Sequence[int], mine: Mapping[int, Row], by: Row
    ) -> tuple[str, dict[int, Row]]:
        """The statement that does this to rows of a writer, and the rows that it leaves."""
        where = f"id in ({', '.join(map(str, ids))})"
        if kind == "update":
            return f"update {self._table} set version = {by[1]} where {where}", {**mine, **dict.fromkeys(ids, by)}
        chosen = set(ids)
        if kind == "delete":
            return f"delete from {self._table} where {where}", {i: r for i, r in mine.items() if i not in chosen}
        step = MOVED_FURTHER * (1 + by[1])
        moved = {i + step if i in chosen else i: row for i, row in mine.items()}
        return f"update {self._table} set id = id + {step} where {where}", moved

    def _until_acknowledged(self, token: str, send: Callable[[SoakClient, str], T]) -> T:
        give_up_ms = self._until_ms + SETTLE_MS
        while True:
            try:
                with self._cluster.client() as client:
                    return send(client, token)
            except BallistaError as error:
                self._saw(error)
                if self._runtime.monotonic_ms() > give_up_ms:
                    raise
            self._count("resent", 1)
            self._runtime.sleep_ms(AGAIN_MS)

    def _read(self) -> None:
        """A count of all rows is never short or long: every query covers every partition once, or fails."""
        while not self._over():
            before = self._ledger.sums()
            try:
                with self._cluster.client() as client:
                    counted = client.sql(f"select count(*) as n, count(distinct id) as d from {self._table}")
                rows, ids = (column[0].as_py() for column in counted.columns)
                self._count("queries", 1)
                wrong = self._ledger.wrong_count(rows, before)
                if wrong is not None:
                    self._found_wrong(wrong)
                if rows != ids:
                    self._found_wrong(f"a query counted {rows} rows with {ids} ids")
            except BallistaError as error:
                self._saw(error)
            self._runtime.sleep_ms(AGAIN_MS)

    def _kill(self, killer: int) -> None:
        chance = seeded_chance(self._load.seed * 1_000 - killer)
        share = list(self._cluster.node_ids)[killer :: self._load.killers]
        while True:
            self._runtime.sleep_ms(self._load.kill_every_ms * (0.5 + chance.random()))
            if self._over():
                return
            nodes = chance.sample(share, min(len(share), 2 if chance.random() < TWO_AT_ONCE else 1))
            for node in nodes:
                self._cluster.kill(node)
                self._count("kills", 1)
            self._runtime.sleep_ms(self._load.down_ms * chance.random())
            for node in sorted(nodes, key=self._cluster.node_ids.index):  # schedulers let executors in
                self._bring_back(node)

    def _bring_back(self, node: str) -> None:
        """Start a node until it is a member again; one that never is, is wrong."""
        give_up_ms = self._until_ms + SETTLE_MS
        while True:
            try:
                self._cluster.start(node)
                return
            except BallistaError as error:
                self._saw(error)
                if self._runtime.monotonic_ms() > give_up_ms:
                    self._found_wrong(f"{node} did not come back: {error}")
                    return
                self._cluster.kill(node)

    def _compare(self) -> None:
        text = f"select id, writer, version from {self._table}"
        found = self._until_acknowledged("", lambda client, _token: client.sql(text))
        rows = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
        self._report.rows_left = len(rows)
        for wrong in self._ledger.compare(rows):
            self._found_wrong(wrong)

    def _verify(self) -> None:
        spec = ObjectState(self._store, CLUSTER_KEY, ClusterDocument).read().document.tables[self._table]
        pmap = self._map()
        found = verify_table(self._store, spec, [pmap.path(p) for p in pmap.ids().tolist()])
        self._report.files_left = found.files
        for problem in found.problems:
            self._found_wrong(f"partition {problem.partition}: {problem.reason}")

    def _map(self) -> PartitionMap:
        return PartitionStore(self._store).read(self._table)

    def _changes_of_owner(self) -> int:
        pmap = self._map()
        return sum(pmap.epoch(partition) for partition in pmap.ids().tolist())

    def _saw(self, error: BallistaError) -> None:
        with self._lock:
            self._report.errors[error.code] = self._report.errors.get(error.code, 0) + 1
            self._report.said.setdefault(error.code, str(error))

    def _found_wrong(self, what: str) -> None:
        with self._lock:
            self._report.wrong.append(what)

    def _count(self, name: str, more: int) -> None:
        with self._lock:
            setattr(self._report, name, getattr(self._report, name) + more)


def _ingest(table: str, rows: pa.Table, atomic: bool, client: SoakClient, token: str) -> int:
    return client.ingest(table, rows, token=token, atomic=atomic)


def _sql(text: str, atomic: bool, client: SoakClient, token: str) -> int:
    return int(client.sql(text, token=token, atomic=atomic).column("affected_rows")[0].as_py())
