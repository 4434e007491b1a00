"""What a task elsewhere does with the store: names of its own, no row twice or lost, nothing once the run has ended."""

from __future__ import annotations

import itertools
import sys

import numpy as np
import pyarrow as pa
import pytest

from ballista_py.errors import (
    DocumentUnreadable,
    MergeTooLarge,
    OutcomeUnknown,
    StoreUnavailable,
    TryLater,
    VersionConflict,
)
from ballista_py.runtime import SystemRuntime
from ballista_py.spark import task_entry, worker_tasks
from ballista_py.spark.answers import Receipt
from ballista_py.spark.elsewhere import TaskStore
from ballista_py.spark.on_workers import failure_on_a_worker, release_here
from ballista_py.spark.staging import staging
from ballista_py.spark.store_answers import StoreAnswers
from ballista_py.spark.store_files import _received
from ballista_py.state.documents.claims import Claim, end_dead_claims
from ballista_py.state.documents.codec import converter
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.storage.formats.files import read_data_file, write_data_file, write_deletion_vector
from ballista_py.storage.manifest import DataFile

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
PREFIX = "snapshots/t/data/run"
RUNTIME = SystemRuntime()


class LossyStore(MemoryStore):
    """Loses the replies of the next writes of data files, whether they landed or not."""

    lost = 0
    lands = True

    def create(self, key, data):
        if key.endswith((".parquet", ".arrow")) and self.lost:
            self.lost -= 1
            if self.lands:
                super().create(key, data)
            raise OutcomeUnknown("no reply came")
        return super().create(key, data)


@pytest.fixture
def store(monkeypatch):
    made, attempts = LossyStore(), itertools.count()
    monkeypatch.setattr(worker_tasks, "_store", lambda opened: made)
    monkeypatch.setattr(worker_tasks, "_attempt", lambda: f"{next(attempts)}-x")
    monkeypatch.setattr(worker_tasks, "_part", lambda: 3)
    return made


@pytest.fixture
def claim(store):
    return Claim.take(store, f"{PREFIX}/", RUNTIME)


def batches(numbers, size=1_000):
    """Rows of which each says to which partition it belongs."""
    for start in range(0, len(numbers), size):
        part = numbers[start : start + size]
        ids = pa.array(range(start, start + len(part)), pa.int64())
        texts = pa.array([f"t{number}" for number in ids.to_pylist()], pa.large_string())
        yield pa.RecordBatch.from_arrays([ids, texts, pa.array(part, pa.int32())], names=["a", "b", "n"])


def put(rows, claim, most=1 << 30):
    arguments = (("", ""), claim.key, PREFIX, SCHEMA, "zstd", most)
    told = worker_tasks.put_rows(rows, *arguments)
    return [(row["number"], _received(row["file"], PREFIX)) for batch in told for row in batch.to_pylist()]


def test_every_row_lies_in_a_file_of_its_partition_once(store, claim, monkeypatch):
    monkeypatch.setattr(worker_tasks.parquet, "ROW_GROUP_ROWS", 700)
    numbers = np.sort(np.random.default_rng(7).integers(0, 5, 9_000))
    found = put(batches(numbers.tolist()), claim)
    assert len({file.path for _, file in found}) == len(found) == 5
    for number, file in found:
        rows = read_data_file(store, file, SCHEMA)
        assert rows["id"].to_pylist() == np.flatnonzero(numbers == number).tolist()
        assert file.rows == rows.num_rows
        assert file.columns["id"].min == str(rows["id"][0])


def test_a_file_that_would_be_too_large_is_several(store, claim, monkeypatch):
    monkeypatch.setattr(worker_tasks.parquet, "ROW_GROUP_ROWS", 1_000)
    found = put(batches([2] * 10_000), claim, most=10_000)
    assert len(found) > 2
    assert all(file.bytes < 20_000 for _, file in found)
    assert sorted(i for _, f in found for i in read_data_file(store, f, SCHEMA)["id"].to_pylist()) == list(
        range(10_000)
    )


def test_two_attempts_at_a_task_share_no_file(store, claim):
    one, other = put(batches([1] * 10), claim), put(batches([1] * 10), claim)
    assert one[0][1].path != other[0][1].path


