"""A test marked `share(n)` runs an n-th of its parameters, others for every state of `src`; `make long` runs all.

One marked `turn(n)` runs for every n-th state of `src`: it takes seconds, and is one of several that look at one thing.

Tests of whole processes and of Spark are marked `whole` by their folder: `make test` leaves them to `make whole`,
which runs what shares a JVM or a cluster over TPC-H in one worker each, so that one of either is started. Those of
`ALWAYS` run for every state of `src`; the other files in turns, each for every fourth one; `make whole-all` runs all.

Generated examples: 40 of each test, more for a night with HYPOTHESIS_EXAMPLES=2000.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

HERE = Path(__file__).parent
WHOLE = {"cluster", "spark"}
TURNS = 4
# What a cluster is for: queries, writes, failures, jobs, every door, who gets in, and the pipeline.
ALWAYS = {
    "cluster": (
        "answers", "client_doors", "error_lines", "failures", "flight_sql", "given_parameters", "jobs", "security",
        "statement_rules", "tpch", "walks", "writes",
    ),
    "spark": ("bucket_golden", "pipeline", "statements"),
}  # fmt: skip
# Fixtures of a run that take half a minute and a gigabyte: the folder, the names by which tests take one, and its own.
SHARED = {
    "tpch": ("cluster", "cluster|tpch_state", "cluster"),
    "jvm": ("spark", "spark|pipeline|connect_url", "spark"),
}
TAKES = r"(?:^def test_\w+|^@pytest\.fixture[^\n]*\ndef \w+)\([^)]*\b(?:{names})\b"
settings.register_profile("short", deadline=None, max_examples=int(os.environ.get("HYPOTHESIS_EXAMPLES", "40")))
settings.load_profile("short")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what starts whole processes; leave out what is another's share, unless a test was asked for by its name."""
    for item in items:
        if WHOLE & set(item.path.relative_to(HERE).parts):
            item.add_marker(pytest.mark.whole)
    if "BALLISTA_ALL_SHARES" in os.environ or any("::" in argument for argument in config.args):
        return
    first = int(os.environ.get("BALLISTA_SIM_FIRST_SEED", "0")) // 1_000
    waits = set() if any(argument.endswith(".py") for argument in config.args) else waiting(first)
    seen: Counter[str] = Counter()
    kept, left_out = [], []
    for item in items:
        mark = item.get_closest_marker("share")
        name = item.nodeid.partition("[")[0]
        turn = item.get_closest_marker("turn")
        is_kept = item.path not in waits and (mark is None or (seen[name] + first) % mark.args[0] == 0)
        is_kept = is_kept and (turn is None or (crc32(name.encode()) + first) % turn.args[0] == 0)
        (kept if is_kept else left_out).append(item)
        seen[name] += mark is not None
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept


def waiting(first: int) -> set[Path]:
    """The files of whole processes whose turn it is not."""
    found: set[Path] = set()
    for folder, always in ALWAYS.items():
        names = sorted(
            path for path in (HERE / folder).glob("test_*.py") if path.stem[len("test_") :] not in always
        )
        found |= {path for number, path in enumerate(names) if (number + first) % TURNS}
    return found


class Together(LoadFileScheduling):
    """Gives all tests of a file to one worker, and to one the files that share what takes long to make."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return shared_by(HERE.parent / file) or file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Together | None:
    return Together(config, log) if config.getvalue("dist") == "loadfile" else None


@lru_cache
def shared_by(path: Path) -> str:
    """The fixture of a whole run that tests of the file take, by its text: workers alone know more."""
    for shared, (folder, names, own) in SHARED.items():
        if path.parent == HERE / folder:
            text = path.read_text()
            takes = re.search(TAKES.format(names=names), text, re.MULTILINE)
            return shared if takes and not re.search(rf"^def {own}\(", text, re.MULTILINE) else ""
    return ""
