"""Clients that try to see, or change, what policies keep from them; by every door of a cluster of real processes."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import adbc_driver_flightsql.dbapi as flightsql
import adbc_driver_manager
import pyarrow as pa
import pytest
from adbc_driver_flightsql import DatabaseOptions

from ballista_py import LocalCluster, connect, read_job, table_place, write_job
from ballista_py.errors import BallistaError, PlanningError, SqlError, Unsupported

pytestmark = pytest.mark.cluster
TOKENS = {name: f"{name}-token-0123456789abcdef" for name in ("root", "anna", "bert", "loader", "nobody")}
LINES = f"""
root {TOKENS["root"]} groups=ops
anna {TOKENS["anna"]} groups=staff,emea
bert {TOKENS["bert"]} groups=staff,audit
loader {TOKENS["loader"]} groups=loaders
nobody {TOKENS["nobody"]}
"""
APP = """
version: v1
name: shop
revision: {revision}
datasets:
  - name: orders
    columns:
      - {{name: id, type: bigint, nullable: false}}
      - {{name: region, type: varchar}}
      - {{name: email, type: varchar}}
      - {{name: price, type: bigint}}
    acceleration: {{partition_by: ["bucket(4, id)"], primary_key: [id]}}
  - name: secrets
    columns: [{{name: id, type: bigint}}, {{name: text, type: varchar}}]
    acceleration: {{partition_by: ["bucket(2, id)"]}}
  - name: notes
    columns: [{{name: id, type: bigint}}, {{name: text, type: varchar}}]
    acceleration: {{partition_by: ["bucket(2, id)"]}}
policies:
  operators: [ops]
  grants:
    - {{to: [staff], may: [select], tables: [orders, by_region, mine, copied]}}
    - {{to: [staff], may: [select, insert, change], tables: [notes]}}
    - {{to: [loaders], may: [insert], tables: [orders, notes]}}
    - {{to: ["user:anna"], may: [create, insert, select, change], tables: [mine, copied, own_view, kept, by_region]}}
    - {{to: ["user:anna"], may: [insert, change], tables: [orders]}}
  rows:
    - {{tables: [orders], where: "list_contains(current_groups(), region)", unless: [audit, loaders]}}
  masks:
    - {{tables: [orders], columns: [email], value: "'*** for ' || current_user()", unless: [audit]}}
