"""Plant small faults in the code that a change touches, and see whether its tests notice: `make mutants`.

A fault is another operator or constant, a condition turned round, or a statement left out, at one place of one
function. Each is tried in a copy of the tree of its own, with the tests of its folder, the likeliest first, and with
a time limit. A fault that no test notices is printed; it is answered with a test, or with a reason in
tests/mutants-that-survive.txt. Exit code 1 if one is left.
"""

from __future__ import annotations

import argparse
import ast
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ballista_py.runtime import SystemRuntime
from ballista_py.testing.faults.chance import Chance

ROOT = Path(__file__).resolve().parent.parent
SOURCE = "src/ballista_py"
FOLDERS = ("state", "storage", "owner", "coordinator", "node", "partitions", "sql")
_OF_WRITES = ["tests/storage", "tests/owner", "tests/coordinator", "tests/testing/test_atomic_model.py"]
TESTS = {
    "state": ["tests/state", "tests/testing/sim"],
    "storage": _OF_WRITES,
    "owner": _OF_WRITES,
    "coordinator": [
        "tests/coordinator",
        "tests/partitions",
        "tests/sql",
        "tests/node",
        "tests/storage",
        "tests/testing/sim",
    ],
    "node": ["tests/node"],
    "partitions": ["tests/partitions", "tests/sql"],
    "sql": ["tests/sql", "tests/partitions"],
}
REASONS = ROOT / "tests" / "mutants-that-survive.txt"
OTHER_COMPARISON = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OTHER_OPERATOR = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


class SourceMutant(NamedTuple):
    """One fault: where, what it changes, and the whole text of the file with it."""

    line: int
    before: str
    after: str
    text: str


def mutants_of(source: str) -> list[SourceMutant]:
    """Every fault that can be planted in a module, in order of lines. Docstrings and annotations are left alone."""
    return sorted({one[:3]: one for one in (mutant_at(source, *place) for place in places_of(source))}.values())


def places_of(source: str) -> list[tuple[int, int]]:
    """Where a fault can be planted: the number of a node, and which of its changes."""
    tree = ast.parse(source)
    fixed = _fixed(tree)
    return [
        (number, change)
        for number, node in enumerate(ast.walk(tree))
        if node not in fixed
        for change in range(len(list(_changes(node))))
    ]


def mutant_at(source: str, number: int, change: int) -> SourceMutant:
    """The fault at one place."""
    mutated = ast.parse(source)
    place = next(one for index, one in enumerate(ast.walk(mutated)) if index == number)
    line, before, apply = list(_changes(place))[change]
    after = apply()
    return SourceMutant(line, before, after, ast.unparse(ast.fix_missing_locations(mutated)) + "\n")


def _fixed(tree: ast.Module) -> set[ast.AST]:
    """What no fault is planted in: annotations and decorators."""
    roots: list[ast.AST | None] = []
    for node in ast.walk(tree):
        roots += [getattr(node, "annotation", None), getattr(node, "returns", None)]
        roots += getattr(node, "decorator_list", [])
    return {inner for root in roots if root is not None for inner in ast.walk(root)}


def _changes(node: ast.AST) -> Iterator[tuple[int, str, object]]:
    """What can be changed at one node: its line, how it reads, and what changes it and says how it reads then."""
    if isinstance(node, ast.Compare):
        for index in range(len(node.ops)):
            yield node.lineno, ast.unparse(node), lambda index=index: _set(node, "ops", _other(node.ops, index))
    elif isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign) and type(node.op) in OTHER_OPERATOR:
        yield node.lineno, ast.unparse(node), lambda: _set(node, "op", OTHER_OPERATOR[type(node.op)]())
    elif isinstance(node, ast.Constant) and type(node.value) in (bool, int, float):
        yield node.lineno, ast.unparse(node), lambda: _set(node, "value", _other_constant(node.value))
    if isinstance(node, ast.If | ast.While | ast.IfExp) and not isinstance(node.test, ast.Compare):
        negated = ast.UnaryOp(ast.Not(), node.test)
        yield node.lineno, f"if {ast.unparse(node.test)}", lambda: _set(node, "test", negated, show=negated)
    body = getattr(node, "body", None)
    if isinstance(body, list) and not isinstance(node, ast.Module | ast.ClassDef):
        for index, statement in enumerate(body):
            if _can_go(statement):
                text = ast.unparse(statement).splitlines()[0]
                yield statement.lineno, text, lambda index=index: _drop(body, index)


