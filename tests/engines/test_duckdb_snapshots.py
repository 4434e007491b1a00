"""A statement means the same whichever way its tables are shown to it, and whatever is loaded while it is bound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.engines.duckdb.tables import HeldTables
from ballista_py.engines.same_answer import difference
from ballista_py.errors import NotOwner, SqlError
from ballista_py.storage.formats.files import RowsAtHand

ROWS = pa.table({"k": [1, 2, 3, 4], "s": ["1", "2", "x", None], "Mixed Case": [1.5, None, 2.5, 3.5]})
MEANING = [
    "select * from t",
    "select k, s from T where k > 1 order by k desc limit 2",
    "select a.k, b.k as other from t a join t b on a.k < b.k",
    'select t.*, "Order By"."Mixed Case" as m from t left join "Order By" using (k)',
    'select k from t union all select k from "Order By" order by 1',
    "select (select max(b.k) from t b where b.k < t.k) as below, exists (from t c where c.k = t.k + 1) as e from t",
    "select * from (with t as (select 7 as k) select * from t) x, t",
    "select * from (with c as (from t) select c.k, d.s from c, c as d)",
    "select count(*) as n, sum(k) filter (where s = '1') as m from t group by s having count(*) > 0",
    "select columns('k|s') from t qualify row_number() over (order by k) = 1",
    "select x.k, y.k as z from t x, lateral (select k + x.k as k from t where t.k <= x.k) y",
    "select * exclude (s) replace (k + 1 as k) from t",
    "select unnest([k, k + 1]) as u from t",
    "select k from t intersect select k from t where k in (select k from t where s is not null)",
    "select r.n, t.k from r join t on r.n = t.k",
]


@pytest.fixture(params=[[1], [1, 2], [1, 2, 3, 4], [1, 3], [1, 3, 5, 7], []], ids=str)
def scans(request: Any) -> dict[str, list[int]]:
    return {"t": request.param, "Order By": [1]}


@pytest.fixture
def engine() -> Any:
    made = DuckDBEngine(threads=1)
    for table in ("t", "Order By"):
        made.create_table(table, ROWS.schema)
        made.load(table, [RowsAtHand(file_id=n, rows=ROWS.slice(n % 4, 1)) for n in range(8)])
    yield made
    made.close()


def answer(engine: DuckDBEngine, sql: str, scans: dict[str, list[int]]) -> pa.Table:
    streams = {"r": pa.table({"n": [1, 3]}).to_reader()}
    found = engine.query(sql, scans, streams)
    return pa.Table.from_batches(found.batches(), found.schema)


@pytest.mark.share(4)
@pytest.mark.parametrize("sql", MEANING)
def test_views_and_common_table_expressions_mean_the_same(
    engine: DuckDBEngine, scans: dict[str, list[int]], sql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    named: list[str] = []
    original = HeldTables._named

    def noted(tables: HeldTables, wanted: Any, text: str) -> str:
        named.append(original(tables, wanted, text))
        return named[-1]

    monkeypatch.setattr(HeldTables, "_named", noted)
    found = answer(engine, sql, scans)
    monkeypatch.setattr(HeldTables, "_named", lambda *_: "")
    assert difference(found, answer(engine, sql, scans)) is None
    assert bool(named[0]) == (scans["t"] != [1, 3, 5, 7])


@pytest.mark.parametrize("change", ["load", "unload", "drop", "derive"])
def test_a_statement_sees_what_its_files_were_when_something_is_committed_while_it_is_bound(
    engine: DuckDBEngine, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = HeldTables._named

    def disturbed(tables: HeldTables, wanted: Any, text: str) -> str:
        found = original(tables, wanted, text)
        monkeypatch.setattr(HeldTables, "_named", original)
        pending.append(found)
        return found

    class Cursors:
        """Commits something just before the statement is bound."""

        def __init__(self, cursor: Any) -> None:
            self._cursor = cursor

        def __getattr__(self, name: str) -> Any:
            return getattr(self._cursor, name)

        def sql(self, text: str) -> Any:
            if pending and text.startswith(pending[0]):
                pending.clear()
                if change == "load":
                    engine.load("t", [RowsAtHand(file_id=9, rows=ROWS)])
                elif change == "unload":
                    engine.unload("t", [5])
                elif change == "derive":
                    assert engine.derive("t", 9, 1, np.array([0]))
                else:
                    engine.drop_table("Order By")
            return self._cursor.sql(text)

    pending: list[str] = []
    monkeypatch.setattr(HeldTables, "_named", disturbed)
    cursor = engine._root.cursor()
    # All files that are loaded are wanted, so that nothing but the snapshot keeps a new one out; or the one whose row
    # gets another label.
    wanted = {"t": [1] if change == "derive" else list(range(8))}
    asked = "select count(*) as n from t"
    if change == "unload":
        with pytest.raises(NotOwner):
            engine._tables.bind(Cursors(cursor), wanted, asked)
    else:
        prefix, relation = engine._tables.bind(Cursors(cursor), wanted, asked)
        assert relation.fetchall() == [(len(wanted["t"]),)]
        assert prefix == ""
    assert not pending
    cursor.close()


def test_errors_of_rows_name_the_place_in_the_statement(engine: DuckDBEngine) -> None:
    for sql in ("select cast(s as int) as n from t", "/**/ select cast(s as int) as n from t"):
        with pytest.raises(SqlError) as raised:
            answer(engine, sql, {"t": [2], "Order By": []})
        assert raised.value.details in ({}, {"line": 1, "column": 8 + sql.index("select")})
        assert "held" not in raised.value.message


def test_a_statement_that_does_not_bind_is_told_as_without_its_tables(engine: DuckDBEngine) -> None:
    with pytest.raises(SqlError) as raised:
        answer(engine, "select k,\n nope from t", {"t": [2]})
    assert raised.value.details == {"line": 2, "column": 2}


ODD = pa.schema([
    ("A b", pa.int8()), ("select", pa.uint64()), ('q"q', pa.string()), ("d", pa.decimal128(38, 5)),
    ("t", pa.timestamp("us", tz="UTC")), ("n", pa.timestamp("ns")), ("i", pa.month_day_nano_interval()),
    ("s", pa.struct([("x y", pa.list_(pa.date32())), ('z"', pa.bool_())])), ("m", pa.map_(pa.string(), pa.float32())),
    ("e", pa.dictionary(pa.int8(), pa.string())), ("b", pa.binary()), ("o", pa.time64("us")),
    ("f", pa.list_(pa.int16(), 3)), ("u", pa.uuid()), ("v", pa.null()),
])  # fmt: skip


def test_a_stream_that_is_kept_has_the_same_columns_each_time(engine: DuckDBEngine) -> None:
    asked = "select * from a union all select * from a order by all"
    rows = pa.table({"k": pa.array([2, 1], pa.int16()), "x": [{"p q": 1}, None]})
    for schema in (ODD, rows.schema):
        found = []
        for _ in range(3):
            given = rows if schema is rows.schema else schema.empty_table()
            query = engine.query(asked, streams={"a": given.to_reader()})
            found.append(pa.Table.from_batches(query.batches(), query.schema))
        assert found[0].schema.equals(found[1].schema, check_metadata=True)
        assert found[0].num_rows == 2 * given.num_rows
        assert found[0].equals(found[1])
        assert found[0].equals(found[2])
