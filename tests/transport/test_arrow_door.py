"""Arrow data of other processes: valid rows pass as they are, everything else is refused before anything reads it."""

import datetime as dt
import struct
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ballista_py.errors import InvalidData
from ballista_py.testing import strategies
from ballista_py.testing.hostile.messages import MESSAGES, column, patched
from ballista_py.testing.hostile.raw_flight import stream_of
from ballista_py.testing.hostile.wire_seeds import SEEDS
from ballista_py.transport.arrow import sizes as arrow_sizes
from ballista_py.transport.arrow.door import FlightRows, batch_bytes, check_batch, read_rows, read_schema
from ballista_py.transport.arrow.types import MAX_DEPTH, MAX_FIELDS, check_schema

VALID_LIES = {"union-empty", "zstd-bomb"}


def ipc(batch, compression=None):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("name", SEEDS)
@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_valid_rows_of_every_type_pass_and_are_the_same(name, compression):
    whole = SEEDS[name]()
    for array in (whole, whole.slice(1, 2), whole.slice(0, 0)):
        rows = pa.record_batch({"c": array})
        table = read_rows(ipc(rows, compression), compressed=True)
        assert table.equals(pa.Table.from_batches([rows]))
        assert table.nbytes >= 0  # pyarrow has died of this


@given(data=st.data())
@settings(max_examples=50, deadline=None)
def test_whatever_clusters_are_made_of_passes(data):
    rows = data.draw(strategies.batches(data.draw(strategies.schemas())))
    passed = read_rows(ipc(rows)).combine_chunks().to_batches()
    assert [ipc(batch) for batch in passed] == [ipc(rows)] * len(passed)  # by bytes: NaN equals none
    assert sum(batch.num_rows for batch in passed) == rows.num_rows


def test_valid_rows_are_not_copied():
    rows = pa.record_batch({"a": pa.array(range(1_000)), "b": ["x"] * 1_000})
    passed = check_batch(rows)
    assert [b.address for c in passed.columns for b in c.buffers() if b] == [
        b.address for c in rows.columns for b in c.buffers() if b
    ]


@pytest.mark.parametrize("name", [name for name in MESSAGES if name not in VALID_LIES])
def test_a_message_that_lies_is_refused(name):
    with pytest.raises(InvalidData) as refused:
        read_rows(stream_of(MESSAGES[name].make()), compressed=True)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "field",
    [
        pa.field("c", pa.dictionary(pa.int32(), pa.list_(pa.int32()))),
        pa.field("c", pa.decimal128(5, -2)),
        pa.field("c", pa.decimal128(5, 6)),
        pa.field("c", pa.timestamp("us", "../../etc/passwd\n")),
        pa.field("a\x00b", pa.int64()),
        pa.field("c", pa.int64(), metadata={"ARROW:extension:name": "duckdb.unheard_of"}),
        pa.field("c", pa.list_(pa.field("i", pa.int8(), metadata={"ARROW:extension:name": "arrow.opaque"}))),
        pa.field("c", pa.opaque(pa.binary(), "hugeint", "DuckDB")),
        pa.field("c", pa.fixed_shape_tensor(pa.int8(), [2])),
        pa.field("c", pa.int64(), metadata={"k": b"x" * (5 << 20)}),
    ],
    ids=str,
)
def test_columns_that_nobody_here_understands_are_refused(field):
    with pytest.raises(InvalidData):
        check_schema(pa.schema([field]))
    with pytest.raises(InvalidData):
        read_schema(pa.schema([field]).serialize().to_pybytes())


@pytest.mark.parametrize("kind", [pa.uuid(), pa.json_(), pa.bool8()], ids=str)
def test_extensions_whose_every_value_is_valid_pass(kind):
    assert check_schema(pa.schema([("c", kind)])).types == [kind]


def test_columns_are_bounded_in_number_and_depth():
    kind = pa.int64()
    for _ in range(MAX_DEPTH - 1):
        kind = pa.list_(kind)
    check_schema(pa.schema([("c", kind)]))
    with pytest.raises(InvalidData, match="deep"):
        check_schema(pa.schema([("c", pa.list_(kind))]))
    with pytest.raises(InvalidData, match="columns"):
        check_schema(pa.schema([pa.field("c", pa.null())] * (MAX_FIELDS + 1)))


@pytest.mark.parametrize(
    "array",
    [
        pa.array(["x" * 100_000] * 2).dictionary_encode().take(pa.array([0] * 1_000)),
        pa.RunEndEncodedArray.from_arrays(pa.array([1_000], pa.int32()), pa.array(["x" * 100_000])),
        pa.ListViewArray.from_arrays([0] * 1_000, [1] * 1_000, pa.array(["x" * 100_000])),
        pa.array([[["x" * 100_000]]] * 1_000, pa.list_(pa.list_(pa.dictionary(pa.int8(), pa.string())))),
        pa.UnionArray.from_dense(
            pa.array([0] * 1_000, pa.int8()), pa.array([0] * 1_000, pa.int32()), [pa.array(["x" * 100_000])]
        ),
    ],
    ids=lambda array: str(array.type),
)
def test_what_names_a_value_many_times_counts_it_every_time(array):
    rows = pa.record_batch({"c": array})
    assert 100_000_000 <= batch_bytes(rows) < 101_000_000
    with pytest.raises(InvalidData, match="written out"):
        check_batch(rows, 50_000_000)


