"""The router: no row lost, none twice, each where its partition's owner is, and the parts fit for the wire."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ballista_py.errors import SchemaMismatch
from ballista_py.planning.assigner import Executor, PartitionAssigner
from ballista_py.planning.bucket import bucket_scalar
from ballista_py.planning.diff import diff_partitions
from ballista_py.planning.partition_map import PartitionMap
from ballista_py.planning.partition_spec import PARTITION_COLUMN, PartitionSpec
from ballista_py.planning.router import PartitionRouter, RoutedBatch
from ballista_py.planning.router_gather import gather

MakeMap = Callable[..., PartitionMap]
SCHEMA = pa.schema([("id", pa.int64()), ("region", pa.string()), ("tags", pa.list_(pa.string()))])


def rows_of(count: int, regions: str = "abc") -> pa.RecordBatch:
    ids = [None if number % 7 == 3 else number for number in range(count)]
    names = [None if number % 5 == 4 else regions[number % len(regions)] for number in range(count)]
    return pa.record_batch([ids, names, [["x"] * (number % 3) for number in range(count)]], schema=SCHEMA)


def everything(routed: RoutedBatch) -> list[dict[str, Any]]:
    parts = [*routed.by_executor.values(), routed.unassigned]
    return [row for part in parts for row in part.drop_columns([PARTITION_COLUMN]).to_pylist()]


def placed(pmap: PartitionMap, count: int) -> PartitionMap:
    return pmap.apply(PartitionAssigner().assign(pmap, [Executor(f"e{number}", "i") for number in range(count)]))


@given(st.lists(st.none() | st.integers(-50, 50), max_size=60), st.integers(1, 9), st.integers(1, 5))
def test_every_row_is_with_the_owner_of_its_partition(ids: list[int | None], buckets: int, executors: int) -> None:
    spec = PartitionSpec.parse([f"bucket({buckets}, id)"], SCHEMA)
    pmap = placed(PartitionMap.build("t", spec, spec.static_values() or []), executors)
    batch = pa.record_batch([ids, [str(n) for n in range(len(ids))], [[]] * len(ids)], schema=SCHEMA)
    routed = PartitionRouter(spec, pmap).route(batch)
    assert sorted(row["region"] for row in everything(routed)) == sorted(batch["region"].to_pylist())
    assert routed.unassigned.num_rows == 0
    for name, part in routed.by_executor.items():
        assert part.num_rows
        for row in part.to_pylist():
            partition = pmap.index((bucket_scalar(buckets, row["id"], pa.int64()),))
            assert row[PARTITION_COLUMN] == partition
            assert pmap.owner(partition or 0) == (name, "i")
        assert [int(text) for text in part["region"].to_pylist()] == sorted(
            int(t) for t in part["region"].to_pylist()
        )
    assert list(routed.by_executor) == sorted(routed.by_executor)


def test_rows_of_unknown_values_and_of_unowned_partitions_come_back() -> None:
    spec = PartitionSpec.parse(["region"], SCHEMA)
    pmap = placed(PartitionMap.build("t", spec, [("a",), (None,)]), 2)
    pmap = pmap.apply_diff(diff_partitions(pmap, [("a",), (None,), ("b",)]))
    routed = PartitionRouter(spec, pmap).route(rows_of(100))
    back = routed.unassigned.to_pylist()
    assert {(row["region"], row[PARTITION_COLUMN]) for row in back} == {("b", 2), ("c", None)}
    assert len(everything(routed)) == 100
    assert routed.unassigned.schema.field(PARTITION_COLUMN).type == pa.int32()


def test_a_removed_partition_takes_no_rows() -> None:
    spec = PartitionSpec.parse(["region"], SCHEMA)
    pmap = placed(PartitionMap.build("t", spec, [("a",), ("b",)]), 2)
    for _ in range(2):
        pmap = pmap.apply_diff(diff_partitions(pmap, [("b",)]))
    routed = PartitionRouter(spec, pmap).route(rows_of(10, "ab"))
    assert {row["region"] for row in routed.unassigned.to_pylist()} == {"a", None}


def test_a_replicated_table_is_written_by_its_one_owner() -> None:
    pmap = placed(PartitionMap.build("t", PartitionSpec.whole(), [()]), 3)
    routed = PartitionRouter(pmap.spec, pmap).route(rows_of(9))
    ((part),) = routed.by_executor.values()
    assert part[PARTITION_COLUMN].to_pylist() == [0] * 9
    assert part.drop_columns([PARTITION_COLUMN]).equals(rows_of(9))


def test_a_map_without_owners_gives_all_rows_back(make_map: MakeMap) -> None:
    pmap = make_map(4)
    batch = pa.record_batch([pa.array(range(10))], schema=pa.schema([pa.field("id", pa.int64(), nullable=False)]))
    routed = PartitionRouter(pmap.spec, pmap).route(batch)
    assert routed.by_executor == {}
    assert routed.unassigned.num_rows == 10
    assert routed.unassigned[PARTITION_COLUMN].null_count == 0


def test_a_table_without_any_partition_gives_all_rows_back() -> None:
    spec = PartitionSpec.parse(["region"], SCHEMA)
    for executors in (0, 3):
        pmap = (
            placed(PartitionMap.build("t", spec, []), executors)
            if executors
            else PartitionMap.build("t", spec, [])
        )
        batch = rows_of(20)
        routed = PartitionRouter(spec, pmap).route(batch)
        assert routed.by_executor == {}
        assert routed.unassigned.drop_columns([PARTITION_COLUMN]) == batch
        assert routed.unassigned[PARTITION_COLUMN].null_count == 20
        assert PartitionRouter(spec, pmap).route(batch.slice(0, 0)).unassigned.num_rows == 0


def test_an_empty_batch_routes_to_nothing(make_map: MakeMap) -> None:
    pmap = placed(make_map(4), 2)
    batch = pa.record_batch([pa.array([], pa.int64())], ["id"])
    routed = PartitionRouter(pmap.spec, pmap).route(batch)
    assert routed.by_executor == {}
    assert routed.unassigned.num_rows == 0


def test_slices_views_and_dictionaries_are_routed_as_plain_columns_are(make_map: MakeMap) -> None:
    pmap = placed(make_map(16), 3)
    plain = pa.record_batch([pa.array(range(200)), pa.array([f"v{n}" * 9 for n in range(200)])], ["id", "text"])
    router = PartitionRouter(pmap.spec, pmap)
    expected = {name: part.to_pydict() for name, part in router.route(plain.slice(50, 100)).by_executor.items()}
    for kind in (pa.string_view(), pa.dictionary(pa.int32(), pa.string()), pa.large_string()):
        other = plain.set_column(
            1,
            "text",
            plain["text"].cast(kind)
            if kind != pa.dictionary(pa.int32(), pa.string())
            else plain["text"].dictionary_encode(),
        )
        routed = router.route(other.slice(50, 100))
        assert {name: part.to_pydict() for name, part in routed.by_executor.items()} == expected
        assert not any(
            pa.types.is_string_view(field.type) for part in routed.by_executor.values() for field in part.schema
        )


def test_parts_are_about_as_large_on_the_wire_as_the_batch(make_map: MakeMap) -> None:
    pmap = placed(make_map(64), 8)
    texts = pa.array([f"{number:050d}" for number in range(20_000)])
    for column in (texts, texts.cast(pa.string_view())):
        batch = pa.record_batch([pa.array(range(20_000)), column], ["id", "text"])
        routed = PartitionRouter(pmap.spec, pmap).route(batch)
        assert len(routed.by_executor) == 8
        sizes = 0
        for part in routed.by_executor.values():
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, part.schema) as writer:
                writer.write_batch(part)
            sizes += sink.getvalue().size
        assert sizes < 1.2 * 20_000 * (8 + 50 + 4 + 4)


def test_more_than_65535_executors_are_told_apart(make_map: MakeMap) -> None:
    pmap = placed(make_map(70_000), 70_000)
    batch = pa.record_batch([pa.array(np.arange(1_000))], ["id"])
    routed = PartitionRouter(pmap.spec, pmap).route(batch)
    for name, part in list(routed.by_executor.items())[:50]:
        assert pmap.owner(part[PARTITION_COLUMN][0].as_py()) == (name, "i")
    assert sum(part.num_rows for part in routed.by_executor.values()) == 1_000


def test_rows_that_do_not_fit_are_refused(make_map: MakeMap) -> None:
    pmap = placed(make_map(4), 2)
    router = PartitionRouter(pmap.spec, pmap)
    with pytest.raises(SchemaMismatch, match="no column 'id'"):
        router.route(pa.record_batch([pa.array([1])], ["other"]))
    with pytest.raises(SchemaMismatch, match="a name that is taken"):
        router.route(pa.record_batch([pa.array([1]), pa.array([1])], ["id", PARTITION_COLUMN]))


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
@pytest.mark.parametrize("run", [1, 4, 100, 20_000])
@pytest.mark.parametrize("nulls", [False, True])
def test_strings_copied_in_runs_are_those_that_arrow_takes(kind: pa.DataType, run: int, nulls: bool) -> None:
    count = 20_000
    texts = pa.array([None if nulls and n % 11 == 5 else "é" * (n % 13) for n in range(count + 7)]).cast(kind)
    batch = pa.record_batch([texts, pa.array(range(count + 7))], ["text", "n"]).slice(7)
    chance = np.random.default_rng(run)
    order = np.concatenate(
        chance.permutation(np.arange(count).reshape(-1, run)) if run < count else [np.arange(count)]
    )
    assert gather(batch, order).equals(batch.take(pa.array(order)))
    gather(batch, order).validate(full=True)


def test_a_thread_pool_may_copy_the_columns(make_map: MakeMap) -> None:
    pmap = placed(make_map(16), 3)
    batch = pa.record_batch([pa.array(range(9_000)), pa.array([f"v{n}" for n in range(9_000)])], ["id", "text"])
    with ThreadPoolExecutor(2) as pool:
        side_by_side = PartitionRouter(pmap.spec, pmap, pool.map).route(batch)
    assert side_by_side == PartitionRouter(pmap.spec, pmap).route(batch)


def test_a_column_of_nulls_only_is_gathered_too() -> None:
    batch = pa.record_batch([pa.nulls(10_000, pa.string()), pa.array([""] * 10_000)], ["a", "b"])
    order = np.concatenate([np.arange(5_000, 10_000), np.arange(5_000)])
    assert gather(batch, order).equals(batch)


def test_rows_can_come_partition_by_partition() -> None:
    spec = PartitionSpec.parse(["bucket(8, id)"], SCHEMA)
    pmap = placed(PartitionMap.build("t", spec, spec.static_values() or []), 3)
    batch = rows_of(500)
    plain = PartitionRouter(spec, pmap).route(batch)
    grouped = PartitionRouter(spec, pmap, by_partition=True).route(batch)
    assert list(grouped.by_executor) == list(plain.by_executor)
    for name, part in grouped.by_executor.items():
        partitions = part[PARTITION_COLUMN].to_pylist()
        assert partitions == sorted(partitions)
        order = pa.array(np.argsort(plain.by_executor[name][PARTITION_COLUMN].to_numpy(), kind="stable"))
        assert part == plain.by_executor[name].take(order)


def test_rows_of_nobody_come_back_when_grouped() -> None:
    spec = PartitionSpec.parse(["region"], SCHEMA)
    pmap = placed(PartitionMap.build("t", spec, [("a",), (None,)]), 2)
    routed = PartitionRouter(spec, pmap, by_partition=True).route(rows_of(100))
    assert set(routed.unassigned["region"].to_pylist()) == {"b", "c"}
    assert len(everything(routed)) == 100
