"""How fast partitions are assigned, selected and routed, beside the plain way to do each.

Run: python benches/planning.py [--partitions 1000000] [--executors 1000]. Routing needs tpchgen-cli for lineitem.
"""

from __future__ import annotations

import argparse
import heapq
import shutil
import subprocess
import sys
import tempfile
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from _measure import claim, interleaved, show
from ballista_py.partitions.assignment.assigner import Executor, PartitionAssigner
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.router import PartitionRouter
from ballista_py.partitions.set_cover import cover
from ballista_py.partitions.spec import PartitionSpec


def plain_largest_first(weights: np.ndarray, executors: int) -> list[int]:
    """Largest first with a heap, as one would write it."""
    values = weights.tolist()
    heap = [(0.0, place) for place in range(executors)]
    owners = [0] * len(values)
    for item in np.argsort(-weights, kind="stable").tolist():
        load, place = heap[0]
        owners[item] = place
        heapq.heapreplace(heap, (load + values[item], place))
    return owners


def lazy_greedy(holders: list[list[int]], count: int) -> dict[int, list[int]]:
    """Greedy set cover with a heap of upper bounds, as one would write it."""
    held: list[list[int]] = [[] for _ in range(count)]
    for row, places in enumerate(holders):
        for place in places:
            held[place].append(row)
    left = set(range(len(holders)))
    heap = [(-len(rows), place) for place, rows in enumerate(held)]
    heapq.heapify(heap)
    chosen: dict[int, list[int]] = {}
    while left:
        promised, place = heapq.heappop(heap)
        gain = [row for row in held[place] if row in left]
        if len(gain) != -promised:
            heapq.heappush(heap, (-len(gain), place))
            continue
        chosen[place] = gain
        left.difference_update(gain)
    return chosen


