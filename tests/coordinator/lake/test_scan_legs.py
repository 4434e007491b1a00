"""Legs of scanned tables: which tasks, where, and what of a statement chooses files."""

import orjson
import pyarrow as pa
import pytest
from attrs import evolve

from ballista_py.coordinator.cluster_view import ClusterView
from ballista_py.coordinator.lake.scans import LakeScans
from ballista_py.coordinator.lake.snapshots import LakeSnapshots
from ballista_py.coordinator.policies.gate import Gate
from ballista_py.coordinator.policies.known import KnownPolicies
from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.errors import SqlError, Unsupported
from ballista_py.partitions.policies import Policies, TableGrant
from ballista_py.partitions.scanned_table import ScannedTable, snapshot_spec
from ballista_py.principal import Principal
from ballista_py.runtime import SystemRuntime
from ballista_py.scans.storage_credentials import StorageCredentials
from ballista_py.scans.task import FileSlice
from ballista_py.secret import Secret
from ballista_py.sql.explain import explain_text, plan_as_dict
from ballista_py.sql.legs import AT_SCHEDULER
from ballista_py.sql.plan import Catalog, leg_from_json
from ballista_py.sql.planner import plan_query
from ballista_py.state.documents.policies import PoliciesDocument
from ballista_py.work import Work, working

RUNTIME = SystemRuntime()
SCHEMA = pa.schema([("id", pa.int64()), ("kind", pa.string()), ("fare", pa.float64())])
EXECUTORS = [("e1", "i1"), ("e2", "i2")]


class Snapshot:
    """One of forty files of a million bytes, which notes what is asked of it."""

    id, schema, rows, bytes = "3", SCHEMA, 1_000, 40_000_000

    def __init__(self, place):
        self.asked, self.place = [], place

    def files(self, filter=(), columns=None):  # noqa: A002
        self.asked.append((filter, columns))
        count = 4 if any(one.column == "id" for one in filter) else 40
        return tuple(FileSlice(path=f"{self.place}/{n}.parquet", size=1_000_000, rows=25) for n in range(count))


@pytest.fixture
def engine():
    made = DuckDBEngine(threads=1)
    yield made
    made.close()


def scene(engine, place="s3://lake/t", executors=EXECUTORS, addresses=None, **said):
    table, snapshot = (
        ScannedTable(name="t", scan={"format": "delta", "path": place, **said}, named=7),
        Snapshot(place),
    )
    key = StorageCredentials(location=place, values={"s3.session-token": Secret("hunter2")})

    class Opened:
        def snapshot(self, *_asked):
            return snapshot

        def credentials(self):
            return key

    lakes = LakeSnapshots(RUNTIME, open=lambda *_: Opened())
    name = lakes.pinned(table)
    view = ClusterView(
        catalog=Catalog(tables={}, maps={}),
        members=frozenset(executors),
        addresses=addresses or {one: "127.0.0.1:1" for one, _ in executors},
        scanned={"t": table},
    )
    return LakeScans(lakes, engine, None, RUNTIME), lakes.with_snapshots(view, {name}, None), name, snapshot


def planned(scans, view, sql, engine, told=False):
    output = engine.describe(sql, view.catalog.schemas)
    plan = plan_query(sql, view.catalog, output)
    return scans.with_tasks(plan, (), view, view.members, told=told)


def test_every_file_is_in_one_task_and_every_task_at_one_executor(engine):
    scans, view, name, snapshot = scene(engine)
    _, legs = planned(scans, view, f'select kind, sum(fare) from "{name}" group by kind', engine)
    tasks = [task for leg in legs for task in leg.scans[name]]
    assert sorted(file.path for task in tasks for file in task.files) == sorted(
        one.path for one in snapshot.files()
    )
    assert len({task.name for task in tasks}) == len(tasks) >= 4
    assert {leg.executor_id for leg in legs} == {"e1", "e2"}
    assert snapshot.asked[0] == ((), ("kind", "fare"))
    assert all(task.schema == pa.schema([SCHEMA.field("kind"), SCHEMA.field("fare")]) for task in tasks)


