"""An application as values: what its file says, checked field by field, before any catalog is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import Factory, frozen

from ballista_py.partitions.policies import Policies
from ballista_py.partitions.refresh import Refresh, Retention, WriteMode, WriteWait
from ballista_py.partitions.spec import PartitionBy
from ballista_py.partitions.table import Distribution, FileFormatName

SHOWN_DIGITS = 12


@frozen
class Problem:
    """What is wrong, at a path of the file such as `datasets[2].acceleration.partition_by`, and what to do."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}" if self.path else self.text


@frozen(kw_only=True)
class DatasetColumn:
    """A column of a table without a source. `kind` is its type and `default` a constant, both in SQL."""

    name: str
    kind: str
    nullable: bool = True
    default: str | None = None
    description: str | None = None


@frozen(kw_only=True)
class DeclaredDataset:
    """One table. It has a `source`, as reader options of Spark, or `columns`, or it is scanned where `scan` says.

    Secrets are references in it, never values.
    """

    name: str
    source: Mapping[str, Any] | None = None
    columns: tuple[DatasetColumn, ...] = ()
    distribution: Distribution = "partitioned"
    partition_by: PartitionBy = ()
    colocate_with: str | None = None
    primary_key: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    file_format: FileFormatName | None = None
    description: str | None = None
    refresh: Refresh | None = None
    retention: Retention | None = None
    write_mode: WriteMode = "read_only"
    write_wait: WriteWait = "visible"
    scan: Mapping[str, Any] | None = None


@frozen(kw_only=True)
class DeclaredView:
    """One view: a query under a name; one that `keeps_rows` is a materialized view, split by `partition_by`."""

    name: str
    sql: str
    description: str | None = None
    keeps_rows: bool = False
    partition_by: PartitionBy = ()
    refresh: Refresh | None = None


@frozen(kw_only=True)
class DeclaredPolicies:
    """The policies of a file; not `on`, they take all policies away. `digest` is that of what they say."""

    policies: Policies
    on: bool
    digest: str


@frozen(kw_only=True)
class Application:
    """What a file says. `digest` is that of all it says, in whatever order and with whatever comments.

    `settings` are options of schedulers, as `NodeConfig` names them; keys of the object store are not among them.
    With `prune` tables are dropped that an earlier revision has named and this one does not. Without `policies` those
    that are there stay.
    """

    name: str
    revision: int
    digest: str
    datasets: tuple[DeclaredDataset, ...] = ()
    views: tuple[DeclaredView, ...] = ()
    prune: bool = False
    settings: Mapping[str, str] = Factory(dict)
    policies: DeclaredPolicies | None = None

    @property
    def label(self) -> str:
        """What logs and people call this very file.

        >>> Application(name="shop", revision=3, digest="0123456789abcdef").label
        'shop revision 3 (0123456789ab)'
        """
        return label_of(self.name, self.revision, self.digest)

    def path_of(self, dataset: str) -> str:
        """Where the dataset or view is in the file."""
        for number, view in enumerate(self.views):
            if view.name == dataset:
                return f"views[{number}]"
        return next((f"datasets[{n}]" for n, one in enumerate(self.datasets) if one.name == dataset), "datasets")


def label_of(name: str, revision: int, digest: str) -> str:
    """What logs and people call a file."""
    return f"{name} revision {revision} ({digest[:SHOWN_DIGITS]})"
