"""The model of tables that others replace: right with all its rules, and wrong without those that it shows."""

import pytest

from ballista_py.testing.models.replacements import Rules, broken, run, variants

SHOWN = {  # a seed that is wrong without the rule
    "announced_first": 37,
    "announced_read": 0,
    "one_commit": 0,
    "filled_first": 4,
    "marked": 0,
    "legs_name_it": 0,
    "ordered": 0,
    "maps_apart": 2,
}


def test_with_all_rules_nothing_is_wrong():
    assert broken(60, Rules()) == (0, {})


@pytest.mark.parametrize("name", SHOWN)
def test_no_rule_that_it_shows_is_idle(name):
    assert run(SHOWN[name], variants()[f"without {name}"])
    assert not run(SHOWN[name], Rules())
