"""A materialized view has the rows of its query, follows the tables that it reads, and is changed by nothing else."""

from __future__ import annotations

import time
from threading import Event, Thread

import adbc_driver_flightsql.dbapi as flightsql
import pytest
from typer.testing import CliRunner

from ballista_py import LocalCluster, connect
from ballista_py.errors import (
    BallistaError,
    ConfigError,
    PartitionKeysMissing,
    PartitionsUnassigned,
    SqlError,
    TryLater,
)
from ballista_py.node.cli.app import app

pytestmark = pytest.mark.cluster
SOON_S = 60.0
MADE = "create materialized view {} partitioned by (bucket(3, g)) with (refresh_check_interval = '1s') as {}"
BY_HAND = "create materialized view {} partitioned by (bucket(3, g)) with (refresh_mode = 'full') as {}"
SUMS = "select g, sum(x)::bigint as total, count(*) as n from t group by g"


@pytest.fixture(scope="module")
def site():
    with LocalCluster(schedulers=2, executors=2) as cluster:
        cluster.sql("create table t (g int, x int) partitioned by (bucket(4, g))")
        cluster.sql("insert into t select i % 10, i from range(100) as r(i)")
        yield cluster


def rows(place, query):
    return sorted(tuple(row.values()) for row in place.sql(query).to_pylist())


def follows(cluster, view, query):
    """Wait until the view has the rows of its query."""
    until = time.monotonic() + SOON_S
    while rows(cluster, f"select * from {view}") != rows(cluster, query):
        assert time.monotonic() < until, (rows(cluster, f"select * from {view}"), refresh_of(cluster, view))
        time.sleep(0.1)


def refresh_of(cluster, view):
    (row,) = (row for row in cluster.tables() if row["table"] == view)
    return row["refresh"]


def test_it_has_its_rows_at_once_and_follows_each_kind_of_change(site):
    site.sql(MADE.format("sums", SUMS))
    assert rows(site, "select * from sums") == rows(site, SUMS)
    for change in (
        "insert into t values (3, 1000), (77, 5)",
        "update t set x = x + 1 where g = 3",
        "delete from t where g = 77",
        "merge into t using (select 5 as g, 50 as x) as s on t.g = s.g and t.x = s.x "
        "when matched then update set x = 0 when not matched then insert values (s.g, s.x)",
        "insert overwrite t select i % 7, i from range(50) as r(i)",
        "truncate t",
        "insert into t select i % 10, i from range(100) as r(i)",
    ):
        site.sql(change)
        follows(site, "sums", SUMS)
    for scheduler in site.addresses():
        with connect(scheduler) as client:
            assert rows(client, "select * from sums where g = 3") == rows(
                site, f"select * from ({SUMS}) where g = 3"
            )


def test_it_follows_through_views_and_through_another_of_its_kind(site):
    site.sql("create table below (g int, x int) partitioned by (g)")
    site.sql("create view large as select * from below where x > 10")
    site.sql(MADE.format("first", "select g, max(x) as x from large group by g"))
    site.sql(MADE.format("second", "select g, x * 2 as x from first"))
    site.sql("insert into below values (1, 11), (2, 5), (2, 30)")
    follows(site, "second", "select g, max(x) * 2 from below where x > 10 group by g")
    assert rows(site, "select * from second") == [(1, 22), (2, 60)]
    site.sql("create or replace view large as select * from below where x < 10")
    follows(site, "second", "select g, max(x) * 2 from below where x < 10 group by g")
    assert rows(site, "select * from second") == [(2, 10)]


def test_nothing_is_made_anew_while_nothing_changes(site):
    site.sql("create table quiet (g int)")
    site.sql("insert into quiet values (1)")
    site.sql(MADE.format("quiet_view", "select g from quiet"))
    until = time.monotonic() + SOON_S
    while not refresh_of(site, "quiet_view")["last_skipped"]:
        assert time.monotonic() < until
        time.sleep(0.1)
    before = refresh_of(site, "quiet_view")["slot"]
    while refresh_of(site, "quiet_view")["slot"] < before + 2:
        assert time.monotonic() < until
        assert refresh_of(site, "quiet_view")["last_skipped"]
        time.sleep(0.1)


