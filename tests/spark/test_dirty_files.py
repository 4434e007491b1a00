"""CSV files as people have them: the same rows by every way in, or a refusal that names the file; never other rows."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ballista_py.errors import ConfigError, SchemaMismatch
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.spark.sources import read_source, reader_options, source_error
from ballista_py.spark.text_check import check_text
from ballista_py.spark.text_files import misfit_in, strict_options
from ballista_py.spark.watermark import Watermark
from ballista_py.sql.parse.copies import CopyFrom
from ballista_py.transport.client.copies import file_rows

pytestmark = pytest.mark.spark

COLUMNS = {"id": "INTEGER", "t": "VARCHAR"}
SCHEMA = pa.schema([("id", pa.int32()), ("t", pa.string())])
REFUSED = None
FILES: dict[str, tuple[bytes, list[tuple[int, str | None]] | None]] = {
    "plain": (b"id,t\n1,a\n2,b", [(1, "a"), (2, "b")]),
    "doubled quotes": (b'id,t\n1,"a ""b"" c"\n2,"x,y"\n', [(1, 'a "b" c'), (2, "x,y")]),
    "line ends within quotes": (b'id,t\n1,"a\nb"\n2,c\n', [(1, "a\nb"), (2, "c")]),
    "two signs at each end": (b'id,t\r\n1,"a\nb"\r\n2,c\r\n', [(1, "a\nb"), (2, "c")]),
    "backslashes": (b'id,t\n1,"a\\"\n2,\\n\n3,"a\\b"\n', [(1, "a\\"), (2, "\\n"), (3, "a\\b")]),
    "quotes of one stroke": (b"id,t\n1,'a'\n", [(1, "'a'")]),
    "words for nothing": (b"id,t\n1,\n2,NULL\n3,NA\n4,\\N\n", [(1, None), (2, "NULL"), (3, "NA"), (4, "\\N")]),
    "blanks": (b'id,t\n1, a \n2," "\n', [(1, " a "), (2, " ")]),
    "empty lines": (b"id,t\n\n1,a\n\n", [(1, "a")]),
    "a mark of the order of bytes": (b"\xef\xbb\xbfid,t\n1,a\n", [(1, "a")]),
    "a quoted number": (b'"id","t"\n"1",a\n', [(1, "a")]),
    "a NUL": (b"id,t\n1,a\0b\n", [(1, "a\0b")]),
    "a sign of replacement": ("id,t\n1,\ufffd\n".encode(), [(1, "\ufffd")]),
    "plain quotes within": (b'id,t\n1,say "x" y\n', [(1, 'say "x" y')]),
    "header alone": (b"id,t\n", []),
    "a value too many": (b"id,t\n1,a,b\n2,c\n", REFUSED),
    "a value too few": (b"id,t\n1,a\n2\n", REFUSED),
    "a value too many, empty in quotes": (b'id,t\n1,a,""\n2,b\n', REFUSED),
    "no number": (b"id,t\n1,a\nx,b\n", REFUSED),
    "a number too large": (b"id,t\n99999999999,a\n", REFUSED),
    "a header twice": (b"id,t\n1,a\nid,t\n", REFUSED),
    "an open quote": (b'id,t\n1,"a\n2,c\n', REFUSED),
    "an open quote in the last line": (b'id,t\n1,a\n2,"c\n', REFUSED),
    "more behind a quote": (b'id,t\n1,"a"b\n2,c\n', REFUSED),
    "an escaped quote": (b'id,t\n1,"a\\"b"\n', REFUSED),
    "another encoding": ("id,t\n1,é\n".encode("latin-1"), REFUSED),
    "columns in another order": (b"t,id\na,1\n", REFUSED),
    "a return at one end": (b"id,t\n1,a\r\n2,b\n", REFUSED),
    "a return at the first end alone": (b"id,t\r\n1,a\n2,b\r\n", REFUSED),
}


def by_copy(path):
    copy = CopyFrom(table="t", path=str(path), format="csv", columns=None, options=())
    rows = file_rows(copy, COLUMNS, dict.fromkeys(COLUMNS))
    return pa.Table.from_batches(list(rows.batches()), rows.schema)


@pytest.fixture
def by_look(spark):
    """As a run of the pipeline looks through a source and reads it, without the writing."""

    def read(path):
        source = {"path": str(path), "schema": "id int, t string"}
        check_text(spark, reader_options(source, "t"), "t")
        try:
            return read_source(spark, source, "t").toArrow()
        except Exception as error:
            raise source_error(source, "t", error) from error

    return read


@pytest.fixture
def by_spark(pipeline, partitions):
    def read(path, **options):
        source = {"path": str(path), "schema": "id int, t string", **options}
        spec = PartitionSpec.whole()
        table = TableSpec(name="t", schema=SCHEMA, spec=spec, source=source, distribution="replicated")
        pipeline.materialize(table)
        return partitions.every_row(table)

    return read


def rows_of(table):
    return sorted(tuple(row.values()) for row in table.to_pylist())


@pytest.mark.parametrize("name", FILES)
def test_a_dirty_file_gives_the_same_rows_by_every_way_in_or_is_refused_by_name(by_look, tmp_path, name):
    data, wanted = FILES[name]
    path = tmp_path / "dirty rows.csv"
    path.write_bytes(data)
    for way in (by_copy, by_look):
        if wanted is not None:
            assert rows_of(way(path)) == wanted, way
            continue
        with pytest.raises(SchemaMismatch) as caught:
            way(path)
        assert "\n" not in caught.value.message
        assert f"file '{path}'" in caught.value.message


def refusal(by_spark, path, data, **options):
    path.write_bytes(data)
    with pytest.raises((SchemaMismatch, ConfigError)) as caught:
        by_spark(path, **options)
    return caught.value.message.replace(str(path.parent), "…")


def test_what_does_not_fit_is_said_with_file_and_line_or_value(by_spark, tmp_path):
    start = "table 't': source '…/a.csv' (csv): file '…/a.csv'"
    said = {
        b"id,t\n1,a,b\n": " has a line with more or fewer values than there are columns: '1,a,b': nothing was changed",
        b"id,t\nx,b\n": " has the value 'x', which is not of its column's type: nothing was changed",
        b'id,t\n1,a\n2,"a"b\n': ", about line 3, has a quote within quotes that is not doubled, "
        'as in "a ""b""": nothing was changed',
    }
    for data, words in said.items():
        assert refusal(by_spark, tmp_path / "a.csv", data) == start + words
    latin = refusal(by_spark, tmp_path / "a.csv", "id,t\n1,é\n".encode("latin-1"))
    assert (
        latin == f"{start} is not UTF-8, as in the line '1,\ufffd': name its encoding, as in encoding: iso-8859-1"
    )
    quote = refusal(by_spark, tmp_path / "a.csv", b'id,t\n1,"a\n')
    assert quote.startswith(f"{start} has an odd number of quotes, as in the line '1,\"a': one is not closed.")


