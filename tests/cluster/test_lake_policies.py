"""Policies hold for tables that are scanned where they lie: what a client may not see is in nothing that he is told."""

import deltalake
import pyarrow as pa
import pytest

from ballista_py import LocalCluster, connect, read_job
from ballista_py.errors import BallistaError, SqlError

pytestmark = pytest.mark.cluster
TOKENS = {name: f"{name}-token-0123456789abcdef" for name in ("root", "anna", "nobody")}
APP = """
version: v1
name: shop
revision: 1
policies:
  operators: [ops]
  grants:
    - {to: [staff], may: [select], tables: [orders, by_region, mine]}
    - {to: ["user:anna"], may: [create, insert, select, change], tables: [mine, other]}
  rows:
    - {tables: [orders], where: "list_contains(current_groups(), region)"}
  masks:
    - {tables: [orders], columns: [email], value: "'*** for ' || current_user()"}
"""
ROWS = 6_000
REGIONS = ("emea", "apac", "amer")
EMEA = [n for n in range(ROWS) if n % 3 == 0]


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lake-policies")
    for part in range(6):
        ids = [n for n in range(ROWS) if n * 6 // ROWS == part]
        rows = pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "region": [REGIONS[n % 3] for n in ids],
                "email": [f"LEAK{n}@x.org" for n in ids],
                "price": pa.array([n * 10 for n in ids], pa.int64()),
            }
        )
        deltalake.write_deltalake(str(folder / "orders"), rows, mode="append")
    (folder / "tokens").write_text(
        f"root {TOKENS['root']} groups=ops\nanna {TOKENS['anna']} groups=staff,emea\nnobody {TOKENS['nobody']}\n"
    )
    (folder / "app.yaml").write_text(APP)
    return folder


@pytest.fixture(scope="module", params=["2000", "67108864"], ids=["at executors", "at the scheduler"])
def cluster(lake, request):
    options = {
        "flight-tokens-file": str(lake / "tokens"),
        "lake-locations": str(lake),
        "lake-task-bytes": request.param,
    }
    with LocalCluster(
        schedulers=1, executors=2, app=lake / "app.yaml", token=TOKENS["root"], node_options=options
    ) as cluster:
        with client_of(cluster, "root") as root:
            root.create_table("orders", scan={"format": "delta", "path": str(lake / "orders")})
            root.sql(
                "create view by_region as select region, count(*) n, min(email) one from orders group by region"
            )
        yield cluster


def client_of(cluster, name):
    return connect(f"grpc://{cluster.addresses()[0]}", token=TOKENS[name])


@pytest.fixture(scope="module")
def anna(cluster):
    with client_of(cluster, "anna") as client:
        yield client


@pytest.fixture(scope="module")
def root(cluster):
    with client_of(cluster, "root") as client:
        yield client


def answer(client, sql):
    return client.sql(sql).to_pylist()


def test_each_client_sees_his_rows_and_values(anna, root, cluster):
    found = answer(anna, "select * from orders order by id")
    assert [row["id"] for row in found] == EMEA
    assert {row["email"] for row in found} == {"*** for anna"}
    assert answer(anna, "select * from by_region") == [{"region": "emea", "n": len(EMEA), "one": "*** for anna"}]
    assert answer(anna, "select count(*) as n from orders for version as of 0") == [{"n": len(EMEA) // 6 + 1}]
    assert answer(root, "select count(*) as n, min(email) as e from orders") == [{"n": ROWS, "e": "LEAK0@x.org"}]
    with client_of(cluster, "nobody") as nobody:
        for sql in ("select * from orders", "describe orders", "select * from orders version as of 0"):
            with pytest.raises(SqlError, match=r"do not let client|does not exist|no table of which"):
                nobody.sql(sql)
        assert answer(nobody, "show tables") == []


ATTACKS = {
    "select max(case when region <> 'emea' then cast('LEAK' || id as bigint) else 1 end) as n from orders": 1,
    "select count(*) as n from orders where case when region <> 'emea' then email::bigint else 1 end = 1": 2_000,
    "select count(*) as n from orders where email like 'LEAK%'": 0,
    "select count(*) as n from orders where email = 'LEAK3@x.org' and id = 3": 0,
    "select count(*) as n from orders where id in (1, 2, 4)": 0,
    "select count(*) as n from orders where region = 'apac'": 0,
    "select count(distinct region) as n from orders": 1,
    "select max(id) as n from orders": 5_997,
    "select min(id) as n from orders where price > 10": 3,
    "select count(*) as n from orders a join orders b on a.id = b.id + 1": 0,
    "select count(*) as n from orders a join orders version as of 0 b on a.id = b.id + 1": 0,
    "select case when count(*) = 0 then 0 else 1 end as n from orders where price = 10": 0,
    "select count(*) as n from orders where 1 / (case when region = 'emea' then 1 else 0 end) = 1": 2_000,
    "select count(*) as n from (select * from orders order by email desc limit 5000)": 2_000,
    "select count(*) as n from orders where exists (select 1 from orders o where o.id = orders.id + 1)": 0,
    "select (select count(*) from orders) as n": 2_000,
    "with orders as (select * from orders) select count(*) as n from orders": 2_000,
}


@pytest.mark.parametrize("sql", ATTACKS)
def test_nothing_of_a_statement_is_evaluated_on_what_is_hidden(anna, sql):
    assert answer(anna, sql) == [{"n": ATTACKS[sql]}]


def test_the_name_of_a_snapshot_opens_nothing(anna, root, cluster):
    text = root.explain("select count(*) from orders")["text"]
    name = next(word for word in text.split('"') if word.startswith("orders@"))
    assert answer(anna, f'select count(*) as n, min(email) as e from "{name}"') == [
        {"n": 2_000, "e": "*** for anna"}
    ]
    with client_of(cluster, "nobody") as nobody, pytest.raises(SqlError):
        nobody.sql(f'select count(*) from "{name}"')


def test_no_condition_of_the_user_prunes_a_file_of_a_guarded_table(anna):
    """Or the time of the answer, and an error of a file that only his condition has read, would tell of hidden rows."""
    for sql in ("explain select * from orders", "explain analyze select * from orders where id = 1"):
        with pytest.raises(BallistaError, match="neither explained"):
            anna.sql(sql)
    job = anna.submit("select count(*) as n from orders where email like 'LEAK%'")
    assert job.result().to_pylist() == [{"n": 0}]


def test_other_doors_are_closed_as_well(anna, root, cluster, lake):
    address = f"grpc://{cluster.addresses()[0]}"
    with pytest.raises(BallistaError):
        read_job(address, "select * from orders", token=TOKENS["anna"])
    anna.sql("create table mine as select * from orders")
    assert answer(root, "select count(*) as n, min(email) as e from mine") == [{"n": 2_000, "e": "*** for anna"}]
    for sql in (
        "drop table orders",
        "insert into orders select * from orders",
        f"create external table orders stored as delta location '{lake}/orders'",
        f"create or replace table orders using delta location '{lake}/orders'",
    ):
        with pytest.raises(BallistaError, match=r"do not let|policies|is not done"):
            anna.sql(sql)
    shown = next(row for row in anna.tables() if row["table"] == "orders")
    assert "LEAK" not in str(shown)


def test_a_table_that_a_client_makes_of_guarded_files_is_another_table(anna, lake):
    """Whoever may create a table and name its place reads what lies there: `lake_locations` is what bounds that."""
    anna.sql(f"create external table other stored as delta location '{lake}/orders'")
    assert answer(anna, "select count(*) as n from other") == [{"n": ROWS}]
    anna.sql("drop table other")
