"""Answers of Spark that are kept on disk: the same rows as through its driver, bounded, and nothing left behind."""

from __future__ import annotations

import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.engines.same_answer import difference
from ballista_py.errors import ConfigError, MergeTooLarge, SqlError, TransportError, TryLater
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.spark import answer_task
from ballista_py.spark.answers import AnswerFiles, AnswerFolder, Receipt
from ballista_py.spark.pipeline import SparkPipeline
from ballista_py.spark.statements import SparkStatements, TablePart
from ballista_py.state.stores.local import LocalStore

pytestmark = pytest.mark.spark

ID = pa.schema([("id", pa.int64())])
ROWS = 600_000
MANY = "select id from numbers"
TYPES = """
select n, n % 2 = 0 as flag, cast(n as tinyint) as t, cast(n as smallint) as s, cast(n as integer) as i,
       cast(n as float) as f, cast(n as double) / 3 as d, cast(n as decimal(38, 3)) as big, cast(n as varchar) as text,
       cast('x' as blob) as bytes, date '1500-01-01' + cast(n as integer) as day,
       timestamp '0001-01-01 00:00:00.000001' as old, timestamptz '2020-01-01 00:00:00+02' as moment,
       null as nothing, [n, null] as list, {'a': n, 'b': null} as pair, map(['k'], [n]) as entries,
       [{'a': ['x', null]}] as nested, n as n, case when n > 1 then 'ß' end as "Quoted name"
from (select 0::bigint as n union all select 1::bigint as n union all select 2::bigint as n
      union all select 3::bigint as n)
"""


@pytest.fixture
def home(tmp_path):
    return str(tmp_path / "answers")


@pytest.fixture
def answers(home):
    return AnswerFolder(home)


@pytest.fixture(scope="module")
def loaded(spark, tmp_path_factory):
    """The store and the partitions of `numbers`, a table of more rows than a small answer comes from."""
    folder = tmp_path_factory.mktemp("numbers")
    source = str(folder / "numbers.parquet")
    pq.write_table(pa.table({"id": range(ROWS)}, ID), source)
    store = LocalStore(str(folder / "state"))
    pipeline = SparkPipeline(spark, store)
    schema = pipeline.describe("numbers", source)
    spec = PartitionSpec.parse(["bucket(4, id)"], schema)
    table = TableSpec(name="numbers", schema=schema, spec=spec, source={"path": source})
    pmap = PartitionMap.build("numbers", spec, list(pipeline.materialize(table).partitions))
    return store, [TablePart(table=table, map=pmap, partitions=range(len(pmap)))]


@pytest.fixture
def parts(loaded):
    return loaded[1]


@pytest.fixture
def statements(spark, loaded, answers):
    return SparkStatements(spark, loaded[0], answers=answers)


@contextmanager
def driver_holds(spark, size):
    """Within the block Spark's driver takes no more than `size` of results."""
    conf = spark.sparkContext._jsc.sc().conf()
    before = conf.get("spark.driver.maxResultSize", "1g")
    conf.set("spark.driver.maxResultSize", size)
    try:
        yield
    finally:
        conf.set("spark.driver.maxResultSize", before)


def table(answer):
    return pa.Table.from_batches(answer.batches(), answer.schema)


def expected(sql):
    engine = DuckDBEngine(threads=1)
    running = engine.query(sql)
    try:
        return pa.Table.from_batches(running.batches(), running.schema)
    finally:
        engine.close()


def test_every_type_comes_back_from_disk_as_through_the_driver(statements, home):
    single = expected(TYPES)
    for collect in (True, False):
        answer = statements.run(TYPES, [], single.schema, collect=collect)
        assert len(os.listdir(home)) == (not collect)
        assert difference(table(answer), single) is None
    assert os.listdir(home) == []


def test_an_answer_beyond_what_the_driver_holds_is_read_in_order_and_leaves_nothing(
    spark, statements, home, parts
):
    wide = f"select id, repeat('x', 20) || id as text from ({MANY}) order by id desc"
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    with driver_holds(spark, "1m"):
        answer = statements.run(wide, parts, schema)
    (folder,) = os.listdir(home)
    assert len(os.listdir(os.path.join(home, folder))) > 1
    rows = table(answer)
    assert rows["id"].to_pylist() == list(range(ROWS - 1, -1, -1))
    assert rows["text"][0].as_py() == "x" * 20 + str(ROWS - 1)
    assert os.listdir(home) == []


