"""A table that follows one of a real PostgreSQL: its copy, its changes, and what stops it."""

from __future__ import annotations

import datetime as dt
import decimal
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Event
from typing import Any

import psycopg
import pytest
from tests.cluster.postgres_server import PostgresServer

from ballista_py import LocalCluster
from ballista_py.errors import BallistaError, ConfigError, SourceUnavailable, SourceUnfit, SqlError
from ballista_py.node.local import waiting
from ballista_py.partitions.refresh import Refresh

pytest.importorskip("psycopg")

pytestmark = pytest.mark.cluster
PATIENCE_S = 60
AT_ONCE_S = 30  # far below what a table is waited for


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    running = PostgresServer()
    yield running
    running.stop()


@pytest.fixture
def there(server) -> Iterator[psycopg.Connection[Any]]:
    with server.connect() as connection:
        yield connection


@pytest.fixture(scope="module")
def small() -> Iterator[LocalCluster]:
    with LocalCluster(schedulers=2, executors=2) as cluster:
        yield cluster


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.1)


def rows(cluster: LocalCluster, table: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in cluster.sql(f"select * from {table}").to_pylist())


def shown(cluster: LocalCluster, table: str) -> dict[str, Any]:
    """What the scheduler that reads says of the table."""
    return next(row for row in cluster.tables() if row["table"] == table)["changes"]


def test_a_table_follows_inserts_updates_moves_deletes_and_truncate(small, server):
    with server.connect() as there:
        there.execute(
            "create table events (region text, id bigint, v int, note text, at timestamptz, price numeric(9, 2), "
            "ok boolean, raw bytea, day date, clock time, u uuid, f float8, primary key (region, id))"
        )
        there.execute(
            "insert into events select 'r' || n % 3, n, n, repeat(md5(n::text), 3000), '2024-05-06 07:08:09.1+02', "
            "1.5, n % 2 = 0, '\\x00ff', '2024-02-29', '12:13:14.5', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'NaN' "
            "from generate_series(1, 30) n"
        )
        there.execute("alter table events alter column note set storage external")
        small.create_table(
            "events", {"format": "postgres", "dsn": server.dsn, "table": "public.events"}, ["region"]
        )
        assert small.sql("select count(*) as n, sum(v) as v from events").to_pylist() == [{"n": 30, "v": 465}]
        first = small.sql("select * exclude (note, f) from events where id = 7").to_pylist()[0]
        assert first == {
            "region": "r1",
            "id": 7,
            "v": 7,
            "at": dt.datetime(2024, 5, 6, 5, 8, 9, 100_000, dt.UTC),
            "price": decimal.Decimal("1.50"),
            "ok": False,
            "raw": b"\x00\xff",
            "day": dt.date(2024, 2, 29),
            "clock": dt.time(12, 13, 14, 500_000),
            "u": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        }
        assert small.sql("select ok from events where id = 8").to_pylist() == [{"ok": True}]
        with there.transaction():
            there.execute("update events set v = v + 100 where id <= 10")  # notes are long, and not sent
            there.execute("update events set region = 'new', id = id + 1000 where id <= 3")
            there.execute("delete from events where id between 11 and 20")
            there.execute("insert into events (region, id, v) values ('new', 1, null)")

        def here() -> list[tuple[Any, ...]]:
            return rows(small, "(select region, id, v, md5(note) as m from events)")

        def wanted() -> list[tuple[Any, ...]]:
            found = there.execute("select region, id, v, md5(note) from events").fetchall()
            return sorted(found)

        until(lambda: here() == wanted())
        assert len(here()) == 21
        with there.transaction():
            there.execute("truncate events")
            there.execute("insert into events (region, id, v) values ('after', 1, 1)")
        until(lambda: here() == [("after", 1, 1, None)])
        until(lambda: shown(small, "events")["position"] is not None and not shown(small, "events")["error"])
        with pytest.raises(SqlError, match="is filled from its source"):
            small.sql("delete from events")
        logs = there.execute("select slot_name from pg_replication_slots").fetchall()
        assert len(logs) == 1
        small.drop_table("events")
        until(lambda: not there.execute("select slot_name from pg_replication_slots").fetchall())


