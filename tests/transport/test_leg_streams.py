"""Fan-in: all legs or an error, read ahead together and within bounds."""

from __future__ import annotations

import gc
import threading
import time

import pyarrow as pa
import pytest

from ballista_py.errors import BallistaError, NotOwner, SqlError, TransportError
from ballista_py.runtime import SystemRuntime
from ballista_py.transport.flight.leg_streams import LegStreams
from ballista_py.transport.flight.server import StreamResult


@pytest.fixture
def open_legs(serve, pool, kit):
    """Open one leg per command, each at a node of its own."""

    def open_them(*commands, **options):
        nodes = [serve() for _ in commands]
        streams = [pool.open_stream(node.address, command) for node, command in zip(nodes, commands, strict=True)]
        return nodes, LegStreams(streams, SystemRuntime(), kit.spawn, **options)

    return open_them


def test_the_rows_of_all_legs_arrive_once_and_are_counted(open_legs, kit):
    _, legs = open_legs({"batches": 3, "rows": 100}, {"batches": 0}, {"batches": 50, "rows": 10})
    table = pa.Table.from_batches(legs.batches(), legs.schema)
    assert sorted(table["n"].to_pylist()) == sorted([*range(300), *range(500)])
    assert legs.rows_received == 800
    assert legs.bytes_received == table.nbytes
    assert legs.trailers() == ({"touched": 3}, {"touched": 0}, {"touched": 50})
    assert legs.error is None


class Meeting:
    """Handlers of which none gives a row before all have been asked for some."""

    verbs = ()

    def __init__(self, kit, size):
        self.barrier, self.kit = threading.Barrier(size, timeout=30), kit

    def stream(self, command, context):
        return StreamResult(schema=self.kit.NUMBERS, batches=self._batches())

    def _batches(self):
        self.barrier.wait()
        yield self.kit.numbers(0, 30)


def test_legs_are_at_work_all_at_once(serve, pool, kit):
    meeting = Meeting(kit, 6)
    streams = [pool.open_stream(serve(meeting).address, {}) for _ in range(6)]
    assert LegStreams(streams, SystemRuntime(), kit.spawn).reader().read_all().num_rows == 180


def test_a_leg_that_is_refused_raises_before_anything_is_read_and_stops_the_others(serve, pool, kit):
    nodes = [serve(), serve()]
    streams = [
        pool.open_stream(nodes[0].address, {"batches": 10**6, "pause_s": 60}),
        pool.open_stream(nodes[1].address, {"refuse": True}),
    ]
    with pytest.raises(NotOwner):
        LegStreams(streams, SystemRuntime(), kit.spawn)
    assert nodes[0].handler.cancelled.wait(30)


def test_the_first_error_of_a_leg_is_raised_and_stops_the_others(open_legs):
    nodes, legs = open_legs({"batches": 10**6, "pause_s": 0.02}, {"batches": 9, "fail_at": 3})
    with pytest.raises(SqlError, match="division by zero"):
        list(legs)
    assert nodes[0].handler.cancelled.wait(30)
    assert isinstance(legs.error, SqlError)
    with pytest.raises(TransportError):
        legs.trailers()


def test_an_executor_that_vanishes_fails_the_answer_instead_of_shortening_it(open_legs):
    nodes, legs = open_legs({"batches": 2}, {"batches": 10**6, "pause_s": 0.02})
    batches = legs.batches()
    next(batches)
    nodes[1].stop()
    with pytest.raises(BallistaError):
        list(batches)


def test_legs_read_ahead_no_further_than_their_bounds(open_legs, kit):
    nodes, legs = open_legs(*[{"batches": 1000, "rows": 60_000}] * 2, ahead_batches=3)
    kit.wait_until(lambda: legs.rows_received >= 2 * 60_000)
    assert kit.still(lambda: legs.rows_received) == 2 * 60_000  # nobody reads yet
    batches = legs.batches()
    next(batches), next(batches)
    kit.wait_until(lambda: legs.rows_received >= 8 * 60_000)
    assert kit.still(lambda: legs.rows_received) == 8 * 60_000
    _, by_bytes = open_legs({"batches": 1000, "rows": 60_000}, ahead_batches=1000, ahead_bytes=5_000_000)
    assert kit.still(lambda: by_bytes.bytes_received) <= 5_000_000
    legs.cancel()
    by_bytes.cancel()
    assert nodes[0].handler.cancelled.wait(30)


