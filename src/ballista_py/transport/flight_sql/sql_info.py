"""What the cluster says of itself to `GetSqlInfo`: names, versions, what it can do."""

from __future__ import annotations

from collections.abc import Collection
from importlib.metadata import version
from typing import Any

import pyarrow as pa

_LISTS = pa.map_(pa.int32(), pa.list_(pa.field("$data$", pa.int32())))
_VALUES: tuple[tuple[str, pa.DataType], ...] = (
    ("string_value", pa.string()),
    ("bool_value", pa.bool_()),
    ("bigint_value", pa.int64()),
    ("int32_bitmask", pa.int32()),
    ("string_list", pa.list_(pa.string())),
    ("int32_to_int32_list_map", _LISTS),
)
_STRING, _BOOL, _BIGINT, _BITMASK, _STRINGS, _MAP = range(6)
SQL_INFO = pa.schema(
    [
        pa.field("info_name", pa.uint32(), nullable=False),
        pa.field(
            "value",
            pa.dense_union([pa.field(name, kind) for name, kind in _VALUES], list(range(len(_VALUES)))),
            nullable=False,
        ),
    ]
)

NUMERIC_FUNCTIONS = (
    "ABS", "ACOS", "ASIN", "ATAN", "ATAN2", "CEIL", "COS", "COT", "DEGREES", "EXP", "FLOOR", "GREATEST", "LEAST", "LN",
    "LOG", "LOG10", "LOG2", "PI", "POWER", "RADIANS", "ROUND", "SIGN", "SIN", "SQRT", "TAN", "TRUNC",
)  # fmt: skip
STRING_FUNCTIONS = (
    "ASCII", "CHR", "CONCAT", "LEFT", "LENGTH", "LOWER", "LPAD", "LTRIM", "REPEAT", "REPLACE", "REVERSE", "RIGHT",
    "RPAD", "RTRIM", "SUBSTRING", "TRIM", "UPPER",
)  # fmt: skip
DATE_FUNCTIONS = ("DATE_PART", "DATE_TRUNC", "DAY", "HOUR", "LAST_DAY", "MINUTE", "MONTH", "SECOND", "YEAR")
_FORWARD_ONLY, _READ_ONLY, _FULL_JOINS = 1 << 1, 1 << 1, 1 << 1 | 1 << 2
# Numbers of the specification; what is not among them is not known here. Those of 500 and more are all there: the
# driver for JDBC asks for all of them at once, and takes one that is missing for a fault of its own.
_INFOS: dict[int, tuple[int, Any]] = {
    0: (_STRING, "ballista_py"),
    1: (_STRING, version("ballista_py")),
    2: (_STRING, pa.__version__),
    3: (_BOOL, False),  # read only
    4: (_BOOL, True),  # SQL
    5: (_BOOL, False),  # Substrait
    8: (_BITMASK, 0),  # transactions: none
    9: (_BOOL, True),  # cancel
    10: (_BOOL, True),  # bulk ingestion
    11: (_BOOL, False),  # bulk ingestion in transactions
    100: (_BITMASK, 0),  # time-out of statements: none
    101: (_BITMASK, 0),
    500: (_BOOL, False),  # create catalogs
    501: (_BOOL, False),  # create schemas
    502: (_BOOL, True),  # create tables
    503: (_BIGINT, 1),  # identifiers are case-insensitive
    504: (_STRING, '"'),
    505: (_BIGINT, 1),
    506: (_BOOL, True),  # whoever sees a table may select from it
    507: (_BIGINT, 0),  # nulls sort as the largest
    508: (_STRINGS, ["PIVOT", "QUALIFY", "SUMMARIZE", "UNPIVOT"]),
    509: (_STRINGS, list(NUMERIC_FUNCTIONS)),
    510: (_STRINGS, list(STRING_FUNCTIONS)),
    511: (_STRINGS, []),
    512: (_STRINGS, list(DATE_FUNCTIONS)),
    513: (_STRING, "\\"),  # what escapes a sign of a pattern in calls for metadata
    514: (_STRING, ""),
    515: (_BOOL, True),  # aliases of columns
    516: (_BOOL, True),  # a sum with null is null
    517: (_MAP, {}),
    518: (_BOOL, True),  # aliases of tables
    519: (_BOOL, False),
    520: (_BOOL, True),  # expressions in ORDER BY
    521: (_BOOL, True),  # ORDER BY what is not selected
    522: (_BITMASK, 0b11),  # GROUP BY what is not selected, and more
    523: (_BOOL, True),  # LIKE … ESCAPE
    524: (_BOOL, True),  # NOT NULL
    525: (_BITMASK, 0b11),  # minimum and core
    526: (_BITMASK, 0b1),  # entry level
    527: (_BOOL, False),  # foreign keys
    528: (_BITMASK, _FULL_JOINS),
    529: (_STRING, "schema"),
    530: (_STRING, ""),  # procedures: none
    531: (_STRING, "catalog"),
    532: (_BIGINT, 1),  # catalog.schema.table
    533: (_BITMASK, 0),
    534: (_BITMASK, 0),
    535: (_BITMASK, 0),  # DELETE or UPDATE at a cursor: none
    536: (_BOOL, False),  # SELECT FOR UPDATE
    537: (_BOOL, False),
    538: (_BITMASK, 0b1111),  # subqueries of every kind
    539: (_BOOL, True),  # correlated ones
    540: (_BITMASK, 0b11),  # UNION and UNION ALL
    **dict.fromkeys((*range(541, 556), 557, 558, 559, 560, 561), (_BIGINT, 0)),  # bounds: none, or none is known
    556: (_BOOL, True),
    562: (_BIGINT, 0),  # transactions: none
    563: (_BOOL, False),
    564: (_BITMASK, 0b1),
    565: (_BOOL, True),  # a definition commits
    566: (_BOOL, False),
    567: (_BITMASK, _FORWARD_ONLY),
    568: (_BITMASK, _READ_ONLY),
    569: (_BITMASK, _READ_ONLY),
    570: (_BITMASK, 0),
    571: (_BITMASK, 0),
    572: (_BOOL, True),  # a prepared change takes many rows of parameters
    573: (_BOOL, False),  # savepoints
    574: (_BOOL, True),  # parameters with names
    575: (_BOOL, False),
    576: (_BOOL, False),
}


def sql_info(wanted: Collection[int]) -> pa.Table:
    """The values for these numbers, all if there are none; unknown numbers are left out."""
    found = [(number, *_INFOS[number]) for number in sorted(set(wanted) or _INFOS) if number in _INFOS]
    children: list[list[Any]] = [[] for _ in _VALUES]
    offsets = []
    for _number, kind, value in found:
        offsets.append(len(children[kind]))
        children[kind].append(value)
    union = pa.UnionArray.from_dense(
        pa.array([kind for _, kind, _ in found], pa.int8()),
        pa.array(offsets, pa.int32()),
        [pa.array(values, kind) for values, (_, kind) in zip(children, _VALUES, strict=True)],
        [name for name, _ in _VALUES],
        list(range(len(_VALUES))),
    )
    return pa.table([pa.array([number for number, *_ in found], pa.uint32()), union], schema=SQL_INFO)
