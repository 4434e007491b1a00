"""The model of tables that are renamed: right with all its rules, and wrong without each of them."""

import pytest
from attrs import fields

from ballista_py.testing.models.renamings import Rules, broken, run, variants

SHOWN = {"announced_first": 3}  # a seed that is wrong without the rule, where it is not the first


def test_with_all_rules_nothing_is_wrong():
    assert broken(60, Rules()) == (0, {})


@pytest.mark.parametrize("name", [rule.name for rule in fields(Rules)])
def test_no_rule_is_idle(name):
    seed = SHOWN.get(name, 0)
    assert run(seed, variants()[f"without {name}"])
    assert not run(seed, Rules())