def test_a_file_is_read_as_its_options_say(by_spark, tmp_path):
    path = tmp_path / "a.csv"
    for data, options, text in (
        ("id,t\n1,é\n".encode("latin-1"), {"encoding": "iso-8859-1"}, "é"),
        ('id,t\n1,"é\n'.encode("utf-16"), {"encoding": "utf-16", "quote": ""}, '"é'),
        (b'id,t\n1,5" pipe\n', {"quote": ""}, '5" pipe'),
        (b"id,t\n1,'a''b'\n", {"QUOTE": "'"}, "a'b"),
        (b'id,t\n1,"a\\"b"\n', {"escape": "\\"}, 'a"b'),
        (b"number,word\n1,a\n", {"enforceSchema": "true"}, "a"),
        (b'# say "so\nid,t\n1,a\n', {"comment": "#"}, "a"),
        (b'id,t\r\n1,"a"\r\n', {"multiLine": False}, "a"),
    ):
        path.write_bytes(data)
        assert rows_of(by_spark(path, **options)) == [(1, text)], options


def test_a_quote_that_is_open_is_seen_where_each_line_stands_alone(by_spark, tmp_path):
    data = b'id,t\n1,"a\n2,"b\n'
    assert "not closed on its line" in refusal(by_spark, tmp_path / "a.csv", data, multiLine="false")


@pytest.mark.parametrize("mode", ["PERMISSIVE", "dropMalformed"])
def test_a_mode_that_leaves_out_what_does_not_fit_is_refused(by_spark, tmp_path, mode):
    said = refusal(by_spark, tmp_path / "a.csv", b"id,t\n1,a\n", Mode=mode)
    assert f"the option mode: {mode} leaves out rows or values" in said


def test_files_of_one_source_have_one_header(pipeline, declare, tmp_path):
    (tmp_path / "a.csv").write_text("id,n\n1,2\n")
    (tmp_path / "b.csv").write_text("n,id\n5,7\n")
    with pytest.raises(
        SchemaMismatch, match=r"b\.csv' has the header 'n, id', the columns are 'id, n': name each"
    ):
        pipeline.materialize(declare(f"{tmp_path}/*.csv"))


def test_json_that_is_none_or_of_another_type_is_refused(pipeline, by_spark, tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"id": 1}\n{"id":\n')
    with pytest.raises(SchemaMismatch, match="has a line that is no JSON"):
        pipeline.describe("t", str(path))
    assert "has the value 'x', which is not of" in refusal(by_spark, path, b'{"id": 1, "t": "a"}\n{"id": "x"}\n')


def test_an_append_looks_at_text_too(pipeline, declare, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("id,t\n1,a\n")
    table = declare(str(path), "bucket(2, id)")
    pipeline.materialize(table, watermark=Watermark("id"))
    path.write_bytes('id,t\n1,a\n2,"é\n'.encode("latin-1"))
    with pytest.raises(SchemaMismatch, match="is not UTF-8"):
        pipeline.refresh(table, mode="append", watermark=Watermark("id"))


def test_options_are_strict_whatever_their_letters():
    assert strict_options("CSV", {"MULTILINE": "false", "escape": "\\"}) == {
        "MULTILINE": "false",
        "escape": "\\",
        "mode": "FAILFAST",
        "quote": '"',
        "unescapedQuoteHandling": "RAISE_ERROR",
        "enforceSchema": "false",
        "columnPruning": "false",
    }
    assert misfit_in(ValueError("Path does not exist")) is None
