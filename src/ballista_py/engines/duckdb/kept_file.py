"""The folder of an engine whose rows the next process finds again: who uses it, and which file of it may be used.

One process at a time, told by a lock that ends with it. A file that was opened some times, and each time the process
was gone before it had worked for a while, is the likely reason, and is not opened again.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import logging
import os
import re
from contextlib import suppress

from ballista_py.errors import ConfigError
from ballista_py.logs import log_event

_log = logging.getLogger(__name__)
_FILE = "held{number}.duckdb"
_LOCK, _STARTS = "held.lock", "held.starts"
_NUMBER = re.compile(r"held(\d*)\.duckdb$")
MAX_STARTS = 3  # in a row, none of which came to anything
_OURS: set[str] = set()  # a process does not lock itself out


class KeptFolder:
    """Locked from construction until `close`. Raises `ConfigError` for a folder that another process uses."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._name = os.path.realpath(folder)
        self._lock = _locked(folder, self._name)
        self._unsettled = False

    def found(self) -> str | None:
        """The file that an earlier process left, if it may be used; whatever else is there is removed."""
        paths = sorted(self._paths(), key=_number)
        starts = self._starts()
        if not paths or starts >= MAX_STARTS:
            if paths:
                not_used(f"{starts} processes in a row ended soon after they had opened it")
            self.clear()
            return None
        for path in paths[:-1]:
            _remove(path)
        with suppress(FileNotFoundError):
            os.unlink(f"{paths[-1]}.wal")  # nobody of ours writes one
        self._unsettled = True
        self._note(starts + 1)
        return paths[-1]

    def fresh(self) -> str:
        """The path of a file that is not there, under a name that no file has that is still open."""
        number = max(map(_number, self._paths()), default=-1) + 1
        return os.path.join(self._folder, _FILE.format(number=number or ""))

    def clear(self, but: str = "") -> None:
        """Remove every file that holds rows, except one."""
        for path in self._paths():
            if path != but:
                _remove(path)
        self.settle()

    def settle(self) -> None:
        """Note that the file does its work."""
        self._unsettled = False
        with suppress(OSError):
            os.unlink(os.path.join(self._folder, _STARTS))

    @property
    def is_settled(self) -> bool:
        return not self._unsettled

    def close(self) -> None:
        """Let others use the folder. Twice is fine."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
            _OURS.discard(self._name)

    def _paths(self) -> list[str]:
        found = glob.glob(os.path.join(glob.escape(self._folder), _FILE.format(number="*")))
        return [path for path in found if _NUMBER.search(path)]

    def _starts(self) -> int:
        try:
            with open(os.path.join(self._folder, _STARTS), encoding="ascii") as file:
                return int(file.read(16))
        except FileNotFoundError:
            return 0
        except (OSError, ValueError):
            return MAX_STARTS - 1  # cut short: one more is not tried for ever

    def _note(self, starts: int) -> None:
        path = os.path.join(self._folder, _STARTS)
        with suppress(OSError):  # on a full disk nothing is counted
            with open(f"{path}.tmp", "w", encoding="ascii") as file:
                file.write(str(starts))
            os.replace(f"{path}.tmp", path)


def not_used(reason: object) -> None:
    """Say why rows that lie there are loaded anew."""
    log_event(_log, "kept_rows_not_used", logging.WARNING, reason=reason)


def _locked(folder: str, name: str) -> int:
    if name in _OURS:
        raise ConfigError(
            f"engine folder '{folder}' is used by this process already: give each node its own data_dir"
        )
    fd = -1
    try:
        fd = os.open(os.path.join(folder, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        # Not `flock`: that one would last as long as a process that was forked of this one.
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(fd, 0)
        os.pwrite(fd, str(os.getpid()).encode(), 0)
    except OSError as error:
        holder = os.pread(fd, 16, 0).decode("ascii", "replace") if fd >= 0 else ""
        if fd >= 0:
            os.close(fd)
        if error.errno in (errno.EACCES, errno.EAGAIN):
            raise ConfigError(
                f"engine folder '{folder}' is used by another process ({holder}): give each node its own data_dir"
            ) from None
        raise ConfigError(f"engine folder '{folder}' cannot be locked: {error.strerror}") from error
    _OURS.add(name)
    return fd


def _number(path: str) -> int:
    found = _NUMBER.search(path)
    return int(found[1] or 0) if found else 0


def _remove(path: str) -> None:
    for one in (path, f"{path}.wal"):
        with suppress(FileNotFoundError):
            os.unlink(one)
