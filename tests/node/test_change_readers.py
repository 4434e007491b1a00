"""Between two readings of all logs the sources at rest are asked whether they stir, and those that do are read."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ballista_py.errors import SourceUnavailable
from ballista_py.node.scheduler.changes import EVERY_MS, LOOKS_A_TICK, ChangeReaders


class Clock:
    now = 0.0

    def monotonic_ms(self) -> float:
        return self.now


class Source:
    def __init__(self) -> None:
        self.asked, self.stirring, self.away = 0, False, False

    def stirs(self) -> bool:
        self.asked += 1
        if self.away:
            raise SourceUnavailable("away")
        return self.stirring


class Readers(ChangeReaders):
    """With tables `t0`, `t1`, …, each of which has as many changes as `changes` says."""

    def begin(self, count: int) -> Readers:
        self.tables = {f"t{n}": SimpleNamespace(folder=f"t{n}", name=f"t{n}") for n in range(count)}
        self.sources = {folder: Source() for folder in self.tables}
        self.changes, self.read = dict.fromkeys(self.tables, 0), []
        for folder, table in self.tables.items():
            self._readers[folder] = (None, self.sources[folder], table)
        return self

    def is_first(self) -> bool:
        return True

    def _followed(self):
        return dict(self.tables)

    def _read(self, table) -> int:
        self.read.append(table.folder)
        self._shown = {**self._shown, table.folder: {"level": True}}
        return self.changes[table.folder]


@pytest.fixture
def made():
    clock = Clock()
    return clock, lambda count: Readers(None, None, None, {}, None, None, clock).begin(count)


def test_a_source_that_stirs_is_read_before_its_turn_and_again_while_it_brings_changes(made):
    clock, readers = made[0], made[1](2)
    readers.tick()
    assert readers.read == ["t0", "t1"]
    readers.sources["t1"].stirring, readers.changes["t1"] = True, 3
    for _ in range(2):
        clock.now += 100
        assert readers.tick() == 3
    assert readers.read == ["t0", "t1", "t1", "t1"]


def test_one_that_stirs_without_a_change_or_is_away_waits_for_the_next_reading_of_all(made):
    clock, readers = made[0], made[1](2)
    readers.tick()
    readers.sources["t0"].stirring, readers.sources["t1"].away = True, True
    for _ in range(3):
        clock.now += 100
        readers.tick()
    assert readers.read == ["t0", "t1", "t0"]
    assert [source.asked for source in readers.sources.values()] == [1, 1]
    clock.now += EVERY_MS
    readers.tick()
    assert readers.read[3:] == ["t0", "t1"]


def test_of_many_a_few_are_asked_each_time_in_turn(made):
    clock, readers = made[0], made[1](LOOKS_A_TICK + 2)
    readers.tick()
    for _ in range(3):
        clock.now += 100
        readers.tick()
    asked = [source.asked for source in readers.sources.values()]
    assert sum(asked) == 3 * LOOKS_A_TICK
    assert set(asked) == {2}
