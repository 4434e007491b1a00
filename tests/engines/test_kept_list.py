"""Whatever is loaded, derived, altered and unloaded, and whenever a process dies: the list names what is there."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.partitions.columns import INITIAL, initial_text
from ballista_py.storage.formats.files import RowsAtHand

ACTS = [
    "load",
    "load",
    "derive",
    "unload",
    "alter",
    "drop",
    "pack",
    "pack",
    "die",
    "restart",
    "restart",
    "unmarked",
]


class Story:
    """An engine, and beside it what it should hold: by mark, the keys, in each table."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.copies = folder / "engine", folder
        self.engine = self.opened(self.folder)
        self.held: dict[str, dict[int, tuple[str, list[int]]]] = {"a": {}, "b": {}}
        self.columns = {"a": 0, "b": 0}
        self.packed: tuple[dict[str, dict[str, list[int]]], dict[str, int]] = ({}, {})
        self.last = 0
        for table in self.held:
            self.engine.create_table(table, self.schema(table))

    def opened(self, folder: Path) -> DuckDBEngine:
        return DuckDBEngine(str(folder), threads=1, keeper="me")

    def schema(self, table: str) -> pa.Schema:
        given = {INITIAL: initial_text(pa.array([1], pa.int64()))}
        more = (pa.field(f"c{n}", pa.int64(), metadata=given) for n in range(self.columns[table]))
        return pa.schema([pa.field("k", pa.int64()), *more])

    def define(self, engine: DuckDBEngine, table: str) -> None:
        engine.define(table, self.columns[table])

    def rows(self, table: str, keys: list[int]) -> pa.Table:
        ones = {f"c{n}": [1] * len(keys) for n in range(self.columns[table])}
        return pa.table({"k": keys, **ones}, schema=self.schema(table))

    def marked(self) -> dict[str, dict[str, list[int]]]:
        return {table: {mark: keys for mark, keys in files.values() if mark} for table, files in self.held.items()}

    def do(self, act: str, table: str, size: int) -> None:
        files = self.held[table]
        if act in ("load", "unmarked"):
            self.last += 1
            keys = list(range(self.last * 1_000, self.last * 1_000 + size))
            self.engine.load(table, [RowsAtHand(file_id=self.last, rows=self.rows(table, keys))])
            files[self.last] = (f"m{self.last}" if act == "load" else "", keys)
            self.engine.keep_as(table, {self.last: files[self.last][0]} if act == "load" else {})
        elif act == "derive" and files:
            of = list(files)[size % len(files)]
            first = files[of][1][:1]  # its place is known of files that nothing was taken from
            if first and first[0] % 1_000 == 0 and self.engine.derive(table, self.last + 1, of, np.array([0])):
                self.last += 1
                files[self.last] = (f"m{self.last}", files[of][1][1:])
                self.engine.keep_as(table, {self.last: f"m{self.last}"})
        elif act == "unload" and files:
            gone = list(files)[size % len(files)]
            self.engine.unload(table, [gone])
            del files[gone]
        elif act == "alter":
            self.columns[table] += 1
            self.define(self.engine, table)
            assert self.engine.alter_table(table, self.schema(table))
        elif act == "drop":
            self.engine.drop_table(table)
            self.columns[table] = 0
            files.clear()
            self.define(self.engine, table)
            self.engine.create_table(table, self.schema(table))
        elif act == "pack":
            with self.engine._tables._loading:
                assert self.engine._tables._pack()
            self.packed = self.marked(), dict(self.columns)
        elif act == "die":
            copy = self.copies / "copy"
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(self.folder, copy)
            self.check(self.opened(copy), *self.packed)
        elif act == "restart":
            self.engine.close()
            self.engine = self.opened(self.folder)
            found = self.check(self.engine, self.marked(), self.columns, close=False)
            self.held = {
                table: {n: (m, self.marked()[table][m]) for n, m in ids.items()} for table, ids in found.items()
            }
            self.packed = self.marked(), dict(self.columns)

    def check(self, engine, wanted, columns, *, close: bool = True) -> dict[str, dict[int, str]]:
        """Take all back, under ids of their own, and compare."""
        found: dict[str, dict[int, str]] = {}
        for table in self.held:
            now, self.columns[table] = self.columns[table], columns.get(table, 0)
            self.define(engine, table)
            engine.create_table(table, self.schema(table))
            self.columns[table] = now
            marks = engine.kept(table)
            assert marks == wanted.get(table, {}).keys()
            self.last += 1
            found[table] = {self.last + n: mark for n, mark in enumerate(sorted(marks))}
            self.last += len(marks)
            assert engine.take_back(table, found[table]) == found[table].keys()
        self.compare(engine, {t: {n: wanted[t][m] for n, m in ids.items()} for t, ids in found.items()})
        if close:
            engine.close()
        return found

    def compare(self, engine, held: dict[str, dict[int, list[int]]]) -> None:
        for table, files in held.items():
            for ids in [[n] for n in files] + [list(files)]:
                query = engine.query(f"select k from {table}", {table: ids})
                got = sorted(k for batch in query.batches() for k in batch.column(0).to_pylist())
                assert got == sorted({k for n in ids for k in files[n]})  # a row of two files is there once


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(st.sampled_from(ACTS), st.sampled_from("aab"), st.integers(1, 40)), min_size=6, max_size=30)
)
def test_the_list_names_the_rows_that_are_there_whatever_happens(acts):
    with tempfile.TemporaryDirectory() as folder:
        story = Story(Path(folder))
        for act in [*acts, ("die", "a", 1), ("restart", "a", 1)]:
            story.do(*act)
            story.compare(story.engine, {t: {n: k for n, (_, k) in f.items()} for t, f in story.held.items()})
        story.engine.close()
