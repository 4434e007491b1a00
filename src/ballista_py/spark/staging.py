"""Where a run of the pipeline puts its files, and how they become objects of the store.

Promises that a published file is durable under its key, and that a discarded run leaves nothing behind. A store
that is a folder of this machine gets the files where they are to stay; any other gets copies of temporary files. Tasks
of a Spark elsewhere put their files themselves.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ballista_py.errors import BallistaError, StoreUnavailable, VersionConflict
from ballista_py.runtime import Runtime
from ballista_py.state.documents.claims import Claim, Spawn, claimed
from ballista_py.state.stores.store import ConditionalStore, local_path
from ballista_py.storage.formats.files import describe_local_file
from ballista_py.storage.manifest import DataFile, data_prefix


class Staging:
    """The files of one run, below `prefix`. `folder` does not exist before Spark makes it; with `put` nobody does."""

    def __init__(
        self,
        store: ConditionalStore,
        folder: Path,
        prefix: str,
        in_place: bool,
        claim: Claim,
        *,
        put: bool = False,
    ) -> None:
        self.folder = folder
        self.claim = claim
        self.prefix = prefix
        self._store = store
        self._put = put
        self._in_place = in_place
        self._published: list[str] = []

    def publish(self, paths: Iterable[Path]) -> list[DataFile]:
        """Make the files objects of the store, durably; those without rows are left out."""
        found = []
        for path in paths:
            key = f"{self.prefix}/{path.relative_to(self.folder).as_posix()}"
            file = describe_local_file(str(path), key)
            if file.rows == 0:
                path.unlink()
                continue
            if self._in_place:
                _flush(path)
            else:
                self._store.create(key, path.read_bytes())
                path.unlink()
            self._published.append(key)
            found.append(file)
        return found

    def took(self, files: Iterable[DataFile]) -> list[DataFile]:
        """Count files as published that tasks have put; those without rows are left out."""
        found = [file for file in files if file.rows]
        self._published += [file.path for file in found]
        return found

    def settle(self) -> None:
        """Call it when all is published: makes the names of the files as durable as their contents."""
        if self._in_place and self.folder.exists():
            for place in (self.folder, *self.folder.parents[: self.prefix.count("/") + 1]):
                _flush(place)

    def confirm(self) -> None:
        """Make sure that everything published here lies there and will stay; to be called once manifests name it.

        Raises `VersionConflict` when the claim on it is over, or a file is gone.
        """
        self.claim.confirm()
        there = self._there()
        gone = [key for key in self._published if key not in there]
        if gone:
            raise VersionConflict(
                f"file '{gone[0]}' was removed before it was published: nothing was changed, run again",
                key=gone[0],
            )
        if self._put:  # by attempts at tasks that do not count
            for key in there.difference(self._published):
                self._store.delete(key)

    def discard(self) -> None:
        """Remove what the run has written. What a task puts after that, nobody names."""
        if self._put:
            with suppress(BallistaError):  # what is left is garbage, and the error of the run says more
                self.claim.end()
                for key in self._there():
                    self._store.delete(key)
            return
        if self._in_place:
            shutil.rmtree(self.folder, ignore_errors=True)
            return
        for key in self._published:
            self._store.delete(key)

    def _there(self) -> set[str]:
        return {entry.key for entry in self._store.list(f"{self.prefix}/")}


@contextmanager
def staging(
    store: ConditionalStore,
    table: str,
    run_id: str,
    runtime: Runtime,
    spawn: Spawn | None = None,
    *,
    put: bool = False,
) -> Iterator[Staging]:
    """The place of the run `run_id` of `table`, claimed while the block runs. Temporary files are gone when it ends.

    With `put` tasks put the files into the store themselves.

    A thread started by `spawn` renews the claim; without one it may be over when the run is published.
    """
    prefix = f"{data_prefix(table)}{run_id}"
    in_place = local_path(store, prefix)
    with claimed(store, f"{prefix}/", runtime, spawn) as claim:
        if put:
            yield Staging(store, Path(), prefix, in_place=False, claim=claim, put=True)
            return
        if in_place is not None:
            yield Staging(store, Path(in_place), prefix, in_place=True, claim=claim)
            return
        with tempfile.TemporaryDirectory(prefix="ballista-run-") as folder:
            yield Staging(store, Path(folder) / "files", prefix, in_place=False, claim=claim)


def _flush(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        raise StoreUnavailable(f"a data file could not be made durable: {error.strerror}") from error
    finally:
        os.close(fd)
