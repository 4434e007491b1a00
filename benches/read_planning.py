"""How long a scheduler plans a read job over very many data files: from the plan of an Agent to its answer, in bytes.

    python benches/read_planning.py                  # 1,000 partitions of 100 files each
    python benches/read_planning.py --partitions 100 --files 1000

The documents lie in memory; tickets are signed, as in a cluster with certificates. One line for parts of 64 MiB, as it
is unless somebody asks for others, one for a part for each file.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
from pathlib import Path

import pyarrow as pa
from attrs import define

from ballista_py.coordinator.cluster_view import ClusterView
from ballista_py.coordinator.queries.service import QueryService
from ballista_py.coordinator.reads.answers import ReadAnswers
from ballista_py.coordinator.reads.service import TableReads
from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import SystemRuntime
from ballista_py.sql.plan import Catalog
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.storage.manifest import DataFile, ManifestDocument
from ballista_py.transport.security.certificates import CertificateFolder
from ballista_py.transport.security.signed_tickets import TicketSigner
from ballista_py.transport.table_read.messages import pb
from ballista_py.transport.table_read.tickets import READ_PURPOSE

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("price", pa.float64()), ("word", pa.string())])
FILE_BYTES, ROUNDS = 1 << 20, 5


@define
class OneTable:
    """The view of a cluster with one table, whose partitions nobody holds."""

    table: TableSpec
    map: PartitionMap

    def refresh(self, words: object = None) -> ClusterView:
        catalog = Catalog(tables={"orders": self.table}, maps={"orders": self.map})
        return ClusterView(catalog=catalog, members=frozenset(), addresses={})

    current = refresh


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--files", type=int, default=100, help="of each partition")
    asked = parser.parse_args()
    runtime, store = SystemRuntime(), MemoryStore()
    spec = PartitionSpec.parse([f"bucket({asked.partitions}, id)"], SCHEMA)
    table = TableSpec(name="orders", schema=SCHEMA, spec=spec)
    pmap = PartitionMap.build("orders", spec, spec.static_values())
    for number in range(asked.partitions):
        path = pmap.path(number)
        files = tuple(
            DataFile(
                path=f"data/orders/{path}/{n:08d}.parquet", rows=9, bytes=FILE_BYTES, checksum=f"crc32:{n:08x}"
            )
            for n in range(asked.files)
        )
        manifest = ManifestDocument(table=table.folder, partition=path, epoch=1, owner="one", files=files)
        ObjectState(store, manifest.own_key, ManifestDocument).create(manifest)
    with tempfile.TemporaryDirectory() as folder:
        certificates = CertificateFolder(Path(folder), runtime)
        certificates.init()
        certificates.add("scheduler-1", "scheduler")
        tls = certificates.tls("scheduler-1")
        signer = TicketSigner(purpose=READ_PURPOSE, cluster_id="bench", runtime=runtime, tls=tls)
        views = OneTable(table, pmap)
        queries = QueryService(views, DuckDBEngine(), lambda *_: None, runtime)
        answers = ReadAnswers(TableReads(queries, store, runtime, signer))
        print(f"{asked.partitions * asked.files:,} files in {asked.partitions:,} partitions, {ROUNDS} rounds")
        for title, target in (("parts of 64 MiB", 0), ("a part for each file", 1)):
            plan = pb.Plan(scan=pb.Scan(table="orders"), hints=pb.Hints(target_bytes=target))
            times = []
            for _ in range(ROUNDS):
                start, cpu = time.perf_counter(), time.process_time()
                slices = answers.plan(plan, "somebody")
                data = slices.SerializeToString()
                times.append((time.perf_counter() - start, time.process_time() - cpu))
                answers.close(pb.Close(read_id=slices.read_id), "somebody")
            seconds, spent = (statistics.median(one[place] for one in times) for place in range(2))
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
            parts = len(slices.slices[0].partitions)
            print(
                f"  {title:<22}{parts:>9,} parts{seconds:>8.2f} s{spent:>8.2f} s of processor"
                f"{len(data) / 1e6:>9.1f} MB{peak:>7,} MB peak"
            )


if __name__ == "__main__":
    main()
