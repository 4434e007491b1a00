"""What goes to a source that is written through, decided over values alone: texts of values, and what rows come to."""

import datetime as dt
import decimal
import math
import random

import pyarrow as pa
import pytest

from ballista_py.coordinator.changes.pgoutput import LoggedCommit, LoggedMessage, read_message
from ballista_py.coordinator.changes.postgres_rows import MESSAGE_PREFIX, LogRows
from ballista_py.coordinator.changes.postgres_values import WrittenColumn, texts
from ballista_py.coordinator.changes.row_changes import changed_columns, is_as_read, require_few, row_changes
from ballista_py.errors import ConfigError, SchemaMismatch, SqlError
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.partitions.write_modes import refuse_write_options, require_write_mode


def column(type_id, modifier=-1):
    return WrittenColumn("c", '"c"', type_id, modifier)


UTC = pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("type_id", "kind", "value", "text"),
    [
        (16, pa.bool_(), True, "t"),
        (17, pa.binary(), b"\x00\xff", "\\x00ff"),
        (20, pa.int64(), -(2**63), "-9223372036854775808"),
        (25, pa.string(), "a'%s\\\n", "a'%s\\\n"),
        (700, pa.float32(), 0.10000000149011612, "0.1"),
        (701, pa.float64(), math.inf, "inf"),
        (701, pa.float64(), 5e-324, "5e-324"),
        (1082, pa.date32(), dt.date(9999, 12, 31), "9999-12-31"),
        (1083, pa.time64("us"), dt.time(23, 59, 59, 999_999), "23:59:59.999999"),
        (1114, pa.timestamp("us"), dt.datetime(1, 1, 1), "0001-01-01 00:00:00.000000"),
        (1184, UTC, dt.datetime(2024, 5, 6, 1, tzinfo=dt.UTC), "2024-05-06 01:00:00.000000+00"),
        (1700, pa.decimal128(38, 9), decimal.Decimal("-0.000000001"), "-1E-9"),
        (1043, pa.string(), None, None),
    ],
)
def test_a_value_goes_there_as_a_text_that_is_read_as_that_very_value(type_id, kind, value, text):
    assert texts("t", column(type_id), pa.array([value], kind)) == [text]


@pytest.mark.parametrize(
    ("type_id", "modifier", "value"),
    [
        (25, -1, pa.array(["a\0b"])),
        (1043, 4 + 3, pa.array(["four"])),
        (1043, 4 + 3, pa.array(["ab  "])),  # which a cast would cut in silence
        (1042, 4 + 5, pa.array(["a "])),  # whose blanks nobody would see again
        (19, -1, pa.array(["ä" * 32])),
        (26, -1, pa.array([-1], pa.int64())),
        (26, -1, pa.array([2**32], pa.int64())),
        (1114, 0, pa.array([dt.datetime(2024, 1, 1, 0, 0, 0, 500_000)], pa.timestamp("us"))),
        (1083, 3, pa.array([dt.time(0, 0, 0, 1)], pa.time64("us"))),
        (1082, -1, pa.array([3_000_000], pa.int32()).cast(pa.date32())),  # the year 10183
        (1114, -1, pa.array([2**60], pa.int64()).cast(pa.timestamp("us"))),
    ],
)
def test_a_value_that_would_become_another_one_there_is_refused(type_id, modifier, value):
    both = pa.concat_arrays([pa.nulls(1, value.type), value])
    with pytest.raises(SchemaMismatch, match="its source cannot hold as it is"):
        texts("t", column(type_id, modifier), both)


def test_what_rows_come_to_leads_from_the_old_ones_to_the_new_ones():
    for seed in range(200):
        chance = random.Random(seed)
        old, new = ({n: chance.randrange(3) for n in range(8) if chance.random() < 0.6} for _ in range(2))
        tables = [
            pa.table({"id": pa.array(list(rows), pa.int64()), "v": pa.array(list(rows.values()), pa.int64())})
            for rows in (old, new)
        ]
        found = row_changes("t", *tables, ["id"], 0)
        rows = dict(old)
        for row in found.gone.to_pylist():
            assert rows.pop(row["id"]) == row["v"]
        for before, after in zip(found.before.to_pylist(), found.after.to_pylist(), strict=True):
            assert rows[before["id"]] == before["v"] != after["v"]
            assert before["id"] == after["id"]
            rows[after["id"]] = after["v"]
        rows |= {row["id"]: row["v"] for row in found.come.to_pylist() if row["id"] not in rows}
        assert rows == new
        assert changed_columns(found, ["id"]) == (["v"] if len(found.after) else [])


def test_rows_that_go_must_be_as_they_were_read_as_those_that_change_must():
    old = pa.table({"id": [1, 2, 3], "v": [1, 1, 1]})
    found = row_changes("t", old, pa.table({"id": [2, 3], "v": [5, 1]}), ["id"], 2)
    assert found.locked.to_pylist() == [{"id": 2, "v": 1}, {"id": 1, "v": 1}]


def test_rows_are_as_they_were_read_whatever_their_order_and_with_nan_and_null():
    read = pa.table({"id": [1, 2, 3], "f": [math.nan, None, 0.5]})
    assert is_as_read(read, read.take([2, 0, 1]), ["id"])
    for other in (
        read.slice(1),
        pa.table({"id": [1, 2, 3], "f": [math.nan, 1.0, 0.5]}),
        pa.table({"id": [1, 2, 3], "f": [0.0, None, 0.5]}),
        pa.table({"id": [1, 2, 4], "f": [math.nan, None, 0.5]}),
        pa.concat_tables([read, pa.table({"id": [4], "f": [1.0]})]),
    ):
        assert not is_as_read(read, other, ["id"])


def test_two_rows_of_one_key_and_too_many_rows_are_refused():
    twice = pa.table({"id": [1, 1], "v": [1, 2]})
    with pytest.raises(SqlError, match="two rows of the statement have one key"):
        row_changes("t", twice.slice(0, 0), twice, ["id"], 2)
    with pytest.raises(SqlError, match="at most 250000 rows and 64 MiB"):
        require_few("t", pa.table({"id": range(250_001)}))


def test_messages_of_the_log_are_read():
    data = b"M\1" + bytes(8) + b"ballista_py\0" + (3).to_bytes(4, "big") + b"t-1"
    assert read_message(data) == LoggedMessage("ballista_py", b"t-1")


def test_messages_for_other_tables_do_not_move_a_table_on():
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    table = TableSpec(name="t", schema=schema, spec=PartitionSpec.whole(), distribution="replicated")
    mine, others = (LoggedMessage(MESSAGE_PREFIX, folder.encode()) for folder in (table.folder, "other"))
    log = LogRows(table, "public.t")
    for end, messages in ((10, [mine, others]), (20, [others]), (30, [others, mine])):
        log.take([*messages, LoggedCommit(end)])
        assert log.end == (10 if end < 30 else 30)


def test_options_that_are_for_tables_with_a_source_are_refused_for_others():
    require_write_mode("t", "write_through", "source", {"format": "postgres"})
    with pytest.raises(ConfigError, match="write_wait is of tables with a source"):
        refuse_write_options({"write_wait": "source"})
