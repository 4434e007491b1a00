"""Changes by key, decided over values alone: what they come to, where they are cut, when they count."""

import random

import pyarrow as pa
import pytest

from ballista_py.coordinator.changes.batches import puts, read_changes
from ballista_py.coordinator.changes.net import filled, lacking_keys, net_of
from ballista_py.coordinator.changes.pgoutput import UNCHANGED, read_message
from ballista_py.coordinator.changes.postgres import open_postgres
from ballista_py.coordinator.changes.postgres_types import values
from ballista_py.coordinator.changes.rules import cut, token_of
from ballista_py.coordinator.changes.source import ChangeBatch
from ballista_py.errors import ConfigError, SchemaMismatch, SourceUnfit, SqlError
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.state.documents.decisions import SourcePosition, SourceSpan, StatementsDocument, TableDecisions
from ballista_py.state.stores.memory import MemoryStore

ROW = pa.schema([("g", pa.string()), ("id", pa.int64()), ("v", pa.int64()), ("w", pa.int64())])
TABLE = TableSpec(name="t", schema=ROW, spec=PartitionSpec.parse(["g"], ROW), primary_key=("g", "id"))
KEY = pa.struct([ROW.field("g"), ROW.field("id")])
COLUMNS = pa.schema(
    [("op", pa.string()), ("old", KEY), ("new", pa.struct(list(ROW))), ("unchanged", pa.list_(pa.string()))]
)


def changes_of(given):
    return read_changes(TABLE, pa.Table.from_pylist(given, schema=COLUMNS).to_batches(max_chunksize=3))


def one_by_one(rows, given):
    """The rows after the changes, as a table that takes one at a time has them."""
    rows = dict(rows)
    for change in given:
        if change["op"] == "truncate":
            rows.clear()
            continue
        new = None if change["new"] is None else dict(change["new"])
        key = (change["old"] or new)["g"], (change["old"] or new)["id"]
        before = rows.get(key)
        for name in change.get("unchanged") or ():
            new[name] = before[name]
        if change["old"] is not None:
            rows.pop(key, None)
        if new is not None:
            rows[new["g"], new["id"]] = new
    return rows


def some_changes(chance, rows):
    """Changes that a source could have made of these rows."""
    rows, given = dict(rows), []
    for _ in range(chance.randrange(12)):
        key, row = (chance.choice("ab"), chance.randrange(4)), {}
        row = {"g": key[0], "id": key[1], "v": chance.randrange(9), "w": chance.randrange(9)}
        what = chance.random()
        if what < 0.04:
            given.append({"op": "truncate", "old": None, "new": None, "unchanged": None})
        elif key not in rows:
            given.append({"op": "insert", "old": None, "new": row, "unchanged": None})
        elif what < 0.3:
            given.append({"op": "delete", "old": {"g": key[0], "id": key[1]}, "new": None, "unchanged": None})
        else:
            to = (chance.choice("ab"), chance.randrange(4)) if what < 0.6 else key
            to = key if to in rows else to
            kept = [name for name in ("v", "w") if chance.random() < 0.3]
            new = {**row, "g": to[0], "id": to[1], **dict.fromkeys(kept)}
            old = {"g": key[0], "id": key[1]} if to != key or chance.random() < 0.5 else None
            given.append({"op": "update", "old": old, "new": new, "unchanged": kept or None})
        rows = one_by_one(rows, given[-1:])
    return given


def test_booleans_are_read_as_the_log_and_as_a_query_writes_them():
    texts = ["t", "true", "f", "false", None]
    assert values("t", "c", texts, pa.bool_()).to_pylist() == [True, True, False, False, None]
    with pytest.raises(SourceUnfit, match="has the value 'yes'"):
        values("t", "c", ["t", "yes"], pa.bool_())


@pytest.mark.parametrize("seed", range(150))
def test_changes_at_once_come_to_what_they_come_to_one_by_one(seed):
    chance = random.Random(seed)
    rows = {}
    for _ in range(3):
        given = some_changes(chance, rows)
        wanted = one_by_one(rows, given)
        changes = changes_of(given)
        wants = {(key["g"], key["id"]) for key in lacking_keys(TABLE, changes).to_pylist()}
        assert wants <= rows.keys()
        base = pa.Table.from_pylist([rows[key] for key in wants], schema=ROW)
        net = net_of(TABLE, filled(TABLE, changes, base))
        left = {} if net.replaces else dict(rows)
        for key in net.gone.to_pylist():
            left.pop((key["g"], key["id"]), None)
        come = [(row["g"], row["id"]) for row in net.come.to_pylist()]
        assert len(set(come)) == len(come)
        left.update(zip(come, net.come.to_pylist(), strict=True))
        assert left == wanted
        rows = wanted


def test_a_row_that_lends_a_column_must_be_there():
    update = {"op": "update", "old": None, "new": {"g": "a", "id": 1}, "unchanged": ["v"]}
    with pytest.raises(
        SchemaMismatch, match="change 0 of table 't' leaves column 'v' of the row with g = a, id = 1"
    ):
        filled(TABLE, changes_of([update]), ROW.empty_table())
    with pytest.raises(SchemaMismatch, match="an earlier change has taken away"):
        lacking_keys(TABLE, changes_of([{"op": "delete", "old": {"g": "a", "id": 1}, "new": None}, update]))


