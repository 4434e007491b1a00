"""When two results are the same answer."""

import decimal

import pyarrow as pa
import pytest

from ballista_py.engines.same_answer import difference


def test_rows_are_a_multiset_unless_order_is_asked_for():
    left, right = pa.table({"a": [1, 2, 2]}), pa.table({"a": [2, 1, 2]})
    assert difference(left, right) is None
    assert difference(left, right, ordered=True) is not None


def test_floats_may_differ_by_the_order_of_a_sum_and_no_more():
    base = pa.table({"k": ["a", "b"], "x": [1.0, float("nan")]})
    assert difference(pa.table({"k": ["b", "a"], "x": [float("nan"), 1.0 + 1e-12]}), base) is None
    assert difference(pa.table({"k": ["b", "a"], "x": [float("nan"), 1.0 + 1e-6]}), base) is not None


@pytest.mark.parametrize(
    "other",
    [
        pa.table({"a": [1, 2]}),
        pa.table({"b": [1, 2, 2]}),
        pa.table({"a": pa.array([1, 2, 2], pa.int32())}),
        pa.table({"a": [1, 1, 2]}),
        pa.table({"a": [1, 2, None]}),
    ],
    ids=["rows missing", "other name", "other type", "other multiset", "a null"],
)
def test_everything_else_is_a_difference(other):
    assert difference(other, pa.table({"a": [1, 2, 2]})) is not None


def test_decimals_are_compared_exactly():
    left = pa.table({"a": [decimal.Decimal("1.00")]})
    assert difference(left, pa.table({"a": [decimal.Decimal("1.00")]})) is None
    assert difference(left, pa.table({"a": [decimal.Decimal("1.01")]})) is not None


def test_a_result_without_columns_is_compared_by_its_rows():
    assert difference(pa.table({}), pa.table({})) is None


def test_dates_beyond_those_of_python_and_values_of_several_types_are_compared_too():
    days = pa.table({"d": pa.array([2**31 - 1, 0, None], pa.int32()).cast(pa.date32())})
    assert difference(days.take([1, 0, 2]), days) is None
    assert difference(days, days.take([1, 1, 2])) is not None
    either = pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])])
    rows = pa.table({"u": either})
    assert difference(rows, rows) is None
    assert difference(rows, rows.slice(0, 1)) is not None


def test_floats_inside_lists_and_structs_are_compared_as_others_are():
    def of(*numbers):
        return pa.table({"l": [list(numbers), None], "s": [{"x": numbers[0]}, {"x": None}]})

    assert difference(of(float("nan"), 1.0), of(float("nan"), 1.0 + 1e-12)) is None
    assert difference(of(float("nan"), 1.0), of(float("nan"), 1.1)) is not None
    assert difference(of(1.0), of(1.0, 1.0)) is not None
    assert difference(of(None), of(1.0)) is not None
