"""Statements over large values: decided from what is read, run apart in small vectors, with the same answers."""

from __future__ import annotations

import os

import pyarrow as pa
import pytest

from ballista_py.engines.apart.conversation import ApartQuery
from ballista_py.engines.apart.large import (
    BATCH_ROWS,
    UNKNOWN_BYTES,
    LargeByFile,
    LargeInputs,
    largest_given,
    said_largest,
    way_of,
    with_largest,
)
from ballista_py.engines.apart.workers import Options, Workers
from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.engines.polars.engine import PolarsEngine
from ballista_py.node.engine_processes import EngineProcess, own_bytes
from ballista_py.partitions.value_sizes import LargeValues
from ballista_py.runtime import SystemRuntime
from ballista_py.storage.formats.files import RowsAtHand

RUNTIME = SystemRuntime()
TWENTY_OF_EIGHT_MB = LargeInputs(LargeValues({23: 20}))
PLAIN = {"copies": 0, "growth": 1, "joined": False, "threads": 2}


def test_small_values_are_nobodys_business():
    assert way_of(LargeInputs(), copies=2_080, growth=64, joined=True, threads=64).batch_rows == BATCH_ROWS
    assert not way_of(LargeInputs(), copies=2_080, growth=64, joined=True, threads=64).apart


@pytest.mark.parametrize(
    ("given", "more", "apart"),
    [
        (TWENTY_OF_EIGHT_MB, {}, False),
        (TWENTY_OF_EIGHT_MB, {"copies": 1}, True),
        (TWENTY_OF_EIGHT_MB, {"copies": 1, "rows": 1}, False),
        (TWENTY_OF_EIGHT_MB, {"joined": True}, True),
        (LargeInputs(LargeValues({14: 10**9})), {"copies": 1}, False),
        (LargeInputs(LargeValues({14: 10**9})), {"copies": 15, "growth": 5}, True),
        (LargeInputs(LargeValues({24: 1})), {"copies": 3}, False),
        (LargeInputs(LargeValues({24: 1})), {"copies": 3, "joined": True}, True),
        (LargeInputs(unknown=UNKNOWN_BYTES), {}, True),
        (LargeInputs(unknown=8_192), {"copies": 1}, False),
    ],
)
def test_what_runs_apart(given, more, apart):
    assert way_of(given, **{**PLAIN, **more}).apart is apart


def test_batches_of_large_values_have_few_rows():
    assert way_of(TWENTY_OF_EIGHT_MB, **PLAIN).batch_rows == 2
    assert way_of(TWENTY_OF_EIGHT_MB, **{**PLAIN, "growth": 5}).batch_rows == 1
    assert way_of(LargeInputs(LargeValues({23: 1})), **PLAIN).batch_rows == BATCH_ROWS  # one outlier


def test_an_answer_says_how_large_its_values_may_be():
    schema = pa.schema([("x", pa.string())])
    assert said_largest(schema) == 0
    assert with_largest(schema, 0) is schema
    assert said_largest(with_largest(schema, 1 << 23)) == 1 << 23
    assert said_largest(pa.schema([("x", pa.int64())], {b"ballista largest value": b"9"})) == 0
    assert said_largest(schema.with_metadata({b"ballista largest value": b"no number"})) == UNKNOWN_BYTES
    assert said_largest(schema.with_metadata({b"ballista largest value": b"9" * 5_000})) == UNKNOWN_BYTES
    assert largest_given(LargeInputs(), 5, steady=True) == 5 * 4_096
    assert largest_given(TWENTY_OF_EIGHT_MB, 1, steady=True) == 1 << 23
    assert largest_given(LargeInputs(), 1, steady=False) == UNKNOWN_BYTES


def test_files_are_forgotten_and_columns_get_other_names():
    files = LargeByFile()
    files.note(1, pa.record_batch({"a": ["x" * 9_000], "n": [1]}))
    files.note(1, pa.record_batch({"a": ["x" * 9_000], "n": [1]}))
    files.note(2, pa.record_batch({"a": ["x"], "n": [1]}))
    assert files.of([1, 2], ["a", "n"]) == {"a": LargeValues({14: 2})}
    assert files.of([2], ["a"]) == {}
    assert files.under(["b", "n"]).of([1], ["b"]) == {"b": LargeValues({14: 2})}
    files.forget(1)
    assert files.of([1], ["a"]) == {}


