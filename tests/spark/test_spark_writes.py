"""The format `ballista` writes: what a dataframe has, once, whoever fails; of streams each batch once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from ballista_py import LocalCluster
from ballista_py.spark import BallistaDataSource

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("region", pa.string()),
        ("v", pa.float64()),
        ("at", pa.timestamp("us")),
    ]
)
REGION = "case when id % 5 = 0 then null else concat('r', id % 4) end as region"
COLUMNS = ["id", REGION, "if(id % 8 = 0, double('NaN'), id / 4.0D) as v", "timestamp_ntz'2024-01-01' as at"]


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(schedulers=2, executors=2) as made:
        yield made


@pytest.fixture
def table(cluster, request):
    name = f"t{abs(hash(request.node.name)) % 1_000_000}"
    cluster.create_table(name, schema=SCHEMA, partition_by=["region"])
    return name


@pytest.fixture
def save(spark, cluster):
    spark.dataSource.register(BallistaDataSource)

    def save(frame, table: str, mode: str = "append", **options) -> None:
        writer = frame.write.format("ballista").option("url", url_of(cluster)).option("table", table)
        writer.options(**options).mode(mode).save()

    return save


def url_of(cluster) -> str:
    return "ballista://" + ",".join(cluster.addresses())


def ids(cluster, table: str) -> list[int]:
    return sorted(cluster.sql(f"select id from {table}")["id"].to_pylist())


def rows(spark, start: int, stop: int, tasks: int = 3):
    return spark.range(start, stop, 1, tasks).selectExpr(*COLUMNS)


def test_a_dataframe_is_appended_whole_with_new_partitions_and_the_values_that_it_has(spark, cluster, save, table):
    frame = rows(spark, 0, 1_000).select("v", "region", "at", "id")  # columns go by their names
    save(frame, table)
    save(rows(spark, 1_000, 1_010), table)
    found = cluster.sql(f"select * from {table} order by id")
    wanted = rows(spark, 0, 1_010).toArrow().select(SCHEMA.names).sort_by("id")
    assert list(map(repr, found.to_pylist())) == list(map(repr, wanted.to_pylist()))
    save(rows(spark, 0, 0), table)
    assert ids(cluster, table) == list(range(1_010))


def test_overwrite_takes_the_place_of_all_rows(spark, cluster, save, table):
    save(rows(spark, 0, 100), table)
    save(rows(spark, 500, 520), table, "overwrite")
    assert ids(cluster, table) == list(range(500, 520))
    save(rows(spark, 0, 0), table, "overwrite")
    assert ids(cluster, table) == []


def test_a_write_happens_once_under_its_token(spark, cluster, save, table):
    for stop in (100, 100, 200):  # the job is started again, and again over a source that has grown
        save(rows(spark, 0, stop), table, writeToken="2024-01-01")
    assert ids(cluster, table) == list(range(100))


def failing(times: int):
    """The rows, but a task that fails so many times when it has sent some of them."""

    def rows(batches):
        from pyspark import TaskContext

        context = TaskContext.get()
        for number, batch in enumerate(batches):
            if number == 1 and context.partitionId() == 1 and context.attemptNumber() < times:
                raise RuntimeError("this attempt fails")
            yield batch

    return rows


def test_a_task_that_fails_and_is_tried_again_writes_its_rows_once(spark, cluster, save, table):
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    try:
        frame = rows(spark, 0, 1_500)
        save(frame.mapInArrow(failing(1), frame.schema), table)
        assert ids(cluster, table) == list(range(1_500))
        with pytest.raises(Exception, match="this attempt fails"):
            save(frame.mapInArrow(failing(9), frame.schema), table)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert ids(cluster, table) == list(range(1_500))


@pytest.mark.parametrize(
    ("change", "options", "said"),
    [
        (lambda frame: frame.drop("v"), {}, "no column 'v'"),
        (lambda frame: frame.withColumn("more", frame.id), {}, "'more'"),
        (lambda frame: frame.withColumn("v", frame.region), {}, "column 'v' is VARCHAR"),
        (lambda frame: frame, {"columns": "id"}, "the option 'columns' is for reading"),
        (lambda frame: frame, {"lease": "x"}, "the option 'lease' is a number"),
        (lambda frame: frame, {"wrong": "x"}, "has no option 'wrong'"),
        (lambda frame: frame, {"table": "nowhere"}, "does not exist"),
    ],
)
def test_what_cannot_be_written_is_refused_by_name(spark, cluster, save, table, change, options, said):
    with pytest.raises(Exception, match=said):
        save(change(rows(spark, 0, 10)), options.pop("table", table), **options)
    assert ids(cluster, table) == []


def streamed(spark, cluster, table: str, source: Path, checkpoint: Path, **options):
    frame = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).parquet(str(source))
    writer = frame.selectExpr(*COLUMNS).writeStream.format("ballista").option("url", url_of(cluster))
    writer = writer.option("table", table).option("checkpointLocation", str(checkpoint)).options(**options)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination(120)
    return query


def test_a_stream_writes_each_batch_once_though_one_is_repeated_after_a_restart(
    spark, cluster, save, table, tmp_path
):
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    for number in range(3):
        spark.range(number * 100, number * 100 + 100, 1, 2).write.mode("append").parquet(str(source))
    streamed(spark, cluster, table, source, checkpoint)
    assert ids(cluster, table) == list(range(300))
    batches = sorted((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    assert len(batches) >= 3
    for path in (batches[-1], checkpoint / "commits" / f".{batches[-1].name}.crc"):
        path.unlink()  # the driver died after the commit at the cluster, and before it noted that
    spark.range(300, 350, 1, 1).write.mode("append").parquet(str(source))
    streamed(spark, cluster, table, source, checkpoint)
    assert ids(cluster, table) == list(range(350))


def test_a_stream_takes_no_token(spark, cluster, save, table, tmp_path):
    spark.range(1).write.parquet(str(tmp_path / "source"))
    with pytest.raises(Exception, match="leave the option 'writetoken' out"):
        streamed(spark, cluster, table, tmp_path / "source", tmp_path / "checkpoint", writeToken="x")


DRIVER = """
import sys
from ballista_py.spark import BallistaDataSource
from ballista_py.spark.session import embedded_session
url, table, wait = sys.argv[1:]
mark = sys.argv[0] + ".waiting"
spark = embedded_session(master="local[2]", memory="512m")
spark.dataSource.register(BallistaDataSource)

