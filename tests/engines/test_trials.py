"""What a statement ends is the process in which it is tried, once, before anybody reads it."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from ballista_py.engines.apart.sample_rows import sample_rows
from ballista_py.engines.apart.trials import AFTER_DEATH_MS, Trials
from ballista_py.engines.apart.workers import MOST_IDLE, MOST_SPARE, STEPS_BACK_MS, Workers
from ballista_py.engines.duckdb.binder import Binder
from ballista_py.errors import SqlError, TimeLimit
from ballista_py.node import engine_processes
from ballista_py.node.engine_processes import EngineProcess, own_bytes
from ballista_py.runtime import SystemRuntime
from ballista_py.transport.flight.commands import as_part, take_part
from ballista_py.work import Work, run_apart, runs_apart, working

RUNTIME = SystemRuntime()
SCHEMAS = {"t": pa.schema([("a", pa.int32()), ("b", pa.string()), ("c", pa.int32())])}
# DuckDB 2.0 fails inside over it: if a later one does not, another statement that breaks a database belongs here.
BREAKS = "select * from t x asof join t y on to_days(x.a) >= to_days(y.a)"


class Tries:
    """Counts what is tried; `understands` says what of it."""

    def __init__(self, understands=True):
        self.tried = []
        self.understands = understands

    def try_statement(self, sql, dialect, schemas, share, parameters=None):
        self.tried.append((sql, dialect, sorted(schemas)))
        return self.understands


def tables(marks, newer=None):
    return lambda as_of_now: (SCHEMAS, (newer or marks) if as_of_now else marks)


def test_what_is_plain_or_was_tried_is_not_tried():
    tries = Tries()
    trials = Trials(tries, RUNTIME)
    for text in ("select a from t where a = 1", "select [a] from t", "select [a] from t", "select [a], 1 from t"):
        trials.require_survived(text, None, tables({"t": "1"}))
    trials.require_survived("select [a], 2 from t", None, tables({"t": "1"}))
    assert [sql for sql, _, _ in tries.tried] == ["select [a] from t", "select [a], 1 from t"]


def test_a_statement_over_other_columns_or_in_another_dialect_is_another():
    tries = Tries()
    trials = Trials(tries, RUNTIME)
    for mark, dialect in (
        ("1", None),
        ("2", None),
        ("1", "spark"),
        ("1", "postgres"),
        ("1", "duckdb"),
        ("2", "spark"),
    ):
        trials.require_survived("select [a] from t", dialect, tables({"t": mark}))
    assert len(tries.tried) == 5  # duckdb is what None says


def test_no_statement_of_another_dialect_is_plain():
    tries = Tries()
    Trials(tries, RUNTIME).require_survived("select 1", "spark", tables({}))
    assert tries.tried


def test_a_table_that_is_new_is_looked_for():
    tries = Tries(understands=False)
    trials = Trials(tries, RUNTIME)
    trials.require_survived("select [a] from t", None, tables({}, {"t": "1"}))
    assert len(tries.tried) == 2
    trials.require_survived("select [a] from t", None, tables({"t": "1"}))
    assert len(tries.tried) == 2
    trials.require_survived("select [b] from t", None, tables({"t": "1"}))
    assert len(tries.tried) == 3


def test_who_ends_processes_does_so_rarely():
    class Deadly(Tries):
        def try_statement(self, *_):
            raise SqlError("ended")

    class Noted(SystemRuntime):
        slept_ms = 0.0

        def sleep_ms(self, duration_ms):
            self.slept_ms += duration_ms

    runtime = Noted()
    with pytest.raises(SqlError):
        Trials(Deadly(), runtime).require_survived("select [1]", None, tables({}))
    assert runtime.slept_ms >= AFTER_DEATH_MS


@pytest.fixture
def started(tmp_path):
    return []


@pytest.fixture
def workers(tmp_path, started):
    def start():
        started.append(EngineProcess(str(tmp_path), RUNTIME))
        return started[-1]

    made = Workers(start, 1 << 30, own_bytes, RUNTIME)
    yield made
    made.close()


@pytest.fixture
def failing(monkeypatch, workers):
    here = os.path.dirname(__file__)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([here, *sys.path]))
    monkeypatch.setattr(engine_processes, "MODULE", "process_that_fails")
    return workers


def test_a_statement_is_run_over_a_few_rows(workers, started):
    assert workers.try_statement("select [a, c] from t", None, SCHEMAS)
    assert workers.try_statement("select nvl(a, 1) as `x` from t", "spark", SCHEMAS)
    assert workers.try_statement("update t set b = upper(b) where a = ?", None, SCHEMAS)
    assert not workers.try_statement("select [nosuch] from t, u", None, SCHEMAS)
    assert workers.try_statement("select [max(x.c)] from t x, t y", None, SCHEMAS)
    assert len([process for process in started if process.returncode() is None]) == 1


def test_what_breaks_a_database_breaks_that_of_its_process(workers):
    for text in (BREAKS, f"explain {BREAKS}", f"insert into t {BREAKS.replace('*', 'x.*')}"):
        with pytest.raises(SqlError, match="the engine itself fails over this statement"):
            workers.try_statement(text, None, SCHEMAS)
    assert workers.try_statement("select [a] from t", None, SCHEMAS)


CATALOG = pa.schema([("ordinal_position", pa.int32())])
# DuckDB fails inside where this becomes text.
MOMENT = "make_timestamp(-9223372036854775807 - {})::varchar"


@pytest.mark.turn(3)
@pytest.mark.parametrize(
    "text",
    [
        f"/**/ insert into t {BREAKS.replace('*', 'x.*')}",
        f"-- a\nwith u as ({BREAKS.replace('*', 'x.*')}) insert into t from u",
        f"insert overwrite t {BREAKS.replace('*', 'x.*')}",
        f"create table u as {BREAKS.replace('*', 'x.*')}",
        f"create or replace table u partitioned by (bucket(2, a)) as {BREAKS.replace('*', 'x.*')}",
        f"/**/ describe {BREAKS}",
        BREAKS.replace("t x", "information_schema.columns x").replace("t y", "information_schema.columns y")
        .replace("x.a", "x.ordinal_position").replace("y.a", "y.ordinal_position"),
        f"select * from t where c = ? and b <> {MOMENT.format('[a][1]')}",
        f"select {MOMENT.format('[?][1]')} from t",
        f"update t set b = {MOMENT.format('[?][1]')}",
        f"pivot ({BREAKS.replace('*', 'x.*')}) on a",
        f"pivot t on a || ({BREAKS.replace('*', 'count(*)')}) using count(*)",
        f"with w as ({BREAKS.replace('*', 'x.*')}) pivot w on a, b",
        f"insert into t pivot ({BREAKS.replace('*', 'x.*')}) on a",
        f"explain pivot ({BREAKS.replace('*', 'x.*')}) on a",
        f"create table u (a int default 1, check (b <> {MOMENT.format('a')} || '['), b varchar)",
    ],
)  # fmt: skip
def test_all_that_an_engine_computes_of_a_statement_is_tried(workers, text):
    with pytest.raises(SqlError, match="the engine itself fails over this statement"):
        workers.try_statement(text, None, {**SCHEMAS, "information_schema.columns": CATALOG})


@pytest.mark.turn(3)
@pytest.mark.parametrize(
    "text",
    [
        "/**/ insert into t select a, b, c from t",
        "select [a] from t where b = ? and c = $2",
        "create table u (a int check (a > 0), b varchar default 'x', c date not null) partitioned by (bucket(2, a))",
        "create table u (a int primary key, b int[])",
        "create table u as select [a] from t",
        "create table u (like t)",
        "alter table t alter a type bigint",
        "alter table t set (file_format = 'vortex')",
        "comment on column t.a is 'x'",
        "truncate t",
        "drop table t, u",
        "copy t from 'a.csv'",
        "select table_name from information_schema.columns where ordinal_position = ?",
        "show tables",
        "pivot t on a using max(b)",
        "create table u as from (pivot t on a, c in (1) using max(b))",
    ],
)
def test_statements_that_are_right_are_understood(workers, started, text):
    columns = pa.schema([("table_name", pa.string()), ("ordinal_position", pa.int32())])
    assert workers.try_statement(text, None, {**SCHEMAS, "information_schema.columns": columns})
    assert len(started) == 1
    assert started[0].returncode() is None


# It breaks over intervals, and over nothing that the text alone lets guess.
OVER_INTERVALS = "select 1 from (select $1 as v) x asof join (select $1 as v) y on x.v >= y.v"


@pytest.mark.turn(3)
@pytest.mark.parametrize("kind", [pa.duration("us"), pa.duration("s"), pa.month_day_nano_interval()])
def test_values_of_other_types_are_another_statement(workers, kind):
    given = pa.schema([("1", kind)])
    assert workers.try_statement(OVER_INTERVALS, None, SCHEMAS)
    assert workers.try_statement(OVER_INTERVALS, None, SCHEMAS, parameters=pa.schema([("1", pa.int64())]))
    with pytest.raises(SqlError, match="the engine itself fails over this statement"):
        Trials(workers, RUNTIME).require_survived(OVER_INTERVALS, None, tables({"t": "1"}), given)


@pytest.mark.parametrize(
    "kind",
    [pa.duration("us"), pa.list_(pa.int64()), pa.binary(), pa.struct([("a", pa.int8())]), pa.decimal256(50)],
)
def test_a_plain_text_with_values_that_are_not_is_tried(kind):
    tries = Tries()
    trials = Trials(tries, RUNTIME)
    plain = pa.schema([("1", pa.int64()), ("2", pa.string()), ("3", pa.date32()), ("4", pa.null())])
    trials.require_survived("select ?, ?, ?, ? from t", None, tables({"t": "1"}), plain)
    assert not tries.tried
    for _ in range(2):
        trials.require_survived("select ? from t", None, tables({"t": "1"}), pa.schema([("1", kind)]))
    assert len(tries.tried) == 1


@pytest.mark.turn(3)
@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("select [nosuch] from t", None),
        ("select [date_trunc(b, current_date)] from t", None),  # of other rows it may be something
        ("select [count(*)] from range(100000000000) r(i), t where i % 2 = 3", None),
        ("select [?] from t", pa.schema([("1", pa.int64()), ("2", pa.int64())])),
        ("select [date_trunc(?, current_date)] from t", pa.schema([("1", pa.string())])),
    ],
)
def test_what_could_not_be_tried_to_its_end_runs_apart(workers, text, given):
    for trials in (Trials(workers, RUNTIME),) * 2:
        for sql, is_apart in ((text, True), ("select [a] from t", False), (text, True)):
            with working(Work(RUNTIME)):
                trials.require_survived(sql, None, tables({"t": "1"}), given if sql == text else None)
                assert runs_apart() == is_apart


def test_what_runs_apart_does_so_at_other_nodes(workers):
    binder = Binder(RUNTIME)
    plain, there = binder.check("select a from t", SCHEMAS), Work(RUNTIME)
    with working(Work(RUNTIME)):
        assert not plain.is_apart(SCHEMAS.values())
        run_apart()
        assert plain.is_apart(SCHEMAS.values())
        sent = as_part({"kind": "leg"})
    take_part(there, {"kind": "leg"})
    assert not there.is_apart
    take_part(there, sent)
    with working(there):
        assert runs_apart()
    binder.close()


def test_what_ends_a_process_is_refused(failing, started):
    for text in ("select 'ends the process'", "select 'breaks the database'"):
        with pytest.raises(SqlError, match="write it in another way"):
            failing.try_statement(text, None, SCHEMAS)
    assert failing.try_statement("select [a] from t", None, SCHEMAS)
    assert started[0].returncode() == -11


def test_what_is_read_for_ever_ends_by_itself(failing):
    with pytest.raises(SqlError, match=r"took more than \d+ s: make it smaller"):
        failing.try_statement("select 'never comes back'", None, SCHEMAS)


def test_what_is_read_for_ever_ends_with_its_work(failing, started):
    work = Work(RUNTIME)
    work.limit_to(300)
    with working(work), pytest.raises(TimeLimit):
        failing.try_statement("select 'never comes back'", None, SCHEMAS)
    assert failing.try_statement("select [a] from t", None, SCHEMAS)


def test_a_trial_that_takes_long_steps_back(failing, started):
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(failing.try_statement, "select 'never comes back'", None, SCHEMAS)
        while not (started and failing._busy):
            RUNTIME.sleep_ms(5)
        pid = started[0]._process.pid
        assert os.getpriority(os.PRIO_PROCESS, pid) == os.getpriority(os.PRIO_PROCESS, 0)
        failing._busy[0].since_ms -= STEPS_BACK_MS
        failing.tick()
        assert os.getpriority(os.PRIO_PROCESS, pid) >= engine_processes.BESIDE
        with pytest.raises(SqlError):
            asked.result()


@pytest.mark.turn(3)
@pytest.mark.parametrize("steps_back", [True, False])
def test_processes_do_not_pile_up(workers, started, steps_back, monkeypatch):
    for number in range(6):
        workers.try_statement(f"select [a], {number} from t", None, SCHEMAS)
        if steps_back:
            worker = workers._acquire(1 << 20, 1, is_trial=True)
            worker.beside = True
            workers._release(worker, True)
    assert len(workers._idle) <= MOST_SPARE
    monkeypatch.setattr("ballista_py.engines.apart.workers.SPARE_MS", 0.0)
    workers.tick()
    assert len(workers._idle) <= 2 * MOST_IDLE
    kept = [worker.process for worker in workers._idle]
    for process in started:
        if process not in kept:
            process._process.wait(60)


@pytest.mark.turn(3)
def test_long_statements_take_no_place_of_trials(workers, monkeypatch):
    monkeypatch.setattr("ballista_py.engines.apart.workers.AT_ONCE", 8)  # none of these is ever asked
    busy = [workers._acquire(1 << 20, 1) for _ in range(8)]
    assert workers.try_statement("select [a] from t", None, SCHEMAS)
    for worker in busy:
        worker.end(None)
        workers._release(worker, False)


@pytest.mark.parametrize(
    "kind",
    [
        pa.int8(), pa.uint64(), pa.float16(), pa.float64(), pa.bool_(), pa.string(), pa.large_string(), pa.binary(),
        pa.binary(3), pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us"), pa.timestamp("us"),
        pa.timestamp("ns", "UTC"), pa.timestamp("s"), pa.decimal128(38, 10), pa.decimal256(50, 0),
        pa.month_day_nano_interval(), pa.duration("us"), pa.list_(pa.int32()), pa.list_(pa.string(), 2),
        pa.struct([("x", pa.list_(pa.date32()))]), pa.map_(pa.string(), pa.int64()), pa.null(), pa.uuid(),
        pa.string_view(), pa.dictionary(pa.int8(), pa.string()),
    ],
    ids=str,
)  # fmt: skip
def test_rows_are_made_of_every_type(kind):
    rows = sample_rows(pa.schema([("x", kind)]), 2)
    assert rows.num_rows == 2
    assert rows.schema.field("x").type == kind
