"""Answers of a Spark elsewhere on their way to whoever asked: tasks put them at the store, where they are read once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa
from attrs import define, field, frozen

from ballista_py.errors import BallistaError, TryLater
from ballista_py.runtime import Runtime
from ballista_py.spark.answer_task import RECEIPT
from ballista_py.spark.answers import MAX_ANSWER_BYTES, Answer, Receipt
from ballista_py.spark.elsewhere import TaskStore
from ballista_py.spark.on_workers import on_workers
from ballista_py.spark.worker_tasks import OPEN
from ballista_py.state.stores.store import ConditionalStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MAX_PIECE_BYTES = (
    1 << 30
)  # a piece ends with the first batch that makes it large enough; a batch may be one large row


@define
class StoreAnswers:
    """The place of answers on the store, at most about `max_bytes` together. Safe to share between threads.

    It lies below `snapshots/`, in a folder that is no table's: what is left of it when this process is killed is found
    by the collector of garbage.
    """

    store: ConditionalStore
    runtime: Runtime
    tasks: TaskStore
    max_bytes: int = MAX_ANSWER_BYTES
    home: str = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.home = f"snapshots/-answers-{self.runtime.new_id()}/"

    def new(self) -> StoredAnswer:
        """The place of one answer. Raises what the store raises."""
        folder = f"{self.home}{self.runtime.new_id()}/"
        self.store.create(f"{folder}{OPEN}", b"{}")
        return StoredAnswer(self, folder)


@frozen
class StoredAnswer:
    """The folder of one answer. Tasks put nothing there once `OPEN` has gone."""

    of: StoreAnswers
    folder: str

    @property
    def store(self) -> ConditionalStore:
        return self.of.store

    def kept(self, rows: DataFrame) -> DataFrame:
        """What tasks say of the rows that they have put here; nothing runs yet."""
        where = (self.of.tasks.payload(), self.of.home, self.folder, self.of.max_bytes)
        return on_workers(rows, "keep_answer", where, RECEIPT)

    def answer(self, receipts: Sequence[Receipt], schema: pa.Schema) -> Answer:
        """What the objects of these receipts hold, in their order."""
        return Answer(schema, self._rows(deque(sorted(receipts))), self.drop)

    def drop(self) -> None:
        """Remove everything. Harmless twice; what a store in trouble keeps is garbage."""
        with suppress(BallistaError):
            self.store.delete(f"{self.folder}{OPEN}")
            for entry in list(self.store.list(self.folder)):
                self.store.delete(entry.key)

    def _rows(self, kept: deque[Receipt]) -> Iterator[pa.RecordBatch]:
        while kept:
            receipt = kept.popleft()
            try:
                data = self.store.get(f"{self.folder}{receipt.file}", MAX_PIECE_BYTES).data
            except BallistaError as error:
                raise TryLater(f"the store does not give it: {error.message}") from None
            with suppress(BallistaError):
                self.store.delete(f"{self.folder}{receipt.file}")
            rows = 0
            with pa.ipc.open_stream(pa.py_buffer(data)) as stream:
                for batch in stream:
                    rows += batch.num_rows
                    yield batch
            if rows != receipt.rows:
                raise TryLater(f"{rows} of {receipt.rows} rows")
