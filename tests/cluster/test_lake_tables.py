"""Tables that are scanned where they lie, on real processes: declared, asked, travelled in; under kills and changes."""

import os
import re
import shutil
import signal
import threading
import time
from contextlib import suppress

import deltalake
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ballista_py import LocalCluster, connect, read_job, write_job
from ballista_py.engines.same_answer import difference
from ballista_py.errors import BallistaError, ConfigError, SnapshotGone, SourceError, SqlError
from ballista_py.node.demo.tpch_data import TABLES
from ballista_py.node.demo.tpch_queries import QUERIES

pytestmark = pytest.mark.cluster
ROWS = 40_000
FILES = 10


def rows(start, end):
    ids = range(start, end)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "kind": [f"k{i % 7}" for i in ids],
            "fare": pa.array([(i * 37 % 1000) / 4 for i in ids], pa.float64()),
        }
    )


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    return tmp_path_factory.mktemp("lake")


@pytest.fixture(scope="module")
def trips(lake):
    folder = lake / "trips"
    folder.mkdir()
    for number in range(FILES):
        share = ROWS // FILES
        pq.write_table(
            rows(number * share, (number + 1) * share), folder / f"p{number}.parquet", row_group_size=1_000
        )
    return folder


@pytest.fixture(scope="module")
def cluster(lake):
    options = {"lake-locations": str(lake), "lake-task-bytes": "30000"}
    with LocalCluster(schedulers=2, executors=3, node_options=options, ttl_ms=3_000) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def client(cluster, trips):
    cluster.create_table("trips", scan={"format": "parquet", "path": str(trips)})
    with cluster.client() as client:
        yield client


@pytest.fixture
def delta(lake, client):
    """Four versions: three appends of a hundred rows each, and a delete of ten."""
    folder = lake / "delta"
    shutil.rmtree(folder, ignore_errors=True)
    for number in range(3):
        deltalake.write_deltalake(str(folder), rows(number * 100, number * 100 + 100), mode="append")
    deltalake.DeltaTable(str(folder)).delete("id < 10")
    client.sql("drop table if exists d")
    client.create_table("d", scan={"format": "delta", "path": str(folder)})
    return folder


def answer(client, sql):
    return client.sql(sql).to_pylist()


SPREAD = "select kind, count(*) as n, sum(id) as s, max(fare) as m from trips group by kind order by kind"


def test_a_scan_is_spread_over_executors_and_answers_as_one_node(client, trips):
    expected = duckdb.sql(SPREAD.replace("trips", f"read_parquet('{trips}/*.parquet')")).to_arrow_table()
    assert difference(client.sql(SPREAD), expected) is None
    text = client.explain(SPREAD)["text"]
    assert [f"executor-{n}: " in text for n in (1, 2, 3)] == [True] * 3
    assert f"{FILES} of {FILES} files are read" in text


def test_files_that_cannot_hold_rows_are_not_read_and_explain_says_so(client):
    share = ROWS // FILES
    asked = f"select sum(fare) as s from trips where id between {share} and {share + 10}"
    text = client.explain(asked)["text"]
    assert f"1 of {FILES} files are read" in text
    assert "read by the scheduler itself" in text
    assert answer(client, asked) == [{"s": sum((i * 37 % 1000) / 4 for i in range(share, share + 11))}]
    assert answer(client, "select count(*) as n from trips where id < 0") == [{"n": 0}]


def test_tasks_are_read_beside_what_executors_own_and_broadcast(client):
    client.sql("create or replace table kinds (kind varchar, name varchar)")
    client.sql("insert into kinds values ('k1', 'one'), ('k2', 'two')")
    client.sql("create or replace table own (id bigint, note varchar) partitioned by (bucket(4, id))")
    client.sql("insert into own select id, 'n' || id from trips where id % 1000 = 3")
    joined = "select name, count(*) as n from trips join kinds using (kind) group by name order by name"
    assert answer(client, joined) == [{"name": "one", "n": 5715}, {"name": "two", "n": 5714}]
    assert answer(client, "select count(*) as n, max(note) as m from trips join own using (id)") == [
        {"n": 40, "m": "n9003"}
    ]
    assert answer(
        client, "select count(*) as n from own where id not in (select id from trips where kind = 'k3')"
    ) == [{"n": 40 - sum(1 for i in range(3, ROWS, 1000) if i % 7 == 3)}]
    assert answer(client, "select count(*) as n from trips a, trips b where a.id = b.id + 1")[0]["n"] == ROWS - 1


