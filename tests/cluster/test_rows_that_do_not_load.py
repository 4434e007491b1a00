"""Rows that no engine can load are refused before they are committed, and everything else goes on."""

from __future__ import annotations

import adbc_driver_flightsql.dbapi as flightsql
import pyarrow as pa
import pytest

from ballista_py import LocalCluster

pytestmark = pytest.mark.cluster

MAX = 2**63 - 1
MAP = pa.map_(pa.string(), pa.int32())


def raw(kind, number):
    data = number.to_bytes(kind.bit_width // 8, "little", signed=True)
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(data)])


ODD = {
    "a key twice": pa.array([[("a", 1), ("a", 2)]], MAP),
    "many keys twice": pa.array([[("a", 1), ("a", 2)]] * 20_000, MAP),
    "maps": pa.array([[("a", 1), ("b", 2)], [], None], MAP),
    "arrays": pa.array([[1, None]], pa.list_(pa.int32(), 2)),
    "structs of nothing": pa.Array.from_buffers(pa.struct([]), 1, [None]),
    "structs with one name": pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["a", "A"]),
    "numbers in a dictionary": pa.array([5, 5]).dictionary_encode(),
    "text in a dictionary": pa.array(["x", None, "x"]).dictionary_encode(),
    "a null in a dictionary": pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.nulls(1, pa.string())),
    **{
        f"{kind} {number}": raw(kind, number)
        for kind in (*(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")), pa.timestamp("ms", "UTC"))
        for number in (MAX, -MAX - 1, 10**17, -1)
    },
    "a long duration": raw(pa.duration("s"), MAX),
    "a duration": raw(pa.duration("us"), MAX),
    "the least decimal": raw(pa.decimal128(38, 0), -(2**127)),
    "a decimal": pa.array([10**37], pa.decimal128(38, 0)),
    "the last date": raw(pa.date32(), 2**31 - 1),
}
REFUSED = {
    "a key twice", "many keys twice", "text in a dictionary", "a null in a dictionary", "a duration",
    "structs of nothing", "structs with one name",
    "numbers in a dictionary", "timestamp[s] 9223372036854775807", "timestamp[s] -9223372036854775808",
    "timestamp[s] 100000000000000000", "timestamp[ms] -9223372036854775808", "timestamp[ms] 100000000000000000",
    "timestamp[us] -9223372036854775808", "timestamp[ms, tz=UTC] 9223372036854775807",
    "timestamp[ms, tz=UTC] -9223372036854775808", "timestamp[ms, tz=UTC] 100000000000000000", "a long duration",
    "the least decimal",
}  # fmt: skip


def test_each_is_read_back_or_refused_by_one_clear_error_and_others_go_on():
    wrong = []
    with LocalCluster(schedulers=1, executors=1) as cluster:
        url = cluster.flight_sql_url()
        with flightsql.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute("create table others (a integer)")
            for number, (name, column) in enumerate(ODD.items()):
                table = f"odd{number}"
                said = ""
                try:
                    cursor.adbc_ingest(table, pa.table({"c": column}), mode="create")
                except Exception as error:
                    said = str(error)
                if (
                    bool(said) != (name in REFUSED)
                    or "nternal" in said
                    or "column 'c'" not in (said or "column 'c'")
                ):
                    wrong.append(f"{name}: {said[:200] or 'taken'}")
                elif not said:
                    cursor.execute(f"select count(*), count(c) from {table}")
                    if cursor.fetchall() != [(len(column), len(column) - column.null_count)]:
                        wrong.append(f"{name}: other rows")
            cursor.execute("insert into others values (1)")
            cursor.execute("create table later (a integer)")
            cursor.execute("insert into later values (2)")
            cursor.execute("select a from later union all select a from others order by a")
            assert cursor.fetchall() == [(1,), (2,)]
    assert not wrong, "\n".join(wrong)
