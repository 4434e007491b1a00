"""Logs of events in their order, each with its number: files of lines in a folder.

A file is named by the number of its first line, as sinks of Kafka name theirs (`shop.orders+0+0000000042.json`), so a
file that is lacking, is twice there or came out of order shows. A line is there once its end is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import fsspec
from attrs import define, field, frozen

from ballista_py.coordinator.changes.source import SourceLag
from ballista_py.errors import BallistaError, SourceLost, SourceUnavailable, SourceUnfit

MAX_EVENT_BYTES = 64 << 20
MAX_FILES = 100_000
MARKED_LINES = 4_096
MAX_MARKS = 256
_NUMBERED = re.compile(r"(|.*[^0-9])([0-9]{1,18})\.(?:json|jsonl|ndjson)", re.DOTALL)
_HIDDEN = (".", "_")


@frozen
class LoggedEvent:
    """One event: its number, what it is called in errors, its value (None: a tombstone), and the number after it."""

    number: int
    place: str
    value: bytes | None
    next: int


class EventLog(Protocol):
    """Events in their order. Each method raises `SourceUnavailable`, `SourceLost` or `SourceUnfit`."""

    @property
    def there(self) -> str:
        """What it is called in errors."""
        ...

    def first(self) -> tuple[int, bool]:
        """The number of the first event that there is or will be, and whether none went before it."""
        ...

    def events(self, after: int) -> Iterator[LoggedEvent]:
        """The events from number `after` on, as many as there are. Raises `SourceLost` where some are lacking."""
        ...

    def last(self) -> bytes | None:
        """The value of the last event; None where there is none."""
        ...

    def lag(self, after: int) -> SourceLag:
        """How much there is from number `after` on."""
        ...

    def close(self) -> None:
        """Release what is held."""
        ...


@frozen
class _File:
    path: str
    first: int
    size: int


@define(eq=False)
class FolderLog:
    """Files of lines in one folder, of this machine or of an object store."""

    location: str
    storage: Mapping[str, str] = field(repr=False)
    _files: list[_File] = field(factory=list, init=False)
    _marks: tuple[str, list[tuple[int, int]]] = field(
        factory=lambda: ("", []), init=False
    )  # number, byte; of a file
    _number: int = field(default=0, init=False)  # after the last line that was read

    @property
    def there(self) -> str:
        """See `EventLog`."""
        return f"the events in {self.location}"

    def first(self) -> tuple[int, bool]:
        """See `EventLog`."""
        files = self._look()
        number = files[0].first if files else 0
        return number, number == 0

    def events(self, after: int) -> Iterator[LoggedEvent]:
        """See `EventLog`."""
        files = self._look()
        begin = max((place for place, file in enumerate(files) if file.first <= after), default=-1)
        if begin < 0 and (files or after):
            raise self._lacking(after, files[0].first if files else None)
        number = after
        for place in range(max(begin, 0), len(files)):
            following = files[place + 1] if place + 1 < len(files) else None
            for event in self._lines(files[place], following, after):
                if event.number >= after:
                    yield event
            number = self._number
            if following is not None and number < following.first:
                raise self._lacking(number, following.first)
        if number < after:
            raise SourceLost(
                f"{self.there} end before number {after}, where the table stands: a file became shorter; copy it anew"
            )

    def _lines(self, file: _File, following: _File | None, after: int) -> Iterator[LoggedEvent]:
        """The lines of a file, from one on that is not later than `after`; of the last one those with their end."""
        number, place = file.first, 0
        if self._marks[0] == file.path:
            number, place = max((mark for mark in self._marks[1] if mark[0] <= after), default=(number, place))
        else:
            self._marks = (file.path, [])
        self._number = number
        if place > file.size:
            raise SourceLost(f"{file.path} became shorter than it was: copy the table anew")
        with self._told(), self._system().open(file.path, "rb") as lines:
            lines.seek(place)
            while line := lines.readline(MAX_EVENT_BYTES + 1):
                if following is not None and number >= following.first:
                    raise SourceUnfit(
                        f"{file.path} has more lines than there are numbers before {following.path}: name each file by "
                        "the number of its first line"
                    )
                if len(line) > MAX_EVENT_BYTES:
                    raise SourceUnfit(f"line {number} of {self.there} has more than {MAX_EVENT_BYTES >> 20} MiB")
                if not line.endswith(b"\n") and (following is None or number + 1 != following.first):
                    break
                if number == after or (number - file.first) % MARKED_LINES == 0:
                    self._mark(number, place)
                yield LoggedEvent(number, f"line {number} of {self.there}", line, number + 1)
                number, place = number + 1, place + len(line)
                self._number = number
            if number == after or following is None:
                self._mark(number, place)

    def _mark(self, number: int, place: int) -> None:
        """Remember where a line begins: later reads begin there, or before it."""
        marks = self._marks[1]
        if (number, place) not in marks[-3:]:
            marks.append((number, place))
            del marks[: max(0, len(marks) - MAX_MARKS)]

    def last(self) -> bytes | None:
        """See `EventLog`: the last line of the last file that has one."""
        for file in reversed(self._look()):
            found = None
            for event in self._lines(file, None, file.first):
                found = event.value
            if found is not None:
                return found
        return None

    def lag(self, after: int) -> SourceLag:
        """See `EventLog`: bytes of files, from where a read ended."""
        files = [file for file in self._files if file.first >= after]
        size = sum(file.size for file in files)
        path, marks = self._marks
        here = next((file for file in self._files if file.path == path and file.first < after), None)
        read = max((place for number, place in marks if number <= after), default=0)
        return SourceLag(bytes=size + (0 if here is None else max(0, here.size - read)))

    def close(self) -> None:
        """See `EventLog`."""

    def _look(self) -> list[_File]:
        """The files there are now, in their order."""
        with self._told():
            system = self._system()
            system.invalidate_cache()
            found = system.ls(system._strip_protocol(self.location), detail=True)
        files: list[_File] = []
        prefixes: dict[str, str] = {}
        for row in found:
            name = str(row["name"]).rstrip("/").rpartition("/")[2]
            if not name or name.startswith(_HIDDEN) or row["type"] == "directory":
                continue
            match = _NUMBERED.fullmatch(name)
            if match is None:
                raise SourceUnfit(
                    f"{name[:80]!r} in {self.location} is not named by the number of its first line, as "
                    "'orders+0+0000000042.json' is: rename it, or take it away"
                )
            prefixes.setdefault(match[1], name)
            files.append(_File(str(row["name"]), int(match[2]), int(row["size"] or 0)))
        if len(files) > MAX_FILES:
            raise SourceUnfit(f"{self.location} has more than {MAX_FILES:,} files: take those away that were read")
        if len(prefixes) > 1:
            one, other = sorted(prefixes.values())[:2]
            raise SourceUnfit(
                f"{self.location} has files of two logs, {one[:80]!r} and {other[:80]!r}: give each a folder"
            )
        self._files = sorted(files, key=lambda file: file.first)
        same = next(
            (b.path for a, b in zip(self._files, self._files[1:], strict=False) if a.first == b.first), None
        )
        if same is not None:
            raise SourceUnfit(f"{same} has the number of another file: keep one of them")
        return self._files

    def _lacking(self, number: int, first: int | None) -> SourceLost:
        until = "on" if first is None else f"to {first - 1}"
        return SourceLost(
            f"{self.there} lack those from number {number} {until}: put their file back, or copy the table anew"
        )

    def _system(self) -> Any:
        protocol, _, _ = self.location.rpartition("://")
        return fsspec.filesystem(protocol or "file", **self.storage)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Errors of the file system as ours: of its words only what kind they are."""
        try:
            yield
        except BallistaError:
            raise
        except Exception as error:
            raise SourceUnavailable(f"{self.there} cannot be read ({type(error).__name__})") from None
