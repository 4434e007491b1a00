"""What DuckDB has freed goes back to the system, and large rows are looked at a few at a time."""

from __future__ import annotations

import sys

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from ballista_py.engines.apart.workers import Workers
from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.engines.duckdb.freed import AGAIN_MS, GivesBackFreed
from ballista_py.engines.duckdb.large_rows import ROW_NUMBER, LargeRows
from ballista_py.errors import SqlError
from ballista_py.node.engine_processes import own_bytes
from ballista_py.partitions.value_sizes import LargeValues
from ballista_py.runtime import SystemRuntime

RUNTIME = SystemRuntime()
MB = 1 << 20


def limit_of(root):
    return root.execute("select current_setting('memory_limit')").fetchone()[0]


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="DuckDB takes the allocator of the system elsewhere"
)
def test_what_was_freed_goes_back():
    with duckdb.connect(config={"memory_limit": "800MB", "threads": 2}) as root:
        limit, before = limit_of(root), own_bytes()
        root.execute("create table t as select repeat(chr(65 + (range % 26)::int), 1000000) as x from range(250)")
        full = own_bytes()
        assert full > before + 200 * MB
        root.execute("drop table t")
        GivesBackFreed(own_bytes, 1, "800MB", RUNTIME).tick(root)
        assert own_bytes() < before + 100 * MB
        assert limit_of(root) == limit


class Clock(SystemRuntime):
    now_ms = 0.0

    def monotonic_ms(self):
        return self.now_ms


class Root:
    def __init__(self):
        self.told = 0

    def execute(self, _sql):
        self.told += 1
        raise duckdb.ConnectionException("closed")


def test_a_node_that_takes_little_is_left_alone_and_a_full_one_is_asked_once_a_second():
    took, runtime, root = [300 * MB], Clock(), Root()
    freed = GivesBackFreed(lambda: took[0], 512 * MB, "512MB", runtime)
    freed.tick(root)
    assert root.told == 0
    took[0] = 400 * MB
    freed.tick(root)
    freed.tick(root)
    assert root.told == 1
    took[0] = 420 * MB
    freed.tick(root)
    assert root.told == 2
    runtime.now_ms += AGAIN_MS + 1
    freed.tick(root)
    assert root.told == 3


def test_the_engine_may_say_its_limit_again_and_no_statement_may():
    asked = []

    def own():
        asked.append(1)
        return 1 << 40

    workers = Workers(lambda: pytest.fail("nothing runs apart"), 1, own, RUNTIME)
    engine = DuckDBEngine(memory_limit="300MB", workers=workers, runtime=RUNTIME)
    try:
        with duckdb.connect() as other:
            other.execute("set memory_limit = '300MB'")
            limit = limit_of(other)
        engine.watch()
        assert asked
        assert limit_of(engine._root) == limit
        engine._root.execute("set global memory_limit = '300MB'")
        with pytest.raises(duckdb.InvalidInputException):
            engine._root.execute("set global threads = 1")
        with pytest.raises(SqlError):
            engine.query("set global memory_limit = '900GB'")
    finally:
        engine.close()


class Listened:
    """A connection that remembers what it was asked."""

    def __init__(self, connection):
        self.asked = []
        self._connection = connection

    def sql(self, text):
        self.asked.append(text)
        return self._connection.sql(text)

    def __getattr__(self, name):
        return getattr(self._connection, name)


@pytest.mark.parametrize(
    ("where", "found"),
    [("true", range(30)), ("id % 2 = 0", range(0, 30, 2)), ("false", []), ("id in (3, 29)", [3, 29])],
)
def test_the_sizes_of_large_rows_are_asked_for_a_few_at_a_time(where, found):
    size = 4_000_000
    with duckdb.connect() as connection:
        connection.execute(
            f"create table t as select range as id, case when range = 4 then null else repeat('x', {size}) end as x "
            "from range(30)"
        )
        numbered = f'select id, x, rowid as "{ROW_NUMBER}" from t'
        named = f'with w as not materialized ({numbered}) select "{ROW_NUMBER}" from w where {where}'
        listened = Listened(connection.cursor())
        rows = LargeRows(
            listened,
            numbered,
            named,
            {"x": LargeValues({22: 29})},
            pa.schema([("id", pa.int64()), ("x", pa.string())]),
        )
        numbers, sizes = rows._measured()
        assert numbers.tolist() == list(found)
        assert sizes.tolist() == [0.0 if number == 4 else size for number in found]
        assert [text.count("as size") for text in listened.asked].count(1) == int(np.ceil(len(numbers) / 8))
        assert [number for batch in rows.batches() for number in batch["id"].to_pylist()] == list(found)
