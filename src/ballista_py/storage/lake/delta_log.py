"""Which files of a Delta table have deletion vectors: its log, as far as deltalake does not tell it.

The log is replayed from the newest checkpoint on, as it stood at one version. It is asked for files and vectors alone;
that it has the very files which deltalake has is checked by who asks.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from ballista_py.errors import SourceLost, SourceUnfit
from ballista_py.scans.task import DeletionVector
from ballista_py.storage.lake.paths import unquoted

MAX_LOG_FILE = 1 << 30
_COMMIT = re.compile(r"^(\d{20})\.json$")
_CHECKPOINT = re.compile(r"^(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10})|\.[0-9a-f-]{36})?\.(parquet|json)$")
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_TO_B85 = bytes.maketrans(_Z85.encode(), _B85.encode())
_UUID_TEXT = 20
Descriptor = Mapping[str, Any]


def vectors_of(
    names: Iterable[str], version: int, read: Callable[[str], bytes], there: str
) -> dict[str, Descriptor | None]:
    """By the path (as the log has it) of each file of the table at a version, what its vector is, if it has one.

    `names` are those of the files of the log, `read` gives the bytes of one. Raises `SourceLost` for a log that has
    not all that the version is made of.
    """
    commits, checkpoints = _listed(names, version)
    found: dict[str, Descriptor | None] = {}
    begin = 0
    if checkpoints:
        newest = max(checkpoints)
        for name in checkpoints[newest]:
            _read_checkpoint(name, read, found, there)
        begin = newest + 1
    for number in range(begin, version + 1):
        if number not in commits:
            raise SourceLost(f"{there} has not all of its log any more that version {version} is made of")
        _commit(read(commits[number]), found, there)
    return found


def _listed(names: Iterable[str], version: int) -> tuple[dict[int, str], dict[int, list[str]]]:
    """The commits up to a version, and the checkpoints that are whole: one file of each, or all parts of one."""
    commits: dict[int, str] = {}
    parts: dict[int, dict[int, list[str]]] = {}
    for name in sorted(names):
        if (match := _COMMIT.match(name)) and int(match[1]) <= version:
            commits[int(match[1])] = name
        elif (match := _CHECKPOINT.match(name)) and int(match[1]) <= version:
            parts.setdefault(int(match[1]), {}).setdefault(int(match[3] or 1), []).append(name)
    whole: dict[int, list[str]] = {}
    for number, by_count in parts.items():
        for count, found in by_count.items():
            if count == 1 or len(found) == count:
                whole.setdefault(number, found[:1] if count == 1 else found)
    return commits, whole


def _commit(data: bytes, found: dict[str, Descriptor | None], there: str) -> None:
    """What a commit changes; a file whose vector is another one goes and comes in one of them."""
    came = {}
    for action in _actions(data, there):
        remove, add = action.get("remove"), action.get("add")
        if remove:
            found.pop(str(remove["path"]), None)
        elif add:
            came[str(add["path"])] = add.get("deletionVector")
    found.update(came)


def _actions(data: bytes, there: str) -> Iterable[Mapping[str, Any]]:
    try:
        for line in data.splitlines():
            if line.strip():
                yield orjson.loads(line)
    except (orjson.JSONDecodeError, RecursionError):
        raise SourceUnfit(f"{there} has a commit in its log that cannot be read") from None


def _read_checkpoint(
    name: str, read: Callable[[str], bytes], found: dict[str, Descriptor | None], there: str
) -> None:
    data = read(name)
    sidecars: list[str] = []
    if name.endswith(".json"):
        for action in _actions(data, there):
            if action.get("add"):
                found[str(action["add"]["path"])] = action["add"].get("deletionVector")
            if action.get("sidecar"):
                sidecars.append(str(action["sidecar"]["path"]))
    else:
        sidecars = _read_parquet(data, found, there)
    for sidecar in sidecars:
        if "/" in sidecar:
            raise SourceUnfit(f"{there} has a checkpoint with parts elsewhere, which is not read")
        _read_parquet(read(f"_sidecars/{sidecar}"), found, there)


def _read_parquet(data: bytes, found: dict[str, Descriptor | None], there: str) -> list[str]:
    try:
        with pq.ParquetFile(pa.py_buffer(data)) as parquet:
            held = [name for name in ("add", "sidecar") if name in parquet.schema_arrow.names]
            wanted = [f"{name}.{part}" for name in held for part in ("path", "deletionVector")]
            sidecars = []
            for batch in parquet.iter_batches(columns=wanted):
                rows = batch.to_pylist()
                for row in rows:
                    if row.get("add"):
                        found[row["add"]["path"]] = row["add"].get("deletionVector")
                    if row.get("sidecar"):
                        sidecars.append(row["sidecar"]["path"])
            return sidecars
    except (OSError, pa.ArrowException, KeyError, UnicodeDecodeError):
        raise SourceUnfit(f"{there} has a checkpoint in its log that cannot be read") from None


def vector_of(descriptor: Descriptor, root: str, there: str) -> DeletionVector:
    """A vector as a task names it. Raises `SourceUnfit` for one that cannot be understood."""
    try:
        kind, text = descriptor["storageType"], str(descriptor["pathOrInlineDv"])
        size, rows = int(descriptor["sizeInBytes"]), int(descriptor["cardinality"])
        if kind == "i":
            data = z85(text)[:size]
            if len(data) != size:
                raise ValueError
            return DeletionVector(kind="delta", inline=data, rows=rows, length=size)
        offset = int(descriptor.get("offset") or 0)
        if kind == "u":
            name = _uuid(z85(text[-_UUID_TEXT:]))
            folder = "".join(f"{part}/" for part in (text[:-_UUID_TEXT],) if part)
            path = f"{root.rstrip('/')}/{folder}deletion_vector_{name}.bin"
        elif kind == "p":
            path = unquoted(text, there)
        else:
            raise ValueError
    except (KeyError, ValueError, TypeError, binascii.Error):
        raise SourceUnfit(f"{there} has a deletion vector of a kind that is not known") from None
    return DeletionVector(kind="delta", path=path, offset=offset, length=size, rows=rows)


def _uuid(data: bytes) -> str:
    if len(data) != 16:
        raise ValueError("no UUID")
    text = data.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def z85(text: str) -> bytes:
    """Bytes written as ZeroMQ's base 85. Raises `ValueError`.

    >>> z85("HelloWorld").hex()
    '864fd26fb559f75b'
    """
    if len(text) % 5 or not set(text) <= set(_Z85):
        raise ValueError("no base 85")
    return base64.b85decode(text.encode().translate(_TO_B85))
