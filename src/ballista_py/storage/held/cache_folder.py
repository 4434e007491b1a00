"""The folder of copied data files: how copies are called, which there are, whether one is what it should be.

A copy is called after the file that it is a copy of, and says its format; one that was written anew in another format
says its checksum, too, because no manifest knows it. Whatever is not called so is not touched, but for what this
folder's own half-made and former copies were called.
"""

from __future__ import annotations

import os
import re
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256

import pyarrow as pa
from attrs import frozen

from ballista_py.errors import ConfigError, DocumentUnreadable
from ballista_py.partitions.table import FILE_FORMATS
from ballista_py.storage.formats.files import check_local, checksum
from ballista_py.storage.manifest import DataFile

_COPY = re.compile(rf"(?P<stem>[0-9a-f]{{64}})\.(?P<format>{'|'.join(FILE_FORMATS)})(\.(?P<crc>[0-9a-f]{{8}}))?$")
_LEFT_OVER = re.compile(r"[0-9a-f]{64}(\..*\.tmp|\.[0-9a-f]{32})?$")


@frozen(kw_only=True)
class Copy:
    """One copy. `crc` is empty where the manifest's own checksum holds for it."""

    stem: str
    path: str
    format: str
    bytes: int
    crc: str = ""

    def is_of(self, file: DataFile) -> bool:
        """Whether the copy lies there as it was made, byte by byte."""
        try:
            if not self.crc:
                check_local(self.path, file)
                return True
            with open(self.path, "rb") as opened:
                return checksum(opened.read()) == f"crc32:{self.crc}"
        except (OSError, DocumentUnreadable):
            return False


def stem_of(file: DataFile, format_name: str, schema: pa.Schema | None, *, as_table: bool = False) -> str:
    """What the copy of a file in a format is called; one that is written anew holds the columns of `schema`."""
    key = f"{file.path}\n{file.checksum}"
    if as_table and schema is not None:
        key = f"{key}\n{format_name}\nas a table\n{b64encode(schema.serialize().to_pybytes()).decode()}"
    elif format_name != file.format and schema is not None:
        key = f"{key}\n{format_name}\n{schema.to_string(show_field_metadata=False)}"
    return sha256(key.encode()).hexdigest()


def put_copy(folder: str, stem: str, format_name: str, data: bytes, new_id: str, *, written_anew: bool) -> Copy:
    """Write a copy, whole or not at all. Raises `OSError`."""
    crc = checksum(data).partition(":")[2] if written_anew else ""
    path = os.path.join(folder, f"{stem}.{format_name}{'.' if crc else ''}{crc}")
    temporary = os.path.join(folder, f"{stem}.{new_id}.tmp")
    try:
        with open(temporary, "wb") as opened:
            opened.write(data)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    return Copy(stem=stem, path=path, format=format_name, bytes=len(data), crc=crc)


def remove_copy(copy: Copy) -> None:
    """Remove it; one that is gone is fine."""
    with suppress(FileNotFoundError):
        os.unlink(copy.path)


def mark_used(copy: Copy) -> None:
    """Note in the folder that the copy was used now, so that a next process knows which ones were not."""
    with suppress(OSError):
        os.utime(copy.path)


def found_copies(folder: str) -> Iterator[Copy]:
    """The copies that an earlier process left, least recently used first; what it left half-made is removed.

    Raises `ConfigError` for a folder that cannot be used.
    """
    try:
        os.makedirs(folder, exist_ok=True)
        entries = [(entry, entry.stat()) for entry in os.scandir(folder) if entry.is_file(follow_symlinks=False)]
        for entry, _ in entries:
            if _LEFT_OVER.match(entry.name):
                os.unlink(entry.path)
    except OSError as error:
        raise ConfigError(f"cache folder '{folder}' cannot be used: {error.strerror}") from error
    for entry, stat in sorted(entries, key=lambda found: found[1].st_mtime_ns):
        match = _COPY.match(entry.name)
        if match is not None:
            yield Copy(
                stem=match["stem"],
                path=entry.path,
                format=match["format"],
                bytes=stat.st_size,
                crc=match["crc"] or "",
            )
