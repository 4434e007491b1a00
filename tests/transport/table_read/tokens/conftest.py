"""A clock that tests set, ids that they can foretell, and a partition of two sections."""

from __future__ import annotations

import pytest

from ballista_py.runtime import seeded_chance
from ballista_py.testing.models.table_read_nodes import VirtualTime


@pytest.fixture
def time() -> VirtualTime:
    return VirtualTime(seeded_chance(0))
