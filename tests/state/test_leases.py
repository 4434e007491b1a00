"""The chain of leases, scene by scene: store, scheduler, executor, and who is lost when."""

from __future__ import annotations

import pytest
from attrs import evolve

from ballista_py.errors import Fenced, LeaseExpired, RetriesExhausted
from ballista_py.state.documents.documents import (
    AdmittedExecutor,
    ClusterDocument,
    HeartbeatDocument,
    SchedulerInfo,
    heartbeat_key,
)
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.members.control import Grant, HeldPartitions, Refusal
from ballista_py.state.members.executor_lease import ExecutorLease
from ballista_py.state.members.executor_registry import ExecutorRegistry
from ballista_py.state.members.membership import Membership
from ballista_py.state.members.reaper import WATCHED, Reaper, following, silent_executors

TTL_MS, SKEW_MS = 30_000, 5_000


class Scheduler:
    def __init__(self, name, store, runtime) -> None:
        self.store, self.runtime = store, runtime
        node = SchedulerInfo(scheduler_id=name, instance_id="")
        self.membership = Membership(store, node, ttl_ms=TTL_MS, skew_ms=SKEW_MS, runtime=runtime.another())
        self.membership.join()
        self.registry = ExecutorRegistry(self.membership)
        self.reaper = Reaper(store, self.membership)

    def beat(self) -> None:
        self.membership.beat(self.registry.silences)


def executor(runtime, name="e1") -> ExecutorLease:
    return ExecutorLease(name, "h:3", runtime=runtime.another())


def say(lease, scheduler, held=()):
    """One heartbeat and its answer, delivered at once."""
    answer = scheduler.registry.heard(lease.heartbeat(held))
    return answer, answer is not None and lease.answered(answer)


def admit(lease, scheduler) -> None:
    say(lease, scheduler)
    scheduler.registry.tick()
    say(lease, scheduler)
    assert lease.valid()


def cluster_of(store) -> ClusterDocument:
    return ObjectState(store, "cluster.json", ClusterDocument).read().document


@pytest.fixture
def scheduler(unreliable, runtime):
    return Scheduler("s1", unreliable, runtime)


@pytest.fixture
def other(unreliable, runtime):
    return Scheduler("s2", unreliable, runtime)


def test_a_new_executor_is_admitted_by_one_commit_before_it_is_granted_anything(scheduler, unreliable, runtime):
    lease = executor(runtime)
    writes = unreliable.writes
    assert say(lease, scheduler) == (None, False)
    assert unreliable.writes == writes
    report = scheduler.registry.tick()
    assert report.admitted == (lease.info,)
    assert unreliable.writes == writes + 2
    assert cluster_of(unreliable).executors["e1"] == AdmittedExecutor(info=lease.info, admitted=1)
    answer, _ = say(lease, scheduler)
    assert answer == Grant(sequence=1, lease_ms=TTL_MS)
    assert lease.valid()
    assert say(lease, scheduler)[0] == Grant(sequence=3, lease_ms=TTL_MS)


def test_all_who_wait_are_admitted_in_one_commit(scheduler, unreliable, runtime):
    leases = [executor(runtime, f"e{n}") for n in range(20)]
    for lease in leases:
        say(lease, scheduler)
    writes = unreliable.writes
    assert len(scheduler.registry.tick().admitted) == 20
    assert unreliable.writes == writes + 2
    numbers = [found.admitted for found in cluster_of(unreliable).executors.values()]
    assert sorted(numbers) == list(range(1, 21))


def test_executors_that_are_heard_cost_the_store_nothing(scheduler, unreliable, runtime):
    lease = executor(runtime)
    admit(lease, scheduler)
    writes, reads = unreliable.writes, unreliable.reads
    for _ in range(5):
        say(lease, scheduler)
        scheduler.registry.tick()
    assert (unreliable.writes, unreliable.reads) == (writes, reads)


