"""Rules of the house that no linter knows."""

import ast
import re
from pathlib import Path

import pytest

SRC = Path(__file__).parent.parent / "src" / "ballista_py"
MODULES = sorted(path for path in SRC.rglob("*.py") if "_pb2" not in path.name)
DOORS = {"time", "random", "uuid", "secrets"}
LOCKS = {"Lock", "RLock", "Condition", "Event", "Semaphore", "BoundedSemaphore", "Barrier", "local"}


def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
            found.add(node.module)
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SRC)))
def test_time_chance_ids_and_locks_come_through_the_runtime_alone(path):
    if path.name == "runtime.py":
        return
    names = imports_of(path)
    assert not {name.split(".")[0] for name in names} & DOORS
    assert not {name for name in names if name.startswith("threading.")} & {f"threading.{lock}" for lock in LOCKS}
    assert "threading" not in names or path.is_relative_to(SRC / "node") or path == SRC / "threads.py"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SRC)))
def test_every_module_says_what_it_is_for_and_stays_below_500_lines(path):
    text = path.read_text()
    assert ast.get_docstring(ast.parse(text))
    assert text.count("\n") <= 500


def test_no_two_classes_of_the_product_have_one_name():
    places: dict[str, list[str]] = {}
    for path in MODULES:
        if not path.is_relative_to(SRC / "testing"):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places.setdefault(node.name, []).append(str(path.relative_to(SRC)))
    twice = {name: found for name, found in places.items() if len(found) > 1}
    assert twice == {"Job": ["node/http/shown.py", "transport/client/jobs.py"]}  # both are how people see one job


@pytest.mark.parametrize(
    "path",
    [path for path in MODULES if path.relative_to(SRC).parts[0] in ("partitions", "scans", "sql")],
    ids=lambda path: str(path.relative_to(SRC)),
)
def test_planning_does_no_io(path):
    doors = {"os", "io", "socket", "pathlib", "subprocess", "pyarrow.flight", "pyarrow.fs", "pyarrow.parquet"}
    assert not imports_of(path) & doors


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SRC)))
def test_sql_is_parsed_through_one_door_that_measures_it_first(path):
    if path.name in ("parsing.py", "measures.py"):  # the door, and what it counts with
        return
    tree = ast.parse(path.read_text())
    assert not imports_of(path) & {f"sqlglot.{name}" for name in ("parse", "parse_one", "maybe_parse", "tokenize")}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            assert node.attr not in ("parse_one", "maybe_parse", "tokenize", "parser", "parse_into") or (
                isinstance(node.value, ast.Name) and node.value.id in ("duckdb", "email")
            ), f"line {node.lineno}: {node.attr}"
            dialects = isinstance(node.value, ast.Name) and node.value.id in ("sqlglot", "ENGINE", "Dialect")
            assert not (node.attr == "parse" and dialects), f"line {node.lineno}"


