"""The model of atomic statements: right with all its rules, and wrong without any one of them."""

import pytest

from ballista_py.testing.models.atomic_statements import Rules, broken, run, variants

SINGLE = [name for name in variants() if name != "all rules"]


def test_with_all_rules_nothing_is_wrong():
    assert broken(30, Rules()) == (0, {})


@pytest.mark.parametrize("name", SINGLE)
def test_no_rule_is_idle(name):
    assert any(run(seed, variants()[name]) for seed in range(40)), name


def test_a_seed_is_a_history():
    rules = variants()["without one_rewrite"]
    assert [run(seed, rules) for seed in range(5)] == [run(seed, rules) for seed in range(5)]
