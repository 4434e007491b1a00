"""A Client before a Server that has no time to process: rows come from it as they are, or it is asked again later."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import pyarrow as pa
import pytest
from attrs import evolve
from tests.transport.conftest import HandClock

from ballista_py.agents import partition_search
from ballista_py.agents.agent import ReadSource
from ballista_py.agents.read_job import ReadJob, ReadPartition
from ballista_py.errors import InvalidData, TryLater
from ballista_py.transport.flight_sql.legs import PartsService
from ballista_py.transport.security.access import PARTS
from ballista_py.transport.table_read.exchange import PartAnswer, TooBusy
from ballista_py.transport.table_read.messages import pb
from ballista_py.transport.table_read.tokens.positions import START

ROWS = pa.RecordBatch.from_pydict({"n": [1, 2, 3]})
MOST = 100


class Busy:
    """A Server that processes nothing, and gives rows as they are."""

    def __init__(self):
        self.asked = 0
        self.requests = []

    def open_part(self, request, context):
        self.asked += 1
        self.requests.append(request)
        if self.asked > MOST:
            raise InvalidData("asked without an end")
        if request.process:
            return TooBusy()
        return PartAnswer(schema=ROWS.schema, batches=iter([(START, ROWS)]), processed=False)


class Waited(HandClock):
    """A clock that goes on by a second whenever somebody sleeps."""

    def sleep_ms(self, ms):
        self.now_ms += 1_000


@pytest.fixture
def busy():
    return Busy()


@pytest.fixture
def partition(serve, busy, monkeypatch):
    served = serve(access=PARTS, service=partial(PartsService, command_of=lambda *_: {}, reads=busy))
    uri = f"grpc://{served.address}"
    found = pb.Located(partitions=[pb.Partition(ticket=b"{}", locations=[pb.Location(uri=uri)])])
    scheduler = SimpleNamespace(ask=lambda *_: found, close=lambda: None)
    monkeypatch.setattr(partition_search, "Agent", lambda *_: scheduler)
    return ReadPartition(
        source=ReadSource(url="ballista://127.0.0.1:1"),
        read_id="r",
        number=0,
        rows=3,
        data_bytes=1,
        schema=ROWS.schema,
        base_schema=ROWS.schema,
        plan="select n + 1 as n from r",
        relation="r",
        locations=(uri,),
        ticket=b"{}",
        passes_rows=False,
    )


def test_what_no_server_has_time_to_process_is_processed_by_the_client(partition, busy):
    assert partition.to_table()["n"].to_pylist() == [2, 3, 4]
    assert busy.asked == 2


def place(name, priority=0, load=0):
    return pb.Location(uri=name, hints=pb.ServingHints(priority=priority, load=load))


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ([("own", 0, 0), ("copy", 1, 0)], [("own", 0), ("copy", 1)]),
        ([("own", 0, 49), ("copy", 1, 0)], [("own", 0), ("copy", 1)]),
        ([("own", 0, 50), ("copy", 1, 0)], [("copy", 1), ("own", 1)]),
        ([("own", 0, 100), ("copy", 1, 49)], [("copy", 1), ("own", 2)]),
        ([("own", 0, 100), ("copy", 1, 100)], [("own", 2), ("copy", 3)]),
        ([("a", 0, 10), ("b", 0, 0), ("c", 0, 24)], [("a", 0), ("b", 0), ("c", 0)]),
        ([("a", 0, 30), ("b", 0, 0)], [("b", 0), ("a", 0)]),
    ],
)
def test_of_servers_that_have_the_same_a_less_busy_one_is_asked_first(said, asked):
    found = partition_search.preferred([place(*one) for one in said])
    assert [(one.uri, rank) for one, rank in found] == asked


def test_a_read_job_has_its_locations_as_they_are_to_be_asked(partition):
    schema = ROWS.schema.serialize().to_pybytes()
    part = pb.Partition(number=0, ticket=b"{}", locations=[place("own", 0, 100), place("copy", 1, 0)])
    one = pb.Slice(schema=schema, base_schema=schema, partitions=[part])
    job = ReadJob(partition._source, None, pb.Slices(read_id="r", schema=schema, slices=[one]), HandClock())
    assert (job.partitions[0].locations, job.partitions[0].priorities) == (("copy", "own"), (1, 2))


def test_whoever_asks_again_asks_the_less_busy_one(partition, busy, monkeypatch):
    (uri,) = partition.locations
    found = pb.Located(
        partitions=[pb.Partition(ticket=b"{}", locations=[place("grpc://a:1", 0, 100), place(uri, 1)])]
    )
    scheduler = SimpleNamespace(ask=lambda *_: found, close=lambda: None)
    monkeypatch.setattr(partition_search, "Agent", lambda *_: scheduler)
    search = partition_search.PartitionSearch(partition, Waited())
    search._look_again(1e12)
    assert search._locations == (uri, "grpc://a:1")


@pytest.mark.parametrize(
    ("encodings", "asked"),
    [
        (("arrow+zstd",), (False, ("arrow+zstd",))),
        (("arrow", "arrow+lz4"), (False, ("arrow", "arrow+lz4"))),
        (("parquet", "arrow"), (False, ("parquet", "arrow"))),
        (("arrow",), (True, ())),
        ((), (True, ())),
    ],
)
def test_rows_that_need_nothing_are_asked_for_in_the_forms_that_were_named(partition, busy, encodings, asked):
    passing = evolve(partition, passes_rows=True, encodings=encodings)
    assert passing.to_table()["n"].to_pylist() == [1, 2, 3]
    assert (busy.requests[0].process, busy.requests[0].encodings) == asked


def test_a_client_that_cannot_process_asks_again_after_a_moment_and_gives_up_after_a_minute(
    partition, busy, monkeypatch
):
    monkeypatch.setattr(partition_search, "_has_engine", lambda: False)
    with pytest.raises(TryLater, match="too much to do"):
        list(partition.batches(runtime=Waited()))
    assert 60 <= busy.asked < MOST
