"""Rows of loaded files some of which are very large, read a few at a time.

DuckDB reads and copies whole vectors of 2,048 rows, however large each of them is. It reads no more than asked for,
though, where rows are asked for by their numbers: so their sizes are asked for first, and then runs of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ballista_py.engines.apart.large import BATCH_ROWS, FEED_BYTES, VECTOR_ROWS
from ballista_py.engines.duckdb.errors import translate
from ballista_py.engines.duckdb.library import duckdb
from ballista_py.engines.duckdb.types import quoted
from ballista_py.errors import TransportError
from ballista_py.partitions.value_sizes import LargeValues, windows

MEASURED_BYTES = 32 << 20  # of large values that are read at once to see how large they are
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


def measured_rows(rows: int, large: LargeValues) -> int:
    """Of how many of the `rows` the sizes are asked for at a time: as many as take `MEASURED_BYTES`, on average.

    >>> measured_rows(50, LargeValues({23: 50})), measured_rows(1_000_000, LargeValues({23: 50}))
    (4, 1000000)
    """
    share = large.together(rows) / MEASURED_BYTES
    step = int(rows / share) if share > 1 else rows
    return max(1, step if step < VECTOR_ROWS else rows)


def _nobody_asks(_error: BaseException) -> None:
    return


class LargeRows:
    """The rows that `found` (a statement that gives their numbers) names, out of `numbered` (all, with numbers).

    Both are run on `cursor`, whose snapshot was taken. `large` are the large values of each column.
    """

    def __init__(
        self,
        cursor: duckdb.DuckDBPyConnection,
        numbered: str,
        found: str,
        large: Mapping[str, LargeValues],
        schema: pa.Schema,
    ) -> None:
        self.schema = schema
        self._cursor = cursor
        self._numbered, self._found = numbered, found
        self._sizes, self._large = size_sql(schema, large), LargeValues.all_of(large.values())
        self._columns = ", ".join(map(quoted, schema.names))
        self._over = False
        self.failed: Callable[[BaseException], None] = _nobody_asks  # told how reading failed

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, in batches of about 4 MiB. Raises `MergeTooLarge`, and `TransportError` after `release`."""
        sql = ""
        try:
            numbers, sizes = self._measured()
            for start, end in windows(sizes, FEED_BYTES, BATCH_ROWS):
                self._require_wanted()
                sql = self._among(numbers[start:end], self._columns)
                with self._cursor.sql(sql).to_arrow_reader(max(1, end - start)) as reader:
                    yield from (batch for batch in reader if batch.num_rows)
        except (duckdb.Error, OSError, pa.ArrowException) as error:
            self.failed(error)
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
        """The numbers of the rows, in their order, and what each takes.

        To tell the size of a value is to read it: it is copied, and not counted. So it is done for some rows at a time.
        """
        found = self._cursor.sql(f"select * from ({self._found}) order by 1").to_arrow_table()
        numbers: npt.NDArray[np.int64] = found[0].to_numpy()
        sizes = np.zeros(len(numbers))
        rows = measured_rows(len(numbers), self._large)
        for start in range(0, len(numbers), rows):
            self._require_wanted()
            size = f"({self._sizes})::double as size"
            sql = f"{self._among(numbers[start : start + rows], size)} order by n.{quoted(ROW_NUMBER)}"
            sizes[start : start + rows] = self._cursor.sql(sql).to_arrow_table()["size"].to_numpy()
        return numbers, sizes

    def _among(self, wanted: npt.NDArray[np.int64], what: str) -> str:
        """A SELECT of `what` of the rows with these numbers, which are in order."""
        number = f"n.{quoted(ROW_NUMBER)}"
        sql = f"select {what} from ({self._numbered}) n where {number} between {wanted[0]} and {wanted[-1]}"
        if int(wanted[-1]) - int(wanted[0]) < len(wanted):
            return sql
        self._cursor.register("rows wanted", pa.table({"number": wanted}))  # others stand between them
        return f'{sql} and {number} in (select number from "rows wanted")'

    def _require_wanted(self) -> None:
        if self._over:
            raise TransportError("The query was cancelled")