NOT_DONE = [
    "insert into trips values (1, 'a', 2)",
    "insert into trips select * from trips",
    "update trips set fare = 1",
    "delete from trips where id = 1",
    "truncate trips",
    "merge into trips using (select 1 as id) s on s.id = trips.id when matched then delete",
    "alter table trips add column c int",
    "alter table trips rename to other",
    "create table other like trips",
    "create table trips (a int)",
    "create view trips as select 1 as a",
]


@pytest.mark.parametrize("sql", NOT_DONE)
def test_what_would_change_it_is_refused_by_its_name(client, sql):
    with pytest.raises(BallistaError, match="trips") as refused:
        client.sql(sql)
    assert isinstance(refused.value, SqlError | ConfigError)
    assert answer(client, "select count(*) as n from trips") == [{"n": ROWS}]


def test_rows_are_neither_sent_to_it_nor_read_in_parts(cluster, client):
    for mode in ("append", "replace", "upsert", "create"):
        with pytest.raises(BallistaError, match="trips"):
            client.ingest("trips", rows(0, 1), mode=mode)
    with pytest.raises(BallistaError, match="trips"):
        write_job(f"grpc://{cluster.addresses()[0]}", "trips")
    with pytest.raises(BallistaError, match="trips"):
        read_job(f"grpc://{cluster.addresses()[0]}", "select * from trips")
    with pytest.raises(BallistaError, match="trips"):
        client.refresh("trips")


def test_it_is_among_the_tables_wherever_they_are_listed(client):
    assert {"name": "trips"} in answer(client, "show tables")
    told = answer(
        client, "select table_type, is_insertable_into from information_schema.tables where table_name = 'trips'"
    )
    assert told == [{"table_type": "BASE TABLE", "is_insertable_into": "NO"}]
    assert client.sql("describe trips").column("column_type").to_pylist() == ["BIGINT", "VARCHAR", "DOUBLE"]
    row = next(row for row in client.tables() if row["table"] == "trips")
    assert (row["type"], row["ready"], row["distribution"]) == ("SCANNED", True, "scanned")
    assert client.sql("show create table trips").column(0)[0].as_py().startswith('CREATE EXTERNAL TABLE "trips"')
    names = answer(client, "select table_name from runtime.tables")
    assert {"table_name": "trips"} in names


def test_a_client_names_only_what_schedulers_let_clients_name(client, lake, trips):
    for path in ("/etc", str(lake.parent), f"{lake}/../secret", f"{lake}x"):
        with pytest.raises(ConfigError, match="lake_locations"):
            client.create_table("x", scan={"format": "parquet", "path": path})
    with pytest.raises(SourceError):
        client.create_table("x", scan={"format": "parquet", "path": str(lake / "nothing")})
    client.sql(f"create external table x stored as parquet location '{trips}'")
    client.sql("drop table x")
    assert len(list(trips.iterdir())) == FILES  # the files stay
    with pytest.raises(SqlError, match="does not exist"):
        client.sql("select * from x")


def test_several_versions_are_read_in_one_statement(client, delta):
    asked = (
        "select (select count(*) from d for version as of 0) as a, (select count(*) from d at (version => 2)) as b"
    )
    assert answer(client, f"{asked}, (select count(*) from d) as c") == [{"a": 100, "b": 300, "c": 290}]
    gone = "select count(*) as n from d version as of 2 o where not exists (select 1 from d where d.id = o.id)"
    assert answer(client, gone) == [{"n": 10}]
    client.sql("create or replace view first as select count(*) as n from d for version as of 0")
    assert answer(client, "select * from first") == [{"n": 100}]
    with pytest.raises(SourceError):
        client.sql("select * from d for version as of 77")
    with pytest.raises(SqlError, match="no older snapshot"):
        client.sql("select * from trips for version as of 1")
    with pytest.raises(SqlError, match="'own' is no table of which"):
        client.sql("select * from d, own for version as of 1")


def test_each_statement_sees_the_newest_snapshot_and_its_columns(client, delta):
    assert answer(client, "select count(*) as n from d") == [{"n": 290}]
    more = rows(1_000, 1_005).append_column("extra", pa.array(["x"] * 5))
    deltalake.write_deltalake(str(delta), more, mode="append", schema_mode="merge")
    assert answer(client, "select count(*) as n, count(extra) as e from d") == [{"n": 295, "e": 5}]
    assert client.sql("describe d").column("column_name").to_pylist() == ["id", "kind", "fare", "extra"]


