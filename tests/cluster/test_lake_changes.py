"""Tables of a cluster that follow a real Delta table, an Iceberg table and a folder of Debezium's events."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ballista_py import LocalCluster
from ballista_py.errors import ConfigError, SourceUnfit

deltalake = pytest.importorskip("deltalake")
catalogs = pytest.importorskip("pyiceberg.catalog")

pytestmark = pytest.mark.cluster
PATIENCE_S = 60


@pytest.fixture(scope="module")
def small() -> Iterator[LocalCluster]:
    with LocalCluster(schedulers=2, executors=1, ttl_ms=3_000) as cluster:
        yield cluster


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.1)


def rows(first: int, last: int, word: str = "v") -> pa.Table:
    ids = list(range(first, last))
    return pa.table({"id": pa.array(ids, pa.int64()), "v": [f"{word}{n}" for n in ids]})


def here(cluster: LocalCluster, table: str) -> dict[int, str]:
    found = cluster.sql(f"select id, v from {table}")
    return dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))


def shown(cluster: LocalCluster, table: str) -> dict[str, Any]:
    """What the scheduler that reads says of the table."""
    return next(row for row in cluster.tables() if row["table"] == table)["changes"]


def at_source(place: Path) -> dict[int, str]:
    found = deltalake.DeltaTable(str(place)).to_pyarrow_table()
    return dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))


def test_a_table_follows_a_delta_table_while_schedulers_are_killed(small, tmp_path):
    place = tmp_path / "lake"
    deltalake.write_deltalake(str(place), rows(0, 50), configuration={"delta.enableChangeDataFeed": "true"})
    source = {"format": "delta", "path": str(place), "changes": True}
    with pytest.raises(SourceUnfit, match="primary_key="):
        small.create_table("lake", source, ["bucket(4, id)"])
    small.create_table("lake", source, ["bucket(4, id)"], primary_key=["id"])
    assert here(small, "lake") == at_source(place)
    for round_ in range(4):
        lake = deltalake.DeltaTable(str(place))
        lake.update(updates={"v": f"'u{round_}'"}, predicate=f"id % 5 = {round_}")
        lake.delete(f"id % 11 = {round_}")
        if round_ == 1:
            small.kill("scheduler-1")
        deltalake.write_deltalake(str(place), rows(100 * round_ + 100, 100 * round_ + 120), mode="append")
    until(lambda: here(small, "lake") == at_source(place))
    small.start("scheduler-1")
    deltalake.write_deltalake(str(place), rows(900, 901), mode="append")
    until(lambda: here(small, "lake") == at_source(place))
    version = deltalake.DeltaTable(str(place)).version()
    until(lambda: (shown(small, "lake").get("position") or "").startswith(f"{version} of "))
    deltalake.write_deltalake(str(place), rows(901, 903), mode="append")
    deltalake.DeltaTable(str(place)).optimize.compact()
    until(lambda: here(small, "lake") == at_source(place))


def test_a_table_follows_the_appends_of_an_iceberg_table(small, tmp_path):
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w"}
    catalog = catalogs.load_catalog("default", **properties)
    catalog.create_namespace("shop")
    lake = catalog.create_table("shop.events", schema=rows(0, 1).schema)
    lake.append(rows(0, 5))
    options = {f"catalog.{name}": value for name, value in properties.items()}
    source = {"format": "iceberg", "table": "shop.events", "changes": True, **options}
    small.create_table("iced", source, ["bucket(2, id)"], primary_key=["id"])
    assert len(here(small, "iced")) == 5
    lake.append(rows(5, 9))
    until(lambda: len(here(small, "iced")) == 9)
    lake.delete("id = 1")
    until(lambda: (shown(small, "iced").get("error") or {}).get("code") == "source.lost")
    assert len(here(small, "iced")) == 9


def test_a_table_follows_a_folder_of_events(small, tmp_path):
    folder = tmp_path / "events"
    folder.mkdir()

    def write(number: int, *events: dict[str, Any]) -> None:
        lines = "".join(json.dumps(event) + "\n" for event in events)
        temporary = folder / f".{number}"
        temporary.write_text(lines)
        temporary.rename(folder / f"shop.events+0+{number:010d}.json")

    def put(op: str, number: int, v: str, **source: Any) -> dict[str, Any]:
        return {"op": op, "before": None, "after": {"id": number, "v": v}, "source": source}

    write(0, put("r", 1, "a", snapshot="first"), put("r", 2, "b", snapshot="last"))
    source = {"format": "debezium", "path": str(folder), "columns": "id bigint not null, v varchar"}
    small.create_table("told", source, ["bucket(2, id)"], primary_key=["id"])
    assert here(small, "told") == {1: "a", 2: "b"}
    write(2, put("u", 1, "u"), {"op": "d", "before": {"id": 2}, "after": None, "source": {}}, put("c", 3, "c"))
    until(lambda: here(small, "told") == {1: "u", 3: "c"})
    write(9, put("c", 4, "d"))
    until(lambda: (shown(small, "told").get("error") or {}).get("code") == "source.lost")
    write(5, *[put("c", 10 + n, "late") for n in range(4)])
    until(lambda: len(here(small, "told")) == 7)
    until(lambda: shown(small, "told")["error"] is None)


def test_changes_of_a_source_that_has_none_are_refused(small, tmp_path):
    with pytest.raises(ConfigError, match="'changes' is true, of the formats delta and iceberg"):
        small.create_table("odd", {"format": "parquet", "path": str(tmp_path), "changes": True}, ["bucket(2, id)"])
    with pytest.raises(ConfigError, match="needs 'path'"):
        small.create_table("odd", {"format": "delta", "changes": True}, ["bucket(2, id)"])
