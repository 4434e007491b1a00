"""A table of a cluster as a LazyFrame of polars: each collection is a read job of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import date, timedelta
from math import isfinite
from typing import Any

import polars as pl
from polars.io.plugins import register_io_source

from ballista_py.agents.read_job import Consistency, read_job, schema_of_read
from ballista_py.secret import Secret
from ballista_py.transport.security.credentials import Tls

_COMPARED = {"Eq": "=", "NotEq": "<>", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">="}
_EPOCH = date(1970, 1, 1)


def scan_ballista(
    url: str,
    table: str,
    *,
    consistency: Consistency = "snapshot",
    token: str | Secret | None = None,
    tls: Tls | None = None,
) -> pl.LazyFrame:
    """A table as a LazyFrame: only the columns, rows and as many rows as are asked for come from the executors.

    Its columns are those of now. Each collection shows one instant, that at which it begins. Conditions that mean the
    same in the cluster's SQL are decided there, others here; all are looked at here again. `url`, `consistency`,
    `token` and `tls` as for `read_job`, which says what is raised.
    """
    known = {"url": url, "table": table, "token": token, "tls": tls}
    empty = pl.from_arrow(schema_of_read(**known).empty_table())  # type: ignore[arg-type]
    assert isinstance(empty, pl.DataFrame)

    def read(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, _batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        left = n_rows
        condition = "" if predicate is None else condition_of(predicate)
        columns = with_columns if with_columns is not None else empty.columns
        if not columns:  # rows are counted by a column
            columns = empty.columns[:1]
        with read_job(**known, columns=columns, filter=condition, consistency=consistency) as job:  # type: ignore[arg-type]
            for batch in job.rows():
                frame = pl.from_arrow(batch)
                assert isinstance(frame, pl.DataFrame)
                frame = frame if predicate is None else frame.filter(predicate)
                frame = frame if left is None else frame.head(left)
                yield frame
                if left is not None and (left := left - frame.height) <= 0:
                    return

    return register_io_source(read, schema=empty.schema)


def condition_of(predicate: pl.Expr) -> str:
    """What of a predicate can be said in the cluster's SQL with the same meaning; empty for nothing of it.

    A part that is left out lets more rows through: the predicate is to be looked at again.

    >>> condition_of((pl.col("a") > 3) & (pl.col("b") == "x") & pl.col("c").str.contains("x"))
    '(("a" > 3) AND ("b" = \\'x\\'))'
    """
    try:
        tree = json.loads(predicate.meta.serialize(format="json"))
    except (pl.exceptions.PolarsError, ValueError):  # of a function of Python
        return ""
    return _said(tree) or ""


def _said(tree: Any) -> str | None:
    if not isinstance(tree, dict) or len(tree) != 1:
        return None
    ((kind, found),) = tree.items()
    if kind == "BinaryExpr":
        left, right = found["left"], found["right"]
        if found["op"] == "And":
            parts = [said for said in (_said(left), _said(right)) if said is not None]
            return f"({' AND '.join(parts)})" if len(parts) > 1 else "".join(parts) or None
        name, value = _column(left), _literal(right)
        operator = _COMPARED.get(found["op"])
        return f"({name} {operator} {value})" if None not in (name, value, operator) else None
    if kind == "Function" and found["function"] in ({"Boolean": "IsNull"}, {"Boolean": "IsNotNull"}):
        name = _column(found["input"][0])
        word = "NULL" if found["function"]["Boolean"] == "IsNull" else "NOT NULL"
        return None if name is None else f"({name} IS {word})"
    return None


def _column(tree: Any) -> str | None:
    name = tree.get("Column") if isinstance(tree, dict) else None
    return '"' + name.replace('"', '""') + '"' if isinstance(name, str) else None


def _literal(tree: Any) -> str | None:
    literal = tree.get("Literal") if isinstance(tree, dict) else None
    value = literal.get("Dyn", literal.get("Scalar")) if isinstance(literal, dict) else None
    if not isinstance(value, dict) or len(value) != 1:
        return None
    ((kind, found),) = value.items()
    writer = _WRITERS.get(kind)
    return None if writer is None else writer(found)


def _whole(value: Any) -> str | None:
    return str(value) if isinstance(value, int) and -(1 << 63) <= value < 1 << 63 else None


def _real(value: Any) -> str | None:
    return f"CAST('{value!r}' AS DOUBLE)" if isinstance(value, float) and isfinite(value) else None


def _text(value: Any) -> str | None:
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) and "\0" not in value else None


def _day(value: Any) -> str | None:
    try:
        return f"DATE '{(_EPOCH + timedelta(days=value)).isoformat()}'"
    except (TypeError, OverflowError):
        return None


_WRITERS: Mapping[str, Callable[[Any], str | None]] = {
    **dict.fromkeys(("Int", "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32"), _whole),
    **dict.fromkeys(("Float", "Float64"), _real),
    "String": _text,
    "Date": _day,
    "Boolean": lambda value: {True: "TRUE", False: "FALSE"}.get(value),
}
