"""Dates and timestamps of Spark's dialect as text, as Spark writes them."""

import duckdb
import pytest

from ballista_py.sql.parse.kind import engine_sql


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("cast(date'2024-01-31' as string)", "2024-01-31"),
        ("cast(date'9999-12-31' + interval 1 year as string)", "+10000-12-31"),
        ("concat(date'9999-12-31' + interval 1 year, '!')", "+10000-12-31!"),
        ("(date'9999-12-31' + interval 2 year) || '!'", "+10001-12-31!"),
        ("cast(timestamp_ntz'9999-12-31 10:00:00.5' + interval 1 year as string)", "+10000-12-31 10:00:00.5"),
    ],
)
def test_a_year_of_five_digits_has_a_sign(expression, text):
    assert duckdb.sql(engine_sql(f"select {expression}", "spark")).fetchall() == [(text,)]
    assert engine_sql("select cast(date '2024-01-31' as text)", "postgres").startswith("SELECT CAST")
