"""Nodes that are forks of a template live and end as processes that were started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from ballista_py.node.local.forked import Template
from ballista_py.node.local.processes import NodeProcess

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere nodes are not forked")
WRONG = ["node", "--role", "scheduler", "--node-id", "s", "--state-location", "nowhere://x"]


@pytest.fixture(scope="module")
def template():
    return Template()


def words_of(folder: Path) -> list[str]:
    """Of a scheduler that nobody joins."""
    words = ["node", "--role", "scheduler", "--node-id", "s9", "--state-location", (folder / "state").as_uri()]
    words += ["--flight-port", "0", "--control-port", "0", "--http-port", "0", "--metrics-port", "0"]
    return [*words, "--allow-insecure-connections", "--data-dir", str(folder / "data")]


def alive(template, folder: Path):
    (folder / "log").touch()
    node = template.start("s9", words_of(folder), folder / "log", folder)
    assert node is not None
    until = time.monotonic() + 60
    while " ports node=s9 " not in (log := (folder / "log").read_text()):
        assert node.poll() is None, log
        assert time.monotonic() < until, log
        time.sleep(0.05)
    return node


def test_one_says_what_it_says_ends_as_it_ends_and_has_a_name(template, tmp_path):
    node = template.start("s", WRONG, tmp_path / "wrong", tmp_path)
    assert node.wait(60) == node.returncode == node.poll() == 1
    assert (tmp_path / "wrong").read_text().startswith("error: ")
    assert [template.ended(node.pid, template._of[1]) for _ in range(2)] == [1, 1], (
        "of two threads that ask at once"
    )
    node = alive(template, tmp_path)
    assert psutil.Process(node.pid).name() == "s9"
    assert os.getsid(node.pid) == node.pid
    with pytest.raises(subprocess.TimeoutExpired):
        node.wait(0.05)
    node.kill()
    assert node.wait(60) == -signal.SIGKILL
    node.kill()


def test_one_that_is_told_to_stop_hands_over_and_ends_with_0(template, tmp_path):
    node = alive(template, tmp_path)
    os.kill(node.pid, signal.SIGTERM)
    assert node.wait(60) == 0
    assert "stopped" in (tmp_path / "log").read_text()


def test_it_ends_with_its_template_and_the_next_one_has_another(template, tmp_path):
    other, folder = Template(), tmp_path / "other"
    folder.mkdir()
    first, second = alive(template, tmp_path), alive(other, folder)
    os.kill(other._of[1], signal.SIGKILL)
    assert second.wait(60) is not None
    assert first.poll() is None
    third = other.start("s", WRONG, folder / "log", folder)
    if third is None:  # that was when it was found out
        third = other.start("s", WRONG, folder / "log", folder)
    assert third.wait(60) == 1
    first.kill()
    first.wait(60)


def test_under_other_variables_a_node_is_started_anew_and_the_others_live_on(template, tmp_path, monkeypatch):
    node = alive(template, tmp_path)
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "changes all the time")
    assert template.start("s", WRONG, tmp_path / "wrong", tmp_path).wait(60) == 1
    monkeypatch.setenv("BALLISTA_SOMETHING", "else")
    assert template.start("s", WRONG, tmp_path / "wrong", tmp_path) is None
    started = NodeProcess("s", WRONG, tmp_path / "other.log")
    started.start()
    started.join(60)
    assert started.returncode == 1
    assert node.poll() is None
    node.kill()
    node.wait(60)


def test_a_node_ends_when_who_asked_for_it_is_gone(tmp_path):
    code = (
        "import sys, time; from pathlib import Path; from ballista_py.node.local.processes import NodeProcess\n"
        "folder = Path(sys.argv[1]); node = NodeProcess('s9', sys.argv[2:], folder / 'log'); node.start()\n"
        "print(node.pid, flush=True); time.sleep(600)"
    )
    run = [sys.executable, "-c", code, str(tmp_path), *words_of(tmp_path)]
    with subprocess.Popen(run, stdout=subprocess.PIPE, text=True) as asked:
        assert asked.stdout is not None
        node = psutil.Process(int(asked.stdout.readline()))
        assert node.is_running()
        asked.kill()
    node.wait(60)
