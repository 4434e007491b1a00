"""Worker processes read one job together, and each row counts once: whoever stops, dies, is slow, or serves no more."""

from __future__ import annotations

import pickle
import signal
import struct
import subprocess
import sys
import time
import zlib
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as flight
import pytest
from attrs import evolve
from google.protobuf.any_pb2 import Any

from ballista_py import LocalCluster, read_job
from ballista_py.agents.read_client import ReadClient
from ballista_py.errors import ConfigError, SnapshotGone, TransportError, Unauthenticated
from ballista_py.runtime import SystemRuntime
from ballista_py.transport.proto import table_read_pb2 as pb
from ballista_py.transport.security.certificates import CertificateFolder
from ballista_py.transport.table_read.grant_messages import AskForWork
from ballista_py.transport.table_read.partition_reader import PartExchange

pytestmark = pytest.mark.cluster

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64()), ("word", pa.string())])
ROWS, FILES = 1_200_000, 4
WORKER = Path(__file__).with_name("shared_read_worker.py")
OPTIONS = {"replicas": "2", "partition-assignment-interval": "500"}


def rows_of(start: int, stop: int) -> pa.Table:
    ids = pa.array(range(start, stop), pa.int64())
    return pa.table(
        {"id": ids, "v": [n % 10 for n in range(start, stop)], "word": [f"w{n % 7}" for n in range(start, stop)]},
        SCHEMA,
    )


def url_of(cluster) -> str:
    return "ballista://" + ",".join(cluster.addresses())


