"""What a table is: its columns, its partition keys, how it is spread and where its rows come from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import pyarrow as pa
from attrs import field, frozen

from ballista_py.errors import ConfigError, PartitionKeysMissing
from ballista_py.planning.partition_spec import PartitionSpec

Distribution = Literal["partitioned", "replicated"]


@frozen(kw_only=True)
class TableSpec:
    """The declaration of one table, as `cluster.json` keeps it.

    A *partitioned* table is split by the keys of `spec`; a *replicated* one has a single partition, kept whole by
    every executor (`spec` is `PartitionSpec.whole()`). Tables that name the same `group` have partition keys of
    equal form, and equal buckets of theirs have equal owners.

    Raises `PartitionKeysMissing` for a partitioned table without keys and `ConfigError` for an unusable name.
    """

    name: str = field()
    schema: pa.Schema
    spec: PartitionSpec
    distribution: Distribution = "partitioned"
    group: str | None = None
    source: Mapping[str, Any] | None = None

    def __attrs_post_init__(self) -> None:
        if self.distribution == "partitioned" and not self.spec.keys:
            raise PartitionKeysMissing(
                f"Accelerated dataset '{self.name}' has no partition keys configured. Add 'partition_by' to its "
                "acceleration config to participate in cluster partition assignment.",
                table=self.name,
            )
        if self.distribution == "replicated" and self.spec.keys:
            raise ConfigError(f"table '{self.name}' is replicated: a replicated table takes no 'partition_by'")

    @name.validator
    def _check_name(self, _attribute: object, name: str) -> None:
        allowed = name.replace("_", "").isalnum() and name.isascii() and not name[:1].isdigit()
        if not allowed or name != name.lower() or len(name) > 128:
            raise ConfigError(
                f"table name '{name}' is not usable: take lower-case ASCII letters, digits and '_', "
                "a letter first, at most 128 characters"
            )
