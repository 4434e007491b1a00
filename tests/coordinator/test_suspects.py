"""A dead executor is found out by the first call to it; its copies answer, until it is heard again."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ballista_py.coordinator.cluster_view import ClusterView
from ballista_py.coordinator.queries.service import QueryService
from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.errors import NotOwner, TransportError
from ballista_py.runtime import SystemRuntime
from ballista_py.testing.sql.single_node import InProcessCluster


class Legs:
    """A leg's rows, made in this process."""

    def __init__(self, table: pa.Table, fails: BaseException | None = None) -> None:
        self.schema, self._table, self.error = table.schema, table, None
        self.bytes_received, self.progress, self._fails = table.nbytes, (), fails

    def batches(self):
        yield from self._table.to_batches()
        if self._fails is not None:
            self.error = self._fails
            raise self._fails

    def cancel(self) -> None:
        pass


class Clock(SystemRuntime):
    now_ms = 1_000.0

    def monotonic_ms(self) -> float:
        return self.now_ms

    def sleep_ms(self, duration_ms: float) -> None:
        self.now_ms += duration_ms


class Site:
    """A service over executors of which some do not answer; they stay members, as with a long time to live."""

    def __init__(self, replicas: int, engine: DuckDBEngine) -> None:
        self.cluster = InProcessCluster(3, replicas)
        self.cluster.add("t", pa.table({"k": list(range(60))}), "bucket(6, k)")
        self.dead: set[str] = set()
        self.dying: set[str] = set()  # these break off when they have given their rows
        self.begin_anew = 0  # so many times they do so when they have given their rows
        self.asked: list[str] = []
        self.heard = {f"i{n}": 0.0 for n in (1, 2, 3)}
        self.clock = Clock()
        self.view = ClusterView(
            catalog=self.cluster.catalog,
            members=frozenset(self.cluster.owners),
            addresses={name: f"{name}:1" for name, _ in self.cluster.owners},
        )
        self.service = QueryService(self, engine, self.open, self.clock, heard_ms=lambda: self.heard)

    def current(self, words=None) -> ClusterView:
        return self.view

    def refresh(self, words=None) -> ClusterView:
        return self.view

    def open(self, fragments, addresses, elsewhere):
        for leg in (leg for legs in fragments for leg in legs):
            self.asked.append(leg.executor_id)
            if leg.executor_id in self.dead:
                address = addresses[leg.executor_id]
                raise TransportError(f"node {address} cannot be reached", peer=address, sent=False)
        self.elsewhere = elsewhere
        self.opened = [leg for legs in fragments for leg in legs]
        return [self.legs(legs) for legs in fragments]

    def legs(self, legs):
        broken = [f"{leg.executor_id}:1" for leg in legs if leg.executor_id in self.dying]
        fails = TransportError(f"the connection to node {broken[0]} broke", peer=broken[0]) if broken else None
        if self.begin_anew > 0:
            self.begin_anew -= 1
            fails = NotOwner("the engine of this node begins anew")
        return Legs(pa.concat_tables([self.cluster.run_leg(leg, {}) for leg in legs]), fails)

    def rows(self) -> int:
        self.asked.clear()
        self.statement = self.service.run("select count(distinct k) as n from t")
        return pa.Table.from_batches(self.statement.batches(), self.statement.schema)["n"][0].as_py()


@pytest.fixture
def site():
    engine, made = DuckDBEngine(threads=1), []

    def make(replicas: int) -> Site:
        made.append(Site(replicas, engine))
        return made[-1]

    yield make
    for one in made:
        one.cluster.close()
    engine.close()


@pytest.mark.parametrize("name", ["e1", "e2", "e3"])
def test_with_two_copies_a_query_is_answered_at_once_and_the_next_does_not_ask_the_dead_one(site, name):
    here = site(2)
    here.dead.add(name)
    here.clock.now_ms = 5_000.0
    assert here.rows() == 60
    assert here.clock.now_ms == 5_000.0  # nobody waited
    assert here.rows() == 60
    assert name not in here.asked


def test_one_that_was_heard_again_is_asked_again(site):
    here = site(3)
    here.rows()
    first = here.asked[0]
    here.dead.add(first)
    assert here.rows() == 60
    here.dead.clear()
    here.rows()
    assert first not in here.asked
    here.heard[f"i{first[1:]}"] = here.clock.now_ms + 1
    here.rows()
    assert first in here.asked


