"""An executor that holds partitions of a table while it is altered."""

import pyarrow as pa
import pytest
from attrs import evolve

from ballista_py.engines.polars.engine import PolarsEngine
from ballista_py.errors import ConfigError, NotOwner, PlanningError, SqlError, TableAltered, WriteError
from ballista_py.node.executor.answers import ExecutorAnswers
from ballista_py.node.status.tasks import Tasks
from ballista_py.owner import files as owner_files
from ballista_py.owner.writes import OwnerWrites
from ballista_py.partitions import alterations
from ballista_py.sql.parse.changes import read_change
from ballista_py.sql.prune.changes import local_rewrite
from ballista_py.state.documents.documents import CLUSTER_KEY, ClusterDocument
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.storage.formats.files import write_data_file
from ballista_py.storage.held.files import altered_under, rows_unless_altered
from ballista_py.transport.flight.commands import WriteTarget, leg_command


@pytest.fixture
def altered(world):
    """An owner of partition 0 with the keys 1 and 2, and the table with one column more."""
    world.put(0, 1, 2)
    world.holder.apply(world.update(1, (0, 1, "owner")))
    world.holder.tick()
    column = pa.field("more", pa.int32())
    return alterations.add_column(world.table(), column, pa.array([7], pa.int32()), None, if_not_exists=False)


def leg(world, definition):
    found = world.leg((0, 1))
    return evolve(found, tables=tuple(evolve(table, definition=definition) for table in found.tables))


def active(world):
    return [held.active for held in world.holder.held()]


def test_legs_of_the_other_definition_are_refused_from_the_moment_that_it_is_told(world, altered):
    assert world.holder.files_for(leg(world, 0))
    with pytest.raises(NotOwner):
        world.holder.files_for(leg(world, 1))
    world.holder.apply(world.update(2, (0, 1, "owner"), table=altered))
    for definition in (0, 1):  # the engine has not the new column yet
        with pytest.raises(NotOwner):
            world.holder.files_for(leg(world, definition))
    assert active(world) == [()]
    assert world.holder.tick().altered == 1
    files = world.holder.files_for(leg(world, 1))
    found = world.engine.query("select k, more from t order by 1", files)
    assert [row for batch in found.batches() for row in batch.to_pylist()] == [
        {"k": 1, "more": 7},
        {"k": 2, "more": 7},
    ]
    assert active(world) == [(0,)]
    with pytest.raises(NotOwner):
        world.holder.files_for(leg(world, 0))


def test_an_older_definition_does_not_come_back(world, altered):
    world.holder.apply(world.update(2, (0, 1, "owner"), table=altered))
    world.holder.apply(world.update(3, (0, 1, "owner")))
    world.holder.tick()
    assert world.holder.files_for(leg(world, 1))


def test_it_is_not_shown_while_a_commit_by_the_one_before_is_under_way(world, altered):
    before = leg(world, 0).tables[0]
    with world.holder.changing(before, exact=True):
        world.holder.apply(world.update(2, (0, 1, "owner"), table=altered))
        world.holder.tick()
        assert active(world) == [()]
    assert active(world) == [(0,)]


def test_rows_of_an_older_definition_are_taken_unless_they_may_lack_a_value(world, altered):
    before = leg(world, 0).tables[0]
    world.holder.apply(world.update(2, (0, 1, "owner"), table=altered))
    world.holder.require_definition(before, exact=False)
    with pytest.raises(TableAltered):
        world.holder.require_definition(before, exact=True)
    world.holder.apply(world.update(3, (0, 1, "owner"), table=alterations.set_required(altered, "more")))
    with pytest.raises(TableAltered), world.holder.changing(evolve(before, definition=1), exact=False):
        raise AssertionError
    with pytest.raises(NotOwner):
        world.holder.require_definition(evolve(before, definition=3), exact=False)


def test_a_file_of_a_definition_that_was_not_told_yet_is_not_loaded(world, altered):
    rows = pa.table([*world.rows(5).columns, pa.array([1], pa.int32())], schema=altered.schema)
    file = write_data_file(world.store, "snapshots/t/data/run/new.parquet", rows, definition=1)
    world.storage(0).commit(add=[file], epoch=1, token="new")
    world.holder.refresh("t")
    assert world.holder.tick().failed == 1
    assert "was not told yet" in next(iter(world.holder.held()[0].failed.values()))
    world.holder.apply(world.update(2, (0, 1, "owner"), table=altered))
    world.clock.now_ms += 5_000
    world.holder.tick()
    assert world.engine.query("select sum(more) s from t", world.holder.files_for(leg(world, 1)))


def test_columns_that_an_engine_cannot_change_in_place_are_loaded_again(world, altered, monkeypatch):
    monkeypatch.setattr(world.engine, "alter_table", lambda *_: False)
    world.holder.apply(world.update(2, (0, 1, "owner"), table=altered))
    assert world.holder.tick().hydrated == 1
    found = world.engine.query("select sum(more) as s from t", world.holder.files_for(leg(world, 1)))
    assert [batch.to_pylist() for batch in found.batches()] == [[{"s": 14}]]


@pytest.fixture
def polars():
    engine = PolarsEngine()
    yield engine
    engine.close()