def test_one_without_a_time_is_made_anew_when_it_is_asked_for(site):
    site.sql("create table asked (g int)")
    site.sql("insert into asked values (1)")
    site.sql(BY_HAND.format("asked_view", "select g, now() as at from asked"))
    (first,) = rows(site, "select * from asked_view")
    with connect(",".join(site.addresses())) as client:
        assert client.sql("refresh materialized view asked_view", token="t1").to_pylist() == [{"affected_rows": 1}]
        (second,) = rows(client, "select * from asked_view")
        assert second[1] > first[1]
        assert client.sql("refresh materialized view asked_view", token="t1").to_pylist() == [{"affected_rows": 1}]
        assert rows(client, "select * from asked_view") == [second]  # sent again it does nothing
        client.refresh("asked_view", "full")
        (third,) = rows(client, "select * from asked_view")
        assert third[1] > second[1]


def test_a_reader_sees_its_rows_as_of_one_decision(site):
    """Money that moves between partitions of its table is never lost, or there twice, in the view."""
    site.sql("create table money (g int, x int) partitioned by (g)")
    site.sql("insert into money select i, 100 from range(6) as r(i)")
    site.sql(MADE.format("money_view", "select g, x from money"))
    over, wrong = Event(), []

    def move():
        step = 0
        while not over.is_set():
            step += 1
            giver, taker = step % 6, (step * 5 + 1) % 6
            site.sql(f"update money set x = x + case g when {giver} then -7 else 7 end where g in ({giver}, {taker})"
                     if giver != taker else "select 1")  # fmt: skip

    def look():
        while not over.is_set():
            found = rows(site, "select sum(x)::int, count(*) from money_view")
            if found != [(600, 6)]:
                wrong.append(found)

    threads = [Thread(target=act) for act in (move, look, look)]
    for thread in threads:
        thread.start()
    until, slots = time.monotonic() + SOON_S, refresh_of(site, "money_view")["slot"]
    while refresh_of(site, "money_view")["slot"] < slots + 5 and time.monotonic() < until:
        time.sleep(0.2)
    over.set()
    for thread in threads:
        thread.join(60)
    assert not wrong
    follows(site, "money_view", "select g, x from money")


def test_what_its_tables_become_is_told_and_its_rows_stay(site):
    site.sql("create table fragile (g int, x int)")
    site.sql("insert into fragile values (1, 2)")
    site.sql(MADE.format("kept", "select * from fragile"))
    site.sql("alter table fragile add column more int")
    site.sql("insert into fragile values (1, 3, 4)")
    told(site, "kept", "gives 'more' int32 by now")
    site.sql("drop table fragile")
    told(site, "kept", "Table 'fragile' does not exist")
    assert rows(site, "select * from kept") == [(1, 2)]
    site.sql("create table fragile (g int, x int)")
    site.sql("insert into fragile values (5, 5)")
    follows(site, "kept", "select * from fragile")


def told(cluster, view, error):
    until = time.monotonic() + SOON_S
    while error not in (refresh_of(cluster, view)["last_error"] or ""):
        assert time.monotonic() < until, refresh_of(cluster, view)
        time.sleep(0.1)


def test_one_that_takes_the_place_of_another_has_its_query_and_its_columns(site):
    site.sql(MADE.format("changing", "select g, x from t"))
    site.sql("create or replace materialized view changing partitioned by (g) with (refresh_check_interval = '1s') as "
             "select g, 'a' as word from t group by g")  # fmt: skip
    assert rows(site, "select distinct word from changing") == [("a",)]
    site.sql("insert into t values (4242, 1)")
    follows(site, "changing", "select distinct g, 'a' from t")
    site.sql("delete from t where g = 4242")
    site.sql("drop materialized view changing")
    with pytest.raises(SqlError, match="'changing' does not exist"):
        site.sql("select * from changing")
    site.sql("drop materialized view if exists changing")


