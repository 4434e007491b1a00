"""An engine that keeps its rows gives them to the next process, or says why not; nothing else is ever given."""

from __future__ import annotations

import logging
import os
import random
import shutil
import subprocess
import sys

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from ballista_py.engines.duckdb import kept_file, kept_list, kept_tables
from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.errors import BallistaError, ConfigError, NotOwner
from ballista_py.partitions.columns import INITIAL, STORED, initial_text
from ballista_py.runtime import SystemRuntime
from ballista_py.storage.formats.files import RowsAtHand

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])


class Clock(SystemRuntime):
    now_ms = 0.0

    def monotonic_ms(self):
        return self.now_ms

    def sleep_ms(self, duration_ms):
        self.now_ms += duration_ms


def rows(*keys, large=0):
    return pa.table({"k": keys, "v": [f"{k}" + "x" * large for k in keys]}, schema=SCHEMA)


def many(first, count):
    draw = random.Random(first)
    return pa.table(
        {"k": range(first, first + count), "v": [f"{draw.getrandbits(200):x}" for _ in range(count)]},
        schema=SCHEMA,
    )


def opened(folder, keeper="me", **options):
    return DuckDBEngine(str(folder), threads=1, keeper=keeper, **options)


def load(engine, file_id, table, mark=None, name="t"):
    engine.create_table(name, SCHEMA)
    assert engine.load(name, [RowsAtHand(file_id=file_id, rows=table)]) == table.num_rows
    engine.keep_as(name, {file_id: mark or f"m{file_id}"})


def keys(engine, *file_ids, name="t"):
    found = pa.Table.from_batches(
        (query := engine.query(f"select k from {name}", {name: file_ids})).batches(), schema=query.schema
    )
    return sorted(found["k"].to_pylist())


def pack(engine):
    with engine._tables._loading:
        assert engine._tables._pack()


def the_file(folder):
    (path,) = folder.glob("held*.duckdb")
    return path


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "engine"


@pytest.fixture
def kept(folder):
    """The folder, with two files that an engine has kept when it was closed."""
    engine = opened(folder)
    load(engine, 1, rows(1, 2))
    load(engine, 2, rows(3))
    engine.close()
    return folder


def test_the_next_process_has_the_rows_and_only_those_that_are_asked_for(kept):
    engine = opened(kept)
    assert engine.kept("t") == ()  # before anybody knows of which table
    engine.create_table("t", SCHEMA)
    assert engine.kept("t") == {"m1", "m2"}
    assert engine.take_back("t", {7: "m1", 8: "other"}) == {7}
    assert keys(engine, 7) == [1, 2]
    assert engine.kept("t") == {"m2"}
    assert engine.take_back("t", {9: "m1"}) == set()  # once
    load(engine, 10, rows(4))
    assert [keys(engine, 7, 10), keys(engine, 7), keys(engine, 10)] == [[1, 2, 4], [1, 2], [4]]
    with pytest.raises(NotOwner):
        keys(engine, 8)
    engine.close()


def test_it_goes_on_from_process_to_process(kept):
    for turn in range(4):
        engine = opened(kept)
        engine.create_table("t", SCHEMA)
        marks = {10 + n: mark for n, mark in enumerate(sorted(engine.kept("t")))}
        assert engine.take_back("t", marks) == marks.keys()
        assert keys(engine, *marks) == [1, 2, 3, *range(100, 100 + turn)]
        load(engine, 50, rows(100 + turn), f"turn {turn}")
        engine.close()


def test_what_came_after_the_last_checkpoint_of_a_process_that_died_is_loaded_anew(folder, tmp_path):
    engine = opened(folder)
    load(engine, 1, rows(1))
    pack(engine)
    load(engine, 2, rows(2))
    shutil.copytree(folder, tmp_path / "died")
    engine.close()
    after = opened(tmp_path / "died")
    after.create_table("t", SCHEMA)
    assert after.kept("t") == {"m1"}
    assert after.take_back("t", {5: "m1", 6: "m2"}) == {5}
    load(after, 6, rows(2), "m2")
    assert keys(after, 5, 6) == [1, 2]
    after.close()


def test_rows_that_were_packed_without_the_list_are_not_used(folder, tmp_path, caplog):
    engine = opened(folder)
    load(engine, 1, rows(1))
    pack(engine)
    load(engine, 2, rows(2))
    engine.unload("t", [1])
    engine._tables._loader.execute("checkpoint held")  # which nobody but `_pack` does
    shutil.copytree(folder, tmp_path / "died")
    engine.close()
    after = opened(tmp_path / "died")
    after.create_table("t", SCHEMA)
    assert after.kept("t") == frozenset()
    assert "kept_rows_not_used" in caplog.messages
    after.close()


