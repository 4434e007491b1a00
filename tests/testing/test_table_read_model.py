"""The model of reads by many clients: right with all rules over the real classes, and wrong without any one of them."""

import os
from collections import Counter

import pytest

from ballista_py.testing.models.table_read import World, run
from ballista_py.testing.models.table_read_rules import Parts, Rules, variants
from ballista_py.transport.table_read.tokens.serving import ServedReads

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


class Forgetful(ServedReads):
    """One that has room for two grants."""

    def __init__(self, runtime, **settings):
        super().__init__(runtime, max_tokens=2, **settings)


def test_what_servers_forget_for_want_of_room_never_makes_an_answer_wrong():
    found = [World(seed, Parts(reads=Forgetful)).run().wrong for seed in range(FIRST, FIRST + 40)]
    kinds = set().union(*found)
    assert kinds <= {"a superseded grant was served", "an earlier attempt was served"}


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
