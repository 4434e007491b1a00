"""Joining, beating, being evicted, taking over: one live instance per id, judged without comparing clocks."""

from __future__ import annotations

import pytest
from attrs import evolve

from ballista_py.errors import (
    AlreadyRegistered,
    DocumentUnreadable,
    Fenced,
    LeaseExpired,
    ObjectMissing,
    RetriesExhausted,
)
from ballista_py.state.documents.documents import ClusterDocument, HeartbeatDocument, SchedulerInfo, heartbeat_key
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.members.liveness import Observer, jittered_ms
from ballista_py.state.members.membership import Membership
from ballista_py.state.members.reaper import WATCHED, Reaper, following

TTL_MS, SKEW_MS = 30_000, 5_000


@pytest.fixture
def member(unreliable, runtime):
    def make(scheduler_id="s1", store=unreliable, rate=1.0):
        node = SchedulerInfo(
            scheduler_id=scheduler_id, instance_id="", flight_address="h:1", control_address="h:2"
        )
        return Membership(store, node, ttl_ms=TTL_MS, skew_ms=SKEW_MS, runtime=runtime.another(rate))

    return make


def cluster_of(store) -> ClusterDocument:
    return ObjectState(store, "cluster.json", ClusterDocument).read().document


def heartbeat_of(store, scheduler_id="s1") -> HeartbeatDocument:
    return ObjectState(store, heartbeat_key(scheduler_id), HeartbeatDocument).read().document


def test_joining_makes_the_cluster_and_lists_the_scheduler(member, unreliable):
    first = member("s1")
    assert first.join() == cluster_of(unreliable).schedulers["s1"]
    second = member("s2")
    second.join()
    assert second.peers() == (first.info,)
    assert first.valid()
    assert first.remaining_ms() == TTL_MS


def test_a_join_that_takes_longer_than_its_lease_is_tried_again(member, unreliable, runtime):
    joining, slow = member("s1"), []

    def get(key):
        if key == "cluster.json" and len(slow) < 2:
            slow.append(key)
            runtime.advance(40_000)

    unreliable.before_get = get
    info = joining.join()
    assert (len(slow), joining.valid()) == (2, True)
    assert cluster_of(unreliable).schedulers["s1"].instance_id == info.instance_id
    unreliable.before_get = lambda key: runtime.advance(40_000 if key == "cluster.json" else 0)
    with pytest.raises(LeaseExpired):
        member("s2").join()


def test_nothing_may_be_done_before_joining(member):
    newcomer = member()
    assert not newcomer.valid()
    with pytest.raises(LeaseExpired):
        newcomer.require()
    with pytest.raises(Fenced):
        newcomer.beat()


def test_an_id_that_is_alive_cannot_be_taken(member, unreliable, runtime):
    alive, other = member(), member()
    alive.join()
    beats_of_the_living = []

    def beat():
        alive.beat()
        beats_of_the_living.append(1)

    other.runtime.before_sleep = beat
    with pytest.raises(AlreadyRegistered, match="scheduler id s1 is already registered"):
        other.join()
    assert beats_of_the_living
    alive.beat()
    assert alive.valid()
    assert not other.valid()
    assert cluster_of(unreliable).schedulers["s1"] == alive.info


def test_an_id_is_taken_over_once_its_holder_was_silent_long_enough_and_the_old_one_is_fenced(member, runtime):
    dead, other = member(), member()
    dead.join()
    before = runtime.monotonic_ms()
    other.join()
    assert runtime.monotonic_ms() - before >= TTL_MS + SKEW_MS
    assert other.valid()
    assert not dead.valid()
    with pytest.raises(Fenced, match="may join again as a new instance"):
        dead.beat()
    with pytest.raises(Fenced):
        dead.require()
    dead.runtime.before_sleep = other.beat
    with pytest.raises(AlreadyRegistered):
        dead.join()


def test_an_id_that_was_left_is_free_at_once(member, unreliable, runtime):
    first, second = member(), member()
    first.join()
    first.leave()
    first.leave()
    assert not first.valid()
    assert cluster_of(unreliable).schedulers["s1"].leaving
    assert member("s2").join()
    before = runtime.monotonic_ms()
    second.join()
    assert runtime.monotonic_ms() == before
    assert not cluster_of(unreliable).schedulers["s1"].leaving
    first.leave()
    assert cluster_of(unreliable).schedulers["s1"] == second.info
    second.beat()


