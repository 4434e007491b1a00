"""What a source of local files shows without being read: one text that differs when a file of it does.

Promises that two looks at one source that give the same text, other than none, were at the same files with the same
content, and that nothing else was there in between: what it showed once it never shows again. A file that was touched a
moment ago could be written once more within one tick of its clock, so a source that has one gives no text yet; nor does
one elsewhere than on this machine, or with too many files. Where there is no text the source is read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from hashlib import sha256
from stat import S_ISDIR
from typing import Any
from urllib.parse import unquote, urlsplit

import orjson

from ballista_py.runtime import Runtime
from ballista_py.spark.sources import source_options

MAX_LISTED = 100_000
SETTLED_MS = 2_000.0  # coarser than the clock of any file system
_NS_PER_MS = 1_000_000
_WILD = frozenset("*?[{\\")


def look_at(source: str | Mapping[str, Any], runtime: Runtime) -> str:
    """What the source shows now; nothing where that cannot be told without reading it. It raises nothing."""
    options = source_options(source)
    root = local_root(options.get("path"))
    if root is None:
        return ""
    newest_ns, count, found = 0, 0, []
    try:
        for path, stat in _files(root):
            count += 1
            if count > MAX_LISTED:
                return ""
            newest_ns = max(newest_ns, stat.st_mtime_ns, stat.st_ctime_ns)
            found.append((path, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino))
    except OSError:  # removed meanwhile, mostly
        return ""
    if newest_ns / _NS_PER_MS > runtime.wall_ms() - SETTLED_MS:
        return ""
    return sha256(orjson.dumps(sorted(found))).hexdigest()


def local_root(path: object) -> str | None:
    """The file or folder of this machine below which all of a path or glob lies; None for one elsewhere.

    >>> local_root("/data/*/a.parquet"), local_root("file:///data/x"), local_root("s3://bucket/x")
    ('/data', '/data/x', None)
    """
    if not isinstance(path, str | os.PathLike):
        return None
    text = os.fspath(path)
    if text.startswith("file:"):
        text = unquote(urlsplit(text).path)
    elif "://" in text:
        return None
    parts = text.split("/")
    wild = next((place for place, part in enumerate(parts) if _WILD.intersection(part)), len(parts))
    return "/".join(parts[:wild]) or "/"


def _files(root: str) -> Iterator[tuple[str, os.stat_result]]:
    """Every file and folder at or below `root`, links followed. Raises `OSError`.

    Folders tell of files that came and went again.
    """
    stat = os.stat(root)
    yield root, stat
    if not S_ISDIR(stat.st_mode):
        return
    with os.scandir(root) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _files(entry.path)
            else:
                yield entry.path, entry.stat()
