"""A read job shows one instant of its table, whatever happens meanwhile, to whoever has a ticket, and nobody else."""

from __future__ import annotations

import json
import pickle
import random
import subprocess
import sys
import threading
from base64 import b64decode, b64encode
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from urllib.parse import urlparse

import polars as pl
import pyarrow as pa
import pytest
from attrs import evolve

from ballista_py import LocalCluster, read_job, scan_ballista
from ballista_py.agents.agent import Agent
from ballista_py.agents.partition_search import PartitionSearch
from ballista_py.errors import BallistaError, ConfigError, SnapshotGone, SqlError, Unauthenticated, Unsupported
from ballista_py.node.executor.part_server import BUSY_TASKS, PROCESSED_OF_CLIENT
from ballista_py.runtime import SystemRuntime
from ballista_py.state.stores.store import open_store
from ballista_py.storage.reads.leases import ReadLeases
from ballista_py.transport.table_read.messages import pb
from ballista_py.transport.table_read.partition_reader import PartExchange

pytestmark = pytest.mark.cluster

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64()), ("word", pa.string())])
ADA, BOB = "ada-0123456789abcdef", "bob-0123456789abcdef"


def rows_of(start: int, stop: int) -> pa.Table:
    values = range(start, stop)
    return pa.table({"id": values, "v": [n % 10 for n in values], "word": [f"w{n % 7}" for n in values]}, SCHEMA)


def url_of(cluster) -> str:
    return "ballista://" + ",".join(cluster.addresses())


@pytest.fixture(scope="module")
def shared():
    with LocalCluster(schedulers=2, executors=2, ttl_ms=3_000) as cluster:
        yield cluster


@pytest.fixture
def table(shared, request):
    name = f"t{abs(hash(request.node.name)) % 1_000_000}"
    shared.create_table(name, schema=SCHEMA, partition_by=["bucket(6, id)"], primary_key=["id"])
    shared.ingest(name, rows_of(0, 60_000))
    return name


def test_all_partitions_show_one_instant_whatever_is_changed_meanwhile(shared, table):
    before = shared.sql(f"select * from {table}").sort_by("id")
    with read_job(url_of(shared), table=table, target_bytes=10_000) as job:
        assert len(job.partitions) > 2
        first = job.partitions[0].to_table()
        shared.sql(f"update {table} set v = v + 100 where id % 2 = 0")
        shared.sql(f"delete from {table} where id % 5 = 0")
        for start in range(60_000, 70_000, 500):  # small files, which owners merge
            shared.ingest(table, rows_of(start, start + 500))
        shared.sql(f"update {table} set word = 'x'")
        rest = [partition.to_table() for partition in job.partitions[1:]]
        assert pa.concat_tables([first, *rest]).sort_by("id").equals(before)
        assert job.read().sort_by("id").equals(before)  # and again
        shared.sql(f"drop table {table}")
        assert job.read().sort_by("id").equals(before)
    shared.sql(f"create table {table} (id bigint not null) partitioned by (bucket(2, id))")  # another one
    with pytest.raises(SnapshotGone, match="closed or not renewed in time"):
        job.partitions[0].to_table()


def test_an_atomic_statement_is_in_all_partitions_or_in_none(shared, table):
    """Sums over two halves that move in opposite directions, by one statement each: every job sees 0."""
    shared.sql(f"update {table} set v = 0")
    over, wrong = threading.Event(), []

    def write() -> None:
        while not over.is_set():
            shared.sql(f"update {table} set v = v + case when id < 30000 then 1 else -1 end")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(6):
            with read_job(url_of(shared), f"select sum(v) as s from {table}", consistency="decided") as job:
                found = job.read().to_pylist()
                wrong += [] if found == [{"s": 0}] else [found]
    finally:
        over.set()
        writer.join()
    assert wrong == []


STATEMENTS = [
    "select * from {t} where v > 7 and word <> 'w3'",
    "select word, count(*) as n, sum(v) as s, avg(id) as a from {t} group by word",
    "select count(*) as n from {t}",
    "select count(distinct word) as n, min(id) as low, max(word) as high from {t} where v = 3",
    "select id, count(*) as n from {t} group by id having count(*) > 0 order by id desc limit 5",
    "select v, word, row_number() over (partition by word order by id) as r from {t} where id < 50",
    "select id from {t} where id = 17",
    "select id from {t} where v = (select max(v) from {t}) order by id limit 3",
    "select a.id from {t} a join {t} b on a.id = b.id + 1 where a.id < 20",
    "select id + 1 as n, upper(word) as w from {t} where false",
]


