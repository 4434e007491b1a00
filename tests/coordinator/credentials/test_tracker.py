"""Credentials that are renewed while a scan runs: in virtual time, and against a server that refuses expired ones."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.request import Request, urlopen

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from ballista_py.coordinator.credentials.tracker import CredentialTracker, Renewal
from ballista_py.errors import SourceUnavailable, SourceUnfit
from ballista_py.runtime import SystemRuntime
from ballista_py.scans.codec import refresh_from_bytes, refresh_to_bytes
from ballista_py.scans.storage_credentials import CurrentCredentials, RefreshCredentials, StorageCredentials
from ballista_py.secret import Secret

PLACE = "s3://lake/t/"


class Hand(SystemRuntime):
    """A clock that is moved by hand, and chance that is always the same."""

    now = 0.0

    def monotonic_ms(self):
        return self.now

    def random(self):
        return 0.5


def credentials_of(text, valid_ms=20_000.0, number=0):
    values = {"s3.session-token": Secret(text)}
    return StorageCredentials(location=PLACE, values=values, valid_ms=valid_ms, number=number)


class Vendor:
    """Gives 1, 2, 3, …, each good for `valid_ms`; takes `slow_ms`; fails while `broken` is there."""

    def __init__(self, clock, valid_ms=20_000.0, slow_ms=0.0):
        self.clock, self.valid_ms, self.slow_ms = clock, valid_ms, slow_ms
        self.broken, self.given, self.ends, self.asked_at = None, 0, {}, []

    def vend(self, principal, location):
        self.asked_at.append(self.clock.now)
        began = self.clock.now
        self.clock.now += self.slow_ms
        if self.broken is not None:
            raise self.broken
        self.given += 1
        self.ends[str(self.given)] = began + self.valid_ms
        return credentials_of(str(self.given), self.valid_ms).after(self.clock.now - began)

    def is_good(self, credentials):
        return self.clock.now < self.ends[credentials.values["s3.session-token"].reveal()]


class Task:
    """A task at an executor, whose clock is another one."""

    def __init__(self, clock, lease, name="f/0"):
        given = lease.credentials()
        self.name = name
        self.current = CurrentCredentials(given, clock)
        lease.begun(name, given.number)


def taking(tasks, lost=lambda: False):
    """What sends new credentials to tasks: over the wire, which may lose them."""

    def send(news):
        data = refresh_to_bytes(news, reveal=True)
        if lost():
            raise ConnectionError("hunter2")
        came = refresh_from_bytes(data)
        assert all(tasks[name].current.renew(came.credentials) or True for name in came.task_ids)
        return came.task_ids

    return send


def scan(clock, tracker, vendor, tasks, lease, long_ms, step_ms=500.0):
    """Each task opens a file every half second; the scheduler ticks each second."""
    opened = 0
    until = clock.now + long_ms
    while clock.now < until:
        for task in tasks.values():
            assert vendor.is_good(task.current.get())
            opened += 1
        clock.now += step_ms
        if clock.now % 1_000 == 0:
            tracker.tick()
    return opened


def test_a_scan_of_two_minutes_reads_with_credentials_of_twenty_seconds():
    clock = Hand()
    vendor, tasks = Vendor(clock), {}
    tracker = CredentialTracker(clock, taking(tasks))
    with tracker.lease(vendor, "anna", PLACE) as lease:
        for name in ("f/0", "f/1"):
            tasks[name] = Task(clock, lease, name)
        assert scan(clock, tracker, vendor, tasks, lease, 120_000) == 480
    assert vendor.given == 13  # after half of the life of each
    clock.now += 1e6
    tracker.tick()
    assert vendor.given == 13  # nothing is renewed for what is over


@pytest.mark.parametrize(
    ("valid_ms", "due"), [(20_000.0, 10_000.0), (3_600_000.0, 3_300_000.0), (600_000.0, 300_000.0)]
)
def test_they_are_due_five_minutes_before_the_end_or_after_half_of_a_shorter_life(valid_ms, due):
    assert Renewal.of(credentials_of("a", valid_ms), 7.0).due_ms == 7.0 + due
    assert Renewal.of(credentials_of("a", None), 7.0).due_ms is None


def test_those_that_do_not_expire_are_never_renewed():
    clock = Hand()
    vendor = Vendor(clock)
    vendor.vend = lambda principal, location: credentials_of("ever", None)
    tracker = CredentialTracker(clock, taking({}))
    with tracker.lease(vendor, "anna", PLACE) as lease:
        clock.now = 1e12
        tracker.tick()
        assert lease.credentials().values["s3.session-token"].reveal() == "ever"


def test_a_vendor_that_fails_for_a_while_is_asked_again_and_the_scan_notices_nothing():
    clock = Hand()
    vendor, tasks = Vendor(clock), {}
    tracker = CredentialTracker(clock, taking(tasks))
    with tracker.lease(vendor, "anna", PLACE) as lease:
        tasks["f/0"] = Task(clock, lease)
        scan(clock, tracker, vendor, tasks, lease, 9_000)
        vendor.broken = SourceUnavailable("the catalog is busy")
        scan(clock, tracker, vendor, tasks, lease, 8_000)  # until three seconds before the end
        assert len(vendor.asked_at) >= 4
        vendor.broken = None
        scan(clock, tracker, vendor, tasks, lease, 60_000)


def test_what_the_vendor_said_is_told_when_the_old_ones_have_run_out_and_it_is_asked_on():
    clock = Hand()
    vendor = Vendor(clock)
    tracker = CredentialTracker(clock, taking({}))
    with tracker.lease(vendor, "anna", PLACE) as lease:
        current = CurrentCredentials(lease.credentials(), clock)
        for broken in (SourceUnfit("the catalog refuses client 'anna' (HTTP 403)"), RuntimeError("hunter2")):
            vendor.broken = broken
            for _ in range(60):
                clock.now += 1_000
                tracker.tick()
            told = "HTTP 403" if isinstance(broken, SourceUnfit) else r"it failed \(RuntimeError\)"
            with pytest.raises(SourceUnavailable, match=f"'{PLACE}' have expired: .*{told}") as error:
                lease.credentials()
            assert "hunter2" not in str(error.value)
        with pytest.raises(SourceUnavailable, match=f"'{PLACE}' have expired"):
            current.get()
        waits = [after - before for before, after in zip(vendor.asked_at, vendor.asked_at[1:], strict=False)]
        assert max(waits) <= 32_000
        vendor.broken = None
        for _ in range(40):
            clock.now += 1_000
            tracker.tick()
        assert vendor.is_good(lease.credentials())


def test_a_vendor_that_takes_half_of_their_life_is_no_harm_and_one_that_takes_longer_is_told():
    clock = Hand()
    vendor, tasks, sent = Vendor(clock, slow_ms=4_000.0), {}, []
    tracker = CredentialTracker(clock, taking(tasks, lambda: sent.append(clock.now)))
    with tracker.lease(vendor, "anna", PLACE) as lease:
        tasks["f/0"] = Task(clock, lease)
        assert lease.credentials().valid_ms == 16_000
        scan(clock, tracker, vendor, tasks, lease, 60_000)
        before = len(sent)
        vendor.slow_ms = 25_000.0  # what comes has expired on its way
        clock.now += 10_000
        tracker.tick()
        with pytest.raises(SourceUnavailable, match="have expired"):
            lease.credentials()
        assert len(sent) == before  # nobody is told of those


def test_a_process_that_was_paused_renews_at_once_when_it_goes_on():
    clock = Hand()
    vendor, tasks = Vendor(clock), {}
    tracker = CredentialTracker(clock, taking(tasks))
    with tracker.lease(vendor, "anna", PLACE) as lease:
        tasks["f/0"] = Task(clock, lease)
        clock.now += 60_000
        with pytest.raises(SourceUnavailable, match="did not come to it"):
            lease.credentials()
        with pytest.raises(SourceUnavailable):
            tasks["f/0"].current.get()
        tracker.tick()
        assert vendor.is_good(tasks["f/0"].current.get())


@given(st.lists(st.booleans(), min_size=1, max_size=40))
@settings(max_examples=60)
def test_news_that_are_lost_are_told_again_until_they_came(losses):
    clock = Hand()
    vendor, tasks, left = Vendor(clock, 600_000.0), {}, list(losses)
    tracker = CredentialTracker(clock, taking(tasks, lambda: bool(left) and left.pop(0)))
    with tracker.lease(vendor, "anna", PLACE) as lease:
        tasks["f/0"] = Task(clock, lease)
        clock.now += 300_000
        for _ in losses:
            tracker.tick()
        tracker.tick()
        assert tasks["f/0"].current.get().number == 1
        assert lease.untold() is None


def test_a_task_that_began_with_older_ones_than_there_are_is_told_and_one_that_ended_is_not():
    clock = Hand()
    vendor, told = Vendor(clock), []
    tracker = CredentialTracker(clock, lambda news: told.append(news.task_ids) or news.task_ids[:1])
    with tracker.lease(vendor, "anna", PLACE) as lease:
        old = lease.credentials()
        clock.now += 10_000
        tracker.tick()
        assert told == []
        lease.begun("late", old.number)
        lease.begun("early", old.number)
        lease.begun("new", lease.credentials().number)
        tracker.tick()
        lease.ended("early")
        tracker.tick()  # "late" was not among those that took them
        tracker.tick()
        tracker.tick()
    assert told == [("early", "late"), ("late",)]


def test_older_ones_and_those_for_another_place_are_not_taken():
    clock = Hand()
    current = CurrentCredentials(credentials_of("b", number=2), clock)
    assert not current.renew(credentials_of("c", number=2))
    assert not current.renew(credentials_of("a", number=1))
    other = StorageCredentials(location="s3://other/", values={}, number=9)
    assert not current.renew(other)
    assert current.get().values["s3.session-token"].reveal() == "b"
    clock.now += 15_000
    assert current.get().valid_ms == 5_000
    assert current.renew(credentials_of("d", number=3))
    assert current.get().valid_ms == 20_000


def test_new_ones_for_another_place_are_a_failure():
    clock = Hand()
    vendor = Vendor(clock)
    tracker = CredentialTracker(clock, taking({}))
    with tracker.lease(vendor, "anna", PLACE) as lease:
        vendor.vend = lambda principal, location: evolve(credentials_of("x"), location="s3://other/")
        for _ in range(20):
            clock.now += 1_000
            tracker.tick()
        with pytest.raises(SourceUnavailable, match="they came for 's3://other/'"):
            lease.credentials()


def test_a_refresh_comes_back_as_it_was_and_shows_nothing():
    news = RefreshCredentials(task_ids=("f/0", "f/1"), credentials=credentials_of("hunter2", number=3))
    back = refresh_from_bytes(refresh_to_bytes(news, reveal=True))
    assert back == news
    assert back.credentials.values["s3.session-token"].reveal() == "hunter2"
    assert "hunter2" not in f"{news!r} {news}"
    with pytest.raises(TypeError, match="reveal"):
        refresh_to_bytes(news)


def test_the_rows_of_one_scan_are_not_held_up_by_the_vendor_of_another():
    """With `run_all` of a pool, vendors are asked at once."""
    from concurrent.futures import ThreadPoolExecutor

    class Slow:
        def vend(self, principal, location):
            if asked.is_set():
                meet.wait(5)
            return credentials_of("x", 0.001)

    meet, asked = threading.Barrier(2), threading.Event()
    with ThreadPoolExecutor(2) as pool, ExitStack() as stack:
        tracker = CredentialTracker(SystemRuntime(), lambda news: news.task_ids, pool.map)
        for _ in range(2):
            stack.enter_context(tracker.lease(Slow(), "anna", PLACE))
        asked.set()
        time.sleep(0.01)
        tracker.tick()
        assert not meet.broken


# against a server that refuses expired ones


@contextmanager
def refusing():
    """The URL of a server that has files for whoever shows a token that it has given and that has not expired."""
    ends, refused, served = {}, [], []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            good = time.monotonic() < ends.get(self.headers["Authorization"], 0)
            (served if good else refused).append(self.path)
            self.send_response(200 if good else 403)
            self.end_headers()
            self.wfile.write(b"rows" if good else b"")

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", ends, served, refused
    finally:
        server.shutdown()
        server.server_close()


def read(url, files, ask):
    for number in range(files):
        token = ask().values["s3.session-token"].reveal()
        with urlopen(Request(f"{url}/{number}", headers={"Authorization": token}), timeout=5) as reply:
            assert reply.read() == b"rows"
        time.sleep(0.05)


def test_with_a_real_server_a_scan_outlives_its_credentials_many_times():
    runtime, life_s = SystemRuntime(), 0.6

    class Giving:
        given = 0

        def vend(self, principal, location):
            self.given += 1
            token = f"token-{self.given}"
            ends[token] = time.monotonic() + life_s
            return credentials_of(token, life_s * 1e3)

    with refusing() as (url, ends, served, refused):
        vendor, currents = Giving(), []

        def send(news):
            came = refresh_from_bytes(refresh_to_bytes(news, reveal=True))
            return [
                name
                for name, current in zip(("f/0", "f/1"), currents, strict=True)
                if current.renew(came.credentials)
            ]

        tracker = CredentialTracker(runtime, send)
        with tracker.lease(vendor, "anna", PLACE) as lease:
            for name in ("f/0", "f/1"):
                given = lease.credentials()
                currents.append(CurrentCredentials(given, runtime))
                lease.begun(name, given.number)
            readers = [threading.Thread(target=read, args=(url, 60, current.get)) for current in currents]
            for reader in readers:
                reader.start()
            while any(reader.is_alive() for reader in readers):
                tracker.tick()
                time.sleep(0.02)
        print(f"{len(served)} files, {vendor.given} credentials, {len(refused)} refused")
        assert (len(served), refused) == (120, [])
        assert vendor.given >= 6
        with pytest.raises(Exception, match="403"):  # the first ones alone would not have done
            read(url, 1, lambda: credentials_of("token-1"))
