"""An answer under way to a `do_get`: rows as pyarrow's server pulls them, accounted for like every other call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from ballista_py.transport.flight_server import StreamResult
from ballista_py.transport.flight_sql.status import to_status
from ballista_py.transport.open_calls import OpenCall


def answer(entered: AbstractContextManager[OpenCall], start: Callable[[OpenCall], StreamResult]) -> Any:
    """What `do_get` returns: the stream that `start` began, inside the call that `entered` opens.

    The call is over when the last row is sent, an error was raised, or pyarrow has dropped the stream.
    """
    with ExitStack() as stack:
        call = stack.enter_context(entered)
        result = start(call)
        stack.callback(result.cancel)
        call.attach(result.cancel)
        rows = _Rows(call, result, stack.pop_all())
    return flight.GeneratorStream(result.schema, rows)


MAX_MESSAGE_BYTES = 4 << 20


class _Rows:
    """The batches of a result. While one was handed out and the next is not asked for, it is being sent."""

    def __init__(self, call: OpenCall, result: StreamResult, over: ExitStack) -> None:
        self._over = over
        self._batches = (portion for batch in result.batches for portion in portions(batch))
        self._sending: AbstractContextManager[None] | None = None
        self._call = call
        self._has_dictionaries = any(map(_has_dictionary, result.schema.types))

    def __iter__(self) -> Iterator[pa.RecordBatch | pa.Table]:
        return self

    def __next__(self) -> pa.RecordBatch | pa.Table:
        try:
            self._sent()
            batch = next(self._batches, None)
            if self._call.reason is not None:
                raise self._call.reason
        except BaseException as error:
            self._over.close()
            raise to_status(self._call.reason or error) from None
        if batch is None:
            self._over.close()
            raise StopIteration
        self._sending = self._call.sending()
        self._sending.__enter__()
        # pyarrow sends the dictionaries of a table, and forgets those of a batch.
        return pa.Table.from_batches([batch]) if self._has_dictionaries else batch

    def __del__(self) -> None:
        self._over.close()

    def _sent(self) -> None:
        sending, self._sending = self._sending, None
        if sending is not None:
            sending.__exit__(None, None, None)


def portions(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows in batches that every client takes: the drivers written in Go refuse messages above 16 MiB."""
    count = min(-(-batch.nbytes // MAX_MESSAGE_BYTES), batch.num_rows)
    if count <= 1:
        yield batch
        return
    rows = -(-batch.num_rows // count)
    for start in range(0, batch.num_rows, rows):
        portion = batch.slice(start, rows)
        if portion.num_rows < batch.num_rows and portion.nbytes > MAX_MESSAGE_BYTES:
            yield from portions(portion)  # the large values stand together
        else:
            yield portion


def _has_dictionary(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return True
    return any(_has_dictionary(kind.field(i).type) for i in range(kind.num_fields))