ENCODINGS = [None, (), ("parquet", "arrow"), ("arrow+zstd",), ("vortex",)]


@pytest.mark.parametrize(("process", "encodings"), [(True, ENCODINGS[2]), *((False, one) for one in ENCODINGS)])
@pytest.mark.parametrize("statement", STATEMENTS)
def test_the_answer_is_that_of_the_statement_whoever_processes(shared, statement, process, encodings):
    name = "asked"
    if name not in [row["table"] for row in shared.tables()]:
        shared.create_table(name, schema=SCHEMA, partition_by=["bucket(6, id)"])
        shared.ingest(name, rows_of(0, 5_000))
        shared.sql(f"delete from {name} where id % 11 = 0")
    text = statement.format(t=name)
    wanted = shared.sql(text)
    with read_job(url_of(shared), text, target_bytes=20_000, encodings=encodings) as job:
        assert job.schema.equals(wanted.schema)
        rows = [batch for partition in job.partitions for batch in partition.batches(process=process)]
        found = job.finish(pa.Table.from_batches(rows, schema=job.given))
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, wanted.to_pylist()))


def test_values_of_every_type_come_as_they_are(shared):
    zone, pair = timezone(timedelta(hours=2)), pa.struct([("a", pa.int32()), ("b", pa.string())])
    rows = pa.table(
        {
            "id": pa.array(range(4), pa.int64()),
            "small": pa.array([-128, None, 0, 127], pa.int8()),
            "wide": pa.array([0, None, 1, (1 << 64) - 1], pa.uint64()),
            "real": pa.array([float("nan"), None, -0.0, 1e300], pa.float64()),
            "money": pa.array([Decimal("1.50"), None, Decimal("-0.01"), Decimal("99999.99")], pa.decimal128(7, 2)),
            "day": pa.array([date(1970, 1, 1), None, date(1, 1, 1), date(9999, 12, 31)], pa.date32()),
            "at": pa.array([datetime(2020, 1, 1, tzinfo=zone), None, None, None], pa.timestamp("us", "UTC")),
            "local": pa.array([datetime(2020, 1, 1), None, datetime(1900, 1, 1), None], pa.timestamp("us")),
            "text": ["", None, "it's \U0001f600 \u0000 odd", "x" * 70_000],
            "bytes": pa.array([b"", None, b"\x00\xff", b"y"], pa.binary()),
            "yes": [True, None, False, True],
            "many": pa.array([[1, None], None, [], [3]], pa.list_(pa.int32())),
            "both": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": None}, {"a": 2, "b": ""}], pair),
        }
    )  # fmt: skip
    shared.create_table("kinds", schema=rows.schema, partition_by=["bucket(2, id)"])
    shared.ingest("kinds", rows)
    wanted = shared.sql("select * from kinds")
    for process, encodings in ((True, None), (True, ["parquet"]), (False, ()), (False, ["arrow+lz4"])):
        with read_job(url_of(shared), table="kinds", encodings=encodings) as job:
            found = pa.Table.from_batches(
                [batch for part in job.partitions for batch in part.batches(process=process)], schema=job.schema
            )
            assert found.schema.equals(wanted.schema)
            assert list(map(repr, found.sort_by("id").to_pylist())) == list(
                map(repr, wanted.sort_by("id").to_pylist())
            )


def test_files_come_as_they_lie_on_disk_in_fewer_bytes_and_rows_that_are_gone_are_not_of_them(shared, monkeypatch):
    sent: list[int] = []

    def noted(exchange):
        for at, batch in chunks(exchange):
            sent.append(batch.nbytes)
            yield at, batch

    chunks = PartExchange.chunks
    monkeypatch.setattr(PartExchange, "chunks", noted)
    shared.create_table("lie", schema=SCHEMA, partition_by=["bucket(2, id)"], primary_key=["id"])
    shared.ingest("lie", rows_of(0, 400_000))
    shared.sql("delete from lie where id in (3, 5, 399999)")  # by a vector, beside the file
    size = {}
    for encodings in ((), ("parquet",), ("arrow+zstd",)):
        sent.clear()
        with read_job(url_of(shared), table="lie", encodings=encodings) as job:
            assert job.partitions[0].passes_rows
            found = job.read()
        assert sorted(found["id"].to_pylist()) == [n for n in range(399_999) if n not in (3, 5)]
        size[encodings] = sum(sent)
    assert size["parquet",] < size[()] / 3
    assert size["arrow+zstd",] < size[()] / 2
    with read_job(url_of(shared), "select word, id from lie", encodings=["parquet"]) as job:
        assert job.read().schema.names == ["word", "id"]
        assert job.partitions[0].passes_rows


