"""Statements in processes of their own: the same answers, and nothing but the process goes when one must be ended."""

from __future__ import annotations

import datetime as dt
import decimal
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import psutil
import pyarrow as pa
import pytest

from ballista_py.engines.apart.frames import Frames
from ballista_py.engines.apart.shares import MIN_SHARE_BYTES
from ballista_py.engines.apart.worker import RowsOfNode
from ballista_py.engines.apart.workers import AT_ONCE, MOST_IDLE, START_MS, Options, Workers
from ballista_py.engines.duckdb import guard as duckdb_guard
from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.engines.polars.engine import PolarsEngine
from ballista_py.engines.same_answer import difference
from ballista_py.errors import BallistaError, MergeTooLarge, SqlError, TimeLimit, TransportError
from ballista_py.node.engine_processes import EngineProcess, own_bytes
from ballista_py.runtime import SystemRuntime
from ballista_py.storage.formats.files import RowsAtHand
from ballista_py.work import Work, working

RUNTIME = SystemRuntime()
ROWS = pa.table({"n": pa.array(range(1000), pa.int64()), "s": ["abc"] * 1000, "u": ["unused"] * 1000})
ENDLESS = "select max(i + length(repeat('x', 2))) from range(1000000000000) r(i)"
ENDLESS_ROWS = "select i, repeat('x', 2) as x from range(1000000000000) r(i)"

# One vector of it takes half an hour.
UNSTOPPABLE = (
    "select max(levenshtein(repeat('a', (30000 + i % 2)::bigint), repeat('b', 30000))) from range(1000000) r(i)"
)


def workers(tmp_path, max_bytes=1 << 30, kind="duckdb"):
    started = []

    def start():
        started.append(EngineProcess(str(tmp_path), RUNTIME))
        return started[-1]

    made = Workers(start, max_bytes, own_bytes, RUNTIME, Options(kind=kind, threads=2))
    return made, started


@pytest.fixture(params=["duckdb", "polars"])
def engine(request, tmp_path):
    made, started = workers(tmp_path, kind=request.param)
    engine = (DuckDBEngine if request.param == "duckdb" else PolarsEngine)(workers=made, runtime=RUNTIME)
    engine.kind, engine.started = request.param, started
    engine.create_table("t", ROWS.schema)
    engine.load("t", [RowsAtHand(file_id=1, rows=ROWS)])
    yield engine
    engine.close()
    assert not any(alive(process) for process in started)
    assert not list(tmp_path.iterdir())


@pytest.fixture
def duck(tmp_path):
    made, started = workers(tmp_path)
    engine = DuckDBEngine(workers=made, runtime=RUNTIME)
    engine.started = started
    yield engine
    engine.close()


def alive(process) -> bool:
    return process.returncode() is None


def answer(engine, sql, **more):
    running = engine.query(sql, {"t": [1]}, **more)
    return pa.Table.from_batches(running.batches(), schema=running.schema)


