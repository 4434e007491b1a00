"""What is done for each column of a declaration takes the same whether there are ten columns or ten thousand."""

import sys

import pyarrow as pa
import pytest

from ballista_py.errors import ConfigError, SchemaMismatch
from ballista_py.partitions.bounds import MAX_COLUMNS
from ballista_py.partitions.conform import check_columns
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.sql.parse import creates
from ballista_py.sql.parse.changes import read_change
from ballista_py.storage.formats import parquet
from ballista_py.storage.formats.columns import columns_to_read


def declared(columns: int) -> str:
    return f"create table t ({', '.join(f'c{n} int default {n}' for n in range(columns))})"


def steps(columns: int) -> int:
    """How many functions of Python are called and resumed while the declaration is read."""
    taken = 0

    def count(_frame, event, _argument):
        nonlocal taken
        taken += event == "call"

    text = declared(columns)
    sys.setprofile(count)
    try:
        read_change(text)
    finally:
        sys.setprofile(None)
    return taken


def test_a_declaration_is_read_in_steps_in_proportion_to_its_columns():
    steps(10)
    assert steps(800) < 2.5 * steps(400)


def test_too_many_columns_are_refused_before_any_of_them_is_looked_at(monkeypatch):
    def never(*_arguments):
        raise AssertionError("a column was looked at")

    monkeypatch.setattr(creates, "_defaults", never)
    monkeypatch.setattr(creates, "_column", never)
    with pytest.raises(ConfigError, match=r"would have 10,001 columns, .*10,000 are the most"):
        read_change(declared(MAX_COLUMNS + 1))


class Asked:
    """A schema that counts how often it is asked for the names of all columns, which makes a list each time."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema, self.times = schema, 0

    @property
    def names(self):
        self.times += 1
        return self._schema.names

    def field(self, name):
        return self._schema.field(name)

    def __iter__(self):
        return iter(self._schema)


SCHEMA = pa.schema([(f"c{n}", pa.int64()) for n in range(50)])
TABLE = TableSpec(name="t", schema=SCHEMA, spec=PartitionSpec.whole(), distribution="replicated")


def test_rows_are_held_against_their_table_without_a_list_for_each_column():
    asked = Asked(SCHEMA)
    check_columns(TABLE, asked)
    assert asked.times == 1
    with pytest.raises(SchemaMismatch, match="no column 'c0'"):
        check_columns(TABLE, SCHEMA.remove(0))
    with pytest.raises(SchemaMismatch, match="more than one column 'c3'"):
        check_columns(TABLE, SCHEMA.append(pa.field("c3", pa.int64())))
    with pytest.raises(SchemaMismatch, match="a column 'x'"):
        check_columns(TABLE, SCHEMA.append(pa.field("x", pa.int64())))


def test_files_are_read_without_a_list_for_each_column():
    asked = Asked(SCHEMA)
    assert columns_to_read(asked, SCHEMA, "f") == SCHEMA.names
    assert asked.times == 1


def test_a_format_is_asked_once_for_all_columns_that_it_holds(monkeypatch):
    made = []
    encode = parquet.encode
    monkeypatch.setattr(parquet, "encode", lambda table: made.append(table) or encode(table))
    assert parquet.why_not_held(SCHEMA) is None
    assert len(made) == 1
    assert parquet.why_not_held(SCHEMA.append(pa.field("i", pa.month_day_nano_interval()))) is not None