@pytest.mark.parametrize(
    ("statement", "kind", "words"),
    [
        ("create materialized view n as select 1 as a", PartitionKeysMissing, "'n' has no partition keys configured"),
        (MADE.format("n", "select x from t"), BallistaError, "no column 'g'"),
        (MADE.format("n", "select g, sum(x) as s from t group by g"), SqlError, "HUGEINT"),
        (MADE.format("n", "select * from nothing"), SqlError, "'nothing' does not exist"),
        (MADE.format("n", "select g from t where x = $1"), SqlError, "parameter"),
        (MADE.format("n", "select g from n"), SqlError, "n reads n"),
        (MADE.format("n", "select table_name as g from information_schema.tables"), SqlError, "tables and views"),
        (MADE.format("n", "delete from t returning g"), SqlError, "SELECT"),
        (MADE.format("t", "select 1 as g"), BallistaError, "'t'"),
        ("create materialized view n partitioned by (g) as select g, now() as at from t", ConfigError, "another time"),
        ("create materialized view n partitioned by (g) as select g, random() as r from t", ConfigError, "time"),
        (
            "create materialized view n partitioned by (g) with (retention_sql = 'delete from n where g < 1') as "
            "select g from t",
            ConfigError,
            "what it is to forget",
        ),
        (
            "create materialized view n partitioned by (g) with (refresh_mode = 'append', time_column = 'g') as "
            "select g from t",
            ConfigError,
            "refresh_check_interval alone",
        ),
        ("create materialized view n (g int) partitioned by (g)", SqlError, "from its query"),
        ("create materialized view n like t", SqlError, "query"),
        ("create temporary materialized view n partitioned by (g) as select g from t", SqlError, "TEMPORARY"),
        ("insert into standing values (1)", SqlError, "materialized view"),
        ("delete from standing", SqlError, "materialized view"),
        ("truncate standing", SqlError, "materialized view"),
        ("merge into standing using t on false when not matched then insert values (1)", SqlError, "materialized view"),
        ("alter table standing add column a int", SqlError, "CREATE OR REPLACE MATERIALIZED VIEW"),
        ("alter table standing set (retention_sql = 'delete from standing where g = 1')", SqlError, "materialized"),
        ("drop view standing", SqlError, "DROP MATERIALIZED VIEW"),
        ("drop materialized view t", SqlError, "DROP TABLE"),
        ("refresh materialized view t", SqlError, "no materialized view"),
        ("refresh materialized view nothing", SqlError, "does not exist"),
        ("refresh materialized view standing with no data", SqlError, "its name alone"),
        ("refresh materialized view", SqlError, "its name alone"),
        ("refresh table t", SqlError, "REFRESH"),
    ],
)  # fmt: skip
def test_what_it_cannot_be_is_refused_by_name(site, statement, kind, words):
    site.sql("create materialized view if not exists standing partitioned by (g) as select distinct g from t")
    before = rows(site, "select * from standing")
    with pytest.raises(kind, match=words):
        site.sql(statement)
    assert rows(site, "select * from standing") == before
    assert "n" not in {row["table"] for row in site.tables()}


def test_no_two_read_each_other(site):
    site.sql(BY_HAND.format("one", "select g from t"))
    site.sql(BY_HAND.format("two", "select g from one"))
    with pytest.raises(SqlError, match="one reads two reads one"):
        site.sql("create or replace materialized view one partitioned by (g) as select g from two")
    site.sql("create view between_them as select g from t")
    site.sql("create or replace materialized view one partitioned by (g) with (refresh_mode = 'full') as "
             "select g from between_them")  # fmt: skip
    site.sql("create or replace view between_them as select g from two")
    with pytest.raises(SqlError, match="would read itself"):
        site.sql("refresh materialized view one")


def test_the_same_statement_sent_again_makes_one(site):
    with connect(",".join(site.addresses())) as client:
        for _ in range(2):
            made = client.sql(BY_HAND.format("once", "select g, x from t"), token="made-once")
            assert made.to_pylist() == [{"affected_rows": 100}]
        client.sql("drop materialized view once", token="gone-once")
        client.sql("create table once (a int)")
        assert client.sql("drop materialized view once", token="gone-once").to_pylist() == [{"affected_rows": 0}]
        assert "once" in {row["table"] for row in client.tables()}


