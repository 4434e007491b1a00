"""What is gone of a file: positions from delete files and deletion vectors, and rows by their values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from attrs import frozen

from ballista_py.errors import ConfigError, DocumentUnreadable
from ballista_py.scans.storage_credentials import StorageCredentials
from ballista_py.scans.task import DeletionVector, EqualityDeletes, FileSlice, PositionDeletes
from ballista_py.storage.lake.bitmaps import MAX_VECTOR_BYTES, Positions, delta_positions, puffin_positions
from ballista_py.storage.lake.footers import footer_of, reading
from ballista_py.storage.lake.matching import matched
from ballista_py.storage.lake.opening import LakeOpener
from ballista_py.storage.lake.paths import true_path

NO_POSITIONS: Positions = np.empty(0, np.int64)
MAX_EQUALITY_BYTES = 512 << 20  # of all equality deletes of one file, decoded
_BATCH_ROWS = 65_536
_FILE_PATH, _POS = 2147483546, 2147483545  # the ids of the columns of a file of positions
_POSITION_COLUMNS = (
    pa.field("file_path", pa.string(), metadata={"PARQUET:field_id": str(_FILE_PATH)}),
    pa.field("pos", pa.int64(), metadata={"PARQUET:field_id": str(_POS)}),
)


def gone_positions(
    file: FileSlice, rows: int, opener: LakeOpener, credentials: StorageCredentials | None
) -> Positions:
    """The positions that are gone of a file of so many rows, ascending. Raises `DocumentUnreadable`, and as opening."""
    found = []
    for one in file.deletes:
        if isinstance(one, DeletionVector):
            found.append(_vector(one, rows, opener, credentials))
        elif isinstance(one, PositionDeletes):
            found.extend(_positions(one, file, rows, opener, credentials))
    if not found:
        return NO_POSITIONS
    return (
        found[0]
        if len(found) == 1 and isinstance(file.deletes[0], DeletionVector)
        else np.unique(np.concatenate(found))
    )


def _vector(
    one: DeletionVector, rows: int, opener: LakeOpener, credentials: StorageCredentials | None
) -> Positions:
    delta = one.kind == "delta"
    if one.inline is not None:
        data = one.inline
    else:  # Delta counts neither the length before the vector nor the checksum behind it
        length = one.length + 8 if delta else one.length
        data = opener.read(one.path or "", credentials, one.offset, length, most=MAX_VECTOR_BYTES)
    found = delta_positions(data, rows, inline=one.inline is not None) if delta else puffin_positions(data, rows)
    if one.rows is not None and len(found) != one.rows:
        raise DocumentUnreadable(f"a deletion vector names {len(found)} rows instead of {one.rows}")
    return found


def _positions(
    one: PositionDeletes, file: FileSlice, rows: int, opener: LakeOpener, credentials: StorageCredentials | None
) -> Iterator[Positions]:
    """What a delete file names of this file."""
    names = {file.path, true_path(file.path)}
    with opener.open(one.path, credentials, size=one.size) as opened, reading(opened):
        footer = footer_of(opener, opened)
        columns = matched(
            footer.schema, _POSITION_COLUMNS, "field_id" if _has_ids(footer.schema) else "name", one.path
        )
        path, pos = columns
        if path.held is None or pos.held is None:
            raise DocumentUnreadable(f"'{one.path}' is no file of positions", file=one.path)
        opened.source.seek(0)
        parquet = pq.ParquetFile(opened.source, metadata=footer.metadata)
        for batch in parquet.iter_batches(_BATCH_ROWS, columns=[path.held, pos.held]):
            paths, found = batch.column(path.held), batch.column(pos.held)
            paths = path.convert(paths) if path.convert else paths
            found = pos.convert(found) if pos.convert else found
            own = _is_path(paths, names)
            places = np.asarray(found.filter(own).to_numpy(zero_copy_only=False), dtype=np.int64)
            if found.null_count or (len(places) and (int(places.min()) < 0 or int(places.max()) >= rows)):
                raise DocumentUnreadable(
                    f"'{one.path}' names rows that '{file.path}' does not have", file=one.path
                )
            yield places


def _has_ids(schema: pa.Schema) -> bool:
    return any(b"PARQUET:field_id" in (field.metadata or {}) for field in schema)


def _is_path(paths: pa.Array, names: set[str]) -> pa.Array:
    """Which of the paths are one of the names; they are looked at once each, in whatever form they are written."""
    coded = paths.dictionary_encode()
    is_own = [text is not None and _is_one(text, names) for text in coded.dictionary.to_pylist()]
    return pc.fill_null(pa.array(is_own, pa.bool_()).take(coded.indices), False)


def _is_one(text: str, names: set[str]) -> bool:
    try:
        return text in names or true_path(text) in names
    except ConfigError:
        return False


@frozen
class GoneValues:
    """Rows by whose values rows of a file are gone: `names` of the columns, and the values as numbers.

    Each column has its values once (`sets`); `codes` are the rows, as numbers made of the places of their values, step
    by step so that they stay small (`steps`: the numbers that occur after each column).
    """

    names: tuple[str, ...]
    sets: tuple[pa.Array, ...]
    steps: tuple[npt.NDArray[np.int64], ...]

    @classmethod
    def of(cls, rows: pa.Table) -> GoneValues:
        """The rows to look for."""
        sets = tuple(pc.unique(_plain(column.combine_chunks())) for column in rows.columns)
        codes, steps = np.zeros(len(rows), np.int64), []
        for column, values in zip(rows.columns, sets, strict=True):
            codes = codes * len(values) + _places(column.combine_chunks(), values)
            known, codes = np.unique(codes, return_inverse=True)
            codes = codes.astype(np.int64)
            steps.append(known)
        return cls(tuple(rows.column_names), sets, tuple(steps))

    def gone(self, columns: Mapping[str, pa.Array], rows: int) -> npt.NDArray[np.bool_]:
        """Which of some rows are gone. Null equals null, and NaN equals NaN."""
        left = np.ones(rows, np.bool_)
        codes = np.zeros(rows, np.int64)
        for name, values, known in zip(self.names, self.sets, self.steps, strict=True):
            places = _places(columns[name], values)
            wanted = codes * len(values) + places
            at = np.minimum(np.searchsorted(known, wanted), max(0, len(known) - 1))
            left &= (places >= 0) & (known[at] == wanted if len(known) else False)
            codes = at
        return left


def equality_deletes(
    file: FileSlice, opener: LakeOpener, credentials: StorageCredentials | None
) -> tuple[GoneValues, ...]:
    """The values of all equality deletes of a file, those of the same columns together."""
    by_columns: dict[tuple[str, ...], list[pa.Table]] = {}
    fields: dict[tuple[str, ...], pa.Schema] = {}
    size = 0
    for one in file.deletes:
        if isinstance(one, EqualityDeletes):
            key = tuple(str(field) for field in one.schema)
            for table in _rows_of(one, opener, credentials):
                size += table.nbytes
                if size > MAX_EQUALITY_BYTES:
                    raise DocumentUnreadable(
                        f"the equality deletes of '{file.path}' have more than {MAX_EQUALITY_BYTES:,} bytes: let the "
                        "table's own engine rewrite its files",
                        file=file.path,
                    )
                by_columns.setdefault(key, []).append(table)
            fields[key] = one.schema
    return tuple(GoneValues.of(pa.concat_tables(tables)) for tables in by_columns.values())


def _rows_of(
    one: EqualityDeletes, opener: LakeOpener, credentials: StorageCredentials | None
) -> Iterator[pa.Table]:
    with opener.open(one.path, credentials, size=one.size) as opened, reading(opened):
        footer = footer_of(opener, opened)
        columns = matched(footer.schema, list(one.schema), "field_id", one.path)
        if any(column.held is None for column in columns) or not columns:
            raise DocumentUnreadable(f"'{one.path}' lacks columns by which it deletes", file=one.path)
        opened.source.seek(0)
        parquet = pq.ParquetFile(opened.source, metadata=footer.metadata, coerce_int96_timestamp_unit="us")
        for batch in parquet.iter_batches(_BATCH_ROWS, columns=[str(column.held) for column in columns]):
            arrays = [
                batch.column(column.held) if column.convert is None else column.convert(batch.column(column.held))
                for column in columns
            ]
            yield pa.Table.from_arrays(arrays, names=one.schema.names)


def _plain(values: pa.Array) -> pa.Array:
    """Values in a form that Arrow looks up: decimals and times as they are, no dictionaries."""
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def _places(column: pa.Array, values: pa.Array) -> npt.NDArray[np.int64]:
    found = pc.index_in(_plain(column), value_set=values)
    return np.asarray(pc.fill_null(found, -1).to_numpy(zero_copy_only=False), dtype=np.int64)
