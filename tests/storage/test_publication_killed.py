"""A publishing process killed with `kill -9` at every one of its requests to a store of files."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from ballista_py.state.documents.decisions import TableDecisions
from ballista_py.state.stores.local import LocalStore
from ballista_py.storage.manifest import DataFile
from ballista_py.storage.partition_storage import PartitionStorage
from ballista_py.storage.publication import Publication, visible_files

PATHS = [f"expr0={number}" for number in range(3)]


class KilledAt:
    """A store whose process is killed before its request `number`."""

    def __init__(self, store: LocalStore, number: int) -> None:
        self._store, self._left = store, number

    def __getattr__(self, name: str):
        verb = getattr(self._store, name)
        if name not in ("get", "get_if_changed", "create", "replace", "list"):
            return verb

        def counted(*arguments):
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return verb(*arguments)

        return counted


def publish(store, run: str, token: str) -> None:
    runs = Publication(store, "t")
    files = {path: [DataFile(path=f"snapshots/t/data/{run}/{path}", rows=1, bytes=9)] for path in PATHS}
    runs.publish(runs.begin(PATHS, token=token), files, attempt=run, token=token, position=run)


def seen(store) -> set[str]:
    """The runs whose files a reader sees."""
    decisions = TableDecisions(store, "t").read()
    manifests = [PartitionStorage(store, "t", path).read().document for path in PATHS]
    found = [file.path for manifest in manifests for file in visible_files(manifest, decisions)]
    assert len(found) == len(PATHS)
    return {path.split("/")[3] for path in found}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that are copies of this one")
def test_a_driver_killed_at_any_request_leaves_all_old_or_all_new_and_the_next_run_completes(tmp_path: Path):
    outcomes: list[bool] = []
    for number in range(1, 100):
        store = LocalStore(str(tmp_path / str(number)))
        publish(store, "old", "first")
        child = os.fork()
        if child == 0:
            publish(KilledAt(LocalStore(str(tmp_path / str(number))), number), "new", "second")
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            break
        after = seen(store)
        assert after in ({"old"}, {"new"}), number
        outcomes.append(after == {"new"})
        publish(store, "again", "second")
        assert seen(store) == ({"new"} if outcomes[-1] else {"again"}), number
    assert len(outcomes) > 15
    assert outcomes == sorted(outcomes)
    assert {True, False} == set(outcomes)
