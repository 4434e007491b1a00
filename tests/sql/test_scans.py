"""What a fragment needs of a scanned table: never too little."""

import datetime as dt

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ballista_py.sql.prune.scans import needs_of

T = "trips@7-3"
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("kind", pa.string()),
        ("fare", pa.float64()),
        ("day", pa.date32()),
        ("price", pa.decimal128(9, 2)),
        ("n", pa.int32()),
    ]
)


def needs(sql: str):
    found = needs_of(sql.replace("TRIPS", f'"{T}"'), T, SCHEMA)
    return found.columns, [(one.column, one.operator, *(v.as_py() for v in one.values)) for one in found.filter]


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("SELECT COUNT(*) FROM TRIPS AS t", ("day",)),
        ("SELECT SUM(t.FARE) FROM TRIPS AS t WHERE t.id > 3", ("id", "fare")),
        ("SELECT * FROM TRIPS AS t", tuple(SCHEMA.names)),
        ("SELECT t.* FROM TRIPS AS t", tuple(SCHEMA.names)),
        ("SELECT t FROM TRIPS AS t", tuple(SCHEMA.names)),
        ("SELECT COLUMNS('f.*') FROM TRIPS AS t", tuple(SCHEMA.names)),
        ("SELECT 1 FROM TRIPS AS t NATURAL JOIN x", tuple(SCHEMA.names)),
        ("SELECT a.x FROM a WHERE EXISTS (SELECT 1 FROM TRIPS AS t WHERE t.id = a.id)", ("id",)),
        ("SELECT t.id FROM TRIPS AS t ORDER BY t.price", ("id", "price")),
    ],
)
def test_all_columns_that_could_be_meant_are_read(sql, columns):
    assert needs(sql)[0] == columns


@pytest.mark.parametrize(
    ("sql", "conditions"),
    [
        ("SELECT t.id FROM TRIPS AS t WHERE t.id = 3 AND t.kind <> 'a'", [("id", "=", 3)]),
        ("SELECT t.id FROM TRIPS AS t WHERE 3 < t.id", [("id", ">", 3)]),
        ("SELECT t.id FROM TRIPS AS t WHERE t.id IN (1, 2)", [("id", "in", 1, 2)]),
        ("SELECT t.id FROM TRIPS AS t WHERE t.kind IS NULL", [("kind", "is_null")]),
        ("SELECT t.id FROM TRIPS AS t WHERE NOT t.kind IS NULL", [("kind", "is_not_null")]),
        (
            "SELECT t.id FROM TRIPS AS t WHERE t.day >= CAST('2026-01-31' AS DATE)",
            [("day", ">=", dt.date(2026, 1, 31))],
        ),
        ("SELECT t.id FROM TRIPS AS t WHERE t.id = 3 OR t.kind = 'a'", []),
        ("SELECT t.id FROM TRIPS AS t WHERE NOT t.id = 3", []),
        ("SELECT t.id FROM TRIPS AS t WHERE t.id + 0 = 3", []),
        ("SELECT a.x FROM a LEFT JOIN TRIPS AS t ON t.id = a.id WHERE t.kind IS NULL", []),
        ("SELECT a.x FROM TRIPS AS t RIGHT JOIN a ON t.id = a.id WHERE t.kind IS NULL", []),
        ("SELECT a.x FROM a FULL JOIN TRIPS AS t ON t.id = a.id WHERE t.id = 3", []),
        ("SELECT t.id FROM TRIPS AS t LEFT JOIN a ON t.id = a.id WHERE t.id = 3", [("id", "=", 3)]),
        ("SELECT t.id FROM a JOIN TRIPS AS t ON t.id = a.id WHERE t.id = 3 AND a.id = 4", [("id", "=", 3)]),
        ("SELECT t.id FROM a, TRIPS AS t LEFT JOIN b ON TRUE WHERE t.id = 3", [("id", "=", 3)]),
        ("SELECT t.id FROM a SEMI JOIN TRIPS AS t ON t.id = a.id WHERE a.id = 3", []),
        ("SELECT t.id FROM a ANTI JOIN TRIPS AS t ON t.id = a.id WHERE a.id = 3", []),
        ("SELECT t.id FROM TRIPS AS t WHERE t.id = 3 UNION ALL SELECT u.id FROM TRIPS AS u WHERE u.id = 4", []),
        ("SELECT t.id FROM TRIPS AS t TABLESAMPLE 10 PERCENT WHERE t.id = 3", []),
        ("SELECT x.id FROM (SELECT t.id FROM TRIPS AS t WHERE t.id = 3) AS x WHERE x.id = 4", [("id", "=", 3)]),
        ("SELECT id FROM TRIPS, a WHERE id = 3", []),
    ],
)
def test_conditions_are_those_that_every_row_of_the_answer_fulfils(sql, conditions):
    assert needs(sql)[1] == conditions


