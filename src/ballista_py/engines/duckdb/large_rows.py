"""Rows of loaded files some of which are very large, read a few at a time.

DuckDB reads and copies whole vectors of 2,048 rows, however large each of them is. It reads no more than asked for,
though, where rows are asked for by their numbers: so their sizes are asked for first, and then runs of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ballista_py.engines.apart.large import BATCH_ROWS, FEED_BYTES
from ballista_py.engines.duckdb.errors import translate
from ballista_py.engines.duckdb.library import duckdb
from ballista_py.engines.duckdb.types import quoted
from ballista_py.errors import TransportError
from ballista_py.partitions.value_sizes import LargeValues, windows

ROW_NUMBER = "row number"  # no column can be called so by a statement: it is not among those of the table's view


def size_sql(schema: pa.Schema, large: Mapping[str, LargeValues]) -> str:
    """The SQL of what a row takes, as far as it is large; a nested value counts as the largest of its column."""
    found = []
    for name, values in large.items():
        kind, column = schema.field(name).type, f"n.{quoted(name)}"
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            found.append(f"coalesce(strlen({column}), 0)")
        elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            found.append(f"coalesce(octet_length({column}), 0)")
        else:
            found.append(str(values.largest))
    return " + ".join(found) or "0"


class LargeRows:
    """The rows that `found` (a statement that gives their numbers) names, out of `numbered` (all, with numbers).

    Both are run on `cursor`, whose snapshot was taken. `sizes` is the SQL of what one row takes.
    """

    def __init__(
        self,
        cursor: duckdb.DuckDBPyConnection,
        numbered: str,
        found: str,
        sizes: str,
        schema: pa.Schema,
    ) -> None:
        self.schema = schema
        self._cursor = cursor
        self._numbered, self._found, self._sizes = numbered, found, sizes
        self._columns = ", ".join(map(quoted, schema.names))
        self._over = False

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, in batches of about 4 MiB. Raises `MergeTooLarge`, and `TransportError` after `release`."""
        sql = ""
        try:
            numbers, sizes = self._measured()
            for start, end in windows(sizes, FEED_BYTES, BATCH_ROWS):
                self._require_wanted()
                wanted = numbers[start:end]
                self._cursor.register("rows wanted", pa.table({"number": wanted}))
                sql = (
                    f"select {self._columns} from ({self._numbered}) where {quoted(ROW_NUMBER)} between {wanted[0]} "
                    f"and {wanted[-1]}"
                )
                if int(wanted[-1]) - int(wanted[0]) >= len(wanted):  # others stand between them
                    sql += f' and {quoted(ROW_NUMBER)} in (select number from "rows wanted")'
                with self._cursor.sql(sql).to_arrow_reader(max(1, end - start)) as reader:
                    yield from (batch for batch in reader if batch.num_rows)
        except (duckdb.Error, OSError, pa.ArrowException) as error:
            self._require_wanted()
            raise translate(error, sql) from None
        finally:
            self._cursor.close()

    def release(self) -> None:
        """Read no further. From any thread, more than once."""
        self._over = True
        with suppress(duckdb.Error):
            self._cursor.interrupt()

    def _measured(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """The numbers of the rows, in their order, and what each takes."""
        sql = (
            f"select n.{quoted(ROW_NUMBER)} as number, ({self._sizes})::double as size from ({self._numbered}) n "
            f"where n.{quoted(ROW_NUMBER)} in ({self._found}) order by 1"
        )
        rows = self._cursor.sql(sql).to_arrow_table()
        return rows["number"].to_numpy(), rows["size"].to_numpy()

    def _require_wanted(self) -> None:
        if self._over:
            raise TransportError("The query was cancelled")
