"""A Delta table where it lies: deltalake tells its files and statistics; vectors come from the log itself."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import orjson
import pyarrow as pa
from attrs import define, field, frozen

from ballista_py.errors import BallistaError, MissingExtra, SourceLost, SourceUnavailable, SourceUnfit
from ballista_py.partitions.columns import STORED, with_said
from ballista_py.scans.storage_credentials import StorageCredentials
from ballista_py.scans.task import FIELD_ID, FileSlice, FoundBy, ScanCondition
from ballista_py.sql.prune.file_bounds import ColumnBounds
from ballista_py.storage.formats.statistics import ColumnStatistics
from ballista_py.storage.lake.declared import DeclaredLake
from ballista_py.storage.lake.delta_log import MAX_LOG_FILE, vector_of, vectors_of
from ballista_py.storage.lake.lake_types import kept_schema
from ballista_py.storage.lake.opening import CredentialsNow, LakeOpener
from ballista_py.storage.lake.paths import require_below, true_path, unquoted
from ballista_py.storage.lake.pruning import may_hold, require_conditions

READER_VERSION, FEATURES_VERSION = 2, 3
FEATURES = frozenset(
    {
        "columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "typeWidening",
        "typeWidening-preview", "variantType", "variantType-preview",  # of which a column is refused
    }
)  # fmt: skip
MODE = "delta.columnMapping.mode"
_PHYSICAL, _NUMBER = b"delta.columnMapping.physicalName", b"delta.columnMapping.id"
WAY_OUT = "leave it out of a copy that Spark writes, or give it another type there"
MAX_LOG_FILES = 1_000_000
_MS = dt.timedelta(milliseconds=1)
_STORAGE = {
    "s3.access-key-id": "AWS_ACCESS_KEY_ID", "s3.secret-access-key": "AWS_SECRET_ACCESS_KEY",
    "s3.session-token": "AWS_SESSION_TOKEN", "s3.endpoint": "AWS_ENDPOINT_URL", "s3.region": "AWS_REGION",
    "client.region": "AWS_REGION", "s3.anonymous": "AWS_SKIP_SIGNATURE",
}  # fmt: skip


@define(eq=False)
class DeltaInPlace:
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

    def snapshot(self, version: str | int | None = None, timestamp_ms: int | None = None) -> DeltaSnapshot:
        """See `LakeTable`."""
        if version is not None and timestamp_ms is not None:
            raise SourceUnfit(f"{self.there} was asked for a version and for a time: say one of them")
        if isinstance(version, str):
            if not version.isdecimal() or len(version) > 18:
                raise SourceLost(f"{self.there} has no version '{version[:60]}'")
            version = int(version)
        root = true_path(str(self.declared.path)).rstrip("/")
        library = _library()
        with _told(self.there):
            table = library.DeltaTable(root, version=version, storage_options=self._storage())
            if timestamp_ms is not None:
                table.load_as_version(dt.datetime.fromtimestamp(timestamp_ms / 1e3, dt.UTC))
            features = _features(self.there, table.protocol())
            configuration = table.metadata().configuration
            mode = configuration.get(MODE, "none") if "columnMapping" in features else "none"
            schema = _schema(self.there, table.schema(), mode)
            actions = pa.table(table.get_add_actions(flatten=False))
            partitions = tuple(table.metadata().partition_columns)
            number = int(table.version())
        vectors = self._vectors(root, number, actions) if "deletionVectors" in features else {}
        return DeltaSnapshot(
            there=self.there, id=str(number), schema=schema, root=root, partitions=partitions,
            places=(root, *self.declared.locations), found_by="field_id" if mode == "id" else "name",
            actions=actions, vectors=vectors,
        )  # fmt: skip

    def _storage(self) -> dict[str, str] | None:
        now = self.credentials()
        if now is None:
            return None
        found = {_STORAGE[name]: one.reveal() for name, one in now.values.items() if name in _STORAGE}
        if found.get("AWS_ENDPOINT_URL", "").startswith("http://"):
            found["AWS_ALLOW_HTTP"] = "true"
        return found

    def _vectors(self, root: str, version: int, actions: pa.Table) -> Mapping[str, Any]:
        """The vectors of the files; raises `SourceUnfit` where the log has others than deltalake has."""
        now = self.credentials()
        log = f"{root}/_delta_log"
        files = {one.path.removeprefix(f"{log}/"): one for one in self.opener.list(log, now, MAX_LOG_FILES)}

        def read(name: str) -> bytes:
            return self.opener.read(f"{log}/{name}", now, most=MAX_LOG_FILE)

        found = vectors_of(files, version, read, self.there)
        if set(found) != set(actions.column("path").to_pylist()):
            raise SourceUnfit(f"{self.there} has a log whose files are read in two ways: it is not taken")
        return {path: one for path, one in found.items() if one is not None}


@frozen(kw_only=True, eq=False)
class DeltaSnapshot:
    """See `LakeSnapshot`."""

    there: str
    id: str
    schema: pa.Schema
    root: str
    partitions: tuple[str, ...]
    places: tuple[str, ...]
    found_by: FoundBy
    actions: pa.Table = field(repr=False)
    vectors: Mapping[str, Any] = field(repr=False)
    statistics: Mapping[str, ColumnStatistics] = field(factory=dict, repr=False)

    @property
    def rows(self) -> int | None:
        """See `LakeSnapshot`."""
        found = self.actions.column("num_records")
        return None if found.null_count else sum(map(int, found.to_pylist()))

    @property
    def bytes(self) -> int | None:
        """See `LakeSnapshot`."""
        return sum(map(int, self.actions.column("size_bytes").to_pylist()))

    def files(
        self,
        filter: Sequence[ScanCondition] = (),  # noqa: A002
        columns: Sequence[str] | None = None,
    ) -> tuple[FileSlice, ...]:
        """See `LakeSnapshot`."""
        require_conditions(filter, self.schema)
        held = {name: self.actions.column(name).to_pylist() for name in ("path", "size_bytes", "num_records")}
        bounds = {one.column: self._bounds(one.column) for one in filter}
        values = {name: self._partition(name) for name in self.partitions}
        found = []
        for number, path in enumerate(held["path"]):
            rows = held["num_records"][number]
            if may_hold(filter, rows, {name: known[number] for name, known in bounds.items()}):
                found.append(
                    FileSlice(
                        path=self._place(path),
                        size=held["size_bytes"][number],
                        rows=rows,
                        partition_values={name: known[number] for name, known in values.items()},
                        found_by=self.found_by,
                        deletes=self._deletes(path),
                    )
                )
        return tuple(found)

    def _place(self, path: str) -> str:
        there = unquoted(path, self.there)
        return require_below(there if _is_absolute(there) else f"{self.root}/{there}", self.places, self.there)

    def _deletes(self, path: str) -> tuple[Any, ...]:
        descriptor = self.vectors.get(path)
        if descriptor is None:
            return ()
        found = vector_of(descriptor, self.root, self.there)
        if found.path is not None:
            require_below(found.path, self.places, self.there)
        return (found,)

    def _partition(self, name: str) -> list[pa.Scalar]:
        """The values of a partition column by file; few of them, each made once."""
        kind = self.schema.field(name).type
        coded = _part(self.actions, "partition", name).cast(kind).combine_chunks().dictionary_encode()
        known = list(coded.dictionary)
        null = pa.scalar(None, kind)
        return [null if place is None else known[place] for place in coded.indices.to_pylist()]

    def _bounds(self, name: str) -> list[ColumnBounds]:
        """What the log tells of a column by file."""
        if name in self.partitions:
            known = [value.as_py() if value.is_valid else None for value in self._partition(name)]
            rows = self.actions.column("num_records").to_pylist()
            return [
                ColumnBounds(low=value, high=value, nulls=0) if value is not None and value == value
                else ColumnBounds(nulls=row if value is None else 0)
                for value, row in zip(known, rows, strict=True)
            ]  # fmt: skip
        column = self.schema.field(name)
        stored = str((column.metadata or {}).get(STORED, name.encode()).decode())
        parts = [_known(self.actions, part, stored, column.type) for part in ("min", "max", "null_count")]
        time = pa.types.is_timestamp(column.type)  # in whole milliseconds, cut
        return [
            ColumnBounds(low=low, high=_later(high) if time else high, nulls=nulls)
            for low, high, nulls in zip(*parts, strict=True)
        ]


def _later(high: Any) -> Any:
    try:
        return None if high is None else high + _MS
    except OverflowError:
        return None


def _known(actions: pa.Table, part: str, name: str, kind: pa.DataType) -> list[Any]:
    nothing: list[Any] = [None] * len(actions)
    if part not in actions.column_names or pa.types.is_nested(kind):
        return nothing
    struct = actions.schema.field(part).type
    if not pa.types.is_struct(struct) or struct.get_field_index(name) < 0:
        return nothing
    found = _part(actions, part, name)
    try:
        wanted = found if part == "null_count" else found.cast(kind)
        return [None if value is None or value != value else value for value in wanted.to_pylist()]
    except (pa.ArrowException, ValueError, OverflowError):
        return nothing


def _part(actions: pa.Table, part: str, name: str) -> pa.ChunkedArray:
    import pyarrow.compute as pc

    return pc.struct_field(actions.column(part), [actions.schema.field(part).type.get_field_index(name)])


def _is_absolute(path: str) -> bool:
    return path.startswith(("/", "file:")) or "://" in path


def _features(there: str, protocol: Any) -> frozenset[str]:
    """The features that readers must know. Raises `SourceUnfit` for one that is not known here."""
    least = int(protocol.min_reader_version)
    if least > FEATURES_VERSION:
        raise SourceUnfit(f"{there} needs readers of version {least}, and {FEATURES_VERSION} is read here")
    if least < FEATURES_VERSION:
        return frozenset({"columnMapping"} if least == READER_VERSION else ())
    found = frozenset(protocol.reader_features or ())
    unknown = sorted(found - FEATURES)
    if unknown:
        raise SourceUnfit(
            f"{there} uses the feature '{unknown[0]}', which is not read here: drop it there (ALTER TABLE … DROP "
            "FEATURE), or copy the table"
        )
    return found


def _schema(there: str, declared: Any, mode: str) -> pa.Schema:
    variants = [one["name"] for one in orjson.loads(declared.to_json())["fields"] if _has_variant(one["type"])]
    if variants:
        raise SourceUnfit(
            f"column '{variants[0]}' of {there} has the type variant, which cannot be read: {WAY_OUT}"
        )
    if mode not in ("none", "name", "id"):
        raise SourceUnfit(f"{there} finds its columns in a way that is not known ({MODE} = {mode[:60]})")
    kept = kept_schema(there, pa.schema(declared.to_arrow()), WAY_OUT, noted=True)
    return pa.schema([_noted(column, mode) for column in kept])


def _has_variant(kind: Any) -> bool:
    if isinstance(kind, str):
        return kind == "variant"
    parts = [kind.get(name) for name in ("elementType", "keyType", "valueType") if name in kind]
    return any(map(_has_variant, [*parts, *(one["type"] for one in kind.get("fields", ()))]))


def _noted(column: pa.Field, mode: str) -> pa.Field:
    """The column with what readers need: its name, or its id, in files."""
    kind, said = column.type, column.metadata or {}
    if pa.types.is_struct(kind):
        kind = pa.struct([_noted(kind.field(n), mode) for n in range(kind.num_fields)])
    elif pa.types.is_list(kind):
        kind = pa.list_(_noted(kind.value_field, mode))
    elif pa.types.is_map(kind):
        kind = pa.map_(_noted(kind.key_field, mode), _noted(kind.item_field, mode))
    found = pa.field(column.name, kind, column.nullable)
    if mode == "id" and _NUMBER in said:
        found = found.with_metadata({FIELD_ID: said[_NUMBER]})
    stored = said.get(_PHYSICAL, b"").decode()
    return with_said(found, STORED, stored) if mode != "none" and stored and stored != column.name else found


@contextmanager
def _told(there: str) -> Iterator[None]:
    """Errors of the library as ours; of its own words only what kind they are."""
    try:
        yield
    except BallistaError:
        raise
    except Exception as error:
        said, kind = str(error).lower(), type(error).__name__
        if "not a delta table" in said or "no files in log" in said or kind == "TableNotFoundError":
            raise SourceUnfit(f"there is no Delta table: {there}") from None
        if (
            "invalid table version" in said
            or "specified end version" in said
            or ("version" in said and "not found" in said)
        ):
            raise SourceLost(f"{there} has not kept that version") from None
        if "protocol" in kind.lower() or "unsupported" in said:
            raise SourceUnfit(f"{there} uses a feature that cannot be read here ({kind})") from None
        raise SourceUnavailable(f"{there} cannot be read ({kind})") from None


def _library() -> Any:
    try:
        import deltalake
    except ImportError:
        raise MissingExtra.of("deltalake", "delta") from None
    return deltalake
