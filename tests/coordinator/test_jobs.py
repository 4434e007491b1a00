"""Jobs at a scheduler, over a store whose requests are counted: what each costs, who is next, who may."""

import re
from collections import Counter

import pyarrow as pa
import pytest
from attrs import define, evolve, field

from ballista_py.coordinator.jobs import collector
from ballista_py.coordinator.jobs.attempt import JobRows
from ballista_py.coordinator.jobs.chunks import read_chunk
from ballista_py.coordinator.jobs.collector import HEAL_MS, KNOWN_MS, JobCollector
from ballista_py.coordinator.jobs.limits import JobLimits, in_turn
from ballista_py.coordinator.jobs.runner import MISSING_MS, JobRunner, JobsSeen
from ballista_py.coordinator.jobs.service import JobService, job_row
from ballista_py.coordinator.jobs.shelf import JobShelf
from ballista_py.errors import (
    DocumentUnreadable,
    InvalidData,
    JobAbandoned,
    JobCancelled,
    JobMissing,
    JobRefused,
    JobResultTooLarge,
    NotOwner,
    SqlError,
    TimeLimit,
    TryLater,
    Unauthenticated,
)
from ballista_py.runtime import SystemRuntime
from ballista_py.state.documents.jobs import JobRequest, OpenJob, taken_over
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.work import current_client

SCHEMA = pa.schema([("n", pa.int64())])
ROWS = 100  # of a batch, which is a chunk of its own
LIMITS = JobLimits(max_running=2, max_queued=6, chunk_bytes=ROWS * 8, result_ttl_ms=60_000.0)


class Clock(SystemRuntime):
    """Time that passes when it is told to, or slept for."""

    def __init__(self):
        self.now_ms = 1_000_000.0

    def monotonic_ms(self):
        return self.now_ms

    def wall_ms(self):
        return int(self.now_ms)

    def sleep_ms(self, duration_ms):
        self.now_ms += max(1.0, duration_ms)


class CountingStore(MemoryStore):
    def __init__(self, runtime):
        super().__init__(runtime=runtime)
        self.asked = Counter()

    def get(self, key, max_bytes=1 << 30):
        self.asked["get"] += 1
        return super().get(key, max_bytes)

    def create(self, key, data):
        self.asked["create"] += 1
        return super().create(key, data)

    def replace(self, key, data, version):
        self.asked["replace"] += 1
        return super().replace(key, data, version)

    def delete(self, key):
        self.asked["delete"] += 1
        super().delete(key)

    def list(self, prefix):
        self.asked["list"] += 1
        return super().list(prefix)


@define
class Members:
    """The schedulers that there are."""

    instances_: set = field(factory=set)
    asked: int = 0

    def instances(self):
        self.asked += 1
        return frozenset(self.instances_)


@define(slots=False)
class Me:
    members: Members
    name: str

    def me(self):
        return self.name, f"i-{self.name}"

    def instances(self):
        return self.members.instances()


@define
class Statements:
    """`rows N` gives N batches of numbers; `fail` is wrong; others say what was done, and for whom."""

    done: list = field(factory=list)
    breaks: list = field(factory=list)

    def run(self, job, token):
        verb, _, count = job.request.sql.partition(" ")
        self.done.append((job.request.sql, token, current_client()))
        if self.breaks:
            raise self.breaks.pop()
        if verb == "fail":
            raise SqlError("no such thing")
        batches = int(count or 1) if verb == "rows" else 1
        made = (pa.record_batch({"n": range(n * ROWS, (n + 1) * ROWS)}, schema=SCHEMA) for n in range(batches))
        return JobRows(schema=SCHEMA, batches=made)


class Scheduler:
    def __init__(self, site, name, limits=LIMITS, **over):
        self.name, self.threads = name, []
        shelf, seen = JobShelf(site.store, site.clock), JobsSeen(site.clock)
        site.members.instances_.add(f"i-{name}")
        self.runner = JobRunner(
            shelf, site.clock, Me(site.members, name), site.statements, limits, self.threads.append, seen
        )
        self.service = JobService(shelf, site.clock, limits, seen)
        self.collector = JobCollector(shelf, site.clock, limits)

    def work(self):
        """Look, and do what was begun."""
        self.runner.tick()
        while self.threads:
            self.threads.pop(0)()

    def die(self, site):
        site.members.instances_.discard(f"i-{self.name}")


