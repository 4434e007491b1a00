"""Iceberg tables where they lie: whatever became of them, they are read as their rows are."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.storage.lake.lakes import IcebergDeletes, bag, check_agrees, rows_of

from ballista_py.errors import ConfigError, DocumentUnreadable, SchemaMismatch, SourceLost, SourceUnfit
from ballista_py.scans.task import ScanCondition
from ballista_py.storage.lake.table import open_table

pytest.importorskip("pyiceberg.catalog")
from pyiceberg.catalog import load_catalog
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
)

NAN = float("nan")


class Followed:
    """A table, and what its rows are: each with where it lies, and what its file is."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.chance = chance
        self.declared = {
            "name": "c",
            "type": "sql",
            "uri": f"sqlite:///{folder}/c.db",
            "warehouse": f"file://{folder}",
        }
        properties = {name: value for name, value in self.declared.items() if name != "name"}
        self.catalog = load_catalog("c", **properties)
        self.catalog.create_namespace("ns")
        start = Schema(
            NestedField(1, "id", LongType()),
            NestedField(2, "k", StringType()),
            NestedField(3, "n", IntegerType()),
            NestedField(4, "f", FloatType()),
            NestedField(
                5, "st", StructType(NestedField(7, "a", IntegerType()), NestedField(8, "b", StringType()))
            ),
            NestedField(6, "l", ListType(9, FloatType(), element_required=False)),
        )
        small = {"write.parquet.row-group-limit": "7", "write.metadata.metrics.default": "truncate(4)"}
        self.table = self.catalog.create_table("ns.t", start, properties=small)
        self.deletes = IcebergDeletes(self.table)
        self.rows: dict[int, dict] = {}  # values by the ids of fields
        self.places: dict[int, tuple] = {}  # path, position, spec, partition, sequence
        self.next = 0
        self.columns = {1: "id", 2: "k", 3: "n", 4: "f", 5: "st", 6: "l"}
        self.inner = {7: "a", 8: "b"}

    def scan(self) -> dict:
        return {"format": "iceberg", "catalog": self.declared, "table": "ns.t"}

    def now(self) -> list[dict]:
        return [self._shown(row) for row in self.rows.values()]

    def _shown(self, row: dict) -> dict:
        found = {name: row.get(number) for number, name in self.columns.items()}
        struct = row.get(5)
        if 5 in self.columns:
            known = struct and {name: struct.get(n) for n, name in self.inner.items()}
            found[self.columns[5]] = known
        return found

    def append(self) -> None:
        chance, new = self.chance, []
        for _ in range(chance.choice([1, 5, 40])):
            self.next += 1
            struct = {7: chance.choice([None, 1, 2]), 8: chance.choice([None, "é", "zz"])}
            row = {
                1: self.next, 2: chance.choice([None, "a", "b", "longer than four"]),
                3: chance.choice([None, -3, 7, 2**31 - 1]),
                4: chance.choice([None, NAN, 0.0, -0.0, 1.5, float("inf")]), 5: chance.choice([None, struct]),
                6: chance.choice([None, [], [1.5, None]]),
            }  # fmt: skip
            row.update({number: f"new{chance.randrange(3)}" for number in self.columns if number > 9})
            new.append({number: row[number] for number in self.columns})
        schema = self.table.schema().as_arrow()
        rows = pa.Table.from_pylist([self._shown(row) for row in new], schema=schema)
        before = set(self.files())
        self.table.append(rows)
        by_id = {row[1]: row for row in new}
        for path, (entry, sequence) in self.files().items():
            if path not in before:
                held = pq.read_table(path.removeprefix("file://")).column(self.columns[1]).to_pylist()
                for position, number in enumerate(held):
                    self.rows[number] = by_id[number]
                    self.places[number] = path, position, entry.spec_id, tuple(entry.partition), sequence

    def files(self) -> dict:
        snapshot = self.table.current_snapshot()
        if snapshot is None:
            return {}
        found = {}
        for manifest in snapshot.manifests(self.table.io):
            if int(manifest.content) == 0:
                for entry in manifest.fetch_manifest_entry(self.table.io):
                    found[entry.data_file.file_path] = entry.data_file, entry.sequence_number
        return found

    def alter(self) -> None:
        chance = self.chance
        with self.table.update_schema(allow_incompatible_changes=True) as change:
            what = chance.choice(["rename", "add", "drop", "promote", "inner"])
            if what == "rename":
                number = chance.choice([3, 4, 5, 6])
                if number in self.columns:
                    name = f"{self.columns[number]}x"
                    change.rename_column(self.columns[number], name)
                    self.columns[number] = name
            elif what == "promote" and 3 in self.columns:
                change.update_column(self.columns[3], LongType())
                change.update_column(self.columns[4], DoubleType())
            elif what == "inner" and 5 in self.columns and 7 in self.inner:
                change.rename_column(f"{self.columns[5]}.{self.inner[7]}", f"{self.inner[7]}y")
                self.inner[7] += "y"
            elif what == "add":
                change.add_column(f"new{len(self.columns)}{self.next}", StringType())
            elif what == "drop" and 6 in self.columns:
                change.delete_column(self.columns.pop(6))
        for own in self.table.schema().fields:
            self.columns.setdefault(own.field_id, own.name)

    def respec(self) -> None:
        with self.table.update_spec() as change:
            held = [one.name for one in self.table.spec().fields]
            if held:
                change.remove_field(held[0])
            else:
                column = self.chance.choice([2, 3])  # other transforms pyiceberg writes with a library of Rust
                change.add_field(self.columns[column], IdentityTransform(), f"p_{len(self.table.specs())}")

    def delete(self) -> None:
        if not self.rows:
            return
        chance = self.chance
        number = chance.choice(list(self.rows))
        path, _, spec, partition, _ = self.places[number]
        what = chance.choice(["positions", "vector", "values", "everywhere"])
        sibling = [n for n, place in self.places.items() if place[0] == path and n in self.rows]
        gone = {n for n in sibling if n == number or chance.random() < 0.3}
        at = sorted(self.places[n][1] for n in gone)
        place = {"partition": partition, "spec_id": spec}
        if what == "vector" and not any(self.places[n][0] in self.vectors for n in gone):
            self.vectors.add(path)
            lost = [n[1] for m, n in self.places.items() if n[0] == path and m not in self.rows]
            self.deletes.commit(self.deletes.vector(path, at + lost, **place))
        elif what in ("positions", "vector") and path not in self.vectors:
            self.deletes.commit(self.deletes.positions([(path, n) for n in at], **place))
        else:
            row = self.rows[number]
            fields = chance.choice([[1], [2], [2, 4]])
            kinds = {1: pa.int64(), 2: pa.string(), 4: pa.float32()}
            values = pa.table({f"c{n}": pa.array([row.get(n)], kinds[n]) for n in fields})
            where = place if what == "values" else {"spec_id": 0}
            self.deletes.commit(self.deletes.values(values, fields, **where))
            same = str([row.get(n) for n in fields])
            gone = {
                n for n, one in self.rows.items()
                if str([one.get(m) for m in fields]) == same
                and (what != "values" or spec == 0 or self.places[n][2:4] == (spec, partition))
            }  # fmt: skip
        for n in gone:
            del self.rows[n]

    vectors: set[str]


