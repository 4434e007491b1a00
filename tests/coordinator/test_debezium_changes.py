"""Tables that follow Debezium's events from files: what they come to, and what stops them."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
import math
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from tests.coordinator.followed import FollowedInMemory, HandClock, following, tick_out

from ballista_py.coordinator.changes import debezium
from ballista_py.errors import SourceLost, SourceUnavailable, SourceUnfit
from ballista_py.partitions.refresh import Refresh

COLUMNS = "id bigint not null, v varchar"


def event(op: str, before: Any = None, after: Any = None, tx: int | None = None, **source: Any) -> dict[str, Any]:
    return {"before": before, "after": after, "op": op, "source": {"txId": tx, **source} if tx else source}


def put(row: int, v: str = "a", op: str = "c", tx: int | None = None, **source: Any) -> dict[str, Any]:
    return event(op, None, {"id": row, "v": v}, tx, **source)


def gone(row: int, tx: int | None = None) -> dict[str, Any]:
    return event("d", {"id": row, "v": None}, None, tx)


class Log:
    """A folder of files as a sink writes them: whole at once, each named by the number of its first line."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.number = 0
        folder.mkdir()

    def write(self, *events: Any, end: str = "\n") -> Path:
        path = self.folder / f"shop.events+0+{self.number:010d}.json"
        lines = [found if isinstance(found, str) else json.dumps(found) for found in events]
        temporary = self.folder / f".{self.number}.new"
        temporary.write_text("\n".join(lines) + end)
        temporary.rename(path)
        self.number += len(events)
        return path


@pytest.fixture
def log(tmp_path):
    return Log(tmp_path / "log")


def source(log: Log, **more: Any) -> dict[str, Any]:
    return {"format": "debezium", "path": str(log.folder), "columns": COLUMNS, **more}


def here(table: FollowedInMemory) -> dict[int, Any]:
    return {key[0]: row["v"] for key, row in table.rows.items()}


def test_the_rows_read_first_are_the_copy_and_changes_follow(log):
    log.write(
        put(1, "r", "r", snapshot="first"), put(2, "r", "r", snapshot="true"), put(3, "r", "r", snapshot="last")
    )
    log.write(put(4), event("u", None, {"id": 1, "v": "u"}), gone(2), "null", put(2, "again"))
    table, reader, _ = following(source(log), ["id"])
    assert reader.tick().did == "copied"
    assert here(table) == {1: "r", 2: "r", 3: "r"}
    assert tick_out(reader) == 4
    assert here(table) == {1: "u", 2: "again", 3: "r", 4: "a"}
    log.write(event("t"), put(9))
    tick_out(reader)
    assert here(table) == {9: "a"}


def test_rows_that_were_read_twice_or_not_to_the_end(log):
    log.write(put(1, "old", "r", snapshot="first"), put(2, "old", "r", snapshot="true"))
    table, reader, _ = following(source(log), ["id"])
    with pytest.raises(SourceUnavailable, match="has not read all rows"):
        reader.tick()
    log.write(put(1, "new", "r", snapshot="first"), put(3, "new", "r", snapshot="last"))
    reader.tick()
    assert here(table) == {1: "new", 2: "old", 3: "new"}


