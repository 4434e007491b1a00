"""A write from many processes is there whole, at one instant and once, or not at all; whoever dies or lies."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from base64 import b64decode, b64encode

import pyarrow as pa
import pytest
from attrs import evolve

from ballista_py import LocalCluster, WriteReceipt, read_job, write_job
from ballista_py.agents import row_sending
from ballista_py.agents import write_job as jobs
from ballista_py.errors import (
    BallistaError,
    ConfigError,
    InvalidData,
    SchemaMismatch,
    SnapshotGone,
    SqlError,
    TransportError,
    Unauthenticated,
)
from ballista_py.runtime import SystemRuntime
from ballista_py.state.stores.store import open_store
from ballista_py.storage.writes.leases import WriteLeases
from ballista_py.transport.flight.client import FlightPool
from ballista_py.transport.table_write.messages import known_of_write

pytestmark = pytest.mark.cluster

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("region", pa.string()), ("v", pa.float64())])
ADA, BOB = "ada-0123456789abcdef", "bob-0123456789abcdef"


def rows_of(start: int, stop: int, region: str | None = None) -> pa.Table:
    values = range(start, stop)
    regions = [region or (None if n % 5 == 0 else f"r{n % 4}") for n in values]
    return pa.table({"id": values, "region": regions, "v": [n / 4 for n in values]}, SCHEMA)


def url_of(cluster) -> str:
    return "ballista://" + ",".join(cluster.addresses())


def ids(cluster, table: str) -> list[int]:
    return sorted(cluster.sql(f"select id from {table}")["id"].to_pylist())


@pytest.fixture(scope="module")
def shared():
    with LocalCluster(schedulers=2, executors=2, ttl_ms=3_000) as cluster:
        yield cluster


@pytest.fixture
def table(shared, request):
    name = f"t{abs(hash(request.node.name)) % 1_000_000}"
    shared.create_table(name, schema=SCHEMA, partition_by=["region"])
    return name


@pytest.mark.parametrize("keys", [["v"], ["bucket(2, id)", "v"], ["v", "region"]])
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_values_that_are_not_equal_to_themselves_are_of_one_partition_whoever_sends_them(shared, keys, mode):
    name = f"odd{len(keys)}{keys[-1][0]}{mode}"
    shared.create_table(name, schema=SCHEMA, partition_by=keys)
    values = [float("nan"), 0.0, -0.0, None, 1.5, float("inf"), float("-inf"), float("nan")]
    for again in range(2):  # values that are new, and that are there
        with write_job(url_of(shared), name, mode=mode) as job:
            sent = [
                pa.table({"id": [n], "region": [None if n % 2 else "x"], "v": [value]}, SCHEMA)
                for n, value in enumerate(values * 2, 100 * again)
            ]
            receipts = [job.write(pa.concat_tables(sent[start::3])) for start in range(3)]
            assert job.commit(receipts) == len(sent)
        there = len(sent) * (again + 1) if mode == "append" else len(sent)
        assert len(ids(shared, name)) == there
        assert shared.sql(f"select count(*) as n from {name} where isnan(v)")["n"][0].as_py() == there // 4


def test_rows_of_all_tasks_are_there_at_once_and_none_before(shared, table):
    with write_job(url_of(shared), table) as job:
        receipts = [job.write(rows_of(n * 100, (n + 1) * 100)) for n in range(5)]
        left_out = job.write(rows_of(10_000, 10_100))  # a twin that nobody names
        assert ids(shared, table) == []
        assert job.commit(receipts) == 500
        assert ids(shared, table) == list(range(500))
        assert left_out is not None
    found = shared.sql(f"select region, count(*) as n from {table} group by region").to_pylist()
    assert {row["region"]: row["n"] for row in found} == {None: 100, "r0": 100, "r1": 100, "r2": 100, "r3": 100}


def test_a_commit_that_is_repeated_says_the_same_whatever_it_names_and_adds_nothing(shared, table):
    with write_job(url_of(shared), table, write_token="load") as job:
        first, other = job.write(rows_of(0, 10)), job.write(rows_of(50, 60))
        assert job.commit([first]) == 10
        assert job.commit([first]) == job.commit([other]) == job.commit([]) == 10
    with write_job(url_of(shared), table, write_token="load") as again:  # the job was started once more
        assert again.is_committed
        assert again.write(rows_of(0, 10)) is None
        assert again.commit([None]) == 10
    assert ids(shared, table) == list(range(10))


def test_of_two_jobs_of_one_token_at_once_one_counts(shared, table):
    made = [write_job(url_of(shared), table, write_token="both") for _ in range(4)]
    receipts = [job.write(rows_of(n * 10, n * 10 + 10)) for n, job in enumerate(made)]
    said = []

    def commit(n: int) -> None:
        said.append(made[n].commit([receipts[n]]))

    threads = [threading.Thread(target=commit, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == [10] * 4
    found = ids(shared, table)
    assert found in [list(range(n * 10, n * 10 + 10)) for n in range(4)]


@pytest.mark.parametrize("message", ["BeginWrite", "CommitWrite"])
def test_a_reply_that_is_lost_is_asked_for_again(shared, table, monkeypatch, message):
    real, lost = FlightPool.call_bytes, []

    def call(self, address, action, body, *args):
        answer = real(self, address, action, body, *args)
        if action.endswith(message) and len(lost) < 3:
            lost.append(address)
            raise TransportError("the link broke", peer=address)
        return answer

    monkeypatch.setattr(FlightPool, "call_bytes", call)
    with write_job(url_of(shared), table) as job:
        assert job.commit([job.write(rows_of(0, 100))]) == 100
    assert len(lost) == 3
    assert ids(shared, table) == list(range(100))


def test_rows_whose_receipt_is_lost_are_put_again_and_count_once(shared, table, monkeypatch):
    """The executor has kept them and is gone before it answers: what it has kept nobody names."""
    real, lost = row_sending.RowSender.finish, []

    def finish(self):
        receipt = real(self)
        if len(lost) < 3:
            lost.append(receipt.sender)
            raise TransportError("the link broke", peer=self.address)
        return receipt

    monkeypatch.setattr(row_sending.RowSender, "finish", finish)
    with write_job(url_of(shared), table) as job:
        receipt = job.write(rows_of(0, 100))
        assert len(lost) == 3
        kept = [e.key for e in open_store(shared.state_location).list(f"writes/{job.write_id}/")]
        assert len(kept) == 4
        assert job.commit([receipt]) == 100
    assert ids(shared, table) == list(range(100))


def test_overwrite_takes_the_place_of_all_rows_at_one_instant(shared, table):
    shared.ingest(table, rows_of(0, 100))
    over, seen = threading.Event(), set()

    def look() -> None:
        while not over.is_set():
            row = shared.sql(f"select count(*) as n, min(id) as low from {table}").to_pylist()[0]
            seen.add((row["n"], row["low"]))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        for start in (1_000, 2_000, 3_000):
            with write_job(url_of(shared), table, mode="overwrite") as job:
                halves = [job.write(rows_of(start, start + 20)), job.write(rows_of(start + 20, start + 40, "new"))]
                assert job.commit(halves) == 40
    finally:
        over.set()
        looking.join()
    assert seen <= {(100, 0), (40, 1_000), (40, 2_000), (40, 3_000)}
    assert ids(shared, table) == list(range(3_000, 3_040))
    with write_job(url_of(shared), table, mode="overwrite") as job:
        assert job.commit([]) == 0
    assert ids(shared, table) == []


def test_overwrites_and_inserts_meet_as_one_after_the_other(shared, table):
    """Each INSERT is before an overwrite, and gone, or after it, and there."""
    errors: list[BaseException] = []
    written = []

    def insert() -> None:
        try:
            for n in range(12):
                shared.ingest(table, rows_of(n, n + 1, "r1"))
                written.append(n)
        except BaseException as error:
            errors.append(error)

    inserting = threading.Thread(target=insert)
    inserting.start()
    for start in (100, 200, 300):
        with write_job(url_of(shared), table, mode="overwrite") as job:
            assert job.commit([job.write(rows_of(start, start + 10))]) == 10
    inserting.join()
    assert errors == []
    found = ids(shared, table)
    assert [n for n in found if n >= 100] == list(range(300, 310))
    inserted = [n for n in found if n < 100]
    assert inserted == written[len(written) - len(inserted) :]


def test_tasks_run_in_other_processes(shared, table):
    with write_job(url_of(shared), table) as job:
        code = (
            "import pickle, sys, pyarrow as pa\n"
            "task, start = pickle.load(sys.stdin.buffer)\n"
            "ids = range(start, start + 50)\n"
            "rows = pa.table({'v': [0.5] * 50, 'id': ids, 'region': ['x'] * 50})\n"  # in another order
            "pickle.dump(task.write(rows.to_batches()), sys.stdout.buffer)"
        )
        receipts = []
        for start in (0, 50):
            given = pickle.dumps((job.task(), start))
            said = subprocess.run([sys.executable, "-c", code], input=given, capture_output=True, check=True)
            receipts.append(pickle.loads(said.stdout))
        assert job.commit(receipts) == 100
    assert ids(shared, table) == list(range(100))


def test_a_table_without_keys_and_one_with_a_primary_key_are_written_too(shared):
    shared.sql("create table plain (id bigint not null, region varchar, v double)")
    shared.create_table("keyed", schema=SCHEMA, partition_by=["bucket(3, id)"], primary_key=["id"])
    for name in ("plain", "keyed"):
        with write_job(url_of(shared), name) as job:
            assert job.commit([job.write(rows_of(0, 50)), job.write(rows_of(50, 100))]) == 100
        assert ids(shared, name) == list(range(100))
    for receipts in ([rows_of(99, 120)], [rows_of(200, 210), rows_of(205, 220)]):  # taken; twice in one write
        with write_job(url_of(shared), "keyed") as job:
            put = [job.write(rows) for rows in receipts]
            with pytest.raises(SchemaMismatch, match="primary key"):
                job.commit(put)
    assert ids(shared, "keyed") == list(range(100))


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (rows_of(0, 1).drop_columns(["v"]), "no column 'v'"),
        (rows_of(0, 1).append_column("more", pa.array([1])), "'more'"),
        (rows_of(0, 1).set_column(0, "id", pa.array(["x"])), "column 'id' is VARCHAR"),
        (pa.table({"id": [None], "region": ["x"], "v": [1.0]}), "must not be null|declares"),
        (pa.table({"id": pa.array([1]), "region": ["x" * 2_000], "v": [1.0]}), "partition value of 2,000 bytes"),
    ],
)
def test_rows_that_are_not_the_tables_are_refused_by_name(shared, table, rows, said):
    with write_job(url_of(shared), table) as job:
        with pytest.raises(SchemaMismatch, match=said):
            job.write(rows)
        assert job.commit([]) == 0


def test_a_row_that_is_too_large_is_refused_with_the_way_out(shared, table):
    rows = pa.table({"id": [1], "region": ["x"], "v": [1.0]}, SCHEMA)
    shared.sql(f"alter table {table} add column word varchar")
    with write_job(url_of(shared), table) as job, pytest.raises(SchemaMismatch, match="INSERT, or `ingest`"):
        job.write(rows.append_column("word", pa.array(["y" * (4 << 20)])))


def test_what_cannot_be_written_so_is_refused_by_name(shared, table):
    with pytest.raises(SqlError, match="does not exist"):
        write_job(url_of(shared), "nowhere")
    shared.sql(f"create view {table}_v as select * from {table}")
    with pytest.raises(SqlError, match="is a view"):
        write_job(url_of(shared), f"{table}_v")
    for wrong in ({"mode": "upsert"}, {"lease": 0}, {"lease": "x"}, {"lease": 90_000.0}):
        with pytest.raises(ConfigError):
            write_job(url_of(shared), table, **wrong)
    shared.ingest(table, rows_of(0, 1), token="taken")
    with pytest.raises(SqlError, match="token 'taken' was used for another statement"):
        write_job(url_of(shared), table, write_token="taken")
    with write_job(url_of(shared), table, write_token="mine") as job:
        job.commit([])
    with pytest.raises(SqlError, match="token 'mine' was used"):
        shared.ingest(table, rows_of(0, 1), token="mine")


def forged(receipt: WriteReceipt, **said) -> WriteReceipt:
    """The receipt, saying something else."""
    message = known_of_write("Receipt", receipt.puts[0])
    for name, value in said.items():
        setattr(message, name, value)
    return evolve(receipt, puts=(message.SerializeToString(),))


def test_receipts_that_no_executor_gave_for_the_write_are_refused(shared, table):
    with write_job(url_of(shared), table) as job, write_job(url_of(shared), table) as other:
        mine, its = job.write(rows_of(0, 10)), other.write(rows_of(10, 20))
        given = known_of_write("Receipt", its.puts[0])
        for said, error in (
            ({"sender": "0" * 32}, InvalidData),
            ({"digest": "0" * 64}, BallistaError),
            ({"write_id": given.write_id}, InvalidData),
            ({"write_id": "../reads/x"}, InvalidData),
            ({"sender": "../../cluster"}, InvalidData),
            ({"write_id": job.write_id[:-1] + "x"}, BallistaError),
        ):
            with pytest.raises(error):
                job.commit([forged(mine, **said)])
        with pytest.raises(InvalidData, match="of another write"):
            job.commit([mine, its])
        with pytest.raises(InvalidData, match="twice"):
            job.commit([mine, mine])
        assert ids(shared, table) == []
        assert job.commit([mine]) == 10
    assert ids(shared, table) == list(range(10))


def test_a_write_that_was_aborted_or_ran_out_is_over(shared, table):
    job = write_job(url_of(shared), table)
    receipt = job.write(rows_of(0, 10))
    job.__exit__(RuntimeError, RuntimeError(), None)  # as a `with` does that is left by an error
    job = write_job(url_of(shared), table, write_token=job.write_token)
    with pytest.raises(SnapshotGone):
        job.commit([receipt])
    assert job.commit([job.write(rows_of(0, 5))]) == 5
    leases = WriteLeases(open_store(shared.state_location), SystemRuntime())
    late = write_job(url_of(shared), table, lease=0.001)
    receipt = late.write(rows_of(5, 10))
    leases.prefixes(SystemRuntime().wall_ms() + 3_600_000)  # a collector, an hour later
    for asked in (lambda: late.commit([receipt]), late.renew, lambda: late.write(rows_of(5, 10))):
        with pytest.raises(SnapshotGone):
            asked()
    assert ids(shared, table) == list(range(5))


@pytest.mark.parametrize("damage", ["gone", "damaged"])
def test_a_file_that_is_not_there_as_it_was_kept_is_part_of_no_table(shared, table, damage):
    store = open_store(shared.state_location)
    with write_job(url_of(shared), table) as job:
        receipts = [job.write(rows_of(0, 10, "x")), job.write(rows_of(10, 20, "y"))]
        (key, *_) = [e.key for e in store.list("snapshots/") if f"/data/{job.write_id}/" in e.key]
        data = store.get(key)
        store.delete(key)
        if damage == "damaged":
            store.create(key, data.data[:-9] + b"x" + data.data[-8:])
        with pytest.raises(BallistaError):
            job.commit(receipts)
        assert ids(shared, table) == []
        store.delete(key)
        store.create(key, data.data)
        assert job.commit(receipts) == 20
    assert ids(shared, table) == list(range(20))


def test_files_of_another_form_are_written_too(shared):
    pytest.importorskip("vortex")
    shared.create_table("other_form", schema=SCHEMA, partition_by=["region"], file_format="vortex")
    with write_job(url_of(shared), "other_form") as job:
        assert job.commit([job.write(rows_of(0, 100))]) == 100
    assert ids(shared, "other_form") == list(range(100))


def test_what_is_left_on_the_store_goes_with_the_commit(shared, table):
    with write_job(url_of(shared), table) as job:
        receipt = job.write(rows_of(0, 10))
        store = open_store(shared.state_location)
        assert len(list(store.list(f"writes/{job.write_id}"))) == 2
        job.commit([receipt])
        assert list(store.list(f"writes/{job.write_id}")) == []


def test_a_table_that_was_renamed_meanwhile_has_the_rows_and_says_so_again(shared, table):
    with write_job(url_of(shared), table) as job:
        receipt = job.write(rows_of(0, 10))
        shared.sql(f"alter table {table} rename to {table}_new")
        shared.sql(f"create table {table} (id bigint not null) partitioned by (bucket(2, id))")
        assert job.commit([receipt]) == 10
        assert job.commit([receipt]) == 10
    assert ids(shared, f"{table}_new") == list(range(10))
    assert ids(shared, table) == []


def test_a_table_that_was_altered_or_dropped_meanwhile_takes_no_rows(shared, table):
    with write_job(url_of(shared), table, write_token="load") as job:
        receipt = job.write(rows_of(0, 10))
        shared.sql(f"alter table {table} add column more bigint")
        with pytest.raises(SchemaMismatch, match="was altered since the write began"):
            job.commit([receipt])
    with write_job(url_of(shared), table, write_token="load") as job:
        assert job.schema.names[-1] == "more"
        receipt = job.write(rows_of(0, 10).append_column("more", pa.array(range(10))))
        assert job.commit([receipt]) == 10
        shared.sql(f"alter table {table} drop column more")
        assert job.commit([receipt]) == 10  # what counts is told, whatever the table is by now
    with write_job(url_of(shared), table) as job:
        receipt = job.write(rows_of(10, 20))
        shared.sql(f"drop table {table}")
        with pytest.raises(SqlError, match="was dropped since the write began"):
            job.commit([receipt])
        shared.create_table(table, schema=SCHEMA, partition_by=["region"])
        with pytest.raises(SqlError, match="was dropped since the write began"):
            job.commit([receipt])
    assert ids(shared, table) == []


def test_tokens_begin_anew_with_a_table_that_is_made_after_a_drop(shared, table):
    with write_job(url_of(shared), table, write_token="nightly") as job:
        receipt = job.write(rows_of(0, 10))
        assert job.commit([receipt]) == 10
        shared.sql(f"drop table {table}")
        shared.create_table(table, schema=SCHEMA, partition_by=["region"])
        assert job.commit([receipt]) == 10  # it is told what it did in the one that is no more
    assert ids(shared, table) == []
    with write_job(url_of(shared), table, write_token="nightly") as job:
        receipt = job.write(rows_of(0, 5))
        assert job.commit([receipt]) == job.commit([receipt]) == 5
    assert ids(shared, table) == list(range(5))


def test_rows_go_to_another_executor_where_one_is_gone_and_a_move_changes_nothing():
    with LocalCluster(schedulers=1, executors=3, ttl_ms=2_000) as cluster:
        cluster.create_table("t", schema=SCHEMA, partition_by=["region"])
        cluster.ingest("t", rows_of(0, 100))
        with write_job(url_of(cluster), "t") as job:
            receipts = [job.write(rows_of(n, n + 100)) for n in range(100, 600, 100)]
            cluster.kill("executor-1")
            receipts += [job.write(rows_of(n, n + 100)) for n in range(600, 1_200, 100)]
            assert job.commit(receipts) == 1_100  # the partitions of the killed one move meanwhile
        assert ids(cluster, "t") == list(range(1_200))


@pytest.mark.parametrize("victim", ["scheduler-1", "executor-1"])
def test_a_node_that_is_killed_amid_commits_leaves_each_write_there_once(victim):
    """Killed at another moment each time, and started again: a commit that is answered is there, whole and once."""
    with LocalCluster(schedulers=2, executors=2, ttl_ms=2_000) as cluster:
        cluster.create_table("t", schema=SCHEMA, partition_by=["region"])
        wanted = 0
        for wait_s in (0.0, 0.03, 0.1, 0.25):
            url = url_of(cluster)
            with write_job(url, "t") as job:
                receipts = [job.write(rows_of(n, n + 50)) for n in (wanted, wanted + 50)]
                said = []
                committing = threading.Thread(target=lambda: said.append(job.commit(receipts)))  # noqa: B023
                committing.start()
                time.sleep(wait_s)
                cluster.kill(victim)
                committing.join()
                assert said == [100]
                assert job.commit(receipts) == 100
            wanted += 100
            cluster.start(victim)
            assert ids(cluster, "t") == list(range(wanted))


def test_an_owner_that_stands_still_amid_a_commit_changes_nothing_twice():
    with LocalCluster(schedulers=2, executors=2, ttl_ms=2_000) as cluster:
        cluster.create_table("t", schema=SCHEMA, partition_by=["bucket(4, id)"])
        with write_job(url_of(cluster), "t") as job:
            receipts = [job.write(rows_of(n, n + 100)) for n in (0, 100)]
            said = []
            committing = threading.Thread(target=lambda: said.append(job.commit(receipts)))
            pid = cluster.pid("executor-1")
            os.kill(pid, signal.SIGSTOP)
            try:
                committing.start()
                time.sleep(8)  # its partitions are given away
            finally:
                os.kill(pid, signal.SIGCONT)
            committing.join()
            assert said == [200]
        assert ids(cluster, "t") == list(range(200))


def test_many_rows_are_put_in_several_pieces_and_a_task_may_be_slow(shared, table, monkeypatch):
    monkeypatch.setattr(row_sending, "PUT_BYTES", 1_000)
    with write_job(url_of(shared), table) as job:
        receipt = job.write(batch for n in range(10) for batch in rows_of(n * 100, n * 100 + 100).to_batches())
        assert len(receipt.puts) == 10
        assert receipt.rows == job.commit([receipt]) == 1_000
        assert job.write([]).puts == ()
    assert ids(shared, table) == list(range(1_000))


@pytest.fixture(scope="module")
def shut(tmp_path_factory):
    tokens = tmp_path_factory.mktemp("tokens") / "tokens"
    tokens.write_text(f"ada {ADA}\nbob {BOB}\n")
    options = {"flight-tokens-file": str(tokens)}
    with LocalCluster(schedulers=1, executors=2, tls=True, token=ADA, node_options=options) as cluster:
        cluster.create_table("t", schema=SCHEMA, partition_by=["region"])
        yield cluster


def job_of(cluster, token=ADA, table="t", **asked):
    url = "ballista+tls://" + cluster.addresses()[0]
    return write_job(url, table, token=token, tls=cluster.tls, **asked)


def test_large_rows_go_to_a_port_for_clients_alone(shut):
    rows = pa.table({"id": [1, 2], "word": ["y" * (2 << 20), "z" * 100_000]})
    shut.create_table("wide", schema=rows.schema, partition_by=["bucket(2, id)"])
    with job_of(shut, table="wide") as job:
        assert job.commit([job.write(rows)]) == 2
    assert shut.sql("select sum(length(word)) as n from wide").to_pylist() == [{"n": (2 << 20) + 100_000}]


def changed(ticket: bytes, **values) -> bytes:
    """The ticket, saying something else."""
    found = json.loads(ticket)
    body = json.loads(b64decode(found["body"]))
    body["write"].update(values)
    return json.dumps({**found, "body": b64encode(json.dumps(body).encode()).decode()}).encode()


def test_with_certificates_and_tokens_it_is_the_same_and_each_client_has_its_own(shut):
    with job_of(shut, write_token="same") as job, job_of(shut, BOB, write_token="same") as other:
        mine, its = job.write(rows_of(0, 3_000)), other.write(rows_of(3_000, 3_100))
        with pytest.raises(BallistaError):
            other.commit([mine])
        other.write_id = job.write_id
        other.abort()  # not its own
        assert job.commit([mine]) == 3_000
        assert other.commit([its]) == 100  # another client's token is another token
    assert [n for n in ids(shut, "t") if n < 5_000] == list(range(3_100))
    with pytest.raises(Unauthenticated):
        job_of(shut, token="nobody-0123456789abcdef")
    assert ADA not in repr(job.task())


def test_a_ticket_is_for_one_write_and_cannot_be_changed(shut):
    with job_of(shut) as job, job_of(shut, BOB) as other:
        task = job.task()
        mine = json.loads(task.ticket)
        for ticket in (
            changed(task.ticket, write_id=other.write_id),
            changed(task.ticket, client="bob"),
            json.dumps({"body": mine["body"]}).encode(),
            json.dumps({**mine, "signature": b64encode(b"x" * 70).decode()}).encode(),
            json.dumps({**mine, "more": 1}).encode(),
        ):
            with task._source.pool(SystemRuntime(), of_nodes=True) as pool, pytest.raises(Unauthenticated):
                row_sending.RowSender(pool, task.locations[0], ticket, SCHEMA).finish()


def test_a_ticket_to_read_is_none_to_put_rows_and_the_other_way(shut):
    shut.ingest("t", rows_of(9_000, 9_001))
    url = "ballista+tls://" + shut.addresses()[0]
    with job_of(shut) as job, read_job(url, table="t", token=ADA, tls=shut.tls) as reading:
        task, part = job.task(), reading.partitions[0]
        with task._source.pool(SystemRuntime(), of_nodes=True) as pool, pytest.raises(Unauthenticated):
            row_sending.RowSender(pool, task.locations[0], part.ticket, SCHEMA).finish()
        with pytest.raises(Unauthenticated):
            evolve(part, ticket=task.ticket).to_table()


def test_a_ticket_that_is_too_old_is_exchanged_for_a_new_one(shut):
    with job_of(shut) as job:
        task = evolve(job.task(), ticket=b"{}")
        assert task.write(rows_of(5_000, 5_010)).rows == 10
        job.abort()


def test_the_patience_of_a_client_ends(monkeypatch):
    monkeypatch.setattr(jobs, "PATIENCE_MS", 300.0)
    with pytest.raises(TransportError):
        write_job("ballista://127.0.0.1:9", "t")