LARGE = pa.table(
    {
        "id": pa.array(range(40), pa.int64()),
        "x": [os.urandom(4).hex() * 1_000_000 if n % 2 else None for n in range(40)],
        "s": [f"s{n}" for n in range(40)],
    }
)


@pytest.fixture(scope="module", params=["duckdb", "polars"])
def engine(request, tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("processes"))
    workers = Workers(
        lambda: EngineProcess(folder, RUNTIME), 4 << 30, own_bytes, RUNTIME, Options(kind=request.param, threads=2)
    )
    if request.param == "duckdb":
        made = DuckDBEngine(threads=2, keeps_order=False, workers=workers, runtime=RUNTIME)
    else:
        made = PolarsEngine(workers=workers, runtime=RUNTIME)
    made.create_table("w", LARGE.schema)
    made.load("w", [RowsAtHand(file_id=1, rows=LARGE[:25]), RowsAtHand(file_id=2, rows=LARGE[25:])])
    made.load("w", [RowsAtHand(file_id=3, rows=LARGE)])  # of no statement
    yield made
    made.close()


DUCKDB = pytest.mark.parametrize("engine", ["duckdb"], indirect=True)


def rows_of(engine, sql):
    running = engine.query(sql, {"w": [1, 2]})
    return running, [row for batch in running.batches() for row in batch.to_pylist()]


def test_what_copies_large_values_runs_apart_and_says_the_same(engine):
    running, rows = rows_of(engine, "select id, x || x as y, s from w where id < 9")
    assert isinstance(running, ApartQuery)
    assert said_largest(running.schema) == 2 << 23
    assert sorted(rows, key=lambda row: row["id"]) == [
        {"id": n, "y": x.as_py() and x.as_py() * 2, "s": f"s{n}"} for n, x in enumerate(LARGE["x"][:9])
    ]


def test_batches_stay_small_where_the_answer_is_large(engine):
    running = engine.query("select x from w", {"w": [1, 2]})
    batches = list(running.batches())
    assert sum(batch.num_rows for batch in batches) == 40
    assert max(batch.nbytes for batch in batches) < 40 << 20


@pytest.mark.parametrize("sql", ["select id, s from w order by s", "select s, count(*) as c from w group by s"])
def test_columns_that_are_not_read_do_not_count(engine, sql):
    assert not isinstance(rows_of(engine, sql)[0], ApartQuery)


@DUCKDB
def test_one_row_by_its_key_is_read_in_the_node(engine):
    running, rows = rows_of(engine, "select upper(x) as x from w where id = 7")
    assert not isinstance(running, ApartQuery)
    assert rows == [{"x": LARGE["x"][7].as_py().upper()}]


@DUCKDB
def test_a_stream_of_large_values_is_merged_apart(engine):
    schema = with_largest(pa.schema([("x", pa.string())]), 1 << 23)
    reader = pa.RecordBatchReader.from_batches(schema, iter([pa.record_batch({"x": ["ab"]})]))
    running = engine.query("select upper(x) as x from q order by 1", streams={"q": reader})
    assert isinstance(running, ApartQuery)
    assert [batch.to_pylist() for batch in running.batches()] == [[{"x": "AB"}]]


@DUCKDB
def test_a_batch_of_several_messages_is_asked_for_one_by_one(engine):
    """Otherwise the process is sent what it does not wait for, while it sends what the node does not wait for."""
    wide = pa.record_batch({"x": [os.urandom(500_000).hex() for _ in range(40)]})
    reader = pa.RecordBatchReader.from_batches(wide.schema, iter([wide] * 4))
    running = engine.query("select repeat(x, 2) as x from q", streams={"q": reader})
    assert sum(batch.num_rows for batch in running.batches()) == 160
