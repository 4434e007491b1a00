"""Writes while nodes die or stop at one chosen request: applied once in the end, or in no partition.

The nodes keep their state on moto's S3 server, which holds a request before or after it is carried out, so that the
instant at which something fails is known.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa
import pytest

from ballista_py import LocalCluster, connect
from ballista_py.errors import WriteIncomplete
from ballista_py.runtime import SystemRuntime
from ballista_py.state.ownership.partition_store import PartitionStore
from ballista_py.state.stores.store import open_store
from ballista_py.testing import TcpProxy

pytestmark = pytest.mark.cluster

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
ROWS = 40
PATIENCE_S = 60
MANIFEST = r"PUT .*/snapshots/{table}-.*/manifest\.json"
DECISION = r"PUT .*/accelerations/commits/{table}-.*\.json"


class Held:
    """The first request of a kind, held until it is let go; `lose` closes its connection instead of an answer."""

    def __init__(self, pattern: str, after: bool, skip: int) -> None:
        self.after = after
        self.met = threading.Event()
        self._pattern = re.compile(pattern)
        self._skip = skip
        self._go = threading.Event()
        self._lost = False

    def wants(self, request: str) -> bool:
        if self.met.is_set() or self._pattern.fullmatch(request) is None:
            return False
        self._skip -= 1
        return self._skip < 0

    def hold(self) -> bool:
        """Wait; whether the request goes on."""
        self.met.set()
        self._go.wait(PATIENCE_S)
        return not self._lost

    def let_go(self) -> None:
        self._go.set()

    def lose(self) -> None:
        self._lost = True
        self._go.set()


class Gate:
    """A WSGI application in front of another one."""

    def __init__(self, application) -> None:
        self._application = application
        self._lock = threading.Lock()
        self._held: list[Held] = []

    def hold(self, pattern: str, *, after: bool = False, skip: int = 0) -> Held:
        """Hold the first request (after `skip` others) whose method and path are of this form."""
        found = Held(pattern, after, skip)
        self._held.append(found)
        return found

    def __call__(self, environment, start):
        request = f"{environment['REQUEST_METHOD']} {environment['PATH_INFO']}"
        with self._lock:
            held = next((held for held in self._held if held.wants(request)), None)
        if held is not None and not held.after and not held.hold():
            raise ConnectionAbortedError
        with self._lock:
            answer = list(self._application(environment, start))
        if held is not None and held.after and not held.hold():
            raise ConnectionAbortedError
        return answer


@pytest.fixture(scope="module")
def gate():
    import boto3
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Prompt(WSGIRequestHandler):
        disable_nagle_algorithm = True

        def connection_dropped(self, error, environ=None) -> None:
            self.close_connection = True

    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    found = Gate(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, found, threaded=True, request_handler=Prompt)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    environment = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        boto3.client("s3").create_bucket(Bucket="gated")
        yield found
    server.shutdown()
    thread.join()


@pytest.fixture(scope="module")
def cluster(gate) -> Iterator[LocalCluster]:
    with LocalCluster(2, 2, "s3://gated/state", ttl_ms=1_500) as made:
        yield made


@pytest.fixture
def table(cluster, request) -> Iterator[str]:
    name = f"w{abs(hash(request.node.name)) % 10**8}"
    cluster.create_table(name, schema=SCHEMA, partition_by=["bucket(2, id)"])
    yield name
    cluster.drop_table(name)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as made:
        yield made


def rows() -> pa.Table:
    return pa.table({"id": range(ROWS), "v": [1] * ROWS}, schema=SCHEMA)


def write(cluster: LocalCluster, pool: ThreadPoolExecutor, table: str, *, atomic: bool = False) -> Future[int]:
    """A statement under way, through the first scheduler, repeated by its client as clients do."""

    def run() -> int:
        until = time.monotonic() + PATIENCE_S
        with connect(",".join(cluster.addresses())) as client:
            while True:
                try:
                    return client.ingest(table, rows(), token="the one", atomic=atomic)
                except (
                    WriteIncomplete
                ):  # owners took longer to come back than the client waits: sent again, as it says
                    if time.monotonic() > until:
                        raise

    return pool.submit(run)


def seen(cluster: LocalCluster, table: str) -> tuple[int, int]:
    """Rows and distinct keys, asked again while owners change."""
    runtime = SystemRuntime()
    for _ in range(200):
        try:
            (row,) = cluster.sql(f"select count(*) as n, count(distinct id) as d from {table}").to_pylist()
        except Exception:
            runtime.sleep_ms(250)
        else:
            return row["n"], row["d"]
    raise AssertionError("the table cannot be read")


def owner_of(table: str, partition: int = 0) -> tuple[str, str]:
    owner = PartitionStore(open_store("s3://gated/state")).read(table).owner(partition)
    assert owner is not None
    return owner


def start_again(cluster: LocalCluster, node: str) -> None:
    cluster.start(node)
    cluster.wait_until_loaded()


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(False, id="before the commit"),
        pytest.param(True, id="after it, unheard", marks=pytest.mark.long),
    ],
)
def test_an_owner_that_dies_at_its_commit_leaves_every_row_there_once(cluster, gate, table, pool, after):
    held = gate.hold(MANIFEST.format(table=table), after=after)
    running = write(cluster, pool, table)
    assert held.met.wait(PATIENCE_S)
    owners = {owner_of(table, partition)[0] for partition in (0, 1)}
    for owner in sorted(owners):
        cluster.kill(owner)
    held.lose()
    for owner in sorted(owners):
        cluster.start(owner)
    assert running.result(PATIENCE_S) == ROWS
    assert seen(cluster, table) == (ROWS, ROWS)
    cluster.wait_until_loaded()


def test_a_commit_whose_reply_is_lost_is_found_to_have_landed(cluster, gate, table, pool):
    held = gate.hold(MANIFEST.format(table=table), after=True)
    running = write(cluster, pool, table)
    assert held.met.wait(PATIENCE_S)
    held.lose()
    assert running.result(PATIENCE_S) == ROWS
    assert seen(cluster, table) == (ROWS, ROWS)


def test_a_client_whose_link_is_cut_after_the_commit_sends_again_and_doubles_nothing(cluster, gate, table, pool):
    def spawn(run) -> None:
        threading.Thread(target=run, daemon=True).start()

    with TcpProxy(cluster.addresses()[0], spawn) as proxy:

        def ingest() -> int:
            with connect(proxy.address) as client:
                client._schedulers.addresses = (
                    proxy.address,
                )  # the cluster's own addresses would lead around the proxy
                return client.ingest(table, rows(), token="the one")

        held = gate.hold(MANIFEST.format(table=table), after=True)
        running = pool.submit(ingest)
        assert held.met.wait(PATIENCE_S)
        proxy.mood = "cut"
        held.let_go()
        SystemRuntime().sleep_ms(500)
        proxy.mood = "pass"
        assert running.result(PATIENCE_S) == ROWS
    assert seen(cluster, table) == (ROWS, ROWS)


@pytest.mark.long
def test_a_scheduler_that_dies_amid_a_statement_is_replaced_by_another(cluster, gate, table, pool):
    held = gate.hold(MANIFEST.format(table=table))
    running = write(cluster, pool, table)
    assert held.met.wait(PATIENCE_S)
    cluster.kill("scheduler-1")
    held.let_go()
    assert running.result(PATIENCE_S) == ROWS
    assert seen(cluster, table) == (ROWS, ROWS)
    start_again(cluster, "scheduler-1")


@pytest.mark.long
def test_an_owner_paused_beyond_its_lease_amid_a_commit_commits_nothing_when_it_wakes(cluster, gate, table, pool):
    held = gate.hold(MANIFEST.format(table=table))
    running = write(cluster, pool, table)
    assert held.met.wait(PATIENCE_S)
    before = owner_of(table)
    stopped = cluster.pid(before[0])
    os.kill(stopped, signal.SIGSTOP)
    try:
        for _ in range(300):
            if owner_of(table) != before:
                break
            SystemRuntime().sleep_ms(100)
        assert owner_of(table) != before
        assert seen(cluster, table)[0] in (0, ROWS // 2, ROWS)
        held.let_go()  # the commit that was under way reaches the store only now
    finally:
        os.kill(stopped, signal.SIGCONT)
    assert running.result(PATIENCE_S) == ROWS
    assert seen(cluster, table) == (ROWS, ROWS)
    cluster.wait_until_loaded()


@pytest.mark.parametrize(
    ("pattern", "after", "skip", "decided"),
    [
        pytest.param(MANIFEST, False, 0, False, marks=pytest.mark.long, id="preparing"),
        pytest.param(MANIFEST, True, 1, False, marks=pytest.mark.long, id="prepared"),
        # The first request makes the document of decisions, the second is the decision.
        pytest.param(DECISION, False, 1, False, marks=pytest.mark.long, id="deciding"),
        pytest.param(DECISION, True, 1, True, id="decided"),
        pytest.param(MANIFEST, False, 2, True, marks=pytest.mark.long, id="folding"),
        pytest.param(MANIFEST, True, 2, True, marks=pytest.mark.long, id="half folded"),
    ],
)
def test_an_atomic_statement_whose_scheduler_dies_is_all_there_or_not_at_all(
    cluster, gate, table, pool, pattern, after, skip, decided
):
    held = gate.hold(pattern.format(table=table), after=after, skip=skip)
    alone = cluster.addresses()[0]

    def once() -> int:
        with connect(alone) as client:
            client._schedulers.addresses = (alone,)  # nobody sends it again
            return client.ingest(table, rows(), token="the one", atomic=True)

    running = pool.submit(once)
    assert held.met.wait(PATIENCE_S)
    cluster.kill("scheduler-1")
    if pattern is DECISION:
        held.lose()
    else:
        held.let_go()
    assert seen(cluster, table) in ([(ROWS, ROWS)] if decided else [(0, 0), (ROWS, ROWS)])
    assert write(cluster, pool, table, atomic=True).result(PATIENCE_S) == ROWS
    assert seen(cluster, table) == (ROWS, ROWS)
    start_again(cluster, "scheduler-1")  # whose client, if it still tries, finds that all is done
    assert running.exception(PATIENCE_S) is not None or running.result() == ROWS
    assert seen(cluster, table) == (ROWS, ROWS)


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param(r"PUT .*/snapshots/{table}-.*/manifest\.json", id="while the rows are written"),
        pytest.param(
            r"PUT .*/accelerations/partitions/{table}\.json", id="before the name", marks=pytest.mark.long
        ),
    ],
)
def test_a_table_whose_maker_dies_is_seen_by_nobody_and_made_when_it_is_asked_for_again(
    cluster, gate, table, pool, pattern
):
    cluster.ingest(table, rows())
    made = f"{table}made"
    make = f"create table {made} partitioned by (bucket(2, id)) as select * from {table}"
    alone = cluster.addresses()[0]
    held = gate.hold(pattern.format(table=made))

    def once() -> None:
        with connect(alone) as client:
            client._schedulers.addresses = (alone,)  # nobody sends it again
            client.sql(make, token="made")

    running = pool.submit(once)
    assert held.met.wait(PATIENCE_S)
    cluster.kill("scheduler-1")
    held.lose()
    assert made not in {row["table"] for row in cluster.client().tables()}
    with connect(cluster.addresses()[0]) as client:
        assert client.sql(make, token="made").to_pylist() == [{"affected_rows": ROWS}]
    assert seen(cluster, made) == (ROWS, ROWS)
    start_again(cluster, "scheduler-1")
    running.exception(PATIENCE_S)
    assert seen(cluster, made) == (ROWS, ROWS)
    cluster.drop_table(made)