def test_a_table_without_a_key_takes_no_changes():
    keyless = TableSpec(name="k", schema=ROW, spec=PartitionSpec.parse(["g"], ROW))
    with pytest.raises(SqlError, match="primary key"):
        read_changes(keyless, [])
    assert len(puts(TABLE, ROW.empty_table())) == 0


def batch(to, *at, log="s"):
    return ChangeBatch(changes=pa.table({"at": pa.array(at, pa.int64())}), position=SourcePosition(to, log))


def test_what_is_there_already_is_cut():
    since = SourcePosition(10, "s")
    span, left = cut("t", since, batch(20, 5, 10, 11, 11, 20))
    assert span == SourceSpan(since, SourcePosition(20, "s"))
    assert left.column("at").to_pylist() == [11, 11, 20]
    for known in (batch(10, 5, 10), batch(7, 5), batch(10)):
        assert cut("t", since, known)[0] is None
    assert cut("t", since, batch(30))[0] == SourceSpan(since, SourcePosition(30, "s"))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (batch(20, 11, log="other"), "is of another log"),
        (batch(20, 12, 11), "is not in the order of commits"),
        (batch(20, 12, None), "is not in the order of commits"),
        (batch(20, 12, 21), "ends before its changes do"),
    ],
)
def test_a_batch_that_lacks_something_is_refused(given, reason):
    with pytest.raises(SourceUnfit, match=reason):
        cut("t", SourcePosition(10, "s"), given)


def test_rows_and_position_move_by_one_decision_and_only_from_where_the_table_stands():
    first, second, third = (SourcePosition(at, "s") for at in (1, 2, 3))
    statements = TableDecisions(MemoryStore(), "t")
    assert statements.commit("a", "x", affected=0, span=SourceSpan(None, first)).committed
    assert not statements.commit("b", "y", affected=0, span=SourceSpan(None, second)).committed
    assert statements.read().position == first
    assert statements.commit("c", "z", affected=0, span=SourceSpan(first, second)).committed
    assert not statements.commit("d", "u", affected=0, span=SourceSpan(first, third)).committed
    assert statements.commit("e", "other", affected=0).committed
    assert statements.read().position == second
    assert not statements.commit(
        "f", "z", affected=0, span=SourceSpan(second, third)
    ).committed  # the token was used
    assert statements.read().position == second


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"dsn": "x"}, "needs 'table'"),
        ({"table": "t", "dsn": ""}, "needs 'dsn'"),
        ({"dsn": "x", "table": "t", "user": "me"}, "has an option 'user' that is none"),
        ({"dsn": "x", "table": "t", "max_lag_bytes": "much"}, "max_lag_bytes is a positive number"),
    ],
)
def test_options_of_a_database_that_are_none_are_refused(options, reason):
    with pytest.raises(ConfigError, match=reason):
        open_postgres("t", {"format": "postgres", **options})


def test_messages_of_a_log_that_are_garbled_are_refused():
    row = (
        b"I" + (7).to_bytes(4, "big") + b"N" + (2).to_bytes(2, "big") + b"t" + (1).to_bytes(4, "big") + b"5" + b"u"
    )
    found = read_message(row)
    assert (found.relation_id, found.new, found.inserts) == (7, (b"5", UNCHANGED), True)
    for end in range(1, len(row)):
        if end != 5:  # a row of no columns at all is held against the relation
            with pytest.raises(SourceUnfit, match="cut short or garbled"):
                read_message(row[:end])
    with pytest.raises(SourceUnfit, match="which is not known here"):
        read_message(b"?")


@pytest.mark.parametrize(
    ("text", "kind"),
    [("infinity", pa.date32()), ("NaN", pa.decimal128(9, 2)), ("24:00:00", pa.time64("us")), ("x", pa.int64())],
)
def test_a_value_that_no_column_can_hold_is_named(text, kind):
    with pytest.raises(SourceUnfit, match=f"column 'c' of public.t has the value '{text}'"):
        values("public.t", "c", [None, text], kind)


def test_an_attempt_that_was_aborted_moves_nothing():
    statements = TableDecisions(MemoryStore(), "t")
    statements.abort("a")
    assert not statements.commit("a", "x", affected=0, span=SourceSpan(None, SourcePosition(1))).committed
    assert statements.read().position is None
    assert StatementsDocument().position is None


def test_the_token_of_a_span_is_the_same_for_all_and_another_for_each():
    spans = [
        SourceSpan(None, SourcePosition(1, "s")),
        SourceSpan(SourcePosition(1, "s"), SourcePosition(2, "s")),
        SourceSpan(None, SourcePosition(1, "r")),
    ]
    assert len({token_of(span) for span in spans}) == 3
    assert token_of(spans[1]) == token_of(SourceSpan(SourcePosition(1, "s"), SourcePosition(2, "s")))
