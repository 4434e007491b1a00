"""Bytes of anybody end as a query or as one of two errors, soon and in little memory."""

import contextlib
import random
import time
import tracemalloc

import pytest

from ballista_py.errors import InvalidData, UnsupportedExpression
from ballista_py.sql.substrait.messages import MAX_MESSAGES, MAX_PLAN_BYTES
from ballista_py.sql.substrait.narrowing import with_columns
from ballista_py.sql.substrait.reading import columns_of, read_plan

SECONDS = 4  # of the processor; 2 where nothing else runs
MEMORY = 256 << 20


def tried(data, schemas):
    """How the bytes end: a query or the name of an error; within the bounds."""
    began, ended, length = time.process_time(), "query", 1
    try:
        read_plan(data, schemas)
    except (InvalidData, UnsupportedExpression) as error:
        ended, length = type(error).__name__, len(error.message)
    assert 0 < length < 1_000
    assert time.process_time() - began < SECONDS
    return ended


@pytest.mark.parametrize("seed", range(8))
def test_spoilt_plans_end_in_an_error_that_says_so(seed, lines, table):
    chance, ended = random.Random(seed), {"query": 0, "InvalidData": 0, "UnsupportedExpression": 0}
    plans = [line["plan"] for line in lines[1:]]
    for _ in range(250):
        data = bytearray(chance.choice(plans))
        for _ in range(chance.randint(1, 4)):
            place = chance.randrange(len(data))
            how = chance.randrange(5)
            if how == 0:
                data[place] ^= 1 << chance.randrange(8)
            elif how == 1:
                del data[place : place + chance.randint(1, 9)]
            elif how == 2:
                data[place:place] = data[place : place + chance.randint(1, 40)]
            elif how == 3:
                data[place] = chance.choice((0, 1, 127, 128, 255))
            else:
                other = chance.choice(plans)
                data[place:] = other[min(place, len(other)) :]
            data = data or bytearray(b"\n")
        ended[tried(bytes(data), {"t": table.schema})] += 1
        for ask in (lambda data: columns_of(data, table.schema), lambda data: with_columns(data, ["k"])):
            with contextlib.suppress(InvalidData, UnsupportedExpression):
                ask(bytes(data))
    assert ended["InvalidData"] > 20


def nested(depth, made):
    relation = made.read()
    for n in range(depth):
        relation = {"filter": {"input": relation, "condition": made.call(0, made.field(0), made.i64(n))}}
    return made.plan(relation, made.schema.names)


def test_relations_as_deep_as_protobuf_takes_them_are_read_or_refused(made):
    assert tried(nested(20, made), made.schemas) == "query"
    assert tried(nested(30, made), made.schemas) == "query"
    with pytest.raises(InvalidData, match="no plan"):
        read_plan(with_depth(3_000), made.schemas)


def with_depth(levels):
    """A plan of filters in each other, made of bytes alone."""
    data = b""
    for _ in range(levels):
        data = field(2, field(2, data))
    return field(3, field(2, field(1, data)))


def field(number, data):
    return bytes([number << 3 | 2]) + varint(len(data)) + data


def varint(value):
    found = b""
    while value > 127:
        found += bytes([value & 127 | 128])
        value >>= 7
    return found + bytes([value])


def test_expressions_that_name_each_other_twice_do_not_grow_by_the_power_of_two(made):
    relation, width = made.read(), 5
    for _ in range(40):
        twice = made.call(0, made.field(0), made.field(0), gives="i64")
        emit = {"emit": {"outputMapping": [width] * 3}}
        relation = {"project": {"common": emit, "input": relation, "expressions": [twice]}}
        width = 3
    found = read_plan(made.plan(relation, ["a", "b", "c"], functions=["add"]), made.schemas)
    assert len(found.sql) < 20_000


@pytest.mark.parametrize(
    "data",
    [
        b"\x12\x00" * 400_000,
        field(3, b"\x00" * 100_000),
        field(3, field(2, b"\x12\x00" * 500_000)),
        field(3, field(2, field(1, field(1, field(2, b"\x0a\x00" * 500_000))))),
        field(3, field(2, field(1, field(7, b"\x1a\x00" * 500_000)))),
        b"\x0a\x00" * (MAX_MESSAGES + 1),
        b"\x00" * (MAX_PLAN_BYTES + 1),
        field(2, field(3, b"\x10\x01")) * 500_000,
        b"\xff" * 100_000,
    ],
    ids=range(9),
)
def test_very_many_small_values_are_refused_before_they_take_memory(data, made):
    assert tried(data, made.schemas) != "query"
    tracemalloc.start()
    try:
        with contextlib.suppress(InvalidData, UnsupportedExpression):
            read_plan(data, made.schemas)
        assert tracemalloc.get_traced_memory()[1] < MEMORY
    finally:
        tracemalloc.stop()