def _views(count, long):
    """Views that all name one text, of which nobody has looked whether it is UTF-8: it is none."""
    views = struct.pack("<i4sii", long, b"\xff" * 4, 0, 0) * count
    buffers = [None, pa.py_buffer(views), pa.py_buffer(b"\xff" * long)]
    return pa.Array.from_buffers(pa.string_view(), count, buffers)


@pytest.mark.parametrize("wrap", ["plain", "list", "struct", "map"])
def test_views_of_one_text_are_measured_before_each_is_looked_at(wrap):
    views = _views(1_000, 100_000)
    bounds = pa.array([0, 1_000], pa.int32())
    array = {
        "plain": lambda: views,
        "list": lambda: pa.ListArray.from_arrays(bounds, views),
        "struct": lambda: pa.StructArray.from_arrays([views], ["a"]),
        "map": lambda: pa.MapArray.from_arrays(bounds, pa.array(range(1_000)), views),
    }[wrap]()
    with pytest.raises(InvalidData, match="written out"):  # and not that the text is none
        check_batch(pa.record_batch({"c": array}), 50_000_000)


def test_a_stream_that_ends_before_its_columns_is_refused():
    class Ended:
        @property
        def schema(self):
            raise StopIteration

    with pytest.raises(InvalidData, match="ended before"):
        _ = FlightRows(Ended(), answers=False).schema


def test_rows_without_bytes_are_bounded():
    with pytest.raises(InvalidData, match="written out"):
        check_batch(pa.record_batch({"c": pa.nulls(1_000_000)}), 1 << 20)


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_what_unpacks_to_too_much_is_refused_before_it_is_unpacked(compression):
    before = pa.total_allocated_bytes()
    bomb = ipc(pa.record_batch({"c": [bytes(32 << 20)]}), compression)
    made = pa.default_memory_pool().max_memory()
    with pytest.raises(InvalidData, match="16 MiB"):
        read_rows(bomb, 16 << 20, compressed=True)
    with pytest.raises(InvalidData, match="compressed"):
        read_rows(bomb)
    assert pa.default_memory_pool().max_memory() == made
    assert pa.total_allocated_bytes() <= before


def test_types_of_engines_pass_with_their_values():
    rows = pa.record_batch({
        "a": [Decimal("1.50"), None], "b": [dt.datetime(2020, 1, 1), None], "c": [{"x": [1, 2]}, None],
    })  # fmt: skip
    assert read_rows(ipc(rows)).to_pylist() == rows.to_pylist()


def test_the_size_of_a_value_is_that_of_its_own_bytes():
    array = pa.array(["ab", None, "cde"]).dictionary_encode()
    assert arrow_sizes.written_out(array) == 3 * 8 + 2 * 8 + 5


def test_a_patched_body_is_another_one():
    made = patched(column(pa.array([1, 2, 3], pa.int64())), 8, "<q", 7)
    assert struct.unpack_from("<3q", made[-1].body) == (1, 7, 3)


def _viewed(times, size):
    """So many texts that are one, as views of it."""
    views = b"".join(struct.pack("<i4sii", size, b"xxxx", 0, 0) for _ in range(times))
    buffers = [None, pa.py_buffer(views), pa.py_buffer(b"x" * size)]
    return pa.Array.from_buffers(pa.string_view(), times, buffers)


SHARED = {
    "dictionary": pa.DictionaryArray.from_arrays(pa.array([0, None, 1] * 400), pa.array(["x" * 5_000, "y"])),
    "view": _viewed(1_200, 5_000),
    "run ends": pa.RunEndEncodedArray.from_arrays(pa.array([700, 1_200], pa.int32()), ["x" * 5_000, "y"]),
    "struct of a dictionary": pa.StructArray.from_arrays(
        [pa.DictionaryArray.from_arrays(pa.array([0, 1] * 600), pa.array(["x" * 5_000, "y"]))], ["a"]
    ),
    "list of views": pa.ListArray.from_arrays(pa.array(range(0, 2_402, 2), pa.int32()), _viewed(2_400, 2_500)),
    "list views": pa.ListViewArray.from_arrays([0] * 1_200, [2_000] * 1_200, pa.array(range(2_000), pa.int16())),
}


@pytest.mark.parametrize("name", SHARED)
def test_rows_that_share_values_come_in_pieces_of_what_they_are_written_out(name):
    rows = pa.record_batch({"id": pa.array(range(1_200)), "s": SHARED[name]}).slice(5)
    pieces = list(arrow_sizes.in_pieces(rows, 60_000))
    assert len(pieces) > 20
    assert all(batch_bytes(piece) < 90_000 for piece in pieces)
    assert [row for piece in pieces for row in piece.to_pylist()] == rows.to_pylist()


def test_rows_that_share_nothing_come_as_they_are():
    rows = pa.record_batch({"id": pa.array(range(1_200)), "s": ["x" * 5_000] * 1_200})
    assert [id(piece) for piece in arrow_sizes.in_pieces(rows, 1_000)] == [id(rows)]


def test_a_row_that_is_larger_than_a_piece_stands_alone():
    rows = pa.record_batch({"s": _viewed(3, 5_000)})
    assert [piece.num_rows for piece in arrow_sizes.in_pieces(rows, 100)] == [1, 1, 1]
