"""Spark takes long to start: whoever has no time for it goes, and the start is for the next one."""

from __future__ import annotations

import queue
import threading

import pytest

from ballista_py.coordinator.spark_process import SparkProcess
from ballista_py.errors import ConfigError, TimeLimit, TransportError, TryLater
from ballista_py.runtime import SystemRuntime
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.threads import spawn
from ballista_py.work import Work, working

RUNTIME = SystemRuntime()


class Starts:
    """Starts of Spark, each of which waits to be let through."""

    def __init__(self, monkeypatch):
        self.begun, self.stopped, self.error = [], queue.Queue(), None
        self.through = threading.Event()
        monkeypatch.setattr("ballista_py.spark.opening.embedded_session", self.session)
        monkeypatch.setattr("ballista_py.spark.opening.stop_session", self.stopped.put)
        monkeypatch.setattr(
            "ballista_py.spark.statements.SparkStatements", lambda session, *_: Statements(session)
        )

    def session(self, *, memory, **_options):
        assert memory == "2048m"
        self.begun.append(len(self.begun))
        assert self.through.wait(60)
        if self.error is not None:
            raise self.error
        return self.begun[-1]


class Statements:
    ended = False

    def __init__(self, session):
        self.session = session

    def close(self):
        pass


@pytest.fixture
def starts(monkeypatch):
    made = Starts(monkeypatch)
    yield made
    made.through.set()


@pytest.fixture
def process():
    return SparkProcess(MemoryStore(), RUNTIME, spawn=spawn)


def test_the_time_of_a_statement_counts_while_spark_starts(starts, process):
    for _ in range(2):
        work = Work(RUNTIME)
        work.limit_to(50)
        with working(work), pytest.raises(TimeLimit):
            process.get()
    starts.through.set()
    assert process.get().session == 0
    assert starts.begun == [0]


def test_who_is_gone_waits_no_more(starts, process):
    def gone():
        raise TransportError("The query was cancelled")

    with pytest.raises(TransportError, match="cancelled"):
        process.get(gone)


def test_a_start_that_fails_is_told_to_all_and_the_next_one_tries_again(starts, process):
    starts.error = ConfigError("no Java")
    starts.through.set()
    for _ in range(2):
        with pytest.raises(ConfigError, match="no Java"):
            process.get()
    starts.error = None
    assert process.get().session == 2


def test_a_spark_that_starts_for_a_scheduler_that_ends_is_ended(starts, process):
    with pytest.raises(TransportError):
        process.get(lambda: (_ for _ in ()).throw(TransportError("gone")))
    process.close()
    starts.through.set()
    assert starts.stopped.get(timeout=60) == 0


def test_who_waits_when_the_scheduler_ends_is_told_so(starts, process):
    asked = threading.Event()
    told = []

    def wait():
        try:
            process.get(asked.set)
        except TryLater as error:
            told.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert asked.wait(60)
    process.close()
    waiting.join(60)
    assert len(told) == 1
