"""The model of tables that are altered: right with all its rules, and wrong without any one of them."""

import pytest

from ballista_py.testing.models.alterations import Rules, broken, run, variants

SINGLE = [name for name in variants() if name != "all rules"]
RARE = {  # seeds that show what needs much to come together
    "without accepts_from": (142, 179, 184),
    "without shown_after_commits": (178, 179, 184),
    "without decided_by_newest": (113, 136, 373),
    "without files_say": (142, 178, 179),
}


def test_with_all_rules_nothing_is_wrong():
    assert broken(30, Rules()) == (0, {})
    assert not any(run(seed, Rules()) for seeds in RARE.values() for seed in seeds)


@pytest.mark.parametrize("name", SINGLE)
def test_no_rule_is_idle(name):
    assert any(run(seed, variants()[name]) for seed in RARE.get(name, range(150))), name


def test_a_seed_is_a_history():
    rules = variants()["without fresh_names"]
    assert [run(seed, rules) for seed in range(3)] == [run(seed, rules) for seed in range(3)]
