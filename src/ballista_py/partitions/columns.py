"""What a column of a table is besides its name and type: what it is called in files, what it is where it is missing.

A table can be altered, its data files cannot. So a column is known in files by its *stored* name, which it keeps for
ever and no other column of the table ever gets. The declaration of the table, which is an Arrow schema, says so in the
metadata of the field:

- `stored`: the name in data files, if it is not that of the column;
- `initial`: the value in files that were written before the column was added, as one Arrow value;
- `default`: the constant, as SQL, that an INSERT takes for a column that it does not name;
- `required`: a value is wanted of new rows; that no older row lacks one is not proven (yet);
- `comment`: words for people.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

OWN = b"ballista."
STORED, INITIAL, DEFAULT = b"ballista.stored", b"ballista.initial", b"ballista.default"
MAX_FILL_BYTES = 16 << 20
REQUIRED, COMMENT = b"ballista.required", b"ballista.comment"


def stored_name(column: pa.Field) -> str:
    """What the column is called in data files.

    >>> stored_name(pa.field("a", pa.int64())), stored_name(pa.field("a", pa.int64(), metadata={STORED: "b"}))
    ('a', 'b')
    """
    return said(column, STORED) or str(column.name)


def two_alike(names: Sequence[str]) -> str:
    """What is wrong with the names of columns of which two are one to SQL, in words.

    >>> two_alike(["a", "b", "A"])
    "two columns named 'a' and 'A', which are one name in SQL"
    >>> two_alike(["a", "a"])
    "two columns named 'a'"
    """
    seen: dict[str, str] = {}
    for name in names:
        first = seen.setdefault(name.lower(), "")
        if first:
            both = f"'{first}' and '{name}', which are one name in SQL"
            return f"two columns named '{name}'" if first == name else f"two columns named {both}"
        seen[name.lower()] = name
    return "two columns of one name"


def stored_names(schema: pa.Schema) -> list[str]:
    """What the columns are called in data files, in order."""
    return [stored_name(column) for column in schema]


def default_of(column: pa.Field) -> str | None:
    """What an INSERT takes for the column if it does not name it, as SQL; None for NULL."""
    return said(column, DEFAULT)


def comment_of(column: pa.Field) -> str | None:
    """What people are told of the column."""
    return said(column, COMMENT)


def is_required(column: pa.Field) -> bool:
    """Whether new rows must have a value in the column."""
    return not column.nullable or said(column, REQUIRED) is not None


def initial_of(column: pa.Field) -> pa.Array | None:
    """The value, alone in an array, in files without the column; None if each file has it.

    >>> initial_of(with_said(pa.field("a", pa.int64()), INITIAL, initial_text(pa.array([5]))))[0].as_py()
    5
    """
    text = said(column, INITIAL)
    if text is None:
        return None
    with pa.ipc.open_stream(pa.py_buffer(b64decode(text))) as reader:
        found = reader.read_next_batch().column(0)
    return found if found.type == column.type else found.cast(column.type)


def initial_text(value: pa.Array) -> str:
    """One value as `initial` keeps it."""
    sink = pa.BufferOutputStream()
    batch = pa.record_batch([value], names=["v"])
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return b64encode(sink.getvalue().to_pybytes()).decode()


def said(column: pa.Field, key: bytes) -> str | None:
    """What the declaration says of a column under a key."""
    found = (column.metadata or {}).get(key)
    return None if found is None else found.decode()


def with_said(column: pa.Field, key: bytes, text: str | None) -> pa.Field:
    """The column, of which something else is said under the key; nothing for None."""
    kept = {name: value for name, value in (column.metadata or {}).items() if name != key}
    if text is not None:
        kept[key] = text.encode()
    return column.with_metadata(kept) if kept else column.remove_metadata()


def plain(schema: pa.Schema) -> pa.Schema:
    """The columns as anybody may see them: without what is said here for ourselves."""
    if not any(column.metadata for column in schema):
        return schema
    return pa.schema([_plain(column) for column in schema], metadata=schema.metadata)


def _plain(column: pa.Field) -> pa.Field:
    kept = {key: value for key, value in (column.metadata or {}).items() if not key.startswith(OWN)}
    return column.with_metadata(kept) if kept else column.remove_metadata()


def is_same(one: pa.Schema, other: pa.Schema) -> bool:
    """Whether two declarations say the same, also of what lies in files."""
    return one is other or bool(one.equals(other, check_metadata=True))


def in_files(rows: pa.Table) -> pa.Table:
    """The rows (of a table's schema) under the names that their columns have in data files."""
    fields = [_plain(column).with_name(stored_name(column)) for column in rows.schema]
    return pa.Table.from_arrays(rows.columns, schema=pa.schema(fields))


def in_fills(batch: pa.RecordBatch, held: Sequence[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows (which have the columns `held`, by their stored names) in parts, so that none takes more than
    `MAX_FILL_BYTES` for values of columns that they lack."""
    lacking = [initial_of(column) for column in schema if stored_name(column) not in held]
    row_bytes = sum(value.nbytes for value in lacking if value is not None and not value.null_count)
    most = batch.num_rows if not row_bytes else max(1, MAX_FILL_BYTES // row_bytes)
    if batch.num_rows <= most:
        yield batch
        return
    for start in range(0, batch.num_rows, most):
        yield batch.slice(start, most)


def from_files(columns: Mapping[str, pa.Array], rows: int, schema: pa.Schema) -> list[pa.Array]:
    """The columns of `schema` from those that are there by their stored names, with the types of the schema.

    Raises `KeyError` for a column that must be there, and `pa.ArrowException` for values that do not fit.
    """
    found = []
    for column in schema:
        have = columns.get(stored_name(column))
        if have is not None:
            found.append(have if have.type == column.type else have.cast(column.type))
            continue
        initial = initial_of(column)
        if initial is None:
            raise KeyError(column.name)
        found.append(pa.nulls(rows, column.type) if initial.null_count else _repeated(initial, rows))
    return found


def _repeated(value: pa.Array, rows: int) -> pa.Array:
    return value.take(pa.array(np.zeros(rows, np.int64)))


def restored(batch: pa.RecordBatch, schema: pa.Schema, given: pa.Schema | None = None) -> pa.RecordBatch:
    """Rows of one declaration of a table (that of the batch, or `given`) as rows of another one.

    Raises what `from_files` raises.
    """
    own = batch.schema if given is None else given
    if is_same(own, schema):
        return pa.RecordBatch.from_arrays(batch.columns, schema=schema)
    columns = dict(zip(stored_names(own), batch.columns, strict=True))
    return pa.RecordBatch.from_arrays(from_files(columns, batch.num_rows, schema), schema=schema)


def fresh_stored_name(name: str, taken: Sequence[str]) -> str:
    """A name for a new column in files which none of the table ever had.

    >>> fresh_stored_name("a", ["a", "b"]), fresh_stored_name("c", ["a", "b"])
    ('a~2', 'c')
    """
    number, found = 1, name
    while found in taken:
        number += 1
        found = f"{name}~{number}"
    return found


def conformed(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The same rows under exactly the names and types of `schema`."""
    for batch in batches:
        if batch.schema.types == schema.types:
            yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
        else:
            columns = [column.cast(kind) for column, kind in zip(batch.columns, schema.types, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)
