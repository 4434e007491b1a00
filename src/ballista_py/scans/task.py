"""`ScanTask`: some files of one table, and what is read of them; the values alone.

Who makes a task has planned it from one snapshot of the table: the files are those that may hold rows of the answer,
and with each file are all deletes that apply to it. A task says everything that is needed to read its rows, so any
executor runs any task, and two that run the same task give the same rows. It holds no plan: what is above the scan
stays where it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

import pyarrow as pa
from attrs import Factory, evolve, field, frozen

from ballista_py.errors import InvalidData
from ballista_py.scans.storage_credentials import StorageCredentials
from ballista_py.scans.typed_values import key_of

FIELD_ID = b"PARQUET:field_id"  # in the metadata of a field, nested ones too, as pyarrow reads and writes it

FoundBy = Literal["name", "field_id"]
VectorKind = Literal["puffin", "delta"]
Comparing = Literal["=", "!=", "<", "<=", ">", ">=", "in", "is_null", "is_not_null"]
OPERATORS: tuple[Comparing, ...] = get_args(Comparing)


def _values_key(values: tuple[pa.Scalar, ...]) -> tuple[Any, ...]:
    return tuple(key_of(value) for value in values)


def _mapping_key(values: Mapping[str, pa.Scalar]) -> tuple[Any, ...]:
    return tuple(sorted((name, key_of(value)) for name, value in values.items()))


@frozen(kw_only=True)
class ScanCondition:
    """One condition on a column: that it compares so with a value, is one of several, or is null or is not.

    `values` are of one flat Arrow type and not null: one for a comparison, any number for `in`, none for `is_null` and
    `is_not_null`. A null in the column fulfils `is_null` and nothing else. NaN compares as PostgreSQL and DuckDB have
    it: equal to itself and above every number.
    """

    column: str
    operator: Comparing
    values: tuple[pa.Scalar, ...] = field(default=(), eq=_values_key)

    def __attrs_post_init__(self) -> None:
        wanted = {"in": None, "is_null": 0, "is_not_null": 0}.get(self.operator, 1)
        if self.operator not in OPERATORS:
            raise InvalidData(f"a condition on '{self.column}' has the unknown operator '{self.operator}'")
        if wanted is not None and len(self.values) != wanted:
            raise InvalidData(f"a condition '{self.operator}' on '{self.column}' has {len(self.values)} values")
        if any(not value.is_valid or value.type != self.values[0].type for value in self.values):
            raise InvalidData(f"a condition on '{self.column}' has a null, or values of several types")


@frozen(kw_only=True)
class PositionDeletes:
    """A Parquet file of positions (Iceberg v2: `file_path`, `pos`): rows of its file that are gone.

    The file may name positions of other data files as well: only those whose `file_path` is that of the slice count.
    `size` and `rows` are the file's own, in bytes and rows.
    """

    path: str
    size: int
    rows: int | None = None


@frozen(kw_only=True)
class EqualityDeletes:
    """A Parquet file of values (Iceberg v2): a row that equals one of its rows in all columns of `schema` is gone.

    Null equals null. `schema` has the columns that are compared, with their types of now, each with its field id in
    the metadata (`FIELD_ID`); they need not be among those that the task gives, nor be columns of the table any more.
    """

    path: str
    size: int
    schema: pa.Schema = field(repr=False)
    rows: int | None = None


@frozen(kw_only=True)
class DeletionVector:
    """A bitmap of the positions in the file that are gone: Iceberg v3's blob in a Puffin file, or one of Delta.

    Exactly one of `path` and `inline` is there. `puffin`: the blob begins at `offset` and has `length` bytes, as the
    manifest says (`content_offset`, `content_size_in_bytes`). `delta`: `offset` and `length` are `offset` and
    `sizeInBytes` of the descriptor; `inline` are its decoded bytes, no text. `path` is the file itself, whatever way
    the log names it. `rows` is how many positions it names, which a reader holds against what it has read.
    """

    kind: VectorKind
    path: str | None = None
    offset: int = 0
    length: int = 0
    rows: int | None = None
    inline: bytes | None = field(default=None, repr=False)

    def __attrs_post_init__(self) -> None:
        if self.kind not in get_args(VectorKind) or (self.path is None) == (self.inline is None):
            raise InvalidData(
                "a deletion vector is of no known kind, or has not exactly one of a path and its bytes"
            )


Deletes = PositionDeletes | EqualityDeletes | DeletionVector


@frozen(kw_only=True)
class FileSlice:
    """All of a data file, or some of its row groups, and what is gone of it.

    - `path`: as the reader opens it, absolute: a path of a shared folder or a URL (`s3://…`).
    - `size`: the bytes of the whole file, as the lake says. A reader that finds another refuses the file.
    - `rows`: of the whole file before deletes, if that is known.
    - `row_groups`: numbers of the row groups that belong to the slice, ascending; None for all of the file.
    - `read_bytes`: what reading the columns of the task from these row groups costs, by the footer; None where nobody
      has looked: then `size` counts.
    - `format`: `parquet` is what executors read; others are refused by name when the scan is planned.
    - `version`: what the store called the state of the file when it was planned (an ETag, a generation; for local
      files what the lister makes of them); None where that is not known. Another one at reading is refused.
    - `partition_values`: column to its one value in all rows of the file, typed as that column is, null too: for
      columns that are not in the file (Hive, Delta; identity partitions of Iceberg). It counts where the file lacks
      the column, also for a column of equality deletes that the task does not give.
    - `found_by`: how columns of the schema are found in the file. `field_id`: by the id in their metadata
      (`FIELD_ID`), at every level. `name`: by their stored names (`partitions.columns.stored_name`: the name in data
      files where the schema notes one, as for Delta's column mapping; else the column's name).
    - `deletes`: all that apply to this file, and none else: who plans has compared sequence numbers and partitions.
      Positions count from the first row of the file, whatever row groups the slice has.
    """

    path: str
    size: int
    rows: int | None = None
    row_groups: tuple[int, ...] | None = None
    read_bytes: int | None = None
    format: str = "parquet"
    version: str | None = None
    partition_values: Mapping[str, pa.Scalar] = field(default=Factory(dict), eq=_mapping_key)
    found_by: FoundBy = "name"
    deletes: tuple[Deletes, ...] = ()

    @property
    def cost(self) -> int:
        """The bytes that reading it is taken to cost, its deletes with it."""
        return (self.size if self.read_bytes is None else self.read_bytes) + sum(map(_delete_bytes, self.deletes))


@frozen(kw_only=True)
class ScanTask:
    """What one executor reads in one go: slices of files of one table, at one snapshot.

    - `fragment_id`: the fragment of the plan (its name there) whose rows these are.
    - `number`: of the task within its fragment, from 0; both together name it (`name`).
    - `files`: the slices, each read whole and in this order.
    - `columns`: the columns that are given, in order; a column that only `filter` or equality deletes need is not
      among them. There may be none: then only rows are counted.
    - `schema`: exactly these columns with the types that the rows have when they are given, and in the metadata of its
      fields what is known of them in files: `FIELD_ID`, and what `partitions.columns` notes (`stored`, `initial`: the
      value in files that lack the column; without one it is null).
    - `filter`: conditions that all hold for each row of the answer. A reader may skip row groups and files by them and
      need not: the rows are filtered again above.
    - `credentials`: for the places of the files (in memory and on the wire to the executor only), or None where the
      executor's own serve. A reader asks anew before each file, because there may be newer ones by then.

    Raises `InvalidData` where `columns` and `schema` disagree, so that a projection cannot get lost on the way.
    """

    fragment_id: str
    files: tuple[FileSlice, ...]
    columns: tuple[str, ...]
    schema: pa.Schema = field(repr=False)
    filter: tuple[ScanCondition, ...] = ()
    credentials: StorageCredentials | None = None
    number: int = 0

    def __attrs_post_init__(self) -> None:
        if list(self.columns) != self.schema.names:
            raise InvalidData(f"scan task {self.name}: its columns are not those of its schema")

    @property
    def name(self) -> str:
        """The fragment and the number: no other task of the statement has it."""
        return f"{self.fragment_id}/{self.number}"

    @property
    def cost(self) -> int:
        """The bytes that reading it is taken to cost."""
        return sum(file.cost for file in self.files)

    def without_credentials(self) -> ScanTask:
        """The same, as it may be shown or kept."""
        return self if self.credentials is None else evolve(self, credentials=None)

    def to_bytes(self, *, reveal: bool = False) -> bytes:
        """The task as JSON with its schema: see `scans.codec.task_to_bytes`, also for its errors."""
        from ballista_py.scans.codec import task_to_bytes

        return task_to_bytes(self, reveal=reveal)

    @classmethod
    def from_bytes(cls, data: bytes) -> ScanTask:
        """The task that `to_bytes` wrote. Raises `InvalidData`, naming the field, for anything else."""
        from ballista_py.scans.codec import task_from_bytes

        return task_from_bytes(data)


def _delete_bytes(deletes: Deletes) -> int:
    return deletes.length if isinstance(deletes, DeletionVector) else deletes.size
