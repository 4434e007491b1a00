"""The rows that a statement with RETURNING gave, kept for whoever sends it again.

They are written before the statement is decided, under the name of its attempt, so what counts has its rows here; an
attempt that does not count leaves some that nobody asks for. They are kept for an hour at least, for the client who
sent it and no other.
"""

from __future__ import annotations

from hashlib import sha256

import pyarrow as pa

from ballista_py.errors import DocumentUnreadable, InvalidData, MergeTooLarge, ObjectMissing, SqlError
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.transport.arrow.door import read_rows
from ballista_py.work import current_client

ANSWERS_PREFIX = "accelerations/answers/"
MAX_ANSWER_BYTES = 64 << 20
_CLIENT = b"ballista.client"
_NOT_KEPT = (
    "the statement was applied, once, and what it returned is no longer kept: read the table to see its rows"
)


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
    marked = rows.replace_schema_metadata({**(rows.schema.metadata or {}), _CLIENT: _mark_of_client()})
    with pa.ipc.new_stream(sink, marked.schema) as writer:
        writer.write_table(marked)
    store.create(answer_key(folder, attempt), sink.getvalue().to_pybytes())


def kept_answer(store: ConditionalStore, folder: str, attempt: str) -> pa.Table:
    """The rows of an attempt that counts. Raises `SqlError` when none are kept for this client."""
    key = answer_key(folder, attempt)
    try:
        data = store.get(key).data
    except ObjectMissing:
        raise SqlError(_NOT_KEPT) from None
    try:
        rows = read_rows(data)
    except InvalidData:
        raise DocumentUnreadable(
            f"object '{key}' does not hold the rows of a statement any more", key=key
        ) from None
    metadata = dict(rows.schema.metadata or {})
    if metadata.pop(_CLIENT, None) != _mark_of_client():
        raise SqlError(_NOT_KEPT)
    return rows.replace_schema_metadata(metadata or None)


def _mark_of_client() -> bytes:
    return sha256(current_client().encode()).hexdigest().encode()