def test_drivers_see_it_and_say_it(site):
    with (
        flightsql.connect(site.flight_sql_url(), autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute(BY_HAND.format("driven", "select g, x from t"))
        cursor.execute("select count(*) from driven")
        assert cursor.fetchall() == [(100,)]
        cursor.execute("refresh materialized view driven")
        assert [field.name for field in connection.adbc_get_table_schema("driven")] == ["g", "x"]
        cursor.execute("select is_insertable_into from information_schema.tables where table_name = 'driven'")
        assert cursor.fetchall() == [("NO",)]
        cursor.execute("drop materialized view driven")
    (row,) = (row for row in site.tables() if row["table"] == "sums")
    assert row["sql"] == SUMS


def test_it_goes_on_after_its_scheduler_is_killed_and_after_a_restart(tmp_path):
    url = f"file://{tmp_path}/store"
    options = {"executors": 2, "schedulers": 2, "ttl_ms": 3_000.0, "skew_ms": 500.0}
    with LocalCluster(state_location=url, **options) as cluster:
        cluster.sql("create table t (g int, x int) partitioned by (bucket(4, g))")
        cluster.sql("insert into t select i % 10, i from range(100) as r(i)")
        cluster.sql(MADE.format("sums", SUMS))
        cluster.kill("scheduler-1")
        cluster.sql("insert into t values (3, 1000)")
        follows(cluster, "sums", SUMS)
    with LocalCluster(state_location=url, **options) as cluster:
        cluster.sql("insert into t values (4, 1000)")
        follows(cluster, "sums", SUMS)


APP = """version: v1
name: shop
revision: 1
datasets:
  - {name: t, columns: [{name: g, type: int}, {name: x, type: int}], acceleration: {partition_by: ["bucket(4, g)"]}}
views:
  - {name: above, sql: select sum(n)::bigint as n from counted}
  - name: counted
    sql: select g, count(*) as n from t group by g
    acceleration: {partition_by: ["bucket(2, g)"], refresh_check_interval: 1s}
  - name: hourly
    sql: select g, max(x) as x from t group by g
    acceleration: {partition_by: ["bucket(2, g)"], refresh_check_interval: 1h}
  - name: by_hand
    sql: select count(*) as n from t
    acceleration: {partition_by: ["bucket(2, n)"], refresh_mode: full}
"""


def test_one_of_an_application_file_has_its_rows_after_its_first_run(tmp_path):
    path = tmp_path / "app.yaml"
    path.write_text(APP)
    with LocalCluster(schedulers=2, executors=2, app=path) as cluster:
        cluster.sql("insert into t select i % 5, i from range(20) as r(i)")
        follows(cluster, "counted", "select g, count(*) as n from t group by g")
        assert rows(cluster, "select n from above") == [(20,)]


def test_one_of_an_application_file_answers_nobody_before_its_first_run_which_is_at_once(tmp_path):
    path, told = tmp_path / "app.yaml", []
    path.write_text(APP)
    with LocalCluster(schedulers=2, executors=2) as cluster:
        cluster.sql("create table t (g int, x int) partitioned by (bucket(4, g))")
        cluster.sql("insert into t select i % 5, i from range(20) as r(i)")
        expected = {"hourly": [(g, 15 + g) for g in range(5)], "by_hand": [(20,)]}
        done = CliRunner().invoke(app, ["app", "apply", str(path), "--state-location", cluster.state_location])
        assert done.exit_code == 0, done.output
        until = time.monotonic() + SOON_S
        while len(told) < len(expected):
            assert time.monotonic() < until
            for view in expected.keys() - set(told):
                try:
                    found = rows(cluster, f"select * from {view}")
                except (TryLater, PartitionsUnassigned):
                    continue
                assert found == expected[view]
                told.append(view)
        assert refresh_of(cluster, "hourly")["every"] == "1h"
        assert refresh_of(cluster, "by_hand")["every"] is None


def test_a_view_takes_the_place_of_no_table_and_a_table_of_no_view(site):
    site.sql("create table with_rows (g int) partitioned by (g)")
    site.sql("insert into with_rows values (1), (2), (3)")
    with pytest.raises(ConfigError, match="'with_rows' is a table: drop it with DROP TABLE"):
        site.sql("create or replace materialized view with_rows partitioned by (g) as select g from t")
    assert rows(site, "select * from with_rows") == [(1,), (2,), (3,)]
    site.sql(BY_HAND.format("of_rows", "select g from with_rows"))
    with pytest.raises(ConfigError, match="'of_rows' is a materialized view: drop it with DROP MATERIALIZED VIEW"):
        site.sql("create or replace table of_rows (g int) partitioned by (g)")
    with pytest.raises(ConfigError, match="'of_rows' is a materialized view"):
        site.sql("create or replace table of_rows partitioned by (g) as select 5 as g")
    with (
        flightsql.connect(f"grpc://{site.addresses()[0]}") as adbc,
        adbc.cursor() as cursor,
        pytest.raises(Exception, match="'of_rows' is a materialized view"),
    ):
        cursor.adbc_ingest("of_rows", site.sql("select 5 as g"), mode="replace")
    assert rows(site, "select * from of_rows") == [(1,), (2,), (3,)]


def test_the_statement_that_shows_it_makes_it_again(site):
    site.sql(MADE.format("shown", SUMS))
    (made,) = site.sql("show create table shown")["statement"].to_pylist()
    assert made.startswith(
        'CREATE MATERIALIZED VIEW "shown" PARTITIONED BY (bucket(3, g)) WITH (refresh_check_interval'
    )
    site.sql("drop materialized view shown")
    site.sql(made)
    assert rows(site, "select * from shown") == rows(site, SUMS)
    assert site.sql("show create table shown")["statement"].to_pylist() == [made]
    for statement, way_out in {
        "alter materialized view shown rename to other": "ALTER TABLE v SET",
        "comment on materialized view shown is 'x'": "COMMENT ON TABLE t",
    }.items():
        with pytest.raises(SqlError, match=way_out):
            site.sql(statement)
