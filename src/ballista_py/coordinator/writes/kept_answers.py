"""The rows that a statement with RETURNING gave, kept for whoever sends it again.

They are written before the statement is decided, under the name of its attempt, so what counts has its rows here; an
attempt that does not count leaves some that nobody asks for. They are kept for an hour at least.
"""

from __future__ import annotations

import pyarrow as pa

from ballista_py.errors import DocumentUnreadable, InvalidData, MergeTooLarge, ObjectMissing, SqlError
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.transport.arrow.door import read_rows

ANSWERS_PREFIX = "accelerations/answers/"
MAX_ANSWER_BYTES = 64 << 20


def answer_key(folder: str, attempt: str) -> str:
    """Where the rows of an attempt lie; `folder` is `TableSpec.folder`."""
    return f"{ANSWERS_PREFIX}{folder}/{attempt}.arrow"


def keep_answer(store: ConditionalStore, folder: str, attempt: str, rows: pa.Table) -> None:
    """Write the rows of an attempt. Raises `MergeTooLarge` for more than 64 MiB, and what the store raises."""
    if rows.nbytes > MAX_ANSWER_BYTES:
        raise MergeTooLarge(
            f"RETURNING gives more than {MAX_ANSWER_BYTES >> 20} MiB of rows: nothing was changed, name fewer columns "
            "or send the statement without RETURNING"
        )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    store.create(answer_key(folder, attempt), sink.getvalue().to_pybytes())


def kept_answer(store: ConditionalStore, folder: str, attempt: str) -> pa.Table:
    """The rows of an attempt that counts. Raises `SqlError` when they are no longer kept."""
    key = answer_key(folder, attempt)
    try:
        data = store.get(key).data
    except ObjectMissing:
        raise SqlError(
            "the statement was applied, once, and what it returned is no longer kept: read the table to see its rows"
        ) from None
    try:
        return read_rows(data)
    except InvalidData:
        raise DocumentUnreadable(
            f"object '{key}' does not hold the rows of a statement any more", key=key
        ) from None
