"""A table that is made of rows is seen whole or not at all, wherever the process that makes it stops."""

import pyarrow as pa
import pytest

from ballista_py.coordinator.queries.first_rows import FirstRows
from ballista_py.coordinator.tables.definitions import TableMaker
from ballista_py.errors import ConfigError
from ballista_py.runtime import SystemRuntime
from ballista_py.state.documents.documents import CLUSTER_KEY, ClusterDocument
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.ownership.partition_store import PartitionStore
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.storage.formats.files import read_data_file
from ballista_py.storage.partition_storage import PartitionStorage

SCHEMA = pa.schema([("id", pa.int64()), ("kind", pa.string())])
ROWS = pa.table({"id": range(30), "kind": [f"k{n % 3}" for n in range(30)]}, schema=SCHEMA)
RUNTIME = SystemRuntime()


class StoppedError(Exception):
    """The process is gone."""


class StoppingStore:
    """A store whose process stops at its n-th write, before or after it is carried out."""

    def __init__(self, store, writes: int, after: bool) -> None:
        self._store, self._left, self._after = store, writes, after

    def __getattr__(self, name):
        verb = getattr(self._store, name)
        if name not in ("create", "replace", "delete"):
            return verb

        def counted(*arguments):
            self._left -= 1
            if self._left < 0 or (self._left == 0 and not self._after):
                raise StoppedError
            done = verb(*arguments)
            if self._left == 0:
                raise StoppedError
            return done

        return counted


def make(store, token: str = "copy") -> int:
    maker, first = TableMaker(store, RUNTIME), FirstRows(store, RUNTIME, map)
    maker.create(
        "t",
        None,
        ["kind"],
        schema=SCHEMA,
        mark=token,
        fill=lambda table: first.write(table, ROWS.to_batches(7), token),
    )
    return maker.done(token)


def seen(store) -> list[int] | None:
    """The rows of the table, or None if there is none."""
    table = TableMaker(store, RUNTIME).cluster().tables.get("t")
    if table is None:
        return None
    pmap = PartitionStore(store, runtime=RUNTIME).read("t")
    found = []
    for partition in range(len(pmap)):
        manifest = PartitionStorage(store, table.folder, pmap.path(partition), runtime=RUNTIME).read().document
        for file in manifest.files:
            found += read_data_file(store, file, table.schema).column("id").to_pylist()
    return sorted(found)


@pytest.fixture
def store():
    made = MemoryStore()
    ObjectState(made, CLUSTER_KEY, ClusterDocument).create(ClusterDocument())
    return made


def test_the_rows_come_with_the_table(store):
    assert make(store) == 30
    assert seen(store) == list(range(30))


@pytest.mark.parametrize("after", [False, True])
def test_wherever_its_maker_stops_there_is_the_whole_table_or_none_and_sent_again_it_is_made(store, after):
    outcomes = set()
    for writes in range(1, 40):
        inner = MemoryStore()
        ObjectState(inner, CLUSTER_KEY, ClusterDocument).create(ClusterDocument())
        try:
            make(StoppingStore(inner, writes, after))
        except StoppedError:
            found = seen(inner)
            assert found in (None, list(range(30)))
            outcomes.add(found is None)
            if found is None:
                assert make(inner) == 30
            assert TableMaker(inner, RUNTIME).done("copy") == 30
            assert seen(inner) == list(range(30))
        else:
            break
    else:
        raise AssertionError("it never came to its end")
    assert outcomes == {True, False}


def test_of_two_that_make_a_table_one_does_and_the_other_is_told_so(store):
    assert make(store, "one") == 30
    with pytest.raises(ConfigError, match="exists already"):
        make(store, "two")
    assert TableMaker(store, RUNTIME).done("two") is None
    assert seen(store) == list(range(30))
