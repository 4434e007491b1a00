"""A table server gives the rows of plain files as they were when a job began, or an error; to those who may."""

from __future__ import annotations

import base64
import json
import pickle
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from decimal import Decimal

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from attrs import evolve
from tests.cluster.table_servers import INSECURE, client, s3_server, serving

from ballista_py import connect, read_job, scan_ballista
from ballista_py.agents import partition_search
from ballista_py.agents.agent import Agent, ReadSource
from ballista_py.agents.partition_search import PartitionSearch
from ballista_py.errors import (
    BallistaError,
    ConfigError,
    MissingExtra,
    SchemaMismatch,
    SnapshotGone,
    SqlError,
    TransportError,
    TryLater,
    Unauthenticated,
    Unsupported,
)
from ballista_py.runtime import SystemRuntime
from ballista_py.secret import Secret
from ballista_py.transport.security.certificates import CertificateFolder
from ballista_py.transport.security.credentials import Tls
from ballista_py.transport.table_read.messages import pb

pytestmark = pytest.mark.cluster

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64()), ("word", pa.string())])
TOKEN, BOB = "ada-0123456789abcdef", "bob-0123456789abcdef"


def rows_of(start: int, stop: int) -> pa.Table:
    values = range(start, stop)
    return pa.table(
        {"id": values, "v": [n % 10 if n % 11 else None for n in values], "word": [f"w{n % 7}" for n in values]},
        SCHEMA,
    )


def fill(folder) -> pa.Table:
    """Six files of `t`, one of them without rows, and `small`; all rows of `t`."""
    (folder / "t" / "deep").mkdir(parents=True)
    for number in range(5):
        where = folder / "t" / ("deep" if number == 3 else "") / f"part-{number}.parquet"
        pq.write_table(rows_of(number * 1_000, (number + 1) * 1_000), where, row_group_size=300)
    pq.write_table(rows_of(0, 0), folder / "t" / "none.parquet")
    pq.write_table(pa.table({"a": [1, None, 3]}), folder / "small.parquet")
    (folder / "t" / "_SUCCESS").write_text("")
    time.sleep(0.06)
    return rows_of(0, 5_000)


@pytest.fixture
def folder(tmp_path):
    fill(tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def server(folder):
    with serving(folder) as made:
        yield made


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    fill(folder)
    with serving(folder) as made:
        yield made


def test_tables_are_read_whole_in_parts_by_whoever_has_one(shared):
    assert shared.said["tables"] == ["small", "t"]
    with read_job(shared.url, table="t", target_bytes=4_000) as job:
        assert len(job.partitions) > 5
        assert job.remainder is None
        assert sum(partition.rows for partition in job.partitions) == 5_000
        assert job.read().sort_by("id").equals(rows_of(0, 5_000))
        code = "import pickle, sys; print(pickle.load(sys.stdin.buffer).to_table().num_rows)"
        given = pickle.dumps(job.partitions[0])
        found = subprocess.run([sys.executable, "-c", code], input=given, capture_output=True, check=True)
        assert int(found.stdout) == job.partitions[0].rows
    with read_job(shared.url, table="small", max_partitions=1) as job:
        assert job.read().to_pydict() == {"a": [1, None, 3]}


STATEMENTS = [
    "select * from t where v > 7 and word <> 'w3'",
    "select id, id + 1 as n, upper(word) as w from t where id between 990 and 1010",
    "select word, count(*) as n, sum(v) as s, avg(id) as a from t group by word",
    "select count(*) as n from t",
    "select count(distinct word) as n, min(id) as low from t where v = 3",
    "select id from t order by id desc limit 5",
    "select id, row_number() over (partition by word order by id) as r from t where id < 50",
    "select a.id from t a join t b on a.id = b.id + 1 where a.id < 20",
    "select id from t where v = (select max(v) from t) and id < 99",
    "with x as (select id, v from t where v is null) select * from x where id < 200",
    "select word, id from t",
    "select id as word, word as id from t where id < 9",
    "select distinct v from t",
    "select id from t where false",
]


@pytest.mark.parametrize("process", [True, False])
@pytest.mark.parametrize("statement", STATEMENTS)
def test_the_answer_is_that_of_the_statement(shared, statement, process):
    import duckdb

    with duckdb.connect() as engine:
        t = rows_of(0, 5_000)  # noqa: F841  # found by its name
        wanted = engine.sql(statement).to_arrow_table()
    with read_job(shared.url, statement, target_bytes=4_000) as job:
        rows = [batch for partition in job.partitions for batch in partition.batches(process=process)]
        found = job.finish(pa.Table.from_batches(rows, schema=job.given))
        assert job.schema.names == wanted.schema.names
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, wanted.to_pylist()))


