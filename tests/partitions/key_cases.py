"""Key expressions of every kind, and rows that are hard for them: what all renderings must agree about."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa

SCHEMA = pa.schema(
    [
        ("small", pa.int16()),
        ("big", pa.int64()),
        ("ratio", pa.float64()),
        ("flag", pa.bool_()),
        ("day", pa.date32()),
        ("wall", pa.timestamp("us")),
        ("instant", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(12, 2)),
        ("name", pa.string()),
        ("Mixed Case", pa.string()),
        ("raw", pa.binary()),
    ]
)

_TIMES = ("wall", "instant")
_DATE_UNITS = ("year", "quarter", "month", "week", "day")

EXPRESSIONS: tuple[str, ...] = (
    *(
        f"{column}"
        for column in ("small", "big", "ratio", "flag", "day", "wall", "instant", "price", "name", "raw")
    ),
    '"Mixed Case"',
    *(
        f"bucket(1000, {column})"
        for column in ("small", "big", "ratio", "flag", "day", "wall", "instant", "price")
    ),
    "bucket(7, name)",
    "bucket(1, raw)",
    'bucket(16, "Mixed Case")',
    *(f"{part}({column})" for part in ("year", "quarter", "month", "day") for column in ("day", *_TIMES)),
    *(f"hour({column})" for column in _TIMES),
    *(f"date_trunc('{unit}', day)" for unit in _DATE_UNITS),
    *(f"date_trunc('{unit}', {c})" for unit in (*_DATE_UNITS, "hour", "minute", "second") for c in _TIMES),
    *(f"cast({column} as date)" for column in ("day", *_TIMES)),
    "truncate(name, 1)",
    "truncate(name, 3)",
    "substr(name, 1, 2)",
    "truncate(small, 10)",
    "coalesce(name, 'none''s \\ \u00e9 \U0001f986')",
    "coalesce(small, big, -1)",
    "coalesce(day, cast(wall as date))",
    "small + 1",
    "small * small - 3",
    "-7 + 2 * (small - 1)",
    "small = 3",
    "small < big",
    "name >= 'a'",
    'name = "Mixed Case"',
    "flag <> true",
    "day <= cast(wall as date)",
    "bucket(8, truncate(name, 2))",
    "bucket(8, cast(instant as date))",
    "bucket(4, coalesce(small, 0) + 1)",
    "year(wall) * 100 + month(wall)",
)

_UTC = dt.UTC
_MOMENTS = [
    dt.datetime(1970, 1, 1),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999_999),
    dt.datetime(1, 1, 2),
    dt.datetime(1, 1, 3, 0, 0, 0, 1),
    dt.datetime(1582, 10, 10, 12),
    dt.datetime(1883, 11, 18, 17, 0, 1),
    dt.datetime(1893, 3, 31, 23, 6, 30),
    dt.datetime(1900, 2, 28, 23, 59, 59),
    dt.datetime(2000, 2, 29, 12, 30, 30, 500_000),
    dt.datetime(2020, 3, 8, 2, 30),
    dt.datetime(2020, 3, 8, 7, 30),
    dt.datetime(2020, 11, 1, 5, 30),
    dt.datetime(2020, 11, 1, 6, 30),
    dt.datetime(2021, 3, 28, 1, 30),
    dt.datetime(2021, 10, 31, 0, 30),
    dt.datetime(2021, 10, 31, 1, 30),
    dt.datetime(2024, 12, 30, 1),
    dt.datetime(2040, 7, 1, 12),
    dt.datetime(2099, 12, 31, 23, 30),
    dt.datetime(2555, 7, 1, 4, 30),
    dt.datetime(9999, 12, 30, 23, 59, 59, 999_999),
]
_NAMES = [
    "",
    "a",
    "ab",
    "abc",
    "abcd",
    "é",
    "e\u0301x",
    "日本語テキスト",
    "🦆🦆🦆🦆",
    "null",
    " ",
    "A",
    "z'\"\\",
    "~",
]
_BIG = [0, 1, -1, 3, 10, -10, (1 << 63) - 1, -(1 << 63), 1 << 40]
_SMALL = [0, 1, -1, 3, 10, -10, 32_767, -32_768, 7]
_RATIOS = [0.0, -0.0, 1.5, -1.5, float("nan"), float("inf"), float("-inf"), 1e300, 5e-324]
_PRICES = [Decimal("0.00"), Decimal("1.10"), Decimal("-1.10"), Decimal("9999999999.99"), Decimal("-9999999999.99")]


def hard_rows() -> pa.RecordBatch:
    """A row per hard moment, the other columns cycling through their own hard values, nulls in all of them."""
    rows = []
    for place in range(3 * len(_MOMENTS)):
        moment = _MOMENTS[place % len(_MOMENTS)]
        row = {
            "small": _SMALL[place % 9],
            "big": _BIG[(place * 2) % 9],
            "ratio": _RATIOS[place % 9],
            "flag": place % 3 == 0,
            "day": moment.date(),
            "wall": moment,
            "instant": moment.replace(tzinfo=_UTC),
            "price": _PRICES[place % 5],
            "name": _NAMES[place % 14],
            "Mixed Case": _NAMES[(place * 3) % 14],
            "raw": _NAMES[place % 14].encode() + bytes([place]),
        }
        hidden = SCHEMA.names[place % 11] if place % 4 == 3 else ""
        rows.append({name: None if name == hidden else value for name, value in row.items()})
    rows.append(dict.fromkeys(SCHEMA.names))
    return pa.RecordBatch.from_pylist(rows, SCHEMA)
