"""Which tests run a line: one run of all tests of some folders under coverage, kept and asked for every fault.

A fault is then tried with the tests that come by its line alone, the quickest first, in one process. Tests that start
whole processes are measured a file at a time, with all the processes that it starts: nobody can tell which of its
tests made a node come by a line.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import NamedTuple

from coverage import CoverageData

from ballista_py.runtime import SystemRuntime

MAX_SECONDS = 60.0
MAX_TESTS = 400


class TestsByLine(NamedTuple):
    """The tests (as pytest names them) by file and line, and how long each took."""

    lines: dict[str, dict[int, frozenset[str]]]
    seconds: dict[str, float]

    def with_processes(self, root: Path, files: list[str], home: Path) -> TestsByLine:
        """These, and files of tests with all the processes that they start; what was measured before is used again.

        A file whose tests fail without any fault is left out.
        """
        lines = {path: dict(by_line) for path, by_line in self.lines.items()}
        seconds = dict(self.seconds)
        for file in files:
            place = home / file.replace("/", "-")
            if not (place / "seconds").exists():
                _measure_processes(root, file, place)
            taken = float((place / "seconds").read_text())
            if taken < 0:
                continue
            seconds[file] = taken
            for path, ran in _lines_ran(place / "data").items():
                by_line = lines.setdefault(path, {})
                for line in ran:
                    by_line[line] = by_line.get(line, frozenset()) | {file}
        return TestsByLine(lines, seconds)

    @classmethod
    def measured(cls, root: Path, tests: list[str], home: Path) -> TestsByLine:
        """Run the tests under coverage, or use what an earlier run left in `home`."""
        data, report = home / "coverage.data", home / "report.xml"
        if not data.exists():
            home.mkdir(parents=True, exist_ok=True)
            (home / "coveragerc").write_text(
                f"[run]\nsource = {root / 'src'}\ndata_file = {data}\nconcurrency = thread\n"
            )
            command = [
                sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header", "--cov",
                f"--cov-config={home / 'coveragerc'}", "--cov-context=test", "--cov-report=",
                f"--junitxml={report}", "-o", "junit_family=xunit1", *tests,
            ]  # fmt: skip
            environment = {**os.environ, "COVERAGE_FILE": str(data), "PYTHONPATH": str(root / "src")}
            subprocess.run(command, cwd=root, env=environment, check=False)
        seconds = _seconds(report)
        lines = {
            path: {line: tests & seconds.keys() for line, tests in by_line.items()}
            for path, by_line in _lines(data).items()
        }
        return cls(lines, seconds)

    def of(self, path: str, source: str, line: int) -> list[str]:
        """The tests that run the statement at a line, the quickest first, for `MAX_SECONDS` of them at most.

        What is run on import alone, such as a constant, is what all tests of the module may notice.
        """
        by_line = self.lines.get(path, {})
        found: set[str] = set().union(*(by_line.get(number, ()) for number in _span(source, line)))
        found = found or set().union(*by_line.values())
        chosen: list[str] = []
        left = MAX_SECONDS
        for test in sorted(found, key=lambda test: (self.seconds.get(test, 1.0), test))[:MAX_TESTS]:
            left -= self.seconds.get(test, 1.0)
            if left < 0 and chosen:
                break
            chosen.append(test)
        return chosen


def _measure_processes(root: Path, file: str, place: Path) -> None:
    """Run a file of tests; leave in `place` what its processes ran, and how long it took, -1 if it failed."""
    place.mkdir(parents=True, exist_ok=True)
    for left in place.iterdir():
        left.unlink()
    config = place / "coveragerc"
    config.write_text(
        f"[run]\nsource = {root / 'src'}\ndata_file = {place / 'data'}\nparallel = true\nsigterm = true\n"
        "patch =\n    subprocess\n    _exit\nconcurrency = thread\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(root / "src")}
    coverage = [sys.executable, "-m", "coverage"]
    began = SystemRuntime().monotonic_ms()
    done = subprocess.run(
        [*coverage, "run", f"--rcfile={config}", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header", file],
        cwd=root, env=environment, check=False, stdout=(place / "log").open("w"),
    )  # fmt: skip
    taken = (SystemRuntime().monotonic_ms() - began) / 1e3
    subprocess.run([*coverage, "combine", f"--rcfile={config}", "-q"], cwd=root, env=environment, check=False)
    (place / "seconds").write_text(str(taken if done.returncode == 0 and (place / "data").exists() else -1))


def _span(source: str, line: int) -> range:
    """The lines of the smallest statement around a line; of a compound one its head."""
    smallest = range(line, line + 1)
    size = sys.maxsize
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno):
            body = getattr(node, "body", None)
            end = body[0].lineno - 1 if isinstance(body, list) and body else node.end_lineno or node.lineno
            end = max(end, node.lineno)
            if line <= end and end - node.lineno < size:
                smallest, size = range(node.lineno, end + 1), end - node.lineno
    return smallest


def _lines(data: Path) -> dict[str, dict[int, frozenset[str]]]:
    found = CoverageData(str(data))
    found.read()
    lines = {}
    for path in found.measured_files():
        relative = path[path.rindex("src/ballista_py") :]
        lines[relative] = {
            line: frozenset(context.rpartition("|")[0] for context in contexts if context)
            for line, contexts in found.contexts_by_lineno(path).items()
        }
    return lines


def _lines_ran(data: Path) -> dict[str, list[int]]:
    found = CoverageData(str(data))
    found.read()
    return {path[path.rindex("src/ballista_py") :]: found.lines(path) or [] for path in found.measured_files()}


def _seconds(report: Path) -> dict[str, float]:
    """By the names that the contexts have: `tests/x/test_y.py::test_z[a]`; those that failed are left out."""
    taken: dict[str, float] = {}
    for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314 - pytest wrote it a moment ago
        if case.find("failure") is not None or case.find("error") is not None or case.find("skipped") is not None:
            continue
        file, place = case.get("file", ""), case.get("classname", "")
        stem = file.removesuffix(".py").replace("/", ".")
        inner = place.removeprefix(stem).strip(".").replace(".", "::")
        name = "::".join(part for part in (file, inner, case.get("name", "")) if part)
        taken[name] = taken.get(name, 0.0) + float(case.get("time", 0.0))
    return taken
