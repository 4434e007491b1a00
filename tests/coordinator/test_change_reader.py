"""Two readers of one source are harmless, however long one of them slept; only what truly stands still is given up."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.coordinator.followed import FollowedInMemory

from ballista_py.coordinator.changes.reader import ChangeReader
from ballista_py.coordinator.changes.source import AT_COLUMN, ChangeBatch, SourceLag
from ballista_py.errors import SourceLost, SourceUnfit
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.state.documents.decisions import SourcePosition

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
TABLE = TableSpec(
    name="t", schema=SCHEMA, spec=PartitionSpec.whole(), distribution="replicated", primary_key=("id",)
)
KEY = pa.struct([SCHEMA.field("id")])


class Log:
    """A source of one row, whose n-th change sets it to n; it keeps what was not confirmed. `meanwhile` happens once,
    before something is asked of it."""

    def __init__(self) -> None:
        self.end, self.confirmed, self.given_up, self.wrong = 0, 0, 0, False
        self.meanwhile = {}

    def _happens(self, what: str) -> None:
        self.meanwhile.pop(what, lambda: None)()

    def snapshot(self):
        row = pa.record_batch({"id": [1], "v": [self.end]}, schema=SCHEMA)
        return SourcePosition(self.end, "log"), iter([row])

    def read(self, after: SourcePosition, limit: int) -> ChangeBatch:
        self._happens("read")
        if self.confirmed > after.at:
            raise SourceLost(f"the log was moved on to {self.confirmed} by somebody else")
        if self.wrong:
            raise SourceUnfit("a value does not fit")
        places = list(range(after.at + 1, self.end + 1))
        changes = pa.table(
            {
                "op": pa.array(["update"] * len(places), pa.string()),
                "old": pa.array([None] * len(places), KEY),
                "new": pa.array([{"id": 1, "v": n} for n in places], pa.struct(list(SCHEMA))),
                "unchanged": pa.array([None] * len(places), pa.list_(pa.string())),
                AT_COLUMN: pa.array(places, pa.int64()),
            }
        )
        return ChangeBatch(changes=changes, position=SourcePosition(self.end, "log"))

    def confirm(self, position: SourcePosition) -> None:
        self._happens("confirm")
        if self.confirmed > position.at:
            raise SourceLost(f"the log was moved on to {self.confirmed} by somebody else")
        self.confirmed = position.at

    def discard(self, position: SourcePosition) -> None: ...

    def lag(self, position: SourcePosition) -> SourceLag:
        return SourceLag(bytes=self.end - position.at)

    def give_up(self) -> None:
        self.given_up += 1

    def close(self) -> None: ...


@pytest.fixture
def log():
    return Log()


@pytest.fixture
def table():
    return FollowedInMemory(TABLE)


def others(table, log):
    """Another reader moves the table on, and the source with it, three times."""
    reader = ChangeReader(table, log, max_lag_bytes=1)

    def move() -> None:
        for _ in range(3):
            log.end += 1
            reader.tick()

    return move


@pytest.mark.parametrize("asleep_before", ["read", "confirm"])
def test_who_slept_while_another_went_on_takes_nothing_for_lost(table, log, asleep_before):
    reader = ChangeReader(table, log, max_lag_bytes=1)
    reader.tick()
    log.end += 1
    log.meanwhile[asleep_before] = others(table, log)
    progress = reader.tick()
    assert progress.did in ("behind another", "applied")
    assert reader.tick().did == "nothing"
    assert (table.rows[1,]["v"], log.confirmed, log.end, log.given_up) == (4, 4, 4, 0)


def test_so_it_is_with_who_slept_after_its_copy(table, log):
    log.meanwhile["confirm"] = others(table, log)
    assert ChangeReader(table, log).tick().did == "copied"
    assert (table.rows[1,]["v"], log.confirmed) == (3, 3)


def test_a_log_that_is_lost_is_said_to_be_by_each_tick(table, log):
    reader = ChangeReader(table, log)
    reader.tick()
    log.end = log.confirmed = 5  # somebody has moved it on, and the table has none of it
    for _ in range(2):
        with pytest.raises(SourceLost, match="moved on to 5"):
            reader.tick()


def test_what_is_lost_between_a_decision_and_its_confirmation_is_seen_by_the_next_tick(table, log):
    reader = ChangeReader(table, log)
    reader.tick()
    log.end = 1
    log.meanwhile["confirm"] = lambda: setattr(log, "confirmed", 7)
    assert reader.tick().did == "behind another"
    with pytest.raises(SourceLost):
        reader.tick()


def test_only_a_table_that_stands_still_for_too_much_log_is_given_up(table, log):
    reader = ChangeReader(table, log, max_lag_bytes=10)
    reader.tick()
    log.wrong, log.end = True, 10
    with pytest.raises(SourceUnfit) as raised:
        reader.tick()
    assert reader.given_up(raised.value) is raised.value
    assert log.given_up == 0
    log.end = 11
    assert "thrown away: mend it (a value does not fit)" in reader.given_up(raised.value).message
    assert log.given_up == 1


def test_who_was_paused_since_its_error_measures_from_where_the_table_stands_now(table, log):
    reader = ChangeReader(table, log, max_lag_bytes=2)
    reader.tick()
    log.wrong, log.end = True, 5
    with pytest.raises(SourceUnfit) as raised:
        reader.tick()
    log.wrong = False
    ChangeReader(table, log).tick()  # another one, who could take it
    assert reader.given_up(raised.value) is raised.value
    assert log.given_up == 0


def test_without_a_bound_nothing_is_ever_thrown_away(table, log):
    reader = ChangeReader(table, log)
    reader.tick()
    log.end = 1 << 40
    error = SourceUnfit("a value does not fit")
    assert reader.given_up(error) is error
    assert log.given_up == 0