@pytest.mark.parametrize(
    ("columns", "options", "reason"),
    [
        ("id bigint", {}, "has no primary key: run ALTER TABLE public.odd ADD PRIMARY KEY"),
        (
            "id bigint primary key, tags text\\[\\]".replace("\\", ""),
            {},
            "column 'tags' of public.odd has the type text\\[\\]",
        ),
        ("id bigint primary key, n numeric", {}, "TYPE numeric\\(38, 9\\)"),
        (
            "id bigint primary key, region text not null",
            {"primary_key": ["region", "id"], "partition_by": ["region"]},
            "run ALTER TABLE public.odd REPLICA IDENTITY FULL there",
        ),
    ],
)
def test_what_cannot_be_followed_is_said_when_the_table_is_made(small, server, columns, options, reason):
    with server.connect() as there:
        there.execute(f"create table odd ({columns})")
        try:
            with pytest.raises(SourceUnfit, match=reason):
                small.create_table(
                    "odd",
                    {"format": "postgres", "dsn": server.dsn, "table": "public.odd"},
                    options.get("partition_by", ["bucket(2, id)"]),
                    primary_key=options.get("primary_key", ()),
                )
        finally:
            there.execute("drop table odd")


def test_what_stops_a_table_is_said_and_the_table_keeps_what_it_has(small, server):
    """A column more; then a slot that somebody dropped."""
    with server.connect() as there:
        there.execute("create table stops (id bigint primary key, region text not null, v int)")
        there.execute("alter table stops replica identity full")
        there.execute("insert into stops values (1, 'a', 1)")
        small.create_table(
            "stops",
            {"format": "postgres", "dsn": server.dsn, "table": "public.stops"},
            ["region"],
            primary_key=["region", "id"],
        )
        there.execute("update stops set region = 'b', v = 2")
        until(lambda: rows(small, "stops") == [(1, "b", 2)])
        there.execute("alter table stops add column more int")
        there.execute("insert into stops values (2, 'a', 2, 2)")
        until(lambda: "has a column 'more' more" in ((shown(small, "stops")["error"] or {}).get("message") or ""))
        assert shown(small, "stops")["error"]["code"] == "source.unfit"
        assert rows(small, "stops") == [(1, "b", 2)]
        log = shown(small, "stops")["position"].split(" of ")[1]
        until(lambda: _dropped(there, log))
        until(lambda: (shown(small, "stops")["error"] or {}).get("code") == "source.lost")
        assert rows(small, "stops") == [(1, "b", 2)]
    small.drop_table("stops")


def _dropped(there: psycopg.Connection[Any], log: str) -> bool:
    """Whether somebody dropped the slot, which nobody can while it is read."""
    try:
        there.execute("select pg_drop_replication_slot(%s)", [log])
    except psycopg.errors.ObjectInUse:
        return False
    return True


def test_a_copy_is_made_anew_only_when_it_is_asked_for(small, server):
    with server.connect() as there:
        there.execute("create table anew (id bigint primary key, v int)")
        there.execute("insert into anew select n, n from generate_series(1, 100) n")
        small.create_table(
            "anew", {"format": "postgres", "dsn": server.dsn, "table": "public.anew"}, ["bucket(2, id)"]
        )
        until(lambda: shown(small, "anew").get("position") is not None)
        log = shown(small, "anew")["position"].split(" of ")[1]
        until(lambda: _dropped(there, log))
        there.execute("update anew set v = -1 where id <= 50")
        until(lambda: (shown(small, "anew")["error"] or {}).get("code") == "source.lost")
        assert shown(small, "anew")["lag_ms"] > 0
        assert len(rows(small, "anew")) == 100
        with small.client() as client:
            with pytest.raises(ConfigError, match="follows the changes of its source by itself"):
                client.refresh("anew", "append")
            client.refresh("anew")  # tells executors, and copies nothing
            assert (shown(small, "anew")["error"] or {}).get("code") == "source.lost"
            client.refresh("anew", "full")
            row = next(row for row in client.tables() if row["table"] == "anew")["refresh"]
        assert (row["mode"], row["last_rows"], row["last_error"]) == ("changes", 100, None)
        assert len([row for row in rows(small, "anew") if row[1] == -1]) == 50
        there.execute("insert into anew values (101, 101)")
        until(lambda: len(rows(small, "anew")) == 101)
        until(lambda: shown(small, "anew")["lag_ms"] == 0.0)
        kept = there.execute("select count(*) from pg_replication_slots where slot_name <> %s", [log]).fetchone()
        assert kept == (1,)
        # A slot of a copy that came to nothing is named, and not dropped: it could be one under way.
        ballista, incarnation, _place, *marks = log.split("_")
        left = "_".join([ballista, incarnation, 16 * "f", *marks])
        there.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [left])
        until(lambda: shown(small, "anew").get("left_over") == [f"SELECT pg_drop_replication_slot('{left}')"])
        there.execute("select pg_drop_replication_slot(%s)", [left])
        there.execute("drop table anew")
    with small.client() as client, pytest.raises(ConfigError, match="was not refreshed"):
        client.refresh("anew", "full")
    assert len(rows(small, "anew")) == 101
    small.drop_table("anew")