@pytest.mark.parametrize("seed", range(12))
def test_random_histories_of_a_table_are_read_as_they_went(tmp_path, seed):
    chance = random.Random(seed)
    followed = Followed(tmp_path, chance)
    followed.vectors = set()
    for step in range(14):
        what = (
            followed.append
            if step in (0, 3, 7)
            else chance.choice(
                [followed.append, followed.alter, followed.respec, followed.delete, followed.delete]
            )
        )
        what()
    snapshot = open_table(followed.scan()).snapshot()
    check_agrees(chance, snapshot, followed.now())
    path = followed.table.metadata.location.removeprefix("file://")
    check_agrees(chance, open_table({"format": "iceberg", "path": path}).snapshot(), followed.now(), 1)


def test_without_deletes_pyiceberg_reads_the_same(tmp_path):
    chance = random.Random(5)
    followed = Followed(tmp_path, chance)
    for what in (
        followed.append,
        followed.respec,
        followed.append,
        followed.alter,
        followed.append,
        followed.respec,
    ):
        what()
    found = rows_of(open_table(followed.scan()).snapshot())
    assert bag(found) == bag(followed.table.scan().to_arrow())


def simple(folder: Path, rows: pa.Table, **properties: str):
    declared = {"name": "c", "type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": f"file://{folder}"}
    catalog = load_catalog("c", **{name: value for name, value in declared.items() if name != "name"})
    catalog.create_namespace("ns")
    table = catalog.create_table("ns.t", rows.schema, properties=properties)
    table.append(rows)
    return table, {"format": "iceberg", "catalog": declared, "table": "ns.t"}