def _can_go(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Assign | ast.AugAssign | ast.Raise | ast.Delete | ast.If) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call | ast.Await)
    )


def _other(operators: list[ast.cmpop], index: int) -> list[ast.cmpop]:
    return [*operators[:index], OTHER_COMPARISON[type(operators[index])](), *operators[index + 1 :]]


def _other_constant(value: bool | int | float) -> bool | int | float:
    """`not value`, one more, or a hundredth of what is large: one more would be the same to everybody."""
    if isinstance(value, bool):
        return not value
    return value + 1 if abs(value) < 1_000 else type(value)(value // 100)


def _set(node: ast.AST, name: str, value: object, show: ast.AST | None = None) -> str:
    setattr(node, name, value)
    return ast.unparse(ast.fix_missing_locations(show or node))


def _drop(body: list[ast.stmt], index: int) -> str:
    body[index] = ast.copy_location(ast.Pass(), body[index])
    return "(left out)"


def tests_of(module: str) -> list[str]:
    """Where the tests of a module lie."""
    return TESTS.get(Path(module).parts[0], ["tests"])


def tests_for(module: str) -> list[str]:
    """The tests of a module below `src/ballista_py`, the files that name it first."""
    stem = Path(module).stem
    files = [
        path
        for place in tests_of(module)
        for path in (sorted((ROOT / place).rglob("test_*.py")) if (ROOT / place).is_dir() else [ROOT / place])
    ]
    names = (f".{stem} import", f"import {stem}\n")
    files.sort(key=lambda path: not any(name in path.read_text() for name in names))
    return [str(path.relative_to(ROOT)) for path in files]


def touched(base: str) -> list[str]:
    """The modules of the folders that differ from `base`."""
    out = subprocess.run(
        ["git", "diff", "--name-only", base, "--", *(f"{SOURCE}/{folder}" for folder in FOLDERS)],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    paths = [Path(line).relative_to(SOURCE) for line in out.splitlines() if line.endswith(".py")]
    return [str(path) for path in paths if (ROOT / SOURCE / path).exists()]


def tried(tree: Path, module: str, text: str, tests: list[str], seconds: float) -> str:
    """`killed`, `timeout` or `survived`: what became of the module with this text, in a copy of the tree."""
    path = tree / SOURCE / module
    before = path.read_text()
    path.write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--no-header", *tests]
    running = subprocess.Popen(
        command, cwd=tree, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    try:
        return "survived" if running.wait(seconds) == 0 else "killed"
    except subprocess.TimeoutExpired:
        return "timeout"
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
        path.write_text(before)


def reasons() -> set[str]:
    """The faults that are known to change nothing: lines of module, before, after and reason, parted by tabs."""
    lines = REASONS.read_text().splitlines() if REASONS.exists() else []
    return {"\t".join(line.split("\t")[:3]) for line in lines if line and not line.startswith("#")}


def chosen(arguments: argparse.Namespace) -> list[tuple[str, SourceMutant]]:
    """The faults to be tried: a sample by its seed, in the order in which they were drawn."""
    known = reasons()
    modules = arguments.modules or [
        str(path.relative_to(ROOT / SOURCE))
        for folder in arguments.folder
        for path in sorted((ROOT / SOURCE / folder).rglob("*.py"))
    ]
    sources = {module: (ROOT / SOURCE / module).read_text() for module in modules or touched(arguments.base)}
    places = [(module, place) for module, source in sources.items() for place in places_of(source)]
    chance = Chance(arguments.seed)
    if len(places) > arguments.sample:
        places = sorted(places, key=lambda _: chance.random())
    planted: dict[tuple[str, str], tuple[str, SourceMutant]] = {}
    for module, place in places:
        if len(planted) == arguments.sample:
            break
        one = mutant_at(sources[module], *place)
        if "\t".join((module, one.before, one.after)) not in known:
            planted.setdefault((module, one.text), (module, one))
    return list(planted.values())


def _all_pass(tree: Path, modules: list[str], arguments: argparse.Namespace) -> bool:
    """Whether the tests pass without any fault."""
    for module in modules:
        text = (ROOT / SOURCE / module).read_text()
        if tried(tree, module, text, arguments.tests or tests_for(module), arguments.seconds) != "survived":
            print(f"the tests of {module} fail, or take longer, without any fault: mend that first")
            return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "modules", nargs="*", help="as storage/manifest.py; default: those that differ from --base"
    )
    parser.add_argument("--base", default="HEAD~1", help="what the tree is compared with")
    parser.add_argument("--sample", type=int, default=40, help="how many faults at most")
    parser.add_argument("--seed", type=int, default=0, help="of the choice among them")
    parser.add_argument("--seconds", type=float, default=600.0, help="time limit of one fault")
    parser.add_argument("--tests", nargs="*", help="tests to run instead of those of the module's folder")
    parser.add_argument("--folder", action="append", default=[], help="all modules of a folder; may be repeated")
    parser.add_argument(
        "--by-line", type=Path, help="measure which tests run which line, keep it here, and run those"
    )
    parser.add_argument(
        "--processes", nargs="*", default=[], help="with --by-line: files of tests that start whole processes"
    )
    parser.add_argument("--for-seconds", type=float, help="begin no further fault after that time")
    parser.add_argument("--list", action="store_true", help="print the faults and try none")
    arguments = parser.parse_args()
    planted = chosen(arguments)
    counts = {"killed": 0, "survived": 0, "timeout": 0, "run by no test": 0}
    clock = SystemRuntime()
    until_ms = clock.monotonic_ms() + 1e3 * (arguments.for_seconds or float("inf"))
    with tempfile.TemporaryDirectory(prefix="mutants-") as home:
        tree = Path(home) / "tree"
        for name in ("src", "tests", "docs", "scripts"):
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__", "_build"))
        for name in ("pyproject.toml", "README.md", "Makefile"):
            shutil.copy(ROOT / name, tree / name)
        measured = None
        if arguments.by_line is not None and not arguments.list:
            from mutant_tests import TestsByLine  # beside this script, and so at hand when it runs

            folders = sorted({test for module, _ in planted for test in tests_of(module)})
            measured = TestsByLine.measured(tree, folders, arguments.by_line)
            whole = [path for pattern in arguments.processes for path in sorted(ROOT.glob(pattern))]
            measured = measured.with_processes(
                tree, [str(path.relative_to(ROOT)) for path in whole], arguments.by_line
            )
        elif not arguments.list and not _all_pass(tree, sorted({module for module, _ in planted}), arguments):
            return 2
        for module, one in planted:
            if clock.monotonic_ms() > until_ms:
                break
            verdict = "listed"
            if not arguments.list:
                tests = arguments.tests or tests_for(module)
                if measured is not None:
                    tests = measured.of(f"{SOURCE}/{module}", (ROOT / SOURCE / module).read_text(), one.line)
                verdict = tried(tree, module, one.text, tests, arguments.seconds) if tests else "run by no test"
                counts[verdict] += 1
            print(f"{verdict:9}{SOURCE}/{module}:{one.line}\t{one.before}\t{one.after}", flush=True)
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return 1 if counts["survived"] else 0


if __name__ == "__main__":
    sys.exit(main())
