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
from ballista_py.partitions.assignment.assigner import Executor, PartitionAssigner
from ballista_py.partitions.bucket import bucket_scalar
from ballista_py.partitions.discovery import diff_partitions
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.router import PartitionRouter, RoutedBatch, gather
from ballista_py.partitions.spec import PARTITION_COLUMN, PartitionSpec

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
    keys = np.empty(count, np.uint16)
    keys[order] = np.arange(count) // run
    gathered, found = gather(batch, keys)
    assert (found == order).all()
    assert gathered.equals(batch.take(pa.array(order)))
    gathered.validate(full=True)


@pytest.mark.share(3)
@pytest.mark.parametrize(
    "kind",
    [
        pa.bool_(),
        pa.int8(),
        pa.uint16(),
        pa.float16(),
        pa.date32(),
        pa.float64(),
        pa.timestamp("ns", "UTC"),
        pa.time64("us"),
        pa.decimal32(5, 2),
        pa.decimal64(12, 2),
        pa.decimal128(30, 2),
        pa.decimal256(50, 2),
        pa.binary(3),
        pa.duration("s"),
        pa.month_day_nano_interval(),
        pa.list_(pa.int32()),
        pa.dictionary(pa.int8(), pa.string()),
        pa.null(),
    ],
    ids=str,
)
@pytest.mark.parametrize("nulls", [False, True])
def test_columns_of_every_width_are_those_that_arrow_takes(kind: pa.DataType, nulls: bool) -> None:
    count = 5_000
    column = column_of(kind, count + 3, nulls).slice(3)
    keys = np.random.default_rng(1).integers(0, 7, count).astype(np.uint16)
    gathered, order = gather(pa.record_batch([column], ["c"]), keys)
    assert gathered.column(0).equals(column.take(pa.array(order)))
    gathered.validate(full=True)


def column_of(kind: pa.DataType, count: int, nulls: bool) -> pa.Array:
    """Some values of a type, all bit patterns for numbers."""
    picked = np.random.default_rng(2).integers(0, 50, count)
    valid = [not (nulls and n % 5 == 0) for n in range(count)]
    if pa.types.is_null(kind):
        return pa.nulls(count)
    values: list[Any] = {
        pa.list_(pa.int32()): [[n, None] for n in picked.tolist()],
        pa.dictionary(pa.int8(), pa.string()): [f"v{n}" for n in picked.tolist()],
        pa.binary(3): [bytes([n, 0, 255]) for n in picked.tolist()],
        pa.bool_(): [n % 2 == 0 for n in picked.tolist()],
        pa.month_day_nano_interval(): [(n, n, n) for n in picked.tolist()],
        pa.float16(): [np.float16(n) for n in picked.tolist()],
    }.get(kind, picked.tolist())
    return pa.array([value if ok else None for value, ok in zip(values, valid, strict=True)], kind)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_binary()], ids=str)
@pytest.mark.parametrize("width", [0, 1, 2, 3, 8, 16])
@pytest.mark.parametrize("skip", [0, 3])
def test_texts_of_one_length_are_those_that_arrow_takes(kind: pa.DataType, width: int, skip: int) -> None:
    texts = (
        pa.array([f"{n % 97:0{width}d}"[:width] for n in range(8_000 + skip)], pa.string()).cast(kind).slice(skip)
    )
    keys = np.repeat(np.arange(2_000) % 5, 4).astype(np.uint16)
    gathered, order = gather(pa.record_batch([texts], ["t"]), keys)
    assert gathered.column(0).equals(texts.take(pa.array(order)))
    gathered.validate(full=True)


def test_sixteen_bytes_are_moved_as_they_are() -> None:
    """Those that would be no numbers, signalling ones too."""
    bits = np.random.default_rng(3).integers(0, 1 << 63, 20_000).astype(np.uint64)
    bits[::3] |= np.uint64(0x7FF0_0000_0000_0001)
    column = pa.Array.from_buffers(pa.decimal128(38, 0), 10_000, [None, pa.py_buffer(bits)])
    keys = np.random.default_rng(4).integers(0, 7, 10_000).astype(np.uint16)
    gathered, order = gather(pa.record_batch([column], ["c"]), keys)
    moved = np.frombuffer(gathered.column(0).buffers()[1], np.uint64).reshape(-1, 2)
    assert (moved == bits.reshape(-1, 2)[order]).all()


def test_a_thread_pool_may_copy_the_columns(make_map: MakeMap) -> None:
    pmap = placed(make_map(16), 3)
    batch = pa.record_batch([pa.array(range(9_000)), pa.array([f"v{n}" for n in range(9_000)])], ["id", "text"])
    with ThreadPoolExecutor(2) as pool:
        side_by_side = PartitionRouter(pmap.spec, pmap, pool.map).route(batch)
    assert side_by_side == PartitionRouter(pmap.spec, pmap).route(batch)


def test_a_column_of_nulls_only_is_gathered_too() -> None:
    batch = pa.record_batch([pa.nulls(10_000, pa.string()), pa.array([""] * 10_000)], ["a", "b"])
    keys = np.repeat([1, 0], 5_000).astype(np.uint16)
    assert gather(batch, keys)[0].equals(batch)


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
