"""What COPY writes, as rows: every text as it was, nulls apart from empty texts, wherever blocks of lines end."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ballista_py.coordinator.changes import postgres_copy
from ballista_py.coordinator.changes.postgres_copy import rows_of_copy
from ballista_py.errors import SourceUnfit

TEXTS = st.none() | st.text(
    st.sampled_from('a,"\n\r\\.\ufeff\u2028é ') | st.characters(exclude_characters="\0", codec="utf-8")
)


def line_of(row: tuple[str | None, ...]) -> bytes:
    """A line as PostgreSQL writes it: quotes where they are needed, and around what is empty."""
    shown = [
        "" if text is None
        else '"' + text.replace('"', '""') + '"' if text in ("", "\\.") or set(text) & set(',"\n\r')
        else text
        for text in row
    ]  # fmt: skip
    return ",".join(shown).encode() + b"\n"


@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=20), st.sampled_from([1, 20, 1 << 20]))
def test_every_text_comes_as_it_was_written(rows, block_bytes):
    schema = pa.schema({"a": pa.string(), 'a, "b"': pa.string()})
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(postgres_copy, "BLOCK_BYTES", block_bytes)
        batches = list(rows_of_copy("public.t", schema, map(line_of, rows)))
    found = [tuple(row.values()) for row in pa.Table.from_batches(batches, schema).to_pylist()]
    assert found == rows


def test_a_row_of_one_null_is_a_row():
    batches = list(rows_of_copy("public.t", pa.schema({"a": pa.int64()}), [b"1\n", b"\n", b"3\n"]))
    assert pa.Table.from_batches(batches)["a"].to_pylist() == [1, None, 3]


def test_a_value_that_the_type_cannot_hold_is_named():
    schema = pa.schema({"id": pa.int64(), "day": pa.date32()})
    with pytest.raises(SourceUnfit, match=r"column 'day' of public\.t has the value 'infinity'"):
        list(rows_of_copy("public.t", schema, [b"1,2024-02-29\n", b"2,\n", b"3,infinity\n"]))
