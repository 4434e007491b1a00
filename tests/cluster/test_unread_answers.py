"""Clients that ask for large answers over many calls and read none of them: memory is bounded, others are answered."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack

import pyarrow as pa
import pytest

from ballista_py import LocalCluster, connect
from ballista_py.errors import BallistaError

pytestmark = pytest.mark.cluster

BOUND_MB = 128
PROMISED_MB = 512
OVERLOOKED_MB = 128  # by samples of a busy machine, and shared pages that are counted in each process
STREAMS = 64
HELD_S = 6.0
TOKENS = {name: f"{name}-token-0123456789" for name in ("greedy", "grabby", "modest")}
ROWS = pa.table({"id": pa.array(range(300_000), pa.int64()), "v": [f"{n:060d}" for n in range(300_000)]})


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    tokens = tmp_path_factory.mktemp("tokens") / "tokens"
    tokens.write_text("".join(f"{name} {token}\n" for name, token in TOKENS.items()))
    options = {
        "max-merge-bytes": str(BOUND_MB << 20),
        "memory-limit": f"{BOUND_MB}MB",
        "flight-tokens-file": str(tokens),
    }
    with LocalCluster(1, 2, tls=True, token=TOKENS["modest"], node_options=options) as made:
        made.create_table("t", schema=ROWS.schema, partition_by=["bucket(4, id)"])
        made.ingest("t", ROWS)
        made.wait_until_loaded("t")
        yield made


@pytest.fixture
def largest_mb(cluster, resident_mb):
    """What the largest node takes."""
    return lambda: max(resident_mb(cluster.pid(name)) for name in cluster.node_ids)


def test_answers_that_nobody_reads_take_what_the_node_may_and_give_it_back(cluster, largest_mb):
    with cluster.client() as modest, ExitStack() as held:
        before = largest_mb()
        clients = [
            held.enter_context(connect(cluster.addresses()[0], tls=cluster.tls, token=TOKENS[name]))
            for name in ("greedy", "grabby")
            for _ in range(4)
        ]
        streams: list = []

        def ask(client) -> None:
            for _ in range(STREAMS // 4):
                try:
                    streams.append(client.stream("select * from t"))
                except BallistaError:  # the node may say that it has no room
                    continue

        threads = [threading.Thread(target=ask, args=(client,)) for client in clients]
        for thread in threads:
            thread.start()
        most, answered, until = 0, 0, time.monotonic() + HELD_S
        while time.monotonic() < until or any(thread.is_alive() for thread in threads):
            most = max(most, largest_mb())
            assert modest.sql("select count(*) as c from t where id = 5")["c"].to_pylist() == [1]
            answered += 1
            time.sleep(0.05)
        assert streams
        assert answered > 5
        assert most < BOUND_MB + PROMISED_MB + OVERLOOKED_MB
        for stream in streams:
            stream.cancel()
        end = time.monotonic() + 60
        while largest_mb() > before + 192:
            assert time.monotonic() < end
            time.sleep(0.5)


def test_who_reads_is_answered_whole_while_the_answers_of_others_are_not_read(cluster):
    with ExitStack() as held:
        greedy = held.enter_context(connect(cluster.addresses()[0], tls=cluster.tls, token=TOKENS["greedy"]))
        streams = [greedy.stream("select * from t") for _ in range(24)]
        assert cluster.sql("select * from t").num_rows == ROWS.num_rows
        assert sum(batch.num_rows for batch in streams[0].batches()) == ROWS.num_rows
        for stream in streams:
            stream.cancel()
