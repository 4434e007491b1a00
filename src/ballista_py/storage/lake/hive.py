"""Values of columns in the names of folders (`k=v`), and globs of paths; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import unquote

import pyarrow as pa

from ballista_py.errors import SourceUnfit

NULL = "__HIVE_DEFAULT_PARTITION__"
MAX_KEYS = 64
_WHOLE, _DAY = re.compile(r"-?(0|[1-9][0-9]{0,17})"), re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_WILD = re.compile(r"[*?\[]")


def split_glob(path: str) -> tuple[str, re.Pattern[str] | None]:
    """The folder before the first part of a path with a wildcard, and what the paths of files match; None for all.

    `*`, `?` and `[…]` stand for characters of one part, `**` for any number of parts; it is there at most once, so that
    no path takes more than its length, squared, to be looked at. Raises `SourceUnfit` for another one.

    >>> folder, pattern = split_glob("/d/*/x?.parquet")
    >>> folder, bool(pattern.fullmatch("/d/a/x1.parquet")), bool(pattern.fullmatch("/d/a/b/x1.parquet"))
    ('/d', True, False)
    """
    parts = path.split("/")
    wild = next((number for number, part in enumerate(parts) if _WILD.search(part)), None)
    if wild is None:
        return path, None
    if parts.count("**") > 1:
        raise SourceUnfit("a path has '**' at most once: it stands for any number of folders")
    text = "".join("(?:[^/]+/)*" if part == "**" else _of_part(part) + "/" for part in parts[wild:])
    text = text + "[^/]+" if parts[-1] == "**" else text.removesuffix("/")
    folder = "/".join(parts[:wild])
    return folder, re.compile(re.escape(folder + "/") + text)


def _of_part(part: str) -> str:
    """One part of a path: what stands between two stars is looked for once, where it is first (`(?>…)`)."""
    pieces = [""]
    at = 0
    while at < len(part):
        stop = part.find("]", at + 1)
        if part[at] == "*":
            pieces.append("")
        elif part[at] == "[" and stop > at + 1:
            inner = part[at + 1 : stop].replace("\\", "\\\\").replace("[", "\\[")
            pieces[-1] += "[" + ("^" + inner[1:] if inner[0] in "!^" else inner) + "]"
            at = stop
        else:
            pieces[-1] += "[^/]" if part[at] == "?" else re.escape(part[at])
        at += 1
    first, *middle, last = pieces if len(pieces) > 1 else [pieces[0], ""]
    if len(pieces) == 1:
        return first
    return first + "".join(f"(?>[^/]*?{piece})" for piece in middle if piece) + f"[^/]*{last}"


def keys_of(path: str, root: str, there: str) -> dict[str, str | None]:
    """The values in the folders of a file below a root, as text; None for null. Raises `SourceUnfit`.

    >>> keys_of("/t/y=2024/k=a%2Fb/x.parquet", "/t", "t")
    {'y': '2024', 'k': 'a/b'}
    """
    found: dict[str, str | None] = {}
    for part in path.removeprefix(root).split("/")[:-1]:
        name, sign, value = part.partition("=")
        if not sign or not name:
            continue
        name = unquote(name)
        if name in found or len(found) >= MAX_KEYS:
            raise SourceUnfit(
                f"'{path[:200]}' of {there} has two values of '{name}', or very many, in its folders"
            )
        found[name] = None if value == NULL else unquote(value)
    return found


def typed_keys(keys: Sequence[Mapping[str, str | None]], there: str) -> dict[str, list[pa.Scalar]]:
    """The values of each column by file: whole numbers or days where all are, else texts.

    Every file must have the same columns in its folders: `SourceUnfit` else.

    >>> typed_keys([{"y": "2024", "k": "a"}, {"y": None, "k": "7"}], "t")["y"][0]
    <pyarrow.Int64Scalar: 2024>
    """
    if not keys:
        return {}
    names = list(keys[0])
    for one in keys:
        if list(one) != names:
            raise SourceUnfit(
                f"{there} has folders with values of {', '.join(names) or 'no columns'}, and others with values of "
                f"{', '.join(one) or 'no columns'}: name a folder or a glob whose files have the same"
            )
    return {name: _typed([one[name] for one in keys]) for name in names}


def _typed(values: Iterable[str | None]) -> list[pa.Scalar]:
    held = list(values)
    known = {value for value in held if value is not None}
    kind = pa.string()
    if known and all(map(_WHOLE.fullmatch, known)):
        kind = pa.int64()
    elif known and all(map(_is_day, known)):
        kind = pa.date32()
    made = {
        value: pa.scalar(int(value), kind) if kind == pa.int64() else pa.scalar(value, pa.string()).cast(kind)
        for value in known
    }
    null = pa.scalar(None, kind)
    return [null if value is None else made[value] for value in held]


def _is_day(text: str) -> bool:
    if not _DAY.fullmatch(text):
        return False
    try:
        pa.scalar(text, pa.string()).cast(pa.date32())
    except pa.ArrowException:
        return False
    return True
