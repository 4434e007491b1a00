"""What a holder takes back of the rows that the process before it has kept, and what it loads."""

import numpy as np
import pyarrow as pa
import pytest
from attrs import evolve

from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.storage.formats.files import write_deletion_vector
from ballista_py.storage.held.files import mark_of
from ballista_py.storage.manifest import DataFile


@pytest.fixture
def lives(make_world, tmp_path):
    """Makes one process after the other over one data_dir; `revision` is that of what it is told."""
    engines = []

    def live(*partitions, ready=True):
        for engine in engines:
            engine.close()
        engines.append(DuckDBEngine(str(tmp_path / "engine"), threads=1, keeper="me"))
        world = make_world(engines[-1])
        world._files = 100 * len(engines)
        world.holder.apply(world.update(1, *((p, len(engines), "owner") for p in partitions)))
        if ready:
            world.holder.tick()
        world.counts = lambda: (world.holder.progress().files_kept, world.holder.progress().files_loaded)
        world.rows_of = lambda *ps: world.read(*((p, len(engines)) for p in ps))
        return world

    yield live
    engines[-1].close()


def again(world):
    """Try at once what failed."""
    world.clock.now_ms += 60_000
    world.grant()
    world.holder.tick()


def test_rows_that_a_manifest_names_are_there_and_its_new_files_are_loaded(lives):
    first = lives(1, 2, ready=False)
    first.put(1, 1, 2)
    first.put(2, 5)
    first.holder.tick()
    first.put(2, 6)
    second = lives(1, 2)
    assert second.counts() == (2, 1)
    assert second.rows_of(1, 2) == [1, 2, 5, 6]


def test_a_file_that_cannot_be_read_now_costs_no_other_one_of_its_partition(lives):
    first = lives(1, ready=False)
    first.put(1, 1, 2)
    first.holder.tick()
    first.put(1, 3)
    (_, file) = first.storage(1).read().document.files
    second = lives(1, ready=False)
    data = second.store.get(file.path, 1 << 20).data
    second.store.delete(file.path)
    second.holder.tick()
    assert second.counts() == (0, 0)
    second.store.create(file.path, data)
    again(second)
    assert second.counts() == (1, 1)
    assert second.rows_of(1) == [1, 2, 3]


def test_a_file_of_unknown_bytes_is_not_kept(lives):
    first = lives(1, ready=False)
    file = evolve(first.put_file(1), checksum="")
    first.storage(1).create()
    first.storage(1).commit(add=[file], epoch=0, token="a")
    first.holder.tick()
    assert first.rows_of(1) == [1]
    assert lives(1).counts() == (0, 1)


def vector(world, of, *places):
    path = f"snapshots/t/data/v/{len(places)}.deletions"
    return write_deletion_vector(world.store, path, of, np.array(places))


def replaced(world, old, new, epoch):
    world.storage(1).commit(add=[new], remove=[old.path], epoch=epoch, token=new.path)


def test_a_vector_that_came_meanwhile_is_made_of_the_original_that_was_kept(lives):
    first = lives(1, ready=False)
    first.put(1, 1, 2, 3)
    first.holder.tick()
    (file,) = first.storage(1).read().document.files
    replaced(first, file, vector(first, file, 0), 1)
    second = lives(1)
    assert second.counts() == (1, 0)
    assert second.rows_of(1) == [2, 3]
    assert lives(1).rows_of(1) == [2, 3]


def test_a_vector_is_kept_and_the_next_one_is_made_of_it(lives):
    first = lives(1, ready=False)
    first.put(1, 1, 2, 3)
    (file,) = first.storage(1).read().document.files
    replaced(first, file, one := vector(first, file, 0), 0)
    first.holder.tick()
    assert first.rows_of(1) == [2, 3]
    second = lives(1)
    assert second.counts() == (1, 0)
    assert second.holder.files.gone("t", one.path) is None  # which nobody has asked for
    replaced(second, one, vector(second, file, 0, 1), 2)
    second.holder.refresh("t")
    second.holder.tick()
    assert second.counts() == (1, 0)
    assert second.rows_of(1) == [3]


def test_what_is_read_of_a_vector_is_not_its_original(lives):
    first = lives(1, ready=False)
    first.put(1, 1, 2, 3)
    (file,) = first.storage(1).read().document.files
    gone = vector(first, file, 0)
    other = evolve(gone, original=evolve(gone.original, checksum="crc32:00000000"))
    assert len({mark_of(file), mark_of(gone), mark_of(other)}) == 3
    assert mark_of(evolve(gone, original=evolve(gone.original, checksum=""))) == ""


def test_a_process_that_ends_unloads_nothing_that_others_take_over(lives):
    first = lives(1, 2, ready=False)
    first.put(1, 1)
    first.put(2, 2)
    first.holder.tick()
    first.holder.ends()
    first.holder.apply(first.update(2, (2, 1, "owner")))
    first.holder.tick()
    first.holder.forget("t")
    first.holder.tick()
    assert lives(1, 2).counts() == (2, 0)


def test_what_was_staged_for_a_commit_is_kept_with_it(lives):
    first = lives(1, ready=False)
    first.storage(1).create()
    first.holder.tick()
    files = [first.put_file(1), first.put_file(2)]
    first.holder.files.stage("t", [(file, first.rows(n)) for n, file in enumerate(files, 1)])
    first.storage(1).commit(add=files[:1], epoch=1, token="a")
    second = lives(1)
    assert second.counts() == (1, 0)
    assert second.rows_of(1) == [1]


def test_files_that_are_staged_twice_are_there_once(lives):
    first = lives(1, ready=False)
    first.storage(1).create()
    first.holder.tick()
    file = first.put_file(1)
    for _ in range(2):
        first.holder.files.stage("t", [(file, first.rows(1))])
    first.storage(1).commit(add=[file], epoch=1, token="a")
    first.holder.refresh("t")
    first.holder.tick()
    assert first.rows_of(1) == [1]
    assert first.engine._root.execute("select count(*) from held.t1").fetchone() == (1,)


def test_many_files_of_one_write_are_one_load(lives, monkeypatch):
    world = lives(1, ready=False)
    world.holder.tick()
    loads, load = [], world.engine.load
    monkeypatch.setattr(world.engine, "load", lambda table, files: loads.append(len(files)) or load(table, files))
    files = [DataFile(path=f"f{n}", rows=1, bytes=1) for n in range(5)]
    world.holder.files.stage("t", [(file, pa.table(world.rows(n))) for n, file in enumerate(files)])
    assert loads == [5]
