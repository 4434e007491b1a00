"""A statement that changes rows, run in a process that can be ended; see `duckdb_change`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

import pyarrow as pa
from attrs import frozen

from ballista_py.engines.apart.conversation import Conversation, Relation
from ballista_py.engines.apart.frames import packed, unpacked
from ballista_py.engines.apart.workers import Workers
from ballista_py.engines.duckdb.change import run_change


class ChangeOutcome(Protocol):
    """What a statement did; see `duckdb_change.Changed`."""

    @property
    def affected(self) -> int: ...
    @property
    def gone(self) -> pa.Int64Array: ...
    @property
    def come(self) -> pa.Table: ...
    @property
    def returned(self) -> pa.Table | None: ...
    def kept(self, spans: Sequence[tuple[int, int]]) -> pa.RecordBatchReader: ...


@frozen
class ApartChange:
    """A `Change` whose rows are still in the process. The rows that were `kept` are to be asked for last."""

    affected: int
    gone: pa.Int64Array
    come: pa.Table
    returned: pa.Table | None
    _talk: Conversation

    def kept(self, spans: Sequence[tuple[int, int]]) -> pa.RecordBatchReader:
        """See `duckdb_change.Changed.kept`."""
        self._talk.send({"kept": [[int(low), int(high)] for low, high in spans]})
        schema = unpacked(self._talk.next_values()["schema"])
        return pa.RecordBatchReader.from_batches(schema, self._talk.rows())


@contextmanager
def change_rows(
    workers: Workers | None,
    sql: str,
    table: str,
    rows: pa.RecordBatchReader,
    others: Mapping[str, pa.RecordBatchReader],
    memory_limit: str,
    key: Sequence[str] = (),
    returning: bool = False,
) -> Iterator[ChangeOutcome]:
    """As `run_change`; apart if there are `workers`, which then decide on the memory."""
    if workers is None:
        with run_change(
            sql, table, rows, others, memory_limit=memory_limit, key=key, returning=returning
        ) as changed:
            yield changed
        return
    relations: dict[str, Relation] = {table: rows, **others}
    command = {
        "do": "change",
        "sql": sql,
        "table": table,
        "relations": {name: packed(one.schema) for name, one in relations.items()},
        "key": list(key),
        "returning": returning,
    }
    # Of statements that change rows none is steady: nothing of them was looked at but that they are such.
    with workers.conversation(command, relations) as talk:
        said = talk.next_values()
        gone = pa.Table.from_batches(talk.rows(), schema=pa.schema([("gone", pa.int64())]))
        come = pa.Table.from_batches(talk.rows(), schema=unpacked(said["come"]))
        returned = None
        if said["returned"] is not None:
            returned = pa.Table.from_batches(talk.rows(), schema=unpacked(said["returned"]))
        yield ApartChange(said["affected"], gone["gone"].combine_chunks(), come, returned, talk)
        talk.send({"done": True})
        talk.next_values()
