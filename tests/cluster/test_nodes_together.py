"""Several nodes in one process: a scheduler and an executor of `--role both`, and a whole `LocalCluster`."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress

import psutil
import pyarrow as pa
import pytest

import ballista_py
from ballista_py import LocalCluster
from ballista_py.errors import BallistaError, ConfigError
from ballista_py.node.cli.node_words import of_several, read_plainly
from ballista_py.node.config import NodeConfig
from ballista_py.node.local.processes import ReservedPorts
from ballista_py.runtime import SystemRuntime
from ballista_py.transport.security.certificates import CertificateFolder

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
ROWS = pa.table({"id": range(100), "name": [f"n{i % 7}" for i in range(100)]}, schema=SCHEMA)
ANSWER = [{"rows": 100, "names": 7}]
ASKED = "select count(*) as rows, count(distinct name) as names from t"


def fill(cluster) -> None:
    cluster.create_table("t", schema=SCHEMA, partition_by=["bucket(4, id)"])
    assert cluster.ingest("t", ROWS) == 100


@pytest.mark.parametrize("tls", [False, True])
def test_a_cluster_of_one_process_ends_and_starts_as_one(tls):
    with LocalCluster(schedulers=2, executors=2, processes="one", tls=tls) as cluster:
        fill(cluster)
        assert cluster.sql(ASKED).to_pylist() == ANSWER
        assert len({cluster.pid(name) for name in cluster.node_ids}) == 1
        assert sorted(row["node_id"] for row in cluster.members()) == sorted(cluster.node_ids)
        for name in cluster.node_ids:
            assert cluster.shown(name)["node_id"] == name
        with pytest.raises(ConfigError, match="is running already"):
            cluster.start("executor-2")
        cluster.kill("executor-1")
        with pytest.raises(BallistaError):
            cluster.sql("select 1")
        cluster.start("scheduler-2")
        cluster.wait_until_loaded("t")
        assert cluster.sql(ASKED).to_pylist() == ANSWER
        assert cluster.ingest("t", pa.table({"id": [100], "name": ["n0"]}, schema=SCHEMA)) == 1
        assert cluster.sql("select count(*) as n from t").to_pylist() == [{"n": 101}]


def test_one_process_takes_less_than_many_do():
    """Memory is no time: what nodes share is counted once for one process."""

    def resident(cluster) -> int:
        pids = {cluster.pid(name) for name in cluster.node_ids}
        return sum(psutil.Process(pid).memory_info().rss for pid in pids)

    with LocalCluster(1, 3, processes="one") as one, LocalCluster(1, 3) as each:
        assert resident(one) < resident(each) * 0.7


def test_a_word_that_is_no_way_to_start_nodes_is_refused():
    with pytest.raises(ConfigError, match="'both' is neither 'each' nor 'one'"):
        LocalCluster(processes="both")


@pytest.fixture
def ports():
    kept = ReservedPorts(2)
    yield kept.numbers()
    kept.close()


@pytest.fixture
def both(tmp_path, ports):
    """Starts a process of role both, with these words besides; ends what is left of it."""
    flight, control = ports
    started = []

    def start(*words: str) -> subprocess.Popen[bytes]:
        given = ["node", "--role", "both", "--node-id", "n1", "--state-location", (tmp_path / "state").as_uri()]
        given += ["--flight-port", str(flight), "--control-port", str(control), "--data-port", "0"]
        given += ["--parts-port", "0", "--http-port", "0", "--metrics-port", "0", "--ttl-ms", "3s"]
        given += ["--data-dir", str(tmp_path / "data"), *words]
        with (tmp_path / "log").open("ab") as log:
            command = [sys.executable, "-m", "ballista_py", *given]
            started.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log, stdout=log))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def patiently(ask, process, folder):
    """What `ask` gives, as soon as the process answers."""
    until = time.monotonic() + 90
    while process.poll() is None and time.monotonic() < until:
        with suppress(BallistaError):
            return ask()
        time.sleep(0.1)
    raise AssertionError((folder / "log").read_text())


def answered(client, process, folder) -> list:
    """What the table holds, as soon as the process answers."""
    return patiently(lambda: client.sql(ASKED).to_pylist(), process, folder)


CREATE = "create table t (id bigint not null, name varchar) partitioned by (bucket(4, id))"


def test_a_scheduler_and_an_executor_are_one_process_and_serve_alone(both, ports, tmp_path):
    process = both("--allow-insecure-connections")
    with patiently(lambda: ballista_py.connect(f"127.0.0.1:{ports[0]}"), process, tmp_path) as client:
        client.sql(CREATE, timeout=60)
        client.ingest("t", ROWS)
        assert answered(client, process, tmp_path) == ANSWER
        names = {row["node_id"] for row in client.members()}
        assert names == {"n1-scheduler", "n1-executor"}
    log = (tmp_path / "log").read_text()
    shown = re.findall(r" ports node=(\S+) http=(\d+) metrics=(\d+)", log)
    assert [name for name, *_ in shown] == ["n1-scheduler", "n1-executor"]
    assert len({port for _, *two in shown for port in two}) == 4
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["executor", "scheduler"]
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0, (tmp_path / "log").read_text()
    process = both("--allow-insecure-connections")
    with patiently(lambda: ballista_py.connect(f"127.0.0.1:{ports[0]}"), process, tmp_path) as client:
        assert answered(client, process, tmp_path) == ANSWER
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process = both("--allow-insecure-connections")
        assert answered(client, process, tmp_path) == ANSWER


def test_each_of_them_proves_itself_by_a_certificate_of_its_own(both, ports, tmp_path):
    made = CertificateFolder(tmp_path / "tls", SystemRuntime())
    made.init()
    command = [sys.executable, "-m", "ballista_py", "cluster", "tls", "add", "n1", "--role", "both"]
    done = subprocess.run(
        [*command, "--folder", str(tmp_path / "tls")], capture_output=True, text=True, check=True
    )
    words = [word for line in done.stdout.splitlines() if line.startswith("  --") for word in line.split()]
    assert [found.node_id for found in made.show()[1:]] == ["n1-executor", "n1-scheduler"]
    process = both(*words)
    tls = ballista_py.Tls(ca_file=str(made.ca_file))
    url = f"ballista://127.0.0.1:{ports[0]}"
    with patiently(lambda: ballista_py.connect(url, tls=tls), process, tmp_path) as client:
        client.sql(CREATE, timeout=60)
        client.ingest("t", ROWS)
        assert answered(client, process, tmp_path) == ANSWER


def config_of(**more):
    given = {"role": "both", "node_id": "n1", "state_location": "memory://x", "allow_insecure_connections": True}
    return NodeConfig(**{**given, **more})


def test_two_nodes_of_one_configuration_differ_where_they_must():
    scheduler, executor = config_of(data_dir="/d", scheduler_address=("b:2", "127.0.0.1:50052")).of_each()
    assert (scheduler.role, executor.role) == ("scheduler", "executor")
    assert (scheduler.node_id, executor.node_id) == ("n1-scheduler", "n1-executor")
    assert (scheduler.data_dir, executor.data_dir) == ("/d/scheduler", "/d/executor")
    assert (scheduler.http_port, executor.http_port, executor.metrics_port) == (8090, 8091, 9091)
    assert executor.scheduler_address == ("127.0.0.1:50052", "b:2")
    alone = config_of(role="scheduler")
    assert alone.of_each() == (alone,)
    assert [one.http_port for one in config_of(http_port=0).of_each()] == [0, 0]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"control_port": 0}, "control_port: the executor of role 'both' has to know it"),
        (
            {
                "node_mtls_ca_certificate_file": "ca.pem",
                "node_mtls_certificate_file": "{node_id}/certificate.pem",
                "node_mtls_key_file": "key.pem",
            },
            "node_mtls_key_file: the scheduler and the executor of role 'both' prove themselves each by its own",
        ),
    ],
)
def test_what_two_nodes_cannot_share_is_refused(more, said):
    with pytest.raises(ConfigError, match=re.escape(said)):
        config_of(**more)


def test_words_of_several_nodes_are_read_apart():
    word = [
        "--role",
        "scheduler",
        "--node-id",
        "s",
        "--state-location",
        "memory://x",
        "--allow-insecure-connections",
    ]
    calls = [read_plainly(words, {}) for words in of_several(["node", *word, "--and", *word, "--ttl-ms", "9s"])]
    assert [call.config.ttl_ms for call in calls] == [30_000, 9_000]
    wrong = [sys.executable, "-m", "ballista_py", "node", *word, "--and", *word, "--ttl-ms", "soon"]
    done = subprocess.run(wrong, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "--ttl-ms: 'soon'" in done.stderr