def test_the_other_scheduler_knows_the_table_and_what_was_dropped(cluster, client, delta):
    with connect(f"grpc://{cluster.addresses()[1]}") as other:
        assert answer(other, "select count(*) as n from d") == [{"n": 290}]
        client.sql("drop table d")
        with pytest.raises(SqlError, match="does not exist"):
            other.sql("select count(*) from d")


def test_a_table_that_takes_the_name_is_never_taken_for_the_one_before(client, delta, trips):
    asked = "select count(*) as n from d"
    assert answer(client, asked) == [{"n": 290}]
    client.sql(f"create or replace table d using parquet location '{trips}'")
    assert answer(client, asked) == [{"n": ROWS}]
    client.sql("drop table d")
    client.sql("create table d as select 1 as a")
    assert answer(client, asked) == [{"n": 1}]


def test_every_tpch_query_is_answered_as_by_one_node_over_files_in_place(cluster, client, tpch, duck, lake):
    for table in TABLES:
        folder = lake / "tpch" / table
        folder.mkdir(parents=True)
        whole = pq.read_table(tpch / f"{table}.parquet")
        for number in range(3):
            begin, end = whole.num_rows * number // 3, whole.num_rows * (number + 1) // 3
            pq.write_table(whole.slice(begin, end - begin), folder / f"{number}.parquet", row_group_size=5_000)
        client.create_table(table, scan={"format": "parquet", "path": str(folder)})
    wrong = {}
    for name, sql in QUERIES.items():
        found = difference(client.sql(sql), duck.sql(sql).to_arrow_table())
        if found is not None:
            wrong[name] = found
    assert wrong == {}


def test_a_file_that_goes_under_a_scan_is_an_error_and_the_next_statement_reads_what_is_there(client, lake):
    folder = lake / "vanishing"
    folder.mkdir()
    for number in range(6):
        pq.write_table(rows(number * 5_000, (number + 1) * 5_000), folder / f"p{number}.parquet")
    client.create_table("v", scan={"format": "parquet", "path": str(folder)})
    stream = client.stream("select * from v")
    os.unlink(folder / "p5.parquet")
    pq.write_table(rows(7, 8), folder / "p4.parquet")
    with suppress(SnapshotGone):  # unless it has read all before
        assert sum(batch.num_rows for batch in stream) == 30_000
    assert answer(client, "select count(*) as n from v") == [{"n": 20_001}]


def test_a_compaction_by_another_writer_changes_nothing_under_a_scan(client, lake):
    folder = str(lake / "compacted")
    for number in range(8):
        deltalake.write_deltalake(folder, rows(number * 2_000, (number + 1) * 2_000), mode="append")
    client.create_table("c", scan={"format": "delta", "path": folder})
    stop, failed = threading.Event(), []

    def write():
        while not stop.is_set():
            deltalake.DeltaTable(folder).optimize.compact()
            deltalake.write_deltalake(folder, rows(0, 1), mode="append")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(15):
            found = answer(client, "select count(*) as n, sum(id) as s from c where id > 0")[0]
            if found != {"n": 15_999, "s": sum(range(16_000))}:
                failed.append(found)
    finally:
        stop.set()
        writer.join()
    assert failed == []


@pytest.fixture(scope="module")
def larger(lake):
    """About 130 MB in 16 files."""
    folder = lake / "larger"
    folder.mkdir()
    with duckdb.connect() as one:
        for number in range(16):
            one.sql(
                f"copy (select i as id, random() as a, random() as b, i % 11 as k from range({number * 500_000}, "
                f"{(number + 1) * 500_000}) t(i)) to '{folder}/p{number}.parquet' (format parquet)"
            )
    return folder


LARGER = 16 * 500_000


@pytest.mark.parametrize("sql", ["select k, count(*) as n, sum(id) as s from l group by k", "select id, k from l"])
def test_each_row_is_given_once_when_an_executor_dies_amid_a_scan(larger, sql):
    with LocalCluster(schedulers=1, executors=3, node_options={"lake-task-bytes": "4000000"}) as cluster:
        cluster.create_table("l", scan={"format": "parquet", "path": str(larger)})
        with cluster.client() as client:
            for victim in ("executor-2", "executor-1"):

                def kill(victim=victim):
                    time.sleep(0.2)
                    os.kill(cluster.pid(victim), signal.SIGKILL)

                killer = threading.Thread(target=kill)
                killer.start()
                found = client.sql(sql)
                killer.join()
                if "group by" in sql:
                    assert sum(found["n"].to_pylist()) == LARGER
                    assert sum(found["s"].to_pylist()) == LARGER * (LARGER - 1) // 2
                else:
                    assert len(found) == LARGER
                    assert len(found["id"].unique()) == LARGER
            assert answer(client, "select count(*) as n from l") == [{"n": LARGER}]