def test_batches_end_where_transactions_do_and_the_last_one_waits_for_its_end(log, monkeypatch):
    monkeypatch.setattr(debezium, "SETTLED_MS", 300.0)
    log.write(*[put(n, tx=1 + n // 4) for n in range(10)])
    table, reader, _ = following(source(log), ["id"], batch_changes=1)
    reader.tick()
    assert len(here(table)) == 0
    assert [reader.tick().changes for _ in range(3)] == [4, 4, 0]
    log.write(put(10, tx=3))  # of the same transaction
    assert reader.tick().changes == 0
    tick_out_settled(reader, table, 11)
    log.write(put(11, tx=5), put(12, tx=5))
    log.write(put(13, tx=6))
    assert reader.tick().changes == 2
    assert len(here(table)) == 13


def tick_out_settled(reader: Any, table: FollowedInMemory, count: int) -> None:
    changes = 0
    while len(here(table)) < count:
        changes += reader.tick().changes
        assert changes in (0, 3)  # the transaction whole


def test_a_transaction_that_still_comes_waits_however_long_the_log_was_at_rest_before(log):
    clock = HandClock()
    log.write(put(0, tx=1))
    table, reader, _ = following(source(log), ["id"], runtime=clock)
    reader.tick()
    assert reader.tick().changes == 0
    clock.now_ms += 10 * debezium.SETTLED_MS
    assert reader.tick().changes == 1
    for row in (1, 2):
        clock.now_ms += debezium.SETTLED_MS - 1
        log.write(put(row, tx=2))
        assert reader.tick().changes == 0
    clock.now_ms += debezium.SETTLED_MS
    assert reader.tick().changes == 2
    assert here(table).keys() == {0, 1, 2}


def test_what_is_too_much_for_one_batch_is_in_the_next_and_nothing_is_skipped(log, monkeypatch):
    events = [put(n, tx=1 + n // 2) for n in range(8)]
    monkeypatch.setattr(debezium, "MAX_BATCH_BYTES", 2 * len(json.dumps(events[0])) + 10)
    monkeypatch.setattr(debezium, "SETTLED_MS", 0.0)
    log.write(*events)
    table, reader, _ = following(source(log), ["id"])
    reader.tick()
    assert [reader.tick().changes for _ in range(4)] == [2, 2, 2, 2]
    assert here(table).keys() == set(range(8))


def test_files_go_by_their_numbers_and_hidden_ones_are_passed_over(log):
    for first, following_file in pairwise([0, 9, 10, 100, 105]):
        lines = [json.dumps(put(row)) + "\n" for row in range(first, following_file)]
        (log.folder / f"shop.events+0+{first}.json").write_text("".join(lines))
    (log.folder / "_SUCCESS").write_text("")
    (log.folder / ".shop.events+0+105.json.crc").write_text("x")
    table, reader, _ = following(source(log), ["id"])
    reader.tick()
    assert tick_out(reader) == 105
    assert here(table).keys() == set(range(105))


def test_a_line_without_its_end_is_not_there_yet(log):
    whole = json.dumps(put(2))
    path = log.write(put(1), whole[:20], end="")
    table, reader, opened = following(source(log), ["id"])
    reader.tick()
    assert tick_out(reader) == 1
    assert opened.lag(table.at).bytes == 20
    with path.open("a") as file:
        file.write(whole[20:])
    assert tick_out(reader) == 0
    with path.open("a") as file:
        file.write("\n")
    assert tick_out(reader) == 1
    assert here(table) == {1: "a", 2: "a"}
    assert opened.lag(table.at).bytes == 0


def test_files_that_are_lacking_out_of_order_or_twice_there(log):
    paths = [log.write(*[put(n * 10 + m) for m in range(10)]) for n in range(4)]
    kept = paths[2].read_bytes()
    paths[2].unlink()
    table, reader, _ = following(source(log), ["id"])
    reader.tick()
    with pytest.raises(SourceLost, match="lack those from number 20 to 29"):
        tick_out(reader)
    assert len(here(table)) in (0, 20)
    paths[2].write_bytes(kept)  # it came late
    tick_out(reader)
    assert len(here(table)) == 40
    twice = log.folder / "shop.events+0+30.json"
    twice.write_bytes(paths[3].read_bytes())
    with pytest.raises(SourceUnfit, match="has the number of another file"):
        reader.tick()
    twice.unlink()
    other = log.folder / "shop.orders+0+0000000040.json"
    other.write_text(json.dumps(put(99)) + "\n")
    with pytest.raises(SourceUnfit, match="files of two logs"):
        reader.tick()
    other.rename(log.folder / "notes.txt")
    with pytest.raises(SourceUnfit, match="not named by the number"):
        reader.tick()
    (log.folder / "notes.txt").unlink()
    for path in paths[:3]:  # what was read may go
        path.unlink()
    log.write(put(40))
    assert tick_out(reader) == 1
    again, fresh, _ = following(source(log), ["id"])
    with pytest.raises(SourceLost, match="do not begin with the first"):
        fresh.tick()
    again, fresh, _ = following(source(log, start="earliest"), ["id"])
    fresh.tick()
    tick_out(fresh)
    assert len(again.rows) == 11


def test_a_log_that_became_shorter_or_went_away_is_lost(log):
    path = log.write(*[put(n) for n in range(10)])
    table, reader, _ = following(source(log), ["id"])
    reader.tick()
    tick_out(reader)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:5]))
    with pytest.raises(SourceLost):
        reader.tick()
    with pytest.raises(SourceLost):
        following(source(log), ["id"])[2].read(table.at, 10)
    path.unlink()
    with pytest.raises(SourceLost):
        reader.tick()
    log.folder.rmdir()
    with pytest.raises(SourceUnavailable):
        reader.tick()
    assert len(here(table)) == 10


def test_a_file_with_more_lines_than_its_name_says(log):
    log.write(put(1), put(2))
    log.number = 1
    log.write(put(3))
    _, reader, _ = following(source(log), ["id"])
    reader.tick()
    with pytest.raises(SourceUnfit, match="more lines than there are numbers"):
        tick_out(reader)


DEEP = '{"op": "c", "before": null, "after": {"id": 1, "v": ' + "[" * 10_000 + "]" * 10_000 + "}}"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "no JSON"),
        ("", "no JSON"),
        (DEEP, "no JSON"),
        ('{"op": "c", "after": {"id": NaN}}', "no JSON"),
        ('{"op": "c", "after": {"id": 1, "v": "\\ud800"}}', "no JSON"),
        ('{"id": 1, "v": "flat"}', "no envelope"),
        ("[1]", "no envelope"),
        ('"text"', "no envelope"),
        ('{"op": "m", "after": null}', "op 'm'"),
        ('{"op": "c", "after": null}', "no row after it"),
        ('{"op": "d", "before": null, "after": null}', "REPLICA IDENTITY"),
        ('{"op": "d", "before": {"v": "x"}, "after": null}', "does not tell its 'id'"),
        ('{"op": "c", "after": {"id": 1, "v": "x", "more": 1}}', "has the column 'more'"),
        ('{"op": "c", "after": {"id": 1}}', "lacks the column 'v'"),
        ('{"op": "c", "after": {"id": "1", "v": "x"}}', "has the value '1'"),
        ('{"op": "c", "after": {"id": 1.5, "v": "x"}}', "has the value '1.5'"),
        ('{"op": "c", "after": {"id": 9223372036854775808, "v": "x"}}', "9223372036854775808"),
        ('{"op": "c", "after": {"id": true, "v": "x"}}', "True"),
        ('{"op": "c", "after": {"id": null, "v": "x"}}', "no value in column 'id'|must not be null"),
        ('{"op": "c", "after": {"id": 2, "v": "__debezium_unavailable_value"}}', "leaves out column 'v'"),
        ('{"op": "u", "after": {"id": 77, "v": "__debezium_unavailable_value"}}', "no such row"),
    ],
)
def test_a_hostile_line_stops_the_table_and_is_named(log, line, reason):
    log.write(put(1))
    table, reader, _ = following(source(log), ["id"])
    reader.tick()
    tick_out(reader)
    log.write(line)
    with pytest.raises(SourceUnfit, match=reason):
        tick_out(reader)
    assert here(table) == {1: "a"}


