"""How far an executor is with what it is to hold, for people and metrics."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import evolve, frozen

from ballista_py.runtime import Runtime
from ballista_py.storage.manifest import DataFile


@frozen(kw_only=True)
class HydrationProgress:
    """Of the `partitions` that are wanted now, `hydrated` are held as they are wanted.

    The others count since the process began: data files that were asked for, those that are on this machine by now,
    those that the engine has loaded, each with their bytes. A file that could not be loaded is asked for again; one
    whose rows an earlier process has kept is not asked for.
    """

    partitions: int = 0
    hydrated: int = 0
    files_asked: int = 0
    files_here: int = 0
    files_loaded: int = 0
    bytes_asked: int = 0
    bytes_here: int = 0
    bytes_loaded: int = 0
    files_kept: int = 0
    bytes_kept: int = 0


class HydrationMeter:
    """Counts files on their way. Safe to share between threads.

    >>> from ballista_py.runtime import SystemRuntime
    >>> meter = HydrationMeter(SystemRuntime())
    >>> meter.asked([DataFile(path="f", rows=1, bytes=70)])
    >>> meter.progress(4, 3).bytes_asked
    70
    """

    def __init__(self, runtime: Runtime) -> None:
        self._lock = runtime.lock()
        self._counted = HydrationProgress()

    def asked(self, files: Iterable[DataFile]) -> None:
        """These files are to be loaded."""
        self._count("asked", files)

    def here(self, file: DataFile) -> None:
        """The file is on this machine."""
        self._count("here", [file])

    def loaded(self, files: Iterable[DataFile]) -> None:
        """The engine has loaded these files."""
        self._count("loaded", files)

    def kept(self, files: Iterable[DataFile]) -> None:
        """The engine has these files from an earlier process."""
        self._count("kept", files)

    def progress(self, partitions: int, hydrated: int) -> HydrationProgress:
        """What was counted so far, beside what is held now."""
        with self._lock:
            return evolve(self._counted, partitions=partitions, hydrated=hydrated)

    def _count(self, what: str, files: Iterable[DataFile]) -> None:
        sizes = [file.bytes_to_read for file in files]
        with self._lock:
            files_now = getattr(self._counted, f"files_{what}") + len(sizes)
            bytes_now = getattr(self._counted, f"bytes_{what}") + sum(sizes)
            self._counted = evolve(self._counted, **{f"files_{what}": files_now, f"bytes_{what}": bytes_now})
