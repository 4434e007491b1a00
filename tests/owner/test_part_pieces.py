"""Files as they lie on disk, in pieces: a Client makes of them what a Server would have read, from any row on."""

from __future__ import annotations

import io
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from ballista_py.agents.section_reader import rows_of_pieces
from ballista_py.errors import BallistaError, DocumentUnreadable, InvalidData
from ballista_py.owner import part_pieces
from ballista_py.owner.part_pieces import file_pieces, packed_pieces
from ballista_py.partitions.columns import INITIAL, STORED, initial_text, with_said
from ballista_py.runtime import seeded_chance
from ballista_py.storage.formats.deletion_vector import numbered
from ballista_py.storage.formats.formats import file_format
from ballista_py.storage.formats.parquet_ranges import footer_range, group_ranges
from ballista_py.storage.held.cache import LocalCopy
from ballista_py.transport.table_read.pieces import PACKINGS, SectionPiece, pieces_in
from ballista_py.transport.table_read.tokens.positions import START, Position

PAIR = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))])
COUNT = 300
ROWS = pa.table(
    {
        "id": pa.array(range(COUNT), pa.int64()),
        "real": pa.array([float("nan") if n % 7 == 0 else -0.0 if n % 5 == 0 else n / 3 for n in range(COUNT)]),
        "word": pa.array([None if n % 6 == 0 else "w" * (n % 9) for n in range(COUNT)]),
        "wide": pa.array(["x" * 300 for _ in range(COUNT)]),
        "both": pa.array([None if n % 4 == 0 else {"a": n, "b": ["q"] * (n % 3)} for n in range(COUNT)], PAIR),
        "both.a": pa.array(range(COUNT), pa.int32()),
        "at": pa.array([n * 1_000 for n in range(COUNT)], pa.timestamp("us", "UTC")),
    }
)


@pytest.fixture(scope="module", autouse=True)
def small_pieces():
    before, part_pieces.PIECE_BYTES = part_pieces.PIECE_BYTES, 700
    yield
    part_pieces.PIECE_BYTES = before


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pieces")


def written(folder, group_rows=COUNT, codec="zstd", format_name="parquet", rows=ROWS) -> str:
    path = folder / f"{group_rows}-{codec}-{rows.num_rows}.{format_name}"
    if not path.exists():
        if format_name == "parquet":
            pq.write_table(rows, path, row_group_size=group_rows, compression=codec, use_dictionary=["word"])
        else:
            path.write_bytes(file_format(format_name).encode(rows)[0])
    return str(path)


def batches_of(located, section=0):
    """What a Server sends of the pieces: batches, each with its place."""
    return [(Position(section, at), piece.to_batch()) for at, piece in located]


def wanted_rows(copy, base, begin):
    read = file_format(copy.format).read_batches(copy.path, base, "")
    rows = pa.Table.from_batches((batch for _, batch in numbered(read, copy.gone)), schema=base)
    return rows.slice(begin)


def require_rows(found, wanted, begin):
    at = begin
    for place, batch in found:
        assert place == Position(0, at)
        at += batch.num_rows
    rows = pa.Table.from_batches([batch for _, batch in found], schema=wanted.schema)
    assert rows.equals(wanted) or list(map(repr, rows.to_pylist())) == list(map(repr, wanted.to_pylist()))  # NaN


@given(
    group_rows=st.sampled_from([1, 7, 64, 150, COUNT]),
    codec=st.sampled_from(["zstd", "none", "snappy"]),
    columns=st.sets(st.sampled_from(ROWS.column_names), min_size=1).map(sorted),
    gone=st.sets(st.integers(0, COUNT - 1), max_size=COUNT).map(sorted),
    begin=st.integers(0, COUNT + 5),
    format_name=st.sampled_from(["parquet", "parquet", "vortex"]),
)
def test_the_rows_are_those_of_the_file_from_any_row_on(
    folder, group_rows, codec, columns, gone, begin, format_name
):
    path = written(folder, group_rows, codec, format_name)
    copy = LocalCopy(path, format_name, gone=np.array(gone, np.int64))
    base = pa.schema([ROWS.schema.field(name) for name in columns])
    sent = batches_of(file_pieces(copy, base, begin, ("arrow", format_name)))
    found = list(rows_of_pieces(sent, base, Position(0, begin)))
    require_rows(found, wanted_rows(copy, base, begin), min(begin, COUNT - len(gone)))


