"""What becomes of a table's declaration, and what its older files are read as."""

from decimal import Decimal

import pyarrow as pa
import pytest
from attrs import evolve

from ballista_py.coordinator.tables.held_columns import new_columns
from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.engines.polars.engine import PolarsEngine
from ballista_py.errors import SchemaMismatch, SqlError, TryLater
from ballista_py.partitions import alterations
from ballista_py.partitions.columns import is_same, plain, restored, stored_names
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.storage.formats.column_bounds import bounds_of
from ballista_py.storage.formats.files import RowsAtHand, read_data_file, write_data_file

SCHEMA = pa.schema([("id", pa.int64()), ("a", pa.int32()), ("b", pa.string())])
TABLE = TableSpec(name="t", schema=SCHEMA, spec=PartitionSpec.parse(["id"], SCHEMA), checks=('"a" > 0',))
FREE = evolve(TABLE, checks=())


def none(_condition):
    return frozenset()


def add(table, name, kind, initial=None, default=None):
    return alterations.add_column(
        table, pa.field(name, kind), pa.array([initial], kind), default, if_not_exists=False
    )


def drop(table, name):
    return alterations.drop_column(table, name, none, if_exists=False)


def rename(table, name, to):
    return alterations.rename_column(table, name, to, none)


def widen(table, name, kind):
    return alterations.set_type(table, name, kind, none)


def rows(table, *values):
    return pa.Table.from_pylist([dict(zip(table.schema.names, row, strict=True)) for row in values], table.schema)


def steps():
    """A table with every kind of change, and what a row (1, 2, 'x') of its first definition is after each."""
    table, row = FREE, {"id": 1, "a": 2, "b": "x"}
    yield table, row
    for change, wanted in (
        (lambda t: rename(t, "a", "c"), {"id": 1, "c": 2, "b": "x"}),
        (lambda t: add(t, "a", pa.int32(), 7), {"id": 1, "c": 2, "b": "x", "a": 7}),
        (lambda t: drop(t, "b"), {"id": 1, "c": 2, "a": 7}),
        (lambda t: add(t, "b", pa.string()), {"id": 1, "c": 2, "a": 7, "b": None}),
        (lambda t: rename(t, "a", "d"), {"id": 1, "c": 2, "d": 7, "b": None}),
        (lambda t: rename(t, "c", "a"), {"id": 1, "a": 2, "d": 7, "b": None}),
        (lambda t: widen(t, "a", pa.int64()), {"id": 1, "a": 2, "d": 7, "b": None}),
        (lambda t: widen(t, "d", pa.decimal128(12, 1)), {"id": 1, "a": 2, "d": Decimal(7), "b": None}),
        (lambda t: drop(t, "a"), {"id": 1, "d": Decimal(7), "b": None}),
        (lambda t: add(t, "a", pa.int32(), 9), {"id": 1, "d": Decimal(7), "b": None, "a": 9}),
    ):
        table = change(table)
        yield table, wanted


@pytest.mark.parametrize("file_format", ["parquet", "vortex"])
def test_a_file_of_each_definition_is_read_by_each_later_one(file_format):
    store, known = MemoryStore(), list(steps())
    for place, (table, row) in enumerate(known):
        file = write_data_file(store, f"f{place}", rows(table, row.values()), file_format, table.definition)
        seen = dict(zip(stored_names(table.schema), row.values(), strict=True))
        for later, wanted in known[place:]:
            (found,) = read_data_file(store, file, later.schema).to_pylist()
            assert list(found) == later.schema.names
            for column, stored in zip(later.schema.names, stored_names(later.schema), strict=True):
                assert found[column] == seen.get(stored, wanted[column])


def test_statistics_are_those_of_the_column_and_not_of_one_that_had_its_name():
    store = MemoryStore()
    file = write_data_file(store, "f", rows(FREE, (1, 2, "x")), "parquet")
    again = add(drop(rename(FREE, "b", "c"), "a"), "a", pa.int32(), 50)
    bounds = bounds_of(file, again.schema)
    assert {name: bound.low for name, bound in bounds.items()} == {"id": 1, "c": "x"}


@pytest.mark.parametrize("engine", [DuckDBEngine, PolarsEngine])
def test_an_engine_gives_a_table_other_columns_with_what_it_holds(engine):
    made, known = engine(), list(steps())
    try:
        made.create_table("t", FREE.schema)
        made.load("t", [RowsAtHand(file_id=1, rows=rows(FREE, (1, 2, "x")))])
        before = made.query("select * from t", {"t": [1]})
        for number, (table, row) in enumerate(known[1:], 2):
            if not made.alter_table("t", table.schema):  # Polars casts no numbers to decimals as Arrow does
                assert (engine, number) == (PolarsEngine, 9)
                made.drop_table("t")
                made.create_table("t", table.schema)
                made.load("t", [RowsAtHand(file_id=1, rows=rows(FREE, (1, 2, "x")))])
            made.load("t", [RowsAtHand(file_id=100 + number, rows=rows(FREE, (number, 3, "y")))])
            found = [row for b in made.query("select * from t", {"t": [1]}).batches() for row in b.to_pylist()]
            assert found == [row]
        assert [row for b in before.batches() for row in b.to_pylist()] == [known[0][1]]
        assert not made.alter_table("t", pa.schema([("other", pa.int64())]))
        assert not made.alter_table("nosuch", FREE.schema)
    finally:
        made.close()