def test_one_batch_above_the_bound_still_passes(open_legs):
    _, legs = open_legs({"batches": 5, "rows": 1000}, ahead_bytes=1)
    assert sum(batch.num_rows for batch in legs) == 5000


def test_closing_the_iterator_or_dropping_the_reader_stops_all_legs(open_legs):
    nodes, legs = open_legs({"batches": 10**6, "pause_s": 0.01})
    batches = legs.batches()
    next(batches)
    batches.close()
    assert nodes[0].handler.cancelled.wait(30)
    nodes, legs = open_legs({"batches": 10**6, "pause_s": 0.01})
    reader = legs.reader()
    reader.read_next_batch()
    del reader
    gc.collect()
    assert nodes[0].handler.cancelled.wait(30)


def test_cancelling_wakes_a_reader_that_waits(open_legs, kit):
    _, legs = open_legs({"batches": 5, "pause_s": 60})
    kit.spawn(lambda: (time.sleep(0.2), legs.cancel()))
    with pytest.raises(TransportError, match="cancelled"):
        list(legs)
    legs.cancel()


def test_legs_of_different_columns_are_refused(serve, pool, kit):
    class Other(kit.Numbers):
        def stream(self, command, context):
            return kit.StreamResult(schema=pa.schema([("n", pa.int32()), ("x", pa.float64())]), batches=())

    streams = [pool.open_stream(serve(handler).address, {}) for handler in (None, Other())]
    with pytest.raises(TransportError, match="different columns"):
        LegStreams(streams, SystemRuntime(), kit.spawn)


def count_threads(legs):
    """Note how often the legs ask for a thread."""
    asked, spawn = [], legs._spawn
    legs._spawn = lambda run: (asked.append(run), spawn(run))
    return asked


@pytest.mark.parametrize("command", [{"batches": 0}, {"batches": 1}, {"batches": 7, "rows": 100}])
def test_a_small_answer_that_nobody_waits_for_meanwhile_needs_no_thread(open_legs, command):
    _, legs = open_legs(command, alone=True)
    asked = count_threads(legs)
    table = pa.Table.from_batches(legs.batches(), legs.schema)
    assert table.num_rows == command["batches"] * command.get("rows", 10)
    assert (legs.rows_received, legs.bytes_received) == (table.num_rows, table.nbytes)
    assert legs.trailers() == ({"touched": command["batches"]},)
    assert (legs.error, asked) == (None, [])
    legs.cancel()
    assert legs.error is None


def test_a_large_answer_is_read_ahead_from_its_first_large_batch_on(open_legs, kit):
    _, legs = open_legs({"batches": 1000, "rows": 60_000}, alone=True, ahead_batches=3)
    asked, batches = count_threads(legs), legs.batches()
    next(batches), next(batches)
    kit.wait_until(lambda: legs.rows_received >= 5 * 60_000)
    assert kit.still(lambda: legs.rows_received) == 5 * 60_000
    assert len(asked) == 1
    assert sum(batch.num_rows for batch in batches) == 998 * 60_000
    assert legs.trailers() == ({"touched": 1000},)


@pytest.mark.parametrize("rows", [10, 60_000])
def test_a_leg_alone_fails_whole_and_stops(open_legs, rows):
    _, legs = open_legs({"batches": 9, "rows": rows, "fail_at": 3}, alone=True)
    with pytest.raises(SqlError, match="division by zero"):
        list(legs)
    assert isinstance(legs.error, SqlError)
    given_up = []
    nodes, legs = open_legs({"batches": 10**6, "pause_s": 0.02}, alone=True, given_up=lambda: given_up.append(1))
    batches = legs.batches()
    next(batches)
    nodes[0].stop()
    with pytest.raises(BallistaError):
        list(batches)
    assert given_up == [1]
    nodes, legs = open_legs({"batches": 10**6, "pause_s": 0.01, "rows": rows}, alone=True)
    batches = legs.batches()
    next(batches)
    batches.close()
    assert nodes[0].handler.cancelled.wait(30)


def test_cancelling_wakes_a_reader_that_waits_for_a_leg_alone(open_legs, kit):
    nodes, legs = open_legs({"batches": 5, "pause_s": 60}, alone=True)
    kit.spawn(lambda: (time.sleep(0.2), legs.cancel()))
    with pytest.raises(TransportError, match="the legs were cancelled"):
        list(legs)
    assert nodes[0].handler.cancelled.wait(30)
