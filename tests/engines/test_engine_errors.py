"""What DuckDB says of memory, in words that name what takes it."""

import duckdb
import pytest

from ballista_py.engines.duckdb.errors import translate
from ballista_py.errors import MergeTooLarge, NotOwner


def test_a_statement_whose_own_text_takes_the_memory_is_told_so():
    full = duckdb.OutOfMemoryException("Out of Memory Error: could not allocate block of size 256.0 KiB")
    long = f"select * from t where id in ({', '.join(map(str, range(49_000)))})"
    with pytest.raises(MergeTooLarge, match=r"a statement of 3\d\d,\d{3} characters .* into a table and join it"):
        raise translate(full, long)
    with pytest.raises(MergeTooLarge, match="filter more"):
        raise translate(full, "select * from t order by id")


def test_a_database_that_is_closed_amid_a_statement_begins_anew():
    database = duckdb.connect()
    cursor = database.cursor()
    database.close()
    for closed in (lambda: cursor.close() or cursor.execute("select 1"), lambda: database.execute("select 1")):
        with pytest.raises(duckdb.ConnectionException) as raised:
            closed()
        assert isinstance(translate(raised.value, "select 1"), NotOwner)
    assert isinstance(
        translate(duckdb.ConnectionException("Connection Error: Connection has already been closed"), ""), NotOwner
    )