def test_a_lease_counts_from_when_the_heartbeat_was_sent(scheduler, runtime):
    lease = executor(runtime)
    admit(lease, scheduler)
    heartbeat = lease.heartbeat()
    runtime.advance(4_000)
    scheduler.beat()
    answer = scheduler.registry.heard(heartbeat)
    runtime.advance(4_000)
    lease.answered(answer)
    assert lease.remaining_ms() == TTL_MS - 8_000


def test_a_grant_never_outlives_the_lease_of_its_granter(scheduler, runtime):
    lease = executor(runtime)
    admit(lease, scheduler)
    runtime.advance(TTL_MS - 1_000)
    answer, _ = say(lease, scheduler)
    assert answer.lease_ms == 1_000
    runtime.advance(999)
    assert lease.valid()
    runtime.advance(1)
    assert not lease.valid()
    assert say(lease, scheduler)[0].reason == "scheduler_lapsed"
    scheduler.beat()
    assert say(lease, scheduler)[0] is None
    runtime.advance(TTL_MS)
    with pytest.raises(LeaseExpired):
        scheduler.registry.tick()


def test_an_executor_that_drains_is_told_of_in_the_cluster_before_it_is_granted_more(
    scheduler, other, unreliable, runtime
):
    lease = executor(runtime)
    admit(lease, scheduler)
    admit(lease, other)
    lease.drain()
    assert say(lease, scheduler) == (None, False)
    assert [found.capacity for found in scheduler.registry.tick().admitted] == [0.0]
    assert cluster_of(unreliable).executors["e1"].info.capacity == 0
    assert isinstance(say(lease, scheduler)[0], Grant)
    assert lease.valid()
    assert scheduler.registry.tick().admitted == ()


def test_a_drain_that_is_said_amid_an_admission_is_not_forgotten(scheduler, unreliable, runtime):
    lease = executor(runtime)
    say(lease, scheduler)

    second = unreliable.writes + 2  # after the beat comes the commit

    def meanwhile(number):
        if number == second:
            lease.drain()
            say(lease, scheduler)

    unreliable.before_write = meanwhile
    scheduler.registry.tick()
    scheduler.registry.tick()
    assert cluster_of(unreliable).executors["e1"].info.capacity == 0


def test_what_another_scheduler_commits_of_before_the_drain_is_put_right(scheduler, other, unreliable, runtime):
    lease = executor(runtime)
    admit(lease, scheduler)
    admit(lease, other)
    lease.drain()
    admit(lease, scheduler)
    late = evolve(lease.heartbeat(), executor=evolve(lease.info, capacity=1.0), lapsed=True)
    other.registry.heard(late)
    other.registry.tick()  # admits it again as it was
    assert cluster_of(unreliable).executors["e1"].info.capacity == 1
    admit(lease, other)
    assert cluster_of(unreliable).executors["e1"].info.capacity == 0


def test_the_longest_grant_of_several_schedulers_counts(scheduler, other, runtime):
    lease = executor(runtime)
    admit(lease, scheduler)
    admit(lease, other)
    runtime.advance(20_000)
    other.beat()
    heartbeat = lease.heartbeat()
    answers = [s.registry.heard(heartbeat) for s in (scheduler, other)]
    assert [answer.lease_ms for answer in answers] == [10_000, TTL_MS]
    for answer in reversed(answers):
        lease.answered(answer)
    assert lease.remaining_ms() == TTL_MS


def test_an_executor_whose_lease_ran_out_is_readmitted_before_it_is_granted_again(scheduler, unreliable, runtime):
    lease = executor(runtime)
    admit(lease, scheduler)
    runtime.advance(TTL_MS)
    scheduler.beat()
    with pytest.raises(LeaseExpired, match="executor 'e1' has run out"):
        lease.require()
    assert say(lease, scheduler)[0] is None
    assert cluster_of(unreliable).executors["e1"].admitted == 1
    scheduler.registry.tick()
    assert cluster_of(unreliable).executors["e1"].admitted == 2
    say(lease, scheduler)
    assert lease.valid()