def test_rows_that_nobody_can_name_are_gone_before_anything_is_served(folder):
    engine = opened(folder)
    engine.create_table("t", SCHEMA)
    for file_id in (1, 2, 3):
        engine.load("t", [RowsAtHand(file_id=file_id, rows=rows(file_id))])
    engine.keep_as("t", {1: "one", 3: "one"})  # two of one mark, and one of none between them
    engine.close()
    after = opened(folder)
    after.create_table("t", SCHEMA)
    assert after.take_back("t", {9: "one"}) == {9}
    assert keys(after, 9) == [1]
    load(after, 10, rows(7))
    assert [keys(after, 9, 10), keys(after, 9), keys(after, 10)] == [[1, 7], [1], [7]]
    assert after._root.execute("select count(*) from held.t1").fetchone() == (2,)
    after.close()
    after.close()


def test_rows_that_a_vector_takes_away_stay_away(folder):
    engine = opened(folder)
    load(engine, 1, rows(1, 2, 3, 4))
    assert engine.derive("t", 2, 1, np.array([0]))
    engine.keep_as("t", {2: "v2"})
    engine.close()
    for last in range(3):
        engine = opened(folder)
        engine.create_table("t", SCHEMA)
        assert engine.take_back("t", {20: "v2"}) == {20}
        if last:  # what nobody named has the rows of the others still
            assert engine.take_back("t", {11: "m1", 30: "v3"}) == {11, 30}
            assert (keys(engine, 11), keys(engine, 30)) == ([1, 2, 3, 4], [2, 4])
        elif engine.derive("t", 30, 20, np.array([2])):
            engine.keep_as("t", {30: "v3"})
        assert keys(engine, 20) == [2, 3, 4]
        engine.close()


def test_a_table_that_was_altered_meanwhile_has_its_rows_with_the_new_columns(kept):
    more = pa.field("m", pa.int32(), metadata={INITIAL: initial_text(pa.array([5], pa.int32()))})
    renamed = pa.field("word", pa.string(), metadata={STORED: b"v"})
    engine = opened(kept)
    engine.define("t", 1)
    engine.create_table("t", pa.schema([SCHEMA.field("k"), renamed, more]))
    assert engine.take_back("t", {1: "m1"}) == {1}
    found = pa.Table.from_batches(engine.query("select * from t order by k", {"t": [1]}).batches())
    assert found.to_pydict() == {"k": [1, 2], "word": ["1", "2"], "m": [5, 5]}
    engine.close()


def test_columns_of_an_older_definition_are_not_made_of_those_of_a_newer_one(folder):
    more = pa.field("m", pa.int32(), metadata={INITIAL: initial_text(pa.array([5], pa.int32()))})
    newer = pa.schema([*SCHEMA, more])
    engine = opened(folder)
    engine.define("t", 2)
    engine.create_table("t", newer)
    engine.load("t", [RowsAtHand(file_id=1, rows=pa.table({"k": [1], "v": ["x"], "m": [7]}, schema=newer))])
    engine.keep_as("t", {1: "m1"})
    engine.close()
    after = opened(folder)
    for definition, schema in (
        (1, SCHEMA),
        (2, newer),
    ):  # told by one that lags behind, and by one that does not
        after.define("t", definition)
        after.alter_table("t", schema)
        after.create_table("t", schema)
        assert not after.kept("t")  # else the row would have the first value that older rows have
    after.close()


def test_labels_that_are_used_up_begin_anew(kept, monkeypatch, caplog):
    monkeypatch.setattr(kept_tables, "MAX_LABELS", 1)
    engine = opened(kept)
    engine.create_table("t", SCHEMA)
    assert not engine.kept("t")
    assert "kept_rows_not_used" in caplog.messages
    engine.close()


def test_a_table_that_cannot_have_the_new_columns_is_loaded_anew(kept):
    engine = opened(kept)
    engine.define("t", 1)
    engine.create_table("t", pa.schema([("v", pa.string()), ("k", pa.int64())]))
    assert engine.kept("t") == frozenset()
    engine.close()


def test_how_large_values_are_is_known_of_rows_that_were_kept(folder):
    engine = opened(folder)
    load(engine, 1, rows(1, large=10_000))
    before = engine._tables.large("t", [1], ["v"])
    engine.close()
    after = opened(folder)
    after.create_table("t", SCHEMA)
    after.take_back("t", {4: "m1"})
    assert before.largest == 16_384
    assert after._tables.large("t", [4], ["v"]) == before
    after.close()


