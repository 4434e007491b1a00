"""A statement that breaks DuckDB's database costs what was loaded, and nobody anything for longer than a moment."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.errors import BallistaError, NotOwner, TryLater
from ballista_py.storage.formats.local_file import RowsAtHand

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
        for broken in (binder._catalog({"t": SCHEMA}), binder._aside):
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
