"""Text of clients is bound where it can be ended: what is folded meanwhile never takes the node's memory."""

from __future__ import annotations

import inspect
import resource
import subprocess
import sys
from contextlib import suppress

import pyarrow as pa
import pytest

from ballista_py.engines.apart.workers import Workers
from ballista_py.engines.duckdb.binder import Binder
from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.errors import MergeTooLarge
from ballista_py.node.engine_processes import EngineProcess, own_bytes
from ballista_py.runtime import SystemRuntime
from ballista_py.transport.arrow.types import check_schema

RUNTIME = SystemRuntime()
SCHEMAS = {"t": pa.schema([("n", pa.int64()), ("s", pa.string())])}
FOLDED = "length(repeat('x', 3000000000))"
QUERY = f"select {FOLDED} as n from t"
# These read the text and compute nothing of it.
READ_ONLY = {"passing", "check", "parameters", "parameter_columns", "require_change"}
BOUND = {
    "describe": [(QUERY, SCHEMAS)],
    "plan": [(QUERY, SCHEMAS)],
    "types": [(QUERY, SCHEMAS)],
    "described": [(QUERY, SCHEMAS, {})],
    "declared": [(f"create table c (n bigint, check (n < {FOLDED}))",)],
    "bind_change": [
        (f"insert into t select {FOLDED}, 'a'", SCHEMAS),
        (f"update t set n = {FOLDED}", SCHEMAS),
        (f"update t set n = {FOLDED}", SCHEMAS, f'update "t" as "t" set "n" = ({FOLDED})'),
        (f"delete from t where n < {FOLDED}", SCHEMAS),
        (f"merge into t using (select {FOLDED} as n) u on t.n = u.n when matched then delete", SCHEMAS),
    ],
}
CALLS = [(name, arguments) for name, calls in BOUND.items() for arguments in calls]


class Elsewhere:
    """What is asked of another process."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __getattr__(self, name):
        return lambda *_arguments: self.asked.append(name)


def test_every_way_to_have_text_bound_is_known_here():
    ways = {
        name
        for name, method in inspect.getmembers(Binder, inspect.isfunction)
        if not name.startswith("_") and "sql" in inspect.signature(method).parameters
    }
    assert ways == READ_ONLY | BOUND.keys()


@pytest.mark.parametrize(("way", "arguments"), CALLS)
def test_text_that_may_take_memory_without_an_end_is_bound_in_another_process(way, arguments):
    elsewhere = Elsewhere()
    binder = Binder(RUNTIME, elsewhere)
    getattr(binder, way)(*arguments)
    assert elsewhere.asked == [way]
    binder.close()


def test_what_is_folded_while_a_change_is_bound_does_not_grow_the_node(tmp_path):
    made = Workers(lambda: EngineProcess(str(tmp_path), RUNTIME), 1 << 30, own_bytes, RUNTIME)
    engine = DuckDBEngine(workers=made, runtime=RUNTIME)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for way in ("bind_change", "declared"):
        with suppress(MergeTooLarge):  # what cannot be folded may still be bound
            getattr(engine, way)(*BOUND[way][0])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 256 << 10
    engine.close()


def test_what_is_bound_elsewhere_is_what_is_bound_here(tmp_path):
    made = Workers(lambda: EngineProcess(str(tmp_path), RUNTIME), 1 << 30, own_bytes, RUNTIME)
    apart, here = DuckDBEngine(workers=made, runtime=RUNTIME), DuckDBEngine(runtime=RUNTIME)
    update = "update t set s = repeat('x', n)"
    same, other = "update \"t\" set s = repeat('x', n)", "update t set s = repeat('y', n)"
    for engine in (apart, here):
        assert engine.types("select n, repeat('x', 2) as a, [n] as b from t", SCHEMAS) == (
            ("n", "BIGINT"),
            ("a", "VARCHAR"),
            ("b", "BIGINT[]"),
        )
        assert engine.declared("create table c (a decimal(9, 2), check (a < length(repeat('x', 5))))") == (
            ("a", "DECIMAL(9,2)"),
        )
        assert engine.bind_change(update, SCHEMAS)
        assert engine.bind_change(update, SCHEMAS, same)
        assert not engine.bind_change(update, SCHEMAS, other)
    wrong = "update t set nope = repeat('x', n)"
    messages = []
    for engine in (apart, here):
        with pytest.raises(Exception, match="nope") as raised:
            engine.bind_change(wrong, SCHEMAS)
        messages.append((type(raised.value), str(raised.value)))
    assert messages[0] == messages[1]
    apart.close()
    here.close()


MAPS = """
import pyarrow as pa
from ballista_py.engines.duckdb.library import duckdb
from ballista_py.errors import InvalidData, SqlError
from ballista_py.testing.sql.single_node import InProcessCluster
from ballista_py.transport.arrow.door import read_rows

with InProcessCluster() as cluster:
    cluster.add("t", pa.table({"k": [1, 2, 3]}), "bucket(2, k)")
    for value in ("map()", "[map([], [])]", "{'a': map_from_entries([])}"):
        try:
            cluster.check(f"select k, {value} as v from t")
        except SqlError as error:
            print("refused:", error)
        rows = duckdb.sql(f"select {value} as v from range(3)").to_arrow_table()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        try:
            sent = read_rows(sink.getvalue().to_pybytes())
            sent.cast(sent.schema)
        except InvalidData as error:
            print("refused:", error)
"""


def test_a_map_whose_keys_have_no_type_is_refused_and_ends_no_process():
    ended = subprocess.run([sys.executable, "-c", MAPS], capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr[-500:]
    lines = ended.stdout.splitlines()
    assert len(lines) == 6
    assert all("give it one" in line for line in lines[::2])
    assert all("column" in line for line in lines[1::2])


def test_maps_with_keys_of_a_type_are_taken():
    schema = pa.schema([("m", pa.map_(pa.string(), pa.list_(pa.map_(pa.int32(), pa.null()))))])
    assert check_schema(schema) == schema
