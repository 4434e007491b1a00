"""The model of jobs: right with all its rules, and wrong without any of them."""

import pytest

from ballista_py.testing.models.jobs import Rules, run, variants

SHOWN = {  # a seed that is wrong without the rule
    "attempt_checked": 30,
    "chunks_first": 0,
    "members_asked": 0,
    "members_last": 8,
    "token": 1,
    "marker_first": 0,
    "marker_until_end": 6,
    "open_kept": 0,
}


def test_with_all_rules_nothing_is_wrong():
    assert [seed for seed in range(40) if run(seed, Rules())] == []


def test_every_rule_is_tried():
    assert {f"without {name}" for name in SHOWN} == variants().keys() - {"all rules"}


@pytest.mark.parametrize("name", SHOWN)
def test_no_rule_is_idle(name):
    assert run(SHOWN[name], variants()[f"without {name}"])
    assert not run(SHOWN[name], Rules())
