"""Rules of the house that no linter knows."""

import ast
from pathlib import Path

import pytest

SRC = Path(__file__).parent.parent / "src" / "ballista_py"
MODULES = sorted(path for path in SRC.rglob("*.py") if "_pb2" not in path.name)
DOORS = {"time", "random", "uuid", "secrets"}
LOCKS = {"Lock", "RLock", "Condition", "Event", "Semaphore", "BoundedSemaphore", "Barrier", "local"}


def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
            found.add(node.module)
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SRC)))
def test_time_chance_ids_and_locks_come_through_the_runtime_alone(path):
    if path.name == "runtime.py":
        return
    names = imports_of(path)
    assert not {name.split(".")[0] for name in names} & DOORS
    assert not {name for name in names if name.startswith("threading.")} & {f"threading.{lock}" for lock in LOCKS}
    assert "threading" not in names or path.is_relative_to(SRC / "node")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SRC)))
def test_every_module_says_what_it_is_for_and_stays_below_500_lines(path):
    text = path.read_text()
    assert ast.get_docstring(ast.parse(text))
    assert text.count("\n") <= 500


@pytest.mark.parametrize("path", sorted((SRC / "planning").rglob("*.py")), ids=lambda path: path.name)
def test_planning_does_no_io(path):
    doors = {"os", "io", "socket", "pathlib", "subprocess", "pyarrow.flight", "pyarrow.fs", "pyarrow.parquet"}
    assert not imports_of(path) & doors
