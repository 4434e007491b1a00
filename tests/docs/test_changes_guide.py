"""Every program of the guide to tables that follow changes runs, against real sources in the places that it names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from tests.cluster.postgres_server import PostgresServer

from ballista_py import LocalCluster

deltalake = pytest.importorskip("deltalake")
catalogs = pytest.importorskip("pyiceberg.catalog")

pytestmark = pytest.mark.cluster
GUIDE = (Path(__file__).parents[2] / "docs" / "guide-changes.md").read_text()
ROWS = pa.table({"id": pa.array([1, 2], pa.int64()), "v": pa.array([10, 20], pa.int64())})


def program(title: str) -> str:
    """The program below that title."""
    part = next(part for part in GUIDE.split("\n## ") if part.startswith(title))
    (found,) = re.findall(r"```python\n(.*?)```", part, re.DOTALL)
    return found


def replaced(text: str, **places: str) -> str:
    """The program with what it names elsewhere replaced; each of them is there."""
    for there, here in places.items():
        assert there in text
        text = text.replace(there, here)
    return text


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(schedulers=1, executors=1) as made:
        yield made


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    made = PostgresServer()
    yield made
    made.stop()


@pytest.fixture
def events(server: PostgresServer) -> Iterator[None]:
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("create table events (id bigint primary key, region text, v bigint)")
        connection.execute("insert into events values (1, 'eu', 10), (2, 'us', 20)")
        yield
        connection.execute("drop table events")


def run(text: str, cluster: LocalCluster, table: str) -> list[dict[str, object]]:
    """The rows of the table after the program, which is dropped then."""
    with cluster.client() as client:
        exec(compile(text, "docs/guide-changes.md", "exec"), {"cluster": cluster, "client": client})
    found = cluster.sql(f"select id, v from {table} order by id").to_pylist()
    cluster.drop_table(table)
    return found


def test_changes_that_are_sent_are_applied(cluster):
    assert run(program("Changes that you send"), cluster, "events") == [{"id": 1, "v": 11}]


@pytest.mark.parametrize(("title", "values"), [("A table of PostgreSQL", [10, 20]), ("Writing through", [11, 20])])
def test_a_table_of_postgresql_is_followed_and_written_through(cluster, server, events, title, values):
    text = re.sub(r"postgresql://\w+:\$\{secrets:db\}@db\.example/shop", server.dsn, program(title))
    assert server.dsn in text
    assert [row["v"] for row in run(text, cluster, "events")] == values


def test_a_delta_table_is_followed(cluster, tmp_path):
    place = str(tmp_path / "orders")
    deltalake.write_deltalake(place, ROWS, configuration={"delta.enableChangeDataFeed": "true"})
    text = replaced(program("A Delta table"), **{"s3://lake/orders": place})
    assert run(text, cluster, "orders") == ROWS.to_pylist()


def test_an_iceberg_table_is_followed(cluster, tmp_path):
    uri = f"sqlite:///{tmp_path}/catalog.db"
    catalog = catalogs.load_catalog("default", type="sql", uri=uri, warehouse=f"file://{tmp_path}")
    catalog.create_namespace("web")
    catalog.create_table("web.clicks", schema=ROWS.schema).append(ROWS)
    places = {'"catalog.type": "rest"': '"catalog.type": "sql"', "https://catalog.example": uri}
    assert run(replaced(program("An Iceberg table"), **places), cluster, "clicks") == ROWS.to_pylist()


def test_a_folder_of_events_is_followed(cluster, tmp_path):
    columns = [{"field": name, "type": "int64", "optional": name != "id"} for name in ("id", "v")]
    row = {"type": "struct", "optional": True, "fields": columns}
    schema = {"type": "struct", "fields": [{**row, "field": "before"}, {**row, "field": "after"}]}
    lines = [
        {"schema": schema, "payload": {"op": "r", "before": None, "after": one, "source": {"snapshot": snapshot}}}
        for one, snapshot in zip(ROWS.to_pylist(), ("first", "last"), strict=True)
    ]
    (tmp_path / "shop.events+0+0000000000.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    place = {"s3://bucket/topics/shop.public.events/partition=0": str(tmp_path)}
    assert run(replaced(program("Debezium's events"), **place), cluster, "events") == ROWS.to_pylist()
