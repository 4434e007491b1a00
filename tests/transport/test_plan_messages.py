"""What plans are sent as: legs, what owners change, tables that are asked for. What goes in comes out."""

from __future__ import annotations

import pyarrow as pa
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from ballista_py.partitions.new_table import NewTable
from ballista_py.partitions.refresh import Refresh, Retention
from ballista_py.sql.plan import Leg, LegTable, leg_from_json, relation_bytes
from ballista_py.testing.strategies import batches, schemas
from ballista_py.transport.arrow.door import read_rows
from ballista_py.transport.flight.commands import WriteTarget, create_table_command, leg_command, write_command
from ballista_py.transport.flight.wire import from_json, to_json

WHOLE = st.integers(0, 2**53)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@st.composite
def leg_tables(draw):
    partitions = draw(st.lists(WHOLE, max_size=5, unique=True))
    return LegTable(
        table=draw(NAMES),
        revision=draw(WHOLE),
        partitions=tuple(sorted(partitions)),
        epochs=tuple(draw(WHOLE) for _ in partitions),
        sequence=draw(st.none() | WHOLE),
        at_replicas=draw(WHOLE),
        definition=draw(WHOLE),
        incarnation=draw(NAMES),
    )


LEGS = st.builds(
    Leg,
    fragment=NAMES,
    executor_id=NAMES,
    sql=NAMES,
    tables=st.lists(leg_tables(), max_size=3).map(tuple),
    relations=st.dictionaries(NAMES, st.binary(max_size=50), max_size=3),
    max_replica_lag_ms=st.floats(0, 1e12),
)


@given(LEGS, NAMES)
@settings(max_examples=200)
def test_a_leg_comes_back_as_it_was_and_its_bytes_as_they_were(leg, task):
    data = to_json(leg_command(leg, task))
    command = from_json(data)
    back = leg_from_json(command["leg"])
    assert back == leg
    assert to_json(leg_command(back, command["task"])) == data


@given(schemas().flatmap(batches).map(lambda batch: pa.Table.from_batches([batch])))
@settings(max_examples=60, deadline=None)
def test_the_columns_of_a_broadcast_are_in_it_and_come_back_with_its_rows(rows):
    leg = Leg(fragment="f", executor_id="e", sql="", tables=(), relations={"b": relation_bytes(rows)})
    back = leg_from_json(from_json(to_json(leg_command(leg)))["leg"])
    came = read_rows(back.relations["b"], compressed=True)
    assert came.schema.equals(rows.schema, check_metadata=True)
    assert relation_bytes(came) == back.relations["b"]


@st.composite
def targets(draw):
    incarnation = draw(NAMES)
    files = st.dictionaries(WHOLE, st.lists(NAMES, max_size=3).map(tuple), max_size=3)
    return WriteTarget(
        table=evolve(draw(leg_tables()), at_replicas=0, incarnation=incarnation),
        incarnation=incarnation,
        token=draw(NAMES),
        attempt=draw(st.none() | NAMES),
        replace=draw(st.booleans()),
        remove=draw(files),
        base=draw(files),
    )


@given(targets())
@settings(max_examples=200)
def test_what_an_owner_changes_comes_back_as_it_was(target):
    data = to_json(write_command(target))
    back = WriteTarget.from_json(from_json(data)["target"])
    assert back == target
    assert to_json(write_command(back)) == data


TABLES = st.builds(
    NewTable,
    name=NAMES,
    partition_by=st.lists(NAMES, max_size=3),
    distribution=st.sampled_from(["partitioned", "replicated"]),
    colocate_with=st.none() | NAMES,
    primary_key=st.lists(NAMES, max_size=3),
    checks=st.lists(NAMES, max_size=3),
    file_format=st.sampled_from(["parquet", "vortex"]),
    refresh=st.none() | st.just(Refresh(mode="append", every="5m", time_column="t")),
    retention=st.none() | st.just(Retention(sql="DELETE FROM t WHERE a < 1")),
)


@given(TABLES, NAMES)
@settings(max_examples=200)
def test_a_table_that_is_asked_for_comes_back_as_it_was(table, token):
    data = to_json(create_table_command(table, token))
    back = NewTable.from_json(from_json(data))
    assert back == table
    assert to_json(create_table_command(back, token)) == data
