import pytest

from ballista_py.errors import SqlError
from ballista_py.sql.parse.changes import read_change, text_for_engine
from ballista_py.sql.parse.external_tables import CreateScanned
from ballista_py.sql.parse.kind import statement_kind
from ballista_py.sql.parse.travels import travels


@pytest.mark.parametrize(
    ("sql", "meant"),
    [
        ("select * from t for version as of 3", [("3", None)]),
        ("select * from t FOR SYSTEM_VERSION AS OF 3 x", [("3", None)]),
        ("select * from t version as of 'main'", [("main", None)]),
        ("select * from t timestamp as of '2026-01-31'", [(None, "2026-01-31")]),
        ("select * from t for system_time as of '2026-01-31 10:00:00'", [(None, "2026-01-31 10:00:00")]),
        (
            "select * from t at (version => 3), u AT (TIMESTAMP => '2026-01-31')",
            [("3", None), (None, "2026-01-31")],
        ),
        ('select * from "for version as of" for version as of 8102 as t', [("8102", None)]),
        ("select a as of from t", []),
        ("select at(a) from t", []),
        ("select 'for version as of 3' from t", []),
        ("select * from a asof join b using (x)", []),
    ],
)
def test_clauses_are_read_and_nothing_else_moves(sql, meant):
    text, found = travels(sql)
    assert [(one.version, one.timestamp) for one in found] == meant
    assert len(text) == len(sql)
    assert all(sql[: one.behind].rstrip().endswith(("t", "u", '"')) for one in found)
    assert all(a == b for a, b in zip(text, sql, strict=True) if a != " ")


@pytest.mark.parametrize(
    "sql",
    [
        "select * from t for version as of x",
        "select * from t for version as of 1.5",
        "select * from t for version as of -1",
        "select * from t for timestamp as of 3",
        "select * from t for timestamp as of timestamp '2026-01-31'",
        "select * from t for timestamp as of now()",
        "select * from t at (version => 3, timestamp => 'x')",
        "select * from t for version as of",
    ],
)
def test_what_says_no_snapshot_is_refused(sql):
    with pytest.raises(SqlError, match="snapshot"):
        travels(sql)


@pytest.mark.parametrize(
    ("sql", "scan"),
    [
        (
            "create external table t stored as PARQUET location 's3://b/t'",
            {"format": "parquet", "path": "s3://b/t"},
        ),
        ("CREATE TABLE main.t USING delta LOCATION '/t'", {"format": "delta", "path": "/t"}),
        (
            "create external table t stored as iceberg options ('catalog.uri' 'http://c', table = 'n.t')",
            {"format": "iceberg", "catalog": {"uri": "http://c"}, "table": "n.t"},
        ),
        (
            "create external table t stored as delta location 'x' with ('s3.endpoint' = 'http://c')",
            {"format": "delta", "path": "x", "options": {"s3.endpoint": "http://c"}},
        ),
    ],
)
def test_a_scanned_table_is_declared_in_the_words_that_people_know(sql, scan):
    made = read_change(sql)
    assert isinstance(made, CreateScanned)
    assert (made.table, made.scan) == ("t", scan)
    assert statement_kind(sql) == "change"
    assert text_for_engine(sql) is None


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("create external table t (a int) stored as parquet location 'x'", "those of its snapshot"),
        ("create external table t location 'x'", "no format"),
        ("create external table t stored as csv location 'x'", "csv"),
        ("create external table t stored as parquet location 'x' location 'y'", "twice"),
        ("create external table t stored as parquet location x", "single quotes"),
        ("create external table t stored as parquet location 'x' partitioned by (a)", "split by its files"),
        ("create external table t stored as parquet location 'x' as select 1", "cannot stand"),
        ("create external table t stored as parquet location 'x' options ('a' 'b', 'a' 'c')", "twice"),
        ("create external table t stored as parquet location 'x' options ('a')", "'name' 'value'"),
        ("create external table t stored as parquet options ('path' 'b')", "LOCATION"),
        ("create or replace external table if not exists t stored as parquet location 'x'", "one of them"),
        ("create external table a.b.c stored as parquet location 'x'", "no table"),
    ],
)
def test_what_a_declaration_cannot_say_is_refused_by_name(sql, said):
    with pytest.raises(SqlError, match=said):
        read_change(sql)