def test_readmission_comes_after_a_beat_that_says_the_silence_is_over(scheduler, unreliable, runtime):
    lease = executor(runtime)
    admit(lease, scheduler)
    runtime.advance(TTL_MS + SKEW_MS + 1)
    scheduler.beat()
    instance = lease.info.instance_id
    assert heartbeat_of(unreliable, "s1").silence_ms(instance) > TTL_MS + SKEW_MS
    say(lease, scheduler)
    seen = []

    def look(number):
        document = heartbeat_of(unreliable.store, "s1")
        seen.append((document.silence_ms(instance), cluster_of(unreliable.store).executors["e1"].admitted))

    unreliable.before_write = look
    scheduler.registry.tick()
    assert seen == [(TTL_MS + SKEW_MS + 1, 1), (0, 1)]


def test_every_beat_between_the_first_one_and_the_commit_says_so_too(scheduler, unreliable, runtime):
    """Else a plain beat in between would put the old silence back, and a granted executor could be lost."""
    lease = executor(runtime)
    admit(lease, scheduler)
    runtime.advance(TTL_MS + SKEW_MS + 1)
    scheduler.beat()
    say(lease, scheduler)
    writes = unreliable.writes

    def beat_in_between(number):
        if number == writes + 2:
            unreliable.before_write = lambda number: None
            scheduler.beat()

    unreliable.before_write = beat_in_between
    scheduler.registry.tick()
    assert heartbeat_of(unreliable, "s1").silence_ms(lease.info.instance_id) == 0


def heartbeat_of(store, name) -> HeartbeatDocument:
    return ObjectState(store, heartbeat_key(name), HeartbeatDocument).read().document


def test_a_heartbeat_that_was_not_granted_does_not_count_as_heard(scheduler, unreliable, runtime):
    lease = executor(runtime)
    admit(lease, scheduler)
    runtime.advance(TTL_MS)
    scheduler.beat()
    say(lease, scheduler)
    unreliable.chance = lambda: "unavailable"
    with pytest.raises(RetriesExhausted):
        scheduler.registry.tick()
    unreliable.chance = None
    silence_ms = scheduler.registry.silences()[lease.info.instance_id]
    assert silence_ms >= TTL_MS
    scheduler.beat()
    scheduler.registry.tick()
    say(lease, scheduler)


def lose(scheduler, lease, runtime, *others) -> None:
    """Let the executor be silent until the scheduler's reaper has removed it."""
    for pause_ms in (TTL_MS, SKEW_MS + 1):
        runtime.advance(pause_ms)
        for one in (scheduler, *others):
            one.beat()
    assert scheduler.reaper.tick().lost == (lease.info,)


def test_a_silent_executor_is_lost_only_when_a_document_says_it_was_silent_too_long(scheduler, runtime):
    lease = executor(runtime)
    admit(lease, scheduler)
    runtime.advance(20_000)
    scheduler.beat()
    runtime.advance(TTL_MS - 1)
    assert scheduler.registry.silences()[lease.info.instance_id] > TTL_MS + SKEW_MS
    assert scheduler.reaper.tick().lost == ()
    scheduler.beat()
    assert scheduler.reaper.tick().lost == (lease.info,)


def test_an_executor_that_another_live_scheduler_hears_is_not_lost(scheduler, other, runtime):
    lease = executor(runtime)
    admit(lease, scheduler)
    admit(lease, other)
    for _ in range(8):
        runtime.advance(10_000)
        say(lease, other)
        scheduler.beat()
        other.beat()
        assert scheduler.reaper.tick().lost == ()
    for _ in range(4):
        runtime.advance(10_000)
        scheduler.beat()
        other.beat()
    assert scheduler.reaper.tick().lost == (lease.info,)


def test_an_executor_that_only_a_dead_scheduler_heard_is_lost_after_that_one_is_buried(scheduler, other, runtime):
    lease = executor(runtime)
    admit(lease, other)
    scheduler.reaper.tick()
    for _ in range(5):
        runtime.advance(7_000)
        scheduler.beat()
    assert not lease.valid()
    report = scheduler.reaper.tick()
    assert (report.evicted, report.lost) == (("s2",), ())
    runtime.advance(1)
    scheduler.beat()
    assert scheduler.reaper.tick().lost == (lease.info,)


