"""The model of a partition that is handed over: right with all its rules, and wrong without any one of them."""

import pytest

from ballista_py.testing.models.former_owners import run, variants


def test_with_all_rules_no_read_misses_a_row():
    found = [run(seed, variants()["all rules"]) for seed in range(20)]
    assert [one.missed for one in found] == [0] * 20
    assert all(one.moves and one.answered for one in found)


@pytest.mark.parametrize("name", [name for name in variants() if name != "all rules"])
def test_no_rule_is_idle(name):
    assert any(run(seed, variants()[name]).missed for seed in range(60)), name