# Reading Arrow data of another process, by whatever name; making such data is no matter.
WIRE_READERS = {
    "read_chunk", "read_all", "read_pandas", "to_reader", "open_stream", "open_file", "read_message", "read_tensor",
    "read_record_batch", "read_schema", "deserialize", "deserialize_pandas", "RecordBatchStreamReader",
    "RecordBatchFileReader", "MessageReader", "import_from_c", "do_get", "do_exchange",
}  # fmt: skip
# What else bears such a name, and why it needs no door.
NOT_FROM_THE_WIRE = {
    ("transport/arrow/door.py", "*"): "the door",
    ("transport/arrow/door.py", "open_stream"): "the messages of a call, each measured before; read by `FlightRows`",
    ("transport/flight/methods.py", "do_exchange"): "a port's own method",
    ("transport/flight/methods.py", "do_get"): "a port's own method",
    ("transport/flight/client.py", "do_exchange"): "its reader goes into `FlightRows`",
    ("transport/client/client.py", "open_stream"): "of our own pool: its stream reads through the door",
    ("transport/client/jobs.py", "open_stream"): "the same",
    ("coordinator/writes/owner_calls.py", "open_stream"): "the same",
    ("coordinator/queries/leg_opener.py", "open_stream"): "the same",
    ("engines/duckdb/change.py", "to_reader"): "a table of this process",
    ("coordinator/writes/whole_statements.py", "to_reader"): "a table of this process",
    ("coordinator/writes/whole_writes.py", "to_reader"): "a table of this process",
    ("coordinator/writes/through_rows.py", "to_reader"): "a table of this process",
    ("testing/sql/single_node.py", "to_reader"): "a table of this process",
    ("testing/sql/single_node_changes.py", "to_reader"): "a table of this process",
    ("testing/sql/single_node_changes.py", "read_all"): "rows that DuckDB gives",
    ("testing/hostile/raw_flight.py", "open_stream"): "takes a stream apart that it has made",
    ("testing/hostile/wire_fuzz_child.py", "open_stream"): "of our own pool",
    ("partitions/columns.py", "open_stream"): "of a declaration in a document of the cluster's own store",
    ("state/documents/codec.py", "read_schema"): "a declaration in a document of the cluster's own store",
    ("spark/answers.py", "open_stream"): "a file that this process's Spark has written",
    ("spark/store_answers.py", "open_stream"): "an object that a task of the Spark of the operator has put",
    ("spark/sources.py", "read_schema"): "a Parquet file",
    ("transport/client/copies.py", "read_schema"): "a Parquet file",
    ("engines/duckdb/kept_list.py", "read_schema"): "of the node's own file, each block of which has a checksum",
    ("engines/duckdb/query.py", "reader"): "rows that DuckDB gives",
    ("engines/duckdb/large_rows.py", "reader"): "rows that DuckDB gives",
    ("engines/apart/worker.py", "reader"): "rows that DuckDB gives",
    ("engines/apart/worker.py", "read_all"): "rows of the node that started this process",
    ("engines/apart/frames.py", "open_stream"): "between a node and a process of its own engine",
    ("engines/apart/frames.py", "read_schema"): "between a node and a process of its own engine",
    ("storage/formats/vortex.py", "read_all"): "a Vortex file",
    ("storage/reads/files.py", "open_file"): "an object of the cluster's own store, by its digest",
    ("storage/reads/files.py", "read_all"): "the same",
    ("storage/reads/files.py", "read_schema"): "the same",
    ("storage/writes/staged.py", "open_file"): "an object of the cluster's own store, by its digest",
    ("storage/writes/staged.py", "read_all"): "the same",
    ("transport/table_read/exchange.py", "read_chunk"): "of RowsIn, which measures; only what is said is used",
    ("transport/table_read/granted_sending.py", "read_chunk"): "the same",
}  # fmt: skip


def wire_readers_in(text: str) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            # our own server methods and wrappers bear the names of Flight's too
            if node.func.attr in WIRE_READERS and not (
                isinstance(node.func.value, ast.Name) and node.func.value.id == "self"
            ):
                found.add(node.func.attr)
        elif isinstance(node, ast.For | ast.comprehension) and isinstance(node.iter, ast.Name):
            found.update({"reader"} & {node.iter.id})  # a Flight reader can be iterated over
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("pyarrow"):
            found.update({alias.name for alias in node.names} & WIRE_READERS)
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SRC)))
def test_arrow_data_of_other_processes_comes_in_by_the_door_alone(path):
    name = path.relative_to(SRC).as_posix()
    if (name, "*") in NOT_FROM_THE_WIRE:
        return
    unlisted = {reader for reader in wire_readers_in(path.read_text()) if (name, reader) not in NOT_FROM_THE_WIRE}
    assert not unlisted, "read it with FlightRows, read_rows or read_schema of transport/arrow/door.py"


@pytest.mark.parametrize(
    "text",
    [
        "chunk = reader.read_chunk()",
        "for b in pa.ipc.open_stream(data): pass",
        "from pyarrow.ipc import open_stream",
        "for chunk in reader: pass",
        "table = client.do_get(ticket).read_all()",
        "pa.RecordBatch._import_from_c(1, 2); pa.ipc.read_record_batch(m, s)",
    ],
)
def test_another_way_of_reading_from_the_wire_would_be_seen(text):
    assert wire_readers_in(text)


def test_what_is_listed_as_no_reading_from_the_wire_is_there():
    for name, reader in NOT_FROM_THE_WIRE:
        assert reader == "*" or reader in wire_readers_in((SRC / name).read_text()), (name, reader)


# A server unpacks what it may before anybody is asked, so each is made in a place that tells it that it may not.
SERVERS = {"transport/flight/listener.py", "transport/control/server.py", "testing/hostile/wire_fuzz_child.py"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SRC)))
def test_servers_of_grpc_are_made_where_their_bounds_are_set(path):
    text = path.read_text()
    assert "FlightServerBase" not in text
    assert path.relative_to(SRC).as_posix() in SERVERS or not re.search(r"(grpc|aio)\.server\(", text)
