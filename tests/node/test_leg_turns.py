"""Legs of one client are begun a few at once at an executor; those of others beside them."""

import threading

import pyarrow as pa
import pytest

from ballista_py.node.executor import answers
from ballista_py.node.executor.answers import ExecutorAnswers
from ballista_py.node.status.tasks import Tasks
from ballista_py.runtime import SystemRuntime
from ballista_py.turns import Turns

BATCH = pa.record_batch({"n": [1]})


@pytest.fixture
def executor(monkeypatch):
    monkeypatch.setattr(answers, "LEGS_OF_CLIENT", 2)
    runtime = SystemRuntime()
    return ExecutorAnswers("e", None, Tasks("e", runtime), turns=Turns(runtime, 3))


def test_a_leg_has_a_turn_until_its_first_rows_are_there(executor):
    def rows():
        assert executor.turns.taken("a") == 1
        yield BATCH
        assert executor.turns.taken("a") == 0
        yield BATCH

    assert list(executor._begun_in_turn("a", rows())) == [BATCH, BATCH]
    assert list(executor._begun_in_turn("a", iter(()))) == []
    assert executor.turns.taken("a") == 0


def test_a_leg_that_fails_or_is_left_gives_its_turn_back(executor):
    def failing():
        raise ValueError
        yield

    with pytest.raises(ValueError):
        next(executor._begun_in_turn("a", failing()))
    begun = executor._begun_in_turn("a", iter((BATCH, BATCH)))
    next(begun)
    begun.close()
    assert executor.turns.taken("a") == 0


def test_the_third_leg_of_a_client_waits_and_another_clients_does_not(executor):
    go_on = threading.Event()
    started = threading.Semaphore(0)

    def slow():
        started.release()
        go_on.wait(60)
        yield BATCH

    def read(lane):
        list(executor._begun_in_turn(lane, slow()))

    threads = [threading.Thread(target=read, args=("a",)) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert all(started.acquire(timeout=60) for _ in range(2))
    assert not started.acquire(timeout=0.1)
    threads.append(threading.Thread(target=read, args=("b",)))
    threads[-1].start()
    assert started.acquire(timeout=60)
    go_on.set()
    for thread in threads:
        thread.join(60)
    assert not executor.turns._held