def test_columns_that_the_source_has_more_are_appended_where_that_is_declared(small, server):
    with server.connect() as there:
        there.execute("create table wider (id bigint primary key, v int)")
        there.execute("insert into wider values (1, 1)")
        source = {"format": "postgres", "dsn": server.dsn, "table": "public.wider"}
        with pytest.raises(ConfigError, match="without a schedule"):
            small.create_table("wider", source, ["bucket(2, id)"], refresh=Refresh(on_schema_change="append"))
        small.create_table(
            "wider", source, ["bucket(2, id)"], refresh=Refresh(mode="changes", on_schema_change="append")
        )
        with there.transaction():
            there.execute("insert into wider values (2, 2)")
            there.execute("alter table wider add column more text")
            there.execute("insert into wider values (3, 3, 'three')")
        there.execute("update wider set more = 'one' where id = 1")
        until(lambda: rows(small, "wider") == [(1, 1, "one"), (2, 2, None), (3, 3, "three")])
        there.execute("alter table wider add column filled int default 7")
        there.execute("insert into wider values (4, 4, 'four')")
        until(lambda: "make the table anew" in ((shown(small, "wider")["error"] or {}).get("message") or ""))
        assert len(rows(small, "wider")) == 3
    small.drop_table("wider")


def test_a_table_that_stands_still_does_not_make_its_source_keep_more_than_it_may(small, server):
    with server.connect() as there:
        there.execute("create table bounded (id bigint primary key, v text)")
        small.create_table(
            "bounded",
            {"format": "postgres", "dsn": server.dsn, "table": "public.bounded", "max_lag_bytes": 1_000_000},
            ["bucket(2, id)"],
        )
        there.execute("insert into bounded values (1, 'a')")
        until(lambda: len(rows(small, "bounded")) == 1)
        there.execute("alter table bounded add column more int")
        there.execute("insert into bounded values (2, 'b', 2)")
        until(lambda: (shown(small, "bounded")["error"] or {}).get("code") == "source.unfit")
        assert there.execute("select count(*) from pg_replication_slots").fetchone() == (1,)
        there.execute("insert into bounded select n, repeat('x', 1000), n from generate_series(10, 3000) n")
        until(lambda: (shown(small, "bounded")["error"] or {}).get("code") == "source.lost")
        until(lambda: there.execute("select count(*) from pg_replication_slots").fetchone() == (0,))
        assert rows(small, "bounded") == [(1, "a")]
        there.execute("alter table bounded drop column more")
        with small.client() as client:
            client.refresh("bounded", "full")
        assert len(rows(small, "bounded")) == there.execute("select count(*) from bounded").fetchone()[0]
    small.drop_table("bounded")