PREDICATES = [
    pl.col("v") > 7,
    (pl.col("word") == "w3") & (pl.col("id") < 1_000),
    (pl.col("v") >= 2.5) | pl.col("word").is_null(),
    pl.col("word").str.contains("3") & (pl.col("id") != 10),
    ~(pl.col("v") <= 8),
    pl.col("id").is_in([1, 5, 70_000]),
    pl.col("word").is_not_null() & (pl.col("v") * 2 == pl.col("id")),
]


def test_a_lazy_frame_of_polars_gives_what_one_of_memory_gives(shared, table):
    here = pl.from_arrow(shared.sql(f"select * from {table}")).lazy()
    there = scan_ballista(url_of(shared), table)
    assert there.collect_schema() == here.collect_schema()
    for predicate in PREDICATES:
        wanted, found = here.filter(predicate).sort("id").collect(), there.filter(predicate).sort("id").collect()
        assert found.equals(wanted), predicate
    assert there.filter(pl.col("v") == 3).select("word").head(7).collect().shape == (7, 1)
    assert there.select(pl.len()).collect().item() == 60_000
    counted = there.group_by("word").agg(pl.len(), pl.col("id").sum()).sort("word").collect()
    assert counted.equals(here.group_by("word").agg(pl.len(), pl.col("id").sum()).sort("word").collect())


def test_a_partition_goes_to_another_process_and_is_read_there(shared, table):
    with read_job(url_of(shared), table=table, columns=["id"], filter="id < 100 -- few") as job:
        code = "import pickle, sys; print(pickle.loads(sys.stdin.buffer.read()).to_table().num_rows)"
        run = [sys.executable, "-c", code]
        said = [
            subprocess.run(run, input=pickle.dumps(one), capture_output=True, check=True) for one in job.partitions
        ]
    assert sum(int(one.stdout) for one in said) == 100


def test_a_table_that_was_altered_shows_what_it_was(shared, table):
    with read_job(url_of(shared), table=table, filter="word = 'w1'") as job:
        shared.sql(f"alter table {table} rename column word to text")
        shared.sql(f"alter table {table} add column more bigint default 5")
        shared.sql(f"alter table {table} drop column v")
        assert [(one.name, one.type) for one in job.read().schema] == [(one.name, one.type) for one in SCHEMA]
        assert job.read().num_rows == sum(n % 7 == 1 for n in range(60_000))
    with read_job(url_of(shared), table=table, filter="text = 'w1' and more = 5") as job:
        assert job.read().num_rows == sum(n % 7 == 1 for n in range(60_000))
    shared.ingest(table, shared.sql(f"select id + 60000 as id, text, 6 as more from {table} where id < 100"))
    with read_job(url_of(shared), table=table, encodings=["parquet"]) as job:  # files of before and after
        assert job.read().sort_by("id").equals(shared.sql(f"select * from {table}").sort_by("id"))


def test_a_table_that_was_renamed_is_read_on(shared, table):
    with read_job(url_of(shared), table=table, columns=["v"]) as job:
        shared.sql(f"alter table {table} rename to {table}_other")
        shared.create_table(table, schema=SCHEMA, partition_by=["bucket(6, id)"])
        shared.ingest(table, rows_of(0, 10))
        assert job.read().num_rows == 60_000


