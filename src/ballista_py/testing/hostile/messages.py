"""Arrow messages that lie, each in one way: what a hostile client binds, ingests and streams.

`MESSAGES` has them by name. Append one of your own, and every door is tried with it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import evolve, frozen

from ballista_py.testing.hostile.raw_flight import Data, ipc_messages

FAR = 100_000_000
_BOMB = 64 << 20
_FAR_ROOT = b"\xf0\xff\xff\x7f"


@frozen
class Lie:
    """`make` gives the messages of one stream, of one column `c`; `about` says what is wrong with them.

    The values in them, if they are taken, have `unpacked` bytes.
    """

    about: str
    make: Callable[[], list[Data]]
    unpacked: int = 0


def column(array: pa.Array, metadata: dict[str, str] | None = None) -> list[Data]:
    """The messages of one valid column."""
    field = pa.field("c", array.type, metadata=metadata)
    return ipc_messages(pa.RecordBatch.from_arrays([array], schema=pa.schema([field])))


def patched(messages: list[Data], place: int, form: str, value: int, number: int = -1) -> list[Data]:
    """The messages with a number at `place` in the body of one of them."""
    body = bytearray(messages[number].body)
    struct.pack_into(form, body, place, value)
    out = list(messages)
    out[number] = evolve(out[number], body=bytes(body))
    return out


def _swapped(messages: list[Data], old: bytes, new: bytes, number: int = -1) -> list[Data]:
    """The messages with some bytes of one header changed wherever they stand."""
    out = list(messages)
    out[number] = evolve(out[number], header=out[number].header.replace(old, new))
    return out


def _texts(kind: pa.DataType) -> list[Data]:
    return column(pa.array([b"a" * 20, b"b" * 20, b"c" * 20], kind))


def _length(rows: int) -> list[Data]:
    """A batch that says it has `rows` rows and brings three."""
    made = column(pa.array([1, 2, 3], pa.int64()))
    return _swapped(made, struct.pack("<q", 3), struct.pack("<q", rows))


def _nested(depth: int) -> list[Data]:
    array: Any = pa.array([1])
    for _ in range(depth):
        array = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), array)
    return column(array)


def _wide(columns: int) -> list[Data]:
    schema = pa.schema([pa.field(f"c{number}", pa.null()) for number in range(columns)])
    return ipc_messages(pa.RecordBatch.from_arrays([pa.nulls(1)] * columns, schema=schema))


def _bomb(size: int) -> list[Data]:
    return ipc_messages(pa.record_batch({"c": pa.array([bytes(size)])}), "zstd")


def _claims(size: int) -> list[Data]:
    """A compressed buffer that claims to unpack to `size` bytes."""
    made = ipc_messages(pa.record_batch({"c": pa.array([b"a" * 4_000])}), "zstd")
    body = made[-1].body.replace(struct.pack("<q", 4_000), struct.pack("<q", size))
    return [*made[:-1], evolve(made[-1], body=body)]


def many_frames(frames: int) -> list[Data]:
    """A compressed value of 64 MiB whose buffer holds `frames` of it, one after the other, and says so."""
    made = ipc_messages(pa.record_batch({"c": pa.array([bytes(_BOMB)], pa.large_binary())}), "zstd")
    header, body = made[-1].header, made[-1].body
    frame = pa.compress(bytes(_BOMB), codec="zstd", asbytes=True)
    start = body.index(struct.pack("<q", _BOMB))
    told = header.index(struct.pack("<qq", start, len(frame) + 8))
    value = struct.pack("<q", frames * _BOMB) + frames * frame
    header = header[: told + 8] + struct.pack("<q", len(value)) + header[told + 16 :]
    value += bytes(-len(value) % 8)
    header = header.replace(struct.pack("<q", len(body)), struct.pack("<q", start + len(value)))
    return [*made[:-1], evolve(made[-1], header=header, body=body[:start] + value)]


def one_field_many_times(fields: int, name_bytes: int) -> list[Data]:
    """A schema of `fields` columns, which are all one table of the flatbuffer, with one long name."""
    head = struct.pack("<I 6H ihBxI 4H iI I", 16, 12, 12, 4, 6, 8, 0, 12, 4, 1, 12, 8, 8, 0, 4, 8, 4, fields)
    field = len(head) + 4 * fields + 20
    places = np.arange(field - len(head), field - len(head) - 4 * fields, -4, dtype="<u4").tobytes()
    # Its places, the field (name, type, children, kind of type), places of the type, the type, no children, the name.
    table = struct.pack("<10H iIIIBxxx", 18, 20, 4, 0, 16, 8, 0, 12, 0, 0, 20, 28, 16, 16, 1)
    rest = struct.pack("<2H i I I", 4, 4, 4, 0, name_bytes) + b"x" * name_bytes
    return [Data(head + places + table + rest + bytes(8 - name_bytes % 4))]


def one_remark_many_times(times: int, value_bytes: int) -> list[Data]:
    """A schema of no columns whose message has `times` remarks, which are all one table, with one long value."""
    head = struct.pack("<I 8H ihBxII", 20, 14, 16, 4, 6, 8, 0, 12, 0, 16, 4, 1, 16, 20 + 4)
    none = struct.pack("<4H iI", 8, 8, 0, 4, 8, 4) + struct.pack("<I", 0)
    remarks = struct.pack("<I", times)
    begin = len(head) + len(none) + len(remarks)
    places = np.arange(4 * times + 8, 8, -4, dtype="<u4").tobytes()
    table = struct.pack("<4H iII", 8, 12, 4, 8, 8, 8, 12) + struct.pack("<II", 0, 0)
    text = struct.pack("<I", value_bytes) + b"x" * value_bytes
    assert begin % 4 == 0
    return [Data(head + none + remarks + places + table + text + bytes(8 - value_bytes % 4))]


def _opaque(storage: pa.Array, name: str) -> list[Data]:
    """A value that its type says is larger than it is: engines have taken the word of the type for it."""
    told = {"ARROW:extension:name": "arrow.opaque"}
    told["ARROW:extension:metadata"] = f'{{"type_name":"{name}","vendor_name":"DuckDB"}}'
    return column(storage, told)


def _union(make: Callable[[pa.Array], pa.Array]) -> list[Data]:
    return column(make(pa.array([0, 1, 0], pa.int8())))


def _sparse(codes: pa.Array) -> pa.Array:
    return pa.UnionArray.from_sparse(codes, [pa.array([1, 2, 3]), pa.array(["a", "b", "c"])])


def _dense(codes: pa.Array) -> pa.Array:
    at = pa.array([0, 0, 1], pa.int32())
    return pa.UnionArray.from_dense(codes, at, [pa.array([1, 2]), pa.array(["a"])])


def _runs() -> list[Data]:
    return column(pa.RunEndEncodedArray.from_arrays(pa.array([2, 4], pa.int32()), pa.array([1, 2])))


def _many_runs() -> list[Data]:
    rows = pa.array([60_000_000], pa.int32())
    return column(pa.RunEndEncodedArray.from_arrays(rows, pa.array(["x" * 10_000])))


def _views(kind: pa.DataType, place: int, value: int) -> list[Data]:
    return patched(_texts(kind), place, "<i", value)


def _list_views(place: int, value: int) -> list[Data]:
    views = pa.ListViewArray.from_arrays(
        pa.array([0, 1, 2], pa.int32()), pa.array([1, 1, 1], pa.int32()), [1, 2, 3]
    )
    return patched(column(views), place, "<i", value)


def _dictionary(index: int) -> list[Data]:
    coded = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.int32()), pa.array(["a", "b"]))
    return patched(column(coded), 0, "<i", index)


MESSAGES: dict[str, Lie] = {
    "offsets-beyond": Lie("an offset a little beyond the bytes", lambda: patched(_texts(pa.binary()), 12, "<i", 4_096)),
    "offsets-far": Lie("an offset far beyond the bytes", lambda: patched(_texts(pa.binary()), 12, "<i", FAR)),
    "offsets-before": Lie("an offset far before the bytes", lambda: patched(_texts(pa.binary()), 4, "<i", -FAR)),
    "offsets-text": Lie("the same for text", lambda: patched(_texts(pa.string()), 12, "<i", 4_096)),
    "offsets-large": Lie("the same with offsets of 64 bits", lambda: patched(_texts(pa.large_binary()), 24, "<q", FAR)),
    "offsets-falling": Lie("an offset below the one before it", lambda: patched(_texts(pa.binary()), 8, "<i", 1)),
    "not-utf-8": Lie("text that is not UTF-8", lambda: patched(column(pa.array(["abc"])), 8, "<B", 0xFF)),
    "views-length": Lie("a view longer than its buffer", lambda: _views(pa.binary_view(), 0, 4_096)),
    "views-buffer": Lie("a view into a buffer that is not there", lambda: _views(pa.binary_view(), 8, 7)),
    "views-offset": Lie("a view that begins beyond its buffer", lambda: _views(pa.string_view(), 12, FAR)),
    "list-views-offset": Lie("a list that begins beyond its values", lambda: _list_views(0, FAR)),
    "list-views-size": Lie("a list longer than its values", lambda: _list_views(16, FAR)),
    "dictionary-beyond": Lie("an index beyond the dictionary", lambda: _dictionary(FAR)),
    "dictionary-before": Lie("an index below zero", lambda: _dictionary(-1)),
    "run-ends-beyond": Lie("runs that end far beyond the rows", lambda: patched(_runs(), 4, "<i", 1)),
    "run-ends-before": Lie("a run that ends below zero", lambda: patched(_runs(), 0, "<i", -5)),
    "run-ends-many": Lie("two kilobytes that stand for 600 GB", _many_runs),
    "union-code": Lie("a union of a type that it does not have", lambda: patched(_union(_sparse), 0, "<b", 9)),
    "union-offset": Lie("a union that points beyond its values", lambda: patched(_union(_dense), 8, "<i", FAR)),
    "union-empty": Lie(
        "a list of no unions, which is valid, and pyarrow dies of it",
        lambda: column(pa.ListArray.from_arrays(pa.array([0, 0], pa.int32()), _sparse(pa.array([0, 1, 0], pa.int8())))),
    ),
    "rows-many": Lie("more rows than bytes", lambda: _length(FAR)),
    "rows-most": Lie("the largest number of rows there is", lambda: _length((1 << 63) - 1)),
    "rows-negative": Lie("less than no rows", lambda: _length(-1)),
    "nested-deep": Lie("lists in lists, 60 deep", lambda: _nested(60)),
    "columns-many": Lie("40,000 columns", lambda: _wide(40_000)),
    "zstd-bomb": Lie("64 MiB that travel as two kilobytes", lambda: _bomb(_BOMB), _BOMB + 4_096),
    "zstd-claim": Lie("a buffer that claims to unpack to an exabyte", lambda: _claims(1 << 60)),
    "zstd-frames": Lie("99 kB that unpack to 3 GiB", lambda: many_frames(48)),
    "schema-one-field": Lie("250,000 columns that are one", lambda: one_field_many_times(250_000, 12_000)),
    "schema-one-remark": Lie("25,000 remarks that are one, and long", lambda: one_remark_many_times(25_000, 120_000)),
    "zstd-negative": Lie("a buffer that claims to unpack to less than nothing", lambda: _claims(-(1 << 40))),
    "decimal-scale": Lie(
        "a decimal of an absurd scale", lambda: column(pa.array([None], pa.decimal128(30, -FAR)))
    ),
    "opaque-hugeint": Lie(
        "one byte that is declared as sixteen", lambda: _opaque(pa.array([1] * 64, pa.int8()), "hugeint")
    ),
    "opaque-bit": Lie("a bit string of no bits", lambda: _opaque(pa.array([b""] * 64), "bit")),
    "opaque-bignum": Lie("a number without its head", lambda: _opaque(pa.array([b"\xff"] * 64), "bignum")),
    "header-cut": Lie("a header that stops in the middle", lambda: _header(lambda head: head[: len(head) // 2])),
    "header-ones": Lie("a header of ones", lambda: _header(lambda head: b"\xff" * len(head))),
    "header-huge": Lie("a header whose first table is far away", lambda: _header(lambda head: _FAR_ROOT + head[4:])),
    "body-cut": Lie("rows without the second half of their bytes", lambda: _body(lambda body: body[: len(body) // 2])),
    "body-none": Lie("rows without their bytes", lambda: _body(lambda _: b"")),
    "schema-twice": Lie("a schema where rows should come", lambda: _schema_twice()),
    "schema-none": Lie("rows without a schema before them", lambda: column(pa.array([1]))[1:]),
}  # fmt: skip


def _header(change: Callable[[bytes], bytes]) -> list[Data]:
    made = _texts(pa.binary())
    return [*made[:-1], evolve(made[-1], header=change(made[-1].header))]


def _body(change: Callable[[bytes], bytes]) -> list[Data]:
    made = _texts(pa.binary())
    return [*made[:-1], evolve(made[-1], body=change(made[-1].body))]


def _schema_twice() -> list[Data]:
    made = _texts(pa.binary())
    return [made[0], made[0]]