def test_what_nobody_asks_for_goes_after_a_while(kept):
    clock = Clock()
    engine = opened(kept, runtime=clock)
    load(engine, 8, rows(8), name="new")
    engine.create_table("t", SCHEMA)
    engine.take_back("t", {5: "m1"})
    clock.now_ms = kept_tables.FORGET_MS - 1
    engine.tidy()
    assert engine.kept("t") == {"m2"}
    clock.now_ms += 1
    engine.tidy()
    assert engine.kept("t") == frozenset()
    assert keys(engine, 5) == [1, 2]
    assert engine._root.execute("select count(*) from held.t1").fetchone() == (2,)
    engine.close()


def test_it_is_packed_soon_after_the_last_change_and_now_and_then_while_there_are_changes(folder, tmp_path):
    clock = Clock()
    engine = opened(folder, runtime=clock)

    def survives():
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        shutil.copytree(folder, tmp_path / "copy")
        after = opened(tmp_path / "copy")
        after.create_table("t", SCHEMA)
        found = after.kept("t")
        after.close()
        return len(found)

    load(engine, 1, rows(1))
    engine.tidy()
    assert survives() == 0
    clock.now_ms = kept_tables.KEEP_MS
    engine.tidy()
    assert survives() == 1
    for turn in range(2, 10):
        clock.now_ms += kept_tables.KEEP_MS - 1
        load(engine, turn, rows(turn))
        engine.tidy()
    assert survives() == 8
    engine.close()


