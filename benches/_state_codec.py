"""A partition map as the document it is, beside one JSON row per partition with the same libraries."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from attrs import frozen
from cattrs.preconf.orjson import make_converter

from _measure import claim, interleaved, peak_mb, show
from ballista_py.partitions.assignment.assigner import Executor, PartitionAssigner
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.state.documents.codec import DocumentCodec, Header
from ballista_py.state.documents.documents import PartitionMapDocument

EXECUTORS = 1_000
MAX_BYTES = 12_000_000


@frozen
class Row:
    """One partition, as a person would write it down."""

    value: int
    owner: str
    instance: str
    epoch: int
    weight: float


@frozen
class Rows:
    """The naive document."""

    partitions: list[Row]


def placed_map(partitions: int) -> PartitionMap:
    """A table of that many buckets on 1,000 executors, with weights that differ."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    spec = PartitionSpec.parse([f"bucket({partitions}, id)"], schema)
    weights = np.random.default_rng(1).integers(1, 1_000_000, partitions).astype(float)
    pmap = PartitionMap.build("events", spec, spec.static_values() or (), weights=weights)
    return pmap.apply(PartitionAssigner(max_partitions_per_executor=2 * partitions).assign(pmap, executors()))


def executors() -> list[Executor]:
    """The 1,000 executors."""
    return [Executor(f"executor-{n:04}", instance_id=f"{n:032x}") for n in range(EXECUTORS)]


def run(rounds: int, partitions: int) -> None:
    """Time both and print the ratio, the sizes and the aims."""
    pmap = placed_map(partitions)
    codec = DocumentCodec(PartitionMapDocument)
    header = Header(
        kind=codec.kind,
        schema_version=1,
        revision=2,
        commit_id="c",
        committed_by="bench",
        updated_at_ms=0,
        recent_commits=("c",),
    )
    document = PartitionMapDocument(map=pmap)
    rows = Rows([Row(p, *pmap.owner(p), pmap.epoch(p), pmap.weight(p)) for p in range(partitions)])  # type: ignore[misc]
    converter = make_converter(detailed_validation=False)
    data = codec.encode("map", header, document)
    row_data = converter.dumps(rows)

    def columnar() -> None:
        codec.encode("map", header, codec.decode("map", data).document)

    def naive() -> None:
        converter.dumps(converter.loads(row_data, Rows))

    assert codec.decode("map", data).document.map.with_revision(0) == pmap.with_revision(0)
    medians = interleaved({"partition map document": columnar, "one JSON row per partition": naive}, rounds)
    show(
        f"parse + serialise {partitions:,} partitions on {EXECUTORS:,} executors",
        medians,
        partitions,
        list(medians)[1],
    )
    ours, theirs = medians.values()
    print(f"  bytes: {len(data):,} and {len(row_data):,}; peak memory of this process {peak_mb():,.0f} MB")
    claim(f"under {MAX_BYTES:,} bytes", len(data) < MAX_BYTES, f"{len(data):,}")
    claim("at most 1/10 of the rows' time", ours <= theirs / 10, f"{ours / theirs:.3f}")