def test_long_and_odd_texts_come_as_they_are(log):
    texts = ["x" * 1_000_000, "a\x00b", "é\u2028\U0001f600", "", '"quoted"\n']
    log.write(*[put(n, text) for n, text in enumerate(texts)])
    table, reader, _ = following(source(log), ["id"])
    reader.tick()
    tick_out(reader)
    assert here(table) == dict(enumerate(texts))


def test_what_an_update_leaves_out_stays_as_it_is(log):
    left = "__debezium_unavailable_value"
    log.write(put(1, "long"), put(2, "long"), put(3, "long"))
    table, reader, _ = following(source(log), ["id"])
    reader.tick()
    tick_out(reader)
    log.write(
        event("u", {"id": 1, "v": left}, {"id": 11, "v": left}),
        event("u", {"id": 2, "v": "told"}, {"id": 2, "v": left}),
        event("u", None, {"id": 3, "v": left}),
    )
    tick_out(reader)
    assert here(table) == {11: "long", 2: "told", 3: "long"}


# Envelopes with their schema.


def field(
    name: str, kind: str, named: str | None = None, optional: bool = True, **parameters: str
) -> dict[str, Any]:
    found: dict[str, Any] = {"field": name, "type": kind, "optional": optional}
    if named is not None:
        found["name"] = named
    if parameters:
        found["parameters"] = {key.replace("_", "."): value for key, value in parameters.items()}
    return found


def with_schema(fields: list[dict[str, Any]], payload: Any) -> dict[str, Any]:
    row = {"type": "struct", "fields": fields, "optional": True, "name": "shop.Value"}
    parts = [{**row, "field": "before"}, {**row, "field": "after"}, {"type": "string", "field": "op"}]
    return {"schema": {"type": "struct", "fields": parts, "name": "shop.Envelope"}, "payload": payload}


