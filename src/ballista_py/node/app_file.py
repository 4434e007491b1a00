"""An application file as it is written: read field by field, with every mistake in it, each at its line and column.

The fields are those of `coordinator.app.fields`. What is not one of them is refused with the nearest name; what a
spicepod may say and this may not is refused with what to do instead. Secrets are references, and no error shows an
option's value.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson
from attrs import Factory, evolve, frozen

from ballista_py.coordinator.app.application import (
    Application,
    DatasetColumn,
    DeclaredDataset,
    DeclaredPolicies,
    DeclaredView,
    Problem,
)
from ballista_py.coordinator.app.checks import problems_of
from ballista_py.coordinator.app.declared_policies import declared_policies
from ballista_py.coordinator.app.fields import APPLICATION, MAX_DATASETS, Field, walk
from ballista_py.errors import ConfigError
from ballista_py.node.app_sources import source_of, unsafe_options
from ballista_py.node.app_values import read_value
from ballista_py.node.config_file import GivenValue, read_config_file
from ballista_py.node.config_values import nearest
from ballista_py.partitions.policies import ColumnMask, Policies, RowFilter, TableGrant
from ballista_py.partitions.refresh import Refresh, Retention, duration_text
from ballista_py.partitions.scanned_table import scan_of
from ballista_py.partitions.table import folded
from ballista_py.partitions.write_modes import WRITE_OPTIONS, require_write_mode
from ballista_py.sql.parse.creates import FOLLOW_OPTIONS, follows_of

MAX_SHOWN = 60
MAX_PROBLEMS = 200


@frozen(kw_only=True)
class Placed:
    """A mistake of a file, at a `place` such as `app.yaml:3:10`, of the field at `path`."""

    place: str
    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.path}: {self.text}" if self.path else f"{self.place}: {self.text}"


@frozen(kw_only=True)
class AppFile:
    """What was read: the application, unless there are `problems`, and the `options` that it gives to a node.

    `readable` is what could be made of it: the datasets without mistakes, and of the others the names.
    """

    path: str
    application: Application | None = None
    readable: Application | None = None
    problems: tuple[Placed, ...] = ()
    options: Mapping[str, GivenValue] = Factory(dict)
    places: Mapping[str, str] = Factory(dict)

    def require(self) -> Application:
        """The application. Raises `ConfigError` with the first mistake, and how many there are."""
        if self.application is not None:
            return self.application
        more = len(self.problems) - 1
        rest = f" ({more} more: ballista-py app check {self.path})" if more else ""
        raise ConfigError(f"{self.problems[0]}{rest}")

    def placed(self, problem: Problem) -> Placed:
        """Where a problem is in this file, or what stands above that."""
        path = problem.path
        while path and path not in self.places:
            path = path.rpartition(".")[0] if "." in path else ""
        return Placed(place=self.places.get(path, self.path), path=problem.path, text=problem.text)


def read_app_file(path: str | Path) -> AppFile:
    """Read and check a file, without a cluster and without an engine. All mistakes are in what comes back."""
    path = str(path)
    try:
        top = read_config_file(path, as_written=True)
    except ConfigError as error:
        return AppFile(path=path, problems=(_unread(path, error),))
    reader = _Reader(path)
    values = reader.section(APPLICATION, GivenValue(top, f"{path}:1:1"), "")
    readable = _application(values, top, Path(path).resolve().parent, reader)
    found = AppFile(path=path, readable=readable, options=reader.options, places=reader.places)
    broken = tuple(reader.broken)
    more = [found.placed(one) for one in problems_of(readable) if not one.path.startswith(broken)]
    problems = sorted([*reader.problems, *more], key=lambda one: _line_of(one.place))
    return evolve(found, application=None if problems else readable, problems=tuple(problems[:MAX_PROBLEMS]))


class _Reader:
    """Reads a file's sections; `broken` are the paths of datasets that have mistakes."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.problems: list[Placed] = []
        self.places: dict[str, str] = {}
        self.options: dict[str, GivenValue] = {}
        self.broken: list[str] = []

    def section(self, field: Field, given: GivenValue, path: str) -> dict[str, Any]:
        """The values of a section's fields, as far as they can be read."""
        self.places[path] = given.place
        if not isinstance(given.value, Mapping):
            self.note(given.place, path, "takes a mapping, as name: value, one a line")
            return {}
        known, values = field.known(), {}
        for name, found in given.value.items():
            below = f"{path}.{name}" if path else name
            self.places[below] = found.place
            if name not in known:
                shown = name if len(name) <= MAX_SHOWN else name[:MAX_SHOWN] + "…"
                self.note(found.named or found.place, path, f"unknown field {shown!a}; {_meant(name, field)}")
            elif known[name].refused:
                self.note(found.place, below, known[name].refused)
            else:
                values[name] = self._value(known[name], found, below)
        for one in field.fields:
            if one.required and one.name not in given.value:
                self.note(given.place, path, f"the field '{one.name}' is missing: {one.help}")
        return {name: value for name, value in values.items() if value is not None}

    def _value(self, field: Field, given: GivenValue, path: str) -> Any:
        """The value of one field; None for one that cannot be read."""
        if field.kind == "section":
            return self.section(field, given, path)
        if field.kind == "sections":
            return self._sections(field, given, path)
        try:
            value = read_value(field, given, path)
        except ConfigError as error:
            self.note(given.place, path, error.message.removeprefix(f"{given.place}: ").removeprefix(f"{path}: "))
            return None
        if field.kind == "options":
            for name, text in unsafe_options(value):
                item = given.value.get(name) if isinstance(given.value, Mapping) else None
                self.note(item.place if item is not None else given.place, f"{path}.{name}", text)
        if field.setting:
            self.options[field.setting] = given
        return value

    def _sections(self, field: Field, given: GivenValue, path: str) -> list[dict[str, Any]] | None:
        if not isinstance(given.value, tuple):
            self.note(given.place, path, "takes a list, each item behind a '-'")
            return None
        if len(given.value) > MAX_DATASETS:
            self.note(given.place, path, f"takes at most {MAX_DATASETS:,} items")
            return None
        found = []
        for number, item in enumerate(given.value):
            before = len(self.problems)
            found.append(self.section(field, item, f"{path}[{number}]"))
            if len(self.problems) > before and path in ("datasets", "views"):
                self.broken.append(f"{path}[{number}]")
        return found

    def note(self, place: str, path: str, text: str) -> None:
        """A mistake."""
        self.problems.append(Placed(place=place or self._path, path=path, text=text))


