"""Statements run as a whole: what went and came is told exactly, by the places that rows had in the stream."""

import pyarrow as pa
import pytest

from ballista_py.engines.duckdb.change import run_change
from ballista_py.errors import SqlError

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


GIVEN = {"id": [2, 3, 3], "v": ["x", "y", "z"]}


def test_rows_meet_by_the_key_and_what_is_returned_comes_along():
    rows = pa.table({"id": [1, 2], "v": ["a", "b"]}, schema=SCHEMA).to_reader()
    given = {"r ": pa.table(GIVEN, schema=SCHEMA).to_reader()}
    sql = 'insert into t from "r " on conflict (id) do update set v = excluded.v || t.v returning id, v'
    with run_change(sql, "t", rows, given, key=["id"], returning=True) as changed:
        assert (changed.affected, changed.gone.to_pylist()) == (2, [1])
        assert sorted(changed.come["id"].to_pylist()) == [2, 3]
        assert sorted(map(str, changed.returned.to_pylist())) == ["{'id': 2, 'v': 'xb'}", "{'id': 3, 'v': 'y'}"]


@pytest.mark.parametrize("empty", [False, True])
def test_a_change_that_gives_no_row_has_columns_all_the_same(empty):
    rows = stream(0 if empty else 10)
    with run_change("delete from t where id > 50 returning id, v as w", "t", rows, {}, returning=True) as changed:
        assert (changed.affected, changed.returned.schema.names) == (0, ["id", "w"])


@pytest.mark.parametrize(
    "sql",
    [
        "merge into t using (select 1 as id) s on t.id = s.id when matched then error",
        "merge into t using (select 1 as id) s on t.id = s.id when matched then error 'a message'",
        "delete from t returning (select getenv('HOME'))",
        "delete from t returning getenv('HOME')",
        "merge into t using (select 1 as id) s on t.id = s.id when matched then error getenv('HOME')",
        "merge into t using (select 1 as id) s on t.id = s.id when matched then error 'x' || getenv('HOME')",
        "merge into t using (select 1 as id) s on t.id = s.id when matched then error (select content from "
        "read_text('/etc/hostname'))",
        "merge into t using (select 99 as id) s on t.id = s.id when matched then error getenv('HOME')",
        "insert into t values (1, 'a') on conflict (id) do update set v = getenv('HOME')",
    ],
)
def test_what_fails_or_must_not_be_computed_does_nothing(sql):
    with pytest.raises(SqlError), run_change(sql, "t", stream(10), {}, key=["id"], returning="returning" in sql):
        pass


@pytest.mark.parametrize("sql", ["update t set v = 'x' returning v, v, id", "delete from t returning v, v, id"])
def test_what_is_returned_has_the_names_that_a_query_gives(sql):
    with run_change(sql, "t", stream(3), {}, returning=True) as changed:
        assert changed.returned.column_names == ["v", "v", "id"]


def test_errors_name_types_as_sql_does():
    with (
        pytest.raises(SqlError, match=r"'to INT64' to BIGINT"),
        run_change("update t set id = 'to INT64'", "t", stream(3), {}),
    ):
        pass
