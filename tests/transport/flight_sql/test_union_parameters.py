"""Unions that drivers bind become values; what cannot be one is refused by the number of its parameter."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ballista_py.errors import InvalidData, SqlError
from ballista_py.transport.arrow.door import check_batch
from ballista_py.transport.flight_sql.union_parameters import combined, without_unions

KINDS = [pa.field("text", pa.string()), pa.field("whole", pa.int64()), pa.field("moment", pa.timestamp("ns"))]
CODES = [5, 9, 11]  # no driver need count from 0


def dense(*values):
    """A dense union of (code, value)s."""
    children = [[value for code, value in values if code == one] for one in CODES]
    places = [sum(1 for code, _ in values[:row] if code == values[row][0]) for row in range(len(values))]
    arrays = [pa.array(child, field.type) for child, field in zip(children, KINDS, strict=True)]
    types = pa.array([code for code, _ in values], pa.int8())
    return pa.UnionArray.from_dense(types, pa.array(places, pa.int32()), arrays, [f.name for f in KINDS], CODES)


def sparse(*values):
    arrays = [
        pa.array([value if code == one else None for code, value in values], field.type)
        for one, field in zip(CODES, KINDS, strict=True)
    ]
    types = pa.array([code for code, _ in values], pa.int8())
    return pa.UnionArray.from_sparse(types, arrays, [f.name for f in KINDS], CODES)


@pytest.mark.parametrize("union", [dense, sparse])
@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([(9, 7)], pa.array([7])),
        ([(5, "a"), (5, None), (5, "c")], pa.array(["a", None, "c"])),
        ([(9, 1), (5, None), (9, 3)], pa.array([1, None, 3])),  # NULL is of every type
        ([(11, 2**60 + 1)], pa.array([2**60 + 1], pa.timestamp("ns"))),
        ([(9, None)], pa.array([None], pa.int64())),
        ([(9, None), (5, None)], pa.nulls(2)),
    ],
)
def test_a_union_becomes_the_values_that_it_holds(union, values, wanted):
    batch = check_batch(pa.record_batch([pa.array(range(len(values))), union(*values)], ["a", "b"]))
    found = without_unions(batch)
    assert found.column(1).equals(wanted)
    assert found.column(0) is not None
    assert found.schema.names == ["a", "b"]


@pytest.mark.parametrize("union", [dense, sparse])
def test_several_types_in_one_parameter_are_refused_by_its_number(union):
    batch = pa.record_batch([pa.array([1, 2]), union((9, 1), (5, "x"))], ["a", "b"])
    with pytest.raises(SqlError, match=r"parameter 2 has values of several types \(string and int64\)"):
        without_unions(batch)


def test_batches_are_put_together_if_their_types_allow_it():
    empty, whole, text = (without_unions(pa.record_batch([dense(value)], ["a"])) for value in
                          [(5, None), (9, 1), (5, "x")])  # fmt: skip
    nothing = pa.record_batch([pa.nulls(1)], ["a"])
    assert combined([nothing, whole]).column(0).to_pylist() == [None, 1]
    assert combined([empty, text]).column(0).to_pylist() == [None, "x"]
    with pytest.raises(SqlError, match="several types"):
        combined([whole, text])


def test_a_union_inside_a_union_is_opened_as_well():
    inner = dense((9, 1), (9, 2))
    outer = pa.UnionArray.from_dense(pa.array([0, 0], pa.int8()), pa.array([1, 0], pa.int32()), [inner])
    assert without_unions(pa.record_batch([outer], ["a"])).column(0).to_pylist() == [2, 1]


def test_offsets_that_lead_nowhere_do_not_get_past_the_door():
    bad = pa.Array.from_buffers(
        dense((9, 1)).type,
        1,
        [None, pa.py_buffer(b"\x09"), pa.py_buffer((77).to_bytes(4, "little"))],
        children=[pa.array([], pa.string()), pa.array([1]), pa.array([], pa.timestamp("ns"))],
    )
    with pytest.raises(InvalidData):
        check_batch(pa.record_batch([bad], ["a"]))
