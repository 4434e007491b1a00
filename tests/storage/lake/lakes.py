"""What the tests of lakes share: rows of a snapshot, random conditions and what they mean, deletes of Iceberg."""

from __future__ import annotations

import itertools
import math
import struct
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap

from ballista_py.scans.task import ScanCondition, ScanTask
from ballista_py.storage.lake.opening import LakeOpener
from ballista_py.storage.lake.reading import task_rows

MAGIC = 1681511377
_NUMBERS = itertools.count(1)


def task_of(snapshot, files, columns=None, conditions=()):
    schema = snapshot.schema
    schema = schema if columns is None else pa.schema([schema.field(name) for name in columns])
    return ScanTask(
        fragment_id="f", files=tuple(files), columns=tuple(schema.names), schema=schema, filter=tuple(conditions)
    )


def rows_of(snapshot, conditions=(), columns=None, opener=None) -> pa.Table:
    """What a statement reads: planned, and read in one task."""
    task = task_of(snapshot, snapshot.files(conditions, columns), columns, conditions)
    found = list(task_rows(ScanTask.from_bytes(task.to_bytes()), opener or LakeOpener()))  # as an executor gets it
    assert all(batch.schema.equals(task.schema, check_metadata=True) for batch in found)
    return pa.Table.from_batches(found, schema=task.schema)


def count_of(snapshot) -> int:
    """The rows, counted without reading a column."""
    return sum(batch.num_rows for batch in task_rows(task_of(snapshot, snapshot.files(), []), LakeOpener()))