def until(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_statement_gives_the_same_apart_as_in_the_process(engine, monkeypatch):
    joined = "select a.n, b.s from t a join t b on a.n = b.n where a.n < 500"
    assert answer(engine, joined).num_rows == 500
    assert (len(engine.started) == 1) == (engine.kind == "polars")  # whose joins cannot be stopped
    monkeypatch.setattr(duckdb_guard.Steadiness, "verdict", property(lambda _: False))
    for sql in ("select count(*) as c from t where n > 2", joined, "select max(s) as m, min(n) as k from t"):
        engine._binder._guard._remembered.keep(lambda _: False)
        apart = answer(engine, sql)
        assert len(engine.started) == 1
        inside = DuckDBEngine(runtime=RUNTIME)
        inside.create_table("t", ROWS.schema)
        inside.load("t", [RowsAtHand(file_id=1, rows=ROWS)])
        assert difference(apart, answer(inside, sql)) is None
        inside.close()


TYPED = pa.table(
    {
        "b": pa.array([True, None]),
        "i": pa.array([2**31 - 1, None], pa.int32()),
        "u": pa.array([2**64 - 1, None], pa.uint64()),
        "d": pa.array([decimal.Decimal("1.50"), None], pa.decimal128(18, 2)),
        "h": pa.array([decimal.Decimal(10**37), None], pa.decimal128(38, 0)),
        "f": pa.array([1.5, None], pa.float32()),
        "s": pa.array(["é\x00x", None]),
        "y": pa.array([b"\xff", None]),
        "e": pa.array(["one", None]).dictionary_encode(),
        "day": pa.array([dt.date(2024, 2, 29), None]),
        "t": pa.array([dt.time(23, 59, 59), None], pa.time64("us")),
        "ns": pa.array([1, None], pa.timestamp("ns")),
        "tz": pa.array([dt.datetime(2024, 1, 1, tzinfo=dt.UTC), None], pa.timestamp("us", "UTC")),
        "span": pa.array([pa.MonthDayNano([1, 2, 3000]), None]),
        "l": pa.array([[1, None], None], pa.list_(pa.int64())),
        "st": pa.array([{"a": 1, "b": "x"}, None], pa.struct([("a", pa.int64()), ("b", pa.string())])),
        "m": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
    }
)


def test_values_of_every_type_go_there_and_back_unchanged(duck):
    inside = DuckDBEngine(runtime=RUNTIME)
    for engine in (duck, inside):
        engine.create_table("t", TYPED.schema)
        engine.load("t", [RowsAtHand(file_id=1, rows=TYPED)])
    sql = "select *, typeof(columns(*)), repeat('x', 2) as two from t"
    assert difference(answer(duck, sql), answer(inside, sql)) is None
    assert len(duck.started) == 1
    inside.close()


def test_streams_are_read_as_they_are_asked_for(duck):
    asked = []

    def batches():
        for number in range(1000):
            asked.append(number)
            yield pa.record_batch([pa.array([number] * 1000, pa.int64())], names=["n"])

    stream = pa.RecordBatchReader.from_batches(pa.schema([("n", pa.int64())]), batches())
    running = duck.query("select n, repeat('x', 1000) as s from r", streams={"r": stream})
    assert next(iter(running.batches())).num_rows
    assert len(asked) < 1000
    running.cancel()


def test_the_error_of_a_stream_is_the_error_of_the_statement(duck):
    def batches():
        yield pa.record_batch([pa.array([1], pa.int64())], names=["n"])
        raise TransportError("executor e1 cannot be reached")

    stream = pa.RecordBatchReader.from_batches(pa.schema([("n", pa.int64())]), batches())
    with pytest.raises(TransportError, match="executor e1 cannot be reached"):
        list(duck.query("select max(repeat('x', n)) from r", streams={"r": stream}).batches())


def test_an_error_is_told_in_the_same_words_and_place(engine):
    for sql in ("select repeat(nope, 2) from t", "select repeat(s) from t"):
        with pytest.raises(SqlError) as apart:
            answer(engine, sql)
        inside = DuckDBEngine(runtime=RUNTIME)
        with pytest.raises(SqlError) as there:
            inside.describe(sql, {"t": ROWS.schema})
        assert str(apart.value) == str(there.value)
        inside.close()


@pytest.mark.share(2)
@pytest.mark.parametrize(
    "sql",
    [
        "select len(generate_series(1, 2000000000)) as n",
        "select repeat('x', 2000000000) as s",
        "select max(len(repeat(s, 1000000 + n))) as m from t",
        "select n, repeat(s, 1000000) as s from t order by s desc, n",
    ],
)
def test_a_statement_that_takes_too_much_memory_fails_alone(tmp_path, sql):
    made, _ = workers(tmp_path, max_bytes=own_bytes() + (256 << 20))
    engine = DuckDBEngine(workers=made, runtime=RUNTIME)
    engine.create_table("t", ROWS.schema)
    engine.load("t", [RowsAtHand(file_id=1, rows=ROWS)])
    with pytest.raises(MergeTooLarge):
        answer(engine, sql)
    assert answer(engine, "select count(*) as c from t")["c"].to_pylist() == [1000]
    assert answer(engine, "select max(repeat('ab', 2)) as c from t")["c"].to_pylist() == ["abab"]
    engine.close()


def test_a_process_whose_database_may_be_broken_answers_nobody_else(tmp_path):
    """Memory that the system refuses is a fault of its own to DuckDB: nothing of that database can be used any more."""
    made, started = workers(tmp_path, max_bytes=own_bytes() + (256 << 20))
    engine = DuckDBEngine(workers=made, runtime=RUNTIME)
    engine.create_table("t", ROWS.schema)
    engine.load("t", [RowsAtHand(file_id=1, rows=ROWS)])
    with pytest.raises(MergeTooLarge):
        answer(engine, "select reservoir_quantile(i, 0.5, 500000000) as c from range(1000) r(i)")
    until(lambda: not alive(started[0]))
    assert answer(engine, "select max(repeat('ab', 2)) as c from t")["c"].to_pylist() == ["abab"]
    engine.close()


def test_what_is_bound_cannot_take_the_node_either(duck):
    bomb = "select n as a0" + "".join(f", a{i - 1} + a{i - 1} as a{i}" for i in range(1, 14)) + " from t"
    work = Work(RUNTIME)
    work.limit_to(200)  # more would be refused before it is bound; this takes longer
    with working(work), pytest.raises((MergeTooLarge, TimeLimit)):
        duck.describe(bomb, {"t": ROWS.schema})
    until(lambda: not alive(duck.started[0]))


def test_a_cancelled_statement_ends_though_nothing_interrupts_it(duck):
    running = duck.query(UNSTOPPABLE)
    raised: list[BaseException] = []

    def read():
        try:
            list(running.batches())
        except BaseException as error:
            raised.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    running.cancel()
    reader.join(60)
    assert isinstance(raised[0], TransportError)
    until(lambda: not alive(duck.started[0]))


def test_a_statement_ends_with_the_work_that_it_is_part_of(duck):
    work = Work(RUNTIME)
    with working(work):
        running = duck.query(ENDLESS)
    threading.Timer(0.2, lambda: work.end(TransportError("the client went away"))).start()
    with pytest.raises(BallistaError):
        list(running.batches())
    until(lambda: not alive(duck.started[0]))


def test_a_statement_ends_with_its_time(duck):
    work = Work(RUNTIME)
    with working(work):
        work.limit_to(200)
        with pytest.raises(TimeLimit, match="statement_timeout_ms"):
            list(duck.query(ENDLESS).batches())
    until(lambda: not alive(duck.started[0]))


def test_a_process_that_is_killed_fails_its_statement_and_the_next_one_runs(duck):
    running = duck.query(ENDLESS)
    os.kill(duck.started[0]._process.pid, signal.SIGKILL)
    with pytest.raises(MergeTooLarge):  # as the system does it to who takes too much
        list(running.batches())
    assert pa.Table.from_batches(duck.query("select repeat('ab', 2) as c").batches())["c"].to_pylist() == ["abab"]


@pytest.mark.parametrize("read", [True, False])
def test_a_process_that_is_killed_gives_back_what_was_reserved_for_it(duck, read):
    """By the system, whether its rows are being read or nobody ever asks for them."""
    ledger = lambda: duck._workers.budget.ledger  # noqa: E731
    running = duck.query(ENDLESS)
    assert ledger().held_bytes >= MIN_SHARE_BYTES
    os.kill(duck.started[0]._process.pid, signal.SIGKILL)
    if read:
        with pytest.raises(MergeTooLarge):
            list(running.batches())
    else:
        del running
        gc.collect()
    assert (ledger().held, ledger().waiting) == ({}, ())
    with pytest.raises(SqlError):  # nor is anything left of one that only bound a statement
        duck.query("select repeat('ab', 2) as c, nothing as d")
    assert ledger().held_bytes == 0


def test_a_process_that_is_killed_while_it_has_nothing_to_do_costs_no_statement(duck):
    sql = "select repeat('ab', 2) as c"
    list(duck.query(sql).batches())
    process = duck.started[-1]._process
    for one in duck.started:
        os.kill(one._process.pid, signal.SIGKILL)
    until(lambda: process.poll() is not None)
    assert pa.Table.from_batches(duck.query(sql).batches())["c"].to_pylist() == ["abab"]


@pytest.mark.parametrize("cancelled", [True, False])
def test_one_whose_rows_were_never_asked_for_gives_back_what_was_reserved_for_it(duck, cancelled):
    """As a leg does whose scheduler goes between the answer's head and its first row."""
    running = duck.query(ENDLESS)
    batches = running.batches()
    assert duck._workers.budget.ledger.held_bytes >= MIN_SHARE_BYTES
    if cancelled:
        running.cancel()
    else:
        del running, batches
        gc.collect()
    assert duck._workers.budget.ledger.held_bytes == 0
    assert not duck._workers._busy
    if cancelled:
        with pytest.raises(TransportError):
            list(batches)


def test_one_whose_reader_never_comes_back_gives_back_what_was_reserved_when_it_is_cancelled(duck):
    """As a client does that takes one batch and hangs until its time is over, while somebody keeps what he read."""
    running = duck.query(ENDLESS_ROWS)
    batches = running.batches()
    assert next(batches).num_rows
    assert duck._workers.budget.ledger.held_bytes >= MIN_SHARE_BYTES
    running.cancel(TimeLimit("it took too long"))
    assert duck._workers.budget.ledger.held_bytes == 0
    assert not duck._workers._busy
    with pytest.raises(TimeLimit, match="it took too long"):
        next(batches)
    assert duck.query("select repeat('ab', 2) as c").schema.names == ["c"]


def test_a_process_that_is_ended_for_its_memory_gives_back_what_was_reserved_for_it(duck):
    running = duck.query(ENDLESS)
    (worker,) = duck._workers._busy
    duck._workers._too_large(worker, 1 << 40)
    with pytest.raises(MergeTooLarge):
        list(running.batches())
    assert duck._workers.budget.ledger.held_bytes == 0


@pytest.mark.parametrize(
    ("sql", "takes"),
    [
        ("select s from t where n = 7", False),
        ("select count(*), max(s) as m from t where n > 7", False),
        ("select s, count(*) as c from t group by s", True),
        ("select n from t order by n", True),
        ("select distinct s from t", True),
        ("select count(distinct s) as c from t", True),
        ("select sum(n) over (order by n) as c from t", True),
        ("select n from t union select n + 1 from t", True),
        ("select s from t where n in (select max(n) from t)", True),
        ("select median(n) as m from t", True),
    ],
)
def test_what_others_take_is_not_the_fault_of_a_lookup(duck, sql, takes):
    """Memory grows while both run: the one that goes is of those that may take it, though it began first."""
    duck.create_table("t", ROWS.schema)
    duck.load("t", [RowsAtHand(file_id=1, rows=ROWS)])
    large = duck.query("select s, count(*) as c, max(n) as m from t group by s", {"t": [1]})
    other = duck.query(sql, {"t": [1]})
    duck._note_memory(1 << 30, False)
    duck._note_memory(2 << 30, True)
    victim, spared = (other, large) if takes else (large, other)
    with pytest.raises(MergeTooLarge):
        list(victim.batches())
    assert sum(batch.num_rows for batch in spared.batches()) >= 1


@pytest.mark.turn(3)
def test_a_query_that_is_dropped_unread_lets_its_process_go(duck):
    for _ in range(20):
        duck.query("select repeat('ab', 2) as c")
    assert pa.Table.from_batches(duck.query("select repeat('ab', 2) as c").batches()).num_rows == 1


def test_a_process_of_the_engine_knows_nothing_of_the_node(duck, monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    with open(tmp_path / "secret", "w") as held:
        os.set_inheritable(held.fileno(), True)
        list(duck.query("select repeat('ab', 2) as c").batches())
        process = psutil.Process(duck.started[0]._process.pid)
        assert "hunter2" not in str(process.environ())
        assert not [file for file in process.open_files() if "secret" in file.path]
    assert not process.net_connections(kind="inet")


NODE = """
import sys, time
from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.engines.apart.workers import Workers
from ballista_py.node.engine_processes import EngineProcess, own_bytes
from ballista_py.runtime import SystemRuntime
runtime = SystemRuntime()
started = []
workers = Workers(lambda: started.append(EngineProcess(None, runtime)) or started[-1], 1 << 30, own_bytes, runtime)
engine = DuckDBEngine(workers=workers, runtime=runtime)
running = engine.query(sys.argv[1])
print(started[0]._process.pid, flush=True)
list(running.batches())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the pipe that ends the process is Linux's")
def test_a_process_of_the_engine_ends_when_its_node_is_killed_whatever_it_does(tmp_path):
    command = [sys.executable, "-c", NODE, UNSTOPPABLE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "TMPDIR": str(tmp_path)}) as node:
        assert node.stdout is not None
        child = int(node.stdout.readline())
        assert psutil.pid_exists(child)
        node.kill()
        node.wait()
        until(lambda: not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE)


def test_a_change_runs_apart_and_says_what_it_did(duck):
    rows = pa.table({"id": pa.array(range(100_000), pa.int64()), "s": ["x"] * 100_000})
    with duck.change(
        "update t set s = repeat(s, 2) where id % 1000 = 1", "t", rows.to_reader(), {}, memory_limit="256MB"
    ) as changed:
        assert changed.affected == 100
        assert changed.gone.to_pylist() == list(range(1, 100_000, 1000))
        assert sorted(changed.come["id"].to_pylist()) == list(range(1, 100_000, 1000))
        assert set(changed.come["s"].to_pylist()) == {"xx"}
        assert changed.kept([(0, 2), (1000, 1002)]).read_all()["id"].to_pylist() == [0, 1000]
    assert len(duck.started) == 1
    with (
        pytest.raises(MergeTooLarge),
        duck.change("update t set s = repeat(s, 2000000000)", "t", rows.to_reader(), {}, memory_limit="256MB"),
    ):
        pass


@pytest.mark.parametrize(
    ("own_mb", "is_full", "pressed"), [(1_000, False, False), (1_025, True, False), (1_537, True, True)]
)
def test_a_node_is_full_when_it_takes_all_of_its_memory_and_pressed_when_it_takes_far_more(
    own_mb, is_full, pressed
):
    made = Workers(lambda: pytest.fail("no process"), 1 << 30, lambda: own_mb << 20, RUNTIME)
    made.tick()
    assert (made.budget.is_full, made.budget.ledger.pressed) == (is_full, pressed)


def batches_of(count, schema, made):
    """A stream of batches that counts those that were asked for."""
    taken = []

    def rows():
        for at in range(count):
            taken.append(at)
            yield made(at)

    return pa.RecordBatchReader.from_batches(schema, rows()), taken


def test_a_process_whose_change_failed_over_a_value_serves_the_next_statement(duck):
    schema = pa.schema([("id", pa.int64()), ("s", pa.string())])

    def batch(at):
        ids = pa.array(range(at * 1000, at * 1000 + 1000), pa.int64())
        return pa.record_batch({"id": ids, "s": ["x"] * 1000}, schema=schema)

    for _ in range(8):
        stream, taken = batches_of(100, schema, batch)
        with (
            pytest.raises(SqlError, match="out of range"),
            duck.change("update t set id = (id + 2147400000)::int", "t", stream, {}, memory_limit="256MB"),
        ):
            pass
        stream, taken = batches_of(100, schema, batch)
        with duck.change("delete from t where id % 2 = 0", "t", stream, {}, memory_limit="256MB") as changed:
            assert changed.affected == 50_000
            assert len(taken) == 100
    assert len(duck.started) == 1


@pytest.mark.turn(3)
@pytest.mark.parametrize("at", [0, 3_000, 60_000, 99_999])
def test_a_process_whose_query_failed_amid_its_rows_gives_none_of_them_to_the_next_one(duck, at):
    """Both streams have the same name, so a thread of the first statement would take rows of the second."""
    schema = pa.schema([("n", pa.int64())])

    def batch(number):
        return pa.record_batch({"n": pa.array(range(number * 100, number * 100 + 100), pa.int64())}, schema=schema)

    spoilt = f"select n, repeat('x', 2), case when a.n = {at} then error('spoilt') end from s a join r using (n)"
    sound = "select count(*) as c, sum(n) as n, max(repeat('x', 2)) as x from s join r using (n)"
    for sql in (spoilt, sound) * 5:
        streams = {name: batches_of(1000, schema, batch)[0] for name in ("s", "r")}
        running = duck.query(sql, streams=streams)
        if sql == spoilt:
            with pytest.raises(SqlError, match="spoilt"):
                list(running.batches())
        else:
            rows = pa.Table.from_batches(running.batches(), schema=running.schema)
            assert rows.to_pylist() == [{"c": 100_000, "n": 4_999_950_000, "x": "xx"}]
    assert len(duck.started) == 1


def test_rows_of_a_statement_that_is_over_are_asked_for_no_more():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        rows = RowsOfNode("t", Frames(ours, RUNTIME), RUNTIME.lock())
        Frames(theirs, RUNTIME).send_rows(ROWS.to_batches()[0])
        asked = rows.batches()
        assert next(asked).num_rows == 1000
        assert Frames(theirs, RUNTIME).receive() == {"need": "t"}
        rows.end()
        with pytest.raises(TransportError, match="over"):
            next(asked)
        theirs.setblocking(False)
        with pytest.raises(BlockingIOError):
            theirs.recv(1)


@pytest.mark.turn(3)
def test_processes_of_a_crowd_are_kept_for_the_next_one_and_end_when_none_comes(tmp_path, monkeypatch):
    pool, started = workers(tmp_path, max_bytes=4 << 30)
    duck = DuckDBEngine(workers=pool, runtime=RUNTIME)

    def crowd(count):
        running = [duck.query("select repeat('x', 2) as x") for _ in range(count)]
        for one in running:
            assert [rows["x"].to_pylist() for rows in one.batches()] == [["xx"]]

    crowd(5)
    many = len(started)
    assert many >= 5
    crowd(5)
    assert len(started) == many
    pool.tick()
    assert sum(map(alive, started)) == many
    monkeypatch.setattr("ballista_py.engines.apart.workers.SPARE_MS", 0.0)
    until(lambda: pool.tick() or sum(map(alive, started)) == MOST_IDLE)
    crowd(1)
    assert len(started) == many
    crowd(5)
    pool.max_bytes = own_bytes() // 2  # the node is full: one is kept
    until(lambda: pool.tick() or sum(map(alive, started)) == 1)
    duck.close()


def test_who_meets_busy_processes_waits_for_one_before_another_is_started(tmp_path):
    """A process takes a second of processor time to start, and longer when several do; most statements take less."""
    pool, started = workers(tmp_path, max_bytes=4 << 30)
    duck = DuckDBEngine(workers=pool, runtime=RUNTIME)
    said = []

    def ask():
        said.append([rows["x"].to_pylist() for rows in duck.query("select repeat('x', 2) as x").batches()])

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert said == [[["xx"]]] * 6
    assert len(started) == AT_ONCE

    began = time.monotonic()
    held = [duck.query("select repeat('x', 2) as x") for _ in range(AT_ONCE)]
    ask()  # whose turn comes when those have taken long
    assert time.monotonic() - began >= START_MS / 1000
    assert len(started) == AT_ONCE + 1
    del held
    duck.close()
