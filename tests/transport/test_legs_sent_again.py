"""A leg that fails before anybody took a row of it is read elsewhere, each row once; one seen in part fails."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from ballista_py.errors import TransportError
from ballista_py.runtime import SystemRuntime
from ballista_py.transport.flight.leg_streams import LegStreams

SCHEMA = pa.schema([("n", pa.int64())])
BROKEN = TransportError("the connection to node e1:1 broke", peer="e1:1")


class Stream:
    """Gives `rows` one by one, then fails if it is to; waits before the row at `waits_at` until it may go on."""

    schema, trailer = SCHEMA, {}

    def __init__(self, *rows, fails=False, waits_at=None):
        self.rows, self.fails, self.waits_at = rows, fails, waits_at
        self.go_on, self.cancelled = threading.Event(), threading.Event()

    def batches(self):
        for place, row in enumerate((*self.rows, None)):
            if place == self.waits_at:
                assert self.go_on.wait(30)
            if row is not None:
                yield pa.record_batch([[row]], schema=SCHEMA)
        if self.fails:
            raise BROKEN

    def cancel(self):
        self.cancelled.set()
        self.go_on.set()


def spawn(run):
    threading.Thread(target=run, daemon=True).start()


def legs_of(*streams, instead=None, **options):
    """The legs; `instead` says what takes the place of a stream."""
    asked = []

    def again(stream, error):
        asked.append((stream, error))
        return (instead or {}).get(stream, ())

    start = options.pop("start", spawn)
    return asked, LegStreams(streams, SystemRuntime(), start, again=again, **options)


def wait_until(holds):
    for _ in range(3_000):
        if holds():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it never happened")


def numbers(legs):
    return sorted(row for batch in legs.batches() for row in batch.column(0).to_pylist())


@pytest.mark.parametrize("alone", [False, True])
def test_what_nobody_has_seen_is_read_from_those_that_take_its_place(alone):
    first, left, right = Stream(fails=True), Stream(1, 2), Stream(3)
    asked, legs = legs_of(first, instead={first: [left, right]}, alone=alone)
    assert numbers(legs) == [1, 2, 3]
    assert asked == [(first, BROKEN)]
    assert legs.rows_received == 3
    assert len(legs.progress) == 1
    assert legs.error is None


def test_rows_that_wait_to_be_taken_do_not_count_twice():
    dying, other = Stream(1, 2, fails=True), Stream(1, 2)
    asked, legs = legs_of(Stream(9), dying, instead={dying: [other]}, ahead_batches=9)
    wait_until(lambda: asked)  # nothing is taken before it has failed
    assert numbers(legs) == [1, 2, 9]
    assert legs.rows_received == 3


@pytest.mark.parametrize("alone", [False, True])
def test_what_was_seen_in_part_fails_and_nothing_is_asked_for(alone):
    dying = Stream(1, fails=True, waits_at=1)
    asked, legs = legs_of(dying, instead={dying: [Stream(1)]}, alone=alone)
    batches = legs.batches()
    assert next(batches).column(0).to_pylist() == [1]
    dying.go_on.set()
    with pytest.raises(TransportError, match="broke"):
        list(batches)
    assert asked == []


def test_without_a_copy_the_error_stands_and_the_others_are_cancelled():
    dying, other = Stream(fails=True), Stream(1, waits_at=0)
    asked, legs = legs_of(dying, other)
    with pytest.raises(TransportError, match="broke"):
        list(legs)
    assert other.cancelled.is_set()
    assert [stream for stream, _ in asked] == [dying]


def test_what_takes_a_place_may_fail_in_turn():
    first, second, third = Stream(fails=True), Stream(1, fails=True), Stream(1)
    asked, legs = legs_of(first, instead={first: [second], second: [third]}, ahead_batches=9)
    wait_until(lambda: len(asked) == 2)
    assert numbers(legs) == [1]


def test_one_that_is_cancelled_is_not_replaced():
    dying = Stream(1, fails=True, waits_at=0)
    asked, legs = legs_of(dying, instead={dying: [Stream(1)]})
    legs.cancel()
    assert asked == []
    with pytest.raises(TransportError, match="cancelled"):
        list(legs)


def test_what_takes_a_place_has_the_same_columns():
    dying, other = Stream(fails=True), Stream(1)
    other.schema = pa.schema([("n", pa.string())])
    _, legs = legs_of(dying, instead={dying: [other]})
    with pytest.raises(TransportError, match="different columns"):
        list(legs)


def test_one_that_fails_before_the_next_is_begun_is_replaced_once():
    first, left, right = Stream(fails=True), Stream(1), Stream(2)
    asked, legs = legs_of(first, Stream(3), instead={first: [left, right]}, start=lambda run: run())
    assert numbers(legs) == [1, 2, 3]
    assert len(asked) == 1
