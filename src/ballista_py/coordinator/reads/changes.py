"""What changed between two places in the history of a table: files that are not of it any more, and new ones; pure."""

from __future__ import annotations

from ballista_py.coordinator.reads.cutting import Part
from ballista_py.errors import ConfigError, Unsupported
from ballista_py.storage.reads.files import PartFile, ReadFiles

EVERY_FILE = "every file of the table"
"""The plan of a read job that is a place in the history of its table; no executor is asked for its parts."""


def changed_parts(before: ReadFiles | None, after: ReadFiles) -> tuple[tuple[Part, int], ...]:
    """For each partition of the table where files went or came: those, and how many of the first ones went.

    What rows there were before less the rows of these, and with those of the others, are the rows there are: a file
    that was written anew in between is in both. Without `before` everything came. Raises `ConfigError` for a read job
    that is no place in a table's history, and `Unsupported` for places in that of two tables, or of one that was
    altered in between.
    """
    _require_places(before, after)
    old, new = _by_partition(before), _by_partition(after)
    found = []
    for partition in sorted(old.keys() | new.keys()):
        had, has = old.get(partition, {}), new.get(partition, {})
        former = [had[path] for path in had if path not in has]
        came = [has[path] for path in has if path not in had]
        if former or came:
            found.append(((*former, *came), len(former)))
    return tuple(found)


def _by_partition(read: ReadFiles | None) -> dict[int, dict[str, PartFile]]:
    found: dict[int, dict[str, PartFile]] = {}
    for part in () if read is None else read.parts:
        for one in part:
            found.setdefault(one.partition, {})[one.file.path] = one
    return found


def _require_places(before: ReadFiles | None, after: ReadFiles) -> None:
    if after.plan != EVERY_FILE or (before is not None and before.plan != EVERY_FILE):
        raise ConfigError("changes are asked for between places in the history of a table, and this is a read job")
    if before is None:
        return
    if (before.folder, before.incarnation) != (after.folder, after.incarnation):
        raise Unsupported(
            f"table '{after.table}' was dropped and made again in between: read it anew from its begin"
        )
    if before.definition != after.definition:
        raise Unsupported(f"table '{after.table}' was altered in between: read it anew from its begin")
