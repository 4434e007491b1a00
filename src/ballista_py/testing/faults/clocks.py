"""Wall clocks of processes that can be set while they run; what measures spans of time goes on as it was.

It takes `libfaketime`, a library that stands between a process and the clock of its machine (Linux).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from ballista_py.errors import ConfigError

_LIBRARY = Path("vendor", "libfaketime", "src", "libfaketime.so.1")
_LOOKS_EVERY_S = 1


class JumpingClocks:
    """A clock for each process by name; a process gets its own by the variables of `environment`.

    `folder` must be there as long as the processes are. Raises `ConfigError` where libfaketime is not installed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._library = _library()

    def environment(self, name: str) -> Mapping[str, str]:
        """The variables under which a process has the clock of this name."""
        self.jump(name, 0.0)
        return {
            "LD_PRELOAD": str(self._library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file(name)),
            "FAKETIME_CACHE_DURATION": str(_LOOKS_EVERY_S),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def jump(self, name: str, ahead_s: float) -> None:
        """Set this clock to so much ahead of the true time, within a second. A clock that is behind has less than 0."""
        new = self._file(name).with_suffix(".new")
        new.write_text(f"{ahead_s:+.3f}\n")
        new.replace(self._file(name))  # a process never reads half of it

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.clock"


def _library() -> Path:
    package = find_spec("libfaketime")
    if package is None or package.origin is None:
        raise ConfigError("clocks that jump need the package libfaketime: pip install libfaketime")
    found = Path(package.origin).parent / _LIBRARY
    if sys.platform != "linux" or not found.exists():
        raise ConfigError("clocks jump on Linux alone")
    return found
