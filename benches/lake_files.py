"""Lake tables in place: planning a table of 100,000 files beside pyiceberg, reading lineitem beside pyarrow and DuckDB.

    python benches/lake_files.py                  # 100,000 files; TPC-H at scale factor 1
    python benches/lake_files.py --files 10000 --scale 0.1

Planned files are named by manifests and are not there. Rows are read as Arrow batches by all three, from the same files
on this machine; each reader runs in a process of its own, whose peak memory is told.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import pyarrow as pa

from _measure import claim, show
from ballista_py.scans.task import ScanCondition, ScanTask
from ballista_py.storage.lake.opening import LakeOpener
from ballista_py.storage.lake.reading import task_rows
from ballista_py.storage.lake.table import open_table

READERS = ("ballista", "pyarrow", "duckdb")
COLUMNS = {"all": None, "four": ["l_orderkey", "l_quantity", "l_shipdate", "l_comment"]}
PLANNED = 1.2


def table_of(folder: Path, files: int):
    """An Iceberg table whose manifests name so many files."""
    from pyiceberg import manifest as forms
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.conversions import to_bytes
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table.snapshots import Operation, Snapshot, Summary
    from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate
    from pyiceberg.transforms import IdentityTransform
    from pyiceberg.typedef import Record
    from pyiceberg.types import LongType, NestedField, StringType

    catalog = SqlCatalog("c", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}")
    catalog.create_namespace("ns")
    columns = Schema(
        NestedField(1, "id", LongType()), NestedField(2, "day", LongType()), NestedField(3, "s", StringType())
    )
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "day"))
    table = catalog.create_table("ns.t", columns, partition_spec=spec)
    place, made = table.metadata.location, []
    for first in range(0, files, 10_000):
        output = table.io.new_output(f"{place}/metadata/m{first}.avro")
        with forms.write_manifest(2, table.spec(), table.schema(), output, 1, "zstandard") as writer:
            for number in range(first, min(files, first + 10_000)):
                low, high = to_bytes(LongType(), number * 100), to_bytes(LongType(), number * 100 + 99)
                file = forms.DataFile.from_args(
                    content=forms.DataFileContent.DATA,
                    file_path=f"{place}/data/day={number % 365}/{number:08}.parquet",
                    file_format=forms.FileFormat.PARQUET, partition=Record(number % 365), record_count=100,
                    file_size_in_bytes=100_000, value_counts={1: 100, 2: 100, 3: 100},
                    null_value_counts={1: 0, 2: 0, 3: 0}, lower_bounds={1: low, 3: b"a"},
                    upper_bounds={1: high, 3: b"z"},
                )  # fmt: skip
                writer.add_entry(
                    forms.ManifestEntry.from_args(
                        status=forms.ManifestEntryStatus.ADDED, snapshot_id=1, sequence_number=1, data_file=file
                    )
                )
        made.append(writer.to_manifest_file())
    listed = f"{place}/metadata/list.avro"
    with forms.write_manifest_list(2, table.io.new_output(listed), 1, None, 1, "null") as writer:
        writer.add_manifests(made)
    snapshot = Snapshot(
        snapshot_id=1, sequence_number=1, manifest_list=listed, timestamp_ms=table.metadata.last_updated_ms + 1,
        schema_id=0, summary=Summary(Operation.APPEND),
    )  # fmt: skip
    updates = (
        AddSnapshotUpdate(snapshot=snapshot), SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=1)
    )  # fmt: skip
    catalog.commit_table(table, (), updates)
    return catalog.load_table("ns.t")


def planned(scan) -> list:
    return list(scan.plan_files())


def processor_times(candidates: dict, rounds: int = 3) -> dict[str, float]:
    """Seconds of processors, in the median: planning does little else, and others use them, too."""
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, candidate in candidates.items():
            gc.collect()
            start = time.process_time()
            candidate()
            times[name].append(time.process_time() - start)
    return {name: statistics.median(found) for name, found in times.items()}


def planning(files: int) -> None:
    """All files, a range of ids that a thousandth of them has, and one day of 365."""
    with tempfile.TemporaryDirectory() as made:
        table = table_of(Path(made), files)
        snapshot = open_table({"format": "iceberg", "path": table.metadata.location}).snapshot()
        low = files * 50

        def conditions(*found: tuple[str, str, int]) -> list[ScanCondition]:
            return [ScanCondition(column=c, operator=o, values=(pa.scalar(v),)) for c, o, v in found]

        cases = {
            "all files": ("true", conditions()),
            "ids": (
                f"id >= {low} and id < {low + files // 10}",
                conditions(("id", ">=", low), ("id", "<", low + files // 10)),
            ),
            "one day": ("day = 7", conditions(("day", "=", 7))),
        }
        for name, (text, ours) in cases.items():
            scan = table.scan(row_filter=text) if text != "true" else table.scan()
            count = len(list(scan.plan_files()))
            assert count == len(snapshot.files(ours))
            medians = processor_times(
                {"pyiceberg": partial(planned, scan), "ballista": partial(snapshot.files, ours)}
            )
            show(f"planning {files:,} files, {name}: {count:,} are read", medians, files, "pyiceberg")
            ratio = medians["ballista"] / medians["pyiceberg"]
            claim(f"at most {PLANNED}x pyiceberg's plan_files", ratio <= PLANNED, f"{ratio:.2f}x")


def read(reader: str, folder: str, columns: list[str] | None) -> int:
    """All rows as Arrow batches, of which only the number is kept."""
    if reader == "pyarrow":
        import pyarrow.dataset as ds

        return sum(batch.num_rows for batch in ds.dataset(folder).to_batches(columns=columns, use_threads=True))
    if reader == "duckdb":
        import duckdb

        chosen = "*" if columns is None else ", ".join(columns)
        found = duckdb.sql(f"select {chosen} from '{folder}/*.parquet'").to_arrow_reader(30_720)
        return sum(batch.num_rows for batch in found)
    snapshot = open_table({"format": "parquet", "path": folder}).snapshot()
    schema = snapshot.schema if columns is None else pa.schema([snapshot.schema.field(name) for name in columns])
    task = ScanTask(fragment_id="b", files=snapshot.files(), columns=tuple(schema.names), schema=schema)
    return sum(batch.num_rows for batch in task_rows(task, LakeOpener()))


def reading(scale: float) -> None:
    """Lineitem in four files: all columns, and four of them."""
    with tempfile.TemporaryDirectory() as made:
        maker = Path(sys.executable).parent / "tpchgen-cli"
        subprocess.run(
            [maker, "parquet", "-s", str(scale), "--tables=lineitem", "--parts=4", f"--output-dir={made}"],
            check=True,
        )
        for name in COLUMNS:
            print(f"\nreading lineitem at scale {scale:g}, {name} columns")
            for reader in READERS:
                asked = [
                    sys.executable,
                    __file__,
                    "--read",
                    reader,
                    "--folder",
                    f"{made}/lineitem",
                    "--columns",
                    name,
                ]
                print(
                    f"  {reader:<12}{subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()}"
                )


def peak_mb() -> float:
    """The peak memory of this process alone, in megabytes; what is told of a child begins with its parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--files", type=int, default=100_000)
    options.add_argument("--scale", type=float, default=1.0)
    options.add_argument("--read", choices=READERS)
    options.add_argument("--folder", default="")
    options.add_argument("--columns", default="all")
    given = options.parse_args()
    if given.read is None:
        planning(given.files)
        reading(given.scale)
        return
    times, rows, before = [], 0, peak_mb()
    for _ in range(3):
        start = time.perf_counter()
        rows = read(given.read, given.folder, COLUMNS[given.columns])
        times.append(time.perf_counter() - start)
    print(f"{rows:,} rows in {sorted(times)[1]:.2f} s; peak {peak_mb():.0f} MB ({before:.0f} at its start)")


if __name__ == "__main__":
    main()
