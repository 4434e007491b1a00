"""Whether an application makes sense by itself, as far as that can be known without its sources and a cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from ballista_py.coordinator.app.application import Application, DeclaredDataset, DeclaredView, Problem
from ballista_py.coordinator.app.declared_policies import problems_of_policies
from ballista_py.errors import ConfigError, UnsupportedExpression
from ballista_py.partitions.scanned_table import ScannedTable
from ballista_py.partitions.spec import PartitionBy, PartitionSpec
from ballista_py.partitions.table import follows_changes, may_colocate, require_table_name

_TYPES = (pa.int64(), pa.string(), pa.date32(), pa.timestamp("us"))  # that columns of a source may have
_NAME = re.compile(r'"(?:[^"]|"")+"|[^\W\d]\w*')


def problems_of(app: Application) -> list[Problem]:
    """What is wrong with an application, all of it at once; pure, and without an engine."""
    found: list[Problem] = []
    first: dict[str, int] = {}
    for number, dataset in enumerate(app.datasets):
        path = f"datasets[{number}]"
        try:
            require_table_name(dataset.name)
        except ConfigError as error:
            found.append(Problem(f"{path}.name", error.message))
        if dataset.name in first:
            found.append(
                Problem(
                    f"{path}.name", f"'{dataset.name}' is the name of datasets[{first[dataset.name]}]: keep one"
                )
            )
        first.setdefault(dataset.name, number)
        found += [Problem(f"{path}{where}", text) for where, text in _objections(dataset)]
    for number, view in enumerate(app.views):
        path = f"views[{number}].name"
        try:
            require_table_name(view.name)
        except ConfigError as error:
            found.append(Problem(path, error.message))
        if view.name in first:
            found.append(Problem(path, f"'{view.name}' is the name of a dataset or of another view: keep one"))
        first.setdefault(view.name, number)
        found += [Problem(f"views[{number}].acceleration{where}", text) for where, text in _kept_badly(view)]
    if app.policies is not None:
        found += problems_of_policies(app.policies.policies, app.policies.on)
    if not found:
        found += _out_of_order(app)
    return found


def in_order(datasets: Sequence[DeclaredDataset]) -> list[DeclaredDataset]:
    """The datasets, each after the one that it is co-located with; those of a circle last.

    >>> lines, orders = DeclaredDataset(name="lines", colocate_with="orders"), DeclaredDataset(name="orders")
    >>> [dataset.name for dataset in in_order([lines, orders])]
    ['orders', 'lines']
    """
    named = {dataset.name for dataset in datasets}
    placed: list[DeclaredDataset] = []
    done: set[str] = set()
    waiting = list(datasets)
    while waiting:
        ready = [d for d in waiting if d.colocate_with not in named or d.colocate_with in done]
        placed += ready or waiting
        done |= {dataset.name for dataset in ready}
        waiting = [dataset for dataset in waiting if dataset not in ready] if ready else []
    return placed


def _objections(dataset: DeclaredDataset) -> Iterator[tuple[str, str]]:
    if dataset.scan is not None:
        yield from _scanned_badly(dataset)
        return
    if dataset.source is None and not dataset.columns:
        yield (
            "",
            f"dataset '{dataset.name}' has neither `from` nor `columns`: give it a source, or its columns",
        )
    if dataset.source is not None:
        for name in ("columns", "checks", "file_format"):
            if getattr(dataset, name):
                yield (
                    f".{name}",
                    "a dataset with a source has that of its source: leave it out, or leave out `from`",
                )
        if dataset.primary_key and not follows_changes(dataset.source):
            yield (
                ".acceleration.primary_key",
                "a dataset with a source cannot enforce a key unless it follows its changes: leave it out, or leave "
                "out `from`",
            )
    if dataset.distribution == "replicated":
        if dataset.partition_by:
            yield ".acceleration.partition_by", "a replicated dataset is not split: leave it out"
        if dataset.colocate_with:
            yield ".colocate_with", "a replicated dataset is everywhere: leave it out"
    elif not dataset.partition_by:
        yield (
            "",
            f"dataset '{dataset.name}' does not say how its rows are split: give acceleration.partition_by, as "
            '["bucket(16, id)"], or distribution: replicated',
        )
    for key in dataset.partition_by if dataset.source else ():
        specs = _readings(key)
        if not any(isinstance(one, PartitionSpec) for one in specs) and len({*specs}) == 1:
            yield ".acceleration.partition_by", str(specs[0])  # whatever the columns of the source are
    seen: set[str] = set()
    for number, column in enumerate(dataset.columns):
        if column.name.lower() in seen:
            yield (
                f".columns[{number}].name",
                f"'{column.name}' is the name of another column: SQL makes A and a one",
            )
        seen.add(column.name.lower())
    for name in dataset.primary_key if dataset.columns else ():
        if name.lower() not in seen:
            yield ".acceleration.primary_key", f"there is no column '{name}'"


def _scanned_badly(dataset: DeclaredDataset) -> Iterator[tuple[str, str]]:
    given = {
        ".from": dataset.source, ".columns": dataset.columns, ".checks": dataset.checks,
        ".file_format": dataset.file_format, ".colocate_with": dataset.colocate_with,
        ".distribution": dataset.distribution != "partitioned",
        ".acceleration": (*dataset.partition_by, *dataset.primary_key) or dataset.refresh or dataset.retention,
    }  # fmt: skip
    for path, value in given.items():
        if value:
            yield path, "a dataset with a `scan` is read where it lies and as it is there: leave it out"
    try:
        ScannedTable(name="t", scan=dataset.scan or {})
    except ConfigError as error:
        yield ".scan", error.message.removeprefix("table 't': ")


def _kept_badly(view: DeclaredView) -> Iterator[tuple[str, str]]:
    for key in view.partition_by:
        specs = _readings(key)
        if not any(isinstance(one, PartitionSpec) for one in specs) and len({*specs}) == 1:
            yield ".partition_by", str(specs[0])  # whatever the columns of its query are


def _out_of_order(app: Application) -> Iterator[Problem]:
    by_name = {dataset.name: dataset for dataset in app.datasets}
    for number, dataset in enumerate(app.datasets):
        path, mate = f"datasets[{number}].colocate_with", dataset.colocate_with
        if mate is None:
            continue
        if mate not in by_name:
            yield Problem(path, f"there is no dataset '{mate}' in this file")
        elif by_name[mate].distribution == "replicated":
            yield Problem(path, f"'{mate}' is replicated: a dataset is co-located with one that is split")
        elif not _may_agree(dataset.partition_by, by_name[mate].partition_by):
            yield Problem(
                path, f"'{dataset.name}' and '{mate}' are not split alike: give both keys of the same form"
            )
        else:
            steps, at = 0, dataset
            while at.colocate_with in by_name and steps <= len(by_name):
                steps, at = steps + 1, by_name[at.colocate_with]
            if steps > len(by_name):
                yield Problem(path, f"'{dataset.name}' is co-located with itself, by others: let one stand alone")


def _readings(key: str | Mapping[str, str]) -> list[PartitionSpec | str]:
    """A partition key over columns of each type that they might have, or why it is none then."""
    text = key if isinstance(key, str) else " ".join(key.values())
    names = {found.strip('"').replace('""', '"') for found in _NAME.findall(text)}
    found: list[PartitionSpec | str] = []
    for kind in _TYPES:
        try:
            found.append(PartitionSpec.parse([key], pa.schema([(name, kind) for name in sorted(names)])))
        except UnsupportedExpression as error:
            found.append(error.message)
    return found


def _may_agree(keys: PartitionBy, others: PartitionBy) -> bool:
    """Whether keys may put equal values into the same partitions, as far as that can be known without their columns."""
    if len(keys) != len(others):
        return False
    for key, other in zip(keys, others, strict=True):
        pairs = [
            may_colocate(one, two)
            for one, two in zip(_readings(key), _readings(other), strict=True)
            if isinstance(one, PartitionSpec) and isinstance(two, PartitionSpec)
        ]
        if pairs and not any(pairs):
            return False
    return True