@define
class Site:
    clock: Clock = field(factory=Clock)
    members: Members = field(factory=Members)
    statements: Statements = field(factory=Statements)
    store: CountingStore = field(init=False)

    def __attrs_post_init__(self):
        self.store = CountingStore(self.clock)

    def keys(self, pattern):
        return [entry.key for entry in MemoryStore.list(self.store, "jobs/") if re.search(pattern, entry.key)]


@pytest.fixture
def site():
    return Site()


@pytest.fixture
def one(site):
    return Scheduler(site, "s1")


def request(sql="rows 1", **more):
    return JobRequest(sql=sql, **more)


def numbers(service, job, client=""):
    return [
        row
        for number in range(len(service.get(job.job_id, client).chunks))
        for row in service.chunk(job.job_id, number, client)[1]["n"].to_pylist()
    ]


def test_a_job_costs_eight_requests_and_its_chunks(site, one):
    one.runner.tick()  # a scheduler that runs has looked a moment ago
    site.store.asked.clear()
    job = one.service.submit(request("rows 3"))
    one.work()
    asked = dict(site.store.asked)
    assert one.service.get(job.job_id).state == "SUCCEEDED"
    # marker, document; a look; begun; three chunks; ended; marker
    assert asked == {"create": 2 + 3, "list": 1, "get": 2, "replace": 2, "delete": 1}
    assert site.members.asked == 0


def test_a_look_costs_one_listing_however_many_jobs_there_were(site, one):
    for _ in range(50):
        one.service.submit(request())
        one.work()
    site.store.asked.clear()
    for _ in range(10):
        one.work()
    assert dict(site.store.asked) == {"list": 10}
    assert site.keys("^jobs/open/") == []


def test_a_result_is_all_rows_in_order_and_nothing_else_lies_there(site, one):
    job = one.service.submit(request("rows 3"))
    one.work()
    assert numbers(one.service, job) == list(range(3 * ROWS))
    found = one.service.get(job.job_id)
    assert (found.rows, len(found.chunks), found.attempt) == (3 * ROWS, 3, 1)
    assert sorted(found.chunk_keys()) == site.keys(r"\.arrow$")


def test_a_job_that_is_sent_again_is_one_job_and_another_under_its_id_is_refused(site, one):
    job_id = "67E55044-10B1-426F-9247-BB680E5FE0C8"
    first = one.service.submit(request(), job_id=job_id)
    assert one.service.submit(request(), job_id=job_id) == first
    one.work()
    assert one.service.submit(request(), job_id=first.job_id).state == "SUCCEEDED"
    one.work()
    assert len(site.statements.done) == 1
    assert site.keys("^jobs/open/") == []
    with pytest.raises(JobRefused, match="take a new id"):
        one.service.submit(request("rows 2"), job_id=job_id)
    one.service.close(job_id)
    assert one.service.submit(request(), job_id=job_id).state == "CLOSED"


def test_more_than_the_queue_takes_is_told_to_try_later_and_one_sent_again_is_not(site, one):
    jobs = [one.service.submit(request()) for _ in range(LIMITS.max_queued)]
    with pytest.raises(TryLater, match="max_queued_jobs=6"):
        one.service.submit(request())
    assert one.service.submit(request(), job_id=jobs[0].job_id) == jobs[0]
    other = Scheduler(site, "s2")  # which has not looked yet
    with pytest.raises(TryLater, match="max_queued_jobs=6"):
        other.service.submit(request())
    while site.keys("^jobs/open/"):
        one.work()
    one.service.submit(request())