def test_plans_of_others_are_taken_and_finished_by_them(shared):
    import datafusion
    from datafusion import substrait

    engine = datafusion.SessionContext()
    engine.register_record_batches("t", [rows_of(0, 5_000).to_batches()])
    statement = "select word, count(*) as n, sum(v) as s from t where id > 100 group by word"
    plan = substrait.Producer.to_substrait_plan(engine.sql(statement).logical_plan(), engine).encode()
    with read_job(shared.url, plan, target_bytes=4_000) as job:
        assert job.substrait
        rows = pa.Table.from_batches(list(job.rows()), schema=job.given)
        other = datafusion.SessionContext()
        other.register_record_batches(job.relation, [rows.to_batches()])
        left = substrait.Consumer.from_substrait_plan(other, substrait.Serde.deserialize_bytes(job.substrait))
        found = pa.Table.from_batches(other.create_dataframe_from_logical_plan(left).collect())
    wanted = pa.Table.from_batches(engine.sql(statement).collect())
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, wanted.to_pylist()))


def test_polars_reads_what_it_needs(shared):
    frame = scan_ballista(shared.url, "t")
    found = frame.filter(pl.col("id") < 10).select("word", "id").collect().sort("id")
    assert found.equals(pl.from_arrow(rows_of(0, 10).select(["word", "id"])))
    assert frame.head(7).collect().height == 7


def test_what_is_no_table_says_why_and_others_are_read_on(folder):
    (folder / "lake" / "_delta_log").mkdir(parents=True)
    (folder / "lake" / "_delta_log" / "0.json").write_text("{}")
    (folder / "hive" / "day=1").mkdir(parents=True)
    pq.write_table(rows_of(0, 1), folder / "hive" / "day=1" / "a.parquet")
    (folder / "broken.parquet").write_bytes(b"no parquet")
    (folder / "mixed").mkdir()
    pq.write_table(rows_of(0, 1), folder / "mixed" / "a.parquet")
    pq.write_table(pa.table({"id": ["x"], "v": [1], "word": ["y"]}), folder / "mixed" / "b.parquet")
    with serving(folder) as server:
        assert server.said["tables"] == ["mixed", "small", "t"]
        assert "Delta" in server.said["refused"]["lake"]
        for name, said in (("lake", "Delta"), ("hive", "value of a column")):
            with pytest.raises(Unsupported, match=f"table '{name}' cannot be read: .*{said}"):
                read_job(server.url, table=name)
        with pytest.raises(BallistaError, match=r"table 'broken' cannot be read: .*is damaged"):
            read_job(server.url, table="broken")
        with pytest.raises(SchemaMismatch, match=r"mixed/b.parquet.*its column 'id' is string"):
            read_job(server.url, table="mixed")
        with pytest.raises(SqlError, match="missing"):
            read_job(server.url, table="missing")
        with read_job(server.url, "select count(*) as n from t") as job:
            assert job.read()["n"].to_pylist() == [5_000]


def test_values_of_every_type_and_tables_without_rows_come_as_they_are(tmp_path):
    pair = pa.struct([("a", pa.int32()), ("b", pa.string())])
    rows = pa.table(
        {
            "small": pa.array([-128, None, 127], pa.int8()),
            "wide": pa.array([0, None, (1 << 64) - 1], pa.uint64()),
            "real": pa.array([float("nan"), None, -0.0], pa.float64()),
            "money": pa.array([Decimal("1.50"), None, Decimal("99999.99")], pa.decimal128(7, 2)),
            "day": pa.array([date(1, 1, 1), None, date(9999, 12, 31)], pa.date32()),
            "at": pa.array([0, None, 1], pa.timestamp("us", "UTC")),
            "fine": pa.array([1, None, 3], pa.timestamp("ns")),
            "bytes": pa.array([b"\xff", None, b""]),
            "many": pa.array([[1, None], None, []], pa.list_(pa.int64())),
            "both": pa.array([(1, "x"), None, (2, None)], pair),
            "map": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())),
            "coded": pa.array(["a", None, "a"]).dictionary_encode(),
            "large": pa.array(["x", None, ""], pa.large_string()),
            'odd "name': pa.array([1, 2, 3]),
        }
    )
    pq.write_table(rows, tmp_path / "größe 1.parquet")
    pq.write_table(rows.slice(0, 0), tmp_path / "empty.parquet")
    time.sleep(0.06)
    with serving(tmp_path) as server:
        for query in (None, 'select * from "größe 1" where "odd ""name" > 0'):
            with read_job(server.url, query, table=None if query else "größe 1") as job:
                assert list(map(repr, job.read().to_pylist())) == list(map(repr, rows.to_pylist()))
        with read_job(server.url, table="empty") as job:
            assert job.read().num_rows == 0
            assert job.schema.names == rows.column_names
        with read_job(server.url, "select count(*) as n from empty") as job:
            assert job.read().to_pylist() == [{"n": 0}]


