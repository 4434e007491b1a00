"""Changes by primary key at a real cluster: what they come to is there at one instant, once, wherever rows belong."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from ballista_py import LocalCluster
from ballista_py.errors import SchemaMismatch, SqlError

pytestmark = pytest.mark.cluster

ROW = pa.schema([("region", pa.string()), ("id", pa.int64()), ("v", pa.int64()), ("note", pa.string())])
KEY = pa.struct([ROW.field("region"), ROW.field("id")])
CHANGES = pa.schema(
    [("op", pa.string()), ("old", KEY), ("new", pa.struct(list(ROW))), ("unchanged", pa.list_(pa.string()))]
)


@pytest.fixture(scope="module")
def small() -> Iterator[LocalCluster]:
    with LocalCluster(schedulers=2, executors=2) as cluster:
        yield cluster


@pytest.fixture
def events(small):
    small.create_table("events", schema=ROW, partition_by=["region"], primary_key=["region", "id"])
    yield "events"
    small.drop_table("events")


def row(region: str, number: int, value: int = 0, note: str | None = None) -> dict[str, Any]:
    return {"region": region, "id": number, "v": value, "note": note}


def put(new: dict[str, Any], old: tuple[str, int] | None = None, *unchanged: str) -> dict[str, Any]:
    key = None if old is None else dict(zip(("region", "id"), old, strict=True))
    return {"op": "update", "old": key, "new": new, "unchanged": list(unchanged) or None}


def insert(*args: Any) -> dict[str, Any]:
    return {"op": "insert", "old": None, "new": row(*args)}


def delete(region: str, number: int) -> dict[str, Any]:
    return {"op": "delete", "old": {"region": region, "id": number}, "new": None}


TRUNCATE = {"op": "truncate", "old": None, "new": None}


def batch(*changes: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(changes), schema=CHANGES)


def found(cluster: LocalCluster) -> list[tuple[Any, ...]]:
    return sorted(tuple(one.values()) for one in cluster.sql("select * from events").to_pylist())


def test_changes_come_to_what_they_come_to_one_by_one(small, events):
    with small.client() as client:
        assert client.apply_changes(events, batch(insert("a", 1, 1), insert("a", 2, 2), insert("b", 3, 3))) == 3
        assert (
            client.apply_changes(
                events,
                batch(
                    put(row("b", 1, 10), ("a", 1)),  # it moves
                    put(row("a", 2, 20)),
                    put(row("a", 2, 21)),
                    delete("b", 3),
                    delete("nowhere", 9),
                    insert("c", 4, 4),  # to a partition that there was not
                    insert("c", 5, 5),
                    delete("c", 5),
                ),
            )
            == 8
        )
        assert found(small) == [("a", 2, 21, None), ("b", 1, 10, None), ("c", 4, 4, None)]
        swapped = batch(put(row("x", 0), ("a", 2)), put(row("a", 2, 1), ("b", 1)), put(row("b", 1, 2), ("x", 0)))
        assert client.apply_changes(events, swapped) == 3
        assert found(small) == [("a", 2, 1, None), ("b", 1, 2, None), ("c", 4, 4, None)]
        assert client.apply_changes(events, batch(insert("z", 1), TRUNCATE, insert("a", 7, 7))) == 3
        assert found(small) == [("a", 7, 7, None)]
        assert client.apply_changes(events, batch()) == 0
        assert client.apply_changes(events, batch(delete("a", 7), delete("a", 7))) == 2
        assert found(small) == []


def test_what_is_unchanged_stays_wherever_the_row_goes(small, events):
    with small.client() as client:
        client.apply_changes(events, batch(insert("a", 1, 1, "long"), insert("a", 2, 2, "other")))
        client.apply_changes(
            events,
            batch(
                put(row("a", 1, 5), None, "note"),
                put(row("b", 1, 6), ("a", 1), "note"),
                put(row("b", 1, 7), None, "note"),
                insert("c", 3, 3, "fresh"),
                put(row("c", 4, 0), ("c", 3), "note", "v"),
            ),
        )
        assert found(small) == [("a", 2, 2, "other"), ("b", 1, 7, "long"), ("c", 4, 3, "fresh")]
        for changes, reason in (
            ([put(row("a", 9), None, "note")], "there is no such row"),
            ([delete("a", 2), put(row("a", 2), None, "note")], "an earlier change has taken away"),
            ([TRUNCATE, put(row("a", 2), None, "note")], "an earlier change has taken away"),
            ([put(row("a", 2), None, "id")], "says that 'id' is unchanged"),
        ):
            with pytest.raises(SchemaMismatch, match=reason):
                client.apply_changes(events, batch(*changes))
        assert len(found(small)) == 3


def test_a_token_is_applied_once_and_stands_for_these_changes_in_this_order(small, events):
    with small.client() as client:
        first = batch(insert("a", 1, 1), put(row("a", 1, 2)))
        assert client.apply_changes(events, first, token="once") == 2
        client.apply_changes(events, batch(put(row("a", 1, 9))))
        assert client.apply_changes(events, first, token="once") == 2
        assert found(small) == [("a", 1, 9, None)]
        with pytest.raises(SqlError, match="token 'once' was used"):
            client.apply_changes(events, batch(put(row("a", 1, 2)), insert("a", 1, 1)), token="once")
        assert client.apply_changes(events, batch(), token="none") == 0


def test_what_cannot_be_read_is_refused_and_nothing_is_changed(small, events):
    small.create_table("keyless", schema=ROW, partition_by=["region"])
    with small.client() as client:
        client.apply_changes(events, batch(insert("a", 1, 1)))
        with pytest.raises(SqlError, match="has no primary key by which changes could name its rows"):
            client.apply_changes("keyless", batch(insert("a", 1, 1)))
        good = insert("b", 2, 2)
        for wrong, reason in (
            ({**good, "op": "upsert"}, "change 1 .* has an op that is none of"),
            ({**good, "op": None}, "change 1 .* has an op that is none of"),
            ({**good, "new": None}, "has none in 'new'"),
            ({**good, "old": {"region": "a", "id": 1}}, "needs no key in 'old'"),
            ({"op": "delete", "old": None, "new": None}, "has no key in 'old'"),
            ({"op": "delete", "old": {"region": "a"}, "new": None}, "row 0 has no value in column 'id'"),
            ({**TRUNCATE, "new": row("a", 1)}, "leaves no row"),
            (insert(None, 3), "no value in column 'region'"),
        ):
            with pytest.raises(SchemaMismatch, match=reason):
                client.apply_changes(events, batch(good, wrong))
        for columns, reason in (
            (batch(good).drop_columns(["old"]), "no column 'old'"),
            (batch(good).append_column("more", [[1]]), "a column 'more' too many"),
            (batch(good).set_column(1, "old", [["a"]]), "'old' of changes is a struct"),
            (
                pa.table({"op": ["insert"], "old": pa.nulls(1, KEY), "new": pa.array([{"id": 1}])}),
                "no column 'region'",
            ),
            (
                pa.table(
                    {"op": ["delete"], "old": pa.array([{"id": 1}]), "new": pa.nulls(1, pa.struct(list(ROW)))}
                ),
                "'old' has no column 'region'",
            ),
        ):
            with pytest.raises(SchemaMismatch, match=reason):
                client.apply_changes(events, columns)
    assert found(small) == [("a", 1, 1, None)]
    small.drop_table("keyless")


def test_random_changes_are_those_of_one_table_whoever_sends_them(small, events):
    """Of several clients at once each has keys of its own, so the end is known."""

    def one(seed: int) -> dict[tuple[str, int], tuple[int, str | None]]:
        chance, rows = random.Random(seed), {}
        with small.client() as client:
            for _ in range(6):
                changes = []
                for _ in range(chance.randrange(1, 12)):
                    key = (chance.choice("abcd"), 10 * chance.randrange(4) + seed)
                    value, note = chance.randrange(100), chance.choice(["x", None, "y" * 40])
                    if key not in rows:
                        rows[key] = (value, note)
                        changes.append(insert(*key, value, note))
                    elif chance.random() < 0.3:
                        del rows[key]
                        changes.append(delete(*key))
                    elif chance.random() < 0.4:
                        kept = rows.pop(key)[1]
                        to = (chance.choice("abcd"), key[1])
                        rows[to] = (value, kept)
                        changes.append(put(row(*to, value), key, "note"))
                    else:
                        rows[key] = (value, note)
                        changes.append(put(row(*key, value, note)))
                client.apply_changes(events, batch(*changes))
        return rows

    with ThreadPoolExecutor(3) as pool:
        wanted = {key: kept for rows in pool.map(one, range(3)) for key, kept in rows.items()}
    assert found(small) == sorted((*key, *kept) for key, kept in wanted.items())


def test_a_key_is_there_once_whichever_form_its_value_has(small):
    """To Arrow 0.0 and -0.0 are two values, and NaN is none of those that are NaN; to a primary key they are one."""
    small.sql("create table forms (k double, v bigint, primary key (k))")
    try:
        keys = [0.0, -0.0, float("nan"), -float("nan")]
        new = [{"k": key, "v": place} for place, key in enumerate(keys)]
        kinds = pa.struct([("k", pa.float64())]), pa.struct([("k", pa.float64()), ("v", pa.int64())])
        changes = pa.table({"op": ["insert"] * 4, "old": pa.nulls(4, kinds[0]), "new": pa.array(new, kinds[1])})
        with small.client() as client:
            client.apply_changes("forms", changes)
            counted = "select count(*) as n, count(distinct k) as d, sum(v) as s from forms"
            assert small.sql(counted).to_pylist() == [{"n": 2, "d": 2, "s": 1 + 3}]
            with pytest.raises(SqlError, match="two rows have the primary key"):
                client.ingest("forms", pa.table({"k": keys[:2], "v": [1, 2]}), mode="upsert")
            client.ingest("forms", pa.table({"k": [keys[0], keys[3]], "v": [10, 20]}), mode="upsert")
        assert small.sql(counted).to_pylist() == [{"n": 2, "d": 2, "s": 30}]
    finally:
        small.sql("drop table forms")