def _application(
    values: Mapping[str, Any], top: Mapping[str, GivenValue], folder: Path, reader: _Reader
) -> Application:
    """What could be read; a dataset or view with mistakes is one of its name alone."""
    datasets = []
    for number, one in enumerate(values.get("datasets", ())):
        path = f"datasets[{number}]"
        made = DeclaredDataset(name=one.get("name", f"dataset {number}"), source={}, partition_by=("",))
        if path not in reader.broken:
            try:
                made = _dataset(one, folder)
            except ConfigError as error:
                reader.broken.append(path)
                below = f"{path}.{error.details.get('field', 'from')}"
                reader.note(reader.places.get(below, reader.places[path]), below, error.message)
        datasets.append(made)
    scheduler = values.get("runtime", {}).get("scheduler", {})
    shared = {**scheduler.get("partition_management", {}), **values.get("runtime", {}).get("params", {})}
    names = {field.name: field.setting for _, field in walk() if field.setting}
    return Application(
        name=values.get("name", ""),
        revision=values.get("revision", 0),
        digest=sha256(orjson.dumps(_plain(GivenValue(top)), option=orjson.OPT_SORT_KEYS)).hexdigest(),
        datasets=tuple(datasets),
        views=tuple(_read_view(one, number, reader) for number, one in enumerate(values.get("views", ()))),
        prune=values.get("prune", False),
        settings={names[name]: _as_text(value) for name, value in shared.items()},
        policies=_policies(values.get("policies"), reader),
    )


def _policies(values: Mapping[str, Any] | None, reader: _Reader) -> DeclaredPolicies | None:
    """The policies; none while one of them cannot be read, which is a problem of the file then."""
    if values is None or any(one.path.startswith("policies") for one in reader.problems):
        return None
    made = Policies(
        operators=tuple(values.get("operators", ())),
        grants=tuple(
            TableGrant(to=tuple(one["to"]), may=tuple(one["may"]), tables=_tables_of(one))
            for one in values.get("grants", ())
        ),
        rows=tuple(
            RowFilter(tables=_tables_of(one), where=one["where"], spares=tuple(one.get("unless", ())))
            for one in values.get("rows", ())
        ),
        masks=tuple(
            ColumnMask(
                tables=_tables_of(one), columns=tuple(one["columns"]), value=one["value"],
                spares=tuple(one.get("unless", ())),
            )
            for one in values.get("masks", ())
        ),
    )  # fmt: skip
    return declared_policies(made, on=values.get("enabled", True))


