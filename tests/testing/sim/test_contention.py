"""L2: 32 schedulers, each committing to one document once a second, and none gives up if the store is near.

On a slower store some do, which docs/guarantees.md says with numbers.
"""

import pytest

from ballista_py.testing.contention import contend

LATENCY_MS = 2.0  # to the store, and as much back, at most


def _nobody_gives_up(duration_ms):
    result = contend(1, duration_ms=duration_ms, latency_ms=LATENCY_MS)
    assert result.failed == {}
    assert result.total == result.done > 0.95 * 32 * duration_ms / 1_000


def test_l2_32_schedulers_on_one_document_for_a_virtual_minute():
    _nobody_gives_up(60_000.0)


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_l2_32_schedulers_on_one_document_for_a_virtual_hour():
    _nobody_gives_up(3_600_000.0)


def test_what_was_not_done_was_not_applied_however_many_give_up():
    result = contend(2, duration_ms=20_000.0, latency_ms=60.0)
    unknown = result.failed.get("store.outcome_unknown", 0)
    assert result.failed.get("document.retries_exhausted", 0) > 0
    assert result.done <= result.total <= result.done + unknown
