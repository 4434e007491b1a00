"""Which tables the files of a folder are; pure.

Each folder directly in it is a table, of all `*.parquet` files in that folder and below it; each `*.parquet` file
beside them is a table of its own. What begins with `_` or `.` is not looked at, nor are other files. A folder whose
files mean more than their rows (of a lake format, or with values of columns in the names of folders) is no table, and
says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import attrs

from ballista_py.errors import ConfigError
from ballista_py.partitions.table import folded, require_table_name
from ballista_py.storage.plain.folders import PlainFile

SUFFIX = ".parquet"
MAX_FILES_OF_TABLE = 100_000
_LAKES = {"_delta_log": "Delta", ".hoodie": "Hudi"}
_ICEBERG = "metadata", ".metadata.json"

Files: TypeAlias = tuple[PlainFile, ...]


@attrs.frozen
class FolderTables:
    """The `files` of each table, by its name, in order of their paths; why others are none; and `prefixes`, by name,
    below which all files of a table lie."""

    files: Mapping[str, Files]
    refused: Mapping[str, str]
    prefixes: Mapping[str, str]


def tables_of(files: Iterable[PlainFile]) -> FolderTables:
    """The tables of a folder, from all of its files.

    >>> paths = ["a/x.parquet", "a/y.parquet", "b.parquet"]
    >>> found = tables_of(PlainFile(path=path, size=1, version="1") for path in paths)
    >>> {name: len(files) for name, files in found.files.items()}
    {'a': 2, 'b': 1}
    """
    held: dict[str, list[PlainFile]] = {}
    refused: dict[str, str] = {}
    prefixes: dict[str, str] = {}
    for file in sorted(files, key=lambda file: file.path):
        top, *rest = file.path.split("/")
        if _is_hidden(top) or not (rest or top.endswith(SUFFIX)):
            continue
        name = _name(top if rest else top.removesuffix(SUFFIX))
        prefix = f"{top}/" if rest else top
        if prefixes.setdefault(name, prefix) != prefix:
            refused[name] = f"'{prefixes[name]}' and '{prefix}' would both be called so: rename one of them"
            continue
        why = _objection(name, file, rest)
        if why:
            refused.setdefault(name, why)
        elif why is not None:
            held.setdefault(name, []).append(file)
    for name, found in held.items():
        if len(found) > MAX_FILES_OF_TABLE:
            refused.setdefault(name, f"it has more than {MAX_FILES_OF_TABLE:,} files: merge small ones")
    kept = {name: tuple(found) for name, found in held.items() if name not in refused}
    return FolderTables(kept, refused, prefixes)


def _objection(name: str, file: PlainFile, rest: list[str]) -> str | None:
    """Why a file keeps its folder from being a table; nothing for a file of it, None for one that is not looked at."""
    lake = next((_LAKES[part] for part in rest if part in _LAKES), None)
    folder, ending = _ICEBERG
    if lake is None and rest[-2:-1] == [folder] and rest[-1].endswith(ending):
        lake = "Iceberg"
    if lake is not None:
        return f"it is a table of {lake}, whose files are not its rows: read it by what speaks {lake}"
    if any(map(_is_hidden, rest)) or not file.path.endswith(SUFFIX):
        return None
    if "=" in file.path.rpartition("/")[0]:
        return f"'{file.path}' has a value of a column in the name of its folder, which is not read here"
    if file.odd:
        return f"'{file.path}' is {file.odd}"
    try:
        require_table_name(name)
    except ConfigError as error:
        return error.message
    return ""


def _name(text: str) -> str:
    try:
        return folded(text)
    except ConfigError:
        return text.lower()


def _is_hidden(part: str) -> bool:
    return part.startswith(("_", "."))