def test_a_list_of_ten_thousand_numbers_is_read_soon(made):
    options = [made.i64(n) for n in range(10_000)]
    condition = {"singularOrList": {"value": made.field(0), "options": options}}
    data = made.plan({"filter": {"input": made.read(), "condition": condition}}, made.schema.names)
    began = time.process_time()
    assert " IN (0, 1, 2, " in read_plan(data, made.schemas).sql
    assert time.process_time() - began < SECONDS


def test_conditions_of_two_thousand_parts_are_read_soon(made):
    parts = [made.call(0, made.field(0), made.i64(n)) for n in range(2_000)]
    data = made.plan(
        {"filter": {"input": made.read(), "condition": made.call(1, *parts)}}, made.schema.names, ["equal", "or"]
    )
    assert tried(data, made.schemas) == "query"


HOSTILE_PIECES = {
    "an anchor that is not there": (lambda made: made.call(9, made.field(0), made.i64(1)), InvalidData, "anchor 9"),
    "a field that is not there": (lambda made: made.call(0, made.field(5), made.i64(1)), InvalidData, "no field 5"),
    "a field before the first": (lambda made: made.call(0, made.field(-1), made.i64(1)), InvalidData, "no field -1"),
    "nothing": (lambda made: {}, InvalidData, "leaves out"),
    "a number": (lambda made: made.i64(1), InvalidData, "condition"),
    "an i8 of 300": (lambda made: made.call(0, made.field(0), {"literal": {"i8": 300}}), InvalidData, "300"),
    "a text with NUL": (
        lambda made: made.call(0, made.field(3), {"literal": {"string": "a\0b"}}), UnsupportedExpression, "NUL",
    ),
    "a date of the year 100000": (
        lambda made: made.call(0, made.field(3), {"literal": {"date": 36_000_000}}), UnsupportedExpression, "9999"
    ),
    "a decimal of 3 bytes": (
        lambda made: made.call(
            0, made.field(0), {"literal": {"decimal": {"value": "AQID", "precision": 5, "scale": 1}}}
        ),
        InvalidData, "16 bytes",
    ),
    "a decimal of 99 digits": (
        lambda made: made.call(0, made.field(0), {"literal": {"decimal": {"precision": 99, "scale": 1}}}),
        InvalidData, "99",
    ),
    "an outer reference": (
        lambda made: {"selection": {"directReference": {"structField": {}}, "outerReference": {"stepsOut": 1}}},
        UnsupportedExpression, "outer_reference",
    ),
    "a subquery": (lambda made: {"subquery": {"scalar": {"input": made.read()}}}, UnsupportedExpression, "subquery"),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE_PIECES)
def test_a_condition_that_cannot_be_is_named(what, made):
    piece, kind, said = HOSTILE_PIECES[what]
    data = made.plan({"filter": {"input": made.read(), "condition": piece(made)}}, made.schema.names)
    with pytest.raises(kind, match=said):
        read_plan(data, made.schemas)


@pytest.mark.parametrize("place", [-1, -7, 99])
def test_columns_and_orders_of_fields_that_are_not_there_are_named(made, place):
    """A negative place is one from the end, to Python."""
    columns = made.plan(made.project(made.field(place)), ["a"])
    order = {"sort": {"input": made.read(), "sorts": [{"expr": made.field(place), "direction": 1}]}}
    for data in (columns, made.plan(order, made.schema.names)):
        with pytest.raises(InvalidData, match=f"no field {place}"):
            read_plan(data, made.schemas)


def test_relations_that_refer_to_each_other_are_refused(made):
    with pytest.raises(UnsupportedExpression, match="'reference'"):
        read_plan(made.plan({"filter": {"input": {"reference": {"subtreeOrdinal": 0}}}}, ["a"]), made.schemas)


def test_a_piece_of_a_later_substrait_is_refused_and_not_passed_over(made):
    top_n = field(3, field(2, field(1, b"\xba\x01\x00") + field(2, b"a")))
    with pytest.raises(UnsupportedExpression, match="top_n"):
        read_plan(top_n, made.schemas)
