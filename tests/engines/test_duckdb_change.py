"""Statements run as a whole: what went and came is told exactly, by the places that rows had in the stream."""

import pyarrow as pa

from ballista_py.engines.duckdb_change import run_change

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])


def stream(count: int, size: int = 10_000) -> pa.RecordBatchReader:
    rows = pa.table({"id": range(count), "v": [f"v{n % 7}" for n in range(count)]}, schema=SCHEMA)
    return rows.to_reader(size)


def test_places_are_those_of_the_stream_however_many_rows_there_are():
    with run_change("delete from t where id % 1000 = 1", "t", stream(400_000), {}) as changed:
        assert changed.affected == 400
        assert changed.gone.to_pylist() == [n for n in range(400_000) if n % 1000 == 1]
        assert changed.come.num_rows == 0
        kept = changed.kept([(0, 2_000), (399_000, 400_000)]).read_all()
    assert sorted(kept["id"].to_pylist()) == [
        n for n in (*range(2_000), *range(399_000, 400_000)) if n % 1000 != 1
    ]


def test_an_updated_row_goes_as_it_was_and_comes_as_it_is():
    with run_change("update t set v = 'new' where id in (3, 70000)", "t", stream(100_000), {}) as changed:
        assert changed.gone.to_pylist() == [3, 70_000]
        assert sorted(changed.come.to_pylist(), key=lambda row: row["id"]) == [
            {"id": 3, "v": "new"},
            {"id": 70_000, "v": "new"},
        ]


def test_an_update_that_changes_nothing_touches_nothing():
    with run_change("update t set v = v", "t", stream(1_000), {}) as changed:
        assert (changed.affected, len(changed.gone), changed.come.num_rows) == (1_000, 0, 0)


def test_rows_that_are_alike_are_told_apart():
    rows = pa.table({"id": [1, 1, 1], "v": ["a", "a", "a"]}, schema=SCHEMA).to_reader()
    with run_change("insert into t values (1, 'a'), (2, 'b')", "t", rows, {}) as changed:
        assert len(changed.gone) == 0
        assert sorted(changed.come["id"].to_pylist()) == [1, 2]
