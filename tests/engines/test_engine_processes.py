"""Processes of an engine that do not start: nothing of them stays, and the next statement may have one."""

from __future__ import annotations

import errno
import os

import pytest

from ballista_py.engines.apart.workers import Workers
from ballista_py.errors import ConfigError, TryLater
from ballista_py.node import engine_processes
from ballista_py.node.engine_processes import EngineProcess, own_bytes
from ballista_py.runtime import SystemRuntime

RUNTIME = SystemRuntime()


def refused(*_words, **_options):
    raise OSError(errno.ENOSPC, "No space left on device")


def open_files():
    return len(os.listdir("/dev/fd"))


def test_a_process_that_does_not_start_leaves_nothing_and_a_folder_that_went_away_is_made_again(
    tmp_path, monkeypatch
):
    home = tmp_path / "workers"
    with monkeypatch.context() as broken:
        broken.setattr(engine_processes.subprocess, "Popen", refused)
        before = open_files()
        for _ in range(5):
            with pytest.raises(OSError, match="No space left"):
                EngineProcess(str(home), RUNTIME)
        assert open_files() == before
        assert list(home.iterdir()) == []
    home.rmdir()
    process = EngineProcess(str(home), RUNTIME)
    process.kill()
    process.remove()
    assert list(home.iterdir()) == []


def test_a_statement_whose_process_cannot_start_is_to_be_sent_again():
    workers = Workers(refused, 1 << 30, own_bytes, RUNTIME)
    with pytest.raises(TryLater, match=r"could not start a process for the statement \(No space left on device\)"):
        workers._free_worker(is_trial=False)


def test_a_node_whose_folder_for_its_processes_cannot_be_made_says_so(tmp_path):
    (tmp_path / "data").write_text("a file")
    with pytest.raises(ConfigError, match="workers' cannot be used: "):
        engine_processes.workers_folder(str(tmp_path / "data"))
