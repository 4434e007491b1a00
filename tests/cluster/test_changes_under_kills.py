"""A table follows PostgreSQL while nodes and the database are killed: it is the source at the position that it says.

`make soak-changes` does it for ten minutes.
"""

from __future__ import annotations

import bisect
import random
import threading
import time
from collections import Counter
from typing import Any

import psycopg
import pytest
from tests.cluster.postgres_server import PostgresServer

from ballista_py import LocalCluster
from ballista_py.coordinator.changes.pgoutput import lsn
from ballista_py.errors import BallistaError
from ballista_py.state.documents.decisions import SourcePosition, TableDecisions
from ballista_py.state.stores.store import open_store

pytestmark = pytest.mark.cluster
REGIONS, KEYS, PATIENCE_S = 5, 60, 150
HELD = "held against the source"
Rows = dict[int, tuple[str, int]]


class Writer(threading.Thread):
    """Transactions with rows that come, change, move and go; remembers the table after each, by place in the log."""

    def __init__(self, server: PostgresServer, seed: int) -> None:
        super().__init__(daemon=True)
        self.server, self.chance = server, random.Random(seed)
        self.places: list[int] = []
        self.states: list[Rows] = []
        self.rows: Rows = {}
        self.ends = threading.Event()
        self.failed: Exception | None = None

    def run(self) -> None:
        try:
            while not self.ends.is_set():
                try:
                    self._live()
                except psycopg.OperationalError:
                    time.sleep(0.2)  # it was killed
        except Exception as error:
            self.failed = error

    def _live(self) -> None:
        with self.server.connect() as there:
            # What was under way when the server died may have committed.
            found = there.execute("select id, region, v from moving").fetchall()
            self._keep(there, {number: (region, value) for number, region, value in found})
            while not self.ends.is_set():
                rows = dict(self.rows)
                with there.transaction():
                    for _ in range(self.chance.randrange(1, 6)):
                        self._change(there, rows)
                self._keep(there, rows)
                time.sleep(0.005)

    def _keep(self, there: Any, rows: Rows) -> None:
        self.rows = rows
        self.states.append(rows)  # first: whoever finds the place finds the rows
        self.places.append(lsn(there.execute("select pg_current_wal_insert_lsn()::text").fetchone()[0]))

    def _change(self, there: Any, rows: Rows) -> None:
        number, region = self.chance.randrange(KEYS), f"r{self.chance.randrange(REGIONS)}"
        value, what = self.chance.randrange(1_000), self.chance.random()
        if number not in rows:
            there.execute("insert into moving values (%s, %s, %s)", [number, region, value])
            rows[number] = (region, value)
        elif what < 0.2:
            there.execute("delete from moving where id = %s", [number])
            del rows[number]
        else:
            region = region if what < 0.7 else rows[number][0]
            there.execute("update moving set region = %s, v = %s where id = %s", [region, value, number])
            rows[number] = (region, value)

    def at(self, position: SourcePosition) -> Rows:
        """The table as of a commit: the first state that was seen when the log had come so far."""
        return self.states[bisect.bisect_left(self.places, position.at)]


class Followed:
    """The table here, beside the place in the source that it says."""

    def __init__(self, cluster: LocalCluster, folder: str) -> None:
        self.cluster = cluster
        self.statements = TableDecisions(open_store(cluster.state_location), folder)
        self.looks: Counter[str] = Counter()

    def look(self) -> tuple[SourcePosition, Rows] | None:
        """Both as of one moment; None if the table moved on meanwhile, or nobody answers now."""
        before = self.statements.read().position
        try:
            found = self.cluster.sql("select id, region, v from moving", timeout=20).to_pylist()
        except BallistaError:
            self.looks["unanswered"] += 1
            return None
        if before is None or self.statements.read().position != before:
            self.looks["moved"] += 1
            return None
        assert len({row["id"] for row in found}) == len(found), "a row is there twice"
        self.looks[HELD] += 1
        return before, {row["id"]: (row["region"], row["v"]) for row in found}


def follow(seconds: float, kill_every_s: float, kills: int, *, kills_server: bool) -> Counter[str]:
    """Write, look and kill for so long, and until so many kills are done and looked after; what was done."""
    server, chance, done = PostgresServer(), random.Random(7), Counter[str]()
    try:
        with server.connect() as there:
            there.execute("create table moving (id bigint primary key, region text not null, v bigint)")
            there.execute("alter table moving replica identity full")
            there.execute("insert into moving select n, 'r' || n % 5, n from generate_series(0, 19) n")
        with LocalCluster(schedulers=2, executors=3, ttl_ms=2_000) as cluster:
            source = {"format": "postgres", "dsn": server.dsn, "table": "public.moving"}
            cluster.create_table("moving", source, ["region"], primary_key=["region", "id"])
            table = next(row for row in cluster.tables() if row["table"] == "moving")
            assert table["ready"]
            folder = next(spec.folder for spec in cluster._tables.cluster().tables.values())
            followed, writer = Followed(cluster, folder), Writer(server, seed=3)
            first = followed.statements.read().position
            writer.start()
            victims = ["scheduler-1", "executor-1", "scheduler-2", "executor-2", "postgres", "executor-3"]
            end, kill_at = time.monotonic() + seconds, time.monotonic() + kill_every_s
            late = end + PATIENCE_S
            while time.monotonic() < end or done["kills"] < kills or followed.looks[HELD] < 2 * kills:
                assert time.monotonic() < late, f"too slow: {done + followed.looks}"
                assert writer.failed is None, writer.failed
                seen = followed.look()
                if seen is not None and seen[0] != first:
                    assert seen[1] == writer.at(seen[0]), f"the table is not the source at {seen[0]}"
                if time.monotonic() >= kill_at:
                    victim = victims[done["kills"] % len(victims)]
                    if victim == "postgres" and kills_server:
                        server.kill()
                        time.sleep(1)
                        server.start()
                    elif victim != "postgres":
                        cluster.kill(victim)
                        time.sleep(chance.random())
                        cluster.start(victim)
                    done["kills"] += 1
                    kill_at = time.monotonic() + kill_every_s
                time.sleep(0.05)
            writer.ends.set()
            writer.join(PATIENCE_S)
            done["transactions"] = len(writer.states)
            until = time.monotonic() + PATIENCE_S
            while (seen := followed.look()) is None or seen[1] != writer.rows:
                assert time.monotonic() < until, f"the table stays behind: {seen and seen[0]}"
                time.sleep(0.2)
            return done + followed.looks
    finally:
        server.stop()


def test_the_table_is_the_source_at_its_position_while_a_reader_and_an_owner_are_killed():
    done = follow(6, 2, 2, kills_server=False)
    print(dict(done))
    assert done["transactions"] > 20


@pytest.mark.long
@pytest.mark.timeout(1_500)
def test_the_table_is_the_source_at_its_position_for_ten_minutes_of_kills():
    done = follow(600, 12, 20, kills_server=True)
    print(dict(done))
    assert done[HELD] > 100
