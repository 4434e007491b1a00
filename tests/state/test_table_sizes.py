"""The sizes that executors report, as the planner sees them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from attrs import evolve

from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.sql.plan import Catalog
from ballista_py.state.members.control import HeldPartitions
from ballista_py.state.ownership.table_sizes import table_sizes

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("body", pa.string())])
SPEC = PartitionSpec.parse(["bucket(3, id)"], SCHEMA)
TABLES = {"t": TableSpec(name="t", schema=SCHEMA, spec=SPEC, incarnation="a1")}
MAPS = {"t": PartitionMap.build("t", SPEC, SPEC.static_values(), weights=[7, 7, 7])}


def held(active, rows, weights=None, table="t-a1"):
    weights = [100 * n for n in rows] if weights is None else weights
    epochs = (1,) * len(active)
    return (
        HeldPartitions(table=table, revision=1, active=active, epochs=epochs, rows=rows, bytes=tuple(weights)),
    )


def test_rows_and_bytes_are_those_of_the_reports_and_weights_where_nobody_spoke():
    found = table_sizes(TABLES, MAPS, {("e1", "i"): held((0,), (5,)), ("e2", "i"): held((2,), (9,))}, {})["t"]
    assert found.rows.tolist() == [5, 7, 9]
    assert found.bytes.tolist() == [500, 0, 900]


def test_what_was_dropped_or_is_newer_than_the_map_counts_for_nothing():
    reports = {("e1", "i"): held((0,), (5,), table="t-old"), ("e2", "i"): held((1, 3), (4, 9))}
    assert table_sizes(TABLES, MAPS, reports, {})["t"].rows.tolist() == [7, 4, 7]


def test_an_executor_that_does_not_say_leaves_the_weights():
    silent = (HeldPartitions(table="t-a1", revision=1, active=(0, 1, 2), epochs=(1, 1, 1)),)
    assert table_sizes(TABLES, MAPS, {("e1", "i"): silent}, {})["t"].rows.tolist() == [7, 7, 7]


def test_a_trickle_of_rows_changes_no_value_and_many_do():
    def after(rows, before):
        return table_sizes(TABLES, MAPS, {("e1", "i"): held((0,), (rows,))}, before)

    first = after(100_000, {})
    assert after(100_900, first)["t"] is first["t"]
    assert after(200_000, first)["t"].rows[0] == 200_000
    none = table_sizes(TABLES, MAPS, {("e1", "i"): held((0, 1, 2), (0, 0, 0))}, {})
    spread = table_sizes(TABLES, MAPS, {("e1", "i"): held((0, 1, 2), (900, 900, 900))}, none)
    assert spread["t"].rows.sum() == 2_700


def test_texts_weigh_what_the_files_say_if_that_is_more():
    sizes = table_sizes(TABLES, MAPS, {("e1", "i"): held((0, 1, 2), (10, 10, 10), weights=(90_080,) * 3)}, {})
    assert Catalog(tables=TABLES, maps=MAPS, sizes=sizes).column_bytes("t")["body"] == 9_000
    small = table_sizes(TABLES, MAPS, {("e1", "i"): held((0, 1, 2), (10, 10, 10), weights=(50,) * 3)}, {})
    assert Catalog(tables=TABLES, maps=MAPS, sizes=small).column_bytes("t")["body"] == 24
    assert Catalog(tables=TABLES, maps=MAPS).column_bytes("t")["body"] == 24
    assert np.array_equal(Catalog(tables=TABLES, maps=MAPS).rows("t"), [7, 7, 7])


def ranged(ranges, rows=5_000, executor="e1"):
    (report,) = held((0,), (rows,))
    return {(executor, "i"): (evolve(report, ranges=ranges),)}


def test_how_values_lie_is_what_each_executor_says_of_its_rows():
    reports = {**ranged({"id": (0.0, 99.0)}, 3_000), **ranged({"id": (100.0, 199.0)}, 1_000, "e2")}
    spread = table_sizes(TABLES, MAPS, reports, {})["t"].spreads["id"]
    assert spread.share(100.0, None) == 0.25
    assert spread.share(None, 49.5) == 0.375


def test_ranges_that_hardly_moved_change_no_value():
    first = table_sizes(TABLES, MAPS, ranged({"id": (0.0, 1_000.0)}), {})
    near = table_sizes(TABLES, MAPS, ranged({"id": (-50.0, 1_050.0)}), first)
    assert near["t"] is first["t"]
    for other in ({"id": (0.0, 2_000.0)}, {"id": (500.0, 1_000.0)}, {}, {"body": (0.0, 1_000.0)}):
        assert table_sizes(TABLES, MAPS, ranged(other), first)["t"] is not first["t"]
    few = table_sizes(TABLES, MAPS, ranged({"id": (0.0, 9.0)}, 20), {})
    assert table_sizes(TABLES, MAPS, ranged({"id": (0.0, 30.0)}, 40), few)["t"] is few["t"]
