"""The model of reads by many clients: right with all rules over the real classes, and wrong without any one of them."""

import os
from collections import Counter

import pytest

from ballista_py.testing.models.table_read import run
from ballista_py.testing.models.table_read_rules import Rules, variants

FIRST = int(os.environ.get("BALLISTA_SIM_FIRST_SEED", "0"))  # other seeds for every state of src
SHOWN = {  # the first seed that is wrong without the rule, and what is wrong then
    "fence": (1, "not every row once"),
    "once": (0, "not every row once"),
    "range": (36, "not every row once"),
    "ask": (1, "it never ends"),  # for rows that were counted twice are never all rows
    "sibling": (1, "a live grant was preempted"),
    "ancestors": (19, "a superseded grant was served"),
    "remember": (3, "a superseded grant was served"),
    "trailer": (2, "not every row once"),
    "snapshot": (0, "not every row once"),
    "order": (2, "not every row once"),
    "attempt": (2, "an earlier attempt was listened to"),
    "pulls": (5, "an earlier attempt was served"),
    "life": (23, "more than was granted"),
    "pin": (0, "snapshot gone"),
    "idle": (0, "open without a sign of life"),
    "lease": (0, "remembered behind its lease"),
}


def test_with_all_rules_every_row_is_counted_once_whatever_happens():
    counts: Counter[str] = Counter()
    for seed in range(FIRST, FIRST + 60):
        world = run(seed, Rules())
        assert not world.wrong, seed
        counts += world.counts
    happened = ("counted", "again", "superseded", "given up", "replanned", "stolen", "taken for dead")
    assert min(counts[what] for what in happened) > 10, counts


def test_every_rule_has_its_seed():
    assert {f"without {name}" for name in SHOWN} == variants().keys() - {"all rules"}


@pytest.mark.parametrize("name", SHOWN)
def test_no_rule_is_idle(name):
    seed, what = SHOWN[name]
    assert what in run(seed, variants()[f"without {name}"]).wrong
    assert not run(seed, Rules()).wrong


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_with_all_rules_nothing_is_wrong_in_thousands_of_histories():
    assert [seed for seed in range(FIRST, FIRST + 5_000) if run(seed, Rules()).wrong] == []


@pytest.mark.long
@pytest.mark.parametrize("name", SHOWN)
def test_a_missing_rule_shows_in_any_five_hundred_seeds(name):
    rules = variants()[f"without {name}"]
    assert any(run(seed, rules).wrong for seed in range(FIRST, FIRST + 500))