def test_many_clients_at_once_and_a_folder_that_grows_meanwhile(server, folder):
    def read(number: int) -> bool:
        if number % 4 == 0:
            pq.write_table(rows_of(0, 10), folder / f"more{number}.parquet")
        time.sleep(0.1)
        with read_job(server.url, table="t", target_bytes=4_000, consistency="decided") as job:
            return job.read().sort_by("id").equals(rows_of(0, 5_000))

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(read, range(24)))


def test_a_job_shows_the_files_of_its_beginning_or_is_gone(server, folder):
    with read_job(server.url, table="t", target_bytes=1) as job, read_job(server.url, table="t") as other:
        pq.write_table(rows_of(5_000, 5_100), folder / "t" / "part-9.parquet")
        assert job.read().num_rows == 5_000  # what came since is not in it
        (folder / "t" / "part-1.parquet").unlink()
        pq.write_table(rows_of(9_000, 9_500), folder / "t" / "new.tmp")
        (folder / "t" / "new.tmp").rename(folder / "t" / "part-2.parquet")
        lost = 0
        for partition in job.partitions:
            try:
                assert set(partition.to_table()["id"].to_pylist()) <= {*range(1_000), *range(3_000, 5_000)}
            except SnapshotGone:
                lost += partition.rows
        assert lost == 2_000
        with pytest.raises(SnapshotGone, match="was changed or removed"):
            other.read()
    with read_job(server.url, table="t") as job:
        assert sorted(job.read()["id"].to_pylist()) == [
            *range(1_000), *range(3_000, 5_100), *range(9_000, 9_500)
        ]  # fmt: skip


def test_a_table_that_comes_later_is_there_and_one_that_went_is_not(server, folder):
    pq.write_table(rows_of(0, 3), folder / "later.parquet")
    time.sleep(0.06)
    with read_job(server.url, table="later") as job:
        assert job.read().num_rows == 3
    (folder / "later.parquet").unlink()
    with pytest.raises(SqlError):
        read_job(server.url, table="later")


def test_after_its_end_a_job_is_gone(shared):
    job = read_job(shared.url, table="t")
    kept = job.partitions[0]
    assert kept.renew() == job.lease_ms
    job.close()
    for ask in (kept.to_table, kept.renew):
        with pytest.raises(SnapshotGone, match="closed or not renewed"):
            ask()
    short = read_job(shared.url, table="t", lease=0.3)
    time.sleep(0.4)
    with pytest.raises(SnapshotGone):
        short.partitions[0].to_table()


def test_the_client_does_what_it_asks_for_and_says_what_it_lacks(shared, monkeypatch):
    monkeypatch.setattr(partition_search, "_has_engine", lambda: False)
    with read_job(shared.url, table="t", columns=["word", "id"]) as job:
        assert job.partitions[0].never_processed
        assert job.read().num_rows == 5_000  # columns alone need nobody
    with read_job(shared.url, table="t", filter="id < 3") as job, pytest.raises(MissingExtra, match="duckdb"):
        job.read()


def test_statements_and_made_up_requests_are_refused(shared):
    with pytest.raises(BallistaError), connect(shared.url) as asked:
        asked.sql("select 1")
    with pytest.raises(Unsupported):
        read_job(shared.url, "select * from t join small on t.id = small.a")
    with pytest.raises(BallistaError, match="IN which values"):
        read_job(shared.url, "pivot t on word using count(*)")
    with pytest.raises(BallistaError):
        read_job(shared.url, "select * from read_parquet('/etc/passwd')")
    with pytest.raises(BallistaError):
        read_job(shared.url, "drop table t")
    with pytest.raises(ConfigError, match="at most"):
        read_job(shared.url, table="t", lease=1e6)
    agent = Agent(ReadSource(url=shared.url), SystemRuntime())
    for plan in (pb.Plan(place=pb.Place(table="t")), pb.Plan(between=pb.Between())):
        with pytest.raises(Unsupported, match="no history"):
            agent.ask("Plan", plan, "Slices")
    agent.close()


