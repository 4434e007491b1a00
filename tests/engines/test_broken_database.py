"""A statement that breaks DuckDB's database costs what was loaded, and nobody anything for longer than a moment."""

from __future__ import annotations

import random
import resource
import shutil
from contextlib import contextmanager, suppress

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ballista_py.engines.duckdb import engine as engines
from ballista_py.engines.duckdb import tables
from ballista_py.engines.duckdb.broken_database import SUSPECT_MS, Offenders
from ballista_py.engines.duckdb.engine import DuckDBEngine, spill_bytes
from ballista_py.engines.duckdb.query import ENDLESS_MS
from ballista_py.errors import BallistaError, MergeTooLarge, NotOwner, TryLater
from ballista_py.runtime import SystemRuntime
from ballista_py.storage.formats.files import LocalFile, RowsAtHand
from ballista_py.work import Work, working

SCHEMA = pa.schema([("us", pa.int64())])
LOWEST = pa.table({"us": [-(2**63), 1]}, schema=SCHEMA)
POISON = "select make_timestamp(us)::varchar as text from t"  # an assertion in DuckDB 2.0 fails


@pytest.fixture(params=["memory", "file"])
def engine(request, tmp_path):
    made = DuckDBEngine(str(tmp_path / "engine") if request.param == "file" else None, threads=1)
    yield made
    made.close()


def load(engine, file_id=1):
    engine.create_table("t", SCHEMA)
    return engine.load("t", [RowsAtHand(file_id=file_id, rows=LOWEST)])


def rows(engine, sql="select us from t", file_id=1):
    return pa.Table.from_batches(engine.query(sql, scans={"t": [file_id]}).batches()).num_rows


def break_it(engine):
    with pytest.raises(BallistaError, match="The engine failed on this statement"):
        rows(engine, POISON)


def test_an_engine_begins_anew_and_says_so(engine):
    load(engine)
    assert rows(engine) == 2
    break_it(engine)
    with pytest.raises(NotOwner, match="begins anew after a failure: plan the query again"):
        rows(engine)
    with pytest.raises(TryLater, match="begins anew"):
        engine.load("t", [RowsAtHand(file_id=2, rows=LOWEST)])
    for _ in range(3):
        engine.watch()
    assert engine.begun == 1
    assert pa.Table.from_batches(engine.query("select 1 as one").batches()).num_rows == 1
    with pytest.raises(NotOwner, match="not loaded here"):
        rows(engine)
    assert load(engine, 3) == 2
    assert rows(engine, file_id=3) == 2


