"""Values of Spark's dialect as text, as Spark writes them."""

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
        ("date_format(date'2024-01-31', 'yyyy-MM')", "2024-01"),
        ("date_format(date'9999-12-31' + interval 1 year, 'yyyy''Q''MM yyyy')", "+10000Q12 +10000"),
        ("date_format(date'9999-12-31' + interval 1 year, '''%Y'' MM')", "%Y 12"),
        ("date_format(date'0001-12-31' - interval 1 year, 'yyyy-MM')", "0000-12"),
        ("date_format(date'0001-12-31' - interval 2 year, 'yyyy-MM')", "-0001-12"),
        ("date_format(date'0001-12-31' - interval 12346 year, 'yyyy')", "-12345"),
        ("date_format(cast(null as date), 'yyyy-MM')", None),
    ],
)
def test_a_year_of_five_digits_or_before_1_has_a_sign(expression, text):
    assert duckdb.sql(engine_sql(f"select {expression}", "spark")).fetchall() == [(text,)]
    assert engine_sql("select cast(date '2024-01-31' as text)", "postgres").startswith("SELECT CAST")


@pytest.mark.parametrize(
    "value", ["nullif(0.05, 0)", "cast(0.05 as decimal(2, 2))", "cast(0.05 as decimal(18, 2))"]
)
def test_a_decimal_has_a_digit_before_its_point(value):
    """The engine writes `.05` where the type has no room for one."""
    for sign, text in (("", "0.05"), ("-", "-0.05")):
        assert duckdb.sql(engine_sql(f"select cast({sign}{value} as string)", "spark")).fetchall() == [(text,)]
