"""Rows that an engine cannot load: one error that says so, whatever the stream of rows was told."""

import pyarrow as pa
import pytest

from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.engines.engine import RowsAtHand
from ballista_py.errors import SchemaMismatch

MAP = pa.schema([("c", pa.map_(pa.string(), pa.int32()))])


@pytest.fixture
def engine():
    made = DuckDBEngine()
    yield made
    made.close()


@pytest.mark.parametrize("count", [1, 300_000])  # with many, the engine fails while the stream is still open
def test_a_key_twice_in_a_map_is_an_error_of_the_rows(engine, count):
    rows = pa.table([pa.array([[("a", 1), ("a", 2)]] * count, MAP.field(0).type)], schema=MAP)
    engine.create_table("t", MAP)
    for number in range(3):
        with pytest.raises(SchemaMismatch, match="Arrow map contains duplicate key"):
            engine.load("t", [RowsAtHand(file_id=number, rows=rows)])
    good = pa.table([pa.array([[("a", 1)]], MAP.field(0).type)], schema=MAP)
    assert engine.load("t", [RowsAtHand(file_id=9, rows=good)]) == 1


def test_a_panic_of_native_code_is_an_error(engine, monkeypatch):
    class Panic(BaseException):
        pass

    def load(*_):
        raise Panic("somewhere in native code")

    monkeypatch.setattr(engine._loaded, "load", load)
    with pytest.raises(Exception, match=r"the engine failed on it \(Panic\)"):
        engine.load("t", [])
