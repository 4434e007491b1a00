"""Scenes with whole processes, in small sizes. `make scenarios` runs all of them as they are meant."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.cluster
SCRIPTS = Path(__file__).parents[2] / "scripts" / "scenarios"
MORE = [
    "rolling-restart",
    "other-ports",
    "killed-create",
    "killed-create-as",
    "killed-drop",
    "two-clusters",
    "lost-documents",
    "stopped-scheduler",
    "killed-executors",
    "many-partitions",
    "many-tables",
    "many-columns",
    "many-clients",
    "large-partition",
]


def run(name: str) -> str:
    """The line that the scenario prints; it fails when anything was wrong."""
    ran = subprocess.run(
        [sys.executable, str(SCRIPTS), "--quick", name], capture_output=True, text=True, timeout=600
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    line = next(line for line in ran.stdout.splitlines() if line.startswith(f"{name}: "))
    assert "0 lost, 0 doubled" in line
    return line


def test_an_older_manifest_with_all_nodes_down_is_named():
    assert "`document.older`" in run("older-manifest")


@pytest.mark.long
def test_a_client_that_vanishes_leaves_nothing_behind():
    assert "no error" in run("vanishing-clients")


@pytest.mark.long
def test_rows_outlive_an_s3_server_that_is_killed():
    """The server is one of those that `scripts/bootstrap.py dev` installs."""
    assert "`store.unavailable`" in run("killed-s3")


@pytest.mark.long
@pytest.mark.parametrize("name", MORE)
def test_a_scene_goes_as_it_is_promised(name):
    run(name)


def test_every_scene_is_run_by_a_test():
    listed = subprocess.run([sys.executable, str(SCRIPTS), "--list"], capture_output=True, text=True, timeout=60)
    names = [line.partition(":")[0] for line in listed.stdout.splitlines()]
    assert sorted(names) == sorted([*MORE, "older-manifest", "vanishing-clients", "killed-s3"])


def test_rows_of_scenes_that_did_not_run_stay_in_the_table(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    from outcome import BEGIN, END, Outcome, write_rows

    document = tmp_path / "page.md"
    document.write_text(f"before\n{BEGIN}\n{END}\nafter\n")
    order = ["a", "b"]
    write_rows(document, {"b": Outcome(size="2 nodes", seconds=2)}, order)
    write_rows(document, {"a": Outcome(missing=1, wrong=["w1", "w2", "w3", "w4"])}, order)
    write_rows(document, {"a": Outcome(size="1 node", doubled=3, notes=["note"])}, order)
    rows = [line for line in document.read_text().splitlines() if line.startswith("| `")]
    assert rows == [
        "| `a` | 1 node | no error; note | 0 lost, 3 doubled | 0 |",
        "| `b` | 2 nodes | no error | 0 lost, 0 doubled | 2 |",
    ]
    assert not Outcome(wrong=["w"]).is_right
    assert Outcome(wrong=["w1", "w2", "w3", "w4"]).verdict() == "0 lost, 0 doubled; w1; w2; w3 and 1 more"
