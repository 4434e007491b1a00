"""Everything that the kit's hostile client knows, against a cluster of real processes."""

import subprocess
import sys

import pyarrow as pa
import pytest

from ballista_py import LocalCluster
from ballista_py.testing.hostile.messages import MESSAGES
from ballista_py.testing.hostile_client import ATTACKS, hostile_client

pytestmark = pytest.mark.cluster
HARMLESS = {
    "zstd-bomb/ingest", "schema-twice/handle", "command-nul/info",
    "method-Handshake/nothing", "method-Handshake/garbage",  # nobody is asked here, and nothing of it is read
}  # fmt: skip


@pytest.fixture(scope="module")
def victim():
    with LocalCluster(schedulers=1, executors=1) as cluster:
        with cluster.client() as client:
            cluster.sql("create table kept (id bigint) partitioned by (bucket(2, id))")
            client.ingest("kept", pa.table({"id": range(100)}))
        yield cluster


def test_no_hostile_message_ends_a_scheduler_or_brings_memory_back(victim):
    before = victim.pid("scheduler-1"), victim.pid("executor-1")
    results = list(hostile_client(f"ballista://{victim.addresses()[0]}"))
    assert len(results) == len(ATTACKS) > 4 * len(MESSAGES)
    wrong = [str(found) for found in results if found.verdict not in ("refused", "accepted")]
    assert not wrong
    taken = {found.attack.name for found in results if found.verdict == "accepted"}
    assert taken <= HARMLESS
    assert (victim.pid("scheduler-1"), victim.pid("executor-1")) == before
    assert victim.sql("select count(*) as n from kept").to_pylist() == [{"n": 100}]


def test_what_is_refused_is_refused_in_one_line_without_a_traceback(victim):
    chosen = [attack for attack in ATTACKS if attack.name.startswith(("offsets-", "rows-", "opaque-"))]
    for found in hostile_client(f"ballista://{victim.addresses()[0]}", attacks=chosen):
        assert found.verdict == "refused"
        assert "internal error" not in found.said
        assert "Traceback" not in found.said


def test_the_command_line_prints_a_line_for_each_attack(victim):
    command = [sys.executable, "-m", "ballista_py.testing.hostile_client", f"ballista://{victim.addresses()[0]}"]
    ran = subprocess.run([*command, "--only", "offsets-far/"], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0
    lines = ran.stdout.splitlines()
    assert len(lines) == 4
    assert all(line.startswith("refused ") for line in lines)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nonsense"], "'nonsense' is not an address"),
        (["ballista+tls://127.0.0.1:1", "--ca-file", "/nope"], "/nope cannot be read"),
        (["ballista://127.0.0.1:1"], "no scheduler answers at ballista://127.0.0.1:1"),
        (["ballista://127.0.0.1:1", "--only", "no such"], "no attack whose name holds 'no such'"),
    ],
)
def test_the_command_line_says_in_one_line_what_is_wrong_with_it(arguments, said):
    program = [sys.executable, "-m", "ballista_py.testing.hostile_client", *arguments]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