def test_what_cannot_be_read_so_is_refused_by_name(shared, table):
    late = f"select id from {table} where id = (select max(id) from {table} where now() > '2020-01-01')"
    for asked, error, said in (
        ({"query": "select 1"}, Unsupported, "reads no table"),
        ({"query": f"delete from {table}"}, SqlError, "."),
        ({"table": "nowhere"}, SqlError, "nowhere"),
        ({"table": table, "columns": ["nothing"]}, SqlError, "nothing"),
        ({"table": table, "filter": "id >"}, SqlError, "."),
        (
            {"table": table, "filter": "true) union select 1, 2, 'x' from (select 1"},
            SqlError,
            "more than a condition",
        ),
        ({"query": late}, Unsupported, "write the moment"),
        ({"table": table, "query": "select 1"}, ConfigError, "one of them"),
        ({"query": f"select * from {table}", "filter": "id > 1"}, ConfigError, "write them into the query"),
        ({"table": table, "lease": 100_000}, ConfigError, "86,400,000 ms"),
        ({"table": table, "lease": -1}, ConfigError, "for how many seconds files are kept, not -1"),
        ({"table": table, "lease": 0}, ConfigError, "not 0"),
        ({"table": table, "lease": float("nan")}, ConfigError, "not nan"),
        ({"table": table, "max_partitions": -1}, ConfigError, "max_partitions is a number from 1 on, not -1"),
        ({"table": table, "target_bytes": 1 << 80}, ConfigError, "target_bytes is a number from 1 on"),
        ({"table": table, "encodings": ["orc"]}, ConfigError, "encodings are a list of arrow.*, not 'orc'"),
        ({"table": table, "encodings": "parquet"}, ConfigError, "not 'parquet'"),
        ({"table": table, "consistency": "none"}, ConfigError, "snapshot or decided, not 'none'"),
    ):
        with pytest.raises(error, match=said):
            read_job(url_of(shared), **asked)


def test_a_small_partition_count_and_an_empty_table(shared):
    shared.create_table("empty", schema=SCHEMA, partition_by=["bucket(6, id)"])
    with read_job(url_of(shared), table="empty") as job:
        assert (job.partitions, job.read().num_rows, job.read().schema.names) == ((), 0, SCHEMA.names)
    with read_job(url_of(shared), "select count(*) as n from empty") as job:
        assert job.read().to_pylist() == [{"n": 0}]
    shared.ingest("empty", rows_of(0, 1_000))
    with read_job(url_of(shared), table="empty", max_partitions=1) as job:
        assert len(job.partitions) == 1
        assert job.read().num_rows == 1_000