def test_two_that_take_over_one_dead_id_cannot_both_win(member, runtime):
    member().join()
    one, two = member(), member()
    runtime.advance(TTL_MS * 10)
    outcome = []
    one.runtime.before_sleep = lambda: outcome or outcome.append(join_quietly(two))
    try:
        one.join()
        outcome.append("joined")
    except AlreadyRegistered:
        outcome.append("refused")
    assert sorted(outcome) == ["joined", "refused"]


def join_quietly(membership) -> str:
    try:
        membership.join()
    except AlreadyRegistered:
        return "refused"
    return "joined"


def test_the_lease_counts_from_when_the_beat_was_sent(member, unreliable, runtime):
    one = member()
    one.join()
    runtime.advance(10_000)
    unreliable.before_write = lambda number: runtime.advance(7_000)
    one.beat()
    assert one.remaining_ms() == TTL_MS - 7_000
    runtime.advance(TTL_MS - 7_001)
    assert one.valid()
    runtime.advance(1)
    assert not one.valid()
    with pytest.raises(LeaseExpired):
        one.require()


def test_a_beat_that_landed_without_a_reply_extends_the_lease_from_its_sending(member, unreliable, runtime):
    one = member()
    one.join()
    runtime.advance(10_000)
    unreliable.plan = {unreliable.writes + 1: "lost_reply"}
    sent_ms = runtime.monotonic_ms()
    one.beat()
    assert one.remaining_ms() == pytest.approx(sent_ms + TTL_MS - runtime.monotonic_ms())
    assert heartbeat_of(unreliable).beats == 2


def test_a_beat_that_failed_extends_nothing(member, unreliable, runtime):
    one = member()
    one.join()
    runtime.advance(TTL_MS - 5_000)
    unreliable.chance = lambda: "unavailable"
    with pytest.raises(RetriesExhausted):
        one.beat()
    assert one.remaining_ms() < 5_000
    unreliable.chance = None
    one.beat()
    assert one.remaining_ms() == TTL_MS


def test_silences_are_asked_at_the_last_moment_before_each_attempt(member, unreliable):
    one = member()
    one.join()
    asked = []

    def silences():
        asked.append(1)
        return {"e": float(len(asked))}

    def meddle(number):
        unreliable.before_write = lambda number: None
        state = ObjectState(unreliable.store, heartbeat_key("s1"), HeartbeatDocument)
        state.update(lambda document: evolve(document, beats=document.beats + 10))

    unreliable.before_write = meddle
    one.beat(silences)
    assert heartbeat_of(unreliable).silences == {"e": 2.0}


@pytest.mark.parametrize("vanish", ["heartbeat", "tombstone"])
def test_a_beat_that_meets_no_document_of_its_own_is_fenced_for_good(member, unreliable, vanish):
    one = member()
    one.join()
    key = heartbeat_key("s1")
    if vanish == "heartbeat":
        unreliable.delete(key)
    else:
        ObjectState(unreliable, key, HeartbeatDocument).update(lambda d: evolve(d, ended_by="another"))
    with pytest.raises(Fenced):
        one.beat()
    assert not one.valid()
    with pytest.raises(Fenced):
        one.beat()


def test_a_foreign_cluster_document_is_refused(member, unreliable):
    unreliable.create("cluster.json", b'{"kubernetes": true}')
    with pytest.raises(DocumentUnreadable, match="holds something else"):
        member().join()


