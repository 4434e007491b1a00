"""A DROP of several tables has an end: so many at once, and none after its time is over."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from ballista_py.coordinator.tables.ddl import MAX_DROPPED, TableWrites
from ballista_py.errors import SqlError, TimeLimit
from ballista_py.runtime import SystemRuntime
from ballista_py.sql.parse.changes import DropTable
from ballista_py.work import Work, working


class Tables:
    """Notes which tables are ended."""

    def __init__(self, then=lambda: None):
        self.ended, self.then = [], then

    def done(self, *_marks):
        return None

    def drop(self, name, _mark):
        self.ended.append(name)
        self.then()
        return True


def test_nobody_waits_for_the_owners_of_a_table_that_was_dropped():
    looks = []

    def refresh(_words):
        looks.append(1)
        return SimpleNamespace(catalog=SimpleNamespace(tables={"t": None} if len(looks) == 1 else {}), scanned={})

    growth = SimpleNamespace(reconcile_table=lambda *_names: None, table_is_served=lambda *_a, **_k: False)
    writes = TableWrites(SimpleNamespace(refresh=refresh), None, growth, None, None, SystemRuntime(), 60_000.0)
    began = time.monotonic()
    writes._served("t")
    assert len(looks) == 2
    assert time.monotonic() - began < 30


def table_writes(tables, names):
    view = SimpleNamespace(catalog=SimpleNamespace(tables=dict.fromkeys(names)), sql_views={}, scanned={})
    views = SimpleNamespace(refresh=lambda _words: view)
    growth = SimpleNamespace(reconcile_table=lambda *_names: None)
    return TableWrites(views, tables, growth, None, None, SystemRuntime())


def test_only_so_many_tables_are_dropped_at_once():
    names = tuple(f"t{number}" for number in range(MAX_DROPPED + 1))
    tables = Tables()
    with pytest.raises(SqlError, match=f"DROP names {len(names)} tables, more than {MAX_DROPPED}: send several"):
        table_writes(tables, names).drop(DropTable(tables=names, if_exists=True), "token")
    assert tables.ended == []
    assert table_writes(tables, names).drop(DropTable(tables=names[1:]), "token") == 0
    assert tables.ended == list(names[1:])


def test_no_table_is_dropped_once_the_time_is_over():
    work = Work(SystemRuntime())
    tables = Tables(then=lambda: work.limit_to(0.001))
    with working(work), pytest.raises(TimeLimit):
        table_writes(tables, ("a", "b", "c")).drop(DropTable(tables=("a", "b", "c")), "token")
    assert tables.ended == ["a"]
