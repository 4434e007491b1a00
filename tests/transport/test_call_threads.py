"""The threads of calls: never more than allowed, none idle for long, and what fails is told to whoever waits."""

from __future__ import annotations

import threading
import time

import grpc
import pytest

from ballista_py.errors import TryLater
from ballista_py.memory_budget import MemoryBudget
from ballista_py.runtime import SystemRuntime
from ballista_py.testing.hostile.raw_flight import RawFlight
from ballista_py.transport.flight.holdings import ClientBytes
from ballista_py.transport.flight.listener import CallThreads
from ballista_py.transport.flight.wire import to_json


def spawn(function):
    threading.Thread(target=function, daemon=True).start()


def test_a_burst_takes_as_many_threads_as_allowed_and_what_is_beyond_waits_for_one():
    threads = CallThreads(spawn, limit=3)
    go, begun = threading.Event(), []

    def work(number):
        begun.append(number)
        assert go.wait(30)
        return number

    done = [threads.submit(work, number) for number in range(5)]
    while len(begun) < 3:
        time.sleep(0.001)
    assert len(threads) == 3
    assert sorted(begun) == [0, 1, 2]
    go.set()
    assert [future.result(30) for future in done] == [0, 1, 2, 3, 4]
    assert len(threads) == 3


def test_after_a_burst_the_threads_end_though_a_little_work_comes_all_the_time():
    """Were work given to whoever waited longest, none of them would ever be idle for long."""
    threads = CallThreads(spawn, limit=50, idle_s=0.3)
    together = threading.Barrier(20)
    for future in [threads.submit(together.wait, 30) for _ in range(20)]:
        future.result(30)
    assert len(threads) == 20
    until = time.monotonic() + 60
    while len(threads) > 2 and time.monotonic() < until:
        threads.submit(time.monotonic).result(30)
        time.sleep(0.01)
    assert len(threads) <= 2


def test_what_a_task_raises_and_a_thread_that_cannot_be_had_are_told():
    def fail():
        raise ValueError("no")

    threads = CallThreads(spawn, limit=1)
    with pytest.raises(ValueError, match="no"):
        threads.submit(fail).result(30)
    assert threads.submit(len, "four").result(30) == 4

    def none_left(_function):
        raise RuntimeError("can't start new thread")

    threads = CallThreads(none_left, limit=1)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="can't start"):
            threads.submit(len, "")
    assert len(threads) == 0


def test_the_messages_of_one_client_have_a_bound_together():
    holdings = ClientBytes(SystemRuntime(), max_bytes=100)
    holdings.exchange("a", 0, 500)  # one alone is a question of what a message may have
    with pytest.raises(TryLater, match="messages of this client"):
        holdings.exchange("a", 0, 1)
    holdings.exchange("b", 0, 100)
    holdings.exchange("a", 500, 40)
    holdings.exchange("a", 0, 60)
    with pytest.raises(TryLater):
        holdings.exchange("a", 40, 41)
    assert holdings.of("a") == 60
    holdings.exchange("a", 60, 0)
    assert (holdings.of("a"), holdings.of("b")) == (0, 100)


def test_the_messages_of_all_clients_have_a_bound_together_and_their_place_in_the_node():
    mib = 1 << 20
    budget = MemoryBudget(800 * mib, SystemRuntime())
    holdings = ClientBytes(SystemRuntime(), budget=budget)  # 400 MiB
    holdings.exchange("a", 0, 128 * mib)
    holdings.exchange("a", 0, 128 * mib)
    with pytest.raises(TryLater, match="this node is given now take 384 MiB, and may take 400"):
        holdings.exchange("a", 0, 128 * mib)  # a quarter is for others
    holdings.exchange("a", 0, mib // 2)  # and what is small passes
    holdings.exchange("b", 0, 100 * mib)
    with pytest.raises(TryLater, match="may take 400"):
        holdings.exchange("c", 0, 100 * mib)
    holdings.exchange("a", 128 * mib, 0)
    holdings.exchange("c", 0, 100 * mib)
    held = [holdings.reserved("c", size) for size in (100 * mib, 1000)]
    assert held[1] is None
    assert budget.ledger.held_bytes == 100 * mib
    held[0].end()
    assert budget.ledger.held == {}


def test_a_call_gives_back_the_place_of_its_messages_however_it_ends(serve, kit):
    budget = MemoryBudget(64 << 20, SystemRuntime())
    served = serve(caller_limit=8, budget=budget)
    large = "y" * (2 << 20)
    with RawFlight(f"ballista://{served.address}") as flight:
        first = threading.Thread(target=flight.action, args=("wait", to_json({"s": 60, "x": large})))
        first.start()
        kit.wait_until(lambda: budget.ledger.held_bytes > len(large))
        served.handler.cancelled.set()
        first.join(30)
        with pytest.raises(grpc.RpcError):
            flight.action("echo", large.encode())  # which is no JSON
    kit.wait_until(lambda: budget.ledger.held_bytes == 0)


def test_a_client_with_too_much_at_once_is_told_so_and_goes_on_when_it_is_less(serve, kit):
    served = serve(caller_limit=8)
    holdings = served.server._calls.holdings
    holdings._max_bytes = 3 << 20
    large = "y" * (2 << 20)
    with RawFlight(f"ballista://{served.address}") as flight:
        first = threading.Thread(target=flight.action, args=("wait", to_json({"s": 60, "x": large})))
        first.start()
        kit.wait_until(lambda: holdings.of("127.0.0.1") > len(large))
        with pytest.raises(grpc.RpcError, match="the messages of this client take 4 MiB together"):
            flight.action("echo", to_json({"x": large}))
        assert flight.action("echo", to_json({"x": "small"}))
        served.handler.cancelled.set()
        first.join(30)
        assert flight.action("echo", to_json({"x": large}))
    assert not holdings.of("127.0.0.1")


def test_what_is_held_besides_messages_counts_until_it_is_over():
    holdings = ClientBytes(SystemRuntime(), max_bytes=100)
    with holdings.holding("ada") as hold:
        hold(60)
        hold(90)
        assert holdings.of("ada") == 90
        with holdings.holding("ada") as second, pytest.raises(TryLater, match="take"):
            second(20)
        with pytest.raises(TryLater), holdings.holding("ada") as third:
            third(11)
        assert holdings.of("ada") == 90
        with holdings.holding("bob") as other:
            other(1_000)  # one alone is always let in
    assert holdings.of("ada") == holdings.of("bob") == 0
