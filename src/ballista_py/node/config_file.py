"""A configuration file as it is written: texts with their places, and nothing that a reader could take for another.

YAML is read as a sequence of events, so no depth, alias or tag of a file can cost more than reading it. Only what a
configuration needs is let in: one mapping of names to texts, lists or mappings, a few levels deep. What a text means
is decided by the field that takes it (`config_values.py`), never by YAML's guess.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias

import yaml
from attrs import evolve, frozen

from ballista_py.errors import ConfigError
from ballista_py.short_file import read_short_file

MAX_FILE_BYTES = 1 << 20
MAX_DEPTH = 8
_MAX_PROBLEM = 200
_NOTHING = ("", "~", "null", "Null", "NULL")

# How a text was given: as a bare word of the file, in quotes there, or on the command line.
Style: TypeAlias = Literal["plain", "quoted", "flag"]


@frozen
class GivenValue:
    """One value as it was given, and where ("node.yaml:3:10", or nothing for a flag). Its name is at `named`."""

    value: str | tuple[GivenValue, ...] | Mapping[str, GivenValue]
    place: str = ""
    style: Style = "plain"
    named: str = ""

    def error(self, name: str, problem: str) -> ConfigError:
        """What is wrong with it, as the value of the field `name`."""
        return ConfigError(f"{self.place}: {name}: {problem}" if self.place else f"{name}: {problem}")


def given(value: Any) -> GivenValue:
    """A value that a program or a flag gives. Raises `ConfigError` for one that no field takes."""
    if isinstance(value, bool):
        return GivenValue("true" if value else "false")
    if isinstance(value, int | float):
        return GivenValue(repr(value))
    if isinstance(value, str):
        return GivenValue(value, style="flag")
    if isinstance(value, list | tuple):
        return GivenValue(tuple(map(given, value)))
    if isinstance(value, Mapping):
        return GivenValue({str(name): given(item) for name, item in value.items()})
    raise ConfigError(f"a {type(value).__name__} is no value of a configuration")


def read_config_file(path: str, *, as_written: bool = False) -> Mapping[str, GivenValue]:
    """The fields in the YAML file at `path`, `-` in their names as `_`, unless they are taken `as_written`.

    Raises `ConfigError` naming file and line.
    """
    text = _read(path)
    events = _events(path, text)
    try:
        top = _document(path, events)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark is not None else path
        problem = " ".join(str(getattr(error, "problem", None) or error).split())[:_MAX_PROBLEM]
        raise ConfigError(f"{place}: not YAML: {problem}") from None
    if top is None:
        return {}
    if not isinstance(top.value, Mapping):
        kind = "list" if isinstance(top.value, tuple) else "text"
        raise ConfigError(f"{path}: holds a {kind}; a mapping of field to value is needed")
    if as_written:
        return top.value
    fields: dict[str, GivenValue] = {}
    for name, value in top.value.items():
        field = name.replace("-", "_")
        if field in fields:
            raise value.error(field, f"is given twice; the first is at {fields[field].named}: keep one")
        fields[field] = value
    return fields


def _read(path: str) -> str:
    try:
        data = read_short_file(path, MAX_FILE_BYTES)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; a configuration is a short file") from None
    except ValueError:
        raise ConfigError(f"{path!r}: is no name of a file") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: byte {error.start} is not UTF-8: save the file as UTF-8") from None


def _events(path: str, text: str) -> Iterator[Any]:
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise ConfigError(
                f"{_place(path, event)}: an anchor or alias (& or *): write the value out, or quote it"
            )
        if getattr(event, "tag", None) is not None:
            raise ConfigError(f"{_place(path, event)}: a tag (!): write the value without it, or quote it")
        yield event


def _document(path: str, events: Iterator[Any]) -> GivenValue | None:
    top = None
    for event in events:
        if isinstance(event, yaml.StreamStartEvent | yaml.DocumentEndEvent | yaml.StreamEndEvent):
            continue
        if isinstance(event, yaml.DocumentStartEvent):
            if top is not None:
                raise ConfigError(f"{_place(path, event)}: a second document (---): a configuration is one")
            top = _value(path, next(events), events, 1)
    if top is not None and top.style == "plain" and top.value in _NOTHING:
        return None
    return top


def _value(path: str, event: Any, events: Iterator[Any], depth: int) -> GivenValue:
    place = _place(path, event)
    if isinstance(event, yaml.ScalarEvent):
        return GivenValue(event.value, place, "quoted" if event.style else "plain")
    if depth > MAX_DEPTH:
        raise ConfigError(f"{place}: more than {MAX_DEPTH} levels of brackets or indents; no field takes that")
    if isinstance(event, yaml.SequenceStartEvent):
        items = []
        while not isinstance(event := next(events), yaml.SequenceEndEvent):
            items.append(_value(path, event, events, depth + 1))
        return GivenValue(tuple(items), place)
    entries: dict[str, GivenValue] = {}
    while not isinstance(event := next(events), yaml.MappingEndEvent):
        if not isinstance(event, yaml.ScalarEvent):
            raise ConfigError(f"{_place(path, event)}: a name was expected here, not a list or a mapping")
        value = _value(path, next(events), events, depth + 1)
        if event.value in entries:
            first = entries[event.value].named
            raise ConfigError(
                f"{_place(path, event)}: {_shown(event.value)} is given twice (see {first}): keep one"
            )
        entries[event.value] = evolve(value, named=_place(path, event))
    return GivenValue(entries, place)


def _place(path: str, event: Any) -> str:
    return f"{path}:{event.start_mark.line + 1}:{event.start_mark.column + 1}"


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:60] + "…")
