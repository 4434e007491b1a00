"""Whether all of a table is served, as executors say."""

from __future__ import annotations

import pyarrow as pa
import pytest
from attrs import evolve

from ballista_py.partitions.assignment.assigner import Executor, PartitionAssigner
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.state.members.control import HeldPartitions
from ballista_py.state.ownership.table_status import table_status

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False)])
SPEC = PartitionSpec.parse(["bucket(4, id)"], SCHEMA)
TABLE = TableSpec(name="t", schema=SCHEMA, spec=SPEC)
MEMBERS = [("e1", "i1"), ("e2", "i2")]


@pytest.fixture
def pmap():
    empty = PartitionMap.build("t", SPEC, SPEC.static_values())
    given = empty.apply(PartitionAssigner().assign(empty, [Executor(*member) for member in MEMBERS]))
    return given.with_revision(3)


def report(pmap, member, *, left_out=0, behind=0, **more):
    mine = pmap.owned_by(*member).tolist()[left_out:]
    epochs = tuple(pmap.epoch(partition) - behind for partition in mine)
    return (HeldPartitions(**{"table": "t", "revision": 3, "active": tuple(mine), "epochs": epochs, **more}),)


def test_a_table_is_served_when_every_owner_serves_its_partitions(pmap):
    held = {member: report(pmap, member) for member in MEMBERS}
    whole = table_status(TABLE, pmap, MEMBERS, held)
    assert (whole.table, whole.partitions, whole.serving, whole.ready, whole.owned) == ("t", 4, 4, True, True)
    more = report(pmap, MEMBERS[0], active=(0, 1, 2, 3, 9), epochs=(9,) * 5)  # of another's, and of none's
    both = table_status(TABLE, pmap, MEMBERS, {**held, MEMBERS[0]: more})
    assert (both.serving, both.ready, both.owned) == (4, True, True)


@pytest.mark.parametrize("wrong", [{"left_out": 1}, {"behind": 1}, {"table": "u"}])
def test_what_is_not_loaded_or_of_an_earlier_epoch_or_another_table_is_not_served(pmap, wrong):
    held = {MEMBERS[0]: report(pmap, MEMBERS[0]), MEMBERS[1]: report(pmap, MEMBERS[1], **wrong)}
    status = table_status(TABLE, pmap, MEMBERS, held)
    assert status.serving == (3 if "left_out" in wrong else 2)
    assert (status.ready, status.owned) == (False, False)


def test_whoever_is_no_member_serves_nothing(pmap):
    held = {member: report(pmap, member) for member in MEMBERS}
    assert table_status(TABLE, pmap, MEMBERS[:1], held).serving == 2
    assert not table_status(TABLE, PartitionMap.build("t", SPEC, SPEC.static_values()), [], {}).ready


@pytest.mark.parametrize(("definition", "revision", "serves"), [(0, 2, 4), (1, 3, 4), (1, 2, 2)])
def test_an_altered_table_is_served_by_those_who_were_told(pmap, definition, revision, serves):
    held = {MEMBERS[0]: report(pmap, MEMBERS[0]), MEMBERS[1]: report(pmap, MEMBERS[1], revision=revision)}
    status = table_status(evolve(TABLE, definition=definition), pmap, MEMBERS, held)
    assert (status.serving, status.owned) == (serves, serves == 4)


def test_reasons_are_told_by_executor_and_partition(pmap):
    held = {MEMBERS[0]: report(pmap, MEMBERS[0], failed={1: "disk full", 9: "of no partition"})}
    assert table_status(TABLE, pmap, MEMBERS, held).failed == {f"e1/{pmap.path(1)}": "disk full"}
