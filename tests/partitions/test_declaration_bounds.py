"""How large a declaration may be, and how much of a default is in memory while it fills older rows."""

from __future__ import annotations

import pyarrow as pa
import pytest
from attrs import evolve

from ballista_py.errors import ConfigError, MergeTooLarge, SqlError, TryLater, named, to_wire
from ballista_py.partitions import alterations, bounds
from ballista_py.partitions.bounds import require_bounded
from ballista_py.partitions.columns import INITIAL, MAX_FILL_BYTES, in_fills, initial_text, with_said
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.storage.formats import columns, parquet
from ballista_py.storage.formats.files import RowsAtHand

SCHEMA = pa.schema([("id", pa.int64())])
TABLE = TableSpec(name="t", schema=SCHEMA, spec=PartitionSpec.parse(["id"], SCHEMA))


def add(table, name, value="x", default="'x'"):
    return alterations.add_column(
        table, pa.field(name, pa.string()), pa.array([value]), default, if_not_exists=False
    )


def comment(table, name, chars):
    return alterations.set_comment(table, name, "x" * chars)


@pytest.mark.parametrize(
    ("make", "most"),
    [
        (lambda n: add(TABLE, "c" * n), bounds.MAX_NAME_CHARS),
        (lambda n: add(TABLE, "c", default="'" + "x" * (n - 2) + "'"), bounds.MAX_DEFAULT_CHARS),
        (lambda n: add(TABLE, "c", value="x" * (n - 100 * (n == 4_096))), bounds.MAX_DEFAULT_BYTES),  # beside offsets
        (lambda n: comment(TABLE, None, n), bounds.MAX_COMMENT_CHARS),
        (lambda n: comment(TABLE, "id", n), bounds.MAX_COMMENT_CHARS),
        (
            lambda n: evolve(TABLE, schema=pa.schema([*SCHEMA, *(pa.field(f"c{i}", pa.int8()) for i in range(n - 1))])),
            bounds.MAX_COLUMNS,
        ),
    ],
    ids=["name", "default", "value", "comment", "comment on a column", "columns"],
)  # fmt: skip
def test_what_is_declared_has_a_bound(make, most):
    require_bounded(make(most), TABLE)
    with pytest.raises(ConfigError, match=r" (are|is) the most") as refused:
        require_bounded(make(most + 1), TABLE)
    assert len(refused.value.message) < 500


def test_what_older_rows_have_in_all_columns_has_a_bound_together():
    table = TABLE
    for number in range(16):
        before, table = table, add(table, f"c{number}", "x" * 4_000)
        require_bounded(table, before)
    with pytest.raises(ConfigError, match=r"bytes of defaults that older rows have: 65,536 are the most"):
        require_bounded(add(table, "more", "x" * 4_000), table)


def test_all_texts_of_a_declaration_have_a_bound_together(monkeypatch):
    monkeypatch.setattr(bounds, "MAX_DECLARATION_BYTES", 10_000)
    table = comment(comment(TABLE, None, 4_000), "id", 4_000)
    require_bounded(table)
    with pytest.raises(ConfigError, match="bytes in its declaration: 10,000 are the most"):
        require_bounded(comment(add(table, "c"), "c", 4_000), table)


def test_a_table_from_before_there_were_bounds_can_be_altered_but_not_made_larger():
    large = comment(add(TABLE, "c", "x" * 900_000, "'" + "x" * 900_000 + "'"), None, 900_000)
    require_bounded(alterations.drop_column(large, "c", lambda _: frozenset(), if_exists=False), large)
    require_bounded(add(large, "d", None, None), large)
    require_bounded(comment(large, None, 10), large)
    with pytest.raises(ConfigError):
        require_bounded(add(large, "d", "x" * 4_097), large)
    with pytest.raises(ConfigError):
        require_bounded(large)


FILLED = pa.schema(
    [SCHEMA[0], with_said(pa.field("c", pa.string()), INITIAL, initial_text(pa.array(["x" * 900_000])))]
)


def test_a_large_default_fills_older_rows_in_parts_however_many_they_are(tmp_path):
    rows = pa.table({"id": range(500)}, SCHEMA)
    data, _ = parquet.encode(rows)
    for batches in (
        parquet.read_batches(pa.py_buffer(data), FILLED, "f"),
        RowsAtHand(file_id=1, rows=rows).batches(FILLED),
    ):
        seen = 0
        for batch in batches:
            assert batch.nbytes < 1.2 * MAX_FILL_BYTES
            assert batch["c"][0].as_py() == "x" * 900_000
            assert batch["id"][0].as_py() == seen
            seen += batch.num_rows
        assert seen == 500
    (whole,) = rows.to_batches()
    assert list(in_fills(whole, ["id", "c"], FILLED)) == [whole]
    assert list(in_fills(whole.slice(0, 0), ["id"], FILLED)) == [whole.slice(0, 0)]


@pytest.mark.parametrize("raised", [pa.ArrowInvalid("offset overflow"), pa.ArrowMemoryError("malloc of 9 failed")])
def test_an_error_of_arrow_that_is_for_no_type_of_a_file_is_told_as_what_it_is(monkeypatch, raised):
    """It came out of a generator as StopIteration, which a client was told as an internal error."""

    def fails(*_):
        raise raised

    monkeypatch.setattr(columns, "from_files", fails)
    data, _ = parquet.encode(pa.table({"id": [1]}, SCHEMA))
    with pytest.raises(Exception) as refused:
        list(parquet.read_batches(pa.py_buffer(data), SCHEMA, "f"))
    wire = to_wire(refused.value)
    assert wire["code"] == (
        "planning.merge_too_large" if isinstance(raised, MemoryError) else "document.unreadable"
    )


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (MemoryError(), MergeTooLarge),
        (pa.ArrowMemoryError("malloc of 9 failed"), MergeTooLarge),
        (OSError(28, "No space left on device", "/secret"), TryLater),
        (OSError(24, "Too many open files"), TryLater),
        (SqlError("x"), SqlError),
    ],
)
def test_what_a_node_has_too_little_of_is_no_internal_error(error, kind):
    assert type(named(error)) is kind
    assert "secret" not in to_wire(error)["message"]
    assert "internal" not in to_wire(error)["message"]
