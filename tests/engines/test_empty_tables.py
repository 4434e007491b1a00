"""Databases of empty tables to bind against: each table is made once, for those who name it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import duckdb
import pyarrow as pa
import pytest

from ballista_py.engines.duckdb import binder as empty_tables
from ballista_py.engines.duckdb.binder import MAX_DATABASES, Binder, EmptyTables
from ballista_py.errors import SchemaMismatch
from ballista_py.runtime import SystemRuntime

A = pa.schema([("a", pa.int64())])
B = pa.schema([("b", pa.string())])


@pytest.fixture
def tables():
    made = EmptyTables(SystemRuntime())
    yield made
    made.close()


@pytest.fixture
def made(monkeypatch):
    """The names of the tables that were made, in order."""
    names = []
    create = empty_tables.HeldTable.create

    def noted(connection, name, schema, table, tagged=True):
        names.append(table)
        return create(connection, name, schema, table, tagged=tagged)

    monkeypatch.setattr(empty_tables.HeldTable, "create", noted)
    return names


def columns(database, table):
    with database.cursor() as cursor:
        return cursor.sql(f"from {table}").columns


def test_a_table_is_made_when_it_is_named_and_once(tables, made):
    binder = Binder(SystemRuntime())
    schemas = {"t": A, "u": B}
    assert binder.describe("select 1 as one", schemas).names == ["one"]
    assert made == []
    for _ in range(2):
        assert binder.describe("select a from T", schemas).names == ["a"]
    assert made == ["t"]
    binder.describe("select * from t join u on true", schemas)
    assert made == ["t", "u"]
    binder.close()


def test_altered_columns_cost_those_alone_who_name_the_table(tables, made):
    first = tables.holding({"t": A, "u": B})
    again = tables.holding({"t": B})
    assert (columns(first, "t"), columns(again, "t")) == (["a"], ["b"])
    assert tables.holding({"u": B}) in (first, again)
    assert columns(tables.holding({"t": A}), "t") == ["a"]
    assert made.count("t") == 2
    assert made.count("u") == 1
    same = pa.schema(list(A))
    assert tables.holding({"t": same}) is first
    assert made.count("t") == 2


def test_who_names_no_new_table_waits_for_nobody(tables, monkeypatch):
    tables.holding({"t": A})
    began, go_on = threading.Event(), threading.Event()
    create = empty_tables.HeldTable.create

    def slow(*arguments, **named):
        began.set()
        assert go_on.wait(60)
        return create(*arguments, **named)

    monkeypatch.setattr(empty_tables.HeldTable, "create", slow)
    with ThreadPoolExecutor(2) as pool:
        try:
            wide = pool.submit(tables.holding, {"wide": B})
            assert began.wait(60)
            assert columns(tables.holding({"t": A}), "t") == ["a"]
            tables.holding({})
            second = pool.submit(tables.holding, {"wide": B, "t": A})
        finally:
            go_on.set()
        assert columns(wide.result(60), "wide") == columns(second.result(60), "wide") == ["b"]


def test_a_table_that_cannot_be_held_leaves_the_others(tables):
    with pytest.raises(SchemaMismatch):
        tables.holding({"t": A, "bad": pa.schema([("x", pa.int64()), ("X", pa.int64())])})
    assert columns(tables.holding({"t": A}), "t") == ["a"]


def test_there_are_never_many_databases_and_none_is_full(tables, monkeypatch):
    monkeypatch.setattr(empty_tables, "MAX_COLUMNS", 3)
    found = set()
    for number in range(40):
        schema = pa.schema([(f"c{number}", pa.int64())])
        database = tables.holding({"t" if number < 20 else f"t{number}": schema})
        found.add(id(database))
        assert columns(database, "t" if number < 20 else f"t{number}") == schema.names
        assert len(tables._databases) <= MAX_DATABASES
    assert len(found) > 3


def test_a_database_that_a_statement_broke_is_made_anew(tables):
    with tables.holding({"t": A}).cursor() as cursor, pytest.raises(duckdb.Error, match="INTERNAL"):
        cursor.execute("select make_timestamp(-9223372036854775808)::varchar").fetchall()
    assert columns(tables.holding({"t": A}), "t") == ["a"]