def test_figures_say_how_far_tables_are_and_what_they_took(small, server):
    with server.connect() as there:
        there.execute("create table figured (id bigint primary key)")
        there.execute("insert into figured values (1), (2)")
        small.create_table(
            "figured", {"format": "postgres", "dsn": server.dsn, "table": "public.figured"}, ["bucket(2, id)"]
        )
        there.execute("insert into figured values (3), (4), (5)")
        until(lambda: len(rows(small, "figured")) == 5)

        def figures() -> str:
            return "".join(small.shown(node, "/metrics") for node in small.node_ids if node.startswith("sched"))

        of = 'mode="changes",table="figured"'
        wanted = [
            f"dataset_acceleration_refresh_lag_ms{{{of}}} 0.0",
            f"dataset_acceleration_refresh_lag_bytes{{{of}}}",
            f"dataset_acceleration_refresh_duration_ms_count{{{of}}}",
        ]
        counted = re.compile(re.escape(f"dataset_acceleration_refresh_rows_total{{{of}}} ") + r"(\S+)")

        def are_shown() -> bool:
            """All of them, which change one after the other, and at the scheduler that follows the table by then."""
            found = figures()
            return sum(map(float, counted.findall(found))) == 5 and all(figure in found for figure in wanted)

        until(are_shown)
        there.execute("drop table figured")
    small.drop_table("figured")


def test_a_log_that_somebody_else_moved_on_is_lost_and_nothing_is_skipped_in_silence(small, server, there):
    there.execute("create table moved (id bigint primary key)")
    there.execute("create table beside (id bigint)")
    follow(small, server, "moved")
    log = shown(small, "moved")["position"].split(" of ")[1]

    def is_lost() -> bool:
        there.execute("insert into beside values (1)")  # log that tells nothing of the table
        with suppress(psycopg.errors.ObjectInUse):
            there.execute("select pg_replication_slot_advance(%s, pg_current_wal_lsn())", [log])
        return (shown(small, "moved")["error"] or {}).get("code") == "source.lost"

    until(is_lost)
    small.drop_table("moved")
    until(lambda: not left(there))


