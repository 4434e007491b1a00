"""What a table of a real PostgreSQL has to be to be followed, and what is said once it is no more what was copied."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import psycopg
import pytest
from tests.cluster.postgres_server import PostgresServer

from ballista_py.coordinator.changes.postgres import PostgresSource, open_postgres
from ballista_py.errors import SourceLost, SourceUnavailable, SourceUnfit
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.state.documents.decisions import SourcePosition

pytest.importorskip("psycopg")

pytestmark = pytest.mark.cluster
LIMIT = 1_000
VIRTUAL_SINCE = 180_000


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    running = PostgresServer()
    yield running
    running.stop()


@pytest.fixture
def there(server) -> Iterator[psycopg.Connection[Any]]:
    """A connection, of whose tables, slots and publications nothing is left behind."""
    with server.connect() as connection:
        yield connection
        connection.execute("drop schema public cascade")
        connection.execute("create schema public")
        connection.execute("select pg_drop_replication_slot(slot_name) from pg_replication_slots where not active")
        for (name,) in connection.execute("select pubname from pg_publication").fetchall():
            connection.execute(f"drop publication {name}")


def left(there: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    """The slots and publications that there are."""
    return there.execute(
        "select slot_name from pg_replication_slots union all select pubname from pg_publication"
    ).fetchall()


def opened(dsn: str, table: str, incarnation: str = "5f2a5f2a5f2a") -> PostgresSource:
    """The source of a table `here` that follows one there, by the key that it has there."""
    options = {"format": "postgres", "dsn": dsn, "table": table}
    with closing(open_postgres("here", options)) as source:
        found = source.describe()
    spec = PartitionSpec.parse([f"bucket(2, {found.primary_key[0]})"], found.schema)
    made = TableSpec(
        name="here",
        schema=found.schema,
        spec=spec,
        primary_key=found.primary_key,
        source=options,
        incarnation=incarnation,
    )
    return open_postgres("here", options, made)


def copied(source: PostgresSource) -> SourcePosition:
    """Where a copy of the source stands that was read whole."""
    position, rows = source.snapshot()
    list(rows)
    source.confirm(position)
    return position


def changes(source: PostgresSource, after: SourcePosition) -> list[tuple[str, Any]]:
    """What the log tells: of each change what it is, and the row that it leaves."""
    found = source.read(after, LIMIT).changes.to_pylist()
    return [(row["op"], row["new"]) for row in found]


RENAMED = "begin; alter table t rename to t_old; alter table u rename to t; commit"
ANEW = "begin; drop table t; create table t (id bigint primary key, a text, b text); commit"
NARROW = "alter publication {p} set (publish = 'insert')"
WIDE = "alter publication {p} set (publish = 'insert, update, delete, truncate')"


@pytest.mark.parametrize(
    ("done", "kind", "said"),
    [
        (RENAMED, SourceUnfit, "is called t_old now, and another table public.t: give it its name back, or make"),
        ("alter table t rename to t_old", SourceUnfit, "is called t_old now, and no table public.t: give it"),
        ("drop table t", SourceLost, "was dropped, and no table has its name now: make table 'here' anew"),
        (ANEW, SourceLost, "was dropped, and what has its name is another table now: make table 'here' anew"),
        ("drop publication {p}", SourceLost, "publication {p} was dropped"),
        ("drop publication {p}; create publication {p} for table only t", SourceLost, "{p} was altered"),
        (NARROW, SourceLost, "{p} was altered"),
        (f"{NARROW}; update t set a = 'lost'; {WIDE}", SourceLost, "{p} was altered"),
        ("alter publication {p} set table t where (id > 100)", SourceLost, "{p} was altered"),
        ("alter publication {p} set table t (id, a)", SourceLost, "{p} was altered"),
        ("create table v (id int); alter publication {p} set table v", SourceLost, "{p} was altered"),
        ("alter table t drop column a, add column a text", SourceLost, "dropped and made anew under their names"),
        (
            "alter table t rename a to c; alter table t rename b to a; alter table t rename c to b",
            SourceLost,
            "columns of public.t were renamed",
        ),
        ("alter table t rename a to c", SourceUnfit, "has no column 'a' any more: make table 'here' anew"),
        ("alter table t alter column a type text using upper(a)", SourceLost, "its rows written anew"),
        ("create table c () inherits (t)", SourceUnfit, "run ALTER TABLE child NO INHERIT public.t there"),
        ("alter table t replica identity nothing", SourceUnfit, "run ALTER TABLE public.t REPLICA IDENTITY FULL"),
    ],
)
def test_what_is_no_more_what_was_copied_is_said_at_once(server, there, done, kind, said):
    """Before anything else is in the log, and also after more is."""
    there.execute("create table t (id bigint primary key, a text, b text)")
    there.execute("create table u (id bigint primary key, a text, b text)")
    there.execute("insert into t values (1, 'a', 'b')")
    oid = there.execute("select 't'::regclass::oid").fetchone()[0]
    with closing(opened(server.dsn, "public.t")) as source:
        position = copied(source)
        assert changes(source, position) == []
        there.execute(done.format(p=f"ballista_{oid}"))
        with pytest.raises(kind, match=said.format(p=f"ballista_{oid}")):
            source.read(position, LIMIT)
        with suppress(psycopg.errors.UndefinedTable):
            there.execute("insert into t values (2, 'a', 'b')")
        with pytest.raises(kind, match=said.format(p=f"ballista_{oid}")):
            source.read(position, LIMIT)


@pytest.mark.parametrize(
    "done",
    [
        "truncate t",
        "vacuum full t",
        "alter table t alter column a set default 'x'",
        "alter table t add check (id > 0)",
        "create index on t (a)",
        "alter table t rename to x; alter table x rename to t",
        "alter table t replica identity nothing; insert into t values (7, 'n', 'n'); "
        "alter table t replica identity default",
        "alter table t set tablespace pg_default",
        "analyze t",
    ],
)
def test_what_leaves_a_table_what_it_was_stops_nothing(server, there, done):
    there.execute("create table t (id bigint primary key, a text, b text)")
    there.execute("insert into t values (1, 'a', 'b')")
    with closing(opened(server.dsn, "public.t")) as source:
        position = copied(source)
        there.execute(done)
        there.execute("insert into t values (2, 'a', 'b')")
        assert changes(source, position)[-1] == ("insert", {"id": 2, "a": "a", "b": "b"})
        there.execute("update t set a = 'z' where id = 2")
        assert changes(source, position)[-1] == ("update", {"id": 2, "a": "z", "b": "b"})


def test_what_is_altered_while_the_log_is_read_is_seen(server, there, monkeypatch):
    there.execute("create table t (id bigint primary key, a text)")
    there.execute("insert into t values (1, 'a')")
    look = PostgresSource._require_same

    def altered(*given: Any) -> Any:
        found = look(*given)
        monkeypatch.setattr(PostgresSource, "_require_same", look)
        there.execute(f"alter publication ballista_{found.oid} set (publish = 'insert')")
        there.execute("update t set a = 'lost'")
        there.execute("insert into t values (2, 'b')")
        return found

    with closing(opened(server.dsn, "public.t")) as source:
        position = copied(source)
        monkeypatch.setattr(PostgresSource, "_require_same", altered)
        with pytest.raises(SourceLost, match="was altered"):
            source.read(position, LIMIT)


def test_a_table_that_is_altered_while_it_is_copied_is_copied_again(server, there):
    """Rows that are written anew are not in a snapshot of before, nor in the log after it."""
    there.execute("create table t (id bigint primary key, a text)")
    there.execute("insert into t values (1, 'a')")
    with closing(opened(server.dsn, "public.t")) as source:
        _, rows = source.snapshot()
        there.execute("alter table t alter column a type text using upper(a)")
        with pytest.raises(SourceUnavailable, match="was altered while it was copied"):
            list(rows)
        assert not there.execute("select from pg_replication_slots").fetchall()
        position, rows = source.snapshot()
        assert [batch.to_pylist() for batch in rows] == [[{"id": 1, "a": "A"}]]
        source.confirm(position)


def test_a_publication_stays_for_whoever_else_follows_the_table(server, there):
    there.execute("create table t (id bigint primary key)")
    with closing(opened(server.dsn, "public.t")) as one, closing(opened(server.dsn, "t", "0123456789ab")) as other:
        copied(one)
        position = copied(other)
        assert len(left(there)) == 3
        one.give_up()
        there.execute("insert into t values (1)")
        assert changes(other, position) == [("insert", {"id": 1})]
        other.give_up()
        assert not left(there)


def test_each_partition_of_a_partitioned_table_can_be_followed(server, there):
    """As the error of the whole one says."""
    there.execute("create table p (id bigint, r text, primary key (id, r)) partition by list (r)")
    there.execute("create table p1 partition of p for values in ('a')")
    there.execute("create table p2 partition of p for values in ('b')")
    there.execute("insert into p values (1, 'a'), (2, 'b')")
    with pytest.raises(
        SourceUnfit, match=r"is partitioned, .* follow each of its partitions by a table of its own"
    ):
        opened(server.dsn, "public.p")
    with closing(opened(server.dsn, "public.p1")) as source:
        position = copied(source)
        there.execute("update p set r = 'a' where id = 2")
        assert changes(source, position) == [("insert", {"id": 2, "r": "a"})]
        there.execute("update p set r = 'b' where id = 1")
        there.execute("truncate p")
        assert [op for op, _ in changes(source, position)] == ["insert", "delete", "truncate"]


PUBLICATION = "create table t (id bigint primary key, a text); create publication {p} for table t"


@pytest.mark.parametrize(
    ("made", "said", "mended"),
    [
        ("create view t as select 1::bigint as id", "is a view, of which no log tells changes", None),
        ("create materialized view t as select 1::bigint as id", "is a materialized view", None),
        ("create sequence t", "is a sequence", None),
        ("create unlogged table t (id bigint primary key)", "run ALTER TABLE public.t SET LOGGED there", ""),
        (
            "create table t (id bigint primary key); create table c () inherits (t)",
            "run ALTER TABLE child NO INHERIT public.t there",
            "alter table c no inherit t",
        ),
        (
            "create table t (id bigint primary key, g bigint generated always as (id * 2) stored)",
            "column 'g' of public.t is generated, .* run ALTER TABLE public.t DROP COLUMN g there",
            "alter table t alter column g drop expression",
        ),
        (
            "create table t (id bigint primary key, g bigint generated always as (id * 2) {virtual})",
            "column 'g' of public.t is generated",
            "alter table t drop column g",
        ),
        (
            "create table t (id bigint primary key); alter table t replica identity nothing",
            "run ALTER TABLE public.t REPLICA IDENTITY FULL there",
            "",
        ),
        (f"{PUBLICATION} with (publish = 'insert')", "does not publish each of insert, update, delete", ""),
        (f"{PUBLICATION} where (id > 7)", "a row filter or a list of columns", ""),
        (f"{PUBLICATION} (id)", "a row filter or a list of columns", ""),
        (f"create table o (id int); {PUBLICATION}, o", "is of other tables, too", ""),
        ("create table t (id bigint primary key); create publication {p} for all tables", "of other tables", ""),
        ("create table t (id bigint primary key); create publication {p}", "the table is not in it", ""),
    ],
)
def test_a_table_that_cannot_be_followed_is_refused_with_a_way_out_that_works(server, there, made, said, mended):
    """Where `mended` is empty, the way out is the statement that the error says."""
    virtual = "virtual" if there.info.server_version >= VIRTUAL_SINCE else "stored"
    there.execute(made.replace("{p}", "waits").replace("{virtual}", virtual))
    oid = there.execute("select 't'::regclass::oid").fetchone()[0]
    if "{p}" in made:
        there.execute(f"alter publication waits rename to ballista_{oid}")
    with pytest.raises(SourceUnfit, match=said) as refused:
        opened(server.dsn, "public.t")
    if mended is None:
        return
    there.execute(mended or refused.value.message.partition(": run ")[2].partition(" there")[0])
    with closing(opened(server.dsn, "public.t")) as source:
        position = copied(source)
        there.execute("insert into t (id) values (9)")
        there.execute("update t set id = 10")
        there.execute("delete from t")
        assert [op for op, _ in changes(source, position)] == ["insert", "update", "delete"]


def test_a_key_that_two_rows_may_have_is_refused_with_a_way_out_that_works(server, there):
    there.execute("create table t (id bigint primary key, k int not null, f int)")
    there.execute("alter table t replica identity full")
    there.execute("create unique index on t (k) where f = 1")
    there.execute("create unique index on t ((k + 1))")
    there.execute("create unique index on t (f) include (k)")
    options = {"format": "postgres", "dsn": server.dsn, "table": "public.t"}
    with closing(open_postgres("here", options)) as source:
        with pytest.raises(
            SourceUnfit, match=r"two rows of public.t may have one primary key \(k\) here"
        ) as refused:
            source.describe(["k"])
        assert source.describe(["k", "id"]).primary_key == ("k", "id")
        there.execute(refused.value.message.partition(": run ")[2].partition(" there")[0])
        assert source.describe(["k"]).primary_key == ("k",)


def test_rights_that_lack_are_said_with_the_statement_that_gives_them(server, there):
    there.execute("create table t (id bigint primary key)")
    there.execute("revoke usage on schema public from public")
    there.execute("create role reader login")
    try:
        dsn = server.dsn.replace("postgres@", "reader@")
        granted: list[str] = []
        for _ in range(5):
            try:
                source = opened(dsn, "public.t")
                break
            except SourceUnfit as error:
                granted.append(error.message.partition(": run ")[2].partition(" there")[0])
                there.execute(granted[-1] or "grant usage on schema public to reader")
        else:
            raise AssertionError(granted)
        with closing(source):
            position = copied(source)
            there.execute("insert into t values (1)")
            assert changes(source, position) == [("insert", {"id": 1})]
        assert [statement.split(" ")[0] for statement in granted] == ["", "GRANT", "CREATE", "ALTER"]
        there.execute("alter table t enable row level security")
        with pytest.raises(SourceUnfit, match="run ALTER ROLE reader BYPASSRLS there"):
            opened(dsn, "public.t")
    finally:
        there.execute("drop owned by reader")
        there.execute("drop role reader")