class TestReaper:
    def test_a_fresh_observer_waits_before_it_calls_anybody_dead(self, member, unreliable, runtime):
        dead, alive = member("s1"), member("s2")
        dead.join()
        runtime.advance(10 * TTL_MS)
        alive.join()
        reaper = Reaper(unreliable, alive)
        assert reaper.tick().kept == ("s1", "s2")
        for _ in range(3):
            runtime.advance(10_000)
            alive.beat()
            assert reaper.tick().evicted == ()
        runtime.advance(TTL_MS + SKEW_MS - 30_000)
        alive.beat()
        report = reaper.tick()
        assert (report.evicted, report.kept) == (("s1",), ("s2",))
        assert set(cluster_of(unreliable).schedulers) == {"s2"}
        assert heartbeat_of(unreliable).ended_by == alive.instance_id
        with pytest.raises(Fenced):
            dead.beat()
        assert reaper.tick().kept == ("s2",)

    def watched(self, member, unreliable, runtime):
        """A scheduler that has just been silent for long enough in the eyes of the other one's reaper."""
        quiet, watcher = member("s1"), member("s2")
        quiet.join()
        watcher.join()
        reaper = Reaper(unreliable, watcher)
        reaper.tick()
        runtime.advance(TTL_MS - 1)
        watcher.beat()
        runtime.advance(SKEW_MS + 1)
        return quiet, watcher, reaper

    def test_a_late_beat_and_an_eviction_meet_and_the_beat_may_win(self, member, unreliable, runtime):
        quiet, _, reaper = self.watched(member, unreliable, runtime)

        def beat_first(number):
            unreliable.before_write = lambda number: None
            quiet.beat()

        unreliable.before_write = beat_first
        assert reaper.tick().evicted == ()
        quiet.beat()
        assert quiet.valid()

    def test_a_late_beat_and_an_eviction_meet_and_the_eviction_may_win(self, member, unreliable, runtime):
        quiet, _, reaper = self.watched(member, unreliable, runtime)
        outcomes = []

        def evict_first(number):
            unreliable.before_write = lambda number: None
            outcomes.append(reaper.tick())

        unreliable.before_write = evict_first
        with pytest.raises(Fenced):
            quiet.beat()
        assert outcomes[0].evicted == ("s1",)
        assert not quiet.valid()
        with pytest.raises(Fenced):
            quiet.guard(cluster_of(unreliable), quiet.instance_id)

    def test_what_an_instance_began_is_not_committed_by_the_one_after_it(self, member, unreliable, runtime):
        quiet, _, reaper = self.watched(member, unreliable, runtime)
        before = quiet.instance_id
        reaper.tick()
        with pytest.raises(Fenced):
            quiet.beat()
        quiet.join()
        quiet.guard(cluster_of(unreliable), quiet.instance_id)
        with pytest.raises(Fenced):
            quiet.guard(cluster_of(unreliable), before)
        assert quiet.valid()

    def test_an_eviction_that_stopped_half_way_is_finished_by_anybody(self, member, unreliable, runtime):
        _, _, reaper = self.watched(member, unreliable, runtime)
        third = member("s3")
        third.join()
        unreliable.plan = dict.fromkeys(range(unreliable.writes + 2, unreliable.writes + 10), "unavailable")
        with pytest.raises(RetriesExhausted):
            reaper.tick()
        assert "s1" in cluster_of(unreliable).schedulers
        assert Reaper(unreliable, third).tick().evicted == ("s1",)
        assert set(cluster_of(unreliable).schedulers) == {"s2", "s3"}

    def test_the_removal_is_guarded_by_the_instance(self, member, unreliable, runtime):
        """The id is taken over between the tombstone and the removal."""
        _, _, reaper = self.watched(member, unreliable, runtime)
        successor = member("s1")
        writes = unreliable.writes

        def take_over(number):
            if number == writes + 2:
                unreliable.before_write = lambda number: None
                successor.join()

        unreliable.before_write = take_over
        reaper.tick()
        assert cluster_of(unreliable).schedulers["s1"] == successor.info
        successor.beat()

    def test_one_that_left_stays_listed_until_the_leases_that_it_granted_are_over(
        self, member, unreliable, runtime
    ):
        gone, watcher = member("s1"), member("s2")
        gone.join()
        watcher.join()
        reaper = Reaper(unreliable, watcher)
        reaper.tick()
        gone.leave()
        for _ in range(4):
            assert reaper.tick().evicted == ()
            runtime.advance(10_000)
            watcher.beat()
        assert reaper.tick().evicted == ("s1",)
        assert watcher.peers() == ()

    def test_a_scheduler_without_a_lease_evicts_nobody(self, member, unreliable, runtime):
        _, _, reaper = self.watched(member, unreliable, runtime)
        runtime.advance(TTL_MS)
        writes = unreliable.writes
        with pytest.raises(LeaseExpired):
            reaper.tick()
        assert unreliable.writes == writes

    def test_a_lease_that_ends_during_the_tick_commits_nothing(self, member, unreliable, runtime):
        _, _, reaper = self.watched(member, unreliable, runtime)
        before = cluster_of(unreliable)

        def sleep_long(key):
            if key == "cluster.json" and unreliable.writes > writes:
                runtime.advance(TTL_MS)

        writes = unreliable.writes
        unreliable.before_get = sleep_long
        with pytest.raises(LeaseExpired):
            reaper.tick()
        assert cluster_of(unreliable) == before

    def test_one_that_was_evicted_notices_and_stops(self, member, unreliable, runtime):
        one, two = member("s1"), member("s2")
        one.join()
        two.join()
        ObjectState(unreliable, heartbeat_key("s1"), HeartbeatDocument).update(lambda d: evolve(d, ended_by="x"))
        with pytest.raises(Fenced):
            Reaper(unreliable, one).tick()
        assert not one.valid()

    def test_a_missing_heartbeat_document_counts_as_silence(self, member, unreliable, runtime):
        odd, watcher = member("s1"), member("s2")
        odd.join()
        watcher.join()
        unreliable.delete(heartbeat_key("s1"))
        reaper = Reaper(unreliable, watcher)
        for _ in range(5):
            report = reaper.tick()
            runtime.advance(10_000)
            watcher.beat()
        assert report.evicted == ("s1",)
        assert heartbeat_of(unreliable).ended_by == watcher.instance_id

    def test_many_look_after_each_other_and_each_reads_of_few(self, member, unreliable, runtime):
        """Of twelve, five that follow each other die at once: all of them go, and nobody else does."""
        everybody = [member(f"s{number:02}") for number in range(12)]
        for one in everybody:
            one.join()
        living = everybody[:4] + everybody[9:]
        reapers = [Reaper(unreliable, one) for one in living]
        reads: list[str] = []
        unreliable.before_get = reads.append
        evicted: list[str] = []
        for _ in range(12):
            runtime.advance(10_000)
            for one in living:
                one.beat()
            for reaper in reapers:
                reads.clear()
                evicted += reaper.tick().evicted
                heartbeats = [key for key in reads if key.startswith("heartbeats/")]
                assert len(set(heartbeats)) <= WATCHED + 1
        assert sorted(set(evicted)) == [f"s{number:02}" for number in range(4, 9)]
        assert sorted(cluster_of(unreliable).schedulers) == [one.scheduler_id for one in living]
        for one in living:
            one.require()

    def test_the_last_one_that_lives_buries_all_others(self, member, unreliable, runtime):
        for number in range(8):
            member(f"s{number}").join()
        alone = member("t")
        alone.join()
        reaper = Reaper(unreliable, alone)
        for _ in range(20):
            runtime.advance(10_000)
            alone.beat()
            reaper.tick()
        assert list(cluster_of(unreliable).schedulers) == ["t"]


