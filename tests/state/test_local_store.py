"""`file://` between processes: increments that race, writers that are killed, files of strangers."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ballista_py.errors import ConfigError, StoreUnavailable
from ballista_py.state.stores import local
from ballista_py.state.stores.local import LocalStore
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.state.stores.store import local_path, open_store

LONG = (pytest.mark.long, pytest.mark.timeout(1_200))

INCREMENTS = """
import sys
from ballista_py.errors import VersionConflict
from ballista_py.state.stores.store import open_store
store = open_store(sys.argv[1])
for _ in range(int(sys.argv[2])):
    while True:
        found = store.get("counter.json")
        try:
            store.replace("counter.json", str(int(found.data) + 1).encode(), found.version)
            break
        except VersionConflict:
            pass
"""

# Writes documents of ever longer, checkable content and acknowledges each on its standard output.
VICTIM = """
import json, sys
from ballista_py.errors import VersionConflict
from ballista_py.state.stores.store import open_store
store = open_store(sys.argv[1])
while True:
    found = store.get("document.json")
    number = json.loads(found.data)["number"] + 1
    try:
        body = json.dumps({"number": number, "body": "x" * number})
        store.replace("document.json", body.encode(), found.version)
    except VersionConflict:
        continue
    sys.stdout.write(f"{number}\\n")
    sys.stdout.flush()
"""


def _start(script: str, *arguments: str) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", script, *arguments], stdout=subprocess.PIPE)


@pytest.mark.parametrize(("processes", "increments"), [(4, 60), pytest.param(8, 500, marks=LONG)])
def test_processes_that_race_lose_no_increment(tmp_path, processes, increments):
    url = f"file://{tmp_path / 'with space and ünicode'}"
    store = open_store(url)
    store.create("counter.json", b"0")
    racers = [_start(INCREMENTS, url, str(increments)) for _ in range(processes)]
    assert [racer.wait(120) for racer in racers] == [0] * processes
    assert int(store.get("counter.json").data) == processes * increments


@pytest.mark.parametrize("pairs", [20, pytest.param(100, marks=LONG)])
def test_a_killed_writer_tears_nothing_and_loses_nothing_it_acknowledged(tmp_path, pairs):
    folder = tmp_path / "with space and ünicode"
    url = f"file://{folder}"
    store = open_store(url)
    store.create("document.json", b'{"number": 0, "body": ""}')
    chance = random.Random(7)
    acknowledged = 0
    for _ in range(pairs):
        victims = [_start(VICTIM, url) for _ in range(2)]
        for victim in victims:
            acknowledged = max(acknowledged, int(victim.stdout.readline()))  # it is at work now
        time.sleep(chance.uniform(0, 0.05))
        for victim in victims:
            victim.send_signal(signal.SIGKILL)
            lines = victim.stdout.read().split(b"\n")[:-1]
            acknowledged = max([acknowledged, *map(int, lines)])
            victim.wait()
            victim.stdout.close()
        found = json.loads(store.get("document.json").data)
        assert found["body"] == "x" * found["number"]
        assert found["number"] >= acknowledged
        store.replace("document.json", json.dumps(found).encode(), store.get("document.json").version)
    temporary = folder / local.PRIVATE_FOLDER / "temporary"
    open_store(url)
    assert list(temporary.iterdir()) == []


def test_the_temporary_file_of_a_living_writer_is_not_swept(tmp_path):
    store = LocalStore(str(tmp_path))
    with store._temporary(b"data", None) as path:
        LocalStore(str(tmp_path))
        assert os.path.exists(path)
    (tmp_path / local.PRIVATE_FOLDER / "temporary" / "of-a-dead-one").write_bytes(b"half")
    LocalStore(str(tmp_path))
    assert list((tmp_path / local.PRIVATE_FOLDER / "temporary").iterdir()) == []


def test_a_stuck_holder_of_a_lock_is_a_named_error_and_not_a_hang(tmp_path, runtime):
    store = LocalStore(str(tmp_path), runtime=runtime)
    with (
        store._locked("a"),
        pytest.raises(StoreUnavailable, match="'a' was not written: its lock is held by a stuck process"),
    ):
        store.create("a", b"1")
    store.create("a", b"1")


def test_a_documents_file_stays_readable_as_json_for_other_programs(tmp_path):
    store = LocalStore(str(tmp_path))
    version = store.create("cluster.json", b'{"a": 1}')
    store.replace("cluster.json", b'{"a": 2}', version)
    assert json.loads((tmp_path / "cluster.json").read_text()) == {"a": 2}


def test_a_parquet_file_of_another_program_is_an_object_and_ours_is_readable_to_it(tmp_path):
    store = LocalStore(str(tmp_path / "state"))
    table = pa.table({"a": [1, 2, 3]})
    foreign = tmp_path / "state" / "snapshots" / "t" / "run" / "part-0.parquet"
    foreign.parent.mkdir(parents=True)
    pq.write_table(table, foreign)
    key = "snapshots/t/run/part-0.parquet"
    assert store.get(key).data == foreign.read_bytes()
    assert [(e.key, e.size) for e in store.list("snapshots/")] == [(key, foreign.stat().st_size)]
    assert local_path(store, key) == str(foreign)

    store.create("snapshots/t/copy.parquet", foreign.read_bytes())
    assert pq.read_table(local_path(store, "snapshots/t/copy.parquet")).equals(table)
    assert local_path(MemoryStore(), key) is None


def test_a_strangers_change_of_a_plain_file_is_a_conflict(tmp_path):
    store = LocalStore(str(tmp_path))
    version = store.create("notes.json", b"{}")
    (tmp_path / "notes.json").write_bytes(b'{"edited": true}')
    with pytest.raises(Exception, match="was changed"):
        store.replace("notes.json", b"{}", version)
    found = store.get("notes.json")
    assert found.data == b'{"edited": true}'
    store.replace("notes.json", b"{}", found.version)


def test_links_that_lead_out_of_the_folder_are_refused_and_not_listed(tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
    store = LocalStore(str(tmp_path / "state"))
    (tmp_path / "state" / "folder").symlink_to(tmp_path / "outside")
    (tmp_path / "state" / "file").symlink_to(tmp_path / "outside" / "secret")
    (tmp_path / "state" / "circle").symlink_to(tmp_path / "state")
    store.create("mine", b"1")
    for key in ("folder/secret", "folder/new", "file"):
        with pytest.raises(ConfigError, match="leads out"):
            store.get(key)
        with pytest.raises(ConfigError, match="leads out"):
            store.create(key, b"")
    assert [entry.key for entry in store.list("")] == ["mine"]
    assert (tmp_path / "outside" / "secret").read_text() == "secret"


def test_the_stores_own_files_are_no_objects(tmp_path):
    store = LocalStore(str(tmp_path))
    store.create("a", b"1")
    assert [entry.key for entry in store.list("")] == ["a"]
    with pytest.raises(ConfigError, match="belongs to the store"):
        store.get(f"{local.PRIVATE_FOLDER}/locks/0001")


def test_an_object_cannot_also_be_a_folder(tmp_path):
    store = LocalStore(str(tmp_path))
    store.create("a/b", b"1")
    with pytest.raises(ConfigError, match="'a'"):
        store.create("a", b"1")
    with pytest.raises(ConfigError, match="'a/b/c'"):
        store.create("a/b/c", b"1")
    store.delete("a")
    assert store.get("a/b").data == b"1"