def slow(batches):
    import time
    from pyspark import TaskContext
    for batch in batches:
        yield batch
    if wait == "wait" and TaskContext.get().partitionId() == 3:
        open(mark, "w").close()
        time.sleep(300)

frame = spark.range(0, 400, 1, 4).selectExpr("id", "'x' as region", "1.0D as v", "timestamp_ntz'2024-01-01' as at")
frame = frame.mapInArrow(slow, frame.schema)
frame.write.format("ballista").options(url=url, table=table, writeToken="night").mode("append").save()
"""


def test_a_driver_that_is_killed_leaves_nothing_and_its_job_is_run_again(cluster, table, tmp_path):
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    waiting = Path(f"{script}.waiting")
    killed = subprocess.Popen(
        [sys.executable, str(script), url_of(cluster), table, "wait"], start_new_session=True
    )
    try:
        for _ in range(900):
            if waiting.exists() or killed.poll() is not None:
                break
            time.sleep(0.1)
        assert waiting.exists()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()
    assert ids(cluster, table) == []
    for _ in range(2):
        again = [sys.executable, str(script), url_of(cluster), table, "now"]
        subprocess.run(again, check=True, timeout=200)
        assert ids(cluster, table) == list(range(400))


CONNECT = """
import sys
from pyspark.sql import SparkSession
from ballista_py.spark import BallistaDataSource
remote, url, table = sys.argv[1:]
spark = SparkSession.builder.remote(remote).getOrCreate()
spark.dataSource.register(BallistaDataSource)
frame = spark.range(0, 100, 1, 2).selectExpr("id", "'x' as region", "1.0D as v", "timestamp_ntz'2024-01-01' as at")
frame.write.format("ballista").options(url=url, table=table).mode("overwrite").save()
"""


def test_it_is_the_same_over_spark_connect(spark, connect_url, cluster, table):
    pytest.importorskip("grpc")
    said = subprocess.run(
        [sys.executable, "-c", CONNECT, connect_url, url_of(cluster), table],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert said.returncode == 0, said.stderr[-2_000:]
    assert ids(cluster, table) == list(range(100))
