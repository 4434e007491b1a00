"""An executor that waits for its scheduler says so now and then; one of another cluster ends, and says why."""

import subprocess
import sys
import time

import pytest

from ballista_py import LocalCluster
from ballista_py.errors import WrongCluster
from ballista_py.transport.control.outages import Outages

pytestmark = pytest.mark.cluster


def executor(folder, addresses, log):
    ports = ("--data-port", "0", "--http-port", "0", "--metrics-port", "0", "--allow-insecure-connections")
    words = ["--state-location", (folder / "state").as_uri(), "--data-dir", str(folder / "data"), *ports]
    words += [word for address in addresses for word in ("--scheduler-address", address)]
    command = [sys.executable, "-m", "ballista_py.node", "node", "--role", "executor", "--node-id", "e9", *words]
    return subprocess.Popen(command, stdout=log, stderr=log)


@pytest.fixture(scope="module")
def foreign():
    """The control address of a scheduler of another cluster."""
    with LocalCluster(schedulers=1, executors=0) as cluster:
        yield f"127.0.0.1:{cluster.ports['scheduler-1']['control']}"


def test_an_executor_of_another_cluster_ends_with_one_line(foreign, tmp_path):
    with (tmp_path / "log").open("w+") as log:
        process = executor(tmp_path, [foreign], log)
        try:
            assert process.wait(60) == 1
        finally:
            process.kill()
        log.seek(0)
        (line,) = (line for line in log.read().splitlines() if line.startswith("error: "))
    assert f"the scheduler at {foreign} is one of another cluster" in line
    assert "--scheduler-address" in line


def test_one_that_is_waiting_for_its_own_goes_on_and_says_so_once(foreign, tmp_path):
    """One address leads to another cluster, and at the other nobody listens yet: it may be ours."""
    with (tmp_path / "log").open("w+") as log:
        process = executor(tmp_path, [foreign, "127.0.0.1:1"], log)
        try:
            deadline = time.monotonic() + 60
            while "waiting for the scheduler at 127.0.0.1:1 " not in (tmp_path / "log").read_text():
                assert time.monotonic() < deadline
                assert process.poll() is None
                time.sleep(0.05)
            time.sleep(2.5)  # it tries again several times meanwhile
            assert process.poll() is None
        finally:
            process.kill()
            process.wait()
        said = [
            line for line in (tmp_path / "log").read_text().splitlines() if "waiting for the scheduler" in line
        ]
    assert len(said) == 2  # of each address once
    assert "broke" not in "".join(said)


def test_it_is_said_again_each_minute_and_at_once_after_it_was_heard():
    outages = Outages(["a:1"])
    assert [now_ms for now_ms in range(0, 200_000, 1_000) if outages.says("a:1", now_ms)] == [
        0,
        60_000,
        120_000,
        180_000,
    ]
    assert outages.lasted_s("a:1", 180_000) == 180
    outages.heard("a:1")
    assert outages.says("a:1", 200_000)
    assert outages.lasted_s("a:1", 200_000) == 0


def test_it_is_in_vain_only_if_all_are_foreign_and_none_was_ever_heard():
    outages, foreign = Outages(["a:1", "b:1"]), WrongCluster("no")
    assert outages.failed("a:1", foreign) is None
    assert outages.failed("b:1", OSError()) is None
    assert isinstance(outages.failed("b:1", foreign), WrongCluster)
    assert outages.failed("a:1", OSError()) is None  # somebody else is there now
    assert outages.failed("b:1", foreign) is None
    outages.heard("c:1")
    assert outages.failed("a:1", foreign) is None