def test_without_a_copy_the_owner_is_asked_again_and_the_error_names_it(site):
    here = site(1)
    here.dead.add("e2")
    for _ in range(2):
        with pytest.raises(TransportError, match="node e2:1 cannot be reached"):
            here.rows()
        assert "e2" in here.asked
    here.dead.clear()
    assert here.rows() == 60


def test_another_instance_of_the_same_executor_is_no_suspect(site):
    here = site(1)
    here.dead.add("e2")
    with pytest.raises(TransportError):
        here.rows()
    suspects = here.service._suspects
    assert suspects.among({("e2", "i2")}, {}) == {("e2", "i2")}
    assert suspects.among({("e2", "i9")}, {}) == frozenset()
    assert suspects.only({("e2", "i9")}).since_ms == {}


def test_a_leg_under_way_whose_executor_is_gone_is_read_at_the_copies(site):
    here = site(2)
    assert here.rows() == 60
    for failed in here.opened:
        broken = TransportError("broke", peer=f"{failed.executor_id}:1")
        instead = here.elsewhere(failed, broken)
        assert failed.executor_id not in {leg.executor_id for leg in instead}
        (wanted,) = failed.tables
        read = [t for leg in instead for t in leg.tables]
        assert sorted(p for t in read for p in t.partitions) == sorted(wanted.partitions)
        assert {t.sequence for t in read} == {wanted.sequence}
        rows = [here.cluster.run_leg(leg, {}) for leg in instead]
        whole = here.cluster.run_leg(failed, {})
        assert sum(table.num_rows for table in rows) >= whole.num_rows > 0
        here.heard.update(dict.fromkeys(here.heard, here.clock.now_ms + 1))  # all are heard again
        here.clock.now_ms += 2
    assert failed.executor_id in {leg.executor_id for leg in here.opened}


def test_a_leg_under_way_that_fails_for_another_reason_or_has_no_copy_is_not_sent_again(site):
    here = site(2)
    here.rows()
    (failed, *_) = here.opened
    assert here.elsewhere(failed, TransportError("another", peer="elsewhere:1")) == ()
    assert here.elsewhere(failed, ValueError("no")) == ()
    alone = site(1)
    alone.rows()
    (failed, *_) = alone.opened
    assert alone.elsewhere(failed, TransportError("broke", peer=f"{failed.executor_id}:1")) == ()


def test_a_statement_of_which_nothing_was_given_out_is_run_anew_when_an_executor_breaks_off(site):
    here = site(2)
    here.rows()
    here.dying.add(here.asked[0])
    assert here.rows() == 60
    stats = here.statement.stats()
    assert stats["replans"] == 1
    assert not here.dying & set(stats["executors"])
    here.statement.cancel()


def test_one_of_which_rows_were_given_out_fails(site):
    here = site(2)
    here.rows()
    here.dying.add(here.asked[0])
    batches = here.service.run("select k from t").batches()
    next(batches)
    with pytest.raises(TransportError, match="broke"):
        list(batches)


def test_a_statement_that_was_cancelled_is_not_run_anew(site):
    here = site(2)
    here.rows()
    here.dying.update({"e1", "e2", "e3"})
    cancelled: list[bool] = []
    statement = here.service.run("select count(*) as n from t", cancelled=lambda: bool(cancelled))
    cancelled.append(True)
    here.asked.clear()
    with pytest.raises(TransportError, match="broke"):
        list(statement.batches())
    assert here.asked == []


def test_an_executor_that_breaks_off_again_and_again_is_an_error(site):
    here = site(1)
    here.dying.add("e2")
    with pytest.raises(TransportError, match="broke"):
        here.rows()
    assert here.asked.count("e2") == 4


def test_whose_engine_begins_anew_under_way_is_asked_again_in_a_moment(site):
    here = site(1)
    here.begin_anew = 2
    began_ms = here.clock.now_ms
    assert here.rows() == 60
    assert here.statement.stats()["replans"] == 2
    assert here.clock.now_ms - began_ms >= 400


def test_of_two_that_were_suspected_the_earlier_one_is_asked_again_if_one_must_be(site):
    here = site(2)
    here.rows()
    for name in ("e1", "e2"):  # each has partitions of which the other has the copy
        here.clock.now_ms += 1_000.0
        here.dead.add(name)
        if name == "e2":
            here.dead.discard("e1")  # it is back, and was not heard yet
        assert here.rows() == 60
    assert here.rows() == 60
    assert "e1" in here.asked
    assert "e2" not in here.asked
