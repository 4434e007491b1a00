"""The model of tables that are altered: right with all its rules, and wrong without those that it shows."""

import pytest

from ballista_py.testing.models.alterations import Rules, broken, run, variants

SHOWN = {  # a seed that is wrong without the rule
    "announced_read": 1,
    "legs_name_it": 4,
    "looked_after_binding": 12,
    "fresh_names": 0,
    "exact_rewrites": 13,
    "files_say": 63,
    "accepts_from": 35,
    "shown_after_commits": 22,
    "proven_own": 31,
    "decided_by_newest": 606,
}


def test_with_all_rules_nothing_is_wrong():
    assert broken(40, Rules()) == (0, {})


@pytest.mark.parametrize("name", SHOWN)
def test_no_rule_that_it_shows_is_idle(name):
    assert run(SHOWN[name], variants()[f"without {name}"])
    assert not run(SHOWN[name], Rules())


def test_a_seed_is_a_history():
    rules = variants()["without fresh_names"]
    assert [run(seed, rules) for seed in range(3)] == [run(seed, rules) for seed in range(3)]
