"""The model of a table that follows a source: right with all its rules, and wrong without any one of them."""

import pytest

from ballista_py.testing.models.change_apply import Rules, run, variants

SHOWN = {  # a seed that is wrong without the rule
    "one_decision": 0,
    "at_since": 0,
    "whole": 0,
    "cut": 0,
    "fresh": 5,
    "decided_only": 0,
    "moves": 0,
    "meets": 0,
    "new_partition": 0,
    "ended": 0,
}


def test_with_all_rules_the_table_is_the_source_at_its_position():
    found = [run(seed, Rules()) for seed in range(60)]
    assert not any(one.wrong for one in found)
    assert all(one.decided > 5 for one in found)


@pytest.mark.parametrize("name", SHOWN)
def test_no_rule_is_idle(name):
    assert run(SHOWN[name], variants()[f"without {name}"]).wrong
    assert not run(SHOWN[name], Rules()).wrong


def test_every_rule_has_its_seed():
    assert {f"without {name}" for name in SHOWN} == variants().keys() - {"all rules"}