def test_conditions_choose_files_and_notes_say_how_many(engine):
    scans, view, name, _ = scene(engine)
    plan, legs = planned(scans, view, f'select sum(fare) from "{name}" where id = 3', engine, told=True)
    assert sum(len(task.files) for leg in legs for task in leg.scans[name]) == 4
    assert "4 of 40 files are read, 4,000,000 bytes" in plan.notes[-1]


def test_behind_a_barrier_nothing_of_the_user_chooses_files(engine):
    scans, view, name, snapshot = scene(engine)
    barrier = f'SELECT "id", \'*\' AS "kind", "fare" FROM "{name}" WHERE ("id" > 1) OFFSET 0'
    view = evolve(view, catalog=evolve(view.catalog, barriers={name: barrier}))
    _, legs = planned(scans, view, f'select sum(fare) from "{name}" where id = 3', engine)
    assert snapshot.asked == [((), tuple(SCHEMA.names))]
    assert all(leg.sql.startswith(f'WITH "{name}" AS ({barrier})') for leg in legs)
    assert all(task.filter == () for leg in legs for task in leg.scans[name])


@pytest.mark.parametrize(("executors", "sql"), [([], "sum(fare)"), (EXECUTORS, "sum(fare)")])
def test_the_scheduler_reads_what_is_little_or_nobody_else_can(engine, executors, sql):
    scans, view, name, snapshot = scene(engine, executors=executors)
    if executors:
        snapshot.files = lambda *_: (FileSlice(path="s3://lake/t/0.parquet", size=10),)
    plan, (leg,) = planned(scans, view, f'select {sql} from "{name}"', engine)
    assert leg.executor_id == AT_SCHEDULER
    assert "read by the scheduler itself" in plan.notes[-1]
    assert "this scheduler: " in explain_text(plan, [leg])


def test_a_folder_that_executors_need_not_find_is_refused_by_name(engine):
    far = {"e1": "10.0.0.1:1", "e2": "10.0.0.2:1"}
    scans, view, name, _ = scene(engine, place="/lake/t", addresses=far)
    with pytest.raises(Unsupported, match=r"table 't'.*shared: true"):
        planned(scans, view, f'select sum(fare) from "{name}"', engine)
    scans, view, name, _ = scene(engine, place="/lake/t", addresses=far, shared=True)
    assert planned(scans, view, f'select sum(fare) from "{name}"', engine)[1]


def test_credentials_go_with_the_leg_and_are_shown_nowhere(engine):
    scans, view, name, _ = scene(engine)
    plan, legs = planned(scans, view, f'select sum(fare) from "{name}"', engine)
    sent = orjson.loads(orjson.dumps(legs[0].to_json()))
    (task,) = leg_from_json(sent).scans[name]
    assert task.credentials.values["s3.session-token"].reveal() == "hunter2"
    shown = f"{legs} {orjson.dumps(plan_as_dict(plan, legs))} {explain_text(plan, legs)} {plan} {view}"
    assert "hunter2" not in shown
    assert b"hunter2" not in orjson.dumps([leg.to_json(shown=True) for leg in legs])


def test_whoever_may_not_select_a_table_sees_none_of_its_snapshots(engine):
    grants = (TableGrant(to=("staff",), may=("select",), tables=("t",)),)
    document = PoliciesDocument(number=1, policies=Policies(grants=grants), on=True, digest="d")

    class Shelf:
        def read(self, _least):
            return document

    gate = Gate(KnownPolicies(Shelf(), RUNTIME), engine)
    spec = snapshot_spec("t@7-3", SCHEMA)
    for groups, may in ((("staff",), True), ((), False)):
        with working(Work(RUNTIME, client=Principal("anna", groups))):
            if may:
                assert gate.snapshot_shown(spec, 1) == (spec, None)
                continue
            with pytest.raises(SqlError, match="do not let client 'anna' select table 't'"):
                gate.snapshot_shown(spec, 1)
