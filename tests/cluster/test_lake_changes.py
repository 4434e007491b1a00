"""Tables of a cluster that follow a real Delta table, an Iceberg table and a folder of Debezium's events."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.cluster.prometheus import Prometheus, program

from ballista_py import LocalCluster
from ballista_py.errors import ConfigError, SourceUnfit
from ballista_py.partitions.refresh import Refresh

deltalake = pytest.importorskip("deltalake")
catalogs = pytest.importorskip("pyiceberg.catalog")

pytestmark = pytest.mark.cluster
PATIENCE_S = 60
SCRAPED_S = 2.5  # twice at least: a rate is of two
BOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "refreshes.json"


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


def test_columns_of_a_lake_are_appended_where_that_is_declared(small, tmp_path):
    place = str(tmp_path / "lake")
    deltalake.write_deltalake(place, rows(0, 2), configuration={"delta.enableChangeDataFeed": "true"})
    small.create_table(
        "wide",
        {"format": "delta", "path": place, "changes": True},
        ["bucket(2, id)"],
        primary_key=["id"],
        refresh=Refresh(mode="changes", on_schema_change="append"),
    )
    deltalake.write_deltalake(place, rows(2, 3), mode="append")
    more = rows(3, 4).append_column("more", pa.array([1.5]))
    deltalake.write_deltalake(place, more, mode="append", schema_mode="merge")

    def has_more() -> bool:
        found = small.sql("select * from wide order by id").to_pylist()
        return [row.get("more") for row in found] == [None, None, None, 1.5]

    until(has_more)
    assert shown(small, "wide")["error"] is None
    with small.client() as client:
        client.refresh("wide", "full")
    assert has_more()


def test_every_expression_of_the_dashboard_of_refreshes_gives_data(small, tmp_path):
    """After the tests above: tables that follow, of which one was copied anew and one has failed."""
    program()
    board = json.loads(BOARD.read_text())
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert len(expressions) >= 9
    targets = [small.status_url(node, metrics=True).split("/")[2] for node in small.node_ids]
    prometheus = Prometheus(tmp_path / "prometheus", targets)
    try:
        prometheus.wait_for_scrapes(time.time() + SCRAPED_S)
        for expression in expressions:
            assert prometheus.ask(expression.replace("$__rate_interval", "5m")), expression
    finally:
        prometheus.close()


def test_changes_of_a_source_that_has_none_are_refused(small, tmp_path):
    with pytest.raises(ConfigError, match="'changes' is true, of the formats delta and iceberg"):
        small.create_table("odd", {"format": "parquet", "path": str(tmp_path), "changes": True}, ["bucket(2, id)"])
    with pytest.raises(ConfigError, match="needs 'path'"):
        small.create_table("odd", {"format": "delta", "changes": True}, ["bucket(2, id)"])