BUSY = re.compile(r"^(?:node_tasks_active|node_open_calls)\S* ([1-9]\S*)$", re.MULTILINE)


def test_a_scan_that_is_cancelled_ends_at_executors(larger):
    with LocalCluster(schedulers=1, executors=2, node_options={"lake-task-bytes": "4000000"}) as cluster:
        cluster.create_table("l", scan={"format": "parquet", "path": str(larger)})
        with cluster.client() as client:
            stream = client.stream("select * from l")
            next(iter(stream))
            stream.cancel()
            until = time.monotonic() + 10
            while busy := [n for n in ("executor-1", "executor-2") if BUSY.search(cluster.shown(n, "/metrics"))]:
                assert time.monotonic() < until, busy
                time.sleep(0.2)
            assert answer(client, "select count(*) as n from l") == [{"n": LARGER}]


def test_without_executors_the_scheduler_reads_it_itself(trips):
    with LocalCluster(schedulers=1, executors=0) as cluster:
        cluster.create_table("trips", scan={"format": "parquet", "path": str(trips)})
        with cluster.client() as client:
            assert answer(client, "select count(*) as n, sum(id) as s from trips") == [
                {"n": ROWS, "s": ROWS * (ROWS - 1) // 2}
            ]
            assert "no executor" in client.explain("select count(*) from trips")["text"]


def test_a_job_reads_the_snapshot_of_its_submission_or_its_start(client, delta):
    job = client.submit("select count(*) as n from d")
    assert job.result().to_pylist() == [{"n": 290}]


def test_a_table_whose_place_is_gone_says_so_and_stops_no_other(client, lake):
    folder = lake / "gone"
    folder.mkdir()
    pq.write_table(rows(0, 10), folder / "a.parquet")
    client.create_table("g", scan={"format": "parquet", "path": str(folder)})
    assert answer(client, "select count(*) as n from g") == [{"n": 10}]
    shutil.rmtree(folder)
    with pytest.raises(SourceError):
        client.sql("select * from g")
    assert answer(client, "select count(*) as n from trips") == [{"n": ROWS}]
    assert {"name": "g"} in answer(client, "show tables")
    client.sql("drop table g")


APP = """
version: v1
name: shop
revision: {revision}
datasets:
{datasets}
"""


def test_an_application_file_declares_it_and_drops_it_and_the_files_stay(trips, tmp_path):
    one = f'  - name: trips\n    description: where they lie\n    scan: {{format: parquet, path: "{trips}"}}\n'
    own = "  - name: own\n    columns: [{name: id, type: bigint}]\n    distribution: replicated\n"
    file = tmp_path / "app.yaml"
    file.write_text(APP.format(revision=1, datasets=one + own))
    state = (tmp_path / "state").as_uri()
    with (
        LocalCluster(schedulers=1, executors=1, state_location=state, app=file) as cluster,
        cluster.client() as client,
    ):
        assert answer(client, "select count(*) as n from trips") == [{"n": ROWS}]
    file.write_text(APP.format(revision=2, datasets=own).replace("revision: 2", "revision: 2\nprune: true"))
    with (
        LocalCluster(schedulers=1, executors=1, state_location=state, app=file) as cluster,
        cluster.client() as client,
    ):
        assert answer(client, "show tables") == [{"name": "own"}]
    assert len(list(trips.iterdir())) == FILES


def test_a_table_whose_files_are_gone_takes_nothing_from_others(cluster, lake, client):
    """At a scheduler that never saw its columns, too: it has none there."""
    folder = lake / "gone"
    folder.mkdir()
    pq.write_table(rows(0, 10), folder / "p.parquet")
    client.create_table("gone", scan={"format": "parquet", "path": str(folder)})
    (folder / "p.parquet").unlink()
    try:
        for address in cluster.addresses():
            with connect(f"grpc://{address}") as other:
                sql = "select table_name from information_schema.tables where table_name in ('gone', 'trips')"
                assert sorted(other.sql(sql)["table_name"].to_pylist()) == ["gone", "trips"]
                columns = other.sql(
                    "select column_name from information_schema.columns where table_name = 'trips'"
                )
                assert columns.num_rows == 3
                with pytest.raises(BallistaError, match="gone"):
                    other.sql("select * from gone")
    finally:
        client.sql("drop table gone")