def forged(partition, change):
    ticket = json.loads(partition.ticket)
    body = json.loads(base64.b64decode(ticket["body"]))
    change(body["plain"])
    ticket["body"] = base64.b64encode(json.dumps(body).encode()).decode()
    return evolve(partition, ticket=json.dumps(ticket).encode())


@pytest.mark.parametrize(
    "change",
    [
        lambda plain: plain.update(columns=["id", "v", "word"]),
        lambda plain: plain["pieces"].append(["../secret.parquet", 1, "1", 0, 1]),
        lambda plain: plain.update(client="bob"),
        lambda plain: plain.update(read_id="another.1"),
    ],
)
def test_a_ticket_counts_as_it_was_given_and_nowhere_else(shared, folder, change):
    with read_job(shared.url, table="t", columns=["id"]) as job:
        with pytest.raises(Unauthenticated):
            forged(job.partitions[0], change).to_table()
        with serving(folder) as other, read_job(other.url, table="t", columns=["id"]) as its:
            wrong = evolve(its.partitions[0], ticket=job.partitions[0].ticket)
            with pytest.raises(Unauthenticated):  # it has a secret of its own
                list(PartitionSearch(wrong, SystemRuntime()).unprocessed())


@pytest.mark.parametrize(
    "ticket", [b"", b"{}", b"[" * 1_000, b"\xff" * 100, b'{"body":"e30=","signature":"x"}', b"x" * 1_000_000]
)
def test_bytes_that_are_no_ticket_end_the_call_and_nothing_else(shared, ticket):
    with read_job(shared.url, table="t") as job:
        with pytest.raises(BallistaError):
            evolve(job.partitions[0], ticket=ticket).to_table()
        assert job.read().num_rows == 5_000


def test_readers_that_give_up_leave_their_places_to_others(shared):
    with read_job(shared.url, table="t") as job:
        for _ in range(100):
            rows = job.partitions[0].batches(process=False)
            next(rows)
            rows.close()
        assert job.read().num_rows == 5_000


def test_with_tokens_only_clients_begin_jobs_and_tickets_need_none(folder, tmp_path):
    tokens, secret = tmp_path / "tokens", tmp_path / "secret"
    tokens.write_text(f"ada {TOKEN}\nbob {BOB}\n")
    secret.write_text("s" * 40)
    words = ("--tokens-file", str(tokens), "--secret-file", str(secret), INSECURE)
    with serving(folder, *words) as server:
        for token in (None, "nobody-0123456789abcdef"):
            with pytest.raises(Unauthenticated):
                read_job(server.url, table="t", token=token)
        with read_job(server.url, table="t", token=TOKEN) as job:
            assert job.read().num_rows == 5_000
            own = job.partitions[0]._source
            with pytest.raises(SnapshotGone):  # it is another's
                evolve(job.partitions[0], source=evolve(own, token=Secret(BOB))).renew()
            with pytest.raises(Unauthenticated):
                evolve(job.partitions[0], source=evolve(own, token=None)).renew()


def test_over_tls_it_proves_who_it_is(folder, tmp_path):
    made = CertificateFolder(tmp_path / "tls", SystemRuntime())
    made.init()
    made.add("files", "scheduler", ["127.0.0.1", "localhost"])
    tls = made.tls("files")
    words = ("--tls-certificate-file", tls.certificate_file, "--tls-key-file", tls.key_file)
    with serving(folder, *words) as server:
        assert server.url.startswith("ballista+tls://")
        with read_job(server.url, table="t", tls=Tls(ca_file=tls.ca_file)) as job:
            assert job.read().num_rows == 5_000
        with pytest.raises(TransportError):
            read_job(server.url, table="t")


