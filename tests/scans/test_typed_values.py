"""Single values as JSON: each has one form, and another is no value."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from ballista_py.errors import InvalidData
from ballista_py.scans.typed_values import MAX_VALUE_BYTES, from_plain, to_plain


@pytest.mark.parametrize(
    ("plain", "kind"),
    [
        (1.0, pa.int64()),
        (True, pa.int64()),
        ("1", pa.int64()),
        (128, pa.int8()),
        (1, pa.bool_()),
        (1.5, pa.float64()),
        ("1.5", pa.float64()),
        ((1e300).hex(), pa.float32()),
        ((0.1).hex(), pa.float32()),
        ("1.5", pa.decimal128(5, 2)),
        ("1e2", pa.decimal128(5, 0)),
        ("NaN", pa.decimal128(5, 2)),
        (1, pa.decimal128(5, 0)),
        ("YQ", pa.binary()),
        ("YR==", pa.binary()),
        ("YQ==\n", pa.binary()),
        ("YQ==", pa.binary(2)),
        ("2026-01-01", pa.date32()),
        (2**31, pa.date32()),
        (0.0, pa.timestamp("us")),
        ([1], pa.list_(pa.int64())),
        (None, pa.list_(pa.int64())),
        ({}, pa.string()),
        ("x" * (2 * MAX_VALUE_BYTES + 1), pa.string()),
    ],
)
def test_what_is_not_the_one_form_of_a_value_is_refused(plain, kind):
    with pytest.raises(InvalidData, match="value of a scan task is none of the type"):
        from_plain(plain, kind)


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (pa.scalar(Decimal("0.00"), pa.decimal128(5, 2)), "0.00"),
        (pa.scalar(Decimal("0"), pa.decimal128(20, 10)), "0E-10"),
        (pa.scalar(-0.0), "-0x0.0p+0"),
        (pa.scalar(float("inf"), pa.float32()), "inf"),
        (pa.array([-1], pa.int64()).view(pa.timestamp("ns", "UTC"))[0], -1),
        (pa.scalar(2**64 - 1, pa.uint64()), 2**64 - 1),
        (pa.scalar(None, pa.date32()), None),
        (pa.scalar("ü"), "ü"),
    ],
)
def test_a_value_has_the_form_that_it_had_in_earlier_releases(value, plain):
    assert to_plain(value) == plain
    assert from_plain(plain, value.type).equals(value)