def test_nobody_is_lost_while_a_heartbeat_cannot_be_read(scheduler, other, unreliable, runtime):
    from ballista_py.errors import StoreUnavailable

    lease = executor(runtime)
    admit(lease, scheduler)
    for _ in range(5):
        runtime.advance(10_000)
        scheduler.beat()
        other.beat()

    def refuse(key):
        if key == heartbeat_key("s2"):
            raise StoreUnavailable("no", key=key)

    unreliable.before_get = refuse
    assert scheduler.reaper.tick().lost == ()
    unreliable.before_get = lambda key: None
    assert scheduler.reaper.tick().lost == (lease.info,)


def test_an_executor_is_not_lost_while_one_that_left_may_have_granted_it(scheduler, other, runtime):
    lease = executor(runtime)
    admit(lease, other)
    for _ in range(4):
        runtime.advance(10_000)
        say(lease, other)
        scheduler.beat()
        other.beat()
    assert lease.valid()
    other.membership.leave()
    while lease.valid():
        assert scheduler.reaper.tick().lost == ()
        runtime.advance(5_000)
        scheduler.beat()
    for _ in range(3):
        runtime.advance(5_000)
        scheduler.beat()
        report = scheduler.reaper.tick()
    assert report.lost == (lease.info,)


def test_losing_and_readmitting_meet_and_the_readmission_may_win(scheduler, other, unreliable, runtime):
    lease = executor(runtime)
    admit(lease, scheduler)
    for _ in range(5):
        runtime.advance(10_000)
        scheduler.beat()
        other.beat()
    say(lease, scheduler)

    def readmit_first(number):
        unreliable.before_write = lambda number: None
        scheduler.registry.tick()

    unreliable.before_write = readmit_first
    assert other.reaper.tick().lost == ()
    say(lease, scheduler)
    assert lease.valid()
    assert cluster_of(unreliable).executors["e1"].admitted == 2


def test_losing_and_readmitting_meet_and_the_loss_may_win(scheduler, other, unreliable, runtime):
    lease = executor(runtime)
    admit(lease, scheduler)
    for _ in range(5):
        runtime.advance(10_000)
        scheduler.beat()
        other.beat()
    say(lease, scheduler)
    writes = unreliable.writes

    def lose_first(number):
        if number == writes + 1:
            unreliable.before_write = lambda number: None
            assert other.reaper.tick().lost == (lease.info,)

    unreliable.before_write = lose_first
    scheduler.registry.tick()
    answer, lost = say(lease, scheduler)
    assert (answer.reason, lost) == ("lost", True)
    assert not lease.valid()
    with pytest.raises(Fenced, match="drops what it"):
        lease.heartbeat()
    old = lease.info.instance_id
    assert lease.rejoin().instance_id != old
    admit(lease, scheduler)


def test_one_that_was_lost_is_told_so_by_everybody_and_never_granted_again(scheduler, other, runtime):
    """A heartbeat of before comes late, when its sender had not lapsed yet."""
    lease = executor(runtime)
    admit(lease, scheduler)
    late = lease.heartbeat()
    lose(scheduler, lease, runtime, other)
    say(lease, scheduler)
    scheduler.registry.tick()
    assert scheduler.registry.heard(late) == scheduler.registry.heard(late)
    assert scheduler.registry.heard(late).reason == "lost"
    other.beat()
    other.registry.heard(lease.heartbeat())
    other.registry.tick()
    assert say(lease, other) == (
        Refusal(
            sequence=lease._sequence,
            reason="lost",
            message="executor 'e1' was declared lost: it drops what it holds and joins as a new instance",
        ),
        True,
    )


def test_one_that_was_lost_before_its_first_grant_arrived_is_lost_all_the_same(scheduler, runtime):
    """Nothing of it says that it was admitted, and yet maps may name it."""
    lease = executor(runtime)
    say(lease, scheduler)
    scheduler.registry.tick()
    lose(scheduler, lease, runtime)
    scheduler.beat()
    assert not lease.heartbeat().admitted
    for _ in range(2):
        scheduler.registry.heard(lease.heartbeat())
    scheduler.registry.tick()
    assert say(lease, scheduler)[0].reason == "lost"


