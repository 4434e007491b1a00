"""L2: 32 schedulers, each committing to one document once a second, and none gives up.

docs/guarantees.md has the numbers of slower stores, and of documents without free races.
"""

import pytest

from ballista_py.state.documents.object_state import Retry
from ballista_py.testing.simulation.contention import contend

LATENCY_MS = 30.0  # to the store, and as much back, at most


def _nobody_gives_up(duration_ms, **world):
    result = contend(1, duration_ms=duration_ms, **world)
    assert result.failed == {}
    assert result.total == result.done
    return result.done / (32 * duration_ms / 1_000)


def test_l2_32_schedulers_on_one_document_for_a_virtual_minute():
    assert _nobody_gives_up(60_000.0, latency_ms=LATENCY_MS) > 0.85


def test_l2_without_free_races_is_kept_by_a_store_that_is_near():
    assert _nobody_gives_up(60_000.0, latency_ms=2.0, retry=Retry()) > 0.95


def test_a_document_that_cannot_take_so_many_commits_slows_its_writers_and_fails_none():
    assert 0.3 < _nobody_gives_up(60_000.0, latency_ms=60.0) < 0.8


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_l2_32_schedulers_on_one_document_for_a_virtual_hour():
    assert _nobody_gives_up(3_600_000.0, latency_ms=LATENCY_MS) > 0.85


def test_what_was_not_done_was_not_applied_however_many_give_up():
    result = contend(2, duration_ms=20_000.0, latency_ms=60.0, retry=Retry())
    unknown = result.failed.get("store.outcome_unknown", 0)
    assert result.failed.get("document.retries_exhausted", 0) > 0
    assert result.done <= result.total <= result.done + unknown