@pytest.mark.parametrize("lands", [True, False])
def test_a_lost_reply_makes_no_row_twice(store, claim, lands):
    store.lost, store.lands = 2, lands
    ((number, file),) = put(batches([4] * 10), claim)
    assert (number, read_data_file(store, file, SCHEMA).num_rows) == (4, 10)


def test_a_store_that_never_replies_is_an_error(store, claim):
    store.lost = 9
    with pytest.raises(StoreUnavailable, match="no reply came, three times"):
        put(batches([4] * 10), claim)


def test_a_task_puts_nothing_once_its_run_has_ended(store, claim):
    end_dead_claims(store, RUNTIME, patience_ms=1)
    with pytest.raises(VersionConflict, match="is over"):
        put(batches([4] * 10), claim)
    claim.end()
    with pytest.raises(VersionConflict, match="not the store in which it was made"):
        put(batches([4] * 10), claim)
    assert list(store.list(PREFIX)) == []


def test_a_task_of_a_run_that_has_ended_takes_no_rows(store, claim):
    claim.end()
    with pytest.raises(VersionConflict):
        put((pytest.fail("it asked for rows") for _ in range(1)), claim)


def test_a_task_that_stood_still_puts_nothing_more(store, claim):
    def late():
        yield from batches([4] * 10)
        claim.end()

    with pytest.raises(VersionConflict):
        put(late(), claim)
    assert list(store.list(PREFIX)) == []


def test_what_does_not_count_is_removed_when_a_run_is_published_or_given_up(store):
    for is_published in (True, False):
        with staging(store, "t", "run", RUNTIME, put=True) as stage:
            counted = [file for _, file in put(batches([1] * 10), stage.claim)]
            put(batches([1] * 10), stage.claim)  # an attempt whose result nobody took
            assert stage.took(counted) == counted
            if is_published:
                stage.confirm()
                left = {entry.key for entry in store.list(PREFIX)}
                assert left == {file.path for file in counted}
            else:
                stage.discard()
                with pytest.raises(VersionConflict):
                    put(batches([1] * 10), stage.claim)
                assert list(store.list(PREFIX)) == []


def test_a_run_whose_file_is_gone_is_not_published(store):
    with staging(store, "t", "run", RUNTIME, put=True) as stage:
        counted = stage.took([file for _, file in put(batches([1] * 10), stage.claim)])
        store.delete(counted[0].path)
        with pytest.raises(VersionConflict, match="was removed before it was published"):
            stage.confirm()


@pytest.mark.parametrize("text", ["{}", "no JSON", '{"path": 7, "rows": 1, "bytes": 1}'])
def test_a_receipt_that_is_none_is_refused(text):
    with pytest.raises(DocumentUnreadable, match="in other words"):
        _received(text, PREFIX)


def test_a_file_where_no_task_was_sent_is_refused():
    text = converter().dumps(DataFile(path=f"{PREFIX}-other/a.parquet", rows=1, bytes=1)).decode()
    with pytest.raises(DocumentUnreadable, match="where it was not sent"):
        _received(text, PREFIX)


def test_rows_are_read_without_those_that_are_gone_and_in_the_types_of_spark(store):
    rows = pa.table({"id": range(5), "text": list("abcde")}, SCHEMA)
    whole = write_data_file(store, "snapshots/t/data/a.parquet", rows)
    less = write_deletion_vector(store, "snapshots/t/data/a.gone", whole, np.array([1, 3]))
    wanted = pa.schema([("text", pa.large_string()), ("id", pa.int64())])
    texts = tuple(converter().dumps(file) for file in (whole, less))
    numbers = [pa.RecordBatch.from_pydict({"id": [1]}), pa.RecordBatch.from_pydict({"id": [0]})]
    found = pa.Table.from_batches(worker_tasks.read_files(iter(numbers), ("", ""), texts, SCHEMA, wanted))
    assert found.schema == wanted
    assert found["id"].to_pylist() == [0, 2, 4, 0, 1, 2, 3, 4]
    damaged = converter().dumps(DataFile(path=whole.path, rows=5, bytes=whole.bytes, checksum="crc32:00000000"))
    with pytest.raises(DocumentUnreadable, match="damaged"):
        list(worker_tasks.read_files(iter(numbers[1:]), ("", ""), (damaged,), SCHEMA, wanted))


@pytest.fixture
def answers(store):
    return StoreAnswers(store, RUNTIME, TaskStore.of("s3://b/p"), 10_000_000)


