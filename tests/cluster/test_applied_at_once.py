"""Two `app apply` at once with different files, as real processes: one file counts, whole, and nothing comes back."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cluster.test_application import catalog, text

from ballista_py import LocalCluster

pytestmark = pytest.mark.cluster
EACH = 3  # datasets of each file that the other one has not


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(schedulers=1, executors=1) as made:
        yield made


def begun(cluster: LocalCluster, file: Path) -> subprocess.Popen[str]:
    words = ["app", "apply", str(file), "--state-location", cluster.state_location, "--json"]
    command = [sys.executable, "-m", "ballista_py.node", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def written(folder: Path, side: str, turn: int, revision: int) -> tuple[Path, set[str]]:
    names = [f"{side}{turn}_{number}" for number in range(EACH)]
    path = folder / f"{side}{turn}.yaml"
    path.write_text(text(revision, "shared", *names))
    return path, set(names)


def at_once(cluster, files):
    """What each of the commands says at its end: its exit code and its answer."""
    running = [begun(cluster, file) for file in files]
    said = [process.communicate(timeout=180) for process in running]
    assert not any("Traceback" in errors for _, errors in said), said
    return [
        (p.returncode, json.loads(out) if out else errors) for p, (out, errors) in zip(running, said, strict=True)
    ]


def test_of_two_revisions_at_once_the_newest_counts_and_stays(cluster, tmp_path):
    (older, _), (newer, names) = (written(tmp_path, s, 1, 1 + (s == "b")) for s in "ab")
    ended = at_once(cluster, [older, newer])
    assert ended[1][0] == 0, ended
    after = catalog(cluster)
    assert (after.app.revision, after.app.complete) == (2, True), ended
    assert names <= after.tables.keys()
    (again,) = at_once(cluster, [older])
    assert again[0] == 1
    assert catalog(cluster).app == after.app


def test_of_two_files_under_one_revision_one_counts_whole_and_the_other_is_refused(cluster, tmp_path):
    files, names = zip(*(written(tmp_path, side, 1, 100) for side in "cd"), strict=True)
    ended = at_once(cluster, files)
    assert sorted(code for code, _ in ended) == [0, 1], ended
    won = [code for code, _ in ended].index(0)
    after = catalog(cluster)
    assert (after.app.revision, after.app.complete) == (100, True)
    assert names[won] <= after.tables.keys()
    assert not names[1 - won] & after.tables.keys()
    assert at_once(cluster, [files[won]])[0][0] == 0
    assert catalog(cluster).namings == after.namings


def test_the_same_file_at_once_is_applied_once(cluster, tmp_path):
    file, names = written(tmp_path, "e", 9, 900)
    before = catalog(cluster).namings
    ended = at_once(cluster, [file] * 3)
    after = catalog(cluster)
    assert (after.app.revision, after.app.complete) == (900, True), ended
    assert after.namings == before + len(names), ended