def test_others_with_the_secret_go_on_where_one_dies(folder, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("s" * 40)
    words = ("--secret-file", str(secret), INSECURE)
    with (
        serving(folder, *words) as second,
        serving(folder, "--also", second.url.removeprefix("ballista://"), *words) as first,
        read_job(first.url, table="t", target_bytes=4_000) as job,
    ):
        asked = {partition.locations[0] for partition in job.partitions}
        assert len(asked) == 2  # not all ask the same
        begun = job.partitions[0].batches(process=False)
        rows = [next(begun)]
        first.kill()
        rows += list(begun)
        assert sum(batch.num_rows for batch in rows) == job.partitions[0].rows
        found = [pa.Table.from_batches(rows), *(partition.to_table() for partition in job.partitions[1:])]
        assert pa.concat_tables(found).sort_by("id").equals(rows_of(0, 5_000))


def test_a_server_that_is_started_again_knows_its_tickets_and_no_jobs(folder, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("s" * 40)
    words = ("--secret-file", str(secret), INSECURE)
    with serving(folder, *words) as first:
        job = read_job(first.url, table="t", target_bytes=4_000)
        first.kill()
        address = first.url.removeprefix("ballista://")
    with serving(folder, *words, listen=address):
        tables = [partition.to_table() for partition in job.partitions]
        assert pa.concat_tables(tables).sort_by("id").equals(rows_of(0, 5_000))
        with pytest.raises(SnapshotGone):
            job.renew()
    job.close()


def test_it_stops_when_it_is_told_to(server):
    with read_job(server.url, table="t") as job:
        assert job.read().num_rows == 5_000
        assert server.stop() == 0


def test_files_of_a_bucket_are_read_in_the_same_way():
    with s3_server("lake") as url:
        asked = client(url)

        def put(key: str, rows: pa.Table) -> None:
            sink = pa.BufferOutputStream()
            pq.write_table(rows, sink, row_group_size=300)
            asked.put_object(Bucket="lake", Key=key, Body=sink.getvalue().to_pybytes())

        for number in range(3):
            put(f"data/t/part-{number}.parquet", rows_of(number * 1_000, (number + 1) * 1_000))
        put("elsewhere/x.parquet", rows_of(0, 1))
        words = ("--option", f"endpoint_url={url}", "--option", "key=key", "--option", "secret=secret")
        with serving("s3://lake/data/", *words, "--option", "region=us-east-1", INSECURE) as server:
            assert server.said["tables"] == ["t"]
            with read_job(server.url, table="t", target_bytes=3_000) as job:
                assert job.read().sort_by("id").equals(rows_of(0, 3_000))
                put("data/t/part-1.parquet", rows_of(7_000, 8_000))
                asked.delete_object(Bucket="lake", Key="data/t/part-2.parquet")
                gone = 0
                for partition in job.partitions:
                    try:
                        assert set(partition.to_table()["id"].to_pylist()) <= set(range(1_000))
                    except SnapshotGone:
                        gone += 1
                assert gone >= 2
            with read_job(server.url, "select count(*) as n, min(id) as low from t where id > 10") as job:
                assert job.read().to_pylist() == [{"n": 1_989, "low": 11}]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("{folder}",), "--tls-certificate-file: missing"),
        (("{folder}/none", INSECURE), "there is no folder"),
        (("gs://bucket/x", INSECURE), "absolute path"),
        (("{folder}", INSECURE, "--also", "127.0.0.1:1"), "--secret-file"),
        (("{folder}", INSECURE, "--listen", "nowhere"), "is not an address"),
        (("{folder}", INSECURE, "--tls-key-file", "x"), "a key its certificate"),
        (("{folder}", INSECURE, "--secret-file", "{folder}/none"), "cannot be read"),
        (("{folder}", INSECURE, "--tokens-file", "{folder}/none"), "none"),
        (("{folder}", INSECURE, "--option", "x=1"), "takes no store option"),
        (("{folder}", INSECURE, "--memory-limit", "much"), "no amount of memory"),
    ],
)
def test_what_cannot_be_is_one_line_and_exit_code_1(folder, words, said):
    command = [sys.executable, "-m", "ballista_py.node", "table-server", *words, "--listen", "127.0.0.1:0"]
    if "--listen" in words:
        command = command[:-2]
    told = [word.format(folder=folder) for word in command]
    found = subprocess.run(told, capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode == 1
    assert said in " ".join(found.stderr.split())
    assert "Traceback" not in found.stderr


def test_a_table_that_never_stands_still_is_told(server, folder):
    import threading

    over = threading.Event()

    def write() -> None:
        number = 0
        while not over.is_set():
            number += 1
            pq.write_table(rows_of(0, 10), folder / "t" / f"more-{number % 50}.parquet")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with pytest.raises(TryLater):
            read_job(server.url, table="t")
    finally:
        over.set()
        writer.join()
    time.sleep(0.06)
    with read_job(server.url, table="t") as job:
        assert job.read().num_rows >= 5_000