@pytest.mark.parametrize("encoding", sorted(PACKINGS))
def test_rows_are_packed_as_the_client_likes_it(folder, encoding):
    batches = [(place * 100, batch) for place, batch in enumerate(ROWS.to_batches(max_chunksize=100))]
    sent = batches_of(packed_pieces(batches, ("vortex", encoding, "arrow")))
    assert {piece.encoding for _, batch in sent for piece in pieces_in(batch)} == {encoding}
    require_rows(list(rows_of_pieces(sent, ROWS.schema, START)), ROWS, 0)


def test_few_columns_are_few_bytes_and_what_was_read_before_does_not_come_again(folder):
    path = written(folder, 50)

    def size(columns, begin=0):
        base = pa.schema([ROWS.schema.field(name) for name in columns])
        copy = LocalCopy(path, "parquet")
        return sum(len(piece.data) for _, piece in file_pieces(copy, base, begin, ("parquet",)))

    footer = size(["id"], COUNT)
    assert size(["id"]) < size(["id", "word"]) < size(ROWS.column_names)
    assert size(["id"], 260) - footer < (size(["id"]) - footer) / 5
    data = Path(path).read_bytes()
    start, stop = footer_range(len(data), data[-8:])
    assert footer == stop - start


def test_what_a_client_could_not_know_does_not_come_as_it_lies(folder):
    copy = LocalCopy(written(folder), "parquet")
    base = pa.schema([ROWS.schema.field("id")])
    assert file_pieces(copy, base, 0, ("vortex", "arrow")) is None
    for other in (
        pa.schema([pa.field("id", pa.int32())]),
        pa.schema([with_said(pa.field("nothing", pa.int64()), INITIAL, initial_text(pa.array([5])))]),
        pa.schema([with_said(pa.field("number", pa.int64()), STORED, "id")]),
        pa.schema([ROWS.schema.field("id"), pa.field("more", pa.int64())]),
    ):
        assert file_pieces(copy, other, 0, ("parquet",)) is None
    assert file_pieces(LocalCopy(copy.path, "parquet", gone=np.arange(1 << 21)), base, 0, ("parquet",)) is None
    old = folder / "int96.parquet"
    pq.write_table(pa.table({"at": pa.array([1], pa.timestamp("us"))}), old, use_deprecated_int96_timestamps=True)
    assert (
        file_pieces(LocalCopy(str(old), "parquet"), pa.schema([("at", pa.timestamp("us"))]), 0, ("parquet",))
        is None
    )
    damaged = folder / "damaged.parquet"
    damaged.write_bytes(b"PAR1 nothing of the kind PAR1")
    with pytest.raises(DocumentUnreadable):
        file_pieces(LocalCopy(str(damaged), "parquet"), base, 0, ("parquet",))


def test_files_without_rows_and_groups_without_rows(folder):
    path = folder / "groups.parquet"
    schema = pa.schema([ROWS.schema.field("id")])
    with pq.ParquetWriter(path, schema) as writer:
        for count in (0, 3, 0, 2, 0):
            writer.write_table(pa.table({"id": range(count)}, schema))
    copy = LocalCopy(str(path), "parquet")
    for begin in range(6):
        sent = batches_of(file_pieces(copy, schema, begin, ("parquet",)))
        found = [
            n for _, batch in rows_of_pieces(sent, schema, Position(0, begin)) for n in batch["id"].to_pylist()
        ]
        assert found == [0, 1, 2, 0, 1][begin:]
    empty = LocalCopy(written(folder, rows=ROWS.slice(0, 0)), "parquet")
    assert list(rows_of_pieces(batches_of(file_pieces(empty, schema, 0, ("parquet",))), schema, START)) == []


def test_sections_come_one_after_the_other(folder):
    schema = pa.schema([ROWS.schema.field("id")])
    copies = [LocalCopy(written(folder, 64, format_name=name), name) for name in ("parquet", "vortex", "parquet")]
    sent = [
        one for n, copy in enumerate(copies) for one in batches_of(file_pieces(copy, schema, 0, (copy.format,)), n)
    ]
    found = list(rows_of_pieces(sent, schema, START))
    assert sorted({place.section for place, _ in found}) == [0, 1, 2]
    assert [n for _, batch in found for n in batch["id"].to_pylist()] == 3 * list(range(COUNT))