def test_a_restarted_executor_waits_until_its_old_instance_is_lost(scheduler, runtime):
    old = executor(runtime)
    admit(old, scheduler)
    new = executor(runtime)
    say(new, scheduler)
    scheduler.registry.tick()
    answer, lost = say(new, scheduler)
    assert (answer.reason, lost) == ("already_registered", False)
    lose(scheduler, old, runtime)
    admit(new, scheduler)
    assert cluster_of(scheduler.store).executors["e1"].info == new.info


def test_a_restart_does_not_hide_that_the_old_instance_was_heard(scheduler, runtime):
    """Else the old one, which still serves, would look silent since the scheduler started."""
    old, new = executor(runtime), executor(runtime)
    runtime.advance(20_000)
    scheduler.beat()
    admit(old, scheduler)
    runtime.advance(TTL_MS - 10_000)
    scheduler.beat()
    say(new, scheduler)
    scheduler.registry.tick()
    assert scheduler.reaper.tick().lost == ()
    assert old.valid()


def test_a_graceful_leave_removes_an_executor_at_once(scheduler, unreliable, runtime):
    lease = executor(runtime)
    admit(lease, scheduler)
    info = lease.info
    lease.leave()
    assert not lease.valid()
    scheduler.registry.leave(info.executor_id, info.instance_id)
    scheduler.registry.leave(info.executor_id, info.instance_id)
    assert cluster_of(unreliable).executors == {}
    assert cluster_of(unreliable).lost_instances == (info.instance_id,)
    admit(executor(runtime), scheduler)


def test_one_that_left_serves_nothing_whatever_still_arrives(scheduler, runtime):
    lease = executor(runtime)
    admit(lease, scheduler)
    late = scheduler.registry.heard(lease.heartbeat())
    assert isinstance(late, Grant)
    lease.leave()
    assert lease.answered(late) is False
    assert not lease.valid()
    with pytest.raises(Fenced):
        lease.heartbeat()
    assert lease.rejoin().instance_id == lease.heartbeat().executor.instance_id


def test_a_grant_for_a_former_instance_is_ignored(scheduler, runtime):
    lease = executor(runtime)
    admit(lease, scheduler)
    heartbeat = lease.heartbeat()
    grant = scheduler.registry.heard(heartbeat)
    assert lease.answered(Refusal(sequence=heartbeat.sequence, reason="lost", message=""))
    assert lease.answered(grant)
    assert not lease.valid()
    lease.rejoin()
    assert not lease.answered(grant)
    assert not lease.valid()


def test_a_scheduler_that_joined_anew_has_heard_nobody(scheduler, unreliable, runtime):
    lease = executor(runtime)
    admit(lease, scheduler)
    scheduler.membership.leave()
    assert say(lease, scheduler)[0].reason == "scheduler_lapsed"
    scheduler.membership.join()
    assert scheduler.registry.silences() == {}
    assert say(lease, scheduler)[0] is None
    assert scheduler.registry.tick().admitted == (lease.info,)


def test_what_waited_for_too_long_is_not_admitted(scheduler, unreliable, runtime):
    lease = executor(runtime)
    say(lease, scheduler)
    for _ in range(4):
        runtime.advance(10_000)
        scheduler.beat()
    assert scheduler.registry.tick().admitted == ()
    assert cluster_of(unreliable).executors == {}


def test_reports_of_what_is_held_are_those_of_the_granted_and_recent(scheduler, runtime):
    lease = executor(runtime)
    held = (HeldPartitions(table="t", revision=3, active=(1,), epochs=(2,)),)
    admit(lease, scheduler)
    say(lease, scheduler, held)
    assert scheduler.registry.held() == {("e1", lease.info.instance_id): held}
    runtime.advance(TTL_MS + 1)
    scheduler.beat()
    assert scheduler.registry.held() == {}


