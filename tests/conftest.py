"""A test marked `share(n)` runs an n-th of its parameters, others for every state of `src`; `make long` runs all."""

from __future__ import annotations

import os
from collections import Counter

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is another's share, unless a test was asked for by its name."""
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
