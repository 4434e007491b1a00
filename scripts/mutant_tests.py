"""Which tests run a line: one run of all tests of some folders under coverage, kept and asked for every fault.

A fault is then tried with the tests that come by its line alone, the quickest first, in one process.
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

MAX_SECONDS = 60.0
MAX_TESTS = 400


class TestsByLine(NamedTuple):
    """The tests (as pytest names them) by file and line, and how long each took."""

    lines: dict[str, dict[int, frozenset[str]]]
    seconds: dict[str, float]

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
        """The tests that run the statement at a line, the quickest first, for a minute of them at most.

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
