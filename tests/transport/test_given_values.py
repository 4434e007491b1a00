"""What Python values become as parameters: the same value, or an error that names what would be lost."""

from __future__ import annotations

import base64
import math
import uuid
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal

import pandas as pd
import pyarrow as pa
import pytest

from ballista_py.errors import SqlError
from ballista_py.sql.parse.parameters import literal
from ballista_py.transport.client.given import parameters_text

INDIA = timezone(timedelta(hours=5, minutes=30))
ID = uuid.UUID("6f8f57c0-0d6c-4a5c-9f0d-7a1fd1b0a001")


def bound(value):
    data = base64.b64decode(parameters_text([value]))
    return pa.ipc.open_stream(data).read_all().column(0)[0]


@pytest.mark.parametrize(
    "value",
    [
        5, True, "é", b"\0", 1.5, None, Decimal("1.50"), [1, None], {"a": [1.5]}, timedelta(microseconds=1),
        2**63 - 1, -(2**63), 2**63, 2**64 - 1, 2**64, -(2**63) - 1, 10**38 - 1, 1 - 10**38,
        time(1, 2, 3), datetime(2020, 1, 1, tzinfo=INDIA), pd.Timestamp("2020-01-01 00:00:00.123456"), ID,
    ],
)  # fmt: skip
def test_a_value_is_bound_as_it_is(value):
    assert bound(value).as_py() == value


def test_more_values_that_are_no_equals_of_themselves_or_have_another_form():
    assert math.isnan(bound(float("nan")).as_py())
    assert math.isnan(bound([float("nan")]).as_py()[0])
    assert bound((1, 2)).as_py() == [1, 2]
    nanos = pa.scalar(123_456_789, pa.timestamp("ns"))
    assert bound(nanos) == nanos


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (time(1, 2, 3, tzinfo=INDIA), "type time would be bound as time64.us., and lose a part"),
        ([time(1, tzinfo=UTC)], "type list would be bound as list<item: time64.us.>, and lose a part"),
        ({"a": time(1, tzinfo=UTC)}, "type dict would be bound as struct<a: time64.us.>, and lose a part"),
        (
            pd.Timestamp("2020-01-01 00:00:00.123456789"),
            "type Timestamp would be bound as timestamp.us., and lose",
        ),
        (pd.Timedelta(5), "type Timedelta would be bound as duration.us., and lose"),
        (10**38, "type int cannot be bound: it has more than 38 digits"),
        ("\ud800", "type str cannot be bound: it holds half a character"),
        ([1, "a"], "type list cannot be bound: its values are of types that have none in common"),
        (pa.RunEndEncodedArray.from_arrays([2], [5])[0], "type RunEndEncodedScalar cannot be bound"),
        (1 + 2j, "type complex cannot be bound: Arrow has no such type"),
    ],
)
def test_a_value_of_which_a_part_would_be_lost_is_refused_and_the_reason_told(value, words):
    with pytest.raises(SqlError, match=f"parameter 1: a value of {words}"):
        parameters_text([value])


def test_a_uuid_is_the_text_that_columns_have():
    assert literal(pa.scalar(ID, pa.uuid())).sql("duckdb") == f"'{ID}'"