def ints(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64())})


def test_a_snapshot_stays_what_it_was_and_versions_branches_and_times_are_found(tmp_path):
    table, scan = simple(tmp_path, ints(1, 2))
    lake = open_table(scan)
    first = lake.snapshot()
    early = table.current_snapshot().timestamp_ms
    table.manage_snapshots().create_tag(table.current_snapshot().snapshot_id, "old").commit()
    with table.update_schema() as change:
        change.rename_column("id", "number")
        change.add_column("more", StringType())
    table.append(pa.table({"number": pa.array([3], pa.int64()), "more": ["x"]}))
    expected = [{"id": 1}, {"id": 2}]
    assert rows_of(first).to_pylist() == expected
    now = lake.snapshot()
    assert now.schema.names == ["number", "more"]
    assert (now.rows, len(rows_of(now))) == (3, 3)
    assert now.id != first.id
    asked = [ScanCondition(column="id", operator=">", values=(pa.scalar(1),))]
    for then in (
        lake.snapshot(first.id),
        lake.snapshot(int(first.id)),
        lake.snapshot("old"),
        lake.snapshot(None, early),
    ):
        assert then.id == first.id
        assert rows_of(then).to_pylist() == expected
        assert {"id": 2} in rows_of(then, asked).to_pylist()
    for version, time in (("12", None), ("nobranch", None), (None, 5)):
        with pytest.raises(SourceLost):
            lake.snapshot(version, time)


def test_files_are_pruned_by_partitions_and_bounds_and_deletes_of_others_are_not_there(tmp_path):
    table, scan = simple(tmp_path, ints(*range(10)))
    for start in range(10, 100, 10):
        table.append(ints(*range(start, start + 10)))
    paths = sorted(one.file.file_path for one in table.scan().plan_files())
    deletes = IcebergDeletes(table)
    deletes.commit(deletes.positions([(paths[0], 0)], referenced_data_file=paths[0]))
    snapshot = open_table(scan).snapshot()
    asked = ScanCondition(column="id", operator=">=", values=(pa.scalar(85),))
    assert len(snapshot.files()) == 10
    assert len(snapshot.files([asked])) == 2
    assert sum(len(one.deletes) for one in snapshot.files()) == 1


def test_an_initial_value_is_in_files_that_lack_the_column(tmp_path):
    table, _ = simple(tmp_path, ints(1, 2))
    place, content = newest(table)
    content["format-version"] = 3
    content["next-row-id"] = 0
    fields = content["schemas"][0]["fields"]
    fields.append({"id": 7, "name": "d", "type": "date", "required": True, "initial-default": "2024-02-29"})
    fields.append({"id": 8, "name": "n", "type": "int", "required": False, "initial-default": 5})
    fields.append({"id": 9, "name": "t", "type": "timestamptz", "required": False})
    other = rewritten(place, content)
    found = rows_of(open_table({"format": "iceberg", "path": str(other)}).snapshot()).to_pylist()
    assert [(row["d"].isoformat(), row["n"], row["t"]) for row in found] == [("2024-02-29", 5, None)] * 2


def newest(table) -> tuple[Path, dict]:
    place = Path(table.metadata_location.removeprefix("file://"))
    return place, json.loads(place.read_text())


def rewritten(place: Path, content: dict) -> Path:
    other = place.with_name("00099-x.metadata.json")
    other.write_text(json.dumps(content))
    return other


def test_files_without_ids_are_read_by_the_names_that_the_table_has_for_them_and_else_refused(tmp_path):
    table, scan = simple(tmp_path, ints(1))
    place = tmp_path / "ns" / "t" / "data" / "bare.parquet"
    pq.write_table(ints(7), place)
    table.add_files([f"file://{place}"])
    with table.update_schema() as change:
        change.rename_column("id", "number")
    table.append(pa.table({"number": pa.array([9], pa.int64())}))
    found = rows_of(open_table(scan).snapshot())
    assert sorted(found.column("number").to_pylist()) == [1, 7, 9]
    with table.transaction() as change:
        change.remove_properties("schema.name-mapping.default")
    with pytest.raises(SchemaMismatch, match="name-mapping"):
        rows_of(open_table(scan).snapshot())


