"""How a statement that changes rows runs and what its outcome means, decided over values alone."""

import pyarrow as pa
import pytest
from attrs import evolve

from ballista_py.coordinator.writes.owner_calls import Outcome, failure_of, next_step, worst_of
from ballista_py.coordinator.writes.row_routes import RowStreams
from ballista_py.coordinator.writes.write_ways import way_of_local, way_of_rows
from ballista_py.errors import NotOwner, SchemaMismatch, SqlError, TransportError, WriteIncomplete, to_wire
from ballista_py.partitions.assignment.assigner import Executor, PartitionAssigner
from ballista_py.partitions.map import NOBODY, PartitionMap
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.sql.parse.changes import General, read_change

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])
SPEC = PartitionSpec.parse(["bucket(4, id)"], SCHEMA)
TABLE = TableSpec(name="t", schema=SCHEMA, spec=SPEC, distribution="partitioned", group="t")
REQUIRED = evolve(TABLE, schema=pa.schema([("id", pa.int64()), pa.field("v", pa.int64(), nullable=False)]))
UNIQUE = evolve(TABLE, primary_key=("id",))
WIDE = pa.schema([("id", pa.int64()), ("v", pa.int64()), ("Key", pa.int64())])
KEYED = evolve(TABLE, schema=WIDE, primary_key=("id", "Key"))
CHECKED = evolve(TABLE, checks=("v > 0",))
MAP = PartitionMap.build("t", SPEC, SPEC.static_values() or [])
LOST, REFUSED = TransportError("lost"), SchemaMismatch("row 3 does not fit")


@pytest.mark.parametrize(
    ("table", "options", "way"),
    [
        (TABLE, {"atomic": False}, "apply"),
        (TABLE, {"atomic": True}, "decide"),
        (TABLE, {"atomic": False, "replace": True}, "decide"),
        (TABLE, {"atomic": False, "constant": False}, "decide"),
        (UNIQUE, {"atomic": False}, "decide"),
    ],
)
def test_rows_that_would_tear_are_decided_once(table, options, way):
    assert way_of_rows(table, **options) == way


@pytest.mark.parametrize(
    ("table", "statement", "way"),
    [
        (TABLE, "update t set v = 1", "decide"),
        (TABLE, "update t set id = 1", "whole"),
        (TABLE, "delete from t where id = 1", "decide"),
        (REQUIRED, "update t set v = null", "decide"),
        (REQUIRED, "delete from t", "decide"),
        (UNIQUE, "update t set v = 1", "decide"),
        (KEYED, "update t set v = 1", "decide"),
        (KEYED, "update t set v = 1, key = 2", "whole"),
        (KEYED, 'update t set "KEY" = 2', "whole"),
        (KEYED, "update t set (v, key) = (1, 2)", "whole"),
        (CHECKED, "update t set v = 1", "whole"),
        (CHECKED, "delete from t", "decide"),
        (UNIQUE, "delete from t where v = 1", "decide"),
    ],
)
def test_several_partitions_decide_an_update_and_one_applies_it_unless_its_rows_move(table, statement, way):
    change = read_change(statement)
    assert way_of_local(change, table, partitions=2) == way
    assert way_of_local(change, table, partitions=1) == ("whole" if way == "whole" else "apply")


def test_another_round_follows_only_errors_that_it_may_mend():
    assert next_step({}, may_repeat=False) == "done"
    assert next_step({1: LOST}, may_repeat=True) == "again"
    assert next_step({1: LOST}, may_repeat=False) == "over"
    assert next_step({1: LOST, 2: REFUSED}, may_repeat=True) == "over"
    assert worst_of({1: LOST, 2: REFUSED}) is REFUSED


def test_what_lacks_a_statement_is_named_unless_nothing_was_applied_and_the_rows_are_to_blame():
    assert failure_of("t", MAP, {1: REFUSED}, {}, REFUSED) is REFUSED
    error = failure_of("t", MAP, {1: LOST, 2: LOST}, {0: 5}, LOST)
    assert isinstance(error, WriteIncomplete)
    assert error.details["partitions"] == [MAP.path(1), MAP.path(2)]
    assert "1 did" in error.message
    assert isinstance(failure_of("t", MAP, {1: REFUSED}, {0: 5}, REFUSED), WriteIncomplete)
    wrong = SqlError("1 / 0")
    assert failure_of("t", MAP, {1: wrong}, {}, wrong) is wrong
    assert isinstance(failure_of("t", MAP, {1: wrong, 2: LOST}, {}, wrong), WriteIncomplete)
    assert isinstance(failure_of("t", MAP, {1: LOST}, {}, LOST), WriteIncomplete)


def test_what_became_of_more_partitions_counts_with_those_that_wait_for_nothing():
    outcome, more = Outcome(), Outcome()
    outcome.add({"0": {"affected": 1, "idle": True}, "1": {"affected": 2}}, {0, 1})
    more.add({"2": {"affected": 0, "idle": True}, "3": {"affected": 4}}, {2, 3})
    outcome.take(more)
    assert outcome.affected == {0: 1, 1: 2, 2: 0, 3: 4}
    assert outcome.waiting == [1, 3]


def test_an_outcome_tells_rows_and_errors_by_partition():
    outcome = Outcome()
    error = to_wire(NotOwner("no", table="t", partitions=[2]))
    outcome.add({"1": {"affected": 3}, "2": {"error": error}, "7": {"affected": 9}}, {1, 2})
    assert outcome.affected == {1: 3}
    assert isinstance(outcome.errors[2], NotOwner)


def test_a_partition_stays_with_its_stream_when_its_owner_changes():
    owned = MAP.apply(PartitionAssigner().assign(MAP, [Executor("e1", "i"), Executor("e2", "i")]))
    live = {("e1", "i"), ("e2", "i")}
    first = RowStreams().extended(owned, {("e1", "i")})
    mine = [p for p in range(len(owned)) if owned.owner(p) == ("e1", "i")]
    assert first.executors == ("e1",)
    assert first.partitions == (tuple(mine),)
    moved = MAP.apply(PartitionAssigner().assign(MAP, [Executor("e2", "i")]))
    second = first.extended(moved, live)
    assert [int(second.number_of[p]) for p in mine] == [0] * len(mine)
    assert second.executors == ("e1", "e2")
    assert set(second.number_of.tolist()) == {0, 1}


def test_rows_of_partitions_that_are_done_go_nowhere_and_those_of_nobody_wait():
    owned = MAP.apply(PartitionAssigner().assign(MAP, [Executor("e1", "i")]))
    plan = RowStreams().extended(owned, {("e1", "i")}, skip={0, 2})
    assert [plan.executors[number] for number in plan.number_of.tolist()] == [
        "" if p in (0, 2) else "e1" for p in range(len(owned))
    ]
    assert set(RowStreams().extended(owned, set()).number_of.tolist()) == {NOBODY}


@pytest.mark.parametrize(
    "statement",
    [
        "update t set n = (select max(i) from range(3) r(i))",
        "update t set n = (select max(u.n) from u, generate_series(1, 3) g(i) where i = u.n)",
        "merge into t using range(3) r(i) on t.n = r.i when matched then delete",
        "delete from t using range(3) r(i) where n = i",
    ],
)
def test_a_table_function_is_no_table_that_a_change_reads(statement):
    change = read_change(statement)
    assert isinstance(change, General)
    assert change.sources == (("u",) if " u," in statement else ())
