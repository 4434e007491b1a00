"""`check_store` passes stores that may be coordinated on, and names the promise that another one breaks."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from typer.testing import CliRunner

from ballista_py.errors import BallistaError, ObjectExists, StoreUnavailable, UnsafeStore, VersionConflict
from ballista_py.node.cli.app import app
from ballista_py.runtime import SystemRuntime
from ballista_py.state.members.location import check_location
from ballista_py.state.stores.check import RACERS, check_store
from ballista_py.state.stores.local import LocalStore
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.testing import LIES, Chance, FaultyStore, StoreContract, StoreFaults, lying_store


class Unhurried(SystemRuntime):
    """Chance from a seed; nobody waits."""

    def __init__(self, seed: int = 0) -> None:
        self.chance = Chance(seed)

    def random(self) -> float:
        return self.chance.random()

    def sleep_ms(self, duration_ms: float) -> None:
        pass


@pytest.fixture
def runtime():
    return Unhurried()


class Liar(MemoryStore):
    """A memory store that breaks the promises it is told to break."""

    def __init__(self, *lies: str) -> None:
        super().__init__()
        self.lies = lies
        self.frozen = {}

    def create(self, key, data):
        if "create" in self.lies:
            return self._put(key, data)
        if "create-race" in self.lies:
            return self._slowly(key, lambda: self._objects.get(key) is None, ObjectExists, data)
        return super().create(key, data)

    def replace(self, key, data, version):
        held = self._objects.get(key)
        if "replace" in self.lies or ("resurrect" in self.lies and held is None):
            return self._put(key, data)
        if "replace-race" in self.lies:
            matches = lambda: (held := self._objects.get(key)) is not None and held.version == version  # noqa: E731
            return self._slowly(key, matches, VersionConflict, data)
        return super().replace(key, data, version)

    def get(self, key, *bound):
        found = super().get(key, *bound)
        if "stale-read" in self.lies:
            return self.frozen.setdefault(key, found)
        return found

    def list(self, prefix):
        found = list(super().list(prefix))
        return iter(found[:-1] if "list" in self.lies else found)

    def _slowly(self, key, holds, otherwise, data):
        if not holds():
            raise otherwise(f"object '{key}'", key=key)
        time.sleep(0.05)
        return self._put(key, data)


@pytest.mark.parametrize(
    ("lie", "named"),
    [
        ("create", "create-if-absent"),
        ("replace", "replace-if-match"),
        ("resurrect", "replace-missing"),
        ("stale-read", "read-your-write"),
        ("list", "list-after-write"),
    ],
)
def test_the_quick_half_names_the_promise_that_a_liar_breaks(lie, named):
    report = check_store(Liar(lie), quick=True)
    assert not report.safe
    assert named in [promise.name for promise in report.broken]
    with pytest.raises(UnsafeStore, match=named):
        report.require_safe()


@pytest.mark.turn(3)
@pytest.mark.parametrize(("lie", "named"), [("create-race", "one-creator"), ("replace-race", "no-lost-update")])
def test_racers_find_a_store_whose_check_and_write_are_apart(lie, named):
    assert check_store(Liar(lie), quick=True).safe
    with ThreadPoolExecutor(RACERS) as executor:
        report = check_store(Liar(lie), executor=executor)
    assert [promise.name for promise in report.broken] == [named]


@pytest.mark.share(3)
@pytest.mark.parametrize("lie", LIES)
def test_a_store_that_lies_now_and_then_is_unsafe_by_the_name_of_the_promise_that_it_breaks(lie, runtime):
    def liar():
        return lying_store(lie, MemoryStore(), runtime=SystemRuntime() if LIES[lie].races else runtime)

    assert check_store(liar(), quick=True, runtime=runtime).safe is not LIES[lie].quick
    if LIES[lie].races:
        with ThreadPoolExecutor(RACERS) as executor:
            report = check_store(liar(), executor=executor)
    else:
        report = check_store(liar(), runtime=runtime)
    assert LIES[lie].breaks in [promise.name for promise in report.broken]


@pytest.mark.share(3)
@pytest.mark.parametrize("lie", [*LIES, None])
def test_the_contract_of_stores_fails_on_every_store_that_lies_and_on_no_other(lie):
    def fails(name):
        store = MemoryStore() if lie is None else lying_store(lie, MemoryStore())
        try:
            getattr(StoreContract(), name)(store)
        except (AssertionError, BallistaError):
            return True
        return False

    assert any(fails(name) for name in dir(StoreContract) if name.startswith("test_")) == (lie is not None)


class Counted(MemoryStore):
    """Counts requests and the bytes that go both ways."""

    def __init__(self):
        super().__init__()
        self.requests = self.writes = self.bytes = 0

    def get(self, key, *bound):
        found = super().get(key, *bound)
        self.requests, self.bytes = self.requests + 1, self.bytes + len(found.data)
        return found

    def create(self, key, data):
        self._count(data)
        return super().create(key, data)

    def replace(self, key, data, version):
        self._count(data)
        return super().replace(key, data, version)

    def delete(self, key):
        self.requests += 1
        super().delete(key)

    def list(self, prefix):
        self.requests += 1
        return super().list(prefix)

    def _count(self, data):
        self.requests, self.writes, self.bytes = self.requests + 1, self.writes + 1, self.bytes + len(data)


def test_a_check_costs_no_more_than_it_says_and_the_half_that_every_start_runs_a_few_requests(runtime):
    quick, whole = Counted(), Counted()
    report = check_store(quick, quick=True, runtime=runtime)
    assert quick.requests <= 50
    assert quick.bytes < 1_000
    assert {promise.name for promise in report.not_tested} >= {LIES["stale-reads"].breaks, "one-creator"}
    check_store(whole, runtime=runtime)
    assert 3_000 <= whole.requests <= 4_500
    assert whole.writes <= 2_300
    assert whole.bytes <= 42_000_000


def test_what_nothing_came_up_for_is_said_to_be_not_tested(runtime):
    silent = check_store(MemoryStore(), runtime=runtime)
    assert [promise.name for promise in silent.not_tested] == ["unavailable-is-unwritten"]
    busy = FaultyStore(MemoryStore(), StoreFaults(throttled=0.1), runtime=runtime)
    report = check_store(busy, runtime=runtime)
    report.require_safe()
    assert report.not_tested == ()


def test_a_store_that_sends_the_same_bytes_by_a_late_request_is_not_called_a_liar(unreliable, runtime):
    unreliable.plan = {1: "delayed", 2: "unavailable"}
    unreliable.before_write = lambda number: number == 2 and unreliable.deliver()
    check_store(unreliable, quick=True, runtime=runtime).require_safe()


@pytest.mark.parametrize("name", ["memory", "local"])
def test_our_own_stores_keep_every_promise_and_are_left_as_they_were(name, tmp_path):
    store = MemoryStore() if name == "memory" else LocalStore(str(tmp_path))
    store.create("mine", b"1")
    with ThreadPoolExecutor(RACERS) as executor:
        report = check_store(store, executor=executor)
    assert all(promise.kept for promise in report.promises)
    assert [entry.key for entry in store.list("")] == ["mine"]


@pytest.mark.parametrize("quick", [True, pytest.param(False, marks=pytest.mark.long)], ids=["quick", "whole"])
@pytest.mark.parametrize("endpoint", ["s3", "gcs", "azure", "obstore"], indirect=True)
def test_the_clouds_are_safe(endpoint, prefix, quick):
    store = endpoint.open(prefix)
    with ThreadPoolExecutor(RACERS) as executor:
        report = check_store(store, quick=quick, executor=executor)
    report.require_safe()
    unkept = {promise.name for promise in report.promises if not promise.kept}
    assert unkept == ({"same-bytes-new-version"} if endpoint.kind in ("s3", "obstore") else set())
    assert list(store.list("")) == []


def test_an_s3_server_that_ignores_conditions_is_unsafe(careless_s3_server, prefix):
    report = check_store(careless_s3_server.open(prefix), quick=True)
    assert {"create-if-absent", "replace-if-match"} <= {promise.name for promise in report.broken}


def test_a_gcs_server_that_ignores_conditions_is_unsafe(careless_gcs_server, prefix):
    report = check_store(careless_gcs_server.open(prefix), quick=True)
    assert {"create-if-absent", "replace-if-match"} <= {promise.name for promise in report.broken}


@pytest.mark.parametrize("quick", [True, False], ids=["quick", "whole"])
def test_faults_of_the_network_are_not_taken_for_broken_promises(quick, runtime):
    faults = StoreFaults(lost_replies=0.15, throttled=0.1)
    verdicts = 0
    for _ in range(20 if quick else 2):
        store = FaultyStore(MemoryStore(), faults, runtime=runtime)
        try:
            report = check_store(store, quick=quick, runtime=runtime)
        except StoreUnavailable:  # a request that got no answer: then nothing is claimed
            continue
        verdicts += 1
        report.require_safe()
    assert verdicts


class Echoing(MemoryStore):
    """A memory store behind a network that sends one of `each` writes twice: the second reply is what comes back."""

    def __init__(self, each: int) -> None:
        super().__init__()
        self.each, self.sent = each, 0

    def create(self, key, data):
        return self._sent(lambda: super(Echoing, self).create(key, data))

    def replace(self, key, data, version):
        return self._sent(lambda: super(Echoing, self).replace(key, data, version))

    def _sent(self, send):
        self.sent += 1
        if self.sent % self.each == 0:
            send()
        return send()


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("each", [1, 3, 7])
def test_a_conflict_with_our_own_write_is_not_taken_for_a_broken_promise(each, quick, runtime):
    """`ObjectState` knows such an echo for its own, and nodes start on such a link."""
    check_store(Echoing(each), quick=quick, runtime=runtime).require_safe()


def test_a_store_that_cannot_be_reached_is_unavailable_and_not_unsafe(runtime):
    store = FaultyStore(MemoryStore(), StoreFaults(throttled=1.0), runtime=runtime)
    with pytest.raises(StoreUnavailable, match="busy"):
        check_store(store, quick=True)


def test_a_check_under_way_does_not_make_a_location_foreign():
    store = MemoryStore()
    store.create(".check/0123/read-your-write/object.json", b"1")
    check_location(store, "memory://x")


def test_the_command_line_tells_every_promise_and_its_exit_code_the_verdict(tmp_path, monkeypatch):
    runner = CliRunner()
    good = runner.invoke(app, ["store", "check", f"file://{tmp_path}"])
    assert good.exit_code == 0
    assert "kept   no-lost-update" in good.output
    monkeypatch.setattr("ballista_py.node.cli.store.open_store", lambda url, **options: Liar("replace"))
    bad = runner.invoke(app, ["store", "check", "memory://liar", "--quick"])
    assert bad.exit_code == 1
    assert "BROKEN replace-if-match" in bad.output
    assert "UNSAFE" in bad.output
    told = json.loads(runner.invoke(app, ["store", "check", "memory://liar", "--json", "--quick"]).output)
    assert told["safe"] is False
    assert "replace-if-match" in [p["name"] for p in told["promises"] if p["needed"] and not p["kept"]]


def test_the_command_line_hands_options_to_the_client(monkeypatch):
    seen = {}
    monkeypatch.setenv("SECRET", "1234")
    monkeypatch.setattr(
        "ballista_py.node.cli.store.open_store", lambda url, **options: seen.update(options) or MemoryStore()
    )
    words = ["key=0012", "secret=@SECRET", "anon=false", 'client_kwargs={"region_name": "eu-west-1"}']
    options = [word for text in words for word in ("--option", text)]
    assert CliRunner().invoke(app, ["store", "check", "s3://b/p", "--quick", *options]).exit_code == 0
    assert seen == {
        "key": "0012",
        "secret": "1234",
        "anon": False,
        "client_kwargs": {"region_name": "eu-west-1"},
    }
    unusable = CliRunner().invoke(app, ["store", "check", "s3://b/p", "--option", "nonsense"])
    assert isinstance(unusable.exception, BallistaError)
