"""ALTER TABLE through real processes: what one DuckDB says after it, at one instant, whatever else is under way."""

import os
import signal
import threading
import time
from collections import Counter

import duckdb
import pyarrow as pa
import pytest

from ballista_py import LocalCluster, connect
from ballista_py.engines.same_answer import difference
from ballista_py.errors import BallistaError, ConfigError, SchemaMismatch, SqlError, TimeLimit

pytestmark = pytest.mark.cluster

STEPS = """
    alter table t add column c int default 7;
    insert into t (id, a, b) values (100, 1, 'n');
    alter table t rename a to "A 2";
    update t set c = default where id = 1;
    update t set "A 2" = "A 2" + 1, c = id where id < 3;
    alter table t drop column b;
    alter table t add column b int;
    update t set b = 5 where id in (2, 100);
    alter table t rename column c to spare;
    alter table t rename column b to c;
    alter table t alter "A 2" type bigint;
    insert into t values (200, 5000000000, 3, 4);
    alter table t add column l int[] default [1, 2];
    alter table t add column m decimal(9, 2) default 1.5;
    alter table t alter m type decimal(20, 3);
    alter table t alter m set default -2.125;
    insert into t (id) values (201);
    merge into t using (select 100 as id union all select 300) s on t.id = s.id
        when matched then update set spare = default when not matched then insert (id) values (s.id);
    alter table t alter m set not null;
    alter table t alter m drop not null;
    alter table t alter m drop default;
    insert into t (id) values (202);
    delete from t where m = 1.5 and id % 2 = 1;
    alter table t drop column spare;
    alter table t add column spare varchar
"""


@pytest.fixture(scope="module")
def pair():
    with LocalCluster(schedulers=2, executors=2) as cluster:
        yield cluster


@pytest.fixture
def table(pair):
    pair.sql("create table t (id bigint, a int, b varchar) partitioned by (bucket(3, id))")
    pair.sql("insert into t select i, i, 'x' || i from range(12) r(i)")
    yield "t"
    pair.sql("drop table if exists t")


KEYS = "partitioned by (bucket(3, id))"


@pytest.mark.parametrize(("keys", "file_format"), [(KEYS, "parquet"), ("", "vortex")])
def test_each_step_gives_the_table_that_one_duckdb_has(pair, keys, file_format):
    compare_steps(pair, keys, file_format, STEPS.split(";"))


@pytest.mark.long
@pytest.mark.parametrize(("keys", "file_format"), [(KEYS, "vortex"), ("", "parquet")])
def test_each_step_on_polars(keys, file_format):
    with LocalCluster(schedulers=1, executors=2, engine="polars") as cluster:  # which holds no lists
        compare_steps(cluster, keys, file_format, [step for step in STEPS.split(";") if "int[]" not in step])


def compare_steps(cluster, keys, file_format, steps):
    """Have the steps done there and by one DuckDB, and compare the table after each."""
    with duckdb.connect() as single:
        begin = "create table t (id bigint, a int, b varchar)"
        cluster.sql(f"{begin} {keys} with (file_format = '{file_format}')")
        single.execute(begin)
        try:
            for step in ["insert into t select i, i, 'x' || i from range(12) r(i)", *steps]:
                single.execute(step)
                cluster.sql(step)
                expected = single.sql("from t").to_arrow_table()
                assert difference(cluster.sql("from t"), expected) is None, step
        finally:
            cluster.sql("drop table t")


def test_what_was_altered_is_so_for_executors_that_load_it_anew(tmp_path):
    with LocalCluster(schedulers=1, executors=1, state_location=tmp_path.as_uri()) as cluster:
        cluster.sql("create table t (id bigint, a int, b varchar) partitioned by (bucket(2, id))")
        cluster.sql("insert into t values (1, 1, 'x'), (2, 2, 'y')")
        for step in ("drop column a", "add column a bigint default 9", "rename b to c", "add column d int"):
            cluster.sql(f"alter table t {step}")
        cluster.sql("insert into t values (3, 'z', 3, 3)")
        before = cluster.sql("from t order by id").to_pylist()
        assert before[0] == {"id": 1, "c": "x", "a": 9, "d": None}
        cluster.kill("executor-1")
        cluster.start("executor-1")
        assert cluster.sql("from t order by id").to_pylist() == before


