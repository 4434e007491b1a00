"""A holder whose processes are killed at any moment serves what the manifests say, by rows that it finds again."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("lives_of_a_holder.py")


def lives(folder: Path, seed: int, count: int) -> tuple[int, int]:
    """How many files the lives found again, and how many they had to load, before they began their work."""
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder), str(seed), str(count)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = [line for line in done.stderr.splitlines() if "kept_rows_not_used" in line]
    assert all("ended soon after they had opened it" in line for line in said), (
        said
    )  # as some do that are killed early
    found = [line.split() for line in (folder / "found").read_text().splitlines()]
    return sum(int(kept) for kept, _ in found), sum(int(loaded) for _, loaded in found)


def test_fifty_lives_that_are_killed_amid_their_work_serve_what_the_manifests_say(tmp_path):
    kept, _ = lives(tmp_path / "lives", 1, 50)
    assert kept > 0


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("seed", range(2, 22))
def test_many_more_do(tmp_path, seed):
    lives(tmp_path / "lives", seed, 100)
