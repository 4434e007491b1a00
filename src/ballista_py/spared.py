"""Packages that a library looks for by itself, and that nodes do without: each would be megabytes of every node."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from typing import Any


def spare_pandas() -> None:
    """Let pyarrow find no pandas when it looks for one, which it does once, for the first list that becomes an array.

    A node makes no data frames, and pandas would be 27 MB and half a second of each. Whoever imports pandas afterwards
    gets it (Spark does), and `to_pandas` works as ever.
    """
    import pyarrow as pa

    with without("pandas"):
        pa.array([0])


@contextmanager
def without(package: str) -> Iterator[None]:
    """Whoever imports `package` within this finds none, whether it is installed or loaded already.

    For the whole process, so for moments in which nobody else imports it; what has it already keeps it.
    """
    loaded = sys.modules.pop(package, None)
    absent = _Absent(package)
    sys.meta_path.insert(0, absent)
    try:
        yield
    finally:
        sys.meta_path.remove(absent)
        if loaded is not None:
            sys.modules[package] = loaded


class _Absent(MetaPathFinder):
    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        if fullname == self._package:
            raise ModuleNotFoundError(fullname, name=fullname)
