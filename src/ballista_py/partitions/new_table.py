"""What is asked of a table that is to be made: one definition, whoever asks for it and by whichever way it comes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import asdict, field, frozen

from ballista_py.errors import ConfigError
from ballista_py.partitions.refresh import Refresh, Retention, WriteMode, WriteWait
from ballista_py.partitions.spec import PartitionBy
from ballista_py.partitions.table import Distribution, FileFormatName
from ballista_py.partitions.write_modes import require_write_mode


def _texts(given: Sequence[str]) -> tuple[str, ...]:
    return tuple(given)


def _keys(partition_by: PartitionBy) -> PartitionBy:
    """As it was given, but as a tuple; what is no list is refused where the keys are read."""
    return partition_by if isinstance(partition_by, str | Mapping) else tuple(partition_by)


@frozen(kw_only=True)
class NewTable:
    """A table as it is asked for, without its columns: those come beside it, or are those of its `source`.

    Whether it can be made is found out where it is made.

    >>> NewTable(name="t", partition_by=["bucket(4, id)"]).to_json()["partition_by"]
    ['bucket(4, id)']
    """

    name: str
    source: str | Mapping[str, Any] | None = None
    partition_by: PartitionBy = field(default=(), converter=_keys)
    distribution: Distribution = "partitioned"
    colocate_with: str | None = None
    primary_key: tuple[str, ...] = field(default=(), converter=_texts)
    checks: tuple[str, ...] = field(default=(), converter=_texts)
    file_format: FileFormatName = "parquet"
    refresh: Refresh | None = None
    retention: Retention | None = None
    write_mode: WriteMode = "read_only"
    write_wait: WriteWait = "visible"

    def require_no_source(self) -> None:
        """Raise `ConfigError` for a table with a source: a client may not say what a scheduler reads.

        A scheduler reads with its own rights: files of its machine, buckets of its credentials. Whoever has a token
        could have it read any of them into a table.
        """
        require_write_mode(self.name, self.write_mode, self.write_wait, self.source)
        if self.source is not None:
            raise ConfigError(
                f"table '{self.name}' has a source, which no client can name: a scheduler would read it with rights "
                "of its own. Make it with LocalCluster.create_table where the source can be read, or send the "
                "rows with ingest"
            )

    def keywords(self) -> dict[str, Any]:
        """All that is asked for, by name."""
        return asdict(self, recurse=False)

    def to_json(self) -> dict[str, Any]:
        """JSON-ready values, of a table without a source."""
        keys = [key if isinstance(key, str) else dict(key) for key in self.partition_by]
        return {
            "table": self.name,
            "partition_by": keys,
            "distribution": self.distribution,
            "colocate_with": self.colocate_with,
            "primary_key": list(self.primary_key),
            "checks": list(self.checks),
            "file_format": self.file_format,
            **_said("refresh", self.refresh),
            **_said("retention", self.retention),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> NewTable:
        """The table that `to_json` described; what was left out is as ever."""
        told = {name: data[name] for name in _TOLD if name in data}
        for name, kind in _DECLARED.items():
            if data.get(name) is not None:
                told[name] = kind(**data[name])
        return cls(name=data["table"], **told)


_TOLD = ("source", "partition_by", "distribution", "colocate_with", "primary_key", "checks", "file_format")
_DECLARED: Mapping[str, Callable[..., Any]] = {"refresh": Refresh, "retention": Retention}


def _said(name: str, declared: Refresh | Retention | None) -> dict[str, Any]:
    """Only what is declared, so that a cluster of an earlier release takes the rest."""
    return {} if declared is None else {name: asdict(declared)}
