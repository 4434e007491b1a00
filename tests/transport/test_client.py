"""The client: any scheduler will do, nothing that may have started is silently repeated."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest
from attrs import define, field

from ballista_py.errors import (
    BallistaError,
    ConfigError,
    Fenced,
    NotOwner,
    PartitionsUnassigned,
    SchedulerLost,
    SqlError,
    TimeLimit,
    TransportError,
    TryLater,
    WriteIncomplete,
    WrongCluster,
)
from ballista_py.runtime import SystemRuntime
from ballista_py.sql.plan import Leg, LegTable, leg_from_json
from ballista_py.transport.client.client import connect
from ballista_py.transport.client.schedulers import MAX_KEPT, Schedulers
from ballista_py.transport.flight.client import FlightPool
from ballista_py.transport.flight.commands import leg_command
from ballista_py.transport.flight.errors import was_never_sent
from ballista_py.transport.flight.server import StreamResult
from ballista_py.transport.flight.wire import from_json, to_json
from ballista_py.transport.security.callers import Anyone, OfOneCluster


@define
class Scheduler:
    """A scheduler whose every answer is 20 numbers."""

    verbs = ()

    kit: object
    addresses: list[str] = field(factory=list)
    cluster_id: str = ""
    asked: list[dict] = field(factory=list)
    busy: bool = False
    refuses: list[BallistaError] = field(factory=list)
    endless: bool = False
    reached: threading.Event = field(factory=threading.Event)
    stopped: threading.Event = field(factory=threading.Event)

    def stream(self, command, context):
        if self.busy:
            raise TryLater("too many statements")
        self.asked.append(dict(command))
        if self.refuses:
            raise self.refuses.pop(0)
        if "nonsense" in command["query"]:
            raise SqlError("syntax error at or near 'nonsense'", line=1, column=1)

        def batches():
            for number in range(10**9 if self.endless else 2):
                yield self.kit.numbers(number * 10, 10)
                self.reached.set()
                if self.endless and self.stopped.wait(0.01):
                    return

        return StreamResult(
            schema=self.kit.NUMBERS,
            batches=batches(),
            trailer=lambda: {"executors": ["e1"], "took_ms": 1.5},
            cancel=self.stopped.set,
        )

    def write(self, command, rows, context):
        rows.reader().read_all()
        self.asked.append(dict(command))
        self.reached.set()
        if self.refuses:
            raise self.refuses.pop()
        if self.endless:
            self.stopped.wait(2)
        return {"affected": 3}

    def action(self, name, body, context):
        if name == "members":
            rows = [{"role": "scheduler", "address": a, "node_id": a} for a in self.addresses]
            return {"rows": rows, "cluster": self.cluster_id}
        if name == "tables":
            return {"rows": [{"table": "t"}]}
        return {"text": f"plan of {body['query']} in {body['dialect']}"}


@pytest.fixture
def cluster(serve, kit):
    """Two schedulers that know each other."""
    addresses: list[str] = []
    nodes = [serve(Scheduler(kit, addresses)) for _ in range(2)]
    addresses.extend(node.address for node in nodes)
    return nodes


def test_a_query_gives_its_rows_and_what_it_took(cluster):
    with connect(f"ballista://{cluster[0].address}") as client:
        result = client.query("select n, x from t", dialect="spark")
        assert result.table["n"].to_pylist() == list(range(20))
        assert result.stats == {"executors": ["e1"], "took_ms": 1.5}
        assert client.sql("select 1").num_rows == 20
    assert cluster[0].handler.asked[0] == {"kind": "sql", "query": "select n, x from t", "dialect": "spark"}


def test_a_stream_gives_batches_before_the_end_and_can_be_cancelled(cluster):
    cluster[0].handler.endless = True
    with connect(f"grpc://{cluster[0].address}") as client, client.stream("select n from t") as stream:
        assert next(stream.batches()).num_rows == 10
        with pytest.raises(TransportError, match="not been read to its end"):
            _ = stream.stats
    assert cluster[0].handler.stopped.wait(30)


def test_a_stream_read_to_its_end_has_stats(cluster):
    stream = connect(cluster[0].address).stream("select n from t")
    assert stream.reader().read_all().num_rows == 20
    assert stream.stats["took_ms"] == 1.5


@pytest.mark.parametrize("timeout", [0, -1.0, float("nan"), float("inf"), "5", True])
def test_a_time_limit_that_is_none_is_refused(cluster, timeout):
    client = connect(cluster[0].address)
    for ask in (client.sql, client.query, client.stream):
        with pytest.raises(SqlError, match="a time limit is a positive number of seconds"):
            ask("select n from t", timeout=timeout)


def test_rows_that_are_not_there_in_time_are_sent_no_more(cluster):
    client, given = connect(cluster[0].address), []

    def slow():
        while True:
            given.append(1)
            SystemRuntime().sleep_ms(30)
            yield pa.record_batch({"n": [1]})

    rows = pa.RecordBatchReader.from_batches(pa.schema([("n", pa.int64())]), slow())
    with pytest.raises(TimeLimit, match=r"longer than 0\.2 s, which is its time limit"):
        client.ingest("t", rows, timeout=0.2)
    assert given
    with pytest.raises(SqlError, match="positive number of seconds"):
        client.ingest("t", pa.table({"n": [1]}), timeout=0)
    client.sql("set statement_timeout = '0.2s'")
    rows = pa.RecordBatchReader.from_batches(pa.schema([("n", pa.int64())]), slow())
    with pytest.raises(TimeLimit, match=r"longer than 0\.2 s"):
        client.ingest("t", rows)


def test_questions_are_answered(cluster):
    client = connect(cluster[0].address)
    assert client.explain("select 1", dialect="spark")["text"] == "plan of select 1 in spark"
    assert client.tables() == [{"table": "t"}]
    assert [row["address"] for row in client.members()] == [node.address for node in cluster]


def test_a_client_that_was_closed_says_so(cluster):
    with connect(cluster[0].address) as client:
        pass
    client.close()
    for ask in (
        client.members,
        client.tables,
        lambda: client.sql("select 1"),
        lambda: client.stream("select 1"),
        lambda: client.sql("insert into t values (1)"),
        lambda: client.ingest("t", pa.table({"a": [1]})),
    ):
        with pytest.raises(TransportError, match=r"^this client is closed: connect again$"):
            ask()


def test_an_error_in_the_statement_is_raised_and_not_tried_elsewhere(cluster):
    with pytest.raises(SqlError, match="syntax error") as caught:
        connect(cluster[0].address).sql("nonsense")
    assert caught.value.details == {"line": 1, "column": 1}
    assert not cluster[1].handler.asked


def test_another_scheduler_is_asked_when_one_cannot_be_reached_before_the_query(cluster):
    client = connect(cluster[0].address)
    cluster[0].stop()
    assert client.sql("select 1").num_rows == 20
    assert client.tables()
    assert len(cluster[1].handler.asked) == 1


def test_another_scheduler_is_asked_when_one_is_busy(cluster):
    client = connect(cluster[0].address)
    cluster[0].handler.busy = True
    assert client.sql("select 1").num_rows == 20
    cluster[1].handler.busy = True
    with pytest.raises(TryLater, match="too many statements"):
        client.sql("select 1")


def test_several_addresses_may_be_given_and_one_may_be_down(cluster):
    assert connect(f"ballista://127.0.0.1:1,{cluster[1].address}").sql("select 1").num_rows == 20


def test_no_scheduler_at_all_is_one_clear_error():
    with pytest.raises(TransportError, match="no scheduler can be reached: node 127"):
        connect("ballista://127.0.0.1:1")
    with pytest.raises(ConfigError, match="is not an address"):
        connect("ballista://")


@pytest.fixture
def cut(cluster, kit):
    """A client whose link to the first scheduler goes through a proxy that can be cut."""
    with kit.Wiretap(cluster[0].address) as proxy:
        cluster[0].handler.addresses[0] = proxy.address
        yield proxy, cluster


@pytest.mark.parametrize("retry_reads", [False, True])
def test_a_scheduler_that_dies_in_mid_query_is_lost_unless_reads_are_repeated(cut, kit, retry_reads):
    proxy, cluster = cut
    cluster[0].handler.endless = True
    client = connect(proxy.address, retry_reads=retry_reads)
    kit.spawn(lambda: (cluster[0].handler.reached.wait(30), proxy.cut()))
    if retry_reads:
        assert client.sql("select n from t").num_rows == 20
        assert len(cluster[1].handler.asked) == 1
    else:
        with pytest.raises(SchedulerLost, match="went away while it worked"):
            client.sql("select n from t")
        assert not cluster[1].handler.asked
    assert cluster[0].handler.stopped.wait(30)


@pytest.mark.parametrize("statement", ["with x as (delete from t returning *) select * from x", "?"])
def test_what_may_change_something_is_never_repeated(cut, kit, statement):
    proxy, cluster = cut
    cluster[0].handler.endless = True
    client = connect(proxy.address, retry_reads=True)
    kit.spawn(lambda: (cluster[0].handler.reached.wait(30), proxy.cut()))
    with pytest.raises(SchedulerLost):
        client.sql(statement)
    assert not cluster[1].handler.asked


def test_a_change_whose_reply_is_lost_is_sent_again_under_its_token(cut, kit):
    proxy, cluster = cut
    cluster[0].handler.endless = True
    client = connect(proxy.address)
    kit.spawn(lambda: (cluster[0].handler.reached.wait(30), proxy.cut()))
    assert client.sql("delete from t").to_pylist() == [{"affected_rows": 3}]
    (first,), (second,) = (node.handler.asked for node in cluster)
    assert (first["again"], second["again"]) == (False, True)
    assert {**first, "again": True} == second
    assert first["token"]


@pytest.mark.parametrize("refused", [Fenced("a newer owner"), NotOwner("moved"), WriteIncomplete("half of it")])
def test_rows_whose_owners_changed_are_sent_again_under_their_token_if_they_can_be(cluster, refused):
    rows = pa.table({"n": [1, 2, 3]})
    asked = cluster[0].handler.asked
    cluster[0].handler.refuses += [refused, refused]
    with connect(cluster[0].address) as client:
        assert client.ingest("t", rows) == 3
        assert len(asked) == 3
        assert [command["again"] for command in asked] == [False, True, True]
        assert all({**command, "again": False} == asked[0] for command in asked)
        cluster[0].handler.refuses.append(refused)
        with pytest.raises(type(refused)):
            client.ingest("t", rows.to_reader())
        assert len(asked) == 4


@pytest.mark.parametrize("refused", [NotOwner("moved"), PartitionsUnassigned("none"), TryLater("full")])
def test_a_read_that_meets_nodes_coming_and_going_is_asked_again_if_reads_are_repeated(cluster, refused):
    for retry_reads in (True, False):
        for node in cluster:
            node.handler.refuses += [refused] * 2
        with connect(cluster[0].address, retry_reads=retry_reads) as client:
            if retry_reads:
                assert client.sql("select 1").num_rows == 20
            else:
                with pytest.raises(type(refused)):
                    client.sql("select 1")
        for node in cluster:
            node.handler.refuses.clear()


def test_a_read_that_is_wrong_is_not_asked_again(cluster):
    cluster[0].handler.refuses += [SqlError("no such column"), NotOwner("moved")]
    with connect(cluster[0].address, retry_reads=True) as client, pytest.raises(SqlError):
        client.sql("select 1")
    assert len(cluster[0].handler.asked) == 1


def test_a_stream_whose_scheduler_dies_raises_scheduler_lost(cut):
    proxy, cluster = cut
    cluster[0].handler.endless = True
    batches = connect(proxy.address, retry_reads=True).stream("select n from t").batches()
    next(batches)
    proxy.cut()
    with pytest.raises(SchedulerLost):
        for _ in batches:
            pass


def test_a_leg_survives_its_command():
    table = LegTable(table="t", revision=3, partitions=(1, 2), epochs=(5, 6))
    leg = Leg(fragment="f0", executor_id="e1", sql="select 1", tables=(table,))
    assert leg_from_json(from_json(to_json(leg_command(leg)))["leg"]) == leg


def test_schedulers_that_came_later_are_learnt_after_a_failure_and_now_and_then(cluster, serve, kit, monkeypatch):
    first, second = cluster
    with connect(first.address) as client:
        third = serve(Scheduler(kit, first.handler.addresses))
        first.handler.addresses.append(third.address)
        first.stop()
        assert client.sql("select 1").num_rows == 20  # by the second, which is asked for the others then
        second.stop()
        assert client.sql("select 1").num_rows == 20
        assert third.handler.asked
        fourth = serve(Scheduler(kit, third.handler.addresses))
        third.handler.addresses.append(fourth.address)
        monkeypatch.setattr("ballista_py.transport.client.schedulers.LEARN_MS", 0.0)
        client.sql("select 1")  # no failure, but the time has come
        third.stop()
        assert client.sql("select 1").num_rows == 20
        assert fourth.handler.asked


def test_schedulers_that_are_gone_are_asked_last_and_then_no_more_but_for_those_that_were_named(
    cluster, monkeypatch
):
    first, second = cluster
    with connect(first.address) as client:
        assert set(client._schedulers.addresses) == {first.address, second.address}
        first.handler.addresses[:] = [first.address]
        client.members()
        assert client._schedulers.addresses == (first.address, second.address)  # it may be on its way back
        monkeypatch.setattr("ballista_py.transport.client.schedulers.KEPT_MS", 0.0)
        client.members()
        assert client._schedulers.addresses == (first.address,)


def test_no_more_than_some_of_those_that_are_gone_are_remembered_the_last_ones(cluster, monkeypatch):
    first, second = cluster
    with connect(first.address) as client:
        for number in range(3 * MAX_KEPT):
            first.handler.addresses[:] = [first.address, f"127.0.0.1:{number + 1}"]
            client.members()
        known = client._schedulers.addresses
        assert known[0] == first.address
        assert known[1:] == tuple(f"127.0.0.1:{3 * MAX_KEPT - number}" for number in range(MAX_KEPT + 1))
        assert second.address not in known


def test_one_that_takes_nothing_now_tells_of_the_others(cluster):
    """As when schedulers are restarted in turn, and a client knows the one alone that stops next."""
    first, second = cluster
    first.handler.addresses = [first.address]
    with connect(first.address) as client:
        first.handler.addresses = [first.address, second.address]
        first.handler.busy = True
        assert client.sql("select 1").num_rows == 20
    assert len(second.handler.asked) == 1


def test_one_that_was_away_is_asked_again_before_anybody_tells_of_it(cluster):
    first, second = cluster
    with connect(second.address) as client:
        second.handler.addresses = [second.address]
        client.members()  # while the first is away
        second.handler.busy = True
        assert client.sql("select 1").num_rows == 20
    assert len(first.handler.asked) == 1


def test_a_scheduler_of_another_cluster_is_passed_over(serve, kit):
    ours, others = (
        serve(Scheduler(kit, cluster_id=name), callers=OfOneCluster(Anyone(), name)) for name in ("ours", "others")
    )
    with connect(f"{ours.address},{others.address}") as client:
        ours.handler.busy = True
        with pytest.raises(WrongCluster, match="another cluster"):
            client.sql("select 1")
        assert others.handler.asked == []


@pytest.mark.parametrize("sent", [True, False])
def test_a_scheduler_whose_link_failed_is_asked_last_from_then_on(sent):
    """One that is stopped takes connections: each statement that asks it first would wait for it anew."""
    schedulers = Schedulers(["a:1", "b:1", "c:1"], FlightPool(SystemRuntime()), SystemRuntime())
    asked: list[str] = []

    def ask(address: str) -> str:
        asked.append(address)
        if address == "a:1":
            raise TransportError("it fell silent", peer=address, sent=sent)
        raise TryLater("busy")

    with pytest.raises(SchedulerLost if sent else TryLater):
        schedulers.first_of(ask, was_never_sent)
    asked.clear()
    with pytest.raises(TransportError):
        schedulers.first_of(ask, was_never_sent)
    assert asked == ["b:1", "c:1", "a:1"]