def left(there: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    """The slots and publications that there are."""
    return there.execute(
        "select slot_name from pg_replication_slots union all select pubname from pg_publication"
    ).fetchall()


def follow(small: LocalCluster, server: PostgresServer, table: str) -> None:
    small.create_table(table, {"format": "postgres", "dsn": server.dsn, "table": table}, ["bucket(2, id)"])


def test_create_of_a_table_that_cannot_be_copied_is_answered_at_once_and_leaves_nothing(small, server, there):
    there.execute("create table bad (id bigint primary key, day date)")
    there.execute("insert into bad select n, '2024-01-01' from generate_series(1, 100) n")
    there.execute("insert into bad values (0, 'infinity')")
    began = time.monotonic()
    with pytest.raises(SourceUnfit, match=r"which no date32.* here can be: change it there, and copy"):
        follow(small, server, "bad")
    assert time.monotonic() - began < AT_ONCE_S
    assert "bad" not in [row["table"] for row in small.tables()]
    until(lambda: not left(there))
    there.execute("update bad set day = '2024-01-01' where id = 0")
    follow(small, server, "bad")
    assert small.sql("select count(*) as n from bad").to_pylist() == [{"n": 101}]
    small.drop_table("bad")
    until(lambda: not left(there))


def test_a_table_whose_name_another_one_takes_serves_what_it_has_and_says_so(small, server, there):
    """As migrations do; it goes on once the name is given back."""
    there.execute("create table swapped (id bigint primary key, a text)")
    there.execute("create table other (id bigint primary key, a text)")
    there.execute("insert into swapped values (1, 'old')")
    follow(small, server, "swapped")

    there.execute("begin; alter table swapped rename to gone; alter table other rename to swapped; commit")
    there.execute("insert into swapped values (2, 'new')")
    until(lambda: (shown(small, "swapped")["error"] or {}).get("code") == "source.unfit")
    assert small.sql("select id, a from swapped").to_pylist() == [{"id": 1, "a": "old"}]
    there.execute("begin; alter table swapped rename to other; alter table gone rename to swapped; commit")
    there.execute("insert into swapped values (3, 'back')")
    until(lambda: small.sql("select count(*) as n from swapped").to_pylist() == [{"n": 2}])
    until(lambda: shown(small, "swapped")["error"] is None)
    small.drop_table("swapped")
    until(lambda: not left(there))


def test_create_of_a_table_whose_source_stays_away_is_answered_and_leaves_nothing(
    small, server, there, monkeypatch
):
    """All slots are taken: that may pass, and is waited for, but not for long."""
    monkeypatch.setattr(waiting, "SOURCE_AWAY_MS", 2_000)
    there.execute("create table late (id bigint primary key)")
    taken = "select pg_create_physical_replication_slot('taken_' || n) from generate_series(1, 40) n"
    there.execute(taken)
    began = time.monotonic()
    with pytest.raises(SourceUnavailable, match="all replication slots are in use"):
        follow(small, server, "late")
    assert time.monotonic() - began < AT_ONCE_S
    assert "late" not in [row["table"] for row in small.tables()]
    there.execute("select pg_drop_replication_slot(slot_name) from pg_replication_slots")
    until(lambda: not left(there))
    there.execute(taken)
    with ThreadPoolExecutor(1) as pool:
        monkeypatch.setattr(waiting, "SOURCE_AWAY_MS", PATIENCE_S * 1_000)
        made = pool.submit(follow, small, server, "late")
        until(lambda: "late" in [row["table"] for row in small.tables()])
        until(lambda: (shown(small, "late") or {}).get("error"))
        there.execute("select pg_drop_replication_slot(slot_name) from pg_replication_slots")
        made.result(PATIENCE_S)
    small.drop_table("late")
    until(lambda: not left(there))


def test_log_that_no_table_can_use_any_more_is_let_go(small, server, there):
    """Where `max_lag_bytes` says so: what was not told to one publication is in no log."""
    there.execute("create table lags (id bigint primary key)")
    source = {"format": "postgres", "dsn": server.dsn, "table": "lags", "max_lag_bytes": 1}
    small.create_table("lags", source, ["bucket(2, id)"])
    (oid,) = there.execute("select 'lags'::regclass::oid").fetchone()
    there.execute(f"drop publication ballista_{oid}")
    there.execute("insert into lags values (1)")
    until(lambda: not left(there))
    assert shown(small, "lags")["error"]["code"] == "source.lost"
    small.drop_table("lags")


def test_a_table_that_is_made_anew_never_shows_rows_of_the_one_that_had_its_name(small, server, there):
    for side in "ab":
        there.execute(f"create table side_{side} (id bigint primary key, x text)")
        there.execute(f"insert into side_{side} select n, '{side}' from generate_series(1, 100) n")
    wanted, seen, stopped = ["a"], [], Event()

    def look() -> None:
        with small.client() as client:
            while not stopped.is_set():
                before = wanted[0]
                with suppress(BallistaError):
                    found = client.sql("select distinct x from side", timeout=1).to_pylist()
                    if wanted[0] == before:
                        seen.append((before, [row["x"] for row in found]))

    with ThreadPoolExecutor() as readers:
        reader = readers.submit(look)
        try:
            for turn in range(6):
                wanted[0] = "between"
                with suppress(SqlError):
                    small.drop_table("side")
                wanted[0] = "ab"[turn % 2]
                source = {"format": "postgres", "dsn": server.dsn, "table": f"public.side_{wanted[0]}"}
                small.create_table("side", source, ["bucket(3, id)"])
                assert rows(small, "side") == [(n, wanted[0]) for n in range(1, 101)]
        finally:
            stopped.set()
        reader.result()
    assert seen
    assert all(found == [want] for want, found in seen if want in "ab"), seen
    small.drop_table("side")


def test_every_text_is_copied_as_the_database_has_it(small, server, there):
    texts = [
        "",
        " ",
        "\ufeffmark",
        '"',
        '""',
        ",",
        "\n",
        "\r\n",
        "\\.",
        "\\N",
        "NULL",
        'a,b\n"c"',
        "\u2028",
        "é" * 3_000,
        None,
    ]
    there.execute("create table texts (word text, id int primary key, raw bytea)")
    with there.cursor() as cursor:
        cursor.executemany(
            "insert into texts values (%s, %s, %s)",
            [(t, n, None if t is None else t.encode()) for n, t in enumerate(texts)],
        )
    there.execute("insert into texts select repeat(chr(34) || n, 500), n, null from generate_series(100, 9000) n")
    expected = [(t, n, None if t is None else t.encode()) for n, t in enumerate(texts)]
    expected += [(f'"{n}' * 500, n, None) for n in range(100, 9001)]
    small.create_table(
        "texts", {"format": "postgres", "dsn": server.dsn, "table": "public.texts"}, ["bucket(2, id)"]
    )
    found = small.sql("select word, id, raw from texts order by id").to_pylist()
    assert [tuple(row.values()) for row in found] == expected