def keep(answers, place, rows):
    arguments = (("", ""), answers.home, place.folder, answers.max_bytes)
    told = worker_tasks.keep_answer(rows, *arguments)
    return [Receipt(*row.values()) for batch in told for row in batch.to_pylist()]


def test_an_answer_is_read_in_order_and_leaves_nothing(store, answers, monkeypatch):
    monkeypatch.setattr(worker_tasks, "PIECE_BYTES", 20_000)
    place = answers.new()
    keep(answers, place, batches([1] * 3_000))  # an attempt that does not count
    receipts = keep(answers, place, batches([1] * 9_000))
    assert len(receipts) > 3
    output = pa.schema([*SCHEMA, ("n", pa.int32())])
    answer = place.answer(receipts[::-1], output)
    assert pa.Table.from_batches(answer.batches(), output)["id"].to_pylist() == list(range(9_000))
    assert list(store.list("snapshots/-")) == []


def test_a_lost_reply_makes_no_row_of_an_answer_twice(store, answers):
    store.lost = 1
    place = answers.new()
    answer = place.answer(keep(answers, place, batches([1] * 10)), pa.schema([*SCHEMA, ("n", pa.int32())]))
    assert sum(batch.num_rows for batch in answer.batches()) == 10


def test_a_task_puts_nothing_of_an_answer_that_was_given_up(store, answers):
    place = answers.new()
    place.drop()
    with pytest.raises(TryLater, match="given up"):
        keep(answers, place, batches([1] * 10))
    assert list(store.list("snapshots/-")) == []


def test_a_task_puts_nothing_while_an_answer_is_being_removed(store, answers, monkeypatch):
    place, listed = answers.new(), store.list

    def late(prefix):
        found = list(listed(prefix))
        if prefix == place.folder:
            with pytest.raises(TryLater, match="given up"):
                keep(answers, place, batches([1] * 10))
        return iter(found)

    monkeypatch.setattr(store, "list", late)
    place.drop()
    assert list(listed("snapshots/-")) == []


def test_answers_take_no_more_of_the_store_than_they_may_together(store, answers):
    answers.max_bytes = 1_000
    keep(answers, answers.new(), batches([1] * 10))
    with pytest.raises(MergeTooLarge, match="more than 1,000 bytes of the store"):
        keep(answers, answers.new(), batches([1] * 10))


def test_a_part_that_is_lost_or_short_is_an_error(store, answers):
    output = pa.schema([*SCHEMA, ("n", pa.int32())])
    place = answers.new()
    receipts = keep(answers, place, batches([1] * 10))
    short = [Receipt(one.part, one.file, one.rows + 1) for one in receipts]
    with pytest.raises(TryLater, match="10 of 11 rows"):
        list(place.answer(short, output).batches())
    with pytest.raises(TryLater, match="does not give it"):
        list(place.answer(receipts, output).batches())


def test_a_worker_without_this_release_says_so(monkeypatch):
    run = task_entry.entry("0.0.9", "tell_release", ((), ""))
    with pytest.raises(RuntimeError, match=f"{task_entry.UNFIT}: .* the driver 0.0.9") as raised:
        list(run(iter(())))
    assert "install this release" in failure_on_a_worker(raised.value).message
    monkeypatch.setitem(sys.modules, "ballista_py.spark.worker_tasks", None)
    with pytest.raises(RuntimeError, match=task_entry.UNFIT):
        list(task_entry.entry(release_here(), "tell_release", ((), ""))(iter(())))


def test_an_error_on_a_worker_comes_back_as_what_it_is(monkeypatch):
    def fail(_batches):
        raise StoreUnavailable("the store is closed on Sundays")
        yield

    monkeypatch.setattr(worker_tasks, "read_files", fail)
    with pytest.raises(RuntimeError) as raised:
        list(task_entry.entry(release_here(), "read_files", ())(iter(())))
    spark = RuntimeError(f"Job aborted\nTraceback\nRuntimeError: {raised.value}\n\tat org.apache.spark")
    found = failure_on_a_worker(spark)
    assert (type(found), found.message) == (StoreUnavailable, "the store is closed on Sundays")
    strange = RuntimeError(f"{task_entry.FAILED} SystemExit: x")
    assert failure_on_a_worker(strange) is None
    assert failure_on_a_worker(RuntimeError("x")) is None
