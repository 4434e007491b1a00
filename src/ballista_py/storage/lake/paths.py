"""Paths of files of a lake: in one form, and below places where files of the table may lie; pure.

Whoever can write a table's metadata names the files that are read for it. So a path counts only below the table's own
location, or below one that the declaration names: one that steps out of it by `..`, or lies elsewhere, is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import unquote

from ballista_py.errors import ConfigError, SourceUnfit

MAX_PATH = 4_096
_S3 = ("s3://", "s3a://", "s3n://")


def true_path(path: str) -> str:
    """An absolute path of this machine, or `s3://bucket/key`. Raises `ConfigError` for anything else.

    >>> true_path("file:///a/b%20c"), true_path("s3a://b/k"), true_path("/a/b%20c")
    ('/a/b%20c', 's3://b/k', '/a/b%20c')
    """
    scheme = next((scheme for scheme in _S3 if path.startswith(scheme)), None)
    if scheme is not None:
        found, parts = "s3://" + path.removeprefix(scheme), path.removeprefix(scheme).split("/")
        good = bool(parts[0]) and "@" not in parts[0]
    else:
        found = path
        if path.startswith("file:"):
            found = "/" + path.removeprefix("file:").removeprefix("//localhost").lstrip("/")
        parts = found.split("/")
        good = found.startswith("/")
    if not good or len(path) > MAX_PATH or "\x00" in path or "." in parts or ".." in parts:
        raise ConfigError(
            f"'{path[:200]}' is no path that is read here: take an absolute one of this machine, file:///… or "
            "s3://bucket/…, without '..'"
        )
    return found


def split_bucket(path: str) -> tuple[str, str]:
    """Bucket and key of `s3://bucket/key`."""
    bucket, _, key = path.removeprefix("s3://").partition("/")
    return bucket, key


def is_below(path: str, places: Iterable[str]) -> bool:
    """Whether a path lies below one of some places, or is one of them.

    >>> is_below("s3://b/t/x", ["s3a://b/t/"]), is_below("s3://b/tt/x", ["s3://b/t"])
    (True, False)
    """
    here = true_path(path)
    return any(
        here == place or here.startswith(f"{place}/") for place in (true_path(p).rstrip("/") for p in places)
    )


def require_below(path: str, places: Iterable[str], there: str) -> str:
    """The path, which metadata of a table names. Raises `SourceUnfit` unless it lies below one of the places."""
    places = tuple(places)
    is_plain = "/." not in path and "\x00" not in path and len(path) <= MAX_PATH
    if is_plain and any(path.startswith(f"{place}/") for place in places):  # of 100,000 files nearly all
        return path
    try:
        if is_below(path, places):
            return path
    except ConfigError:
        pass
    raise SourceUnfit(
        f"{there} names the file '{path[:200]}', which does not lie below its own location: name that place in "
        "'locations' of its declaration if it is meant"
    )


def unquoted(path: str, there: str) -> str:
    """A path as a Delta log has it (like a URL), as it is. Raises `SourceUnfit` for one that is none."""
    try:
        return unquote(path, errors="strict")
    except UnicodeDecodeError:
        raise SourceUnfit(f"{there} names a file whose path is no text") from None
