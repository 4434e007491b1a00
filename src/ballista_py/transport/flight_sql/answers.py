"""An answer under way to a `do_get`: rows as pyarrow's server pulls them, accounted for like every other call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from ballista_py.transport.answer_line import filling_pulse
from ballista_py.transport.flight_server import StreamResult
from ballista_py.transport.flight_sql.ahead import Ahead, KeepAlive
from ballista_py.transport.flight_sql.status import to_status
from ballista_py.transport.open_calls import OpenCall
from ballista_py.work import each_working


def answer(
    entered: AbstractContextManager[OpenCall],
    start: Callable[[OpenCall], StreamResult],
    keep: KeepAlive | None = None,
) -> Any:
    """What `do_get` returns: the stream that `start` began, inside the call that `entered` opens.

    The call is over when the last row is sent, an error was raised, or pyarrow has dropped the stream. With `keep` a
    reader for whom there is nothing yet is sent a batch without rows now and then, marked `filling_pulse`: proxies and
    drivers close what is silent, and only the server of a stream can send on it.
    """
    with ExitStack() as stack:
        call = stack.enter_context(entered)
        result = start(call)
        stack.callback(result.cancel)
        call.attach(result.cancel)
        rows = _Rows(call, result, keep, stack.pop_all())
    return flight.GeneratorStream(result.schema, rows)


MAX_MESSAGE_BYTES = 4 << 20


class _Rows:
    """The batches of a result. While one was handed out and the next is not asked for, it is being sent."""

    def __init__(self, call: OpenCall, result: StreamResult, keep: KeepAlive | None, over: ExitStack) -> None:
        self._over = over
        made = each_working(call.context.work, result.batches)
        batches = (portion for batch in made for portion in portions(batch))
        self._sending: AbstractContextManager[None] | None = None
        self._call = call
        self._has_dictionaries = any(_holds(pa.types.is_dictionary, kind) for kind in result.schema.types)
        has_unions = any(_holds(pa.types.is_union, kind) for kind in result.schema.types)
        self._schema = result.schema
        self._pulses = 0
        self._take: Callable[[], tuple[bool, pa.RecordBatch | None]] = lambda: (True, next(batches, None))
        # pyarrow sends no mark beside dictionaries, and makes no batch of unions without rows.
        if keep is not None and not (self._has_dictionaries or has_unions):
            ahead = Ahead(batches, keep)
            over.callback(ahead.close)
            self._take = ahead.take

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> pa.RecordBatch | pa.Table | tuple[pa.RecordBatch, bytes]:
        try:
            self._sent()
            there, batch = self._take()
            if self._call.reason is not None:
                raise self._call.reason
        except BaseException as error:
            self._over.close()
            raise to_status(self._call.reason or error) from None
        if not there:
            self._begin_sending()
            pulse = filling_pulse(self._pulses)
            self._pulses += 1
            return pa.RecordBatch.from_pylist([], schema=self._schema), pulse
        self._pulses = 0
        if batch is None:
            self._over.close()
            raise StopIteration
        self._begin_sending()
        # pyarrow sends the dictionaries of a table, and forgets those of a batch.
        return pa.Table.from_batches([batch]) if self._has_dictionaries else batch

    def __del__(self) -> None:
        self._over.close()

    def _begin_sending(self) -> None:
        self._sending = self._call.sending()
        self._sending.__enter__()

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


def _holds(is_wanted: Callable[[pa.DataType], bool], kind: pa.DataType) -> bool:
    return is_wanted(kind) or any(_holds(is_wanted, kind.field(i).type) for i in range(kind.num_fields))
