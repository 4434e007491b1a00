"""Reads everything of a table back and says what is wrong with it, partition by partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from attrs import frozen

from ballista_py.errors import BallistaError
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.storage.formats.files import read_data_file
from ballista_py.storage.manifest import AppliedToken, DataFile, all_files
from ballista_py.storage.partition_storage import PartitionStorage
from ballista_py.storage.token_pages import TokenPages, is_whole

RunAll = Callable[
    [Callable[[DataFile], "StorageProblem | None"], Iterable[DataFile]], Iterable["StorageProblem | None"]
]


_PAGE_GONE = "its page of earlier statements is gone or damaged: put it back, or run `ballista-py storage repair`"


@frozen(kw_only=True)
class StorageProblem:
    """Something that is not as the manifest says. `file` is empty when it is the manifest itself."""

    table: str
    partition: str
    file: str
    reason: str


@frozen(kw_only=True)
class Verified:
    """What was read, and the `problems` that were met; every other partition is whole. `rows` are those of now."""

    partitions: int = 0
    files: int = 0
    rows: int = 0
    problems: tuple[StorageProblem, ...] = ()


def verify_table(
    store: ConditionalStore,
    table: TableSpec,
    paths: Iterable[str],
    *,
    runtime: Runtime | None = None,
    run_all: RunAll = map,
) -> Verified:
    """Read the manifests of these partitions (their text forms) and every file that they name: those that are the
    partition now, those that a statement has prepared, those that queries begun earlier may still read.

    Checked are size, checksum, rows, columns and types, and that pages of tokens are there. A damaged file or manifest
    is a problem of its partition and keeps nothing else from being looked at. `run_all` works as `map` does.
    """
    runtime = runtime or SystemRuntime()
    partitions = files = rows = 0
    problems: list[StorageProblem] = []
    for path in paths:
        partitions += 1
        try:
            manifest = PartitionStorage(store, table.folder, path, runtime=runtime).read().document
        except BallistaError as error:
            problems.append(StorageProblem(table=table.name, partition=path, file="", reason=error.message))
            continue

        def look(file: DataFile, path: str = path) -> StorageProblem | None:
            return _look(store, table, path, file)

        problems.extend(
            StorageProblem(table=table.name, partition=path, file=page.path, reason=_PAGE_GONE)
            for page in manifest.pages
            if not is_whole(store, page)
        )
        named = all_files(manifest)
        files += len(named)
        rows += manifest.rows
        problems.extend(problem for problem in run_all(look, named) if problem is not None)
    return Verified(partitions=partitions, files=files, rows=rows, problems=tuple(problems))


def history(store: ConditionalStore, table: TableSpec, path: str) -> Iterator[AppliedToken]:
    """The statements that were applied to a partition last, the newest first: who committed what, when.

    Raises `ObjectMissing` and what reading a manifest and a page of tokens raises.
    """
    manifest = PartitionStorage(store, table.folder, path).read().document
    yield from reversed(manifest.tokens)
    pages = TokenPages(store, SystemRuntime())
    for page in reversed(manifest.pages):
        yield from reversed(pages.read(page))


def _look(store: ConditionalStore, table: TableSpec, path: str, file: DataFile) -> StorageProblem | None:
    try:
        found = read_data_file(store, file, table.schema)
        if found.num_rows == file.rows:
            return None
        reason = f"it holds {found.num_rows} rows, the manifest says {file.rows}"
    except BallistaError as error:
        reason = error.message
    return StorageProblem(table=table.name, partition=path, file=file.path, reason=reason)
