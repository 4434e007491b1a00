"""The model of statements that go to a source: right with all its rules, and wrong without any one of them."""

import pytest

from ballista_py.testing.models.write_through import Rules, broken, variants


def test_with_all_rules_each_statement_counts_once_and_is_visible_when_it_is_answered():
    assert broken(40, Rules()) == (0, {})


@pytest.mark.parametrize("name", [name for name in variants() if name != "all rules"])
def test_no_rule_is_idle(name):
    assert broken(8, variants()[name])[0] >= 3