def test_files_go_as_they_are_read(statements, home, parts):
    answer = statements.run(f"{MANY} order by 1", parts, ID)
    (folder,) = os.listdir(home)
    before = len(os.listdir(os.path.join(home, folder)))
    batches = answer.batches()
    next(batches)
    assert len(os.listdir(os.path.join(home, folder))) == before - 1
    batches.close()
    assert os.listdir(home) == []


def test_an_answer_that_is_larger_than_it_looks_is_kept_on_disk_after_all(spark, statements):
    text = (
        "select repeat('x', 100000) as text from (values " + ", ".join(f"({n})" for n in range(300)) + ") as t (n)"
    )
    with driver_holds(spark, "1m"):
        answer = statements.run(text, [], pa.schema([("text", pa.string())]))
    batches = list(answer.batches())
    assert [value.as_py() for batch in batches for value in batch["text"]] == ["x" * 100_000] * 300
    assert len(batches) > 1, "wide rows came in one batch of any size"


@pytest.mark.parametrize(
    "sql", [f"select id from ({MANY}) where id < 0", f"{MANY} limit 0", "select 1 where 1 = 0"]
)
@pytest.mark.parametrize("collect", [True, False])
def test_an_answer_without_rows_has_its_columns(statements, home, sql, collect, parts):
    answer = statements.run(sql, parts, ID, collect=collect)
    assert table(answer).equals(ID.empty_table())
    assert os.listdir(home) == []


def test_a_limit_has_its_rows(statements, parts):
    assert table(statements.run(f"{MANY} limit 50000", parts, ID)).num_rows == 50_000
    best = table(statements.run(f"{MANY} order by id desc limit 20000", parts, ID))
    assert best["id"].to_pylist() == list(range(ROWS - 1, ROWS - 20_001, -1))


def test_values_of_another_type_and_too_many_columns_are_one_error(statements, home, parts):
    with pytest.raises(SqlError, match="not of the type that a single node gives"):
        table(statements.run(MANY, parts, pa.schema([("id", pa.int8())])))
    with pytest.raises(SqlError, match="Spark gave 1 columns where a single node gives 2"):
        statements.run(MANY, parts, pa.schema([("id", pa.int64()), ("other", pa.int64())]))
    with pytest.raises(SqlError, match=r"Spark refused the statement: .*no 7") as caught:
        statements.run(
            f"select case when id = 7 then raise_error('no ' || id) else id end as id from ({MANY})", parts, ID
        )
    assert "\n" not in caught.value.message
    assert os.listdir(home) == []


def test_a_statement_that_is_cancelled_while_it_writes_leaves_nothing(statements, home, parts):
    endless = f"select a.id * b.id as id from ({MANY}) a, (select id from numbers where id < 1000) b"
    jobs = statements.jobs()
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(statements.run, endless, parts, ID, jobs)
        until = time.monotonic() + 60
        while not (at_work := answer_task.bytes_below(home)) and not running.done() and time.monotonic() < until:
            time.sleep(0.02)
        jobs.cancel()
        assert at_work
        with pytest.raises(TransportError, match="cancelled"):
            running.result(timeout=60)
        assert os.listdir(home) == []
    while jobs.are_running():
        assert time.monotonic() < until
        time.sleep(0.05)
    assert os.listdir(home) == []


def test_a_statement_that_is_cancelled_when_its_answer_is_complete_leaves_nothing(
    statements, home, parts, monkeypatch
):
    jobs = statements.jobs()
    complete = AnswerFiles.answer

    def then_cancelled(files, receipts, schema):
        answer = complete(files, receipts, schema)
        jobs.cancel()
        return answer

    monkeypatch.setattr(AnswerFiles, "answer", then_cancelled)
    with pytest.raises(TransportError, match="cancelled"):
        statements.run(MANY, parts, ID, jobs)
    assert os.listdir(home) == []


def test_an_answer_that_is_given_up_while_it_is_read_leaves_nothing(statements, home, parts):
    answer = statements.run(MANY, parts, ID)
    batches = answer.batches()
    next(batches)
    answer.close()
    assert os.listdir(home) == []
    with pytest.raises(TransportError, match="cancelled"):
        list(batches)
    unread = statements.run(MANY, parts, ID)
    unread.close()
    assert os.listdir(home) == []
    with pytest.raises(TransportError, match="cancelled"):
        list(unread.batches())


def test_answers_together_take_no_more_disk_than_they_may(statements, answers, home, monkeypatch, parts):
    monkeypatch.setattr(answer_task, "LOOK_BYTES", 1 << 20)
    first = statements.run(MANY, parts, ID)
    answers.max_bytes = 6 << 20
    with pytest.raises(MergeTooLarge, match=r"more than 6,291,456 bytes") as caught:
        statements.run(MANY, parts, ID)
    assert "\n" not in caught.value.message
    assert len(os.listdir(home)) == 1
    assert table(first).num_rows == ROWS
    assert table(statements.run(MANY, parts, ID)).num_rows == ROWS


