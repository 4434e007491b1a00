"""The model of schedulers that apply files: right with all its rules, and wrong without each of them."""

import pytest
from attrs import fields

from ballista_py.testing.models.applications import Rules, broken, run, variants

SEEDS = 40


def test_with_all_rules_nothing_is_wrong():
    assert broken(150, Rules()) == (0, {})


@pytest.mark.parametrize("name", [rule.name for rule in fields(Rules)])
def test_no_rule_is_idle(name):
    rules = variants()[f"without {name}"]
    assert any(run(seed, rules) for seed in range(SEEDS))
