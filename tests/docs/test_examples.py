"""The examples of the documentation run as they stand, in memory and on a folder."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "docs" / "examples").glob("*.py"))


def test_there_are_six_examples_and_none_is_long():
    assert len(EXAMPLES) == 6
    for path in EXAMPLES:
        lines = [line for line in path.read_text().splitlines() if line.strip()]
        assert len(lines) < 40, path.name


@pytest.mark.turn(3)
@pytest.mark.parametrize("place", ["memory", "folder"])
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_and_says_what_it_did(path, place, tmp_path):
    arguments = [] if place == "memory" else [tmp_path.as_uri()]
    done = subprocess.run([sys.executable, path, *arguments], capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.turn(3)
def test_the_first_example_of_the_landing_page_runs(tmp_path):
    page = EXAMPLES[0].parents[1] / "index.md"
    (block,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    (tmp_path / "first.py").write_text(block)
    done = subprocess.run([sys.executable, tmp_path / "first.py"], capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    assert "page 2" in done.stdout
    assert "1000" in done.stdout
