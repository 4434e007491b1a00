"""A test marked `share(n)` runs an n-th of its parameters, others for every state of `src`; `make long` runs all.

Tests of whole processes and of Spark are marked `whole` by their folder: `make test` leaves them to `make whole`,
which runs what shares a JVM or a cluster over TPC-H in one worker each, so that one of either is started.

Generated examples: 40 of each test, more for a night with HYPOTHESIS_EXAMPLES=2000.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import settings

HERE = Path(__file__).parent
WHOLE = {"cluster", "spark"}
SHARED = ("spark", "tpch_state")  # fixtures of a run that take half a minute and a gigabyte
settings.register_profile("short", deadline=None, max_examples=int(os.environ.get("HYPOTHESIS_EXAMPLES", "40")))
settings.load_profile("short")


@pytest.hookimpl(tryfirst=True)  # before groups become a part of the names of tests, and before -m
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what starts whole processes; leave out what is another's share, unless a test was asked for by its name."""
    for item in items:
        if WHOLE & set(item.path.relative_to(HERE).parts):
            item.add_marker(pytest.mark.whole)
    together = {item.path: shared for item in items for shared in SHARED if shared in _fixtures(item)}
    for item in items:
        item.add_marker(pytest.mark.xdist_group(together.get(item.path, str(item.path.relative_to(HERE)))))
    if "BALLISTA_ALL_SHARES" in os.environ or any("::" in argument for argument in config.args):
        return
    first = int(os.environ.get("BALLISTA_SIM_FIRST_SEED", "0")) // 1_000
    seen: Counter[str] = Counter()
    kept, left_out = [], []
    for item in items:
        mark = item.get_closest_marker("share")
        if mark is None:
            kept.append(item)
            continue
        name = item.nodeid.partition("[")[0]
        (kept if (seen[name] + first) % mark.args[0] == 0 else left_out).append(item)
        seen[name] += 1
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept


def _fixtures(item: pytest.Item) -> frozenset[str]:
    return frozenset(getattr(item, "fixturenames", ()))
