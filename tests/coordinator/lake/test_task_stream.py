"""The legs of tasks as one stream, over executors of this test: each row once, whatever fails, hangs or dies."""

import threading
import time
from collections import Counter

import pyarrow as pa
import pytest

from ballista_py.coordinator.lake.scans import is_reached, joined
from ballista_py.coordinator.lake.task_stream import TaskStream
from ballista_py.errors import InvalidData, SnapshotGone, StoreUnavailable, TransportError
from ballista_py.partitions.scanned_table import ScannedTable
from ballista_py.runtime import SystemRuntime
from ballista_py.scans.scan_run import ScanLimits
from ballista_py.scans.task import FileSlice, ScanTask
from ballista_py.sql.plan import Leg
from ballista_py.threads import spawn

SCHEMA = pa.schema([("task", pa.int64()), ("row", pa.int64())])
ROWS = 50


def leg(number: int, executor: str, relations=None) -> Leg:
    task = ScanTask(
        fragment_id="f0",
        number=number,
        files=(FileSlice(path=f"/t/{number}", size=1_000_000),),
        columns=("row",),
        schema=pa.schema([("row", pa.int64())]),
    )
    return Leg(
        fragment="f0",
        executor_id=executor,
        sql="select",
        tables=(),
        scans={"t@1-2": (task,)},
        relations=relations or {},
    )