def plain(value: Any) -> Any:
    """A value that equals the same value: NaN, lists and structs, too."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else repr(value)
    if isinstance(value, dict):
        return tuple((name, plain(one)) for name, one in sorted(value.items()))
    if isinstance(value, list | tuple):
        return tuple(plain(one) for one in value)
    return value


def bag(rows) -> Counter:
    """Rows without an order."""
    rows = rows.to_pylist() if isinstance(rows, pa.Table) else rows
    return Counter(plain(row) for row in rows)


def holds(condition: ScanCondition, row: dict[str, Any]) -> bool:
    """What a condition says of a row, by one value after the other."""
    value = row[condition.column]
    if condition.operator in ("is_null", "is_not_null"):
        return (value is None) == (condition.operator == "is_null")
    if value is None:
        return False
    key = _ordered(value)
    given = [_ordered(one.as_py()) for one in condition.values]
    if condition.operator == "in":
        return key in given
    other = given[0]
    return {
        "=": key == other, "!=": key != other, "<": key < other, "<=": key <= other, ">": key > other,
        ">=": key >= other,
    }[condition.operator]  # fmt: skip


def _ordered(value: Any) -> Any:
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value + 0.0)
    return value


def some_conditions(chance, schema: pa.Schema, rows: list[dict[str, Any]]) -> list[ScanCondition]:
    """Conditions on flat columns, with values of the rows, or beside them."""
    found = []
    flat = [one for one in schema if not pa.types.is_nested(one.type) and not pa.types.is_binary(one.type)]
    for _ in range(chance.choice([0, 1, 1, 1, 2])):
        column = chance.choice(flat)
        operator = chance.choice(["=", "!=", "<", "<=", ">", ">=", "in", "is_null", "is_not_null"])
        known = [row[column.name] for row in rows if row[column.name] is not None]
        if not known or operator.startswith("is_"):
            operator = "is_null" if operator != "is_not_null" else operator
            found.append(ScanCondition(column=column.name, operator=operator))
            continue
        count = chance.randrange(0, 4) if operator == "in" else 1
        values = tuple(pa.scalar(chance.choice(known), column.type) for _ in range(count))
        found.append(ScanCondition(column=column.name, operator=operator, values=values))
    return found


def check_agrees(chance, snapshot, rows: list[dict[str, Any]], times: int = 6) -> None:
    """That whatever is asked of a snapshot gives what its rows say."""
    assert bag(rows_of(snapshot)) == bag(rows)
    assert count_of(snapshot) == len(rows)
    for _ in range(times):
        conditions = some_conditions(chance, snapshot.schema, rows)
        asked = {one.column for one in conditions}
        columns = [one for one in snapshot.schema.names if one in asked or chance.random() < 0.5]
        chance.shuffle(columns)
        wanted = [row for row in rows if all(holds(one, row) for one in conditions)]
        found = rows_of(snapshot, conditions, columns).to_pylist()
        kept = [row for row in found if all(holds(one, row) for one in conditions)]
        assert bag(kept) == bag([{name: row[name] for name in columns} for row in wanted]), conditions


def vector(positions) -> bytes:
    """Positions as Delta and Iceberg keep them, without what is around."""
    by_key: dict[int, list[int]] = {}
    for position in sorted(positions):
        by_key.setdefault(position >> 32, []).append(position & 0xFFFFFFFF)
    found = struct.pack("<IQ", MAGIC, len(by_key))
    for key, low in by_key.items():
        bitmap = BitMap(low)
        if key % 2 == len(low) % 2:
            bitmap.run_optimize()
        found += struct.pack("<I", key) + bitmap.serialize()
    return found


def framed(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


class IcebergDeletes:
    """Writes deletes that pyiceberg cannot write, and commits them to a table."""

    def __init__(self, table) -> None:
        self.table = table
        self.folder = Path(table.metadata.location.removeprefix("file://"))

    def commit(self, *files: dict[str, Any]) -> None:
        """One snapshot with these delete files: their fields by the names of the specification."""
        from pyiceberg import manifest as forms
        from pyiceberg.table.snapshots import Operation, Snapshot, Summary
        from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate

        metadata, io = self.table.metadata, self.table.io
        number, sequence = next(_NUMBERS) + 10**15, metadata.last_sequence_number + 1
        made = []
        for one in files:
            spec = metadata.specs()[one.pop("spec_id", metadata.default_spec_id)]
            place = f"{metadata.location}/metadata/deletes-{next(_NUMBERS)}.avro"
            writer = _writer(forms, spec, metadata.schema(), io.new_output(place), number)
            with writer:
                writer.add_entry(_entry(forms, number, one))
            made.append(writer.to_manifest_file())
        place = f"{metadata.location}/metadata/list-{number}.avro"
        parent = metadata.current_snapshot_id
        old = metadata.current_snapshot().manifests(io)
        with forms.write_manifest_list(2, io.new_output(place), number, parent, sequence, "null") as writer:
            writer.add_manifests([*made, *old])
        snapshot = Snapshot(
            snapshot_id=number, parent_snapshot_id=parent, sequence_number=sequence, manifest_list=place,
            timestamp_ms=metadata.last_updated_ms + 1, schema_id=metadata.current_schema_id,
            summary=Summary(Operation.DELETE),
        )  # fmt: skip
        updates = (
            AddSnapshotUpdate(snapshot=snapshot),
            SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=number),
        )
        self.table.catalog.commit_table(self.table, (), updates)
        self.table.refresh()

    def positions(self, places: list[tuple[str, int]], partition=(), **more: Any) -> dict[str, Any]:
        """A file of positions."""
        fields = [
            pa.field("file_path", pa.string(), False, {"PARQUET:field_id": "2147483546"}),
            pa.field("pos", pa.int64(), False, {"PARQUET:field_id": "2147483545"}),
        ]
        columns = [[path for path, _ in sorted(places)], [place for _, place in sorted(places)]]
        rows = pa.table([pa.array(c, f.type) for c, f in zip(columns, fields, strict=True)], pa.schema(fields))
        return self._file(rows, content=1, partition=partition, **more)

    def values(self, rows: pa.Table, numbers: list[int], partition=(), **more: Any) -> dict[str, Any]:
        """A file of values, by columns with these ids."""
        fields = [
            field.with_metadata({"PARQUET:field_id": str(number)})
            for field, number in zip(rows.schema, numbers, strict=True)
        ]
        rows = pa.table(rows.columns, pa.schema(fields))
        return self._file(rows, content=2, partition=partition, equality_ids=numbers, **more)

    def vector(self, path: str, positions, partition=(), **more: Any) -> dict[str, Any]:
        """A deletion vector in a Puffin file, which here has bytes before and after the blob alone."""
        body = vector(positions)
        blob = framed(body)
        place = self.folder / "data" / f"vector-{next(_NUMBERS)}.puffin"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b"PFA1" + blob + b"{}PFA1")
        return {
            "content": 1, "file_path": f"file://{place}", "file_format": "PUFFIN", "partition": partition,
            "record_count": len(set(positions)), "file_size_in_bytes": place.stat().st_size,
            "referenced_data_file": path, "content_offset": 4, "content_size_in_bytes": len(blob), **more,
        }  # fmt: skip

    def _file(self, rows: pa.Table, **more: Any) -> dict[str, Any]:
        place = self.folder / "data" / f"deletes-{next(_NUMBERS)}.parquet"
        place.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, place)
        return {
            "file_path": f"file://{place}", "file_format": "PARQUET", "record_count": len(rows),
            "file_size_in_bytes": place.stat().st_size, **more,
        }  # fmt: skip


def _writer(forms, spec, schema, output, number):
    class Deletes(forms.ManifestWriterV2):
        def content(self):
            return forms.ManifestContent.DELETES

        def new_writer(self):
            columns = self._with_partition(3)
            meta = {**self._meta, "content": "deletes", "format-version": "3"}
            return forms.AvroOutputFile(self._output_file, columns, "manifest_entry", columns, meta)

    return Deletes(spec, schema, output, number, "null")


def _entry(forms, number, one):
    from pyiceberg.typedef import Record

    given = {
        **one, "content": forms.DataFileContent(one["content"]), "file_format": forms.FileFormat(one["file_format"]),
        "partition": Record(*one["partition"]),
    }  # fmt: skip
    return forms.ManifestEntry.from_args(
        3, status=forms.ManifestEntryStatus.ADDED, snapshot_id=number, sequence_number=None,
        file_sequence_number=None, data_file=forms.DataFile.from_args(3, **given),
    )  # fmt: skip