def test_places_in_a_file_that_is_read_at_once_go_on_from_batch_to_batch(folder, monkeypatch):
    monkeypatch.setattr(part_pieces, "PIECE_BYTES", 1 << 20)
    rows = pa.table({"id": range(150_000)})
    copy = LocalCopy(written(folder, format_name="vortex", rows=rows), "vortex", gone=np.array([1, 70_000]))
    sent = batches_of(file_pieces(copy, rows.schema, 140_000, ("vortex",)))
    for begin in (0, 65_000, 140_000):
        found = list(rows_of_pieces(sent, rows.schema, Position(0, begin)))
        require_rows(found, wanted_rows(copy, rows.schema, begin), begin)


def sent_pieces(folder):
    schema = pa.schema([ROWS.schema.field(name) for name in ("id", "word")])
    copy = LocalCopy(written(folder, 100), "parquet", gone=np.array([3, 5]))
    return schema, [(at, piece) for at, piece in file_pieces(copy, schema, 0, ("parquet",))]


def read(schema, pieces):
    return list(rows_of_pieces(batches_of(pieces), schema, START))


def test_pieces_that_are_missing_or_make_no_section_are_refused(folder):
    schema, pieces = sent_pieces(folder)
    count = len(pieces)
    assert count > 8
    for number in range(count):
        with pytest.raises(BallistaError):
            read(schema, pieces[:number] + pieces[number + 1 :])
    for number in range(1, count):
        with pytest.raises(BallistaError):
            read(schema, pieces[:number])
    changes = (
        {"section_bytes": 1 << 40},
        {"section_bytes": 7},
        {"stop": 7_000},
        {"first": 17, "stop": 40},
        {"encoding": "vortex"},
        {"encoding": "odd"},
        {"gone": np.array([5, 3])},
        {"offset": 1 << 50},
    )
    last = count - 1
    for change in changes:
        at, piece = pieces[last]
        with pytest.raises(BallistaError):
            read(schema, [*pieces[:last], (at, evolve(piece, **change))])
    for change, said in (({"section_bytes": 1 << 40}, "too large"), ({"encoding": "odd"}, "does not know")):
        at, piece = pieces[0]
        with pytest.raises(InvalidData, match=said):
            read(schema, [(at, evolve(piece, **change)), *pieces[1:]])
    schema_of_another = pa.schema([("other", pa.int64())])
    with pytest.raises(BallistaError):
        read(schema_of_another, pieces)


def test_a_piece_that_was_damaged_on_its_way_is_not_taken(folder):
    schema, pieces = sent_pieces(folder)
    batch = pieces[0][1].to_batch()
    data = bytearray(pieces[0][1].data)
    data[len(data) // 2] ^= 1
    columns = dict(zip(batch.schema.names, batch.columns, strict=True)) | {"bytes": pa.array([bytes(data)])}
    damaged = pa.RecordBatch.from_arrays(list(columns.values()), schema=batch.schema)
    with pytest.raises(InvalidData, match="damaged on its way"):
        list(rows_of_pieces([(START, damaged)], schema, START))
    with pytest.raises(InvalidData, match="other columns"):
        list(pieces_in(pa.record_batch({"bytes": [b"x"]})))


def test_bytes_that_are_no_file_end_in_an_error_that_says_so(folder):
    """Of a node that lies: the checks of the pieces hold, and what is in them does not."""
    schema, pieces = sent_pieces(folder)
    chance = seeded_chance(11)
    for _ in range(300):
        spoilt = []
        for at, piece in pieces:
            data = bytearray(piece.data)
            if data and chance.random() < 0.3:
                data[chance.randrange(len(data))] = chance.randrange(256)
            spoilt.append((at, evolve(piece, data=bytes(data))))
        try:
            read(schema, spoilt)
        except BallistaError:
            continue


def test_the_ranges_of_a_footer_that_lies_are_refused():
    sink = io.BytesIO()
    pq.write_table(ROWS.select(["id"]), sink)
    metadata = pq.ParquetFile(sink).metadata
    with pytest.raises(DocumentUnreadable, match="does not have"):
        group_ranges(metadata, ["id"], 10)
    for tail in (b"", b"\x00" * 8, (1 << 30).to_bytes(4, "little") + b"PAR1", b"\x05\x00\x00\x00PARE"):
        with pytest.raises(DocumentUnreadable, match="encrypted"):
            footer_range(1_000, tail)


def test_a_piece_is_a_row_of_a_batch():
    one = SectionPiece(
        encoding="parquet", data=b"PAR1", offset=4, first=1, stop=3, section_bytes=9, gone=np.array([1])
    )
    (found,) = pieces_in(one.to_batch())
    assert found == one
    assert found.gone.tolist() == [1]
    again = partial(next, pieces_in(evolve(one, gone=None).to_batch()))
    assert again().gone is None
