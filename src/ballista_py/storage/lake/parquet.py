"""Plain Parquet files where they lie, as one table: a folder or a glob, with values of columns in folders' names.

Nobody keeps a log of such files, so the listing is the snapshot: a file that is another one when it is read ends the
statement, which can be asked again. The columns are those of all files, or of `MAX_SAMPLE` of very many: a column that
some files lack is null in them, numbers of several widths have the widest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256

import pyarrow as pa
from attrs import define, field, frozen

from ballista_py.errors import SourceUnfit
from ballista_py.scans.storage_credentials import StorageCredentials
from ballista_py.scans.task import FileSlice, ScanCondition
from ballista_py.sql.prune.file_bounds import ColumnBounds
from ballista_py.storage.formats.statistics import ColumnStatistics
from ballista_py.storage.lake.declared import DeclaredLake
from ballista_py.storage.lake.footers import Footer, footer_at
from ballista_py.storage.lake.hive import keys_of, split_glob, typed_keys
from ballista_py.storage.lake.lake_types import kept_schema
from ballista_py.storage.lake.opening import CredentialsNow, LakeFile, LakeOpener
from ballista_py.storage.lake.paths import is_below, true_path
from ballista_py.storage.lake.pruning import may_hold, require_conditions
from ballista_py.storage.lake.reading import bounds_in_file, bounds_of_value

MAX_FILES = 1_000_000
MAX_SAMPLE = 1_000
MAX_FOOTERS = (
    20_000  # that are read to prune a statement's files; the others' row groups are left to who reads them
)
SUFFIXES = (".parquet", ".parq", ".pq")
WAY_OUT = "leave it out of a copy, or give it another type there"


@define(eq=False)
class ParquetInPlace:
    """See `LakeTable`."""

    declared: DeclaredLake
    opener: LakeOpener
    given: CredentialsNow | None = None

    @property
    def there(self) -> str:
        """See `LakeTable`."""
        return self.declared.there

    def credentials(self) -> StorageCredentials | None:
        """See `LakeTable`."""
        return self.declared.credentials() if self.given is None else self.given()

    def snapshot(self, version: str | int | None = None, timestamp_ms: int | None = None) -> ParquetSnapshot:
        """See `LakeTable`."""
        if version is not None or timestamp_ms is not None:
            raise SourceUnfit(f"{self.there} have no versions, only what lies there now")
        true = true_path(str(self.declared.path))
        folder, pattern = split_glob(true)
        now = self.credentials()
        listed = self.opener.list(folder, now, MAX_FILES)
        files = sorted((one for one in listed if _is_data(one.path, folder, pattern)), key=lambda one: one.path)
        if not files and not true.startswith("s3://") and pattern is None and true.endswith(SUFFIXES):
            raise SourceUnfit(f"there are no such files: {self.there}")
        keys = typed_keys([keys_of(one.path, folder, self.there) for one in files], self.there)
        schema = _with_keys(self._columns(files, now), keys, self.there)
        return ParquetSnapshot(
            there=self.there, id=_digest(files), schema=schema, listed=tuple(files), keys=keys, table=self
        )

    def footer(self, file: LakeFile, now: StorageCredentials | None) -> Footer:
        """What a file says of itself. Raises `SnapshotGone` for one that was changed since."""
        return footer_at(self.opener, file.path, now, file.size, file.version)

    def _columns(self, files: Sequence[LakeFile], now: StorageCredentials | None) -> pa.Schema:
        if not files:
            raise SourceUnfit(f"there are no Parquet files: {self.there}")
        step = max(1, -(-len(files) // MAX_SAMPLE))
        found: dict[str, pa.Field] = {}
        without: set[str] = set()  # columns that have nothing but nulls in some file, which has no type for them
        lacking = False
        for footer in self.opener.each(lambda one: self.footer(one, now), files[::step]):
            shown = pa.schema([one.remove_metadata() for one in footer.schema])
            without |= {column.name for column in shown if pa.types.is_null(column.type)}
            typed = pa.schema([column for column in shown if not pa.types.is_null(column.type)])
            kept = kept_schema(self.there, _plain(typed), WAY_OUT, noted=True)
            for column in kept:
                known = found.get(column.name)
                found[column.name] = column.with_nullable(True) if known is None else self._wider(known, column)
            lacking = lacking or len(kept) != len(found)
        if unknown := sorted(without - found.keys()):
            raise SourceUnfit(
                f"column '{unknown[0]}' of {self.there} has no value in any file, so nobody knows its type: leave it "
                "out, or write it with a type"
            )
        columns = (column.with_nullable(True) if column.name in without else column for column in found.values())
        return pa.schema(list(columns))

    def _wider(self, one: pa.Field, other: pa.Field) -> pa.Field:
        """A column of one type in one file and of another in another one."""
        if one.type == other.type:
            return one
        try:
            merged = pa.unify_schemas(
                [pa.schema([one]), pa.schema([other.with_nullable(True)])], promote_options="permissive"
            )
        except pa.ArrowException:
            merged = None
        found = None if merged is None else merged.field(0)
        if found is None or (pa.types.is_floating(found.type) and not _all(pa.types.is_floating, one, other)):
            raise SourceUnfit(
                f"column '{one.name}' of {self.there} is {one.type} in some files and {other.type} in others: name a "
                "folder or a glob whose files have one type"
            )
        return found


@frozen(kw_only=True, eq=False)
class ParquetSnapshot:
    """See `LakeSnapshot`; `keys` are the values in the names of folders, by file."""

    there: str
    id: str
    schema: pa.Schema
    listed: tuple[LakeFile, ...] = field(repr=False)
    keys: Mapping[str, Sequence[pa.Scalar]] = field(repr=False)
    table: ParquetInPlace = field(repr=False)
    statistics: Mapping[str, ColumnStatistics] = field(factory=dict, repr=False)

    @property
    def rows(self) -> int | None:
        """See `LakeSnapshot`: known where there are few files, whose footers were read for their columns."""
        if len(self.listed) > MAX_SAMPLE:
            return None
        now = self.table.credentials()
        return sum(self.table.footer(one, now).rows for one in self.listed)

    @property
    def bytes(self) -> int | None:
        """See `LakeSnapshot`."""
        return sum(one.size for one in self.listed)

    def files(
        self,
        filter: Sequence[ScanCondition] = (),  # noqa: A002
        columns: Sequence[str] | None = None,
    ) -> tuple[FileSlice, ...]:
        """See `LakeSnapshot`."""
        require_conditions(filter, self.schema)
        by_key = [one for one in filter if one.column in self.keys]
        others = [one for one in filter if one.column not in self.keys]
        slices = [
            self._slice(number)
            for number in range(len(self.listed))
            if may_hold(by_key, None, self._key_bounds(by_key, number))
        ]
        if not others or len(slices) > MAX_FOOTERS:
            return tuple(slices)
        now = self.table.credentials()
        looked = self.table.opener.each(lambda one: self._looked(one, others, now), slices)
        return tuple(one for one in looked if one is not None)

    def _slice(self, number: int) -> FileSlice:
        file = self.listed[number]
        values = {name: known[number] for name, known in self.keys.items()}
        return FileSlice(path=file.path, size=file.size, version=file.version or None, partition_values=values)

    def _key_bounds(self, conditions: Iterable[ScanCondition], number: int) -> dict[str, ColumnBounds]:
        found = {}
        for one in conditions:
            value = self.keys[one.column][number]
            # of one row that stands for all: null is in it, or is not
            found[one.column] = bounds_of_value(value) if value.is_valid else ColumnBounds(nulls=1)
        return found

    def _looked(
        self, file: FileSlice, conditions: Sequence[ScanCondition], now: StorageCredentials | None
    ) -> FileSlice | None:
        """The row groups of a file that may have rows; None where no one has."""
        lake = LakeFile(path=file.path, size=file.size, version=file.version or "")
        footer = self.table.footer(lake, now)
        count = footer.metadata.num_row_groups
        kept = tuple(
            number
            for number in range(count)
            if may_hold(
                conditions,
                footer.metadata.row_group(number).num_rows,
                bounds_in_file(conditions, self.schema, file, footer, number),
            )
        )
        if not kept:
            return None
        return FileSlice(
            path=file.path, size=file.size, rows=footer.rows, version=file.version,
            row_groups=None if len(kept) == count else kept, partition_values=file.partition_values,
        )  # fmt: skip


def _is_data(path: str, folder: str, pattern: object) -> bool:
    """Whether a file counts: what begins with `_` or `.` below the folder does not, nor does what has another ending
    unless the glob names it."""
    if not is_below(path, (folder,)) and path != folder:
        return False
    rest = path.removeprefix(folder).strip("/").split("/")
    if any(part.startswith((".", "_")) for part in rest):
        return False
    if pattern is not None:
        return bool(pattern.fullmatch(path))  # type: ignore[attr-defined]
    return path == folder or path.endswith(SUFFIXES)


def _plain(schema: pa.Schema) -> pa.Schema:
    """Values as such, however they lie in the file."""
    return pa.schema([
        column.with_type(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        for column in schema
    ])  # fmt: skip


def _all(test: object, *columns: pa.Field) -> bool:
    return all(test(column.type) for column in columns)  # type: ignore[operator]


def _with_keys(schema: pa.Schema, keys: Mapping[str, Sequence[pa.Scalar]], there: str) -> pa.Schema:
    both = next((name for name in keys if name in schema.names), None)
    if both is not None:
        raise SourceUnfit(
            f"column '{both}' of {there} is in the files and in the names of their folders, which may differ: name "
            "files that have it once"
        )
    return pa.schema([*schema, *(pa.field(name, known[0].type) for name, known in keys.items())])


def _digest(files: Iterable[LakeFile]) -> str:
    found = sha256()
    for one in files:
        found.update(f"{one.path}\0{one.size}\0{one.version}\n".encode(errors="surrogatepass"))
    return found.hexdigest()[:32]
