"""When sources are looked at again, and that a value leaves only after two looks in a row, an interval apart."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ballista_py.errors import TryLater
from ballista_py.partitions.discovery import diff_partitions
from ballista_py.partitions.map import MISSING, PartitionMap
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.state.ownership.discovery import SourceWatch, is_watched

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("region", pa.string())])
REGIONS = PartitionSpec.parse(["region"], SCHEMA)
EVENTS = TableSpec(name="events", schema=SCHEMA, spec=REGIONS, source={"path": "events.csv"})
INTERVAL_MS = 1_000.0


class Site:
    """One table, its committed map, a source, and schedulers that watch it."""

    def __init__(self, runtime, watches: int = 1) -> None:
        self.runtime = runtime
        self.source = ["eu", "us"]
        self.last_looks: dict[int, tuple[float, bool]] = {}
        self.counted: list[tuple[float, bool]] = []
        self.map = PartitionMap.build("events", REGIONS, [("eu",), ("us",)])
        self.watches = [SourceWatch(self.find, INTERVAL_MS, runtime) for _ in range(watches)]
        self.trouble: TryLater | None = None

    def find(self, table, pmap):
        if self.trouble is not None:
            raise self.trouble
        return [(value,) for value in self.source]

    def look(self, watch: int = 0):
        report = self.watches[watch].tick({"events": EVENTS}, {"events": self.map})
        if report.found:
            self.last_looks[watch] = (self.runtime.monotonic_ms(), "eu" in self.source)
        return report

    def commit(self, watch: int = 0) -> None:
        found = self.watches[watch].take(EVENTS)
        if found is not None:
            diff = diff_partitions(self.map, found.values, after=found.after)
            if found.after == self.map.discoveries:
                self.counted.append(self.last_looks[watch])
            self.map = self.map.apply_diff(diff)

    def shown(self) -> list[str]:
        return [self.map.value(partition)[0] for partition in self.map.ids().tolist()]


@pytest.fixture
def site(runtime) -> Site:
    return Site(runtime, watches=2)


def pass_interval(site: Site) -> None:
    site.runtime.advance(INTERVAL_MS)


def test_a_new_value_shows_up_after_an_interval_and_is_told_once(site):
    assert site.look().found == {}
    site.source.append("asia")
    site.runtime.advance(INTERVAL_MS - 1)
    assert site.look().found == {}
    site.runtime.advance(1)
    assert site.look().found == {"events": 3}
    site.commit()
    assert site.shown() == ["eu", "us", "asia"]
    assert site.watches[0].take(EVENTS) is None
    assert site.look().found == {}


def test_a_vanished_value_is_dropped_by_the_second_look_an_interval_later(site):
    site.look()
    site.source.remove("eu")
    pass_interval(site)
    site.look()
    site.commit()
    assert site.shown() == ["eu", "us"]
    site.look()  # sees the mark
    site.runtime.advance(INTERVAL_MS - 1)
    site.look()
    site.commit()
    assert site.shown() == ["eu", "us"]
    site.runtime.advance(1)
    site.look()
    site.commit()
    assert site.shown() == ["us"]


def test_two_schedulers_in_quick_succession_count_as_one_look(site):
    for watch in (0, 1):
        site.look(watch)
    site.source.remove("eu")
    pass_interval(site)
    site.look(0)
    site.commit(0)
    site.runtime.advance(1)
    site.look(1)  # due by its own clock, but the count has changed
    site.commit(1)
    assert site.map.flags.tolist() == [MISSING, 0]
    pass_interval(site)
    site.look(1)
    site.commit(1)
    assert site.shown() == ["us"]


def test_a_look_that_began_before_another_was_committed_marks_and_drops_nothing(site):
    for watch in (0, 1):
        site.look(watch)
    site.source = ["us", "asia"]
    pass_interval(site)
    for watch in (0, 1):
        site.look(watch)
    site.commit(0)
    before = site.map
    site.commit(1)
    assert site.map == before
    assert site.shown() == ["eu", "us", "asia"]


def test_a_look_that_fails_is_reported_and_made_again_an_interval_later(site):
    site.look()
    pass_interval(site)
    site.trouble = TryLater("too slow")
    assert list(site.look().errors) == ["events"]
    site.trouble = None
    assert site.look().found == {}
    pass_interval(site)
    assert site.look().found == {"events": 2}


def test_only_tables_whose_partitions_are_not_known_beforehand_are_watched(site):
    static = PartitionSpec.parse(["bucket(4, id)"], SCHEMA)
    assert is_watched(EVENTS)
    for table in (
        TableSpec(name="t", schema=SCHEMA, spec=static, source={"path": "x"}),
        TableSpec(name="t", schema=SCHEMA, spec=REGIONS),
        TableSpec(
            name="t", schema=SCHEMA, spec=PartitionSpec.whole(), distribution="replicated", source={"path": "x"}
        ),
    ):
        assert not is_watched(table)
    site.look()
    pass_interval(site)
    assert site.watches[0].tick({}, {}).found == {}
    assert site.watches[0].tick({"events": EVENTS}, {}).found == {}


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("look"), st.integers(0, 2)),
        st.tuples(st.just("commit"), st.integers(0, 2)),
        st.tuples(st.just("wait"), st.sampled_from([1.0, 300.0, 999.0, 1_000.0])),
        st.tuples(st.just("source"), st.booleans()),
    ),
    min_size=30,
    max_size=80,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_whatever_several_schedulers_do_a_drop_has_two_looks_in_a_row_an_interval_apart(runtime, steps) -> None:
    site = Site(runtime.another(), watches=3)
    for step, what in steps:
        if step == "look":
            site.look(what)
        elif step == "commit":
            site.commit(what)
        elif step == "wait":
            site.runtime.advance(what)
        else:
            site.source = ["eu", "us"] if what else ["us"]
        if "eu" not in site.shown():
            (first, shown_first), (second, shown_second) = site.counted[-2:]
            assert not shown_first
            assert not shown_second
            assert second - first >= INTERVAL_MS
            return