def test_unanswered_heartbeats_are_not_remembered_without_bound(runtime):
    lease = executor(runtime)
    first = lease.heartbeat()
    for _ in range(1_000):
        lease.heartbeat()
    assert len(lease._sent_ms) <= 256
    assert not lease.answered(Grant(sequence=first.sequence, lease_ms=TTL_MS))
    assert not lease.valid()


def test_without_any_document_nobody_is_silent(runtime):
    info = executor(runtime).info
    cluster = ClusterDocument().admit(info)
    quiet = HeartbeatDocument(scheduler_id="s", instance_id="i", uptime_ms=100.0)
    assert silent_executors(cluster, [], 10) == ()
    assert silent_executors(cluster, [quiet], 99) == (cluster.executors["e1"],)
    assert silent_executors(cluster, [quiet], 100) == ()
    assert silent_executors(cluster, [quiet, evolve(quiet, silences={info.instance_id: 5.0})], 99) == ()


def test_an_older_heartbeat_that_comes_late_does_not_replace_a_newer_one(scheduler, runtime):
    lease = executor(runtime)
    admit(lease, scheduler)
    late = lease.heartbeat([HeldPartitions(table="t", revision=1)])
    say(lease, scheduler, [HeldPartitions(table="t", revision=2)])
    scheduler.registry.heard(late)
    (newest,) = scheduler.registry.newest()
    assert newest.sequence == late.sequence + 1
    assert [held.revision for (reported,) in scheduler.registry.held().values() for held in [reported]] == [2]


@pytest.mark.parametrize(("silent_ms", "granted"), [(TTL_MS, True), (TTL_MS + 1, False)])
def test_whoever_was_not_heard_here_for_one_ttl_is_admitted_anew_whatever_others_granted(
    scheduler, runtime, silent_ms, granted
):
    lease = executor(runtime)
    admit(lease, scheduler)
    for _ in range(2):
        runtime.advance(silent_ms / 2)
        scheduler.beat()
    answer = scheduler.registry.heard(evolve(lease.heartbeat(), lapsed=False))
    assert isinstance(answer, Grant) if granted else answer is None


def test_a_farewell_of_one_instance_does_not_make_the_next_one_forgotten(scheduler, unreliable, runtime):
    lease = executor(runtime)
    admit(lease, scheduler)
    former = lease.info.instance_id
    scheduler.registry.leave("e1", "another instance")
    assert say(lease, scheduler)[0] is not None
    scheduler.registry.leave("e2", former)
    assert [one.executor.instance_id for one in scheduler.registry.newest()] == [former]
    scheduler.registry.leave("e1", former)
    assert scheduler.registry.newest() == ()
    assert cluster_of(unreliable).executors == {}


def test_no_more_executors_are_remembered_than_a_cluster_can_have_twice(scheduler, runtime, monkeypatch):
    monkeypatch.setattr("ballista_py.state.members.executor_registry.MAX_EXECUTORS", 2)
    for number in range(4):
        assert say(executor(runtime, f"e{number}"), scheduler) == (None, False)
    answer, _ = say(executor(runtime, "one-more"), scheduler)
    assert (type(answer), answer.reason) == (Refusal, "not_admitted")
    assert len(scheduler.registry.heard_ms()) == 4


def test_of_many_schedulers_each_has_its_word_before_an_executor_is_lost(unreliable, runtime):
    """Also those that a scheduler does not look after otherwise."""
    many = [Scheduler(f"s{number}", unreliable, runtime) for number in range(8)]
    lease = executor(runtime)
    for one in many:
        admit(lease, one)
    hears = many[5]
    assert "s5" not in following([one.membership.scheduler_id for one in many], "s0", WATCHED)

    def later(heard_by):
        runtime.advance(10_000)
        for one in heard_by:
            say(lease, one)
        for one in many:
            one.beat()
        return [info for one in many for info in one.reaper.tick().lost]

    for _ in range(8):
        assert later([hears]) == []
    assert lease.valid()
    lost = [info for _ in range(5) for info in later([])]
    assert lost == [lease.info]
    assert not cluster_of(unreliable).executors