def test_one_client_takes_half_of_the_queue(one):
    for _ in range(LIMITS.max_queued // 2):
        one.service.submit(request(), "ada")
    with pytest.raises(TryLater, match="its share of max_queued_jobs=6"):
        one.service.submit(request(), "ada")
    one.service.submit(request(), "bob")


def test_clients_take_turns_and_the_jobs_of_one_go_by_priority():
    ada = [OpenJob(name=f"a.{n}", priority=5, since_ms=n) for n in range(4)]
    urgent = OpenJob(name="a.urgent", priority=9, since_ms=9)
    bob = OpenJob(name="b.1", priority=0, since_ms=50)
    turns = [job.name for job in in_turn([*ada, urgent, bob], {"a": 1})]
    assert turns == ["b.1", "a.urgent", "a.0", "a.1", "a.2", "a.3"]


def test_jobs_of_one_client_leave_a_place_for_another_one(one):
    for _ in range(3):
        one.service.submit(request(), "ada")
    one.runner.tick()
    assert one.runner.running() == LIMITS.max_running - 1
    one.service.submit(request(), "bob")
    one.runner.tick()
    assert one.runner.running() == LIMITS.max_running
    alone = evolve(LIMITS, max_running=1)
    assert alone.may_begin("a", 0, 1)
    assert not LIMITS.may_begin("a", 1, 1)
    assert LIMITS.may_begin("", 1, 1)  # nobody is known by a token


def test_a_job_whose_client_is_none_any_more_fails_and_says_why(site, one):
    known = {"ada", "bob"}
    one.runner.knows = known.__contains__
    runs, waits, other, of_nobody = (one.service.submit(request(), name) for name in ("ada", "ada", "bob", ""))
    one.runner.tick()
    assert len(one.threads) == LIMITS.max_running
    known.remove("ada")
    one.runner.tick()
    for _ in range(3):
        one.work()
    for job in (runs, waits):
        found = one.service.get(job.job_id, "ada")
        assert (found.state, found.code) == ("FAILED", Unauthenticated.code)
        assert "none of the cluster any more" in found.message
    assert one.service.get(other.job_id, "bob").state == one.service.get(of_nobody.job_id).state == "SUCCEEDED"
    assert {client for _, _, client in site.statements.done} == {"bob", ""}


def test_a_scheduler_runs_no_more_than_it_may(site, one):
    for _ in range(5):
        one.service.submit(request())
    one.runner.tick()
    assert len(one.threads) == one.runner.running() == LIMITS.max_running
    one.runner.tick()
    assert len(one.threads) == LIMITS.max_running


def test_a_job_is_taken_over_when_its_owner_is_gone_and_not_before(site, one):
    job = one.service.submit(request("rows 2"))
    one.runner.tick()
    two = Scheduler(site, "s2")
    for _ in range(3):
        two.work()
        assert two.service.get(job.job_id).owner == "s1"
    one.die(site)
    two.work()
    found = two.service.get(job.job_id)
    assert (found.state, found.owner, found.attempt) == ("SUCCEEDED", "s2", 2)
    assert site.statements.done == [("rows 2", job.job_id, "")]
    one.threads.pop()()  # it was only paused: it does all of it again, and it counts for nothing
    assert two.service.get(job.job_id) == found
    assert numbers(two.service, job) == list(range(2 * ROWS))
    assert [token for _, token, _ in site.statements.done] == [job.job_id] * 2
    two.collector.tick()
    assert site.keys(r"\.arrow$") == sorted(found.chunk_keys())


def test_a_job_whose_owners_all_go_fails_with_the_reason(site, one):
    job = one.service.submit(request())
    last = one
    for number in range(2, 5):
        for _ in range(2):  # whose it is, and that he is gone
            last.runner.tick()
        last.die(site)
        last = Scheduler(site, f"s{number}")
    for _ in range(2):
        last.work()
    found = last.service.get(job.job_id)
    assert (found.state, found.code, found.attempt) == ("FAILED", JobAbandoned.code, 3)
    with pytest.raises(JobAbandoned, match="3 schedulers began the job"):
        last.service.chunk(job.job_id, 0)
    assert site.keys("^jobs/open/") == []


def test_a_taken_over_job_does_not_wait_for_a_place(site, one):
    busy = Scheduler(site, "s2")
    mine = [busy.service.submit(request()) for _ in range(2)]
    busy.runner.tick()
    lost = one.service.submit(request())
    one.runner.tick()
    busy.runner.tick()  # sees that somebody else has one more
    one.die(site)
    for _ in range(3):
        busy.runner.tick()
    assert busy.service.get(lost.job_id).owner == "s2"
    assert [busy.service.get(job.job_id).owner for job in mine] == ["s2", "s2"]


def test_a_restarted_scheduler_that_is_busy_finds_what_its_predecessor_left(site, one):
    left = [one.service.submit(request()) for _ in range(2)]
    one.runner.tick()
    one.die(site)
    again = Scheduler(site, "s1b")
    waiting = [again.service.submit(request(priority=9)) for _ in range(2)]
    for _ in range(4):
        again.runner.tick()
    assert {again.service.get(job.job_id).state for job in (*left, *waiting)} == {"RUNNING"}


def test_a_scheduler_that_joined_again_ends_what_others_took_over_and_nothing_else(site, one):
    kept, lost = one.service.submit(request()), one.service.submit(request())
    one.runner.tick()
    attempts = {thread.__self__.job.job_id: thread.__self__ for thread in one.threads}
    site.store.asked.clear()
    one.runner.tick()
    assert dict(site.store.asked) == {"list": 1}  # what runs here is not asked for
    one.die(site)
    site.members.instances_.add("i-s1-again")
    one.runner.members.me = lambda: ("s1", "i-s1-again")
    two = Scheduler(site, "s2", evolve(LIMITS, max_running=1))
    state = two.runner.shelf.state(lost.name)
    state.update(lambda job: taken_over(job, job.running, "s2", "i-s2", 0))
    one.runner.tick()
    assert attempts[lost.job_id].work.reason is not None
    assert attempts[kept.job_id].work.reason is None
    attempts[kept.job_id].run()
    assert one.service.get(kept.job_id).state == "SUCCEEDED"


def test_a_scheduler_that_leaves_gives_its_jobs_back_and_no_death_is_counted(site, one):
    jobs = [one.service.submit(request("rows 2")) for _ in range(2)]
    one.runner.tick()
    one.runner.leave()
    for thread in one.threads:
        thread()
    assert {one.service.get(job.job_id).state for job in jobs} == {"PENDING"}
    one.runner.tick()
    assert {one.service.get(job.job_id).state for job in jobs} == {"PENDING"}
    two = Scheduler(site, "s2")
    two.work()
    found = two.service.get(jobs[0].job_id)
    assert (found.state, found.attempt, found.given_back) == ("SUCCEEDED", 2, 1)


def test_a_scheduler_about_to_stop_begins_no_job_and_ends_those_that_run(site, one):
    runs, waits = one.service.submit(request()), one.service.submit(request())
    one.runner.limits = evolve(LIMITS, max_running=1)
    one.runner.tick()
    one.runner.begin_no_more()
    while one.threads:
        one.threads.pop()()
    one.work()
    states = {one.service.get(job.job_id).state for job in (runs, waits)}
    assert states == {"SUCCEEDED", "PENDING"}
    assert one.runner.running() == 0


def test_a_statement_that_meets_nodes_that_come_and_go_is_run_again_and_its_rows_are_there_once(site, one):
    site.statements.breaks = [NotOwner("moved"), NotOwner("moved")]
    job = one.service.submit(request("rows 2"))
    one.work()
    assert numbers(one.service, job) == list(range(2 * ROWS))
    assert len(site.statements.done) == 3


def test_what_is_wrong_with_a_statement_is_told_and_what_is_wrong_with_us_is_not(site, one):
    wrong = one.service.submit(request("fail"))
    one.work()
    with pytest.raises(SqlError, match="no such thing"):
        one.service.chunk(wrong.job_id, 0)
    site.statements.breaks = [RuntimeError("/etc/secret")]
    ours = one.service.submit(request())
    one.work()
    row = job_row(one.service.get(ours.job_id))
    assert row["error"] == {"code": "error", "message": "internal error (RuntimeError)"}


def test_a_cancelled_job_is_never_done_and_one_that_has_ended_stays(site, one):
    waits, runs, ended = (one.service.submit(request("rows 2")) for _ in range(3))
    assert one.service.cancel(waits.job_id).state == "CANCELLED"
    one.runner.tick()
    begun = {thread.__self__.job.job_id: thread for thread in one.threads}
    assert waits.job_id not in begun
    assert Scheduler(site, "s2").service.cancel(runs.job_id).state == "CANCELLED"
    one.runner.tick()  # its marker is gone, and so is the reason to go on
    begun[runs.job_id]()
    begun[ended.job_id]()
    assert one.service.cancel(ended.job_id).state == "SUCCEEDED"
    with pytest.raises(JobCancelled):
        one.service.chunk(runs.job_id, 0)
    assert [sql for sql, *_ in site.statements.done] == ["rows 2"]
    assert site.keys("^jobs/open/") == []


def test_a_job_that_takes_longer_than_it_may_is_ended_though_it_gives_no_row(site):
    one = Scheduler(site, "s1", evolve(LIMITS, timeout_ms=5_000.0))
    job = one.service.submit(request())
    one.runner.tick()
    stopped = []
    one.threads[0].__self__.work.add_stop(lambda: stopped.append(True))
    site.clock.sleep_ms(4_000)
    one.runner.tick()
    assert not stopped
    site.clock.sleep_ms(2_000)
    one.runner.tick()
    assert stopped
    one.threads.pop()()
    with pytest.raises(TimeLimit, match="ended after 5 s: ask for less, or raise job_timeout_ms"):
        one.service.chunk(job.job_id, 0)


def test_nobody_sees_or_touches_a_job_of_another(site, one):
    mine = one.service.submit(request("rows 1", name="secret"), "ada")
    one.work()
    assert site.statements.done == [("rows 1", mine.job_id, "ada")]
    for other in ("bob", ""):
        for ask in (one.service.get, one.service.cancel, one.service.close):
            with pytest.raises(JobMissing, match="never submitted by this client"):
                ask(mine.job_id, other)
        with pytest.raises(JobMissing):
            one.service.chunk(mine.job_id, 0, other)
        assert one.service.of_client(other) == []
        theirs = one.service.submit(
            request("rows 2"), other, mine.job_id
        )  # another job, which says nothing of hers
        assert theirs.state == "PENDING"
        assert one.service.get(mine.job_id, "ada").state == "SUCCEEDED"
    assert [job.job_id for job in one.service.of_client("ada")] == [mine.job_id]
    assert numbers(one.service, mine, "ada") == list(range(ROWS))


def test_jobs_are_listed_newest_first_and_by_state(site, one):
    jobs = []
    for sql in ("rows 1", "fail", "rows 1"):
        site.clock.sleep_ms(10)
        jobs.append(one.service.submit(request(sql), "ada"))
    for _ in jobs:  # the last place is for another client
        one.work()
    assert [job.job_id for job in one.service.of_client("ada")] == [job.job_id for job in reversed(jobs)]
    assert [job.job_id for job in one.service.of_client("ada", "FAILED")] == [jobs[1].job_id]
    site.store.asked.clear()
    one.service.of_client("ada")
    assert dict(site.store.asked) == {"list": 1}  # what has ended is remembered
    with pytest.raises(InvalidData, match="take one of PENDING"):
        one.service.of_client("ada", "done")


def test_a_result_beyond_its_bound_is_an_error_with_its_name(site):
    small = Scheduler(site, "s1", evolve(LIMITS, max_result_bytes=2_000))
    job = small.service.submit(request("rows 9"))
    small.work()
    with pytest.raises(JobResultTooLarge, match="max_job_result_bytes"):
        small.service.chunk(job.job_id, 0)
    small.collector.tick()
    assert site.keys(r"\.arrow$") == []


def test_a_job_that_has_no_result_yet_says_so_and_so_does_a_chunk_that_there_is_not(one):
    job = one.service.submit(request("rows 2"))
    with pytest.raises(JobRefused, match="is PENDING: it has no result yet"):
        one.service.chunk(job.job_id, 0)
    with pytest.raises(JobRefused, match="cancel it before"):
        one.service.close(job.job_id)
    one.work()
    for number in (2, -1):
        with pytest.raises(JobRefused, match=r"has 2 chunk\(s\)"):
            one.service.chunk(job.job_id, number)
    with pytest.raises(InvalidData, match="is no UUID"):
        one.service.get("../cluster")
    with pytest.raises(JobMissing):
        one.service.get("0" * 32)


@pytest.mark.parametrize("spoil", [lambda data: data[:-1], lambda data: data[:-9] + bytes(9), lambda data: b""])
def test_a_file_that_is_not_the_chunk_is_told_from_it(site, one, spoil):
    job = one.service.submit(request("rows 1"))
    one.work()
    found = one.service.get(job.job_id)
    key = found.chunk_keys()[0]
    data = site.store.get(key).data
    site.store.delete(key)
    site.store.create(key, spoil(data))
    with pytest.raises(DocumentUnreadable, match="is not the chunk"):
        read_chunk(site.store, found, 0)


def test_results_go_after_their_time_and_the_id_stays_known_for_a_while(site, one):
    job = one.service.submit(request("rows 2"))
    one.work()
    assert one.collector.tick().chunks == 0
    site.clock.sleep_ms(LIMITS.result_ttl_ms)
    done = one.collector.tick()
    assert (done.closed, done.chunks) == (1, 2)
    assert one.service.submit(request("rows 2"), job_id=job.job_id).outcome == "SUCCEEDED"
    with pytest.raises(JobRefused, match="is closed"):
        one.service.chunk(job.job_id, 0)
    site.clock.sleep_ms(KNOWN_MS)
    assert one.collector.tick().forgotten == 1
    assert site.keys("") == []


class Meanwhile:
    """A shelf whose jobs are changed when they were listed and before they are read, or just after that."""

    def __init__(self, shelf, act, after=False):
        self._shelf, self._act, self._after = shelf, act, after

    def __getattr__(self, name):
        return getattr(self._shelf, name)

    def read_named(self, name):
        act, self._act = self._act, None
        if act is not None and not self._after:
            act()
        found = self._shelf.read_named(name)
        if act is not None and self._after:
            act()
        return found


def test_a_result_that_came_after_the_listing_is_as_old_as_it_is(site, one):
    job = one.service.submit(request("rows 2"))
    one.runner.tick()
    site.clock.sleep_ms(LIMITS.result_ttl_ms + KNOWN_MS)  # it ran for so long
    one.collector.shelf = Meanwhile(one.collector.shelf, one.work)
    assert one.collector.tick().closed == 0
    assert numbers(one.service, job) == list(range(2 * ROWS))
    site.clock.sleep_ms(LIMITS.result_ttl_ms)
    assert one.collector.tick().closed == 1


def test_a_job_that_was_closed_after_the_listing_stays_known(site, one):
    job = one.service.submit(request("other 0"))
    one.work()
    site.clock.sleep_ms(KNOWN_MS)
    key = f"jobs/{one.service.get(job.job_id).name}.json"
    one.collector.limits = evolve(LIMITS, result_ttl_ms=2 * KNOWN_MS)
    for chunk in site.keys(r"\.arrow$"):
        site.store.delete(chunk)
    one.collector.shelf = Meanwhile(one.collector.shelf, lambda: one.service.close(job.job_id))
    site.clock.sleep_ms(KNOWN_MS)
    assert one.collector.tick().forgotten == 0
    assert site.keys("") == [key]


def test_a_job_without_rows_is_known_for_a_while_after_its_result_has_gone(site, one):
    job = one.service.submit(request("rows 1"))
    one.work()
    for chunk in site.keys(r"\.arrow$"):
        site.store.delete(chunk)
    site.clock.sleep_ms(2 * KNOWN_MS)
    done = one.collector.tick()
    assert (done.closed, done.forgotten) == (1, 0)
    assert one.service.get(job.job_id).state == "CLOSED"
    site.clock.sleep_ms(KNOWN_MS)
    assert one.collector.tick().forgotten == 1


def test_a_job_that_was_changed_since_it_was_read_is_not_closed(site, one):
    job = one.service.submit(request("rows 2"))
    one.work()
    site.clock.sleep_ms(LIMITS.result_ttl_ms)
    name = one.service.get(job.job_id).name

    def touched():
        one.collector.shelf.state(name).update(lambda now: evolve(now, message="said later"))

    listed = site.store.list

    def then_touched(prefix):
        found = list(listed(prefix))
        if prefix.endswith(".json"):  # how old it is was looked at just before
            touched()
        return iter(found)

    site.store.list = then_touched
    assert one.collector.tick().closed == 0
    del site.store.list
    assert one.service.get(job.job_id).state == "SUCCEEDED"


def test_what_is_closed_goes_at_once_and_what_runs_stays(site, one):
    job = one.service.submit(request("rows 2"))
    one.work()
    one.service.close(job.job_id)
    runs = one.service.submit(request("rows 2"))
    one.runner.tick()
    found = one.service.get(runs.job_id)
    site.store.create(f"jobs/{found.name}/1/f-00000.arrow", b"of the attempt that runs")
    site.clock.sleep_ms(10 * LIMITS.result_ttl_ms)
    assert one.collector.tick().chunks == 2
    assert site.keys(r"\.arrow$") == [f"jobs/{found.name}/1/f-00000.arrow"]
    assert one.service.get(runs.job_id).state == "RUNNING"


def test_a_collector_reads_nothing_about_what_has_not_changed(site, one):
    for _ in range(5):
        one.service.submit(request())
        one.work()
    one.collector.tick()
    site.store.asked.clear()
    one.collector.tick()
    assert dict(site.store.asked) == {"list": 2, "create": 1, "delete": 1}  # and what time it is


def test_of_one_client_only_so_many_are_kept(site, one, monkeypatch):
    monkeypatch.setattr(collector.beyond_kept, "__defaults__", (3,))
    jobs = []
    for client in ("ada", "ada", "ada", "ada", "ada", "bob"):
        site.clock.sleep_ms(10)
        jobs.append((one.service.submit(request(), client), client))
        one.work()
    assert one.collector.tick().closed == 2
    states = [one.service.get(job.job_id, client).state for job, client in jobs]
    assert states == ["CLOSED"] * 2 + ["SUCCEEDED"] * 4


def test_an_open_job_without_a_marker_gets_one(site, one):
    job = one.service.submit(request())
    site.store.delete(job.marker.key)
    one.collector.tick()
    assert site.keys("^jobs/open/") == []
    site.clock.sleep_ms(HEAL_MS)
    assert one.collector.tick().marked == 1
    one.work()
    assert one.service.get(job.job_id).state == "SUCCEEDED"


def test_a_marker_without_a_job_is_looked_at_now_and_then_and_goes(site, one):
    marker = OpenJob(name="0" * 32, priority=5)
    site.store.create(marker.key, b"{}")
    for _ in range(100):
        one.work()
        site.clock.sleep_ms(1_000)
    assert site.store.asked["get"] < 10
    site.clock.sleep_ms(MISSING_MS)
    one.work()
    assert site.keys("^jobs/open/") == []


def test_a_document_that_nobody_can_read_stops_no_other_job(site, one):
    spoilt = one.service.submit(request())
    site.store.delete(spoilt.own_key)
    site.store.create(spoilt.own_key, b"{}")
    other = one.service.submit(request())
    for _ in range(2):
        one.work()
    assert one.service.get(other.job_id).state == "SUCCEEDED"
    one.collector.tick()
    with pytest.raises(DocumentUnreadable):
        one.service.get(spoilt.job_id)
    assert [job.job_id for job in one.service.of_client("")] == [other.job_id]