def test_nodes_that_die_amid_a_job_lose_none_of_its_rows():
    """Executors are killed while partitions are read, as they are on disk and processed; the scheduler dies, too."""
    chance = random.Random(4)
    options = {"partition-assignment-interval": "500"}
    with LocalCluster(schedulers=2, executors=3, ttl_ms=2_000, node_options=options) as cluster:
        cluster.create_table("t", schema=SCHEMA, partition_by=["bucket(6, id)"])
        for start in range(0, 120_000, 20_000):
            cluster.ingest("t", rows_of(start, start + 20_000))
        with read_job(url_of(cluster), table="t", columns=["id"], target_bytes=20_000) as job:
            found: list[int] = []
            partitions = list(job.partitions)
            for number, partition in enumerate(partitions):
                if number % 4 == 1:
                    node = chance.choice([f"executor-{n}" for n in (1, 2, 3)])
                    cluster.kill(node)
                    cluster.start(node)
                if number == 3:
                    cluster.kill("scheduler-1")
                partition = evolve(partition, encodings=[None, ("parquet",), (), ("arrow+lz4",)][number // 2 % 4])
                process = number % 2 == 0
                found += [n for batch in partition.batches(process=process) for n in batch["id"].to_pylist()]
            assert sorted(found) == list(range(120_000))
            assert job.renew() == job.lease_ms


@pytest.mark.parametrize("encodings", [(), ("parquet",)])
def test_unprocessed_rows_go_on_at_another_executor_where_one_has_died(encodings):
    with LocalCluster(schedulers=1, executors=2, ttl_ms=2_000, node_options={"replicas": "2"}) as cluster:
        cluster.create_table("t", schema=SCHEMA, partition_by=["bucket(1, id)"])
        for start in range(0, 1_200_000, 400_000):
            cluster.ingest("t", rows_of(start, start + 400_000))
        cluster.wait_until_loaded("t")
        with read_job(url_of(cluster), table="t", columns=["id", "word"], encodings=encodings) as job:
            (partition,) = job.partitions
            search = PartitionSearch(partition, SystemRuntime())
            batches = search.unprocessed()
            found = next(batches)["id"].to_pylist()
            serving = urlparse(partition.locations[0]).port
            owner = next(n for n in ("executor-1", "executor-2") if f":{serving}" in cluster.log(n))
            cluster.kill(owner)
            for batch in batches:
                found += batch["id"].to_pylist()
        assert sorted(found) == list(range(1_200_000))


def test_how_busy_executors_are_is_told_with_where_partitions_are(shared, wait_until):
    shared.create_table("busy", schema=SCHEMA, partition_by=["bucket(1, id)"], primary_key=["id"])
    shared.ingest("busy", rows_of(0, 600_000))
    with read_job(url_of(shared), "select id, v + 1 as w, word from busy") as job:
        (partition,) = job.partitions
        agent = Agent(partition._source, SystemRuntime())

        def load():
            (found,) = agent.ask("Locate", pb.Locate(read_id=job.read_id, partitions=[0]), "Located").partitions
            return found.locations[0].hints.load

        wait_until(lambda: load() == 0)
        open_reads = [partition.batches() for _ in range(PROCESSED_OF_CLIENT)]
        for batches in open_reads:
            next(batches)
        share = 100 * PROCESSED_OF_CLIENT // BUSY_TASKS
        wait_until(lambda: load() == share)
        for batches in open_reads:
            batches.close()
        wait_until(lambda: load() == 0)
        agent.close()


@pytest.fixture(scope="module")
def shut(tmp_path_factory):
    tokens = tmp_path_factory.mktemp("tokens") / "tokens"
    tokens.write_text(f"ada {ADA}\nbob {BOB}\n")
    options = {"flight-tokens-file": str(tokens)}
    with LocalCluster(schedulers=1, executors=2, tls=True, token=ADA, node_options=options) as cluster:
        cluster.create_table("t", schema=SCHEMA, partition_by=["bucket(4, id)"])
        cluster.ingest("t", rows_of(0, 1_000))
        yield cluster


def job_of(cluster, token=ADA, **asked):
    return read_job(
        "ballista+tls://" + cluster.addresses()[0], token=token, tls=cluster.tls, **{"table": "t", **asked}
    )


def test_with_certificates_and_tokens_it_is_the_same(shut):
    for process in (True, False):
        with job_of(shut, filter="v = 3") as job:
            rows = [batch for partition in job.partitions for batch in partition.batches(process=process)]
            assert sum(batch.num_rows for batch in rows) == 100
    with pytest.raises(Unauthenticated):
        job_of(shut, token="nobody-0123456789abcdef")
    assert ADA not in repr(job.partitions)


def test_a_job_is_its_clients_alone(shut):
    with job_of(shut) as job, job_of(shut, token=BOB) as other:
        other.read_id = job.read_id
        with pytest.raises(SnapshotGone):
            other.renew()
        stranger = evolve(job.partitions[0], source=other.partitions[0]._source, locations=())
        with pytest.raises(SnapshotGone):
            stranger.to_table()  # it has no place yet, and asks for one
        other.close()
        assert job.renew() == job.lease_ms


def changed(ticket: bytes, **values) -> bytes:
    """The ticket, saying something else."""
    found = json.loads(ticket)
    body = json.loads(b64decode(found["body"]))
    body["read"].update(values)
    return json.dumps({**found, "body": b64encode(json.dumps(body).encode()).decode()}).encode()


def test_a_ticket_is_for_one_part_and_cannot_be_changed(shut):
    with job_of(shut) as job:
        partition = job.partitions[0]
        mine = json.loads(partition.ticket)
        for ticket in (
            changed(partition.ticket, part=1),
            changed(partition.ticket, anywhere=True),
            changed(partition.ticket, client="bob"),
            json.dumps({**mine, "signature": b64encode(b"x" * 70).decode()}).encode(),
            json.dumps({"body": mine["body"]}).encode(),
            json.dumps({**mine, "more": 1}).encode(),
            b"{}",
        ):
            with pytest.raises(Unauthenticated):
                evolve(partition, ticket=ticket).to_table()
        with pytest.raises(BallistaError):
            evolve(partition, ticket=b"none at all").to_table()
        assert partition.to_table().num_rows > 0


def test_the_lease_is_on_the_store_and_goes_with_the_job(shared, table, tmp_path):
    with read_job(url_of(shared), table=table) as job:
        leases = ReadLeases(open_store(shared.state_location), SystemRuntime())
        lease = leases.read(job.read_id)
        named = set(leases.files(job.read_id, lease.digest).paths())
        assert sum(one.rows for one in job.partitions) == 60_000
        assert all(path.startswith("snapshots/") for path in named)
    with pytest.raises(SnapshotGone):
        leases.read(job.read_id)