@pytest.mark.parametrize("partition", [(0, 1), None])
def test_a_table_that_the_engine_cannot_hold_says_why_until_it_can(make_world, clock, polars, partition):
    world = make_world(polars)
    world.put(0, 1, 2)
    world.holder.apply(world.update(1, (0, 1, "owner")))
    world.holder.tick()
    column = pa.field("more", pa.list_(pa.int32()))
    initial = pa.array([[7]], column.type)
    listed = alterations.add_column(world.table(), column, initial, None, if_not_exists=False)
    world.holder.apply(world.update(2, (0, 1, "owner"), table=listed))
    world.holder.tick()
    asked = leg(world, 1)
    if partition is None:  # nor where the leg reads nothing here
        asked = evolve(asked, tables=(evolve(asked.tables[0], partitions=(), epochs=()),))
    with pytest.raises(NotOwner, match="polars engine: column 'more' is list"):
        world.holder.files_for(asked)
    without = alterations.drop_column(listed, "more", lambda _: frozenset(), if_exists=False)
    world.holder.apply(world.update(3, (0, 1, "owner"), table=without))
    clock.now_ms += 60_000
    world.grant()
    world.holder.tick()
    found = polars.query("select k from t order by 1", world.holder.files_for(leg(world, 2)))
    assert [row["k"] for batch in found.batches() for row in batch.to_pylist()] == [1, 2]


class AlteredFirst:
    """An engine under which the table is altered at the moment that it is asked."""

    def __init__(self, world, altered):
        self.world, self.altered = world, altered

    def query(self, *args, **more):
        self._alter()
        return self.world.engine.query(*args, **more)

    def places(self, *args):
        self._alter()
        return self.world.engine.places(*args)

    def _alter(self):
        self.world.holder.apply(self.world.update(2, (0, 1, "owner"), table=self.altered))
        self.world.holder.tick()


def test_what_meets_an_alter_in_the_engine_is_refused_for_that_and_not_for_a_column_that_is_gone(world, altered):
    """The text was made for a column that is renamed when the engine reads it."""
    renamed = alterations.rename_column(world.table(), "v", "w", lambda _: frozenset())
    engine = AlteredFirst(world, renamed)
    writes = OwnerWrites(world.holder, world.store, engine, world.clock, map, lambda: "me")
    asked = evolve(leg(world, 0).tables[0], revision=2)
    target = WriteTarget(table=asked, incarnation="", token="m")
    _, rows, columns = writes.base(target, None, "")
    assert columns.names == ["k", "v"]
    with pytest.raises(TableAltered):
        list(rows())


def test_a_statement_that_meets_an_alter_where_its_rows_are_looked_for_is_planned_again(
    world, altered, monkeypatch
):
    monkeypatch.setattr(owner_files, "SMALL_ROWS", 2)
    renamed = alterations.rename_column(world.table(), "v", "w", lambda _: frozenset())
    engine = AlteredFirst(world, renamed)
    writes = OwnerWrites(world.holder, world.store, engine, world.clock, map, lambda: "me")
    change = local_rewrite(read_change("delete from t where v = 'v1'"), world.table(), {"v": "varchar"})
    target = WriteTarget(table=evolve(leg(world, 0).tables[0], revision=2), incarnation="", token="m")
    assert writes.rewrite(target, change)["0"]["error"]["code"] == TableAltered.code


class Altered:
    """Tables of which none is what it was any more."""

    def require_definition(self, wanted, *, exact):
        raise TableAltered("altered")


@pytest.mark.parametrize("error", [PlanningError, WriteError, ConfigError])
def test_whatever_an_engine_cannot_do_after_an_alter_is_planned_again(error):
    with pytest.raises(TableAltered), altered_under(Altered(), [None]):
        raise error("no such thing")


def test_rows_that_fail_after_an_alter_are_planned_again(world):
    def broken():
        yield from world.rows(1).to_batches()
        raise PlanningError("no such column")

    with pytest.raises(TableAltered):
        list(rows_unless_altered(Altered(), [None], broken()))


def test_a_leg_that_meets_an_alter_in_the_engine_is_planned_again(world, altered):
    renamed = alterations.rename_column(world.table(), "v", "w", lambda _: frozenset())
    answers = ExecutorAnswers("e1", AlteredFirst(world, renamed), Tasks("e1", world.clock))
    answers.partitions = Partitions(world.holder)
    asked = evolve(leg(world, 0), sql="select k, v from t")
    with pytest.raises(TableAltered):
        answers.stream(leg_command(asked), None)
    wrong = evolve(leg(world, 1), sql="select nosuch from t")
    with pytest.raises(SqlError, match="nosuch"):
        answers.stream(leg_command(wrong), None)


class Partitions:
    """The partitions of an executor of which nothing waits for a decision."""

    def __init__(self, holder):
        self.holder = holder
        self.replica_reads = self.writes = self.runs = self

    def require_owner(self, leg):
        return frozenset()

    catch_up = freshen = require_owner


def test_a_file_of_a_definition_that_the_catalog_lacks_says_that_the_catalog_is_older(world, altered):
    """A definition is in the catalog before any file is written by it."""
    rows = pa.table([*world.rows(5).columns, pa.array([1], pa.int32())], schema=altered.schema)
    file = write_data_file(world.store, "snapshots/t/data/run/new.parquet", rows, definition=1)
    world.storage(0).commit(add=[file], epoch=1, token="new")
    catalog = ObjectState(world.store, CLUSTER_KEY, ClusterDocument)
    catalog.create(ClusterDocument(tables={"t": world.table()}))
    world.holder.refresh("t")
    assert world.holder.tick().failed == 1
    (said,) = world.holder.held()[0].failed.values()
    assert "'cluster.json' is at definition of table 't' 0, but partition 'expr0=0' knows of 1" in said
    catalog.update(lambda _: ClusterDocument(tables={"t": altered}))
    world.clock.now_ms += 5_000
    world.holder.tick()
    assert "was not told yet" in next(iter(world.holder.held()[0].failed.values()))
