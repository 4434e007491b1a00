"""`check_store` passes stores that may be coordinated on, and names the promise that another one breaks."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from typer.testing import CliRunner

from ballista_py.errors import BallistaError, ObjectExists, StoreUnavailable, UnsafeStore, VersionConflict
from ballista_py.node.cli import app
from ballista_py.runtime import SystemRuntime
from ballista_py.state.check_store import RACERS, check_store
from ballista_py.state.local import LocalStore
from ballista_py.state.location import check_location
from ballista_py.state.memory import MemoryStore
from ballista_py.testing import FaultyStore, StoreFaults


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

    def get(self, key):
        found = super().get(key)
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


@pytest.mark.parametrize(("lie", "named"), [("create-race", "one-creator"), ("replace-race", "no-lost-update")])
def test_racers_find_a_store_whose_check_and_write_are_apart(lie, named):
    assert check_store(Liar(lie), quick=True).safe
    with ThreadPoolExecutor(RACERS) as executor:
        report = check_store(Liar(lie), executor=executor)
    assert [promise.name for promise in report.broken] == [named]


@pytest.mark.parametrize("name", ["memory", "local"])
def test_our_own_stores_keep_every_promise_and_are_left_as_they_were(name, tmp_path):
    store = MemoryStore() if name == "memory" else LocalStore(str(tmp_path))
    store.create("mine", b"1")
    with ThreadPoolExecutor(RACERS) as executor:
        report = check_store(store, executor=executor)
    assert all(promise.kept for promise in report.promises)
    assert [entry.key for entry in store.list("")] == ["mine"]


@pytest.mark.parametrize("endpoint", ["s3", "gcs", "azure", "obstore"], indirect=True)
def test_the_clouds_are_safe(endpoint, prefix):
    store = endpoint.open(prefix)
    with ThreadPoolExecutor(RACERS) as executor:
        report = check_store(store, executor=executor)
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


def test_faults_of_the_network_are_not_taken_for_broken_promises():
    faults = StoreFaults(lost_replies=0.15, throttled=0.1)
    for _ in range(20):
        store = FaultyStore(MemoryStore(), faults, runtime=SystemRuntime())
        try:
            report = check_store(store, quick=True)
        except StoreUnavailable:  # a read that got no answer: then nothing is claimed
            continue
        report.require_safe()


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
    monkeypatch.setattr("ballista_py.node.cli_store.open_store", lambda url, **options: Liar("replace"))
    bad = runner.invoke(app, ["store", "check", "memory://liar"])
    assert bad.exit_code == 1
    assert "BROKEN replace-if-match" in bad.output
    assert "UNSAFE" in bad.output
    told = json.loads(runner.invoke(app, ["store", "check", "memory://liar", "--json"]).output)
    assert told["safe"] is False
    assert "replace-if-match" in [p["name"] for p in told["promises"] if p["needed"] and not p["kept"]]


def test_the_command_line_hands_options_to_the_client(monkeypatch):
    seen = {}
    monkeypatch.setenv("SECRET", "1234")
    monkeypatch.setattr(
        "ballista_py.node.cli_store.open_store", lambda url, **options: seen.update(options) or MemoryStore()
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