def filled(cluster, name: str, buckets: int) -> str:
    cluster.create_table(name, schema=SCHEMA, partition_by=[f"bucket({buckets}, id)"], primary_key=["id"])
    for part in range(FILES):
        cluster.ingest(name, rows_of(part * ROWS // FILES, (part + 1) * ROWS // FILES))
    cluster.wait_until_loaded(name)
    return name


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(schedulers=1, executors=2, ttl_ms=3_000, node_options=OPTIONS) as made:
        filled(made, "t", 6)
        filled(made, "one", 1)
        yield made


class Workers:
    """Processes that read a shared job into files of a folder."""

    def __init__(self, stack: ExitStack, folder: Path, shared) -> None:
        self.folder = folder
        self.shared = shared
        self.handle = shared.serve()
        self.processes: dict[str, subprocess.Popen] = {}
        stack.callback(self.end)

    def start(self, name: str, slow_s: float = 0.0) -> None:
        command = [sys.executable, str(WORKER), str(self.folder), name, str(slow_s)]
        self.processes[name] = started = subprocess.Popen(command, stdin=subprocess.PIPE)
        started.stdin.write(pickle.dumps(self.handle))
        started.stdin.close()

    def signal(self, name: str, number: int) -> None:
        self.processes[name].send_signal(number)

    def wait_for_rows(self, name: str, but: tuple[str, ...] = ()) -> str:
        """The token under which a worker has rows now, other than those it had before."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            self.shared.tick()
            for found in self.folder.glob(f"{name}.*.begun"):
                token = found.name.split(".")[1]
                if token not in but and not (self.folder / f"{token}.arrow").exists():
                    return token
            time.sleep(0.02)
        raise AssertionError(f"{name} has read nothing")

    def wait(self) -> None:
        assert self.shared.wait(timeout=180)

    def joined(self) -> list[int]:
        return [process.wait(60) for process in self.processes.values()]

    def said(self, name: str) -> list[tuple[str, str, int]]:
        file = self.folder / f"{name}.said"
        lines = file.read_text().splitlines() if file.exists() else []
        return [(line.split()[0], " ".join(line.split()[1:-1]), int(line.split()[-1])) for line in lines]

    def counted(self) -> pa.Table:
        tables = [pa.ipc.open_file(str(self.folder / f"{t}.arrow")).read_all() for t in self.shared.counted_tokens]
        return pa.concat_tables(tables)

    def end(self) -> None:
        for process in self.processes.values():
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()


@pytest.fixture
def workers(tmp_path):
    with ExitStack() as stack:

        def made(job, **options) -> Workers:
            shared = stack.enter_context(job.share(dead_after=5.0))
            for name, value in options.items():
                setattr(shared._agent, name, value)
            return Workers(stack, tmp_path, shared)

        yield made


def require_all(found: pa.Table, wanted=range(ROWS)) -> None:
    """Every row of the snapshot once."""
    ids = found["id"].to_pylist()
    assert len(ids) == len(wanted)
    assert set(ids) == set(wanted)


@pytest.mark.parametrize(
    ("condition", "encodings"),
    [("", None), ("v = 3", None), ("", ["parquet", "arrow+zstd"]), ("v = 3", ["arrow+lz4"])],
)
def test_four_processes_read_every_row_once(cluster, workers, condition, encodings):
    with read_job(url_of(cluster), table="t", filter=condition, target_bytes=200_000, encodings=encodings) as job:
        made = workers(job)
        for number in range(4):
            made.start(f"w{number}")
        made.wait()
        assert made.joined() == [0, 0, 0, 0]
        require_all(made.counted(), range(3, ROWS, 10) if condition else range(ROWS))


def test_rows_of_a_shared_job_come_packed_where_that_was_asked_for(cluster, monkeypatch):
    sent = Counter()
    messages = PartExchange.messages

    def noted(exchange):
        for said, rows in messages(exchange):
            sent["bytes"] += 0 if rows is None else rows.nbytes
            yield said, rows

    monkeypatch.setattr(PartExchange, "messages", noted)
    size = {}
    for encodings in ((), ("arrow",), ("arrow+lz4",), ("arrow+zstd",)):
        sent.clear()
        job = read_job(url_of(cluster), table="one", encodings=encodings)
        with job, job.share() as shared, ReadClient(shared) as client:
            require_all(pa.concat_tables(rows for _, rows in client.tables()))
        size[encodings] = sent["bytes"]
    assert size[("arrow",)] == size[()]
    assert size[("arrow+lz4",)] < size[()] / 1.5
    assert size[("arrow+zstd",)] < size[()] / 2


def test_a_grouped_query_is_read_by_partitions_and_finished_once(cluster, workers):
    text = "select word, count(*) as n, sum(v) as s from t group by word"
    wanted = cluster.sql(text).sort_by("word").to_pylist()
    with read_job(url_of(cluster), text) as job:
        made = workers(job)
        for number in range(2):
            made.start(f"w{number}")
        made.wait()
        assert job.finish(made.counted()).sort_by("word").to_pylist() == wanted


def test_rows_of_a_worker_that_stands_still_are_read_by_others_and_do_not_count_when_it_wakes(cluster, workers):
    with read_job(url_of(cluster), table="t") as job:
        made = workers(job)
        made.start("still", 0.2)
        token = made.wait_for_rows("still")
        made.signal("still", signal.SIGSTOP)
        for number in range(3):
            made.start(f"w{number}")
        made.wait()
        assert token not in made.shared.counted_tokens
        require_all(made.counted())
        made.signal("still", signal.SIGCONT)
        assert made.processes["still"].wait(60) == 0  # it was told, and ended
        assert [what for one, what, _ in made.said("still") if one == token] == ["thrown away"]
        require_all(made.counted())


def test_a_worker_that_was_killed_begins_anew_under_its_name_and_nobody_waits_for_its_death(cluster, workers):
    with read_job(url_of(cluster), table="t") as job:
        made = workers(job, _dead_ms=600_000.0)
        made.start("w0", 0.2)
        token = made.wait_for_rows("w0")
        made.processes["w0"].kill()
        made.processes["w0"].wait()
        for number in range(2):
            made.start(f"w{number}")
        made.wait()
        assert token not in made.shared.counted_tokens
        require_all(made.counted())


def test_a_worker_that_was_killed_and_does_not_come_back_costs_its_rows_to_be_read_again(cluster, workers):
    with read_job(url_of(cluster), table="t") as job:
        made = workers(job)
        made.start("gone", 0.2)
        made.wait_for_rows("gone")
        made.processes["gone"].kill()
        made.start("w1")
        made.wait()
        require_all(made.counted())
        assert made.said("gone") == []


def test_rows_are_taken_from_a_slow_worker_by_those_who_have_none(cluster, workers):
    """All rows are one partition, which the slow one has first; the others come when it is amid it."""
    with read_job(url_of(cluster), table="one", max_partitions=1) as job:
        assert len(job.partitions) == 1
        made = workers(job, _dead_ms=60_000.0)
        made.start("slow", 0.5)
        token = made.wait_for_rows("slow")
        for number in range(3):
            made.start(f"w{number}")
        made.wait()
        require_all(made.counted())
        assert made.joined() == [0, 0, 0, 0]
        counts = {name: sum(n for _, what, n in made.said(name) if what == "counted") for name in made.processes}
        assert token in made.shared.counted_tokens  # what it was left counts
        assert 0 < counts["slow"] < ROWS * 0.7
        assert sum(counts.values()) == ROWS


def test_rows_of_an_executor_that_was_killed_are_read_elsewhere(workers):
    with LocalCluster(schedulers=1, executors=2, ttl_ms=2_000, node_options=OPTIONS) as made_cluster:
        filled(made_cluster, "t", 4)
        with read_job(url_of(made_cluster), table="t", target_bytes=200_000) as job:
            made = workers(job)
            for number in range(4):
                made.start(f"w{number}", 0.3)
            made.wait_for_rows("w0")
            made_cluster.kill("executor-1")
            made.wait()
            require_all(made.counted())
            assert made.joined() == [0, 0, 0, 0]


def test_partitions_that_move_amid_the_read_are_found_where_they_are(workers):
    options = {"partition-assignment-interval": "500"}  # without copies: who owned them has them no more
    with LocalCluster(schedulers=1, executors=3, ttl_ms=2_000, node_options=options) as made_cluster:
        filled(made_cluster, "t", 6)
        with read_job(url_of(made_cluster), table="t", target_bytes=200_000) as job:
            made = workers(job)
            for number in range(3):
                made.start(f"w{number}", 0.3)
            made.wait_for_rows("w0")
            made_cluster.kill("executor-3")
            made_cluster.sql("update t set v = v + 1 where id < 1000")  # by who owns them by now
            made_cluster.start("executor-3")
            made.wait()
            require_all(made.counted())


def test_all_show_one_instant_whatever_is_changed_meanwhile(cluster, workers):
    filled(cluster, "changed", 4)
    with read_job(url_of(cluster), table="changed", target_bytes=200_000) as job:
        made = workers(job)
        for number in range(4):
            made.start(f"w{number}", 0.3)
        made.wait_for_rows("w0")
        cluster.sql("update changed set v = -1 where id % 3 = 0")
        cluster.sql("delete from changed where id % 5 = 0")
        for start in range(ROWS, ROWS + 20_000, 1_000):  # small files, which owners merge
            cluster.ingest("changed", rows_of(start, start + 1_000))
        cluster.sql("update changed set word = 'x'")
        made.wait()
        found = made.counted()
        require_all(found)
        assert Counter(found["v"].to_pylist()) == Counter(n % 10 for n in range(ROWS))
        assert set(found["word"].to_pylist()) == {f"w{n}" for n in range(7)}


def served(cluster) -> list[tuple[int, int]]:
    """The exchanges that are open under grants at each executor, and the grants that it remembers."""
    shown = [cluster.shown(f"executor-{number}")["reads"] for number in (1, 2)]
    return [(one["exchanges"], one["grants"]) for one in shown]


def test_executors_hold_nothing_for_an_agent_that_went_behind_its_lease(cluster, workers, tmp_path):
    """Its workers stand still amid their rows, and nobody renews."""
    job = read_job(url_of(cluster), table="t", lease=2.0)
    made = workers(job)
    for number in range(2):
        made.start(f"w{number}", 0.3)
        made.wait_for_rows(f"w{number}")
        made.signal(f"w{number}", signal.SIGSTOP)
    assert sum(exchanges for exchanges, _ in served(cluster)) > 0
    until = time.monotonic() + 40
    while any(sum(one) for one in served(cluster)) and time.monotonic() < until:
        time.sleep(0.2)  # nobody ticks
    assert served(cluster) == [(0, 0), (0, 0)]
    read = [
        task
        for n in (1, 2)
        for task in cluster.shown(f"executor-{n}", "/tasks")["tasks"]
        if task["kind"] == "read"
    ]
    assert read
    assert all(task["outcome"] != "running" for task in read)


def test_a_worker_of_this_process_needs_no_port(cluster):
    with (
        read_job(url_of(cluster), table="t", columns=["id"]) as job,
        job.share() as shared,
        ReadClient(shared) as client,
    ):
        found = pa.concat_tables([table for _, table in client.tables()])
        require_all(found)
        assert shared.wait(timeout=1)


def test_who_has_not_the_secret_is_told_nothing(cluster):
    with read_job(url_of(cluster), table="t") as job, job.share() as shared:
        handle = shared.serve()
        assert handle.secret not in repr(handle)
        assert shared.serve() == handle
        with ReadClient(evolve(handle, secret="x" * 64)) as client, pytest.raises(Unauthenticated):
            list(client.tables())
        with ReadClient(handle, name="me") as client:
            assert client._link.say(AskForWork(client.id)).client == client.id


def test_a_job_that_is_over_says_so_to_its_workers(cluster):
    with read_job(url_of(cluster), table="t") as job, job.share() as shared:
        with ReadClient(shared) as client:
            job.close()
            with pytest.raises(SnapshotGone):
                list(client.tables())
        with pytest.raises(SnapshotGone):
            shared.tick()


def test_arguments_that_cannot_be_are_refused(cluster):
    with read_job(url_of(cluster), table="t") as job:
        for seconds in (0, 4.9, float("nan"), "x"):
            with pytest.raises(ConfigError, match="dead after"):
                job.share(dead_after=seconds)
        with job.share() as shared:
            for name in ("", "x" * 129):
                with pytest.raises(ConfigError, match="1 to 128"):
                    ReadClient(shared, name=name)
            with pytest.raises(ConfigError):
                shared.serve("127.0.0.1:nothing")


def read_as_the_page_says(handle) -> list[int]:
    """A Client of the messages and of Arrow Flight alone: docs/table-read.md says all that it does."""
    agent = flight.FlightClient(f"grpc://{handle.address}")
    secret = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {handle.secret}".encode())])
    me = pb.ReaderName(name="stranger", instance="1")
    counted: list[int] = []

    def say(**said):
        body = pb.ToAgent(client=me, **said).SerializeToString()
        (answer,) = agent.do_action(flight.Action("ballista_py.tableread.v1.ToAgent", body), secret)
        return pb.FromAgent.FromString(answer.body.to_pybytes())

    while (work := say(ask=pb.AskForRows())).WhichOneof("what") != "over":
        if work.WhichOneof("what") == "wait":
            time.sleep(work.wait.retry_after_ms / 1e3)
            continue
        grant, ids, crc, waiting, chunks = work.grant, [], 0, 0, 0
        asked = pb.Request(
            ticket=grant.ticket, token=grant.token, ancestors=grant.ancestors, attempt=1, begin=grant.rows.start,
            needs_order=True,
        )  # fmt: skip
        command = Any(
            type_url="type.googleapis.com/ballista_py.tableread.v1.Request", value=asked.SerializeToString()
        )
        server = flight.FlightClient(grant.locations[0].uri)
        writer, reader = server.do_exchange(flight.FlightDescriptor.for_command(command.SerializeToString()))
        writer.begin(pa.schema([]))
        reply = pb.Reply.FromString(reader.read_chunk().app_metadata.to_pybytes())
        assert reply.WhichOneof("status") == "accepted"
        writer.write_metadata(pb.Credit(chunks=2, until=grant.rows.end).SerializeToString())
        while (message := reader.read_chunk()).data is not None:
            chunk = pb.Chunk.FromString(message.app_metadata.to_pybytes())
            ids += message.data["id"].to_pylist()
            waiting, chunks = waiting + message.data.num_rows, chunks + 1
            writer.write_metadata(pb.Credit(chunks=1, until=grant.rows.end).SerializeToString())
            if chunk.HasField("end"):
                step = zlib.crc32(struct.pack("<QIQ", waiting, chunk.end.section, chunk.end.row))
                crc, waiting = zlib.crc32(struct.pack(">I", step), crc), 0
        trailer = pb.Trailer.FromString(message.app_metadata.to_pybytes())
        writer.close()
        assert trailer == pb.Trailer(rows=len(ids), chunks=chunks, crc32=crc, complete=True, end=grant.rows.end)
        assert say(token=grant.token, done=pb.AllRead(rows=grant.rows)).counted.worth == pb.WORTH_COUNTED
        assert say(token=grant.token, done=pb.AllRead(rows=grant.rows)).counted.worth == pb.WORTH_AGAIN
        counted += ids
    return counted


def test_a_client_can_be_written_from_the_page(cluster):
    with read_job(url_of(cluster), table="t", columns=["id"], target_bytes=200_000) as job, job.share() as shared:
        found = read_as_the_page_says(shared.serve())
        require_all(pa.table({"id": found}))
        assert shared.has_ended


def test_over_tls_workers_prove_the_agent_and_need_no_token(tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text("ada ada-0123456789abcdef\n")
    options = {"flight-tokens-file": str(tokens)}
    with LocalCluster(
        schedulers=1, executors=1, tls=True, token="ada-0123456789abcdef", node_options=options
    ) as shut:
        shut.create_table("t", schema=SCHEMA, partition_by=["bucket(2, id)"])
        shut.ingest("t", rows_of(0, 1_000))
        url = "ballista+tls://" + shut.addresses()[0]
        folder = CertificateFolder(tmp_path / "tls", SystemRuntime())
        folder.init()
        folder.add("driver", "executor", hosts=["127.0.0.1"])
        own = folder.tls("driver")
        asked = {"table": "t", "token": "ada-0123456789abcdef", "tls": shut.tls}
        with read_job(url, **asked) as job, job.share() as shared:
            handle = shared.serve(tls=own, ca_file=own.ca_file)
            assert "ada-0123456789abcdef" not in str(pickle.dumps(handle))
            with ReadClient(pickle.loads(pickle.dumps(handle))) as client:
                require_all(pa.concat_tables([table for _, table in client.tables()]), range(1_000))
            with (
                ReadClient(evolve(handle, tls=None), patience=0.5) as client,
                pytest.raises(TransportError, match="does not answer"),
            ):
                list(client.tables())
