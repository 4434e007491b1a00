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
_STRING, _BOOL, _BIGINT, _BITMASK, _STRINGS = range(5)
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

# Numbers of the specification; what is not among them is not known here.
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