def _tables_of(values: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(folded(name) for name in values["tables"])


def _read_view(values: Mapping[str, Any], number: int, reader: _Reader) -> DeclaredView:
    """A view; one with mistakes is one of its name alone."""
    path = f"views[{number}]"
    made = DeclaredView(name=values.get("name", f"view {number}"), sql="select 1")
    if path in reader.broken:
        return made
    kept = values.get("acceleration")
    try:
        refresh, _ = _follows(kept or {})
        if refresh is None and "refresh_mode" in (kept or {}):
            refresh = Refresh()  # said, and with no time: when somebody asks
    except ConfigError as error:
        reader.broken.append(path)
        below = f"{path}.acceleration"
        reader.note(reader.places.get(below, reader.places[path]), below, error.message)
        return made
    return evolve(
        made,
        sql=values["sql"],
        description=values.get("description"),
        keeps_rows=kept is not None,
        partition_by=() if kept is None else tuple(kept.get("partition_by", ())),
        refresh=refresh,
    )


def _dataset(values: Mapping[str, Any], folder: Path) -> DeclaredDataset:
    kept = values.get("acceleration", {})
    columns = tuple(
        DatasetColumn(
            name=one["name"],
            kind=one["type"],
            nullable=one.get("nullable", True),
            default=one.get("default"),
            description=one.get("description"),
        )
        for one in values.get("columns", ())
    )
    refresh, retention = _follows({**values, **kept})
    source = source_of(values.get("from"), values.get("params", {}), folder)
    writes = {name: kept[name] for name in WRITE_OPTIONS if name in kept}
    try:
        require_write_mode(
            values["name"], writes.get("write_mode", "read_only"), writes.get("write_wait", "visible"), source
        )
    except ConfigError as error:
        raise ConfigError(error.message, field="acceleration") from None
    return DeclaredDataset(
        name=values["name"],
        source=source,
        columns=columns,
        distribution=values.get("distribution", "partitioned"),
        partition_by=tuple(kept.get("partition_by", ())),
        colocate_with=values.get("colocate_with"),
        primary_key=tuple(kept.get("primary_key", ())),
        checks=tuple(values.get("checks", ())),
        file_format=values.get("file_format"),
        description=values.get("description"),
        refresh=refresh,
        retention=retention,
        scan=None if "scan" not in values else scan_of(values["scan"]),
        **writes,
    )


def _follows(values: Mapping[str, Any]) -> tuple[Refresh | None, Retention | None]:
    options = {name: value for name, value in values.items() if name in FOLLOW_OPTIONS}
    times = {name: duration_text(value) for name, value in options.items() if isinstance(value, float)}
    try:
        refresh, retention = follows_of({**options, **times})
        return (
            None if refresh == Refresh() else refresh
        ), retention  # which is what every table with a source has
    except ConfigError as error:
        raise ConfigError(error.message, field="acceleration") from None


def _plain(given: GivenValue) -> Any:
    """What is given, without places, so that comments and blanks make no other file."""
    if isinstance(given.value, Mapping):
        return {name: _plain(item) for name, item in given.value.items()}
    if isinstance(given.value, tuple):
        return [_plain(item) for item in given.value]
    return given.value


def _meant(name: str, field: Field) -> str:
    """The nearest of all fields, or those that can be given."""
    near = nearest(name, field.known())
    if near.startswith("did you mean"):
        return near
    return f"known are {', '.join(sorted(one.name for one in field.fields if not one.refused))}"


def _as_text(value: float) -> str:
    """Times as milliseconds, whole ones without a point."""
    return str(int(value)) if value == int(value) else repr(value)


def _unread(path: str, error: ConfigError) -> Placed:
    """The error of a file that is no YAML, with the place that it begins with."""
    head, _, rest = error.message.partition(": ")
    if head.startswith(path):
        return Placed(place=head, path="", text=rest)
    return Placed(place=path, path="", text=error.message)


def _line_of(place: str) -> tuple[int, int]:
    words = place.rsplit(":", 2)[1:]
    return (int(words[0]), int(words[1])) if len(words) == 2 and all(word.isdigit() for word in words) else (0, 0)
