"""Whom a client asks, of a made-up cluster and by a clock that is moved by hand."""

from __future__ import annotations

import pytest
from tests.transport.conftest import HandClock

from ballista_py.errors import TransportError, TryLater, WrongCluster
from ballista_py.transport.client import schedulers as schedulers_module
from ballista_py.transport.client.schedulers import KEPT_MS, LEARN_MS, LEARN_TIMEOUT_MS, Schedulers

GONE, BUSY, OTHER = TransportError("gone"), TryLater("busy"), WrongCluster("other")


class Pool:
    """Says who the members are: `listed` has those that each address tells of; others cannot be reached."""

    def __init__(self, listed) -> None:
        self.listed, self.cluster, self.cluster_id, self.asked = listed, "ours", "", []

    def call(self, address, action, body, timeout_ms=None):
        self.asked.append((address, timeout_ms))
        if address not in self.listed:
            raise GONE
        rows = [{"role": "scheduler", "address": one} for one in self.listed[address]]
        rows += [{"role": "executor", "address": "e"}, {"role": "scheduler", "address": ""}]
        return {"rows": rows, "cluster": self.cluster}


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def made(monkeypatch, clock):
    monkeypatch.setattr(schedulers_module, "is_link_failure", lambda error, address: True)

    def make(seeds, **listed):
        pool = Pool(listed)
        return Schedulers(seeds, pool, clock), pool

    return make


def ask(schedulers, **outcomes) -> str:
    """Those that are asked for a statement; `outcomes` are what those raise that do not answer."""
    asked = []

    def one(address):
        asked.append(address)
        if address in outcomes:
            raise outcomes[address]
        return address

    schedulers.first_of(one, lambda *_: True)
    return "".join(asked)


def test_schedulers_with_an_address_are_known_and_the_one_that_answered_last_is_asked_first(made):
    schedulers, _ = made("a", a="cba")
    schedulers.members()
    assert schedulers.addresses == ("a", "c", "b")
    assert ask(schedulers) == "a"
    assert ask(schedulers, a=BUSY) == "ac"
    assert ask(schedulers) == "c"


@pytest.mark.parametrize("failure", [GONE, BUSY])
def test_others_are_learnt_of_after_one_that_failed_or_was_busy(made, failure):
    schedulers, _ = made("ab", a="ab", b="abc")
    assert ask(schedulers, a=failure) == "ab"
    assert "c" in schedulers.addresses


def test_others_are_learnt_of_now_and_then_from_one_that_may_hang_for_a_moment_only(made, clock):
    schedulers, pool = made("a", a="ad")
    clock.now_ms = LEARN_MS
    ask(schedulers)
    assert pool.asked == []
    clock.now_ms = LEARN_MS + 1
    ask(schedulers)
    assert "d" in schedulers.addresses
    assert pool.asked == [("a", LEARN_TIMEOUT_MS)]


def test_one_that_does_not_say_who_the_others_are_is_asked_again_by_the_next_call(made, clock):
    schedulers, pool = made("a")
    clock.now_ms = LEARN_MS + 1
    for _ in range(2):
        ask(schedulers)
    assert [address for address, _ in pool.asked] == ["a", "a"]


def test_each_of_those_that_are_busy_may_tell_of_others(made):
    schedulers, _ = made("ab", a="ab", b="abc")
    assert ask(schedulers, a=BUSY, b=BUSY) == "abc"


def test_those_that_are_gone_come_last_for_a_while_and_those_that_were_named_never_go(made, clock):
    schedulers, pool = made("ab", a="abcd")
    schedulers.members()
    pool.listed["a"] = "ad"
    schedulers.members()
    assert schedulers.addresses == ("a", "d", "b", "c")
    clock.now_ms += KEPT_MS
    schedulers.members()
    assert schedulers.addresses == ("a", "d", "b")


@pytest.mark.parametrize(
    ("met", "told"), [(BUSY, "busy"), (OTHER, "other"), (GONE, "no scheduler can be reached: gone")]
)
def test_what_none_of_them_does_is_told_as_it_is(made, met, told):
    schedulers, _ = made("ab", a="ab", b="ab")
    with pytest.raises(type(met), match=told):
        ask(schedulers, a=met, b=met)


def test_the_first_cluster_that_answered_stays_that_of_the_client_whatever_others_say(made):
    schedulers, pool = made("a", a="a")
    for said in ("ours", "", "another"):
        pool.cluster = said
        schedulers.members()
        assert pool.cluster_id == "ours"
