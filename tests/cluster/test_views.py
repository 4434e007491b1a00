"""A view is its query wherever it is read: the answers of one DuckDB, one definition at a time, and its own columns."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import adbc_driver_flightsql.dbapi as flightsql
import duckdb
import pyarrow as pa
import pytest

from ballista_py import LocalCluster, connect
from ballista_py.engines.same_answer import difference
from ballista_py.errors import BallistaError, ConfigError, SqlError

pytestmark = pytest.mark.cluster
ROWS = "(1, 10, 'u', 5), (1, 2, 'v', 6), (2, null, 'u', 7), (3, 10, null, 1), (4, 2, 'it''s', 4)"
VIEWS = (
    "create view v as select g, x, d from s where x > 1",
    'create view renamed (a, "B c") as select g, sum(x) from s group by g',
    "create view unnamed as select count(*), max(x) + 1 from s",
    'create view outer_v as with q as (from v) select q.g, r."B c" as total from q join renamed r on r.a = q.g -- end',
    "create view of_values as values (1, 'x'), (2, 'y')",
    "create view pivoted as pivot s on d in ('u', 'v') using sum(x) group by g",
    "create view halves as select g, x / 2 as half, x // 2 as whole from s union all select 9, 0.5, 1;",
)


@pytest.fixture(scope="module")
def site():
    with LocalCluster(schedulers=2, executors=2) as cluster, duckdb.connect() as single:
        for place in (cluster.sql, single.execute):
            for name in ("s", "other"):
                keys = " partitioned by (bucket(3, g))" if place == cluster.sql else ""
                place(f"create table {name} (g int, b int, d varchar, x int){keys}")
            place(f"insert into s values {ROWS}")
            for view in VIEWS:
                place(view)
        yield cluster, single


@pytest.mark.parametrize(
    "query",
    [
        "select * from v",
        "from main.v where g = 1",
        "select v.g, V.x from v",
        "select a.*, b.d from v a join v as b on a.g = b.g and a.x <= b.x",
        "select p, q from v as z(p, q, r) where r = 'u'",
        "from w: v select w.g",
        "select * from renamed where a in (select g from v)",
        'select "B c" from renamed order by 1',
        'select "count_star()", * from unnamed',
        "select * from outer_v, of_values",
        "from of_values",
        "from pivoted",
        "from halves",
        "with v as (select 7 as seven) select * from v, renamed",
        "with v as (select g from v where x > 5) select * from v",
        "with recursive v as (select 1 as n union all select n + 1 from v where n < 4) from v",
        "select (select max(x) from v) as m, exists (from renamed where a = 77) as e",
        "select * from (v join renamed on v.g = renamed.a)",
        "select * from s join (select g from v) using (g)",
        "table v",
        "summarize renamed",
        "pivot v on d using sum(x)",
        "select * from (pivot v on d using count(*) group by g) p join renamed on p.g = a",
        "from v union all by name select g, d from v",
        "select count(*) from v a, v b, v c",
        "select g, lag(x) over (partition by d order by x) as l from v",
        "describe v",
        "describe select * from renamed",
    ],
)
def test_a_query_of_views_gives_what_one_node_gives(site, query):
    cluster, single = site
    wanted = single.sql(query.replace("main.v", "v")).to_arrow_table()
    assert difference(cluster.sql(query), wanted) is None


def test_partitions_are_pruned_through_a_view(site):
    cluster, _ = site
    for query in ("select * from v where g = 1", "select z.x from v z where z.g = 1", "from outer_v where g = 1"):
        assert "s: 1 of 4 partitions, pruned by s.g = 1" in cluster.explain(query)
    inlined = "select * from (select g, x, d from s where x > 1) z where g = 1"
    legs = [cluster.explain(query).split("leg")[0] for query in ("select * from v where g = 1", inlined)]
    assert legs[0] == legs[1]


def test_what_changes_a_table_may_read_views_and_changes_no_view(site):
    cluster, single = site
    for place in (cluster.sql, single.execute):
        place("insert into other select g, 0, d, x from v")
        place('update other set b = (select max("B c") from renamed) where g in (select g from v)')
        place('merge into other using renamed on other.g = renamed.a when matched then update set x = "B c"')
        place("delete from other using v where other.g = v.g and v.x = 7")
        place("create table copied as select a, d from renamed join v on a = g")
    for table in ("other", "copied"):
        assert difference(cluster.sql(f"from {table}"), single.sql(f"from {table}").to_arrow_table()) is None
    rows = pa.table({"g": pa.array([1], pa.int32())})
    for change in (
        "insert into v values (1, 2, 'x')",
        "update v set x = 1",
        "delete from v",
        "truncate table v",
        "merge into v using s on v.g = s.g when matched then delete",
        lambda: cluster.ingest("v", rows),
        lambda: cluster.ingest("v", rows, mode="upsert"),
    ):
        with pytest.raises(SqlError, match="'v' is a view"):
            change() if callable(change) else cluster.sql(change)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("create table v (a int)", "'v' is a view"),
        ("create table if not exists v (a int)", "'v' is a view"),
        ("create or replace table v (a int)", "'v' is a view"),
        ("create table v as select 1 as a", "'v' is a view"),
        ("create table t2 like v", "'v' is a view"),
        ("alter table s rename to v", "'v' is a view"),
        ("alter table v add column a int", "'v' is a view"),
        ("alter view v rename to w", "ALTER VIEW cannot be run here: CREATE OR REPLACE VIEW makes it anew"),
        ("drop table v", "'v' is a view"),
        ("drop table if exists v", "'v' is a view"),
        ("drop view s", "'s' is a table"),
        ("drop view v, nothing", "view 'nothing' does not exist: nothing was dropped"),
        ("create view v as select 1", "view 'v' exists already"),
        ("create view s as select 1", "'s' is a table"),
        ("create view w as select a from nothing", "nothing"),
        ("create view w as select * from w", "reads itself|would read itself"),
        ("create or replace view v as from outer_v", "would read itself: v reads outer_v reads v"),
        ("create view w as select g, g from s", "two columns named 'g'"),
        ("create view w (a) as select 1, 2", "names 1 columns, and its query gives 2"),
        ("create view w as select * from s where g = ?", "parameter"),
        ("create view w as pivot s on d using sum(x)", "PIVOT without IN"),
        ("create view w as select * from read_csv('/etc/passwd')", "read_csv"),
        ("create view w with (refresh_every = '1m') as from s", "no options, no schedule"),
        ("create view w as select * from runtime.nodes", "told by the cluster"),
    ],
)
def test_what_cannot_be_is_refused_by_name(site, statement, said):
    cluster, _ = site
    with pytest.raises((SqlError, ConfigError), match=said):
        cluster.sql(statement)
    assert "w" not in cluster.sql("show tables").column("name").to_pylist()


def test_views_are_listed_as_views(site):
    cluster, _ = site
    listed = cluster.sql("select table_name, table_type from information_schema.tables order by 1").to_pylist()
    assert {"table_name": "v", "table_type": "VIEW"} in listed
    assert {"table_name": "s", "table_type": "BASE TABLE"} in listed
    text = cluster.sql("select view_definition from information_schema.views where table_name = 'v'").to_pylist()
    assert text == [{"view_definition": "select g, x, d from s where x > 1"}]
    columns = cluster.sql("show columns from renamed").select(["column_name", "column_type"]).to_pylist()
    assert [tuple(one.values()) for one in columns] == [("a", "INTEGER"), ("B c", "HUGEINT")]
    assert "v" in cluster.sql("show tables").column("name").to_pylist()
    created = cluster.sql("show create table renamed").column(0).to_pylist()[0]
    assert created == 'CREATE VIEW "renamed" ("a", "B c") AS select g, sum(x) from s group by g'
    rows = {row["table"]: row for row in cluster.tables()}
    assert rows["renamed"]["type"] == "VIEW"
    assert [c["name"] for c in rows["renamed"]["columns"]] == ["a", "B c"]
    cluster.sql("comment on view v is 'what is larger than one'")
    told = cluster.sql("select TABLE_COMMENT from information_schema.tables where table_name = 'v'")
    assert told.column(0).to_pylist() == ["what is larger than one"]
    with flightsql.connect(cluster.flight_sql_url(), autocommit=True) as connection:
        found = connection.adbc_get_objects(depth="tables", table_types_filter=["VIEW"]).read_all().to_pylist()
        names = {t["table_name"] for c in found for d in c["catalog_db_schemas"] for t in d["db_schema_tables"]}
        assert names == {"v", "renamed", "unnamed", "outer_v", "of_values", "pivoted", "halves"}
        assert {"TABLE", "VIEW"} == set(connection.adbc_get_table_types())
        with connection.cursor() as cursor:
            cursor.execute("select x from v where g = ? order by x", (1,))
            assert cursor.fetchall() == [(5,), (6,)]


def test_a_view_has_the_columns_of_its_making(site):
    cluster, _ = site
    cluster.sql("create table base (id int, n int) partitioned by (bucket(2, id))")
    cluster.sql("insert into base values (1, 2)")
    cluster.sql("create view all_of as select * from base")
    cluster.sql("create view above as select id + n as added from all_of")
    cluster.sql("alter table base add column later varchar default 'x'")
    assert cluster.sql("from all_of").column_names == ["id", "n"]
    assert cluster.sql("select added from above").to_pylist() == [{"added": 3}]
    cluster.sql("alter table base alter column n type bigint")
    with pytest.raises(SqlError, match=r"view 'all_of' cannot be read: its column 'n' was INTEGER .* BIGINT now"):
        cluster.sql("from all_of")
    cluster.sql("alter table base rename column n to m")
    with pytest.raises(SqlError, match="view 'all_of' cannot be read: its query gives no column 'n' any more"):
        cluster.sql("select * from s, all_of")
    cluster.sql("drop table base")
    with pytest.raises(SqlError, match=r"view 'above' cannot be read: view 'all_of' cannot be read: .*base"):
        cluster.sql("insert into other select 1, added, '', 1 from above")
    cluster.sql("drop view all_of, above")


def test_the_same_statement_again_does_nothing(site):
    cluster, _ = site
    client = cluster
    client.sql("create view once as select 1 as a", token="make")
    client.sql("drop view once", token="end")
    client.sql("create view once as select 1 as a", token="make")
    client.sql("drop view if exists once")
    client.sql("create view if not exists once as select 2 as a", token="again")
    client.sql("create or replace view once as select 3 as a")
    client.sql("create view if not exists once as select 2 as a", token="again")
    assert client.sql("from once").to_pylist() == [{"a": 3}]
    client.sql("drop view once", token="end")
    assert client.sql("from once").to_pylist() == [{"a": 3}]
    client.sql("drop view once")


def test_every_scheduler_reads_the_newest_definition_whole(site):
    cluster, _ = site
    one, two = (connect(address, tls=cluster.tls) for address in cluster.addresses())
    for number in range(5):
        one.sql(f"create or replace view newest as select {number} as a, {number} as b from s")
        assert two.sql("select distinct a, b from newest").to_pylist() == [{"a": number, "b": number}]
    one.sql("drop view newest")
    with pytest.raises(SqlError, match="newest"):
        two.sql("from newest")
    one.sql("create table newest (a int) partitioned by (a)")
    assert two.sql("from newest").num_rows == 0
    one.sql("drop table newest")
    two.sql("create view newest as select 8 as a")
    assert one.sql("from newest").to_pylist() == [{"a": 8}]
    one.sql("drop view newest")


def test_of_a_table_and_views_of_one_name_made_at_once_one_is(site):
    cluster, _ = site
    statements = [
        "create table raced (a int) partitioned by (a)",
        "create view raced as select 1 as a",
        "create view raced as select 2 as a",
    ]

    def run(address: str, statement: str) -> str | BallistaError:
        try:
            with connect(address, tls=cluster.tls) as client:
                client.sql(statement)
        except BallistaError as error:
            return error
        return statement

    for _ in range(3):
        with ThreadPoolExecutor(len(statements)) as pool:
            addresses = [cluster.addresses()[number % 2] for number in range(len(statements))]
            found = [*pool.map(run, addresses, statements)]
        made = [one for one in found if isinstance(one, str)]
        errors = [one for one in found if not isinstance(one, str)]
        assert len(made) == 1, found
        assert all("is a view" in str(e) or "is a table" in str(e) or "exists" in str(e) for e in errors)
        cluster.sql("drop table raced" if "table" in made[0] else "drop view raced")


def test_what_views_grow_to_has_the_bounds_of_a_statement(site):
    cluster, _ = site
    cluster.sql(f"create view long as select g from s where g in ({', '.join(map(str, range(4_000)))})")
    assert cluster.sql("select count(*) as n from long").to_pylist() == [{"n": 5}]
    with pytest.raises(SqlError, match="with the views that it reads written out, the statement has more than"):
        cluster.sql("select 1 from " + ", ".join(f"long v{number}" for number in range(30)))
    with pytest.raises(SqlError, match="characters when they are written out"):
        cluster.sql("select 1 from " + ", ".join(f"long v{number}" for number in range(60)))
    with pytest.raises(SqlError, match="written out"):
        cluster.sql(
            "create view wide as select a.g from "
            + ", ".join(f"long {name}" for name in "abcdefghijklmnopqrstuvwxyz")
        )
    cluster.sql("drop view long")


def test_a_statement_reads_one_definition_while_others_replace_it(site):
    cluster, _ = site
    one, two = (connect(address, tls=cluster.tls) for address in cluster.addresses())
    one.sql("create view moving as select 0 as a, 0 as b from s")

    def replace() -> None:
        for number in range(1, 16):
            one.sql(f"create or replace view moving as select {number} as a, {number} as b from s")

    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(replace)
        seen = []
        while not writer.done():
            rows = two.sql(
                "select distinct x.a, y.b from moving x, moving y where exists (from moving z where z.a = x.b)"
            )
            assert rows.num_rows == 1
            seen += [tuple(row.values()) for row in rows.to_pylist()]
        writer.result()
    assert all(a == b for a, b in seen)
    assert seen == sorted(seen)
    assert two.sql("select distinct a from moving").to_pylist() == [{"a": 15}]
    one.sql("drop view moving")


@pytest.mark.long
def test_a_scheduler_that_is_killed_leaves_the_old_view_or_the_new_one(site):
    """The statement that it did not answer is sent again, to another one, and counts once."""
    cluster, _ = site
    addresses = cluster.addresses()
    cluster.sql("create view kept as select 0 as a")

    def replace(number: int) -> None:
        with connect(addresses[0], tls=cluster.tls) as client:
            client.sql(f"create or replace view kept as select {number} as a", token=f"kept {number}")

    with connect(addresses[1], tls=cluster.tls) as other, ThreadPoolExecutor(1) as pool:
        for number in range(1, 4):
            replace(number)
        last = pool.submit(lambda: [replace(number) for number in range(4, 400)])
        while other.sql("from kept").to_pylist()[0]["a"] < 6:
            pass
        cluster.kill("scheduler-1")
        with pytest.raises(BallistaError):
            last.result()
        found = other.sql("from kept").to_pylist()[0]["a"]
        other.sql("create or replace view kept as select 1000 as a", token="kept after")
        for number in (found, found + 1):  # whether the second one landed nobody was told
            other.sql(f"create or replace view kept as select {number} as a", token=f"kept {number}")
        after = other.sql("from kept").to_pylist()[0]["a"]
        assert after in (1000, found + 1)  # what counted before counts no second time
    cluster.start("scheduler-1")
    for address in cluster.addresses():
        with connect(address, tls=cluster.tls) as client:
            assert client.sql("from kept").to_pylist() == [{"a": after}]
            assert client.sql("select * from v where g = 1").num_rows == 2
            client.sql("create view if not exists again as from v")
    cluster.sql("drop view kept, again")
