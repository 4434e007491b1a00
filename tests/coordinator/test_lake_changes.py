"""Tables that follow real Delta and Iceberg tables: what they copy, what they read, and what stops them."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.coordinator.followed import FollowedInMemory, following, tick_out

from ballista_py.coordinator.changes import versioned
from ballista_py.coordinator.changes.source import Described, SourceLag
from ballista_py.coordinator.changes.sources import open_changes
from ballista_py.errors import ConfigError, SourceLost, SourceUnavailable, SourceUnfit
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import SystemRuntime
from ballista_py.state.documents.decisions import SourcePosition

deltalake = pytest.importorskip("deltalake")
catalogs = pytest.importorskip("pyiceberg.catalog")

FEED = {"delta.enableChangeDataFeed": "true"}


def rows(first: int, last: int, word: str = "v") -> pa.Table:
    ids = list(range(first, last))
    return pa.table({"id": pa.array(ids, pa.int64()), "v": [f"{word}{n}" for n in ids]})


def here(table: FollowedInMemory) -> dict[int, Any]:
    return {key[0]: row["v"] for key, row in table.rows.items()}


def at_source(place: str) -> dict[int, Any]:
    return {row["id"]: row["v"] for row in deltalake.DeltaTable(place).to_pyarrow_table().to_pylist()}


def delta(place: Path, **more: Any) -> tuple[str, dict[str, Any]]:
    return str(place), {"format": "delta", "path": str(place), "changes": True, **more}


def test_a_delta_table_is_copied_and_followed_through_every_kind_of_change(tmp_path):
    place, source = delta(tmp_path / "t")
    deltalake.write_deltalake(place, rows(0, 5), configuration=FEED)
    table, reader, opened = following(source, ["id"])
    assert reader.tick().did == "copied"
    assert here(table) == at_source(place)
    lake = deltalake.DeltaTable(place)
    lake.update(updates={"v": "'u'"}, predicate="id < 2")
    lake.delete("id = 4")
    deltalake.write_deltalake(place, rows(9, 12), mode="append")
    lake = deltalake.DeltaTable(place)
    merged = rows(3, 10, "m")
    (
        lake.merge(merged, "s.id = t.id", source_alias="s", target_alias="t")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute()
    )
    assert tick_out(reader) > 0
    assert here(table) == at_source(place)
    assert opened.lag(table.at) == SourceLag(bytes=0, rows=0)
    deltalake.DeltaTable(place).optimize.compact()  # changes nothing
    deltalake.write_deltalake(place, rows(0, 2, "all"), mode="overwrite")
    tick_out(reader)
    assert here(table) == {0: "all0", 1: "all1"}
    version = deltalake.DeltaTable(place).version()
    assert table.at is not None
    assert table.at.at == version


@pytest.mark.parametrize("seed", range(4))
def test_random_histories_of_a_delta_table_come_to_what_it_has(tmp_path, seed):
    chance = random.Random(seed)
    place, source = delta(tmp_path / "t")
    deltalake.write_deltalake(place, rows(0, 8), configuration=FEED)
    table, reader, _ = following(source, ["id"], batch_changes=chance.choice([1, 5, 1000]))
    for step in range(12):
        lake = deltalake.DeltaTable(place)
        what = chance.random()
        low = chance.randrange(30)
        if what < 0.3:
            lake.delete(f"id between {low} and {low + 3}")
        elif what < 0.6:
            lake.update(updates={"v": f"'s{step}'"}, predicate=f"id between {low} and {low + 9}")
        else:
            (
                lake.merge(rows(low, low + 4, f"m{step}-"), "s.id = t.id", source_alias="s", target_alias="t")
                .when_matched_update_all()
                .when_not_matched_insert_all()
                .execute()
            )
        if chance.random() < 0.4:
            reader.tick()
    tick_out(reader)
    assert here(table) == at_source(place)


def test_values_of_all_kinds_come_from_a_delta_table_as_they_are(tmp_path):
    place, source = delta(tmp_path / "t")
    long = "x" * 1_000_000
    kinds = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False), ("f", pa.float64()), ("price", pa.decimal128(38, 10)),
            ("day", pa.date32()), ("at", pa.timestamp("us", "UTC")), ("plain", pa.timestamp("us")),
            ("raw", pa.binary()), ("v", pa.string()), ("tags", pa.list_(pa.string())),
            ("point", pa.struct([("x", pa.int32()), ("y", pa.string())])),
        ]
    )  # fmt: skip
    row = {
        "id": 1, "f": math.nan, "price": decimal.Decimal("1234567890123456789012345678.0123456789"),
        "day": dt.date(9999, 12, 31), "at": dt.datetime(2024, 2, 29, 1, tzinfo=dt.UTC), "plain": dt.datetime(1, 1, 1),
        "raw": b"\x00\xff", "v": long, "tags": ["a", None, "a\x00b"], "point": {"x": None, "y": "é"},
    }  # fmt: skip
    nothing = dict.fromkeys(kinds.names) | {"id": 2}
    deltalake.write_deltalake(place, pa.Table.from_pylist([row], schema=kinds), configuration=FEED)
    table, reader, _ = following(source, ["id"])
    reader.tick()
    deltalake.write_deltalake(place, pa.Table.from_pylist([nothing], schema=kinds), mode="append")
    deltalake.write_deltalake(place, pa.Table.from_pylist([{**row, "id": 3}], schema=kinds), mode="append")
    tick_out(reader)
    assert table.rows[(2,)] == nothing
    for key in ((1,), (3,)):
        found = table.rows[key]
        assert math.isnan(found.pop("f"))
        assert {**found, "id": 1} == {name: value for name, value in row.items() if name != "f"}


def test_a_delta_table_that_threw_its_files_away_is_lost_and_the_table_keeps_its_rows(tmp_path):
    place, source = delta(tmp_path / "t")
    deltalake.write_deltalake(place, rows(0, 3), configuration=FEED)
    table, reader, _ = following(source, ["id"])
    reader.tick()
    before = here(table)
    deltalake.write_deltalake(place, rows(3, 6), mode="append")
    deltalake.DeltaTable(place).optimize.compact()
    deltalake.DeltaTable(place).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    with pytest.raises(SourceLost, match="VACUUM"):
        reader.tick()
    assert here(table) == before
    assert reader.copy().did == "copied"
    assert here(table) == at_source(place)
    assert reader.tick().did == "nothing"


def test_a_delta_log_that_was_cut_is_lost(tmp_path):
    place, source = delta(tmp_path / "t")
    deltalake.write_deltalake(
        place, rows(0, 3), configuration={**FEED, "delta.logRetentionDuration": "interval 0 seconds"}
    )
    table, reader, _ = following(source, ["id"])
    reader.tick()
    for n in range(3, 8):
        deltalake.write_deltalake(place, rows(n, n + 1), mode="append")
    lake = deltalake.DeltaTable(place)
    lake.create_checkpoint()
    for number in range(1, 4):
        (tmp_path / "t" / "_delta_log" / f"{number:020d}.json").unlink()
    with pytest.raises(SourceLost):
        reader.tick()
    with pytest.raises(SourceLost):
        following(source, ["id"])[1].source.read(table.at, 10)
    assert len(here(table)) == 3


def test_another_delta_table_in_the_place_of_one_is_lost(tmp_path):
    place, source = delta(tmp_path / "t")
    deltalake.write_deltalake(place, rows(0, 3), configuration=FEED)
    table, reader, _ = following(source, ["id"])
    reader.tick()
    (tmp_path / "t").rename(tmp_path / "old")
    for n in range(4):
        deltalake.write_deltalake(place, rows(n, n + 1, "new"), mode="append", configuration=None if n else FEED)
    again, fresh, opened = following(source, ["id"])
    with pytest.raises(SourceLost, match="another table"):
        opened.read(table.at, 10)
    with pytest.raises(SourceLost):
        reader.tick()
    fresh.tick()
    assert here(again) == at_source(place)


def test_a_delta_table_that_was_set_back_is_lost(tmp_path):
    """As by a backup of its folder that is put in its place."""
    place, source = delta(tmp_path / "t")
    deltalake.write_deltalake(place, rows(0, 3), configuration=FEED)
    shutil.copytree(place, tmp_path / "backup")
    deltalake.write_deltalake(place, rows(3, 5), mode="append")
    table, reader, _ = following(source, ["id"])
    reader.tick()
    shutil.rmtree(place)
    (tmp_path / "backup").rename(place)
    with pytest.raises(SourceLost):
        reader.tick()
    assert len(here(table)) == 5


def test_what_a_delta_table_must_have_is_said(tmp_path):
    place, source = delta(tmp_path / "t")
    with pytest.raises(SourceUnavailable, match="cannot be read"):
        following(source, ["id"])
    deltalake.write_deltalake(place, rows(0, 3))
    with pytest.raises(SourceUnfit, match="SET TBLPROPERTIES"):
        following(source, ["id"])
    kept, with_feed = delta(tmp_path / "u")
    deltalake.write_deltalake(kept, rows(0, 3), configuration=FEED)
    with pytest.raises(SourceUnfit, match="primary_key="):
        following(with_feed)
    with pytest.raises(SourceUnfit, match="no column 'nope'"):
        following(with_feed, ["nope"])
    table, reader, _ = following(with_feed, ["id"])
    reader.tick()
    deltalake.write_deltalake(kept, pa.concat_tables([rows(7, 8), rows(7, 8, "w")]), mode="append")
    with pytest.raises(SourceUnfit, match="two rows with id = 7"):
        reader.tick()
    assert here(table) == {0: "v0", 1: "v1", 2: "v2"}


def test_a_column_that_was_added_or_is_null_where_it_may_not_be_stops_the_table(tmp_path):
    place, source = delta(tmp_path / "t")
    deltalake.write_deltalake(place, rows(0, 3), configuration=FEED)
    table, reader, _ = following(source, ["id"])
    reader.tick()
    missing = pa.table({"id": pa.array([None], pa.int64()), "v": ["x"]})
    deltalake.write_deltalake(place, missing, mode="append")
    with pytest.raises(SourceUnfit, match="no value in column 'id'"):
        reader.tick()
    deltalake.write_deltalake(
        place, rows(4, 5).append_column("more", pa.array([1])), mode="append", schema_mode="merge"
    )
    with pytest.raises(SourceUnfit, match="has a column 'more' more"):
        reader.tick()
    assert len(here(table)) == 3


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ({"format": "delta", "changes": True}, "needs 'path'"),
        ({"format": "delta", "changes": True, "path": "/x", "nope": "1"}, "'nope' that is none"),
        ({"format": "delta", "changes": True, "path": 5}, "is no text"),
        ({"format": "delta", "changes": True, "path": "s3://me:secret@b/t"}, "storage"),
        ({"format": "iceberg", "changes": True, "catalog.uri": "x"}, "needs 'table'"),
        ({"format": "debezium", "path": "/x", "columns": "id bigint, at timestamp"}, "time_unit: missing"),
        ({"format": "debezium", "path": "/x", "columns": "id bigint, p decimal(5,2)"}, "decimals: missing"),
        ({"format": "debezium", "path": "/x", "columns": "id nonsense"}, "has the type nonsense"),
        ({"format": "debezium", "path": "/x", "time_unit": "us"}, "declare columns"),
    ],
)
def test_options_that_make_no_sense_are_named(source, reason):
    with pytest.raises(ConfigError, match=reason) as raised:
        open_changes("t", source, SystemRuntime())
    assert "secret" not in str(raised.value)


class Lake:
    """A lake of ten versions, each of which brings the same hundred rows again."""

    there = "the lake"
    rows = pa.table({"id": range(100)}, schema=pa.schema([pa.field("id", pa.int64(), nullable=False)]))

    def look(self): ...

    def identity(self):
        return "lake"

    def columns(self):
        return Described(schema=self.rows.schema, primary_key=("id",))

    def latest(self):
        return 9

    def versions(self, after):
        return iter(range(after + 1, 10))

    def changes(self, version):
        return versioned.VersionChanges(went=self.rows.slice(0, 0), came=self.rows)


def test_versions_that_together_are_too_much_for_one_batch_come_in_several(monkeypatch):
    lake = Lake()
    monkeypatch.setattr(versioned, "MAX_BATCH_BYTES", 2 * lake.rows.nbytes)
    table = TableSpec(
        name="t",
        schema=lake.rows.schema,
        spec=PartitionSpec.whole(),
        distribution="replicated",
        primary_key=("id",),
    )
    source = versioned.VersionedSource("t", lake, SystemRuntime(), table)
    at = SourcePosition(0, "lake.1")
    for version in (2, 4, 6, 8, 9):
        at = source.read(at, 10_000).position
        assert at.at == version


# Iceberg


@pytest.fixture
def catalog(tmp_path):
    found = catalogs.load_catalog("lake", **_properties(tmp_path))
    found.create_namespace("shop")
    return found


def _properties(place: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{place}/catalog.db", "warehouse": f"file://{place}/warehouse"}


def iceberg(place: Path) -> dict[str, Any]:
    options = {f"catalog.{name}": value for name, value in _properties(place).items()}
    return {"format": "iceberg", "table": "shop.events", "changes": "true", "catalog": "lake", **options}


def test_an_iceberg_table_is_copied_and_its_appends_are_followed(catalog, tmp_path):
    lake = catalog.create_table("shop.events", schema=rows(0, 1).schema)
    table, reader, opened = following(iceberg(tmp_path), ["id"])
    assert reader.tick().did == "copied"  # of no snapshot
    assert not table.rows
    for n in range(5):
        lake.append(rows(n * 2, n * 2 + 2))
    assert tick_out(reader) == 10
    assert here(table) == {n: f"v{n}" for n in range(10)}
    lake.append(rows(10, 11))
    again, fresh, _ = following(iceberg(tmp_path), ["id"])
    fresh.tick()
    assert here(again) == {n: f"v{n}" for n in range(11)}
    lake.append(rows(11, 13))
    opened.lake.look()
    assert opened.lag(table.at).rows == 3
    assert tick_out(fresh) == 2
    assert tick_out(reader) == 3
    assert here(again) == here(table)


def test_a_snapshot_that_is_no_append_stops_the_table_until_it_is_copied(catalog, tmp_path):
    lake = catalog.create_table("shop.events", schema=rows(0, 1).schema)
    lake.append(rows(0, 4))
    table, reader, _ = following(iceberg(tmp_path), ["id"])
    reader.tick()
    lake.append(rows(4, 5))
    lake.delete("id = 1")
    lake.append(rows(6, 7))
    with pytest.raises(SourceLost, match=r"is no append but of the kind '(delete|overwrite)'"):
        tick_out(reader)
    assert 1 in here(table)
    reader.copy()
    assert sorted(here(table)) == [0, 2, 3, 4, 6]
    lake.append(rows(7, 8))
    assert tick_out(reader) == 1


def test_expired_and_rolled_back_snapshots_are_lost(catalog, tmp_path):
    lake = catalog.create_table("shop.events", schema=rows(0, 1).schema)
    lake.append(rows(0, 1))
    table, reader, _ = following(iceberg(tmp_path), ["id"])
    reader.tick()
    first = lake.current_snapshot()
    lake.append(rows(1, 2))
    tick_out(reader)
    lake.append(rows(2, 3))
    lake.maintenance.expire_snapshots().by_id(lake.snapshots()[1].snapshot_id).commit()
    with pytest.raises(SourceLost, match="expired, or rolled back"):
        reader.tick()
    reader.copy()
    lake.manage_snapshots().rollback_to_snapshot(lake.current_snapshot().snapshot_id).commit()
    assert reader.tick().did == "nothing"
    lake.append(rows(3, 4))
    tick_out(reader)
    before = lake.current_snapshot().parent_snapshot_id
    lake.manage_snapshots().rollback_to_snapshot(before).commit()
    with pytest.raises(SourceLost, match="set back"):
        reader.tick()
    lake.append(rows(4, 5))
    with pytest.raises(SourceLost, match="rolled back"):
        reader.tick()
    assert first is not None
    assert 3 in here(table)


def test_columns_of_an_iceberg_table_and_its_own_key(catalog, tmp_path):
    from pyiceberg.schema import Schema
    from pyiceberg.types import LongType, NestedField, StringType, TimestamptzType, UUIDType

    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "v", StringType()),
        NestedField(3, "at", TimestamptzType()),
        identifier_field_ids=[1],
    )
    lake = catalog.create_table("shop.events", schema=schema)
    table, reader, _ = following(iceberg(tmp_path))
    assert table.table.primary_key == ("id",)
    reader.tick()
    given = pa.schema([pa.field("id", pa.int64(), False), ("v", pa.string()), ("at", pa.timestamp("us", "UTC"))])
    moment = dt.datetime(2024, 5, 6, 7, 8, 9, 10, dt.UTC)
    lake.append(pa.Table.from_pylist([{"id": 1, "v": None, "at": moment}], schema=given))
    tick_out(reader)
    assert table.rows == {(1,): {"id": 1, "v": None, "at": moment}}
    with lake.update_schema() as update:
        update.add_column("more", UUIDType())
    with pytest.raises(SourceUnfit, match="'more'"):
        reader.tick()


def test_a_table_without_order_or_name_is_refused(catalog, tmp_path):
    with pytest.raises(SourceUnfit, match=r"catalog 'lake' has no table shop\.events"):
        following(iceberg(tmp_path), ["id"])
    catalog.create_table("shop.events", schema=rows(0, 1).schema, properties={"format-version": "1"})
    with pytest.raises(SourceUnfit, match="format-version to 2"):
        following(iceberg(tmp_path), ["id"])
