"""Small faults are planted one at a time, in code alone, and a fault that the tests notice is called killed."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import pytest

PATH = Path(__file__).parent.parent.parent / "scripts" / "source_mutants.py"
SOURCE = '''"""Says 1 < 2."""

LIMIT = 30_000

@frozen(slots=True)
class Box:
    size: int | None = None

def fits(box, others):
    if box.size is None:
        raise ValueError(box)
    others.add(box)
    return 0 < box.size <= LIMIT and box not in others
'''


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("source_mutants", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_operators_constants_conditions_and_statements_are_changed_one_at_a_time(tool):
    mutants = tool.mutants_of(SOURCE)
    assert [(one.line, one.before, one.after) for one in mutants] == [
        (3, "30000", "300"),
        (10, "box.size is None", "box.size is not None"),
        (10, "if box.size is None:", "(left out)"),
        (11, "raise ValueError(box)", "(left out)"),
        (12, "others.add(box)", "(left out)"),
        (13, "0", "1"),
        (13, "0 < box.size <= LIMIT", "0 < box.size < LIMIT"),
        (13, "0 < box.size <= LIMIT", "0 <= box.size <= LIMIT"),
        (13, "0 < box.size <= LIMIT and box not in others", "0 < box.size <= LIMIT or box not in others"),
        (13, "box not in others", "box in others"),
    ]
    plain = ast.unparse(ast.parse(SOURCE))
    assert all(ast.unparse(ast.parse(one.text)) != plain for one in mutants)


@pytest.mark.turn(3)
def test_a_fault_is_killed_survives_or_takes_too_long_and_the_tree_is_as_it_was(tool, tmp_path):
    module = tmp_path / "src/ballista_py/small.py"
    module.parent.mkdir(parents=True)
    module.write_text("LIMIT = 3\n")
    (tmp_path / "test_small.py").write_text(
        "import pathlib, time\n"
        "LIMIT = int(pathlib.Path('src/ballista_py/small.py').read_text().split()[-1])\n"
        "def test_limit():\n    while LIMIT == 5: time.sleep(0.1)\n    assert LIMIT != 4\n"
    )

    def verdict(number, seconds):
        return tool.tried(tmp_path, "small.py", f"LIMIT = {number}\n", ["test_small.py"], seconds)

    assert verdict(3, 60) == "survived"
    assert verdict(4, 60) == "killed"
    assert verdict(5, 3) == "timeout"
    assert module.read_text() == "LIMIT = 3\n"


def _by_line():
    spec = importlib.util.spec_from_file_location("mutant_tests", PATH.parent / "mutant_tests.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.TestsByLine


def test_a_fault_is_tried_with_the_tests_that_run_its_statement_the_quickest_first():
    lines = {"m.py": {4: frozenset({"slow", "quick"}), 6: frozenset({"slow"})}}
    tests = _by_line()(lines, {"slow": 50.0, "quick": 1.0})
    source = "LIMIT = 3\n\ndef f(x):\n    x = g(\n        LIMIT + x)\n    return x\n"
    assert tests.of("m.py", source, 5) == ["quick", "slow"]
    assert tests.of("m.py", source, 6) == ["slow"]
    assert tests.of("m.py", source, 1) == ["quick", "slow"], "what runs on import may be noticed by all"
    assert tests.of("n.py", source, 5) == []
    many = _by_line()({"m.py": {6: frozenset("abc")}}, {"a": 40.0, "b": 10.0, "c": 30.0})
    assert many.of("m.py", source, 6) == ["b", "c"], "a minute of tests"


def test_which_tests_run_which_line_is_measured_once(tmp_path):
    module = tmp_path / "src/ballista_py/small.py"
    module.parent.mkdir(parents=True)
    module.write_text("def up(n):\n    return n + 1\n\ndef down(n):\n    return n - 1\n")
    load = "import importlib.util as u\ns = u.spec_from_file_location('small', 'src/ballista_py/small.py')\n"
    load += "small = u.module_from_spec(s)\ns.loader.exec_module(small)\n"
    cases = "def test_up():\n    assert small.up(1) == 2\ndef test_wrong():\n    assert small.down(1) == 5\n"
    (tmp_path / "test_small.py").write_text(load + cases)
    home = tmp_path / "home"
    for _ in range(2):
        tests = _by_line().measured(tmp_path, ["test_small.py"], home)
        assert tests.of("src/ballista_py/small.py", module.read_text(), 2) == ["test_small.py::test_up"]
        (tmp_path / "test_small.py").unlink(missing_ok=True)  # the second time nothing is run
    assert tests.lines["src/ballista_py/small.py"][5] == frozenset(), "a test that fails by itself proves nothing"


def test_the_tests_that_import_a_module_come_first(tool):
    assert tool.tests_for("state/documents/landing.py")[0] == "tests/state/test_landing.py"
    assert len(tool.tests_for("state/documents/landing.py")) > 10


def test_faults_that_nobody_can_notice_are_listed_with_a_reason(tool):
    for line in tool.REASONS.read_text().splitlines():
        assert line.startswith("#") or (all(line.split("\t")) and len(line.split("\t")) == 4)


def test_every_folder_in_which_faults_are_planted_is_there_and_so_are_its_tests(tool):
    root = PATH.parent.parent
    assert set(tool.FOLDERS) == set(tool.TESTS)
    assert all((root / tool.SOURCE / folder).is_dir() for folder in tool.FOLDERS)
    assert all((root / place).exists() for places in tool.TESTS.values() for place in places)