def assignment(partitions: int, executors: int) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    spec = PartitionSpec.parse([f"bucket({partitions}, id)"], schema)
    fleet = [Executor(f"e{place:04}") for place in range(executors)]
    assigner = PartitionAssigner(2 * partitions // executors + 1)
    for name, weights in (
        ("equal weights", np.ones(partitions)),
        ("skewed weights", np.random.default_rng(1).lognormal(size=partitions)),
    ):
        empty = PartitionMap.of_columns("t", spec, spec.static_columns() or (), partitions, weights)
        placed = empty.apply(assigner.assign(empty, fleet))
        more, fewer = [*fleet, Executor("new")], fleet[1:]
        found = interleaved(
            {
                "plain largest first": lambda w=weights: plain_largest_first(w, executors),
                "cold": lambda m=empty: assigner.assign(m, fleet),
                "join": lambda m=placed, f=more: assigner.assign(m, f),
                "leave": lambda m=placed, f=fewer: assigner.assign(m, f),
                "nothing to do": lambda m=placed: assigner.assign(m, fleet),
            },
            5,
        )
        show(f"assign {partitions:,} partitions to {executors:,} executors, {name}", found, partitions, "cold")
        base = found["plain largest first"]
        for step, most in (("cold", 1.0), ("join", 0.5), ("leave", 0.1)):
            claim(f"{step} takes at most {most}x plain", found[step] <= most * base, f"{found[step] / base:.2f}x")
        loads = np.bincount(placed.owner_index[:, 0], weights)
        join = assigner.assign(placed, more)
        moved = len(join.moves) / partitions * (executors + 1)
        claim(
            "max/mean load at most 1.05", loads.max() <= 1.05 * loads.mean(), f"{loads.max() / loads.mean():.4f}"
        )
        claim("a join moves at most the ideal + 5 %", moved <= 1.05, f"{moved:.2f} of the ideal")


def selection(partitions: int, executors: int) -> None:
    chance = np.random.default_rng(2)
    steps = chance.integers(1, max(2, executors // 3), (partitions, 3)).cumsum(axis=1)
    holders = ((chance.integers(0, executors, (partitions, 1)) + steps) % executors).astype(np.int32)
    for rows in (partitions, 1_000):
        some = holders[np.sort(chance.choice(partitions, rows, replace=False))] if rows < partitions else holders
        picks = {place: part.tolist() for place, part in cover(some, executors).items()}
        assert picks == lazy_greedy(some.tolist(), executors), "the picks differ"
        candidates = {
            "cover": lambda s=some: cover(s, executors),
            "lazy heap greedy": lambda s=some: lazy_greedy(s.tolist(), executors),
        }
        found = interleaved(candidates, 1 if rows > 100_000 else 15)
        show(f"cover {rows:,} partitions, 3 replicas, {executors:,} executors", found, rows, "cover")
        times = found["lazy heap greedy"] / found["cover"]
        least = 50 if rows > 1_000 else 1
        claim(f"at least {least}x the lazy heap", times >= least, f"{times:.1f}x")


def lineitem(rows: int) -> pa.RecordBatch:
    """The first rows of TPC-H lineitem as one batch of plain columns."""
    beside = Path(sys.executable).parent / "tpchgen-cli"
    tool = str(beside) if beside.is_file() else shutil.which("tpchgen-cli")
    assert tool, "tpchgen-cli is not installed"
    with tempfile.TemporaryDirectory() as folder:
        scale = str(rows / 5_900_000)
        command = [tool, "parquet", "-s", scale, "--tables=lineitem", f"--output-dir={folder}"]
        subprocess.run(command, check=True, capture_output=True)
        table = pq.read_table(Path(folder) / "lineitem.parquet").slice(0, rows)
    plain = [f.with_type(pa.string()) if pa.types.is_string_view(f.type) else f for f in table.schema]
    return table.cast(pa.schema(plain)).combine_chunks().to_batches()[0]


def copy_of(batch: pa.RecordBatch) -> list[np.ndarray]:
    """A memcpy of all buffers."""
    buffers = [buffer for column in batch.columns for buffer in column.buffers() if buffer is not None]
    return [np.frombuffer(buffer, np.uint8).copy() for buffer in buffers]


def memory_of(router: PartitionRouter, batch: pa.RecordBatch) -> float:
    """Arrow's memory for the result and numpy's peak on the way, in sizes of the batch."""
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    routed = router.route(batch)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    used = pa.total_allocated_bytes() - before + peak
    assert routed.unassigned.num_rows == 0
    return used / batch.nbytes


def routing(rows: int) -> None:
    batch = lineitem(rows)
    spec = PartitionSpec.parse(["bucket(64, l_orderkey)"], batch.schema)
    pmap = PartitionMap.build("lineitem", spec, spec.static_values() or [])
    pmap = pmap.apply(PartitionAssigner().assign(pmap, [Executor(f"e{place}") for place in range(8)]))
    router = PartitionRouter(spec, pmap)

    def owners(part: pa.RecordBatch) -> pl.Series:
        return pl.Series("owner", pmap.owner_index[pmap.lookup(spec.evaluate(part), part.num_rows), 0])

    def partition_by(part: pa.RecordBatch, frame: pl.DataFrame) -> list[pl.DataFrame]:
        return frame.with_columns(owners(part)).partition_by("owner")

    def partition_by_to_arrow(part: pa.RecordBatch) -> list[pa.Table]:
        return [piece.to_arrow() for piece in partition_by(part, pl.DataFrame(pl.from_arrow(part)))]

    frame = pl.DataFrame(pl.from_arrow(batch))
    with ThreadPoolExecutor(2) as pool:
        threaded = PartitionRouter(spec, pmap, pool.map)
        found = interleaved(
            {
                "memcpy": lambda: copy_of(batch),
                "route": lambda: router.route(batch),
                "route, 2 threads": lambda: threaded.route(batch),
                "polars partition_by (frames)": lambda: partition_by(batch, frame),
                "polars partition_by (Arrow to Arrow)": lambda: partition_by_to_arrow(batch),
            },
            9,
        )
    show(f"route {rows:,} lineitem rows to 8 executors", found, rows, "route")
    times = found["route"] / found["memcpy"]
    claim("at most 2.5x a memcpy", times <= 2.5, f"{times:.2f}x")
    claim("extra memory at most 1.2x the batch", (extra := memory_of(router, batch)) <= 1.2, f"{extra:.2f}x")
    for ours in ("route", "route, 2 threads"):
        times = found["polars partition_by (Arrow to Arrow)"] / found[ours]
        claim(f"{ours}: at least 2x partition_by (Arrow to Arrow)", times >= 2, f"{times:.2f}x")

    small = batch.slice(rows // 2, 1_000)
    frame = pl.DataFrame(pl.from_arrow(small))
    found = interleaved(
        {
            "route x100": lambda: [router.route(small) for _ in range(100)],
            "partition_by x100 (frames)": lambda: [partition_by(small, frame) for _ in range(100)],
            "partition_by x100 (Arrow to Arrow)": lambda: [partition_by_to_arrow(small) for _ in range(100)],
        },
        9,
    )
    show("route 1,000 lineitem rows to 8 executors", found, 100_000, "route x100")
    times = found["partition_by x100 (Arrow to Arrow)"] / found["route x100"]
    claim("at least 3x partition_by (Arrow to Arrow)", times >= 3, f"{times:.2f}x")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=1_000_000)
    parser.add_argument("--executors", type=int, default=1_000)
    parser.add_argument("--rows", type=int, default=1_000_000)
    options = parser.parse_args()
    assignment(options.partitions, options.executors)
    selection(options.partitions, options.executors)
    routing(options.rows)


if __name__ == "__main__":
    main()