@contextmanager
def files_of_at_most(limit):
    """No file of this process can grow beyond the limit, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_an_engine_whose_disk_was_full_begins_anew_and_holds_rows_when_there_is_room(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "MIN_LOOSE_BYTES", 1)
    monkeypatch.setattr(tables, "MAX_LOOSE_BYTES", 1)
    folder = tmp_path / "engine"
    engine = DuckDBEngine(str(folder), threads=1)
    many = pa.table({"us": range(400_000)}, schema=SCHEMA)
    engine.create_table("t", SCHEMA)
    engine.load("t", [RowsAtHand(file_id=1, rows=many)])
    for begun in (1, 2):
        with files_of_at_most(300_000), pytest.raises(BallistaError) as full:
            engine.tidy()
        assert str(tmp_path) not in full.value.message
        with pytest.raises(NotOwner, match="begins anew"):
            rows(engine)
        with pytest.raises(TryLater, match="begins anew"):
            engine.load("t", [RowsAtHand(file_id=2, rows=LOWEST)])
        engine.watch()
        assert engine.begun == begun
        assert not list(folder.glob(f"engine{begun - 1 or ''}.duckdb*"))
        engine.create_table("t", SCHEMA)
        assert engine.load("t", [RowsAtHand(file_id=1, rows=many)]) == 400_000
        engine.tidy()
        assert rows(engine) == 400_000
        engine.watch()
        assert engine.begun == begun
        engine.load("t", [RowsAtHand(file_id=begun + 9, rows=many)])
    engine.close()


def test_an_engine_that_cannot_be_opened_anew_is_opened_when_there_is_room(tmp_path, monkeypatch):
    monkeypatch.setattr(engines, "OPEN_AGAIN_MS", 0.0)
    folder = tmp_path / "engine"
    engine = DuckDBEngine(str(folder), threads=1)
    load(engine)
    break_it(engine)
    with files_of_at_most(1):
        for _ in range(3):
            engine.watch()
            assert engine.begun == 0
            with pytest.raises(NotOwner, match="begins anew"):
                rows(engine)
            with pytest.raises(TryLater, match="begins anew"):
                engine.load("t", [RowsAtHand(file_id=2, rows=LOWEST)])
    engine.watch()
    assert engine.begun == 1
    assert load(engine) == 2
    assert rows(engine) == 2
    engine.close()


def test_a_file_that_finds_no_room_is_told_by_name_and_costs_nothing(tmp_path):
    engine = DuckDBEngine(str(tmp_path / "engine"), threads=1)
    draw = random.Random(1)
    wide = pa.table({"us": [draw.randrange(-(2**62), 2**62) for _ in range(300_000)]}, schema=SCHEMA)
    engine.create_table("t", SCHEMA)
    path = tmp_path / "rows.parquet"
    pq.write_table(wide, path)
    with files_of_at_most(100_000), pytest.raises(MergeTooLarge, match="no disk space left"):
        engine.load("t", [LocalFile(file_id=1, path=str(path))])
    engine.watch()
    assert engine.begun == 0
    assert engine.load("t", [LocalFile(file_id=1, path=str(path))]) == 300_000
    engine.close()


def test_no_more_is_spilled_than_leaves_room_for_rows(tmp_path):
    assert spill_bytes(str(tmp_path), 1 << 60) <= shutil.disk_usage(tmp_path).total // 2


def test_it_does_so_again_and_again(engine):
    for begun in range(1, 4):
        load(engine)
        break_it(engine)
        engine.watch()
        assert engine.begun == begun


def test_a_query_under_way_ends_whole_or_is_told_to_be_planned_again(engine):
    engine.create_table("t", SCHEMA)
    many = pa.table({"us": range(400_000)}, schema=SCHEMA)
    engine.load("t", [RowsAtHand(file_id=1, rows=LOWEST), RowsAtHand(file_id=2, rows=many)])
    batches = engine.query("select us from t", scans={"t": [1, 2]}).batches()
    count = next(batches).num_rows
    break_it(engine)
    engine.watch()
    try:
        count += sum(batch.num_rows for batch in batches)
        assert count == 400_002
    except NotOwner:
        pass


def test_what_binds_statements_is_made_anew_for_the_next_one(engine):
    binder = engine._binder
    for _ in range(2):
        for broken in (binder._tables.holding({"t": SCHEMA}), binder._aside):
            broken.register("lowest", LOWEST)
            with pytest.raises(duckdb.InternalException):
                broken.execute("select make_timestamp(us)::varchar from lowest").fetchall()
        engine.watch()
        assert engine.describe("select us + 1 as more from t", {"t": SCHEMA}).names == ["more"]


def test_an_engine_that_works_is_left_as_it_is(engine):
    load(engine)
    with pytest.raises(BallistaError):
        rows(engine, "select us / 'x' from t")
    engine.watch()
    assert (engine.begun, rows(engine)) == (0, 2)


def failure(words="INTERNAL Error: it broke"):
    return duckdb.InternalException(words)


def test_a_kind_of_statement_that_broke_a_database_runs_apart_whoever_sends_it():
    offenders = Offenders(SystemRuntime())
    offenders.note("select f(n) + 1 from t where a = 'x'", "alice", failure())
    assert offenders.may_break("select f(n) + 2 from t where a = 'yy'", "bob")
    assert not offenders.may_break("select g(n) + 2 from t where a = 'yy'", "bob")
    offenders.note("select h(n) from t", "bob", failure("FATAL Error: the database has been invalidated"))
    assert not offenders.may_break("select h(n) from t", "bob")  # who met it broken did not break it


def test_who_broke_a_database_has_all_that_is_out_of_the_ordinary_run_apart_for_a_while():
    class Clock(SystemRuntime):
        now_ms = 0.0

        def monotonic_ms(self):
            return self.now_ms

    clock = Clock()
    offenders = Offenders(clock)
    assert not offenders.may_break("select [n] from t", "alice")
    offenders.note("select f(n) from t", "alice", failure())
    assert offenders.may_break("select [n] from t", "alice")
    assert not offenders.may_break("select n from t where n = 5", "alice")
    assert not offenders.may_break("select [n] from t", "bob")
    clock.now_ms = SUSPECT_MS
    assert not offenders.may_break("select [n] from t", "alice")
    assert offenders.may_break("select f(n) from t", "alice")


def test_whose_statement_goes_on_after_it_was_stopped_has_everything_run_apart():
    class Clock(SystemRuntime):
        now_ms = 0.0

        def monotonic_ms(self):
            return self.now_ms

    clock = Clock()
    engine = DuckDBEngine(threads=1, runtime=clock)
    load(engine)
    with working(Work(clock, client="alice")):
        query = engine.query("select md5(us::varchar) from t", {"t": [1]})
    batches = query.batches()

    def look(later_ms):
        clock.now_ms += later_ms
        engine.watch()
        return engine._offenders.may_break("select 1", "alice")

    next(batches)
    query.cancel()
    assert [look(0), look(2 * ENDLESS_MS)] == [False, False]  # it waits for its reader
    query._computes = True  # as it is inside of a function that nothing interrupts
    assert [look(0), look(ENDLESS_MS)] == [False, True]
    assert not engine._offenders.may_break("select 1", "bob")
    assert engine._offenders.may_break("select md5(us::varchar) from t", "bob")
    with suppress(BallistaError):
        list(batches)
    assert not query.is_endless(clock.now_ms)
    assert [look(SUSPECT_MS - 1), look(1)] == [True, False]
    engine.close()


def test_whatever_meets_a_broken_database_is_told_to_plan_again(monkeypatch):
    monkeypatch.setattr(engines, "streams_little", lambda *_: True)
    engine = DuckDBEngine(threads=1)
    load(engine)
    break_it(engine)
    for _ in range(2):
        with pytest.raises(NotOwner, match="begins anew"):
            engine.query("select 1 as one")
    engine.close()