def test_rows_on_their_way_are_taken_by_a_later_definition():
    table = add(drop(rename(FREE, "a", "c"), "b"), "b", pa.int64(), 5)
    (batch,) = rows(FREE, (1, 2, "x")).to_batches()
    assert restored(batch, table.schema).to_pylist() == [{"id": 1, "c": 2, "b": 5}]


def test_nobody_sees_what_is_said_of_columns_for_ourselves():
    table = alterations.set_comment(add(FREE, "c", pa.int32(), 1, "1"), "c", "words")
    assert table.schema.field("c").metadata
    assert not any(column.metadata for column in plain(table.schema))
    assert not is_same(table.schema, plain(table.schema))


@pytest.mark.parametrize(
    ("alter", "reason"),
    [
        (lambda t: alterations.drop_column(t, "ID", none, if_exists=False), r"part of how it is split \(id\)"),
        (lambda t: alterations.rename_column(t, "id", "x", none), "cannot be renamed"),
        (lambda t: alterations.set_type(t, "id", pa.decimal128(38, 0), none), "cannot be given another type"),
        (
            lambda t: alterations.drop_column(t, "a", lambda _: frozenset(["a"]), if_exists=False),
            r'CHECK \("a" > 0\) of table \'t\' names column \'a\'',
        ),
        (
            lambda t: alterations.drop_column(evolve(t, primary_key=("id", "b")), "b", none, if_exists=True),
            "primary",
        ),
        (lambda t: alterations.set_optional(evolve(t, primary_key=("id",)), "id"), "stays NOT NULL"),
        (lambda t: add(t, "B", pa.int32()), "has a column 'B' already"),
        (lambda t: rename(t, "a", "B"), "has a column 'B' already"),
        (lambda t: rename(t, "a", "rowid"), "a name that is taken"),
        (lambda t: widen(t, "a", pa.int16()), "so a type only grows"),
        (lambda t: widen(t, "b", pa.int32()), "so a type only grows"),
        (lambda t: alterations.set_option(t, "nosuch", "1"), "no option 'nosuch'"),
        (lambda t: alterations.set_option(t, "file_format", "csv"), "no file format 'csv'"),
    ],
)
def test_what_a_table_promises_is_not_taken_from_under_it(alter, reason):
    with pytest.raises(SqlError, match=reason):
        alter(TABLE)


def test_the_only_column_stays():
    schema = pa.schema([("a", pa.int64())])
    table = TableSpec(name="t", schema=schema, spec=PartitionSpec.whole(), distribution="replicated")
    with pytest.raises(SqlError, match="drop the table"):
        drop(table, "a")


def test_rows_from_before_not_null_are_not_taken_after_it():
    table = alterations.set_required(FREE, "a")
    assert (table.definition, table.accepts_from, table.schema.field("a").nullable) == (1, 1, True)
    other = alterations.set_required(alterations.set_optional(table, "a"), "a")
    with pytest.raises(TryLater, match="altered meanwhile"):
        alterations.proven(other, "a", 1)
    table = alterations.proven(table, "a", 1)
    assert (table.definition, table.accepts_from, table.schema.field("a").nullable) == (2, 1, False)
    assert alterations.set_optional(table, "a").schema.field("a").nullable


def test_a_file_without_a_column_that_was_always_there_is_refused():
    store = MemoryStore()
    file = write_data_file(store, "f", pa.table({"id": [1]}), "parquet")
    with pytest.raises(SchemaMismatch, match="no single column 'a'"):
        read_data_file(store, file, SCHEMA)


def test_only_columns_that_are_new_or_of_another_type_are_looked_at_again():
    """Executors are asked whether they can hold them; of the others they hold rows already."""

    def made(*columns):
        return TableSpec(
            name="t", schema=pa.schema(columns), spec=PartitionSpec.whole(), distribution="replicated"
        )

    before = made(("a", pa.int32()), ("b", pa.string()))
    after = made(("a", pa.int64()), ("b", pa.string()), ("c", pa.bool_()))
    assert new_columns(before, after) == pa.schema([("a", pa.int64()), ("c", pa.bool_())])
    assert not new_columns(before, before)
