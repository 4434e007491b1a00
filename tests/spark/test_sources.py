"""Sources: what Spark reads, under which schema, and how a source that cannot be read is named."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ballista_py.errors import ConfigError
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.spark.checks import failure_of
from ballista_py.spark.sources import source_error, source_name, source_options

pytestmark = pytest.mark.spark


def test_a_column_is_not_nullable_where_every_file_says_so(parquet, pipeline, tmp_path):
    folder = tmp_path / "many"
    folder.mkdir()
    parquet("many/a.parquet", ("id", "n"), id=pa.array([1]), n=pa.array([1]))
    parquet("many/b.parquet", ("id",), id=pa.array([2]), n=pa.array([None], pa.int64()))
    for source in (str(folder), f"{folder}/*.parquet", {"format": "parquet", "path": str(folder)}):
        schema = pipeline.describe("events", source)
        assert [(field.name, field.type, field.nullable) for field in schema] == [
            ("id", pa.int64(), False),
            ("n", pa.int64(), True),
        ]


def test_a_dataframe_says_itself_what_cannot_be_null(spark, pipeline):
    assert pipeline.describe("events", spark.range(3)).field("id").nullable is False


def test_csv_and_json_are_read_with_types_and_headers(pipeline, declare, partitions, tmp_path):
    (tmp_path / "a.csv").write_text("id,name\n1,x\n2,\n")
    (tmp_path / "a.json").write_text('{"id": 1, "name": "x"}\n{"id": 2}\n')
    for name, kind in (("a.csv", pa.int32()), ("a.json", pa.int64())):
        table = declare(str(tmp_path / name), "bucket(2, id)")
        assert table.schema.field("id").type == kind
        report = pipeline.materialize(table)
        rows = pa.concat_tables(part for _, part in partitions.all(table, report.partitions))
        assert sorted(rows.to_pylist(), key=lambda row: row["id"]) == [
            {"id": 1, "name": "x"},
            {"id": 2, "name": None},
        ]


def test_reader_options_reach_spark(pipeline, tmp_path):
    (tmp_path / "a.txt").write_text("1|x\n")
    options = {"format": "csv", "path": str(tmp_path / "a.txt"), "sep": "|", "schema": "id int, name string"}
    assert pipeline.describe("events", options).types == [pa.int32(), pa.string()]


def test_unsigned_columns_become_what_spark_reads(parquet, pipeline):
    source = parquet("a.parquet", a=pa.array([1], pa.uint8()), b=pa.array([1], pa.uint32()))
    assert pipeline.describe("events", source).types == [pa.int16(), pa.int64()]


def one_line(error: ConfigError, *parts: str) -> None:
    text = str(error)
    assert "\n" not in text
    assert "\tat " not in text
    assert "Exception" not in text
    assert all(part in text for part in parts), text


def test_a_source_that_is_missing_or_broken_is_named_in_one_line(pipeline, parquet, tmp_path: Path):
    (tmp_path / "broken.parquet").write_text("this is no Parquet file at all")
    (tmp_path / "empty").mkdir()
    pq.write_table(pa.table({"t": pa.array([1], pa.timestamp("ns"))}), tmp_path / "nanos.parquet")
    cases = {
        str(tmp_path / "missing.parquet"): "does not exist",
        f"{tmp_path}/no*/x.parquet": "does not exist",
        str(tmp_path / "broken.parquet"): "not a Parquet file",
        str(tmp_path / "empty"): "Unable to infer schema",
        str(tmp_path / "nanos.parquet"): "Illegal Parquet type",
        "zz://bucket/x.parquet": 'No FileSystem for scheme "zz"',
    }
    for source, reason in cases.items():
        with pytest.raises(ConfigError) as caught:
            pipeline.describe("events", source)
        one_line(caught.value, "table 'events'", f"source '{source}' cannot be read", reason)


def test_a_file_that_breaks_while_it_is_read_is_named_in_one_line(pipeline, declare, tmp_path):
    path = tmp_path / "torn.parquet"
    pq.write_table(pa.table({"id": pa.array(range(100_000))}), path, compression="snappy", use_dictionary=False)
    table = declare(str(path), "bucket(2, id)")
    data = bytearray(path.read_bytes())
    data[1_000:200_000] = bytes(199_000)
    path.write_bytes(bytes(data))
    with pytest.raises(ConfigError) as caught:
        pipeline.materialize(table)
    one_line(caught.value, "table 'events'", "torn.parquet")


def test_types_that_tables_cannot_hold_are_refused_by_name(spark, pipeline):
    for sql, kind in {
        "select interval 1 day as c": "interval day",
        "select null as c": "void",
        "select parse_json('{}') as c": "variant",
        "select array(interval 1 month) as c": "interval month",
    }.items():
        with pytest.raises(ConfigError, match=rf"table 'events': column 'c' has Spark type {kind}"):
            pipeline.describe("events", spark.sql(sql))


def test_a_source_is_named_without_its_credentials():
    jdbc = {"format": "jdbc", "url": "jdbc:postgresql://u:secret@db/x", "dbtable": "events", "password": "secret"}
    assert source_name(jdbc) == "'events' (jdbc)"
    assert source_name("s3a://key:secret@bucket/x") == "'s3a://bucket/x'"


def test_relative_paths_are_those_of_this_process(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert source_options("data/*.csv.gz") == {
        "format": "csv",
        "path": f"{tmp_path}/data/*.csv.gz",
        "header": "true",
        "inferSchema": "true",
    }
    assert source_options({"path": "x"}) == {"format": "parquet", "path": f"{tmp_path}/x"}
    assert source_options("s3a://b/x.json")["format"] == "json"


TABLE = TableSpec(
    name="t", schema=pa.schema([("id", pa.int64())]), spec=PartitionSpec.whole(), distribution="replicated"
)


class TextOfALostJvm(Exception):
    """As py4j's errors are when their JVM is gone: it would have to be asked for their text."""

    def __str__(self):
        raise ConnectionRefusedError(111, "Connection refused")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "Spark ended while it worked on source"),
        (TextOfALostJvm(), "Spark ended while it worked on source"),
        (RuntimeError("Job 1 cancelled because SparkContext was shut down"), "Spark ended"),
        (ValueError("Cannot call methods on a stopped SparkContext.\nThis stopped"), "Spark ended"),
        (RuntimeError("job aborted: java.lang.OutOfMemoryError: Java heap space"), "Spark ended"),
        (RuntimeError("Boxed Exception: StackOverflowError"), "has a column that is nested too deep"),
        (ValueError("[CANNOT_PARSE] maximum recursion depth exceeded"), "nested too deep"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_what_ends_spark_is_named_with_the_source_and_a_way_out(error, said):
    one_line(source_error({"path": "x", "format": "parquet"}, "table 't'", error), "table 't'", said)
    one_line(failure_of(TABLE, {"format": "parquet", "path": "x"}, error), said)


def test_a_source_that_is_nested_very_deep_is_refused_in_one_line(pipeline, tmp_path):
    kind, value = pa.int64(), 1
    for _ in range(300):
        kind, value = pa.list_(kind), [value]
    pq.write_table(pa.table({"id": [1], "v": pa.array([value], kind)}), tmp_path / "deep.parquet")
    limit = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(len(inspect.stack()) + 250)
        with pytest.raises(ConfigError, match="nested too deep") as caught:
            pipeline.describe("events", str(tmp_path / "deep.parquet"))
    finally:
        sys.setrecursionlimit(limit)
    one_line(caught.value, "table 'events'", "deep.parquet")


ENDED = """
import sys
from ballista_py.errors import ConfigError
from ballista_py.spark.pipeline import SparkPipeline
from ballista_py.spark.session import embedded_session, has_ended
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.threads import spawn

def refused(session):
    pipeline = SparkPipeline(session, MemoryStore(), spawn=spawn)
    rows = session.range(5)
    yield
    assert has_ended(session)
    try:
        with pipeline._rows._jobs.group("looking"):
            pipeline.describe("t", sys.argv[1])
    except ConfigError as error:
        assert "Spark ended while it worked on source" in str(error), error
        yield
    raise AssertionError("nothing was said")

for how in ("stopped", "killed"):
    session = embedded_session(master="local[1]", memory="512m")
    assert session.range(3).count() == 3
    asked = refused(session)
    next(asked)
    if how == "stopped":
        session.sparkContext._jsc.sc().stop()
    else:
        session.sparkContext._gateway.proc.kill()
        session.sparkContext._gateway.proc.wait()
    next(asked)
print("done")
"""


@pytest.mark.long
def test_a_spark_that_ended_is_seen_is_named_and_is_followed_by_another(tmp_path):
    """In a process of its own, because the Spark of the other tests must not end."""
    words = [sys.executable, "-c", ENDED, str(tmp_path / "x.parquet")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=280, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert "Traceback" not in done.stderr
