"""The model of statements sent again under a lost name: right with all its rules, and wrong without any of them."""

import pytest

from ballista_py.testing.models.former_names import Rules, broken, run, variants

SHOWN = {  # a seed that is wrong without the rule
    "renamed_looked_at": 3,
    "dropped_looked_at": 3,
    "all_of_them": 15,
    "settled": 149,
    "commits_awaited": 489,
    "completed": 53,
}


def test_with_all_rules_nothing_is_wrong():
    assert broken(60, Rules()) == (0, {})


@pytest.mark.parametrize("name", SHOWN)
def test_no_rule_is_idle(name):
    assert run(SHOWN[name], variants()[f"without {name}"])
    assert not run(SHOWN[name], Rules())