def test_behind_a_barrier_no_condition_of_the_user_is_used():
    sql = f'SELECT t.id FROM "{T}" AS t WHERE t.id = 3'
    assert needs_of(sql, T, SCHEMA, filtered=False).filter == ()


COMPARES = st.builds(
    lambda column, operator, value: f"t.{column} {operator} {value}",
    st.sampled_from(["id", "n", "price", "fare"]),
    st.sampled_from(["=", "<", "<=", ">", ">=", "<>"]),
    st.sampled_from(["0", "1", "2", "-1", "0.5", "1.00"]),
)
CONDITIONS = st.recursive(
    COMPARES
    | st.sampled_from(["t.kind IS NULL", "t.kind = 'a'", "t.id IN (0, 2)", "t.id BETWEEN 0 AND 1", "NULL"]),
    lambda inner: (
        st.builds(lambda a, b, w: f"({a} {w} {b})", inner, inner, st.sampled_from(["AND", "OR"]))
        | st.builds(lambda a: f"NOT ({a})", inner)
    ),
    max_leaves=6,
)
JOINS = ["", "LEFT JOIN a ON t.id = a.id", "JOIN a ON t.id = a.id", "RIGHT JOIN a ON t.id = a.id", "CROSS JOIN a"]


@settings(deadline=None, max_examples=150)
@given(CONDITIONS, st.sampled_from(JOINS), st.booleans())
def test_rows_that_fulfil_the_conditions_are_enough_for_the_answer(condition, join, turned):
    if turned and join:
        kind, rest = join.split("JOIN a", 1)
        sql = f'SELECT t.id AS x, a.id AS y FROM a {kind} JOIN "{T}" AS t {rest} WHERE {condition}'
    else:
        y = "a.id" if join else "1"
        sql = f'SELECT t.id AS x, {y} AS y FROM "{T}" AS t {join} WHERE {condition}'
    found = needs_of(sql, T, SCHEMA)
    with duckdb.connect() as connection:
        connection.sql("create table a as select * from (values (0), (1), (null)) v(id)")
        connection.sql(
            f"create table \"{T}\" as select i as id, k as kind, p::double as fare, date '2026-01-01' as day, "
            "p::decimal(9, 2) as price, n::int as n from (values (0), (1), (2), (null)) i(i), "
            "(values ('a'), (null)) k(k), (values (0), (0.5), (1)) p(p), (values (-1), (2)) n(n)"
        )
        whole = connection.sql(f"select * from ({sql}) order by all").fetchall()
        kept = " AND ".join(map(written, found.filter)) or "true"
        connection.sql(f'create table kept as select * from "{T}" where {kept}')
        connection.sql(f'drop table "{T}"')
        connection.sql(f'alter table kept rename to "{T}"')
        assert connection.sql(f"select * from ({sql}) order by all").fetchall() == whole


def written(one) -> str:
    if one.operator in ("is_null", "is_not_null"):
        return f"{one.column} {one.operator.replace('_', ' ')}"
    values = [f"'{v.as_py()}'" for v in one.values]
    return (
        f"{one.column} in ({', '.join(values)})"
        if one.operator == "in"
        else f"{one.column} {one.operator} {values[0]}"
    )