# What can become of the file, by what is done to its bytes.
def cut(data):
    return data[: len(data) // 2]


def zeros(data):
    return data[: 3 << 12] + bytes(1 << 18) + data[(3 << 12) + (1 << 18) :]


def head(data):
    return bytes(4096) + data[4096:]


def flipped(data):
    return bytes([*data[: 12_288 + 99], data[12_288 + 99] ^ 1]) + data[12_288 + 100 :]


def other(_data):
    return b"something else" * 1_000


def empty(_data):
    return b""


@pytest.mark.parametrize("spoil", [cut, zeros, head, flipped, other, empty])
def test_a_file_that_is_not_as_it_was_written_is_not_used_and_costs_no_start(kept, spoil, caplog):
    path = the_file(kept)
    path.write_bytes(spoil(path.read_bytes()))
    engine = opened(kept)
    engine.create_table("t", SCHEMA)
    assert not engine.kept("t")
    assert caplog.messages.count("kept_rows_not_used") == 1
    load(engine, 1, rows(5))
    assert keys(engine, 1) == [5]
    engine.close()
    assert the_file(kept).name != path.name


def test_a_database_of_others_in_the_place_of_the_file_is_not_used(kept, caplog):
    path = the_file(kept)
    path.unlink()
    with duckdb.connect(str(path)) as others:
        others.execute("create table t1 as select 7 as k")
    engine = opened(kept)
    engine.create_table("t", SCHEMA)
    assert not engine.kept("t")
    assert "kept_rows_not_used" in caplog.messages
    engine.close()


@pytest.mark.parametrize("whose", ["keeper", "release"])
def test_rows_of_another_cluster_or_release_are_not_used(kept, whose, monkeypatch, caplog):
    caplog.set_level(logging.WARNING)
    if whose == "release":
        monkeypatch.setattr(kept_list, "release", lambda: "2 2.0.1")
    engine = opened(kept, "another" if whose == "keeper" else "me")
    engine.create_table("t", SCHEMA)
    assert not engine.kept("t")
    assert "kept_rows_not_used" in caplog.messages
    engine.close()


def test_a_log_that_lies_beside_the_file_is_not_read(kept):
    path = the_file(kept)
    path.with_name(f"{path.name}.wal").write_bytes(b"\1" * 999)
    engine = opened(kept)
    engine.create_table("t", SCHEMA)
    assert engine.kept("t") == {"m1", "m2"}
    engine.close()


def test_damage_that_a_query_meets_is_told_and_everything_is_loaded_anew(folder, caplog):
    engine = opened(folder)
    load(engine, 1, many(0, 200_000))
    engine.close()
    path = the_file(folder)
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 8
    path.write_bytes(data)
    engine = opened(folder)
    engine.create_table("t", SCHEMA)
    assert engine.take_back("t", {1: "m1"}) == {1}
    with pytest.raises(NotOwner, match="begins anew"):
        list(engine.query("select max(v), sum(k) from t", {"t": [1]}).batches())
    engine.watch()
    assert engine.begun == 1
    assert not path.exists()
    engine.create_table("t", SCHEMA)
    assert not engine.kept("t")
    load(engine, 2, rows(4), "m1")
    assert keys(engine, 2) == [4]
    engine.close()
    after = opened(folder)  # and the new file is the one that is kept
    after.create_table("t", SCHEMA)
    assert after.take_back("t", {1: "m1"}) == {1}
    assert keys(after, 1) == [4]
    after.close()


def test_words_of_a_statement_are_no_damage(kept):
    engine = opened(kept)
    with pytest.raises(BallistaError):
        list(engine.query("select error('Corrupt database file: computed checksum')").batches())
    engine.watch()
    assert engine.begun == 0
    engine.close()


def test_an_engine_that_a_statement_broke_keeps_what_it_loads_from_then_on(kept):
    engine = opened(kept)
    load(engine, 1, rows(-(2**63)))
    with pytest.raises(BallistaError, match="engine failed"):
        list(engine.query("select make_timestamp(k)::varchar from t", {"t": [1]}).batches())
    engine.watch()
    assert engine.begun == 1
    load(engine, 1, rows(9), "new")
    engine.close()
    after = opened(kept)
    after.create_table("t", SCHEMA)
    assert after.kept("t") == {"new"}
    after.close()


HOLDS = """
import sys
from ballista_py.engines.duckdb.engine import DuckDBEngine
engine = DuckDBEngine(sys.argv[1], threads=1, keeper="me")
print("open", flush=True)
sys.stdin.read()
"""


def test_two_processes_never_have_one_folder(kept):
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(kept)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdout.readline() == "open\n"
        with pytest.raises(ConfigError, match=rf"used by another process \({first.pid}\).*its own data_dir"):
            opened(kept)
        first.kill()
        first.wait()
    engine = opened(kept)  # the lock of a process that was killed is gone
    with pytest.raises(ConfigError, match="used by this process already"):
        opened(kept)
    engine.create_table("t", SCHEMA)
    assert engine.kept("t") == {"m1", "m2"}
    engine.close()
    opened(kept).close()


DIES = HOLDS.replace("sys.stdin.read()", "import os; os.kill(os.getpid(), 9)")


def test_a_file_that_every_process_dies_of_is_not_opened_for_ever(kept, caplog):
    for _ in range(kept_file.MAX_STARTS):
        assert subprocess.run([sys.executable, "-c", DIES, str(kept)]).returncode == -9
    engine = opened(kept)
    engine.create_table("t", SCHEMA)
    assert not engine.kept("t")
    assert "kept_rows_not_used" in caplog.messages
    engine.close()


def test_processes_that_work_for_a_while_and_die_cost_no_rows(kept):
    for _ in range(2 * kept_file.MAX_STARTS):
        engine = opened(kept, runtime=(clock := Clock()))
        clock.now_ms = 10_000.0
        engine.tidy()
        engine._root.close()  # as if it were killed
        engine._kept.close()
    engine = opened(kept)
    engine.create_table("t", SCHEMA)
    assert engine.kept("t") == {"m1", "m2"}
    engine.close()


def test_room_of_rows_that_went_is_used_again(folder):
    engine = opened(folder)
    sizes = []
    for turn in range(40):
        load(engine, turn + 1, many(turn * 100_000, 100_000))
        if turn >= 3:
            engine.unload("t", [turn - 2])
        pack(engine)
        sizes.append(the_file(folder).stat().st_size)
    assert keys(engine, 38, 39, 40) == list(range(3_700_000, 4_000_000))
    assert max(sizes) <= 2 * sizes[5], sizes
    engine.close()


def test_a_full_disk_is_said_once_a_while_and_nothing_else_fails(folder, monkeypatch, caplog):
    clock = Clock()
    engine = opened(folder, runtime=clock)
    monkeypatch.setattr(kept_tables, "ROOM_BYTES", 1 << 60)
    load(engine, 1, rows(1))
    for _ in range(30):
        clock.now_ms += 1_000
        engine.tidy()
        assert keys(engine, 1) == [1]
    assert caplog.messages.count("not_packed") == 1
    monkeypatch.setattr(kept_tables, "ROOM_BYTES", 0)
    clock.now_ms += kept_tables.NO_ROOM_MS
    engine.tidy()
    assert engine._tables.is_packed
    engine.close()


def test_an_end_waits_for_nobody_who_reads_on(kept):
    engine = opened(kept)
    load(engine, 5, rows(5))
    reader = engine._root.cursor()
    reader.execute("begin")
    reader.execute("create temp table x as from held.t1")
    reader.execute("from held.t1")  # a checkpoint waits for such a one
    engine.close()
    reader.close()
    after = opened(kept)
    after.create_table("t", SCHEMA)
    assert after.kept("t") == {"m1", "m2"}
    after.close()


def test_without_a_keeper_nothing_stays(folder):
    engine = DuckDBEngine(str(folder), threads=1)
    load(engine, 1, rows(1))
    assert engine.kept("t") == ()
    assert engine.take_back("t", {2: "m1"}) == set()
    engine.close()
    assert os.listdir(folder) == []
