"""Files that somebody will publish are never collected, however old; a claim that is over publishes nothing."""

from __future__ import annotations

import pytest

from ballista_py.errors import VersionConflict
from ballista_py.runtime import SystemRuntime
from ballista_py.state.documents.claims import CLAIM_PATIENCE_MS, Claim, claimed, claimed_prefixes, end_dead_claims
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.storage.formats.files import describe_data_file, write_data_file
from ballista_py.storage.publication import Publication
from ballista_py.storage.upkeep.garbage import find_garbage, remove_garbage
from ballista_py.testing import Machine, World

HOUR_MS = 3_600_000
PREFIX = "snapshots/t/data/run-1/"


class Clock(SystemRuntime):
    """A clock that sleeping moves on, and at whose every sleep something may happen."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.meanwhile = lambda: None

    def monotonic_ms(self) -> float:
        return self.now_ms

    def wall_ms(self) -> int:
        return int(self.now_ms)

    def sleep_ms(self, duration_ms: float) -> None:
        self.now_ms += duration_ms
        self.meanwhile()


class Slow:
    """A run that has written its file and publishes it much later; a collector that looks whenever it is told to."""

    def __init__(self, rows) -> None:
        self.clock = Clock()
        self.store = MemoryStore(runtime=self.clock)
        self.runs = Publication(self.store, "t", self.clock)
        self.begun = self.runs.begin(["expr0=0", "expr0=1"], token="load")
        self.claim = Claim.take(self.store, PREFIX, self.clock)
        self.files = {
            f"expr0={n}": [write_data_file(self.store, f"{PREFIX}{n}.parquet", rows(n, n + 10))] for n in (0, 1)
        }

    def collect(self, *, judge: bool = True) -> int:
        """Two looks as far apart as they must be, and what the second one removed."""
        removed = 0
        for _ in range(2):
            self.clock.now_ms += 2 * HOUR_MS
            if judge:
                end_dead_claims(self.store, self.clock)
            removed += remove_garbage(self.store, find_garbage(self.store, {"t"}, runtime=self.clock))
        return removed

    def publish(self, confirm=None) -> None:
        self.runs.publish(
            self.begun,
            self.files,
            attempt="run-1",
            token="load",
            position="{}",
            confirm=confirm or self.claim.confirm,
        )

    def visible(self) -> list[str]:
        found = Publication(self.store, "t", self.clock).begin(token="look").manifests
        return sorted(file.path for manifest in found.values() for file in manifest.files)


@pytest.fixture
def slow(world):
    return Slow(world.rows)


def test_a_run_that_renews_its_claim_keeps_its_files_for_ever_and_is_published(slow):
    slow.clock.meanwhile = slow.claim.confirm
    assert slow.collect() == slow.collect() == 0
    slow.publish()
    assert [describe_data_file(slow.store, path).rows for path in slow.visible()] == [2, 2]


def test_no_age_decides_a_claim_that_nobody_has_watched_stands(slow):
    assert slow.collect(judge=False) == slow.collect(judge=False) == 0
    slow.publish()
    assert len(slow.visible()) == 2


def test_a_claim_that_was_ended_publishes_nothing_whether_or_not_its_files_are_gone(slow):
    assert end_dead_claims(slow.store, slow.clock) == (PREFIX,)
    with pytest.raises(VersionConflict, match="run again"):
        slow.publish()
    assert slow.visible() == []
    assert slow.collect() == 2
    assert claimed_prefixes(slow.store, slow.clock) == ()


@pytest.mark.share(3)
@pytest.mark.parametrize("moment", range(40))
def test_wherever_a_collector_comes_between_all_is_published_with_its_files_or_nothing(slow, moment):
    """The collector ends the claim and looks twice at one request of the publication, which goes on afterwards."""
    requests, store = 0, slow.store

    def counted(verb):
        def request(*arguments):
            nonlocal requests
            requests += 1
            if requests == moment:
                slow.collect()
            return verb(*arguments)

        return request

    class Watched:
        def __getattr__(self, name):
            verb = getattr(store, name)
            return counted(verb) if name in ("get", "create", "replace") else verb

    slow.runs = Publication(Watched(), "t", slow.clock)
    try:
        slow.publish()
    except VersionConflict:
        assert slow.visible() == []
        return
    assert [describe_data_file(store, path).rows for path in slow.visible()] == [2, 2]


def test_without_the_last_renewal_a_run_would_publish_files_that_are_gone(slow):
    """What the order is for: the model fails once the rule is taken out."""
    slow.collect()
    slow.publish(confirm=lambda: None)
    assert [path for path in slow.visible() if path not in {entry.key for entry in slow.store.list(PREFIX)}]


def test_a_claim_that_is_renewed_in_the_last_moment_stands(slow):
    real = slow.store.replace
    slow.store.replace = lambda *asked: (setattr(slow.store, "replace", real), slow.claim.confirm(), real(*asked))[
        2
    ]
    assert end_dead_claims(slow.store, slow.clock) == ()
    slow.publish()


def test_files_of_a_table_that_is_being_made_are_kept(slow):
    claim = Claim.take(slow.store, "snapshots/new-5f2a/", slow.clock)
    slow.store.create("snapshots/new-5f2a/data/x/0.parquet", b"rows")
    slow.clock.meanwhile = claim.confirm
    slow.collect()
    assert slow.store.get("snapshots/new-5f2a/data/x/0.parquet").data == b"rows"


@pytest.mark.parametrize("renews", [True, False])
def test_a_thread_of_its_own_keeps_the_claim_of_a_slow_run(renews):
    world = World(1)
    store = MemoryStore(runtime=Machine(world, "store"))
    run, collector = Machine(world, "run"), Machine(world, "collector")
    ended: list[tuple[str, ...]] = []

    def write() -> None:
        with claimed(store, PREFIX, run, run.spawn if renews else None):
            run.sleep_ms(4 * CLAIM_PATIENCE_MS)

    run.spawn(write)
    collector.spawn(lambda: ended.extend(end_dead_claims(store, collector) for _ in range(2)))
    try:
        world.run(10 * CLAIM_PATIENCE_MS)
    finally:
        world.close()
    assert ended == ([(), ()] if renews else [(PREFIX,), ()])
    assert claimed_prefixes(store, run) == ()