def test_what_is_not_read_is_refused_by_name(tmp_path):
    table, scan = simple(tmp_path, ints(1, 2))
    (path,) = [one.file.file_path for one in table.scan().plan_files()]
    deletes = IcebergDeletes(table)
    deletes.commit({**deletes.positions([(path, 0)]), "file_format": "AVRO"})
    with pytest.raises(SourceUnfit, match="AVRO"):
        open_table(scan).snapshot().files()
    place, _ = newest(table)
    changes = {
        "encrypted": lambda c: c["properties"].update({"encryption.key-id": "k"}),
        "format version|cannot be read": lambda c: c.update({"format-version": 9}),
        "variant|cannot be read": lambda c: c["schemas"][0]["fields"].append(
            {"id": 9, "name": "v", "type": "variant", "required": False}
        ),
        "does not lie below": lambda c: c["snapshots"][-1].update({"manifest-list": "file:///etc/passwd"}),
    }
    for said, change in changes.items():
        _, fresh = newest(table)
        change(fresh)
        with pytest.raises(SourceUnfit, match=said):
            open_table({"format": "iceberg", "path": str(rewritten(place, fresh))}).snapshot()
    (place.with_name("00098-y.metadata.json")).write_text("[" * 100_000)
    with pytest.raises(SourceUnfit, match=r"cannot be read|nested"):
        open_table({"format": "iceberg", "path": str(place.with_name("00098-y.metadata.json"))}).snapshot()
    with pytest.raises(ConfigError, match="'pathh' is no key"):
        open_table({"format": "iceberg", "pathh": "/x"})


def test_metadata_does_not_say_how_its_files_are_opened(tmp_path):
    table, _ = simple(tmp_path, ints(1))
    place, content = newest(table)
    content["properties"].update({"py-io-impl": "this.is.Nothing", "s3.endpoint": "http://elsewhere"})
    lake = open_table({"format": "iceberg", "path": str(rewritten(place, content))})
    assert rows_of(lake.snapshot()).to_pylist() == [{"id": 1}]
    assert lake.credentials() is None


@pytest.mark.parametrize(
    "place", ["file:///etc/passwd", "{folder}/../../x.parquet", "s3://other/x.parquet", "http://h/x"]
)
def test_a_manifest_names_no_file_elsewhere(tmp_path, place):
    table, scan = simple(tmp_path, ints(1))
    (path,) = [one.file.file_path for one in table.scan().plan_files()]
    deletes = IcebergDeletes(table)
    elsewhere = place.format(folder=table.metadata.location)
    deletes.commit({**deletes.positions([(path, 0)]), "file_path": elsewhere})
    with pytest.raises(SourceUnfit, match="does not lie below"):
        open_table(scan).snapshot().files()


def test_a_vector_that_names_other_rows_than_it_says_or_is_spoilt_is_refused(tmp_path):
    table, scan = simple(tmp_path, ints(*range(5)))
    (path,) = [one.file.file_path for one in table.scan().plan_files()]
    deletes = IcebergDeletes(table)
    deletes.commit(deletes.vector(path, [1, 3]))
    snapshot = open_table(scan).snapshot()
    assert rows_of(snapshot).column(0).to_pylist() == [0, 2, 4]
    (vector,) = snapshot.files()[0].deletes
    place = Path(vector.path.removeprefix("file://"))
    data = bytearray(place.read_bytes())
    for at in range(4, len(data) - 6):
        spoilt = bytearray(data)
        spoilt[at] ^= 0x41
        place.write_bytes(spoilt)
        with pytest.raises(DocumentUnreadable):
            rows_of(snapshot)


def test_columns_that_are_compared_need_not_be_asked_for(tmp_path):
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "f": pa.array([NAN, None, 1.0], pa.float64())})
    table, scan = simple(tmp_path, rows)
    deletes = IcebergDeletes(table)
    deletes.commit(deletes.values(pa.table({"f": pa.array([None, NAN], pa.float64())}), [2]))
    with table.update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("f")
    table.append(ints(9))
    assert rows_of(open_table(scan).snapshot()).column("id").to_pylist() in ([9, 3], [3, 9])