@pytest.mark.share(3)
@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("alter table t drop column id", r"part of how it is split \(bucket\(3, id\)\)"),
        ("alter table t rename id to other", "part of how it is split"),
        ("alter table t alter id type decimal(30, 0)", "part of how it is split"),
        ("alter table t alter a type smallint", "is INTEGER and cannot become SMALLINT"),
        ("alter table t alter b type int", "cannot become INTEGER"),
        ("alter table t add column A int", "has a column 'A' already"),
        ("alter table t rename a to B", "has a column 'B' already"),
        ("alter table t add column x int not null", "NOT NULL without a DEFAULT"),
        ("alter table t add column x uuid", "UUID"),
        ("alter table t add column x int default random()", "a default is a constant"),
        ("alter table t add column x int default 'x'", "x"),
        ("alter table t add column x int check (x > 1)", "CHECK"),
        ("alter table t add primary key (id)", "ADD PRIMARY"),
        ("alter table t add column __partition int", "a name that is taken"),
        ("alter table t drop column nosuch", "no column 'nosuch'"),
        ("alter table t alter a type bigint using a + 1", "TYPE … USING"),
        ("alter table t set (other = 1)", "no option 'other'"),
        ("alter table t set partitioned by (a)", "SET PARTITIONED"),
        ("alter table nosuch add column x int", "'nosuch' does not exist"),
        ("alter view t rename to u", "ALTER VIEW cannot be run here: CREATE OR REPLACE VIEW makes it anew"),
        ("comment on schema main is 'x'", "(?i)only tables and columns have comments|schema"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name_and_changes_nothing(pair, table, statement, reason):
    before = pair.sql("describe t").to_pylist()
    with pytest.raises(BallistaError, match=reason):
        pair.sql(statement)
    assert pair.sql("describe t").to_pylist() == before


def test_what_is_there_already_or_not_is_fine_if_the_statement_says_so(pair, table):
    pair.sql("alter table if exists nosuch add column x int")
    pair.sql("alter table t add column if not exists a varchar default 'other'")
    pair.sql("alter table t drop column if exists nosuch")
    assert pair.sql("from t").schema.names == ["id", "a", "b"]


def test_no_column_becomes_not_null_while_a_row_has_none(pair, table):
    pair.sql("insert into t values (50, null, 'x')")
    with pytest.raises(SchemaMismatch, match=r"1 row\(s\) of table 't' have no value in column 'a'"):
        pair.sql("alter table t alter a set not null")
    pair.sql("insert into t values (51, null, 'x')")
    pair.sql("update t set a = 0 where a is null")
    pair.sql("alter table t alter a set not null")
    with pytest.raises(SchemaMismatch, match="must not be null"):
        pair.sql("insert into t values (52, null, 'x')")
    with pytest.raises(SchemaMismatch, match="must not be null"):
        pair.sql("update t set a = null where id = 50")
    with pytest.raises(SqlError, match="NULL cannot be its default"):
        pair.sql("alter table t alter a set default null")


def test_a_statement_that_is_sent_again_is_done_once(pair, table):
    with pair.client() as client:
        for _ in range(3):
            client.sql("alter table t add column c int default 1", token="once")
        client.sql("alter table t drop column c")
        client.sql("alter table t add column c int default 1", token="once")
    assert pair.sql("from t").schema.names == ["id", "a", "b"]


def test_a_statement_about_tables_that_is_sent_again_does_nothing_whatever_it_did_at_first(pair, table):
    """What found nothing to do finds it done when it comes again, though there would be something by then."""
    idle = [
        "alter table t add column if not exists a int",
        "alter table t drop column if exists c",
        "alter table if exists nosuch add column x int",
        "create table if not exists t (x int)",
        "drop table if exists nosuch",
        "alter table t alter b drop not null",
        "comment on table t is null",
    ]
    with pair.client() as client:
        for statement in idle:
            client.sql(statement, token=f"idle {statement}")
        for statement in (
            "alter table t drop column a",
            "alter table t add column c int",
            "create table nosuch (y int)",
        ):
            client.sql(statement)
        before = client.sql("describe t").to_pylist()
        for statement in idle:
            client.sql(statement, token=f"idle {statement}")
        assert client.sql("describe t").to_pylist() == before
        assert client.sql("from nosuch").schema.names == ["y"]
        client.sql("drop table nosuch")


def test_defaults_are_made_with_the_table_and_shown(pair):
    """What SHOW CREATE TABLE gives makes the same table again, also once it was altered."""
    declared = """create table v (id bigint default 1 constraint positive check (id > 0),
        t varchar default 'it''s' not null, l int[] default [1, null], d date default date '2024-02-29', n int,
        constraint k primary key (id))
        partitioned by (bucket(2, id))"""
    pair.sql(declared)
    try:
        pair.sql("insert into v default values")
        pair.sql("insert into v (id, n) values (2, 3)")
        pair.sql("alter table v alter n set default 7")
        pair.sql("insert into v (id) values (4)")
        assert pair.sql("select id, t, l, d::varchar d, n from v order by id").to_pylist() == [
            {"id": id_, "t": "it's", "l": [1, None], "d": "2024-02-29", "n": n}
            for id_, n in ((1, None), (2, 3), (4, 7))
        ]
        described = pair.sql("describe v").to_pylist()
        assert [row["default"] for row in described] == [
            "1", "'it''s'", "list_value(1, NULL)", "CAST('2024-02-29' AS date)", "7"
        ]  # fmt: skip
        assert pair.sql("show columns from v").to_pylist() == described
        (text,) = pair.sql("show create table v")["statement"].to_pylist()
        pair.sql("drop table v")
        pair.sql(text)
        assert pair.sql("describe v").to_pylist() == described
        assert pair.sql("show create table v")["statement"].to_pylist() == [text]
        with pytest.raises(SchemaMismatch, match="violates CHECK"):
            pair.sql("insert into v (id) values (0)")
    finally:
        pair.sql("drop table if exists v")
    with pytest.raises(SqlError, match=r"(?i)could not convert"):
        pair.sql("create table v (n int default 'x')")


def test_a_token_stands_for_one_statement_about_tables(pair, table):
    with pair.client() as client:
        client.sql("alter table t add column c int", token="mine")
        for other in (
            "alter table t drop column c",
            "drop table t",
            "create table u (x int)",
            "comment on table t is 'x'",
        ):
            with pytest.raises(SqlError, match="token 'mine' was used for another statement"):
                client.sql(other, token="mine")
        assert client.sql("from t").schema.names == ["id", "a", "b", "c"]


@pytest.mark.parametrize("way", ["append", "atomic", "upsert", "replace"])
def test_rows_that_are_sent_again_after_an_alter_are_known(pair, way):
    pair.sql("create table w (id bigint primary key, a int, b varchar) partitioned by (bucket(3, id))")
    rows = pa.table(
        {"id": pa.array([1, 2, 3], pa.int64()), "a": pa.array([4, 5, 6], pa.int32()), "b": ["x", "y", "z"]}
    )
    mode = "append" if way == "atomic" else way
    try:
        with pair.client() as client:

            def send(given=rows):
                return client.ingest("w", given, mode=mode, atomic=way == "atomic", token=f"rows {way}")

            assert send() == 3
            client.sql("alter table w add column c int default 7")
            assert send() == 3
            client.sql("alter table w alter a type bigint")
            client.sql("alter table w drop column b")
            assert send() == 3
            said = "was used for another statement" if mode == "replace" else "no column 'c'"
            with pytest.raises((SchemaMismatch, SqlError), match=said):  # others were never begun
                send(rows.slice(1))
            assert client.sql("from w order by id").to_pylist() == [
                {"id": n, "a": n + 3, "c": 7} for n in (1, 2, 3)
            ]
    finally:
        pair.sql("drop table w")


def test_every_scheduler_knows_it_at_once(pair, table):
    """Each step through one scheduler, its effect through the other: reads, what is described, and writes."""
    urls = [member["address"] for member in pair.members() if member["role"] == "scheduler"]
    first, second = (connect(f"grpc://{url}") for url in urls)
    with first, second:
        for number in range(6):
            one, other = (first, second) if number % 2 else (second, first)
            one.sql(f"alter table t add column c{number} int default {number}")
            assert other.sql("from t limit 1").schema.names[-1] == f"c{number}"
            one.sql(f"alter table t rename c{number} to d{number}")
            with pytest.raises(SqlError, match=f"c{number}"):
                other.sql(f"insert into t (id, c{number}) values (1, 1)")
            other.sql(f"update t set d{number} = -1 where id = 1")
            one.sql(f"alter table t drop column d{number}")
            assert other.sql("insert into t values (1, 1, 'y')") is not None
            assert other.sql("from t limit 1").schema.names == ["id", "a", "b"]


@pytest.mark.timeout(900)
def test_readers_and_writers_see_one_table_or_the_other_and_lose_nothing(pair, table):
    """A column that comes, is renamed, widened, goes and comes again under statements of every way that do not name it:
    none fails, none waits for all ALTERs to be over, and rows have 7 or their own value in it, none too few."""
    pair.sql("create table u (id bigint primary key, a int, b varchar) partitioned by (bucket(3, id))")
    pair.sql("insert into u select i, 0, 'x' from range(12) r(i)")
    stop, wrong, done = threading.Event(), [], Counter()

    def repeated(work):
        def run():
            with pair.client() as client:
                while not stop.is_set():
                    try:
                        done[work.__name__] += bool(work(client, done[work.__name__]))
                    except Exception as error:
                        wrong.append((work.__name__, error))
                        return

        return threading.Thread(target=run)

    def insert(client, number):
        row = 1_000 + number
        return client.sql(f"insert into t (id, a) values ({row}, {row}), ({row + 100_000}, {row})")

    def insert_rows_of_a_query(client, number):
        return client.sql(f"insert into t (id, a) select {200_000 + 3 * number} + id, a from t where id < 3")

    def ingest(client, number):
        rows = {"id": pa.array([300_000 + number], pa.int64()), "a": pa.array([1], pa.int32()), "b": ["z"]}
        try:
            return client.ingest("t", pa.table(rows), atomic=True)
        except SchemaMismatch as error:
            return "no column 'c'" not in str(error) and "no column 'd'" not in str(error)

    def update(client, _):
        return client.sql("update t set b = 'u', a = a where id in (3, 4, 5)").to_pylist() == [
            {"affected_rows": 3}
        ]

    def as_a_whole(
        client, number
    ):  # one after the other: they would wait for each other, which is none of ALTER's
        sets = "do update set a = u.a + excluded.a"
        client.sql(f"insert into u (id, a) values (1, 1), ({100 + number}, 1) on conflict (id) {sets}")
        source = "select 2 as id, 1 as a"
        client.sql(f"merge into u using ({source}) s on u.id = s.id when matched then update set a = u.a + 1")
        return client.sql("update u set a = a + 1 where id = 3 returning id").to_pylist() == [{"id": 3}]

    def read(client, _):
        found = client.sql("from t").to_pylist()
        wrong.extend(row for row in found if row.get("c", 7) != 7 or row.get("d", 7) != 7 or len(row) > 4)
        return True

    def read_others(client, _):
        found = client.sql("select count(*) n, sum(t.id) s from t join u using (id) where id < 12").to_pylist()
        wrong.extend(row for row in found if row != {"n": 12, "s": 66})
        return True

    ways = (insert, insert_rows_of_a_query, ingest, update, as_a_whole, read, read_others)
    workers = [repeated(work) for work in ways]
    for worker in workers:
        worker.start()
    deadline = time.monotonic() + 600  # reached by a machine that is very busy
    rounds = 0
    try:  # ALTERs do not pause: a change that had to wait for them to be over would not be done at the deadline
        while rounds < 2 or min(done[work.__name__] for work in ways) < 2:
            for step in ("add column c int default 7", "rename c to d", "alter d type bigint", "drop column d"):
                pair.sql(f"alter table t {step}")
                pair.sql(f"alter table u {step}")
            rounds += 1
            assert not wrong
            assert time.monotonic() < deadline, done
    finally:
        stop.set()
        for worker in workers:
            worker.join()
    assert not wrong
    expected = 12 + 2 * done["insert"] + 3 * done["insert_rows_of_a_query"]
    assert pair.sql("select count(*) n from t where id between 3 and 5 and b = 'u'").to_pylist() == [{"n": 3}]
    assert pair.sql("select count(*) n from t where id < 300000").to_pylist() == [{"n": expected}]
    assert pair.sql("select a from u where id in (1, 2, 3)")["a"].to_pylist() == [done["as_a_whole"]] * 3
    pair.sql("drop table u")


@pytest.mark.share(3)
@pytest.mark.parametrize(
    "statement",
    [
        "alter table t add column d varchar default '{}'",
        "alter table t alter column b set default '{}'",
        "alter table t add column {} int",
        "alter table t rename column b to {}",
        "comment on table t is '{}'",
        "comment on column t.b is '{}'",
        "create table u (id int, {} int)",
        "create table {} (id int)",
        "create table u as select 1 as {}",
    ],
)
def test_what_a_table_is_told_is_bounded_and_what_is_refused_changes_nothing(pair, table, statement):
    before = pair.sql(f"select * from {table} order by id")
    with pytest.raises((ConfigError, SqlError)) as refused:
        pair.sql(statement.format("x" * 900_000))
    assert len(refused.value.message) < 1_000
    assert pair.sql(f"select * from {table} order by id").equals(before)
    assert [row["table"] for row in pair.client().tables()] == ["t"]


def test_defaults_at_their_bounds_are_filled_in_within_the_memory_of_an_executor(pair, table):
    for number in range(16):
        pair.sql(f"alter table t add column c{number} varchar default '{'x' * 4_000}'")
    assert pair.sql("select sum(length(c0) + length(c15)) as n from t").to_pylist() == [{"n": 12 * 8_000}]
    with pytest.raises(SqlError, match="bytes of defaults that older rows have"):
        pair.sql(f"alter table t add column c16 varchar default '{'x' * 4_000}'")


@pytest.mark.parametrize(
    "statement",
    [
        "alter table t add column late int default 1",
        "comment on table t is 'late'",
        "create table late (id bigint) partitioned by (bucket(64, id))",
        "create table late as select * from range(9) r(i)",
    ],
)
def test_what_waits_for_an_executor_that_stands_still_ends_with_its_time(pair, table, statement):
    pid = pair.pid("executor-1")
    os.kill(pid, signal.SIGSTOP)
    try:
        with pair.client() as client, pytest.raises(TimeLimit):
            client.sql(statement, timeout=0.7)
    finally:
        os.kill(pid, signal.SIGCONT)
    pair.wait_until_loaded()
    assert pair.sql("select count(*) as n from t").to_pylist() == [{"n": 12}]
    pair.sql("drop table if exists late")


def test_other_dialects_alter_a_table_as_the_engines_own_does(pair, table):
    for dialect, sql in (
        ("postgres", "alter table t add column c int default 7"),
        ("spark", "alter table t add columns (n string)"),
        ("postgres", "alter table t rename column b to name"),
        ("spark", "alter table t alter column a type bigint"),
        ("postgres", "alter table t alter column c set default 8"),
        ("spark", "alter table t drop column n"),
    ):
        pair.sql(sql, dialect=dialect)
    given = pair.sql("insert into t (id, name) values (50, 'p') returning id, c as made", dialect="postgres")
    assert given.to_pylist() == [{"id": 50, "made": 8}]
    found = pair.sql("select * from t where id in (3, 50) order by id")
    assert found.to_pylist() == [
        {"id": 3, "a": 3, "name": "x3", "c": 7},
        {"id": 50, "a": None, "name": "p", "c": 8},
    ]
    assert found.schema.field("a").type == pa.int64()
