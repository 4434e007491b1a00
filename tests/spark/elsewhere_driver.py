"""A driver whose Spark is elsewhere: `elsewhere_driver.py SCENE master|remote PLACE S3-URL`; its last line is JSON.

It says which temporary folders it made: nothing that tasks write may be in one.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from urllib.request import urlopen

import pyarrow as pa

from ballista_py.coordinator.spark_process import SparkProcess
from ballista_py.coordinator.tables.embedded_spark import EmbeddedPipeline
from ballista_py.errors import BallistaError
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import SystemRuntime
from ballista_py.spark import layout, opening, store_files
from ballista_py.spark.elsewhere import SparkSettings
from ballista_py.spark.pipeline import SparkPipeline
from ballista_py.spark.statements import SparkStatements, TablePart
from ballista_py.spark.watermark import Watermark
from ballista_py.state.stores.store import open_store
from ballista_py.threads import spawn

STATE = "s3://bucket/state"
RUNTIME = SystemRuntime()
COLUMNS = (
    "id",
    "concat('é', id % 3) as k", "cast(id % 100 as byte) as b", "cast(id as decimal(20, 3)) as d", "id % 2 = 0 as f",
    "cast(id as double) / 3 as x", "date_add(date'1500-01-01', cast(id as int)) as day",
    "timestamp_micros(id) as moment", "cast(timestamp_micros(id) as timestamp_ntz) as wall",
    "if(id % 5 = 0, null, encode(string(id), 'utf-8')) as bytes", "map('a', id, 'b', null) as entries",
    "array(named_struct('x', id, 'y', array(string(id), null))) as nested", "cast(concat('v', id) as varchar(9)) as v",
)  # fmt: skip
made: list[str] = []


class Place:
    """The Spark of a scene, its store and its pipeline."""

    def __init__(self, mode: str, place: str, s3: str, **conf: str) -> None:
        self.options = {
            "endpoint_url": s3,
            "key": "testing",
            "secret": "s3cr3t-of-s3",
            "client_kwargs": {"region_name": "us-east-1"},
        }
        given = {"spark.executor.memory": "512m", **conf} if mode == "master" else conf
        settings = SparkSettings(**{mode: place}, conf=given).on(STATE, self.options)
        self.mode = mode
        self.settings = settings
        self.opened = opening.open_spark(settings, RUNTIME, memory="512m")
        self.spark, self.tasks = self.opened.session, settings.tasks
        self.store = open_store(STATE, **self.options)
        self.pipeline = SparkPipeline(self.spark, self.store, spawn=spawn, tasks=self.tasks)

    def frame(self, rows, parts=4, *columns):
        return self.spark.range(0, rows, 1, parts).selectExpr(*(columns or COLUMNS))

    def declare(self, name, frame, *keys):
        schema = self.pipeline.describe(name, frame)
        return TableSpec(name=name, schema=schema, spec=PartitionSpec.parse(list(keys), schema))

    def statements(self, **more):
        return SparkStatements(self.spark, self.store, RUNTIME, more.get("answers"), self.tasks)

    def filled(self, name, frame, *keys):
        """A table with the rows, and what a statement needs of it."""
        table = self.declare(name, frame, *keys)
        report = self.pipeline.materialize(table, source=frame)
        pmap = PartitionMap.build(name, table.spec, list(report.partitions))
        return TablePart(table=table, map=pmap, partitions=range(len(pmap)))


def tables(at: Place):
    mark = Watermark("id")
    buckets = at.declare("buckets", at.frame(2_000), "bucket(4, id)")
    said = {"filled": at.pipeline.materialize(buckets, source=at.frame(2_000), watermark=mark).rows}
    append = {"mode": "append", "source": at.frame(2_050), "watermark": mark}
    said["appended"] = [at.pipeline.refresh(buckets, **append).rows for _ in range(2)]
    values = at.declare("values", at.frame(100), "k")
    at.pipeline.materialize(values, source=at.frame(2))
    found = at.pipeline.extend(values, lambda value: value != ("é2",), source=at.frame(100))
    said["found"] = sorted(value for (value,) in found)
    ordered = at.declare("ordered", at.frame(100), "bucket(300, id)")  # more than have tasks of their own
    said["many"] = at.pipeline.materialize(ordered, source=at.frame(3_000), sort_by=["x"]).rows
    broken = at.frame(1_000, 4, "if(id = 999, raise_error('torn page'), id) as id")
    torn = at.declare("torn", broken, "bucket(2, id)")
    said["torn"] = failure(lambda: at.pipeline.materialize(torn, source=broken))
    said["left"] = [entry.key for entry in at.store.list("snapshots/torn/data/")]
    said["claims"] = [entry.key for entry in at.store.list("accelerations/claims/")]
    return said


def statements(at: Place):
    from ballista_py.spark.answers import AnswerFolder

    numbers = at.filled("numbers", at.frame(60_000, 2, "id", "concat('t', id % 10) as k"), "bucket(2, id)")
    groups = at.filled("groups", at.frame(10, 1, "id as g", "concat('t', id) as name"), "bucket(2, g)")
    types = at.filled("types", at.frame(50), "bucket(2, id)")
    empty = TablePart(table=numbers.table, map=numbers.map, partitions=())
    on = at.statements()

    def rows(text, parts, schema, run=on.run):
        answer = run(text, parts, schema)
        return pa.Table.from_batches(answer.batches(), answer.schema)

    count = pa.schema([("n", pa.int64())])
    said = {"count": rows("select count(*) as n from numbers", [numbers], count).to_pylist()}
    said["none"] = rows("select count(*) as n from numbers", [empty], count).to_pylist()
    joined = "select name, count(*) as n from numbers join groups on k = name group by name order by name"
    said["joined"] = rows(
        joined, [numbers, groups], pa.schema([("name", pa.string()), ("n", pa.int64())])
    ).to_pylist()
    large = rows("select id as n from numbers order by id desc", [numbers], count)
    said["in order"] = large["n"].to_pylist() == list(range(59_999, -1, -1))
    told = rows("select * from types order by id", [types], types.table.schema).to_pylist()
    said["types"] = told == at.frame(50).toArrow().cast(pa.schema(list(types.table.schema))).to_pylist()
    said["refused"] = failure(
        lambda: on._guard.rows(on._guard.session(), "select java_method('java.lang.System', 'exit') as n", [])
    )
    said["command"] = failure(lambda: on._guard.rows(on._guard.session(), "create table x as select 1 as n", []))
    small = at.statements(answers=AnswerFolder(max_bytes=10_000))
    said["too large"] = failure(lambda: rows("select id as n from numbers", [numbers], count, small.run))
    jobs = on.jobs()
    asked = []
    endless = "select count(*) as n from numbers a, numbers b where a.id + b.id < -1"
    asking = threading.Thread(
        target=lambda: asked.append(failure(lambda: on.run(endless, [numbers], count, jobs)))
    )
    asking.start()
    time.sleep(4)
    said["at work"] = jobs.are_running()
    jobs.cancel()
    asking.join(60)
    said["cancelled"] = asked
    given_up = on.run("select id as n from numbers", [numbers], count)
    next(given_up.batches())
    given_up.close()
    said["left"] = [entry.key for entry in at.store.list("snapshots/-")]
    on.close()
    small.close()
    return said


def restarted(at: Place):
    """Statements and refreshes before and after a server was started anew; the process never is."""
    groups = at.filled("again", at.frame(100, 2, "id"), "bucket(2, id)")
    process = SparkProcess(at.store, RUNTIME, settings=at.settings, spawn=spawn)
    embedded = EmbeddedPipeline(at.store, RUNTIME, settings=at.settings)
    count = pa.schema([("n", pa.int64())])

    def counted():
        answer = process.get().run("select count(*) as n from again", [groups], count)
        return pa.Table.from_batches(answer.batches(), count).to_pylist()

    said = {"before": counted(), "found": len(embedded.get().discover(groups.table))}
    print("ready", flush=True)
    assert sys.stdin.readline()
    said["gone"] = failure(counted)
    said["ended"] = process.get() is not None
    said["after"] = counted()
    pipeline = embedded.get()
    said["refreshed"] = pipeline.refresh(groups.table, source=pipeline._spark.range(70)).rows
    embedded.close()
    process.close()
    return said


def slow(at: Place):
    """Rows that take their time, so that a worker can be killed amid it."""
    from pyspark.sql import functions as sf

    late = sf.udf(lambda value: time.sleep(0.002) or value, "long")
    frame = at.frame(4_000, 8, "id").select(late("id").alias("id"), sf.expr("concat('k', id) as text"))
    keyed = at.declare("slow", frame, "bucket(8, id)")
    return {"rows": at.pipeline.materialize(keyed, source=frame, sort_by=["text"]).rows}


def speculated(at: Place):
    """A task that stands still at its first attempt, and is run twice therefore."""
    from pyspark import TaskContext
    from pyspark.sql import functions as sf

    def stand(value):
        task = TaskContext.get()
        if task.attemptNumber() == 0 and value % 500 == 0 and task.partitionId() == 2:
            time.sleep(30.0)
        return value

    frame = at.frame(3_000, 2, "id")
    keyed = at.declare("speculated", frame, "bucket(6, id)")
    spread = layout.spread_rows
    late = sf.udf(stand, "long")
    # Where rows are put, not before they are sent there: else nobody puts them twice.
    layout_rows = lambda rows, numbering, sort_by: spread(rows, numbering, sort_by).withColumn("id", late("id"))  # noqa: E731
    store_files.spread_rows = layout_rows
    rows = at.pipeline.materialize(keyed, source=frame).rows
    stages = json.loads(urlopen(f"{pages_of(at.spark)}/stages", timeout=30).read())
    ended = ("numCompleteTasks", "numKilledTasks", "numFailedTasks", "numActiveTasks")
    attempts = max(sum(stage[kind] for kind in ended) for stage in stages)
    return {"rows": rows, "attempts": attempts}


def shown(at: Place):
    """A run and a statement, and whether the pages of Spark show a key."""
    part = at.filled("shown", at.frame(100, 2, "id"), "bucket(2, id)")
    answer = at.statements().run("select id from shown", [part], part.table.schema)
    assert sum(batch.num_rows for batch in answer.batches()) == 100
    if at.mode == "remote":  # whose log has the requests of a session that ends amid them
        on, session = at.statements(), at.spark.cloneSession()
        kinds = store_files.spark_columns(part.table.schema)
        rows = store_files.stored_rows(session, on._files(part) * 20, part.table.schema, kinds, on._tasks)
        next(rows.toLocalIterator())
        session.stop()
        return {}
    application = pages_of(at.spark)
    pages = (
        f"{application}/environment",
        f"{application}/sql?details=true&planDescription=true",
        f"{application}/jobs",
    )
    texts = [urlopen(page, timeout=30).read().decode() for page in pages]
    assert "MapInArrow" in texts[1]
    return {"shown": any("s3cr3t-of-s3" in text for text in texts)}


def pages_of(spark) -> str:
    return f"{spark.sparkContext.uiWebUrl}/api/v1/applications/{spark.sparkContext.applicationId}"


def failure(call) -> str:
    try:
        call()
    except BallistaError as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def unfit(mode: str, place: str, s3: str, folder: str):
    """What is said of workers that lack what tasks need."""
    said = {}
    for name, conf in (
        ("none", {"spark.executorEnv.PYTHONPATH": f"{folder}/none"}),
        ("old", {"spark.executorEnv.PYTHONPATH": f"{folder}/old"}),
        ("no python", {"spark.pyspark.python": "/nowhere/python3"}),
    ):
        said[name] = failure(lambda conf=conf: Place(mode, place, s3, **conf))
    opening.WORKERS_MS = 3_000.0
    said["no worker"] = failure(lambda: Place(mode, place, s3, **{"spark.executor.memory": "7g"}))
    return said


def main(scene: str, mode: str, place: str, s3: str, *more: str) -> None:
    real = tempfile.mkdtemp

    def recorded(suffix=None, prefix=None, dir=None):  # noqa: A002
        made.append(prefix or "")
        return real(suffix, prefix, dir)

    tempfile.mkdtemp = recorded
    if scene == "unfit":
        print(json.dumps(unfit(mode, place, s3, *more)))
        return
    at = Place(mode, place, s3, **dict(one.split("=", 1) for one in more))
    try:
        said = globals()[scene](at)
    finally:
        at.opened.stop()
    print(json.dumps({**said, "made": sorted(set(made))}))


if __name__ == "__main__":
    main(*sys.argv[1:])
