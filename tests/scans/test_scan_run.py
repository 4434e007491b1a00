"""The tasks of a scan in virtual time: executors that are slow, die, fall silent; messages that are lost or late."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ballista_py.scans.scan_run import AttemptEnd, ScanLimits, ScanRun
from ballista_py.scans.task import FileSlice, ScanTask
from ballista_py.scans.weighted_scheduler import ScanWorker

NO_COLUMNS = pa.schema([])
MB = 1 << 20


def task_of(number, size=64 * MB):
    file = FileSlice(path=f"s3://b/t/{number:04}", size=size)
    return ScanTask(fragment_id="f", number=number, files=(file,), columns=(), schema=NO_COLUMNS)


def workers_of(count):
    return [ScanWorker(id=f"e{number}") for number in range(count)]


class Cluster:
    """A driver and executors in virtual time, in milliseconds. An executor reads `speeds` bytes a millisecond.

    `dies` says when an executor ends, `silent` from when to when none of its messages arrive (nor any to it), `spoils`
    the attempts, by their ids, that fail in the middle. Each executor says that it is alive every 500 ms.
    """

    BEAT, DEGRADED, LOST = 500.0, 1_500.0, 4_000.0

    def __init__(self, tasks, speeds, dies=None, silent=None, spoils=(), limits=None, overhead=20.0, claims=()):
        self.speeds, self.dies, self.silent, self.spoils = speeds, dies or {}, silent or {}, set(spoils)
        self.claims, self.used = set(claims), Counter()
        self.user, self.whose = {}, {}  # by task: the attempt that was claimed, and the one that counted
        self.run = ScanRun(tasks, [ScanWorker(id=name) for name in speeds], limits)
        self.overhead = overhead
        self.events, self.order = [], itertools.count()
        self.idle, self.heard = set(speeds), dict.fromkeys(speeds, 0.0)
        self.counted, self.cancelled, self.begun = Counter(), set(), []
        self.now, self.ended = 0.0, None

    def at(self, moment, what, *args):
        heapq.heappush(self.events, (moment, next(self.order), what, args))

    def reaches(self, name, moment):
        begin, end = self.silent.get(name, (0, 0))
        return moment < self.dies.get(name, 1e12) and not begin <= moment < end

    def go(self, most=4e5):
        for name in self.speeds:
            self.at(0.0, self.beat, name)
        self.at(self.BEAT, self.watch)
        while self.events and self.ended is None:
            self.now, _, what, args = heapq.heappop(self.events)
            assert self.now < most, "it never ends"
            what(*args)
            self.give()
            if self.run.is_done or self.run.error:
                self.ended = self.now
        return self.ended

    def give(self):
        for name in sorted(self.idle):
            attempt = self.run.next_for(name, self.now)
            if attempt is None:
                continue
            self.idle.discard(name)
            self.begun.append(attempt)
            if not self.reaches(name, self.now):
                self.at(self.now + self.LOST, self.unanswered, attempt)
                continue
            took = self.overhead + attempt.task.cost / self.speeds[name]
            if attempt.id in self.claims:
                self.at(self.now + took / 3, self.claim, attempt)
            if attempt.id in self.spoils:
                self.at(self.now + took / 2, self.fails, attempt)
            else:
                self.at(self.now + took, self.ends, attempt)
        look = self.run.next_look_ms()
        if look is not None and look > self.now:
            self.at(look, lambda: None)

    def ends(self, attempt):
        if attempt.id in self.cancelled or self.now >= self.dies.get(attempt.worker, 1e12):
            return
        begin, end = self.silent.get(attempt.worker, (0, 0))
        if begin <= self.now < end:  # it arrives when the executor is heard of again, and twice
            self.at(end, self.ends, attempt)
            return
        for _ in range(2):
            end = self.run.finished(attempt.id, self.now)
            self.counted[attempt.task.name] += end.counts
            if end.counts:
                self.whose[attempt.task.name] = attempt.id
            self.cancel(end)
        self.idle.add(attempt.worker)

    def claim(self, attempt):
        """Rows of it are used from now on, if it may be."""
        if attempt.id not in self.cancelled and self.reaches(attempt.worker, self.now):
            end = self.run.claimed(attempt.id, self.now)
            self.used[attempt.task.name] += end.counts
            if end.counts:
                self.user[attempt.task.name] = attempt.id
            self.cancel(end)

    def fails(self, attempt):
        if attempt.id in self.cancelled or not self.reaches(attempt.worker, self.now):
            return
        self.cancel(self.run.failed(attempt.id, "spoilt"))
        self.idle.add(attempt.worker)

    def unanswered(self, attempt):
        """The order was lost: whoever drives a run gives each call a time limit."""
        self.cancel(self.run.failed(attempt.id, "no answer"))
        self.idle.add(attempt.worker)

    def cancel(self, end: AttemptEnd):
        for one in end.cancel:
            self.cancelled.add(one.id)
            self.idle.add(one.worker)

    def beat(self, name):
        if self.now < self.dies.get(name, 1e12):
            if self.reaches(name, self.now):
                self.heard[name] = self.now
                self.run.heartbeat(name)
            self.at(self.now + self.BEAT, self.beat, name)

    def watch(self):
        for name, heard in self.heard.items():
            if self.now - heard >= self.LOST:
                self.cancel(self.run.lost(name, "not heard of"))
                if not any(one.worker == name for one in self.run.running):
                    self.idle.add(name)
            elif self.now - heard >= self.DEGRADED:
                self.run.heartbeat_missed(name)
        self.at(self.now + self.BEAT, self.watch)


def even(count=4, tasks=160):
    return Cluster([task_of(n) for n in range(tasks)], {f"e{n}": 64_000.0 for n in range(count)}).go()


@pytest.mark.parametrize("tasks", [60, 100, 160, 400])
def test_an_executor_at_a_quarter_of_the_speed_costs_less_than_a_third_more(tasks):
    speeds = {f"e{n}": 64_000.0 for n in range(4)}
    straight = even(4, tasks)
    slowed = Cluster([task_of(n) for n in range(tasks)], {**speeds, "e2": 16_000.0})
    took = slowed.go()
    twice = len(slowed.begun) - tasks
    print(
        f"{tasks} tasks: {straight:,.0f} ms even, {took:,.0f} ms one slow, x{took / straight:.2f}; {twice} twice"
    )
    assert took <= 1.3 * straight
    assert set(slowed.counted.values()) == {1}
    assert len(slowed.counted) == tasks


def test_one_that_stands_still_is_overtaken_and_its_rows_do_not_count():
    cluster = Cluster([task_of(n) for n in range(40)], {"e0": 64_000.0, "e1": 64_000.0, "e2": 0.001})
    took = cluster.go()
    assert took < 1.8 * even(2, 40)
    assert set(cluster.counted.values()) == {1}
    assert len(cluster.cancelled) == 1


SCENES = st.fixed_dictionaries({
    "sizes": st.lists(st.integers(0, 200 * MB), min_size=1, max_size=40),
    "speeds": st.lists(st.sampled_from([64_000.0, 16_000.0, 4_000.0]), min_size=1, max_size=5),
    "dies": st.dictionaries(st.integers(0, 4), st.floats(0, 20_000), max_size=3),
    "silent": st.dictionaries(st.integers(0, 4), st.tuples(st.floats(0, 9_000), st.floats(1, 9_000)), max_size=3),
    "spoils": st.sets(st.integers(0, 40), max_size=4),
    "claims": st.sets(st.integers(0, 40), max_size=8),
})  # fmt: skip


@given(SCENES)
@settings(max_examples=400, deadline=None)
def test_every_task_counts_once_or_the_scan_says_why_it_failed(scene):
    names = [f"e{n}" for n in range(len(scene["speeds"]))]
    dies = {f"e{n}": at for n, at in scene["dies"].items() if 0 < n < len(names)}  # somebody stays
    silent = {f"e{n}": (at, at + long) for n, (at, long) in scene["silent"].items() if n < len(names)}
    tasks = [task_of(n, size) for n, size in enumerate(scene["sizes"])]
    speeds = dict(zip(names, scene["speeds"], strict=True))
    cluster = Cluster(tasks, speeds, dies, silent, scene["spoils"], claims=scene["claims"])
    cluster.go()
    assert max(cluster.counted.values(), default=0) <= 1
    if cluster.run.error is None:
        assert sum(cluster.counted.values()) == len(tasks)
    else:
        assert "has failed 4 times" in cluster.run.error or "after rows of it were used" in cluster.run.error
    assert max(cluster.used.values(), default=0) <= 1
    assert all(cluster.whose[name] == cluster.user[name] for name in cluster.user.keys() & cluster.whose.keys())
    tries = Counter(attempt.task.name for attempt in cluster.begun)
    assert max(tries.values()) <= 4 + 4  # four that fail, beside each a copy
    runs = Counter((attempt.task.name, attempt.worker) for attempt in cluster.begun)
    if len(names) - len(dies) > 3 and not silent:
        assert max(runs.values()) == 1  # there always was an elsewhere


def test_a_task_that_fails_everywhere_ends_the_scan_after_three_retries_each_elsewhere():
    run = ScanRun([task_of(0), task_of(1)], workers_of(5))
    other = None
    seen = []
    for name in ("e0", "e1", "e2", "e3", "e4") * 2:
        attempt = run.next_for(name, 0.0)
        if attempt is None:
            continue
        if attempt.task.number == 1:
            other = attempt
            continue
        seen.append(name)
        end = run.failed(attempt.id, "no such file")
    assert len(seen) == len(set(seen)) == 4
    assert run.error == f"scan task f/0 has failed 4 times, at last at {seen[-1]}: no such file"
    assert end == AttemptEnd(cancel=(other,))
    assert run.next_for("e4", 0.0) is None
    assert run.finished(other.id, 1.0) == AttemptEnd()


def test_a_task_is_tried_again_elsewhere_though_the_one_where_it_failed_is_well_again():
    run = ScanRun([task_of(0)], workers_of(2))
    home = next(name for name in ("e0", "e1") if run._at[name].queue)
    other = {"e0": "e1", "e1": "e0"}[home]
    run.failed(run.next_for(home, 0.0).id, "spoilt")
    run.heartbeat(home)
    assert run.next_for(home, 1.0) is None
    assert run.next_for(other, 1.0) is not None


def test_what_no_executor_could_do_better_ends_the_scan_at_once():
    run = ScanRun([task_of(0), task_of(1)], workers_of(2))
    first, second = run.next_for("e0", 0.0), run.next_for("e1", 0.0)
    assert run.failed(first.id, "the file has changed", final=True).cancel == (second,)
    assert run.error == "the file has changed"
    assert not run.is_done


def test_where_both_copies_end_at_once_the_first_that_is_told_counts():
    run, first, copy = with_a_copy()
    assert run.finished(copy.id, 9_000.0) == AttemptEnd(counts=True, cancel=(first,))
    assert run.finished(first.id, 9_000.0) == AttemptEnd()
    assert run.failed(first.id, "cancelled") == AttemptEnd()
    assert run.is_done
    assert run.next_for("e0", 9_001.0) is None  # but it was not its fault
    run, first, copy = with_a_copy()
    assert run.finished(first.id, 9_000.0).cancel == (copy,)


def with_a_copy():
    """A run of which one task is left, which two executors have."""
    run = ScanRun([task_of(0), task_of(1)], workers_of(2))
    first, second = run.next_for("e0", 0.0), run.next_for("e1", 0.0)
    run.finished(second.id, 1_000.0)
    assert run.next_for("e1", 1_999.0) is None
    assert run.next_look_ms() == pytest.approx(2_000.0)
    copy = run.next_for("e1", 2_000.0)
    assert copy.task == first.task
    assert run.next_for("e1", 9_000.0) is None  # two are enough
    assert run.next_for("e9", 9_000.0) is None
    return run, first, copy


def test_what_takes_less_than_a_second_is_no_straggler():
    run = ScanRun([task_of(0), task_of(1)], workers_of(2))
    first, second = run.next_for("e0", 0.0), run.next_for("e1", 0.0)
    run.finished(second.id, 10.0)
    assert run.next_look_ms() == 1_000.0
    assert run.next_for("e1", 999.0) is None
    assert run.next_for("e1", 1_000.0).task == first.task
    assert ScanRun([task_of(0)], workers_of(2)).next_look_ms() is None


def test_where_no_task_has_ended_yet_a_copy_begins_after_ten_seconds():
    run = ScanRun([task_of(0)], workers_of(2))
    name = run.next_for("e0", 0.0).task.name
    assert run.next_for("e1", 9_999.0) is None
    assert run.next_for("e1", 10_000.0).task.name == name


def test_an_attempt_that_was_claimed_is_the_only_one_and_its_failure_ends_the_scan():
    run, first, copy = with_a_copy()
    assert run.claimed(copy.id, 2_500.0) == AttemptEnd(counts=True, cancel=(first,))
    assert run.claimed(first.id, 2_500.0) == AttemptEnd()
    assert run.finished(first.id, 2_600.0) == AttemptEnd()
    assert not run.is_done
    assert run.next_look_ms() is None
    assert run.next_for("e9", 1e6) is None  # however long it takes
    assert run.claimed(copy.id, 3_000.0) == AttemptEnd(counts=True)  # said again
    assert run.finished(copy.id, 9_000.0) == AttemptEnd(counts=True)
    assert run.is_done
    run, first, copy = with_a_copy()
    run.claimed(first.id, 2_500.0)
    run.lost("e0", "not heard of")
    assert run.error == "scan task f/0 has failed after rows of it were used, at e0: not heard of"
    assert run.next_for("e9", 1e6) is None


def test_a_copy_goes_on_where_the_first_has_failed_and_the_task_is_not_queued_beside_it():
    run, first, copy = with_a_copy()
    run.failed(first.id, "died")
    run.heartbeat("e0")
    assert run.next_for("e0", 2_500.0) is None  # it has failed here, and runs
    assert run.next_for("e9", 2_500.0) is None  # and is not queued beside
    assert run.finished(copy.id, 3_000.0).counts
    run, first, copy = with_a_copy()
    run.failed(copy.id, "died")
    run.failed(first.id, "died")
    again = run.next_for("e7", 4_000.0)
    assert again.task == first.task


def test_an_attempt_that_was_given_up_is_late_whenever_it_ends():
    run = ScanRun([task_of(0)], workers_of(2))
    first = run.next_for("e0", 0.0)
    run.lost("e0", "not heard of")
    assert run.finished(first.id, 50.0) == AttemptEnd()
    second = run.next_for("e1", 60.0)
    assert run.finished(first.id, 70.0) == AttemptEnd()
    assert run.finished(second.id, 80.0).counts
    assert run.finished(second.id, 81.0) == AttemptEnd()


def test_a_worker_is_degraded_by_a_missed_heartbeat_removed_by_a_failure_and_healed_by_one_heartbeat():
    run = ScanRun([task_of(n) for n in range(9)], workers_of(2))
    run.heartbeat_missed("e0")
    assert run.next_for("e0", 0.0) is None
    attempt = run.next_for("e1", 0.0)
    run.failed(attempt.id, "spoilt")
    assert run.next_for("e1", 0.0) is None
    run.heartbeat_missed("e1")
    assert run.next_for("e1", 0.0) is None  # no better for it
    assert run.next_for("e0", 0.0).task == attempt.task  # the last resort, and elsewhere
    run.heartbeat("e1")
    assert run.next_for("e1", 0.0) is not None
    assert run.next_for("e0", 0.0) is None
    run.heartbeat("e0")
    assert run.next_for("e0", 0.0) is not None


def test_where_nobody_may_be_given_anything_that_is_told():
    run = ScanRun([task_of(0)], workers_of(1))
    attempt = run.next_for("e0", 0.0)
    assert not run.is_stuck
    run.failed(attempt.id, "spoilt")
    assert run.is_stuck
    run.heartbeat("e0")
    assert not run.is_stuck
    assert run.next_for("e0", 0.0) is not None  # there is no elsewhere
    assert ScanRun([task_of(0)], []).is_stuck
    assert ScanRun([], []).is_done


def test_who_comes_later_takes_the_cheapest_task_of_the_one_that_will_be_done_last():
    run = ScanRun([task_of(n, (n + 1) * MB) for n in range(12)], workers_of(2))
    slow, fast = run.next_for("e0", 0.0), run.next_for("e1", 0.0)
    run.finished(fast.id, 10.0)
    run.finished(slow.id, 1_000.0)
    queued = {name: [task.cost for task in run._at[name].queue] for name in ("e0", "e1")}
    taken = run.next_for("e5", 1_001.0)
    assert taken.task.cost == min(queued["e0"])


def test_tasks_without_any_worker_wait_for_the_first_that_comes():
    run = ScanRun([task_of(0), task_of(1)], [ScanWorker(id="e0", health="removed")], ScanLimits(retries=0))
    assert run.next_for("e0", 0.0) is None
    first = run.next_for("new", 0.0)
    run.failed(first.id, "spoilt")
    assert run.error.startswith(f"scan task {first.task.name} has failed 1 times")
