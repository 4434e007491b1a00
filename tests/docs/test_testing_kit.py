"""The tutorial of the testing kit: its blocks run one after the other, as a reader would type them."""

import re
from pathlib import Path

from ballista_py import testing

PAGE = Path(__file__).parents[2] / "docs" / "testing-kit.md"


def test_the_tutorial_runs_and_ends_with_a_bug_that_a_seed_finds(capsys):
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names = {"__name__": "tutorial"}
    for number, block in enumerate(blocks):
        exec(compile(block, f"testing-kit.md block {number}", "exec"), names)
    assert names["failure"].seed <= 50
    said = capsys.readouterr().out
    assert "at once from" in said
    assert "holds 'the lease'" in said


def test_every_name_of_the_tutorial_is_public():
    text = PAGE.read_text()
    imported = {
        name.strip()
        for line in re.findall(r"from ballista_py.testing import (.*)", text)
        for name in line.split(",")
    }
    assert imported <= set(testing.__all__)
    listed = set(re.findall(r"^\| `(\w+)", text, re.MULTILINE))
    assert listed <= set(testing.__all__)
