"""The forms of an answer: rows as JSON, NDJSON, CSV or an Arrow stream, a batch at a time; and which one is wanted."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import orjson
import pyarrow as pa
import pyarrow.csv
from pyarrow import types as t

from ballista_py.node.http.errors import HttpRefused
from ballista_py.node.json_values import json_column, json_rows, refuse_same_names

MAX_ACCEPTED = 64
ARROW = "application/vnd.apache.arrow.stream"
_OPTIONS = orjson.OPT_SERIALIZE_NUMPY


class Form(Protocol):
    """An answer in one form, written in this order: `begin`, `rows` for each batch, `end` or, if it broke, `broken`."""

    media_type: str
    wants_bytes: float  # of a batch, as a share of what a message of Arrow may have: texts are longer

    def begin(self, schema: pa.Schema) -> bytes: ...
    def rows(self, batch: pa.RecordBatch) -> bytes: ...
    def end(self) -> bytes: ...
    def broken(self, said: Mapping[str, Any]) -> bytes: ...


class JsonRows:
    """An array of objects. One that broke is not valid JSON: it has no end."""

    media_type = "application/json"
    wants_bytes = 0.25

    def __init__(self) -> None:
        self._some = False

    def begin(self, schema: pa.Schema) -> bytes:
        refuse_same_names(schema.names)
        return b"["

    def rows(self, batch: pa.RecordBatch) -> bytes:
        if not batch.num_rows:
            return b""
        before, self._some = b",\n" if self._some else b"", True
        return before + _dumped(json_rows(batch))[1:-1]

    def end(self) -> bytes:
        return b"]\n"

    def broken(self, said: Mapping[str, Any]) -> bytes:
        return b""


class NdjsonRows:
    """An object a line. After one that broke comes a line with `error` and `code`."""

    media_type = "application/x-ndjson"
    wants_bytes = 0.25

    def begin(self, schema: pa.Schema) -> bytes:
        refuse_same_names(schema.names)
        return b""

    def rows(self, batch: pa.RecordBatch) -> bytes:
        return b"".join(_dumped(row) + b"\n" for row in json_rows(batch))

    def end(self) -> bytes:
        return b""

    def broken(self, said: Mapping[str, Any]) -> bytes:
        return orjson.dumps(said) + b"\n"


class CsvRows:
    """RFC 4180 with a head; null is nothing, an empty text is `""`; what CSV has no word for is written as JSON."""

    media_type = "text/csv; charset=utf-8; header=present"
    wants_bytes = 0.5

    def begin(self, schema: pa.Schema) -> bytes:
        return b",".join(b'"' + name.replace('"', '""').encode() + b'"' for name in schema.names) + b"\r\n"

    def rows(self, batch: pa.RecordBatch) -> bytes:
        if not batch.num_columns or not batch.num_rows:
            return b""
        columns = [_csv_column(column) for column in batch.columns]
        table = pa.RecordBatch.from_arrays(columns, names=[str(n) for n in range(len(columns))])
        out = io.BytesIO()
        pa.csv.write_csv(table, out, pa.csv.WriteOptions(include_header=False, eol="\r\n"))
        return out.getvalue()

    def end(self) -> bytes:
        return b""

    def broken(self, said: Mapping[str, Any]) -> bytes:
        return b""


class ArrowForm:
    """An IPC stream. One that broke has no end marker."""

    media_type = ARROW
    wants_bytes = 1.0

    def begin(self, schema: pa.Schema) -> bytes:
        self._out = io.BytesIO()
        self._writer = pa.ipc.new_stream(self._out, schema)
        return self._taken()

    def rows(self, batch: pa.RecordBatch) -> bytes:
        self._writer.write_batch(batch)
        return self._taken()

    def end(self) -> bytes:
        self._writer.close()
        return self._taken()

    def broken(self, said: Mapping[str, Any]) -> bytes:
        return b""

    def _taken(self) -> bytes:
        found = self._out.getvalue()
        self._out.seek(0)
        self._out.truncate()
        return found


FORMS: Mapping[str, Callable[[], Form]] = {
    "application/json": JsonRows,
    "application/x-ndjson": NdjsonRows,
    "text/csv": CsvRows,
    ARROW: ArrowForm,
}
_ALSO = {"application/ndjson": "application/x-ndjson", "application/jsonl": "application/x-ndjson"}


def form_for(accept: str) -> Form:
    """The form that an `Accept` header wants most; JSON without one. Raises `HttpRefused` for none of ours.

    >>> form_for("text/csv;q=0.5, application/x-ndjson").media_type
    'application/x-ndjson'
    """
    wanted = [_range(part) for part in accept.split(",")[:MAX_ACCEPTED] if part.strip()] or [("*/*", 1.0)]
    best, best_quality = "", 0.0
    for name in FORMS:
        quality = _quality(name, wanted)
        if quality > best_quality:
            best, best_quality = name, quality
    if not best:
        raise HttpRefused(406, f"an answer is one of {', '.join(FORMS)}", "invalid_data")
    return FORMS[best]()


def _range(part: str) -> tuple[str, float]:
    name, *parameters = (word.strip().lower() for word in part.split(";"))
    quality = next((word.partition("=")[2] for word in parameters if word.startswith("q=")), "1")
    try:
        found = float(quality)
    except ValueError:
        found = 0.0
    return _ALSO.get(name, name), found if 0 <= found <= 1 else 0.0


def _quality(name: str, wanted: list[tuple[str, float]]) -> float:
    """Of the ranges that take this type the most exact one counts."""
    for known in (name, f"{name.partition('/')[0]}/*", "*/*"):
        found = [quality for said, quality in wanted if said == known]
        if found:
            return max(found)
    return 0.0


def _dumped(row: Any) -> bytes:
    return orjson.dumps(row, default=str, option=_OPTIONS)


def _csv_column(column: pa.Array) -> pa.Array:
    """A column of texts, numbers or booleans, which CSV writes as they are."""
    kind = column.type
    if t.is_boolean(kind) or t.is_integer(kind) or t.is_string(kind) or t.is_large_string(kind) or t.is_null(kind):
        return column
    values = json_column(column)
    return pa.array([None if one is None else one if isinstance(one, str) else _dumped(one).decode() for one in values],
                    pa.string())  # fmt: skip