class Stream:
    """What an executor gives of a task: some rows, then whatever the test says."""

    def __init__(self, number, act, schema=SCHEMA):
        self.schema = schema
        self.trailer = {}
        self.cancelled = threading.Event()
        self._number, self._act = number, act

    def batches(self):
        for part in range(5):
            if self.cancelled.is_set():
                raise TransportError("cancelled")
            self._act(self, part)
            rows = range(part * ROWS // 5, (part + 1) * ROWS // 5)
            yield pa.RecordBatch.from_pydict({"task": [self._number] * len(rows), "row": list(rows)}, SCHEMA)

    def cancel(self):
        self.cancelled.set()


class Executors:
    """`SendsLegs`: `act(executor, task, attempt)` gives what happens before each batch."""

    def __init__(self, act):
        self.sent, self.act, self.given_up = [], act, []
        self.lock = threading.Lock()

    def send(self, leg, address, _task_id):
        ((task,),) = leg.scans.values()
        with self.lock:
            self.sent.append((leg.executor_id, task.number))
            attempt = sum(one[1] == task.number for one in self.sent)
        act = self.act(leg.executor_id, task.number, attempt)
        return Stream(task.number, act or (lambda _stream, _part: None))

    @property
    def give_up(self):
        return self.given_up.append


def streamed(executors, tasks=12, names=("e1", "e2"), **options):
    legs = [leg(number, names[number % len(names)]) for number in range(tasks)]
    moved = lambda one, name: Leg(**{**{f: getattr(one, f) for f in FIELDS}, "executor_id": name})  # noqa: E731
    addresses = {name: f"{name}:1" for name in names}
    return TaskStream(legs, addresses, executors, moved, SystemRuntime(), spawn, **options)


FIELDS = ("fragment", "sql", "tables", "relations", "max_replica_lag_ms", "scans")


def read(stream, tasks=12):
    found = Counter()
    for batch in stream.batches():
        found.update(zip(batch["task"].to_pylist(), batch["row"].to_pylist(), strict=True))
    assert found == Counter((task, row) for task in range(tasks) for row in range(ROWS))
    return stream


def link_failure(executor):
    return TransportError("gone", peer=f"{executor}:1")


def test_every_row_is_given_once():
    executors = Executors(lambda *_: None)
    stream = read(streamed(executors))
    assert {task for _, task in executors.sent} == set(range(12))
    assert [one.rows for one in stream.progress] == [ROWS] * 12
    assert all(one.ended for one in stream.progress)


@pytest.mark.parametrize("part", range(5))
@pytest.mark.parametrize("held_bytes", [1 << 20, 0])
def test_an_executor_that_dies_at_any_moment_loses_and_doubles_no_row(part, held_bytes):
    died = threading.Event()

    def act(executor, _task, _attempt):
        def do(_stream, now):
            if executor == "e1":
                died.wait(5)
            elif now == part:
                died.set()
                raise link_failure("e2")

        return do

    executors = Executors(act)
    if held_bytes or part == 0:
        read(streamed(executors, held_bytes=held_bytes))
        assert sum(one[0] == "e2" for one in executors.sent) <= 2  # its two slots, and nothing more
        return
    with pytest.raises(TransportError, match="gone"):  # rows of it were given out, and nobody can say which
        read(streamed(executors, held_bytes=held_bytes))


def test_a_store_that_does_not_answer_is_asked_again_elsewhere_three_times_at_most():
    def act(_executor, task, attempt):
        def do(_stream, part):
            if task == 5 and part == 3 and attempt <= 3:
                raise StoreUnavailable("the store does not answer")

        return do

    executors = Executors(act)
    read(streamed(executors))
    assert sum(task == 5 for _, task in executors.sent) == 4

    def always(_executor, task, _attempt):
        def do(_stream, _part):
            if task == 5:
                raise StoreUnavailable("the store does not answer")

        return do

    executors = Executors(always)
    with pytest.raises(StoreUnavailable):
        read(streamed(executors))
    assert sum(task == 5 for _, task in executors.sent) == 4


def test_what_no_other_executor_would_do_better_is_raised_at_once():
    def act(_executor, task, _attempt):
        def do(_stream, _part):
            if task == 3:
                raise SnapshotGone("the file is gone")

        return do

    executors = Executors(act)
    with pytest.raises(SnapshotGone):
        read(streamed(executors))
    assert sum(task == 3 for _, task in executors.sent) == 1
    assert len(executors.given_up) == 1


def test_a_slow_executor_takes_fewer_tasks_and_its_last_one_is_copied():
    def act(executor, _task, _attempt):
        return lambda stream, _part: stream.cancelled.wait(0.4) if executor == "e2" else time.sleep(0.002)

    executors = Executors(act)
    limits = ScanLimits(straggler_ms=100.0)
    began = time.monotonic()
    read(streamed(executors, tasks=24, limits=limits), tasks=24)
    assert time.monotonic() - began < 1.5  # one task of the slow one alone takes two seconds
    assert sum(one[0] == "e2" for one in executors.sent) <= 4


def test_an_executor_that_never_answers_is_overtaken_and_told_to_end():
    hanging, hangs = [], threading.Event()

    def act(executor, _task, _attempt):
        def do(stream, _part):
            if executor == "e1":
                hangs.wait(5)
                return
            hanging.append(stream)
            hangs.set()
            stream.cancelled.wait(30)

        return do

    executors = Executors(act)
    began = time.monotonic()
    stream = streamed(executors, limits=ScanLimits(straggler_ms=100.0))
    rows = stream.batches()
    found = [next(rows) for _ in range(5)]  # and the rest is not asked for yet, so that nothing has ended
    while not all(one.cancelled.is_set() for one in hanging) and time.monotonic() < began + 5:
        time.sleep(0.01)
    assert all(one.cancelled.is_set() for one in hanging)
    assert stream.error is None
    assert sum(batch.num_rows for batch in (*found, *rows)) == 12 * ROWS
    assert time.monotonic() - began < 5


def test_it_is_over_when_nobody_wants_its_rows():
    seen = []

    def act(_executor, _task, _attempt):
        return lambda stream, _part: seen.append(stream) or stream.cancelled.wait(5)

    executors = Executors(act)
    stream = streamed(executors)
    while len(seen) < 4:
        time.sleep(0.01)
    stream.cancel()
    with pytest.raises(TransportError, match="cancelled"):
        next(stream.batches())
    assert all(one.cancelled.is_set() for one in seen)
    assert len(executors.given_up) == 1
    time.sleep(0.3)
    assert len(executors.sent) == 4  # no other was begun


def test_rows_wait_within_a_bound_for_who_reads_slowly(monkeypatch):
    monkeypatch.setattr("ballista_py.coordinator.lake.task_stream.AHEAD_BYTES", 500)
    executors = Executors(lambda *_: None)
    stream = streamed(executors, tasks=40, held_bytes=0)
    time.sleep(0.5)
    assert stream._waiting_bytes < 5_000
    read(stream, tasks=40)


def test_legs_that_give_other_columns_are_refused():
    class Odd(Executors):
        def send(self, leg, address, task_id):
            stream = super().send(leg, address, task_id)
            if leg.executor_id == "e2":
                stream.schema = pa.schema([("x", pa.int64())])
            return stream

    began = threading.Barrier(2, timeout=5)

    def act(_executor, _task, attempt):
        return lambda _stream, part: began.wait() if part == 0 and attempt == 1 else None

    with pytest.raises(InvalidData, match="different columns"):
        read(streamed(Odd(act), tasks=2, slots=1), tasks=2)


def test_legs_that_carry_much_along_are_fewer_and_read_the_same_files():
    legs = [leg(number, f"e{number % 3}", {"b": b"x" * (8 << 20)}) for number in range(40)]
    found = joined(legs, 3)
    assert len(found) == 8 or len(found) == 9
    files = [file.path for one in found for (task,) in one.scans.values() for file in task.files]
    assert sorted(files) == sorted(f"/t/{number}" for number in range(40))
    assert {one.executor_id for one in found} == {"e0", "e1", "e2"}
    assert joined([leg(n, "e0") for n in range(40)], 3) == [leg(n, "e0") for n in range(40)]


@pytest.mark.parametrize(
    ("addresses", "scan", "reached"),
    [
        ([], {}, True),
        (["127.0.0.1:5", "[::1]:6"], {}, True),
        (["127.0.0.1:5", "10.0.0.1:6"], {}, False),
        (["10.0.0.1:6"], {"shared": True}, True),
        (["10.0.0.1:6"], {"shared": "no"}, False),
    ],
)
def test_a_folder_is_reached_where_it_is_said_to_be(addresses, scan, reached):
    table = ScannedTable(name="t", scan={"format": "parquet", "path": "/lake", **scan})
    assert is_reached(table, addresses) is reached