@pytest.mark.parametrize("count", range(7))
def test_whoever_follows_is_each_other_one_once(count):
    names = [f"s{number}" for number in range(5)]
    for own in names:
        found = following(names, own, count)
        assert len(set(found)) == len(found) == min(count, 4)
        assert own not in found
    watched = [name for own in names for name in following(names, own, count)]
    assert {watched.count(name) for name in names} == {min(count, 4)}


def test_an_observer_counts_only_the_silence_that_is_certain(runtime):
    """From the first reply to the last request; what happened on the way is not known."""
    observer = Observer(runtime, 100)
    asked_ms = runtime.monotonic_ms()
    runtime.advance(50)
    assert not observer.unchanged("a", "v1", asked_ms)
    asked_ms = runtime.monotonic_ms() + 99
    runtime.advance(500)
    assert not observer.unchanged("a", "v1", asked_ms)
    assert observer.unchanged("a", "v1", asked_ms + 1)
    assert not observer.unchanged("a", "v2", asked_ms + 1)


def test_waits_are_jittered_by_a_fifth():
    assert [jittered_ms(100, chance) for chance in (0.0, 0.25, 0.5, 1.0)] == pytest.approx([80, 90, 100, 120])


def test_a_cluster_that_does_not_exist_has_no_peers(member):
    with pytest.raises(ObjectMissing):
        member().peers()


def test_an_id_is_not_taken_over_from_a_holder_that_beats_between_the_look_and_the_write(member, unreliable):
    silent, other = member(), member()
    silent.join()
    before = unreliable.writes

    def beat(number):
        if number == before + 1:
            silent.beat()

    unreliable.before_write = beat
    with pytest.raises(AlreadyRegistered):
        other.join()
    assert not other.valid()
    silent.beat()
    assert silent.valid()
