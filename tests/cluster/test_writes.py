"""Writes through real processes: what is acknowledged is there, once, whatever was resent."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute
import pytest

from ballista_py import LocalCluster
from ballista_py.errors import BallistaError, ConfigError, InvalidData, MergeTooLarge, SchemaMismatch, SqlError
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.stores.store import open_store
from ballista_py.storage.manifest import ManifestDocument

pytestmark = pytest.mark.cluster

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("kind", pa.string()), ("size", pa.float64())])


@pytest.fixture(scope="module")
def small():
    with LocalCluster(schedulers=2, executors=2) as cluster:
        yield cluster


@pytest.fixture
def table(small, request):
    name = f"t{abs(hash(request.node.name)) % 10**9}"
    small.create_table(name, schema=SCHEMA, partition_by=["bucket(4, id)"])
    yield name
    small.drop_table(name)


def rows(first: int, count: int) -> pa.Table:
    ids = range(first, first + count)
    columns = [list(ids), [f"k{n % 3}" for n in ids], [n / 2 for n in ids]]
    return pa.table(columns, schema=SCHEMA)


def count(cluster, table: str, where: str = "true") -> tuple[int, int | None]:
    (row,) = cluster.sql(f"select count(*) as n, sum(id) as s from {table} where {where}").to_pylist()
    return row["n"], row["s"]


def affected(answer: pa.Table) -> int:
    return answer.to_pylist()[0]["affected_rows"]


def test_rows_that_were_ingested_are_read_at_once(small, table):
    assert small.ingest(table, rows(0, 1_000)) == 1_000
    assert count(small, table) == (1_000, 499_500)


def test_a_token_is_applied_once(small, table):
    assert [small.ingest(table, rows(0, 100), token="same") for _ in range(3)] == [100, 100, 100]
    assert count(small, table) == (100, 4_950)


def test_what_was_written_is_estimated_so_that_the_small_side_is_sent_to_the_large_one(small, table, wait_until):
    other = f"{table}_sizes"
    small.create_table(other, schema=SCHEMA, partition_by=["kind"])
    small.ingest(table, rows(0, 200_000))
    small.ingest(other, rows(0, 3))
    query = (
        f"select b.size, max(a.kind) as k, max(a.size) as s from {table} a join {other} b using (id) group by 1"
    )
    wait_until(lambda: "broadcast b0" in small.explain(query))  # once the executors have reported the rows
    assert sorted(row["s"] for row in small.sql(query).to_pylist()) == [0.0, 0.5, 1.0]
    small.drop_table(other)


def test_insert_values_and_select_count_their_rows(small, table):
    assert affected(small.sql(f"insert into {table} values (1, 'a', 0.5), (2, 'b', null)")) == 2
    assert affected(small.sql(f"insert into {table} (size, id) select id * 2, id + 10 from {table}")) == 2
    assert small.sql(f"select * from {table} order by id").to_pylist() == [
        {"id": 1, "kind": "a", "size": 0.5},
        {"id": 2, "kind": "b", "size": None},
        {"id": 11, "kind": None, "size": 2.0},
        {"id": 12, "kind": None, "size": 4.0},
    ]


def test_an_insert_of_a_query_that_is_sent_again_adds_nothing(small, table):
    small.ingest(table, rows(0, 10))
    for _ in range(2):
        answer = small.sql(f"insert into {table} select id + 10, kind, size from {table}", token="once")
        assert affected(answer) == 10
    assert count(small, table) == (20, 190)


def test_update_and_delete_touch_what_they_say(small, table):
    small.ingest(table, rows(0, 100))
    assert affected(small.sql(f"update {table} set kind = 'new', size = size + 1 where id < 10")) == 10
    assert count(small, table, "kind = 'new'") == (10, 45)
    assert affected(small.sql(f"delete from {table} where id >= 50")) == 50
    assert affected(small.sql(f"delete from {table} where id = 3")) == 1
    assert count(small, table) == (49, 49 * 50 // 2 - 3)
    assert affected(small.sql(f"truncate {table}")) == 49
    assert count(small, table) == (0, None)


def test_a_statement_that_fails_over_one_row_changes_nothing_anywhere(small, table):
    small.ingest(table, rows(0, 100))
    small.sql(f"update {table} set kind = 'no number' where id = 77")
    small.sql(f"update {table} set kind = '5' where id <> 77")
    for statement in (
        f"update {table} set size = cast(kind as double), kind = 'done'",
        f"delete from {table} where cast(kind as double) = 5",
    ):
        with pytest.raises(SqlError, match="no number"):
            small.sql(statement, token=statement)
        assert count(small, table, "kind = '5'") == (99, 4_950 - 77)
    small.sql(f"update {table} set kind = '5' where id = 77")
    assert affected(small.sql(statement, token=statement)) == 100
    assert count(small, table) == (0, None)


def test_what_a_volatile_predicate_hits_is_counted(small, table):
    small.ingest(table, rows(0, 2_000))
    gone = affected(small.sql(f"delete from {table} where random() < 0.5"))
    assert count(small, table)[0] == 2_000 - gone
    changed = affected(small.sql(f"update {table} set kind = 'hit' where random() < 0.5"))
    assert count(small, table, "kind = 'hit'")[0] == changed


def test_an_update_of_the_key_moves_the_row(small, table):
    small.ingest(table, rows(0, 20))
    for _ in range(2):
        assert affected(small.sql(f"update {table} set id = id + 1000 where id < 5", token="move")) == 5
    assert count(small, table) == (20, 190 + 5_000)
    assert small.sql(f"select kind from {table} where id = 1004").to_pylist() == [{"kind": "k1"}]


def test_merge_runs_all_four_branches(small, table):
    small.ingest(table, rows(0, 10))
    source = "(select 1 as id, true as gone union all select 2, false union all select 77, false) as s"
    answer = small.sql(
        f"merge into {table} as t using {source} on t.id = s.id "
        "when matched and s.gone then delete when matched then update set kind = 'merged' "
        "when not matched then insert (id, kind) values (s.id, 'inserted') "
        "when not matched by source and t.id > 8 then update set id = 900"
    )
    assert affected(answer) == 4
    found = small.sql(f"select id, kind from {table} where id in (1, 2, 9, 77, 900) order by id").to_pylist()
    assert found == [{"id": 2, "kind": "merged"}, {"id": 77, "kind": "inserted"}, {"id": 900, "kind": "k0"}]
    assert count(small, table)[0] == 10


def test_a_statement_that_would_read_too_much_is_refused_by_name_and_changes_nothing():
    with LocalCluster(schedulers=1, executors=1, node_options={"max-merge-bytes": str(1 << 20)}) as cluster:
        cluster.create_table("t", schema=SCHEMA, partition_by=["bucket(2, id)"])
        cluster.ingest("t", rows(0, 60_000))
        merge = "merge into t using t as s on t.id = s.id when matched then update set size = 0"
        for statement in ("update t set id = id + 1", merge.replace("using t", "using (from t)")):
            with pytest.raises(MergeTooLarge, match="max_merge_bytes"):
                cluster.sql(statement)
        assert affected(cluster.sql("update t set size = 1")) == 60_000
        assert affected(cluster.sql("update t set id = -1 where id = 3")) == 1
        assert count(cluster, "t") == (60_000, 60_000 * 59_999 // 2 - 4)


def files_of(cluster, table: str) -> dict[str, int]:
    """The rows of each file that a table consists of."""
    store = open_store(cluster.state_location)
    manifests = [entry.key for entry in store.list("snapshots/") if entry.key.endswith("/manifest.json")]
    documents = [ObjectState(store, key, ManifestDocument).read().document for key in manifests]
    return {file.path: file.rows for found in documents if found.table.startswith(table) for file in found.files}


@pytest.mark.parametrize(
    "statement",
    [
        "update {} set kind = 'new' where id = 105",
        "delete from {} where id = 105",
        "update {} set id = 1000 where id = 105",
        "merge into {} as t using (select 105 as id) as s on t.id = s.id when matched then update set kind = 'm'",
        "delete from {} where id in (select 105)",
    ],
)
def test_a_statement_rewrites_only_the_files_that_hold_a_row_that_it_changes(small, statement):
    name = f"touched{abs(hash(statement)) % 10**6}"
    small.create_table(name, schema=SCHEMA, partition_by=["bucket(1, id)"])
    for first in (0, 100, 200):
        small.ingest(name, rows(first, 50))
    before = files_of(small, name)
    assert affected(small.sql(statement.format(name))) == 1
    after = files_of(small, name)
    assert len(before.keys() & after.keys()) == 2
    assert sum(after.values()) == count(small, name)[0] == 150 - statement.startswith("delete")
    small.drop_table(name)


def test_a_value_never_seen_gets_its_partition_by_two_schedulers_at_once(small):
    small.create_table("by_kind", schema=SCHEMA, partition_by=["kind"])

    def write(address: str) -> int:
        from ballista_py import connect

        with connect(address) as client:
            return sum(client.ingest("by_kind", rows(n * 10, 10)) for n in range(3))

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(write, small.addresses())) == [30, 30]
    assert small.sql("select kind, count(*) as n from by_kind group by 1 order by 1").to_pylist() == [
        {"kind": "k0", "n": 20},
        {"kind": "k1", "n": 20},
        {"kind": "k2", "n": 20},
    ]


def test_a_table_is_made_dropped_and_made_again_by_sql(small):
    for number in (1, 2):
        small.sql("create table made (id bigint not null, v varchar) partitioned by (bucket(2, id))")
        assert affected(small.sql(f"insert into made values ({number}, 'x')")) == 1
        assert small.sql("select id from made").to_pylist() == [{"id": number}]
        small.sql("drop table made")
        with pytest.raises(SqlError, match="made"):
            small.sql("select * from made")
    small.sql("drop table if exists made")
    with pytest.raises(SqlError, match="does not exist"):
        small.sql("drop table made")


def test_a_definition_that_is_sent_again_gives_its_answer_and_does_nothing(small):
    make = "create table defined (id bigint) partitioned by (bucket(2, id))"
    small.sql(make, token="make")
    assert affected(small.sql("insert into defined values (1), (2)")) == 2
    assert affected(small.sql(make, token="make")) == 0
    assert [affected(small.sql("truncate defined", token="empty")) for _ in range(2)] == [2, 2]
    small.sql("insert into defined values (3)")
    assert affected(small.sql("truncate defined", token="empty")) == 2
    assert count(small, "defined") == (1, 3)
    assert [affected(small.sql("drop table defined", token="end")) for _ in range(2)] == [0, 0]
    assert affected(small.sql(make, token="make")) == 0
    with pytest.raises(SqlError, match="defined"):
        small.sql("select * from defined")
    small.sql(make, token="make again")
    assert affected(small.sql("drop table defined", token="end")) == 0
    assert count(small, "defined")[0] == 0
    small.drop_table("defined")


def test_a_table_made_from_a_query_counts_its_rows_again_also_when_it_was_dropped(small):
    make = "create table if not exists copied partitioned by (bucket(2, n)) as select unnest(range(5)) as n"
    assert [affected(small.sql(make, token="copy")) for _ in range(2)] == [5, 5]
    small.drop_table("copied")
    assert affected(small.sql(make, token="copy")) == 5
    with pytest.raises(SqlError, match="copied"):
        small.sql("select * from copied")


def test_a_table_whose_rows_fail_is_seen_by_nobody(small, table):
    small.ingest(table, rows(0, 5_000))
    small.sql(f"update {table} set kind = 'no number' where id = 4999")
    small.sql(f"update {table} set kind = '5' where id <> 4999")
    make = f"create table failing partitioned by (bucket(2, id)) as select id, kind::int as n from {table}"
    with pytest.raises(SqlError, match="no number"):
        small.sql(make, token=f"make {table}")
    assert "failing" not in {row["table"] for row in small.client().tables()}
    small.sql(f"update {table} set kind = '5' where id = 4999")
    assert affected(small.sql(make, token=f"make {table}")) == 5_000
    assert count(small, "failing")[0] == 5_000
    small.drop_table("failing")


def test_sql_names_the_file_format_of_a_table(small):
    small.sql("create table light (id bigint) partitioned by (bucket(2, id)) with (file_format = 'vortex')")
    small.sql("insert into light values (1), (2)")
    assert all(path.endswith(".vortex") for path in files_of(small, "light"))
    assert count(small, "light") == (2, 3)
    small.drop_table("light")
    for options, said in (("file_format = 'orc'", "parquet or vortex"), ("colour = 'red'", "no option 'colour'")):
        with pytest.raises(SqlError, match=said):
            small.sql(f"create table light (id bigint) with ({options})")


def test_a_replicated_table_is_the_same_everywhere_after_a_write(small):
    small.sql("create table whole (id bigint)")
    small.ingest("whole", pa.table({"id": list(range(10))}))
    small.sql("update whole set id = id + 1")
    for address in small.addresses():
        from ballista_py import connect

        with connect(address) as client:
            assert client.sql("select sum(id) as s from whole").to_pylist() == [{"s": 55}]


def test_copy_reads_a_file_of_the_client(small, table, tmp_path):
    import pyarrow.parquet as pq

    pq.write_table(rows(0, 50), tmp_path / "rows.parquet")
    assert affected(small.sql(f"copy {table} from '{tmp_path / 'rows.parquet'}'")) == 50
    (tmp_path / "rows.csv").write_text("id,kind,size\n100,a,1.5\n")
    assert affected(small.sql(f"copy {table} from '{tmp_path / 'rows.csv'}' (format csv)")) == 1
    assert count(small, table) == (51, 1_225 + 100)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (rows(0, 3).drop_columns(["kind"]), "no column 'kind'"),
        (rows(0, 3).append_column("more", pa.array([1, 2, 3])), "'more'"),
        (rows(0, 3).select(["kind", "id", "size"]), "another order"),
        (rows(0, 3).set_column(2, "size", pa.array(["a", "b", "c"])), "'size' is VARCHAR"),
        (
            pa.table({"id": pa.array([1, None]), "kind": ["a", "b"], "size": [0.0, 1.0]}),
            "row 1 has no value in column 'id'",
        ),
        (
            pa.table({"id": pa.array([1, 2**64 - 1], pa.uint64()), "kind": ["a", "b"], "size": [0.0, 1.0]}),
            "row 1 has a value out of range",
        ),
        (
            pa.table({"id": [1, 2], "kind": pa.array([b"ok", b"\xff"]).view(pa.string()), "size": [0.0, 1.0]}),
            "row 1 has text that is not UTF-8",
        ),
    ],
)
def test_rows_that_do_not_fit_are_one_clear_error_and_nothing_is_applied(small, table, bad, said):
    small.ingest(table, rows(0, 10))
    with pytest.raises((SchemaMismatch, InvalidData), match=said):
        small.ingest(table, bad)
    assert count(small, table) == (10, 45)


def test_a_key_that_is_taken_keeps_every_partition_as_it_was_however_many_rows_come(small):
    small.sql("create table unique_ids (id bigint primary key, v varchar) partitioned by (bucket(4, id))")
    small.sql("insert into unique_ids values (77, 'here')")
    big = pa.table({"id": pa.array(range(40_000), pa.int64()), "v": ["x" * 2_000] * 40_000})
    assert big.nbytes > 64 << 20
    with pytest.raises(SchemaMismatch, match="id = 77"):
        small.ingest("unique_ids", big)
    assert count(small, "unique_ids") == (1, 77)
    assert small.ingest("unique_ids", big.filter(pa.compute.not_equal(big["id"], 77))) == 39_999
    assert count(small, "unique_ids") == (40_000, 40_000 * 39_999 // 2)
    small.drop_table("unique_ids")


def test_keys_and_checks_are_enforced_and_the_row_is_named(small):
    small.sql("create table strict (id bigint primary key, v bigint check (v > 0)) partitioned by (bucket(4, id))")
    assert affected(small.sql("insert into strict values (1, 1), (2, 2)")) == 2
    with pytest.raises(SchemaMismatch, match="id = 2"):
        small.sql("insert into strict values (3, 3), (2, 5)")
    with pytest.raises(SchemaMismatch, match=r"row 1 \(id = 5, v = 0\)"):
        small.sql("insert into strict values (4, 4), (5, 0)")
    with pytest.raises(SchemaMismatch, match="CHECK"):
        small.sql("update strict set v = v - 1")
    with pytest.raises(SchemaMismatch, match="must not be null"):
        small.sql("insert into strict values (null, 4)")
    assert small.sql("select * from strict order by id").to_pylist() == [{"id": 1, "v": 1}, {"id": 2, "v": 2}]
    assert affected(small.sql("update strict set v = 7 where id = 2")) == 1
    assert affected(small.sql("update strict set id = 9 where id = 2")) == 1
    with pytest.raises(SchemaMismatch, match="id = 1"):
        small.sql("update strict set id = 1 where id = 9")


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("insert into nowhere values (1)", "nowhere"),
        ("insert into {} values (1, 2)", "2 value"),
        ("insert into {} (id, nope) values (1, 2)", "nope"),
        ("update {} set nope = 1", "nope"),
        ("delete from {} where nope = 1", "nope"),
        ("insert or replace into {} values (1, 'a', 1)", "MERGE"),
        ("insert into {} values (1, 'a'", "syntax error"),
        ("create index i on {} (id)", "cannot be run"),
    ],
)
def test_a_wrong_statement_is_one_clear_error(small, table, statement, said):
    with pytest.raises(BallistaError, match=said) as raised:
        small.sql(statement.format(table))
    assert "\n" not in str(raised.value)


def test_a_table_with_a_source_is_not_written(small, events):
    small.create_table("sourced", source=events, partition_by=["bucket(2, id)"])
    for statement in ("insert into sourced values (1, 'a')", "delete from sourced", "truncate sourced"):
        with pytest.raises(SqlError, match="filled from its source"):
            small.sql(statement)
    assert small.sql("select count(*) as n from sourced").to_pylist() == [{"n": 1_000}]
    small.drop_table("sourced")


def test_one_of_two_that_create_a_table_at_once_gets_the_name(small):
    def make(_):
        try:
            small.create_table("raced", schema=SCHEMA, partition_by=["bucket(2, id)"])
        except ConfigError:
            return 0
        return 1

    with ThreadPoolExecutor(3) as pool:
        assert sum(pool.map(make, range(3))) == 1
    assert small.ingest("raced", rows(0, 10)) == 10
    assert count(small, "raced") == (10, 45)


def test_a_table_kept_as_vortex_is_written_changed_and_taken_over(small):
    small.create_table("as_vortex", schema=SCHEMA, partition_by=["bucket(4, id)"], file_format="vortex")
    assert small.ingest("as_vortex", rows(0, 1_000)) == 1_000
    assert affected(small.sql("update as_vortex set size = null where kind = 'k1'")) == 333
    assert affected(small.sql("delete from as_vortex where id >= 900")) == 100
    assert count(small, "as_vortex", "size is null or kind <> 'k1'") == (900, 404_550)
    small.kill("executor-1")
    small.start("executor-1")
    small.wait_until_loaded("as_vortex")
    assert count(small, "as_vortex") == (900, 404_550)
    small.drop_table("as_vortex")


def test_a_column_that_vortex_cannot_hold_is_named_when_the_table_is_made(small):
    schema = pa.schema([("id", pa.int64()), ("took", pa.duration("us"))])
    with pytest.raises(ConfigError, match="'took'"):
        small.create_table("odd", schema=schema, partition_by=["bucket(4, id)"], file_format="vortex")


def test_money_that_moves_between_partitions_is_never_seen_twice_or_missing(small):
    small.create_table(
        "accounts",
        schema=pa.schema([pa.field("id", pa.int64()), ("money", pa.int64())]),
        partition_by=["bucket(6, id)"],
    )
    small.ingest("accounts", pa.table({"id": list(range(20)), "money": [100] * 20}))
    done = threading.Event()

    def transfer(writer: int) -> int:
        with small.client() as client:
            for number in range(8):
                giver, taker = (writer * 7 + number * 3) % 20, (writer * 5 + number * 11 + 1) % 20
                if giver != taker:
                    change = f"money + case id when {giver} then -{number + 1} else {number + 1} end"
                    client.sql(f"update accounts set money = {change} where id in ({giver}, {taker})", atomic=True)
        return 8

    def look() -> list[tuple[int, int]]:
        seen = []
        with small.client() as client:
            while not done.is_set():
                (row,) = client.sql("select count(*) as n, sum(money) as s from accounts").to_pylist()
                seen.append((row["n"], row["s"]))
        return seen

    with ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(look) for _ in range(2)]
        try:
            assert sum(pool.map(transfer, range(2))) == 16
        finally:
            done.set()
        assert {total for reader in readers for total in reader.result()} == {(20, 2_000)}


def test_no_query_sees_a_part_of_a_statement_though_many_are_under_way(small):
    """They are folded into each partition in another order; a query as of a moment between two sees the one alone."""
    small.sql("create table halves (g bigint, id bigint) partitioned by (bucket(16, id))")
    over, numbers, halves = threading.Event(), iter(range(10_000)), []

    def write() -> int:
        with small.client() as client:
            count = 0
            while not over.is_set():
                number = next(numbers)
                rows = {"g": [number] * 32, "id": [number * 1_000 + n for n in range(32)]}
                client.ingest("halves", pa.table(rows), atomic=True)
                count += 1
            return count

    def read() -> None:
        with small.client() as client:
            while not over.is_set():
                halves.extend(
                    client.sql("select g, count(*) from halves group by g having count(*) <> 32").to_pylist()
                )

    with ThreadPoolExecutor(8) as threads:
        writers, readers = ([threads.submit(act) for _ in range(n)] for act, n in ((write, 6), (read, 2)))
        over.wait(10.0)
        over.set()
        written = sum(writer.result(120) for writer in writers)
        for reader in readers:
            reader.result(120)
    assert halves == []
    assert written > 6
    assert small.sql("select count(*) as n from halves").to_pylist() == [{"n": 32 * written}]
    small.drop_table("halves")
