"""Changes and ALTERs that meet: each kind gets its turn, and none waits for somebody who is gone."""

import pyarrow as pa
import pytest
from attrs import evolve

from ballista_py.coordinator.cluster_view import ClusterView
from ballista_py.coordinator.tables.table_definitions import TURN_MS, TableDefinitions
from ballista_py.coordinator.writes.target_tables import PlannedAgain
from ballista_py.errors import SqlError, TableAltered, TryLater
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import SystemRuntime
from ballista_py.sql.plan import Catalog
from ballista_py.state.documents.decisions import TableDecisions
from ballista_py.state.documents.documents import CLUSTER_KEY, ClusterDocument
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.stores.memory import MemoryStore

TABLE = TableSpec(
    name="t", schema=pa.schema([("a", pa.int64())]), spec=PartitionSpec.whole(), distribution="replicated"
)


class Clock(SystemRuntime):
    """Sleeping moves it, and lets something happen."""

    def __init__(self):
        self.now_ms, self.meanwhile = 0.0, lambda: None

    def monotonic_ms(self):
        return self.now_ms

    def sleep_ms(self, duration_ms):
        self.now_ms += duration_ms
        self.meanwhile()


class Site:
    """One scheduler over a store with one table; whoever asks for a view gets the newest."""

    def __init__(self):
        self.store, self.clock = MemoryStore(), Clock()
        ObjectState(self.store, CLUSTER_KEY, ClusterDocument).create(ClusterDocument(tables={"t": TABLE}))
        self.definitions = TableDefinitions(self.store, self.clock)
        self.document = TableDecisions(self.store, TABLE.folder)
        self.again = PlannedAgain(self, self, self.definitions, self.clock, 30_000)

    def refresh(self, words=None):
        table = self.definitions.newest("t")
        return ClusterView(catalog=Catalog(tables={"t": table}, maps={}), members=frozenset(), addresses={})

    current = refresh

    def statements(self, _table):
        return self.document

    def alter(self):
        self.definitions.commit(TABLE, lambda now: evolve(now, comment="x", definition=now.definition + 1))

    @property
    def definition(self):
        return self.definitions.newest("t").definition


@pytest.fixture
def site():
    return Site()


def test_a_definition_waits_for_a_statement_that_an_earlier_one_kept_waiting(site):
    site.document.wait_for_turn("s")
    seen = []

    def meanwhile():
        seen.append(site.definition)
        if len(seen) == 3:
            site.document.wait_for_turn("later")  # of which it need not wait
            site.document.end_turn("s")

    site.clock.meanwhile = meanwhile
    site.alter()
    assert seen == [0, 0, 0]
    assert site.definition == 1
    assert site.document.read().waiting == ("later",)


def test_a_definition_waits_not_for_ever_and_nobody_waits_again_for_the_same(site):
    site.document.wait_for_turn("dead")
    site.alter()
    assert TURN_MS <= site.clock.now_ms < 2 * TURN_MS
    site.alter()
    assert site.clock.now_ms < 2 * TURN_MS
    assert site.document.read().waiting == ()


def test_a_statement_that_was_refused_twice_gets_its_turn_and_gives_it_back(site):
    waiting = []

    def run():
        waiting.append(site.document.read().waiting)
        if len(waiting) < 4:
            raise TableAltered("altered", table="t")
        return "done"

    assert site.again.until_done(run, {"t"}) == "done"
    assert [len(found) for found in waiting] == [0, 0, 1, 1]
    assert site.document.read().waiting == ()


def test_a_statement_is_given_up_in_time_and_waits_no_more(site):
    def run():
        raise TableAltered("altered", table="t")

    with pytest.raises(TryLater, match="send the statement again"):
        site.again.until_done(run, {"t"})
    assert site.document.read().waiting == ()


def test_an_error_counts_unless_the_table_was_altered_meanwhile(site):
    tried = []

    def run():
        tried.append(site.definition)
        if len(tried) < 3:
            site.alter()
        raise SqlError("column 'c' is not there")

    with pytest.raises(SqlError):
        site.again.until_done(run, {"t"})
    assert tried == [0, 1, 2]
    tried.clear()
    with pytest.raises(SqlError):
        site.again.until_done(run, frozenset())
    assert len(tried) == 1
