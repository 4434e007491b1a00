"""The Spark of a scheduler is started anew when it was killed, and ended when a cancelled statement goes on in it."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.spark

# In a process of its own, because the Spark of the other tests must not end. Nothing here notices a cancel: the
# tasks hold their cores within what Spark compiles of the joins.
SCRIPT = """
import os, signal, sys, time
from concurrent.futures import ThreadPoolExecutor
import pyarrow as pa
from pyspark import SparkContext
from ballista_py.errors import TransportError, TryLater
from ballista_py.coordinator.spark_process import SparkProcess
from ballista_py.runtime import SystemRuntime
from ballista_py.spark.answers import AnswerFolder
from ballista_py.spark.session import embedded_session
from ballista_py.state.stores.store import open_store

class Statement:
    output = pa.schema([("n", pa.int64())])
    def __init__(self, spark, text, collect=True):
        self.jobs = spark.jobs()
        self.running = threads.submit(spark.run, text, [], self.output, self.jobs, collect=collect)
    def rows(self):
        return pa.Table.from_batches(self.running.result(120).batches(), self.output).to_pylist()

def is_at_work(statement):
    assert not statement.running.done(), statement.running.result()
    return statement.jobs.are_running()

def ended_as(kind, statement):
    try:
        statement.running.result(120)
    except kind as error:
        assert type(error) is kind, repr(error)
        return
    raise AssertionError("it gave an answer")

embedded_session(master="local[2]", memory="512m")
answers = AnswerFolder(sys.argv[1])
process = SparkProcess(open_store("memory://x"), SystemRuntime(), stuck_ms=500, answers=answers)
threads = ThreadPoolExecutor(4)
rows = f"(select id from (values {', '.join(f'({n})' for n in range(3000))}) v(id))"
joined = ", ".join(f"{rows} {name}" for name in "abcd")
deaf = f"select count(*) as n from {joined} where a.id + b.id + c.id + d.id < -1"
few = f"select count(*) as n from {rows}"
spark = process.get()
assert process.get() is spark
while not spark.ended:  # in the first round, unless what is cancelled had not come to its joins yet
    stuck = Statement(spark, deaf)
    while not is_at_work(stuck):
        process.tick()
        time.sleep(0.05)
    time.sleep(0.7)
    process.tick()
    assert not spark.ended, "it was not cancelled"
    stuck.jobs.cancel()
    process.was_cancelled(stuck.jobs)
    other = Statement(spark, few)
    for _ in range(100):
        process.tick()
        time.sleep(0.05)
ended_as(TransportError, stuck)
ended_as(TryLater, other)
again = process.get()
assert again is not spark
assert Statement(again, few).rows() == [{"n": 3000}]
kept = Statement(again, few, collect=False)
kept.running.result(120)
process.tick()
assert not again.ended
killed = Statement(again, deaf, collect=False)
while not is_at_work(killed):
    time.sleep(0.05)
cancelled = again.jobs()
try:
    with cancelled.running():
        os.kill(SparkContext._gateway.proc.pid, signal.SIGKILL)
        ended_as(TryLater, killed)
        cancelled.cancel()
        raise ConnectionError("what is said of a JVM that has gone")
except TransportError as error:
    assert "The query was cancelled" in str(error)
else:
    raise AssertionError("it was cancelled and nobody says so")
assert again.ended
assert len(os.listdir(sys.argv[1])) == 1, "of the statement that was killed something is left"
assert kept.rows() == [{"n": 3000}]
assert os.listdir(sys.argv[1]) == []
process.tick()
process.close()
process.close()
print("done")
"""


@pytest.mark.long
def test_a_spark_that_was_killed_is_started_anew_and_one_that_does_not_let_go_is_ended(tmp_path):
    """And an answer that was complete can be read on, while nothing is left of one that was not."""
    words = [sys.executable, "-c", SCRIPT, str(tmp_path / "answers")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=500, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
