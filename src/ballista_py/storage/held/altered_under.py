"""An engine that fails because a table was altered under it: what is raised says that, and not which column is gone.

A text is made for one definition of a table, and the engine's table is given another one in place. So whatever an
engine cannot do is held against the definition that is told by then: only what fails by the same one is an error of
the statement.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import pyarrow as pa

from ballista_py.errors import ConfigError, PlanningError, WriteError
from ballista_py.partitions.table import TableSpec
from ballista_py.sql.plan import LegTable


class Definitions(Protocol):
    """What is asked of the holder; `PartitionHolder` is one."""

    def require_definition(self, wanted: LegTable, *, exact: bool) -> None: ...


@contextmanager
def altered_under(holder: Definitions, tables: Iterable[LegTable]) -> Iterator[None]:
    """The block asks the engine for what was made by these definitions.

    Raises `TableAltered` in the place of an error when one of them is not the newest any more.
    """
    try:
        yield
    except (PlanningError, WriteError, ConfigError):
        for table in tables:
            holder.require_definition(table, exact=True)
        raise


def rows_unless_altered(
    holder: Definitions, tables: Sequence[LegTable], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The same batches; errors among them as in `altered_under`."""
    with altered_under(holder, tables):
        yield from batches


def definition_of(table: TableSpec) -> LegTable:
    """The definition of a table, as it is asked for."""
    return LegTable(
        table=table.name,
        revision=0,
        partitions=(),
        epochs=(),
        definition=table.definition,
        incarnation=table.incarnation,
    )