def unscaled(value: int) -> str:
    size = (value.bit_length() + 8) // 8
    return base64.b64encode(value.to_bytes(size, "big", signed=True)).decode()


TIME, CONNECT = "io.debezium.time.", "org.apache.kafka.connect.data."
MOMENT = dt.datetime(2024, 5, 6, 7, 8, 9, 123_456)
US = int((MOMENT - dt.datetime(1970, 1, 1)).total_seconds() * 1_000_000 + 0.5)
DAY_US = (7 * 3600 + 8 * 60 + 9) * 1_000_000 + 123_456
KINDS: list[tuple[dict[str, Any], Any, Any]] = [
    (field("id", "int64", optional=False), 1, 1),
    (field("b", "boolean"), True, True),
    (field("i8", "int8"), -128, -128),
    (field("i16", "int16"), 7, 7),
    (field("i32", "int32"), 7, 7),
    (field("f4", "float"), 1.5, 1.5),
    (field("f8", "double"), "NaN", math.nan),
    (field("s", "string"), "é", "é"),
    (field("raw", "bytes"), "AP8=", b"\x00\xff"),
    (field("date", "int32", TIME + "Date"), 19_849, dt.date(2024, 5, 6)),
    (field("cdate", "int32", CONNECT + "Date"), -1, dt.date(1969, 12, 31)),
    (field("t_ms", "int32", TIME + "Time"), DAY_US // 1000, dt.time(7, 8, 9, 123_000)),
    (field("t_us", "int64", TIME + "MicroTime"), DAY_US, dt.time(7, 8, 9, 123_456)),
    (field("t_ns", "int64", TIME + "NanoTime"), DAY_US * 1000, dt.time(7, 8, 9, 123_456)),
    (field("c_t", "int32", CONNECT + "Time"), DAY_US // 1000, dt.time(7, 8, 9, 123_000)),
    (field("ts_ms", "int64", TIME + "Timestamp"), US // 1000, MOMENT.replace(microsecond=123_000)),
    (field("ts_us", "int64", TIME + "MicroTimestamp"), US, MOMENT),
    (field("c_ts", "int64", CONNECT + "Timestamp"), US // 1000, MOMENT.replace(microsecond=123_000)),
    (
        field("zoned", "string", TIME + "ZonedTimestamp"),
        "2024-05-06T09:08:09.123456+02:00",
        MOMENT.replace(tzinfo=dt.UTC),
    ),
    (field("uuid", "string", "io.debezium.data.Uuid"), "a0ee", "a0ee"),
    (field("json", "string", "io.debezium.data.Json"), '{"a": 1}', '{"a": 1}'),
    (
        field("price", "bytes", CONNECT + "Decimal", scale="2", connect_decimal_precision="9"),
        unscaled(-12_345),
        decimal.Decimal("-123.45"),
    ),
    (
        field("wide", "bytes", CONNECT + "Decimal", scale="10", connect_decimal_precision="38"),
        unscaled(10**38 - 1),
        decimal.Decimal("9999999999999999999999999999.9999999999"),
    ),
]


def test_values_in_every_encoding_of_a_schema(log):
    fields = [found for found, _, _ in KINDS]
    row = {found["field"]: value for found, value, _ in KINDS}
    nothing = dict.fromkeys(row) | {"id": 2}
    log.write(*[with_schema(fields, event("c", None, found)) for found in (row, nothing)])
    declared = {"format": "debezium", "path": str(log.folder)}
    table, reader, _ = following(declared, ["id"])
    assert not table.table.schema.field("id").nullable
    reader.tick()
    tick_out(reader)
    found = table.rows[(1,)]
    assert math.isnan(found.pop("f8"))
    assert found == {found["field"]: value for found, _, value in KINDS if found["field"] != "f8"}
    assert table.rows[(2,)] == nothing


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (field("v", "int32", TIME + "Date"), 2**31),
        (field("v", "int32", TIME + "Date"), 2**31 - 1),
        (field("v", "int64", TIME + "MicroTime"), 86_400_000_001),
        (field("v", "int64", TIME + "Timestamp"), 2**63),
        (field("v", "string", TIME + "ZonedTimestamp"), "99999-01-01T00:00:00Z"),
        (field("v", "string", TIME + "ZonedTimestamp"), "yesterday"),
        (field("v", "bytes", CONNECT + "Decimal", scale="2", connect_decimal_precision="5"), unscaled(100_000)),
        (field("v", "bytes", CONNECT + "Decimal", scale="2", connect_decimal_precision="5"), "no base 64"),
        (field("v", "double"), "x"),
        (field("v", "bytes"), 5),
    ],
)
def test_a_value_that_does_not_fit_its_column_stops_the_table(log, kind, value):
    fields = [field("id", "int64", optional=False), kind]
    log.write(with_schema(fields, event("c", None, {"id": 1, "v": None})))
    table, reader, _ = following({"format": "debezium", "path": str(log.folder)}, ["id"])
    reader.tick()
    tick_out(reader)
    log.write(with_schema(fields, event("c", None, {"id": 2, "v": value})))
    with pytest.raises(SourceUnfit, match="'v'"):
        tick_out(reader)
    assert list(table.rows) == [(1,)]


def test_columns_that_change_and_kinds_that_are_not_known_stop_the_table(log):
    fields = [field("id", "int64", optional=False), field("v", "string")]
    declared = {"format": "debezium", "path": str(log.folder)}
    with pytest.raises(SourceUnavailable, match="wait for one"):
        following(declared, ["id"])
    log.write(with_schema(fields, put(1)))
    with pytest.raises(SourceUnfit, match="primary_key="):
        following(declared)
    table, reader, _ = following(declared, ["id"])
    reader.tick()
    tick_out(reader)
    log.write(with_schema([*fields, field("more", "string")], event("c", None, {"id": 2, "v": "b", "more": "x"})))
    with pytest.raises(SourceUnfit, match="has a column 'more' more"):
        tick_out(reader)
    odd_kinds: list[Any] = [
        field("v", "struct", "io.debezium.data.VariableScaleDecimal"),
        field("v", "array"),
        {"field": "v"},
        {"field": "v", "type": {"x": 1}},
        {"field": ["v"], "type": "string", "name": 5},
        {"field": "v", "type": "bytes", "name": CONNECT + "Decimal", "parameters": ["scale"]},
        field("v", "bytes", CONNECT + "Decimal", scale="9" * 5_000),
        field("v", "bytes", CONNECT + "Decimal", scale="3", connect_decimal_precision="2"),
    ]
    for odd in odd_kinds:
        log.write(with_schema([fields[0], odd], put(1)))
        with pytest.raises(SourceUnfit, match="which no column here can be"):
            following(declared, ["id"])
    assert here(table) == {1: "a"}


def test_events_from_before_a_column_was_appended_have_none(log):
    fields = [field("id", "int64", optional=False), field("v", "string")]
    more = [*fields, field("more", "int32")]
    log.write(with_schema(fields, put(1)), with_schema(more, event("c", None, {"id": 2, "v": "b", "more": 5})))
    declared = {"format": "debezium", "path": str(log.folder)}
    table, reader, _ = following(declared, ["id"])
    reader.tick()
    with pytest.raises(SourceUnfit, match="has no column 'more' any more"):
        tick_out(reader)
    table, reader, opened = following(declared, ["id"])
    opened.table = table.table = evolve(table.table, refresh=Refresh(mode="changes", on_schema_change="append"))
    reader.tick()
    tick_out(reader)
    assert [row["more"] for row in table.rows.values()] == [None, 5]
    log.write(with_schema(fields, put(3)))  # and now it is gone there
    with pytest.raises(SourceUnfit, match="has no column 'more' any more"):
        tick_out(reader)


def test_a_log_without_a_schema_needs_declared_columns(log):
    log.write(put(1))
    with pytest.raises(SourceUnfit, match="declare its columns"):
        following({"format": "debezium", "path": str(log.folder)}, ["id"])
    declared = "id bigint not null, at timestamp, day date, price decimal(9, 2), t time, z timestamptz"
    table, reader, _ = following(source(log, columns=declared, time_unit="ms", decimals="text"), ["id"])
    log.folder.joinpath(os.listdir(log.folder)[0]).unlink()
    log.number = 0
    row = {"id": 1, "at": 86_400_000, "day": 1, "price": "1.50", "t": 1_000, "z": "2024-01-01T00:00:00Z"}
    log.write(event("c", None, row))
    reader.tick()
    tick_out(reader)
    assert table.rows[(1,)] == {
        "id": 1,
        "at": dt.datetime(1970, 1, 2),
        "day": dt.date(1970, 1, 2),
        "price": decimal.Decimal("1.50"),
        "t": dt.time(0, 0, 1),
        "z": dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
    }
