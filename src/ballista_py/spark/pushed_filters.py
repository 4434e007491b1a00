"""Spark's filters as conditions of the cluster's SQL, where both mean the same of every row."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from pyspark.sql import datasource as spark

MAX_VALUES = 1_000  # of one IN
_COMPARED: Mapping[type, str] = {
    spark.EqualTo: "=",
    spark.EqualNullSafe: "IS NOT DISTINCT FROM",
    spark.GreaterThan: ">",
    spark.GreaterThanOrEqual: ">=",
    spark.LessThan: "<",
    spark.LessThanOrEqual: "<=",
}
_TEXTS: Mapping[type, str] = {
    spark.StringStartsWith: "starts_with",
    spark.StringEndsWith: "suffix",
    spark.StringContains: "contains",
}


def condition_of(wanted: spark.Filter) -> str | None:
    """The condition that holds for the rows that the filter lets through; None for one that is left to Spark.

    >>> condition_of(spark.GreaterThan(("id",), 3)), condition_of(spark.StringContains(("s",), "it's"))
    ('("id" > 3)', '(contains("s", \\'it\\'\\'s\\'))')
    >>> condition_of(spark.EqualTo(("a", "b"), 3)) is None
    True
    """
    if isinstance(wanted, spark.Not):
        inner = condition_of(wanted.child)
        return None if inner is None else f"(NOT {inner})"
    attribute = wanted.attribute  # type: ignore[attr-defined]
    if len(attribute) != 1:  # a field of a struct
        return None
    name = '"' + attribute[0].replace('"', '""') + '"'
    kind = type(wanted)
    if kind in (spark.IsNull, spark.IsNotNull):
        return f"({name} IS {'NOT ' if kind is spark.IsNotNull else ''}NULL)"
    if kind is spark.In:
        values = [literal(value) for value in wanted.value]  # type: ignore[attr-defined]
        known = [value for value in values if value is not None]
        fits = 0 < len(known) == len(values) <= MAX_VALUES
        return f"({name} IN ({', '.join(known)}))" if fits else None
    value = literal(wanted.value)  # type: ignore[attr-defined]
    if value is None:
        return None
    if kind in _COMPARED:
        return f"({name} {_COMPARED[kind]} {value})"
    return f"({_TEXTS[kind]}({name}, {value}))" if kind in _TEXTS else None


def literal(value: Any) -> str | None:
    """The value as the cluster's SQL writes it, of the type that Spark means; None for one that is left to Spark.

    >>> literal(True), literal(Decimal("1.50")), literal(datetime.date(2020, 2, 3)), literal(float("nan"))
    ('TRUE', "CAST('1.50' AS DECIMAL(3, 2))", "DATE '2020-02-03'", None)
    """
    writer = _WRITERS.get(type(value))
    return None if writer is None else writer(value)


def _text(value: str) -> str | None:
    return None if "\0" in value else "'" + value.replace("'", "''") + "'"


def _decimal(value: Decimal) -> str | None:
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return None
    scale = max(-exponent, 0)
    width = max(len(digits) + max(exponent, 0), scale)
    return f"CAST('{value:f}' AS DECIMAL({width}, {scale}))" if width <= 38 else None


def _timestamp(value: datetime.datetime) -> str:
    kind = "TIMESTAMP" if value.tzinfo is None else "TIMESTAMPTZ"
    return f"{kind} '{value.isoformat(sep=' ')}'"


_WRITERS: Mapping[type, Callable[[Any], str | None]] = {
    bool: lambda value: "TRUE" if value else "FALSE",
    int: lambda value: str(value) if -(1 << 63) <= value < 1 << 63 else None,
    float: lambda value: f"CAST('{value!r}' AS DOUBLE)" if math.isfinite(value) else None,
    str: _text,
    Decimal: _decimal,
    datetime.date: lambda value: f"DATE '{value.isoformat()}'",
    datetime.datetime: _timestamp,
}
