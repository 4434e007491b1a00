"""A copied state location is another cluster; everything else that happens to a location leaves it the same."""

from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from ballista_py.errors import BallistaError
from ballista_py.state.members.identity import IDENTITY_KEY, cluster_identity
from ballista_py.state.members.location import check_location
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.state.stores.store import open_store


def identity(folder):
    return cluster_identity(open_store(folder.as_uri()))


def test_whoever_asks_of_one_location_is_told_the_same_also_those_who_ask_first_together(tmp_path):
    with ThreadPoolExecutor(8) as workers:
        assert len(set(workers.map(identity, [tmp_path / "state"] * 32))) == 1


def test_a_copy_is_another_cluster_whatever_made_it(tmp_path):
    state = tmp_path / "state"
    found = {identity(state)}
    shutil.copytree(state, tmp_path / "python")  # keeps the times of files
    subprocess.run(["cp", "-a", state, tmp_path / "cp"], check=True)
    subprocess.run(
        f"mkdir {tmp_path}/tar; tar -C {state} -c . | tar -C {tmp_path}/tar -xp", shell=True, check=True
    )
    for copy in ("python", "cp", "tar"):
        assert (tmp_path / copy / IDENTITY_KEY).read_bytes() == (state / IDENTITY_KEY).read_bytes()
        found.add(identity(tmp_path / copy))
    assert len(found) == 4
    assert identity(state) in found


def test_a_location_that_is_moved_stays_the_cluster_that_it_was(tmp_path):
    before = identity(tmp_path / "state")
    os.rename(tmp_path / "state", tmp_path / "moved")
    assert identity(tmp_path / "moved") == before


def test_a_store_that_is_no_folder_tells_by_when_the_object_came_to_it():
    store, copy = MemoryStore(), MemoryStore()
    before = cluster_identity(store)
    copy.create(IDENTITY_KEY, store.get(IDENTITY_KEY).data)
    later = next(iter(copy.list(IDENTITY_KEY))).modified_ms != next(iter(store.list(IDENTITY_KEY))).modified_ms
    assert (cluster_identity(copy) != before) == later


def test_a_location_in_which_only_the_identity_stands_is_free_to_become_a_clusters():
    store = MemoryStore()
    cluster_identity(store)
    check_location(store, "memory://fresh")


@pytest.mark.parametrize("fault", ["lost_reply", "lost_request", "unavailable", "conflict_echo"])
def test_a_node_starts_though_the_reply_about_the_identity_is_lost(unreliable, runtime, fault):
    unreliable.plan = {1: fault, 2: fault}
    assert cluster_identity(unreliable, runtime=runtime) == cluster_identity(unreliable.store)


def test_a_store_that_never_answers_is_asked_for_the_identity_a_few_times_and_named(unreliable, runtime):
    unreliable.chance = lambda: "unavailable"
    with pytest.raises(BallistaError, match="throttled"):
        cluster_identity(unreliable, runtime=runtime)
    assert 1 < unreliable.writes < 10