"""
ROWS = 60
REGIONS = ("emea", "apac", "amer")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("policies")
    (folder / "tokens").write_text(LINES)
    (folder / "app.yaml").write_text(APP.format(revision=1))
    return folder


@pytest.fixture(scope="module")
def cluster(files):
    options = {
        "flight-tokens-file": str(files / "tokens"),
        "task-history-table": "history",
        "task-history-interval": "1s",
    }
    with LocalCluster(
        schedulers=2, executors=2, app=files / "app.yaml", token=TOKENS["root"], node_options=options, ttl_ms=3_000
    ) as cluster:
        with client_of(cluster, "root") as root:
            values = ", ".join(f"({n}, '{REGIONS[n % 3]}', 'LEAK{n}@x.org', {n * 10})" for n in range(ROWS))
            root.sql(f"insert into orders values {values}")
            root.sql("insert into secrets values (1, 'LEAK of secrets')")
            root.sql("insert into notes values (1, 'for all')")
            root.sql(
                "create view by_region as select region, count(*) as n, min(email) as one from orders group by region"
            )
            root.sql(
                "create materialized view kept_up partitioned by (bucket(2, region)) as select region, email "
                "from orders"
            )
        yield cluster


def client_of(cluster, name, scheduler=0):
    return connect(f"grpc://{cluster.addresses()[scheduler]}", token=TOKENS[name])


@pytest.fixture(scope="module")
def clients(cluster):
    made = {name: client_of(cluster, name) for name in TOKENS}
    yield made
    for client in made.values():
        client.close()


@pytest.fixture(scope="module")
def anna(clients):
    return clients["anna"]


EMEA = [n for n in range(ROWS) if n % 3 == 0]


def rows(client, sql):
    return client.sql(sql).to_pylist()


def test_each_client_sees_his_rows_and_values(clients):
    found = rows(clients["anna"], "select * from orders order by id")
    assert [row["id"] for row in found] == EMEA
    assert {row["email"] for row in found} == {"*** for anna"}
    audit = rows(clients["bert"], "select * from orders order by id")
    assert len(audit) == ROWS
    assert audit[1]["email"] == "LEAK1@x.org"
    assert len(rows(clients["root"], "select * from orders")) == ROWS
    for name in ("nobody", "loader"):
        with pytest.raises(SqlError, match="do not let client"):
            rows(clients[name], "select * from orders")
    with pytest.raises(SqlError, match="do not let client 'anna'"):
        rows(clients["anna"], "select * from secrets")


ATTACKS = (
    "select max(case when region <> 'emea' then cast('LEAK' || id as bigint) else 1 end) as n from orders",
    "select count(*) as n from orders where case when region <> 'emea' then cast(email as bigint) else 1 end = 1",
    "select count(*) as n from orders where id = 1 and case when id = 1 then cast(email as bigint) else 1 end = 1",
    "select count(*) as n from orders where email like 'LEAK%'",
    "select count(*) as n from orders where email = 'LEAK3@x.org' and id = 3",
    "select min(email) as n, max(email) as m from orders",
    "select count(*) as n from orders where id in (1, 2, 4)",
    "select count(distinct region) as n from orders",
    "select max(id) as n, min(price) as m, sum(price) as s from orders",
    "select count(*) as n from orders a join orders b on a.email = b.email and a.id = b.id + 1",
    "select n.id from notes n join orders o on n.id = o.id - 1 where cast(o.price as tinyint) > -1000",
    "select n.id from notes n where exists (select 1 from orders o where o.id = n.id)",
    "select case when count(*) = 0 then 'none' else 'some' end as n from orders where price = 10",
    "select id from orders order by case when region <> 'emea' then cast(email as int) end, id limit 2",
    "select region, count(*) as n from orders group by region having min(email) like 'LEAK%'",
    "from by_region select *",
    "select list(email order by id) as n from orders",
    "with o as (select * from orders) select count(*) as n from o where region = 'apac'",
    "select count(*) as n from main.orders where region = 'apac'",
    "select count(*) as n from \"ORDERS\" where region = 'apac'",
    "select (select count(*) from orders where region = 'apac') as n",
    "select count(*) as n from orders full join notes using (id) where region = 'apac'",
    "select count(*) as n from (select * from orders union all select * from orders) where region <> 'emea'",
    "select unnest(array_agg(email)) as n from orders limit 3",
    "select column_name, min, max, count from (summarize orders)",
    "select * from orders tablesample 100 percent",
    "pivot orders on region using count(*)",
    "select * from (pivot orders on region in ('apac', 'emea') using count(email))",
    "select id, lag(email) over (order by id) as n from orders",
    "select max(columns('^e')) from orders",
    "from orders",
    "table orders",
)


def copy_of(clients):
    """A table that holds what anna sees, made by somebody else."""
    clients["root"].sql("drop table if exists seen")
    clients["root"].sql(
        "create table seen partitioned by (bucket(4, id)) as select id, region, '*** for anna' as email, price "
        "from orders where region = 'emea'"
    )


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_statement_sees_what_it_would_see_over_a_copy(clients, attack):
    copy_of(clients)
    expected = outcome(
        clients["root"],
        attack.replace("orders", "seen")
        .replace("ORDERS", "seen")
        .replace(
            "from by_region select *", "select region, count(*) as n, min(email) as one from seen group by region"
        ),
    )
    found = outcome(clients["anna"], attack)
    assert found == expected, attack
    assert "LEAK" not in found


def outcome(client, sql):
    try:
        table = client.sql(sql)
        return json.dumps(sorted(map(str, table.to_pylist())), default=str)
    except BallistaError as error:
        return type(error).__name__


CHANGES = (
    "insert into orders values (900, 'emea', 'x', 1)",
    "insert into orders (id, region) select id, region from orders",
    "update orders set price = price + 1",
    "update orders set price = cast(email as bigint) where region = 'apac'",
    "delete from orders",
    "delete from orders where cast(email as bigint) = 1",
    "truncate orders",
    "merge into orders using notes on orders.id = notes.id when matched then delete",
    "update orders set price = 1 where id = 1 returning *",
    "insert into orders values (1, 'emea', 'x', 1) on conflict do nothing returning *",
    "alter table orders rename to mine",
    "alter table orders rename column email to mail",
    "alter table orders drop column region",
    "drop table orders",
    "create or replace table orders as select 1 as id",
    "create materialized view kept partitioned by (bucket(2, id)) as select * from orders",
    "refresh materialized view kept_up",
    "create table stolen as select * from notes",
    "insert into secrets values (2, 'x')",
    "delete from secrets",
    "drop table secrets",
    "alter table secrets rename to mine",
    "create view secrets2 as select 1 as one",
    "create or replace view orders as select 1 as one",
    "create table mine (like secrets)",
    "insert into notes select id, text from secrets",
    "update notes set text = (select text from secrets limit 1)",
    "delete from notes where id in (select id from secrets)",
    "create table mine as select * from secrets",
    "create view own_view as select * from secrets",
    "comment on table secrets is 'x'",
)


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_is_not_covered_is_refused_and_changes_nothing(clients, change):
    before = state_of(clients)
    with pytest.raises(BallistaError) as raised:
        clients["anna"].sql(change)
    assert isinstance(raised.value, PlanningError), raised.value
    assert "LEAK" not in str(raised.value)
    assert state_of(clients) == before


def state_of(clients):
    root = clients["root"]
    tables = sorted(row["table"] for row in root.tables() if row["table"] not in ("history", "seen"))
    data = {name: rows(root, f"select * from {name} order by all") for name in ("orders", "secrets", "notes")}
    return tables, data


def test_what_is_granted_is_done(clients):
    anna, loader = clients["anna"], clients["loader"]
    anna.sql("insert into notes values (7, 'mine')")
    anna.sql("update notes set text = 'changed' where id = 7")
    assert rows(anna, "select text from notes where id = 7") == [{"text": "changed"}]
    anna.sql("delete from notes where id = 7")
    loader.sql("insert into notes values (8, 'loaded')")
    with pytest.raises(BallistaError):
        loader.sql("delete from notes where id = 8")
    with pytest.raises(BallistaError):
        loader.sql("insert into notes values (9, 'x') returning *")
    clients["root"].sql("delete from notes where id = 8")


def test_a_table_made_of_a_filtered_one_holds_what_its_maker_sees(clients):
    clients["anna"].sql("create table copied partitioned by (bucket(2, id)) as select * from orders")
    found = rows(clients["root"], "select * from copied")
    assert sorted(row["id"] for row in found) == EMEA
    assert {row["email"] for row in found} == {"*** for anna"}
    clients["anna"].sql("drop table copied")


def test_a_view_shows_each_what_he_may_see_and_nothing_of_its_maker(clients):
    clients["root"].sql("create or replace view mine as select id, email from orders")
    assert len(rows(clients["anna"], "select * from mine")) == len(EMEA)
    assert len(rows(clients["bert"], "select * from mine where email like 'LEAK%'")) == ROWS
    with pytest.raises(SqlError):
        rows(clients["loader"], "select * from mine")
    clients["root"].sql("drop view mine")


def test_the_rows_of_a_materialized_view_are_a_table_of_their_own(clients):
    with pytest.raises(SqlError, match="do not let client"):
        rows(clients["anna"], "select * from kept_up")
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            assert len(rows(clients["root"], "select * from kept_up")) == ROWS
            return
        except BallistaError:
            time.sleep(0.2)
    pytest.fail("it has no rows")


@pytest.mark.parametrize(
    "sql", ["explain select * from orders", "explain analyze select * from orders where region = 'apac'",
            "explain select count(*) from by_region"],
)  # fmt: skip
def test_how_a_statement_over_hidden_rows_runs_is_not_told(clients, sql):
    with pytest.raises(Unsupported, match="neither explained"):
        clients["anna"].sql(sql)
    assert "fragment" in str(clients["bert"].sql("explain select id from notes"))
    with pytest.raises(Unsupported):
        clients["anna"].explain("select * from orders")


def test_the_statistics_of_an_answer_say_nothing_of_partitions(clients):
    answer = clients["anna"].query("select * from orders where id = 1")
    assert answer.table.num_rows == 0
    assert not {"partitions", "partitions_total", "legs", "shipped_bytes"} & answer.stats.keys()


def shown_of(client, text):
    """What a client finds in the history of what it sent that has this text in it."""
    sql = "select task, input, rows from runtime.{}task_history"
    found = [rows(client, sql.format(which)) for which in ("", "local_")]
    return [[row for row in one if text in row["input"] and "task_history" not in row["input"]] for one in found]


@pytest.mark.parametrize("table", ["orders", "notes"])
def test_the_history_of_its_own_statements_is_no_oracle_of_hidden_values(clients, table):
    """By the number of its legs a statement would tell in which partitions there are rows that nobody shows."""
    for number in (1, 2, 77, 78):
        assert (
            len(rows(clients["anna"], f"select 'asked {table}', count(*) from {table} where id = {number}")) == 1
        )
    for found in shown_of(clients["anna"], f"asked {table}"):
        assert {row["task"] for row in found} <= {"statement"}
    assert len(shown_of(clients["anna"], f"asked {table}")[0]) == 4
    rows(clients["root"], "select 'asked by root', count(*) from orders where id = 1")
    legs = [row for row in rows(clients["root"], "select task from runtime.task_history") if row["task"] == "leg"]
    assert legs, "an operator sees how statements are carried out"
    for name in ("anna", "nobody"):
        others = rows(clients[name], "select task, user from runtime.task_history")
        assert {row["user"] for row in others} <= {name}
        assert {row["user"] for row in clients[name].tasks()} <= {name}
        assert {row["kind"] for row in clients[name].tasks()} <= {"statement", "change", "query"}


def test_how_many_partitions_a_table_has_is_not_told_where_rows_are_hidden(clients):
    sql = "select table_name, partitions, serving, revision from runtime.tables where table_name in ('orders', 'notes')"
    told = {row["table_name"]: [*row.values()][1:] for row in rows(clients["anna"], sql)}
    assert told["orders"] == [None, None, None]
    assert told["notes"][:2] == [3, 3]  # one of nulls
    for row in clients["anna"].tables():
        assert (row["partitions"] is None) == (row["table"] == "orders"), row
    assert {row["partitions"] for row in clients["bert"].tables() if row["table"] == "orders"} == {4}


def test_nobody_finds_out_about_a_table_by_a_place_beside_it(clients):
    def said(beside, buckets):
        with pytest.raises(SqlError) as raised:
            clients["anna"].create_table(
                "mine",
                schema=pa.schema([("id", pa.int64())]),
                partition_by=[f"bucket({buckets}, id)"],
                colocate_with=beside,
            )
        return str(raised.value)

    for beside in ("secrets", "nonesuch", "kept_up"):
        for buckets in (2, 4):
            wanted = f"the policies of this cluster do not let client 'anna' select table '{beside}'"
            assert said(beside, buckets) == wanted
    assert "co-location is not done for client 'anna' with table 'orders'" in said("orders", 4)


def test_lists_name_what_is_the_clients_business_alone(clients):
    names = {row["table"] for row in clients["anna"].tables()}
    assert {"orders", "notes"} <= names
    assert not {"secrets", "kept_up", "history"} & names
    assert clients["nobody"].tables() == []
    told = rows(clients["anna"], "select table_name, rows, bytes from runtime.tables")
    assert {"table_name": "orders", "rows": None, "bytes": None} in told
    assert "secrets" not in str(told)
    assert {row["table_name"] for row in rows(clients["anna"], "select * from runtime.partitions")} <= {
        "notes", "copied", "mine",
    }  # fmt: skip
    for sql in ("show tables", "show all tables", "select * from information_schema.columns",
                "select * from information_schema.tables", "select * from information_schema.views"):  # fmt: skip
        assert "secrets" not in str(rows(clients["anna"], sql)), sql
        assert "kept_up" not in str(rows(clients["anna"], sql)), sql
    for sql in ("describe secrets", "show create table secrets"):
        with pytest.raises(SqlError):
            rows(clients["anna"], sql)


def test_history_shows_nobody_the_texts_of_others(clients):
    rows(clients["bert"], "select 'of bert alone' as text")
    for sql in ("select * from runtime.task_history", "select * from runtime.local_task_history"):
        assert "of bert alone" not in str([row for row in rows(clients["anna"], sql) if row["user"] != "anna"])
    with pytest.raises(SqlError):
        rows(clients["anna"], "select * from history")
    until = time.monotonic() + 30
    while "of bert alone" not in str(rows(clients["root"], "select * from history")):
        assert time.monotonic() < until
        time.sleep(0.3)


def test_parameters_prepared_statements_and_other_dialects_make_no_difference(clients):
    anna = clients["anna"]
    assert anna.sql("select count(*) as n from orders where region = ?", parameters=["apac"])["n"][0].as_py() == 0
    found = anna.sql("SELECT COUNT(*) AS n FROM `orders`", dialect="spark")
    assert found["n"][0].as_py() == len(EMEA)


def test_the_same_statement_of_one_client_is_no_answer_for_another(clients):
    """Plans and templates are remembered, and answers are not; many at once and in turns."""

    def ask(number):
        name = ("anna", "bert", "root")[number % 3]
        found = rows(
            clients[name], f"select count(*) as n, min(email) as one from orders where price >= {number // 30}"
        )
        return name, found[0]["n"], found[0]["one"]

    with ThreadPoolExecutor(6) as threads:
        answers = set(threads.map(ask, range(90)))
    for name, count, one in answers:
        assert one.startswith("*** for anna" if name == "anna" else "LEAK"), answers
        assert count <= (len(EMEA) if name == "anna" else ROWS)


def test_jobs_run_as_their_client_at_whatever_scheduler(cluster, clients):
    for scheduler in (0, 1):
        with client_of(cluster, "anna", scheduler) as anna:
            job = anna.submit("select count(*) as n, min(email) as one from orders")
            assert job.result().to_pylist() == [{"n": len(EMEA), "one": "*** for anna"}]
            job = anna.submit("delete from orders")
            with pytest.raises(BallistaError):
                job.result()
    assert len(rows(clients["root"], "select * from orders")) == ROWS


def test_ingests_and_tables_from_rows_are_asked_for_rights(clients):
    table = pa.table({"id": [1], "text": ["x"]})
    for name, mode in (
        ("secrets", "append"),
        ("stolen", "create"),
        ("orders", "replace"),
        ("secrets", "create_append"),
    ):
        with pytest.raises(SqlError):
            clients["anna"].ingest(name, table, mode=mode)
    clients["anna"].ingest("notes", pa.table({"id": [77], "text": ["x"]}))
    with pytest.raises(SqlError):
        clients["loader"].ingest("notes", table, mode="replace")
    clients["root"].sql("delete from notes where id = 77")
    with pytest.raises(SqlError):
        clients["anna"].create_table("stolen", schema=table.schema, partition_by=["bucket(2, id)"])
    with pytest.raises(SqlError):
        clients["anna"].reconcile_all()


def test_read_jobs_and_places_give_no_part_of_what_is_not_seen_whole(cluster, clients):
    url = f"grpc://{cluster.addresses()[0]}"
    for query in ("select * from orders", "select id from orders where region = 'emea'", "select count(*) from orders",
                  "select * from by_region", "select * from secrets"):  # fmt: skip
        with pytest.raises(BallistaError, match="polic"):
            read_job(url, query, token=TOKENS["anna"])
    for table in ("orders", "secrets"):
        with pytest.raises(BallistaError):
            read_job(url, table=table, token=TOKENS["anna"])
        with pytest.raises(BallistaError):
            table_place(url, table, token=TOKENS["anna"])
    with read_job(url, "select * from notes", token=TOKENS["anna"]) as job:
        assert job.partitions
    with read_job(url, "select * from orders", token=TOKENS["root"]) as job:
        assert job.partitions


def test_write_jobs_are_begun_and_committed_with_rights_alone(cluster, clients):
    url = f"grpc://{cluster.addresses()[0]}"
    for name, table, mode in (
        ("anna", "orders", "append"), ("anna", "secrets", "append"), ("loader", "notes", "overwrite"),
        ("nobody", "notes", "append"),
    ):  # fmt: skip
        with pytest.raises(SqlError):
            write_job(url, table, mode=mode, token=TOKENS[name])
    with write_job(url, "notes", token=TOKENS["loader"]):
        pass


def test_drivers_are_given_rows_and_no_partitions_of_what_is_hidden(cluster, clients):
    options = {DatabaseOptions.AUTHORIZATION_HEADER.value: f"Bearer {TOKENS['anna']}"}
    with flightsql.connect(f"grpc://{cluster.addresses()[0]}", db_kwargs=options) as link, link.cursor() as cursor:
        cursor.execute("select id, email from orders")
        assert sorted(cursor.fetchall()) == [(n, "*** for anna") for n in EMEA]
        partitions, _ = cursor.adbc_execute_partitions("select id, region from orders")
        assert len(partitions) == 1
        cursor.adbc_read_partition(partitions[0])
        assert sorted(id_ for id_, _ in cursor.fetchall()) == EMEA
        with pytest.raises(adbc_driver_manager.Error):
            cursor.execute("select * from secrets")
        found = link.adbc_get_objects(depth="tables").read_all().to_pylist()
        assert "orders" in str(found)
        assert "secrets" not in str(found)


def test_spark_reads_nothing_of_which_something_is_hidden(clients):
    for engine in ("spark", "auto"):
        with pytest.raises(BallistaError, match="polic"):
            clients["anna"].sql("select * from orders", engine=engine)


def over_http(cluster, name, path, body=None, method=None, url=None):
    request = urllib.request.Request(
        url or f"{cluster.http_url('scheduler-1')}{path}", data=None if body is None else body.encode(), method=method,
        headers={"Authorization": f"Bearer {TOKENS[name]}", "Content-Type": "text/plain"},
    )  # fmt: skip
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_figures_are_for_operators(cluster):
    assert over_http(cluster, "root", "", url=cluster.status_url("scheduler-1", metrics=True))[0] == 200
    status, said = over_http(cluster, "anna", "", url=cluster.status_url("scheduler-1", metrics=True))
    assert status == 400
    assert "orders" not in said


def test_executors_are_looked_at_by_operators(cluster):
    """They know clients by the same tokens, and not what is hidden from whom."""
    url = cluster.status_url("executor-1")
    for path in ("/status", "/v1/status", "/tasks", "/v1/tasks"):
        assert over_http(cluster, "root", "", url=url + path)[0] == 200
        for name in ("anna", "nobody"):
            status, said = over_http(cluster, name, "", url=url + path)
            assert status == 400, (path, said)
            assert "is for operators of the cluster" in said
    assert over_http(cluster, "anna", "", url=f"{url}/health")[0] == 200
    metrics = cluster.status_url("executor-1", metrics=True)
    assert over_http(cluster, "anna", "", url=metrics)[0] == 400
    assert over_http(cluster, "root", "", url=metrics)[0] == 200
    for name, holds in (("root", True), ("anna", False)):
        asked = urllib.request.Request(f"{url}/v1/events", headers={"Authorization": f"Bearer {TOKENS[name]}"})
        with urllib.request.urlopen(asked, timeout=60) as events:
            seen = b""
            while b"event: memory" not in seen:
                seen += events.readline()
            seen += events.readline()
        assert (b"is for operators of the cluster" not in seen) == holds, seen


def test_http_decides_as_flight_does(cluster, clients):
    found = over_http(cluster, "anna", "/v1/sql", "select count(*) as n from orders")
    assert json.loads(found[1])[0]["n"] == len(EMEA), found
    for sql in ("select * from secrets", "delete from orders", "explain analyze select * from orders"):
        status, said = over_http(cluster, "anna", "/v1/sql", sql)
        assert status == 400, (sql, status)
        assert "LEAK" not in said
    for path in ("/v1/datasets", "/v1/status", "/status"):
        said = over_http(cluster, "anna", path)[1]
        assert "orders" in said
        assert "secrets" not in said, path
        assert "secrets" in over_http(cluster, "root", path)[1]
    for name in ("secrets", "orders"):
        path = f"/v1/datasets/{name}/acceleration/refresh"
        assert over_http(cluster, "bert", path, "", "POST")[0] in (400, 404)
    mine = [
        one
        for one in json.loads(over_http(cluster, "anna", "/v1/tasks")[1])
        if "from orders" in (one["text"] or "")
    ]
    for one in mine:
        assert over_http(cluster, "anna", f"/v1/tasks/{one['task_id']}/plan")[0] == 404
    own = [one for one in json.loads(over_http(cluster, "root", "/v1/tasks")[1]) if one["user"] == "root"]
    assert 200 in {over_http(cluster, "root", f"/v1/tasks/{one['task_id']}/plan")[0] for one in own}