def test_a_folder_that_cannot_be_written_is_one_error(statements, answers, home, monkeypatch, parts):
    make = answers.new

    def made_and_removed():
        files = make()
        os.rmdir(files.folder)
        return files

    monkeypatch.setattr(answers, "new", made_and_removed)
    with pytest.raises(
        ConfigError, match=r"^the folder for answers of Spark cannot be written: No such file"
    ) as caught:
        statements.run(MANY, parts, ID)
    assert "\n" not in caught.value.message
    monkeypatch.undo()
    shutil.rmtree(home)
    with open(home, "w"), pytest.raises(ConfigError, match="the folder for answers of Spark cannot be used"):
        statements.run(MANY, parts, ID)
    os.unlink(home)
    assert table(statements.run("select 1 as id", [], ID)).num_rows == 1
    with open(home, "w"), pytest.raises(ConfigError, match="cannot be used"):
        AnswerFolder(home)


BATCHES = [pa.RecordBatch.from_pydict({"id": pa.array(range(n, n + 3), pa.int64())}) for n in (0, 3)]


def test_a_full_disk_is_told_from_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(RuntimeError, match=f"{answer_task.NO_SPACE}: No space left on device"):
        answer_task.write(BATCHES, "/dev/full", 1 << 30, str(tmp_path))
    with pytest.raises(RuntimeError, match=f"{answer_task.NOT_WRITTEN}: No such file"):
        answer_task.write(BATCHES, str(tmp_path / "none" / "file"), 1 << 30, str(tmp_path))


def written(files, part, attempt, batches=BATCHES):
    name = f"{part:06}-{attempt}.arrow"
    rows = answer_task.write(batches, os.path.join(files.folder, name), 1 << 30, files.home)
    return Receipt(part, name, rows)


def test_of_several_attempts_at_a_part_the_one_with_a_receipt_counts(answers, home):
    files = answers.new()
    written(files, 0, 1, BATCHES[:1])
    receipts = [written(files, 1, 3, BATCHES[1:]), written(files, 0, 2, BATCHES[:1]), written(files, 2, 4, [])]
    written(files, 3, 5)
    answer = files.answer(receipts, ID)
    assert sorted(os.listdir(files.folder)) == ["000000-2.arrow", "000001-3.arrow"]
    assert table(answer)["id"].to_pylist() == list(range(6))
    assert os.listdir(home) == []


@pytest.mark.parametrize("what", ["gone", "cut", "short", "empty"])
def test_a_part_that_is_not_there_as_it_was_written_is_an_error_and_no_shorter_answer(answers, home, what):
    files = answers.new()
    receipts = [written(files, part, part) for part in range(3)]
    path = os.path.join(files.folder, receipts[1].file)
    if what == "gone":
        os.unlink(path)
    elif what == "short":
        answer_task.write(BATCHES[:1], path, 1 << 30, home)
    else:
        os.truncate(path, os.path.getsize(path) // 2 if what == "cut" else 0)
    with pytest.raises(TryLater, match="a part of Spark's answer was lost") as caught:
        table(files.answer(receipts, ID))
    assert home not in caught.value.message
    assert os.listdir(home) == []


def test_a_task_that_goes_on_after_the_answer_was_given_up_brings_nothing_back(answers, home):
    files, steps = answers.new(), count()

    def rows():
        for batch in BATCHES:
            if next(steps) == 1:
                files.drop()
            yield batch

    assert answer_task.write(rows(), os.path.join(files.folder, "a"), 1 << 30, home) == 6
    with pytest.raises(RuntimeError, match=answer_task.NOT_WRITTEN):
        answer_task.write(BATCHES, os.path.join(files.folder, "b"), 1 << 30, home)
    assert os.listdir(home) == []


def test_what_a_killed_process_left_is_removed_at_the_next_start(answers, home):
    written(answers.new(), 0, 0)
    assert len(os.listdir(home)) == 1
    again = AnswerFolder(home)
    assert os.listdir(home) == []
    again.new()
    again.close()
    assert not os.path.exists(home)


def test_answers_without_a_folder_of_their_own_go_with_their_process():
    answers = AnswerFolder()
    files = answers.new()
    written(files, 0, 0)
    home = files.home
    del answers
    assert not os.path.exists(home)
