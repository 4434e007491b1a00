"""Files that an engine derives from others: the same rows but for some, which are in memory once."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ballista_py.engines.apart.large import said_largest
from ballista_py.engines.duckdb.engine import DuckDBEngine
from ballista_py.engines.engine import LocalFile, RowsAtHand
from ballista_py.errors import NotOwner, SqlError
from ballista_py.sql.rewrite import PLACE
from ballista_py.storage.formats.deletion_vector import numbered

BY_KEY = f'select "{PLACE}" from "t" semi join "k" using (n)'
NUMBERS = pa.schema([("n", pa.int64()), ("word", pa.string())])


def numbers(start: int, stop: int) -> pa.Table:
    values = range(start, stop)
    return pa.table({"n": values, "word": [f"w{value}" for value in values]}, schema=NUMBERS)


@pytest.fixture(params=["memory", "file"])
def duck(request, tmp_path):
    made = DuckDBEngine(*([str(tmp_path / "engine")] if request.param == "file" else []))
    made.create_table("t", NUMBERS)
    yield made
    made.close()


def seen(engine, *ids: int) -> list[int]:
    batches = engine.query("select n from t", {"t": ids}).batches()
    return sorted(n for batch in batches for n in batch.column(0).to_pylist())


def places(*numbers: int):
    return np.array(numbers, np.int64)


def test_a_derived_file_lacks_what_is_gone_and_the_former_has_it(duck):
    duck.load("t", [RowsAtHand(file_id=1, rows=numbers(0, 10)), RowsAtHand(file_id=2, rows=numbers(10, 20))])
    assert duck.derive("t", 3, 1, places(0, 4))
    assert duck.derive("t", 4, 3, places(9))
    assert seen(duck, 3, 2) == [1, 2, 3, 5, 6, 7, 8, 9, *range(10, 20)]
    assert seen(duck, 4) == [1, 2, 3, 5, 6, 7, 8]
    assert seen(duck, 1) == list(range(10))
    duck.unload("t", [1])
    assert seen(duck, 3) == [1, 2, 3, 5, 6, 7, 8, 9]
    duck.unload("t", [3])
    assert seen(duck, 4, 2) == [1, 2, 3, 5, 6, 7, 8, *range(10, 20)]
    with pytest.raises(NotOwner):
        seen(duck, 1)


def test_two_that_are_derived_from_one_do_not_meet(duck):
    """An attempt that comes to nothing, and the next one."""
    duck.load("t", [RowsAtHand(file_id=1, rows=numbers(0, 6))])
    assert duck.derive("t", 2, 1, places(0, 1))
    assert duck.derive("t", 3, 1, places(1, 2))
    assert (seen(duck, 1), seen(duck, 2), seen(duck, 3)) == ([*range(6)], [2, 3, 4, 5], [0, 3, 4, 5])
    duck.unload("t", [2])
    assert (seen(duck, 1), seen(duck, 3)) == ([*range(6)], [0, 3, 4, 5])


def test_nothing_is_derived_from_rows_that_are_not_there(duck):
    duck.load("t", [RowsAtHand(file_id=1, rows=numbers(0, 6))])
    assert not duck.derive("t", 2, 9, places(0))
    assert not duck.derive("elsewhere", 2, 1, places(0))
    assert not duck.derive("t", 2, 1, places(0, 6))
    assert duck.derive("t", 2, 1, places(0))
    assert not duck.derive("t", 3, 2, places(0))
    assert (seen(duck, 1), seen(duck, 2)) == ([*range(6)], [1, 2, 3, 4, 5])
    with pytest.raises(NotOwner):
        seen(duck, 3)


def test_a_query_under_way_sees_what_it_saw_when_it_was_bound(duck):
    duck.load("t", [RowsAtHand(file_id=1, rows=numbers(0, 100_000))])
    running = duck.query("select n from t", {"t": [1]})
    assert duck.derive("t", 2, 1, np.arange(0, 100_000, 2))
    duck.unload("t", [1])
    assert sum(batch.num_rows for batch in running.batches()) == 100_000
    assert len(seen(duck, 2)) == 50_000


def test_places_are_those_in_the_data_file_whatever_was_left_out_of_it(duck, files):
    file = files.write(numbers(0, 1_000), row_group_size=100)
    left = LocalFile(file_id=7, path=file.path, name=file.name, gone=np.arange(0, 500))
    assert duck.load("t", [left]) == 500
    keys = {"k": pa.table({"n": pa.array([3, 500, 777, 2_000], pa.int64())})}
    assert duck.places("t", 7, BY_KEY, keys).tolist() == [500, 777]
    assert duck.derive("t", 8, 7, places(777))
    assert duck.places("t", 8, BY_KEY, keys).tolist() == [500]
    assert duck.places("t", 7, BY_KEY, keys).tolist() == [500, 777]
    assert duck.places("t", 8, f'select "{PLACE}" from "t" as x where x.n > 997').tolist() == [998, 999]
    with pytest.raises(NotOwner):
        duck.places("t", 9, BY_KEY, keys)
    with pytest.raises(SqlError, match="m"):
        duck.places("t", 8, f'select "{PLACE}" from "t" where m > 1')
    with pytest.raises(SqlError, match="INT"):
        duck.places("t", 8, f'select "{PLACE}" from "t" where cast(word as integer) > 1')
    with pytest.raises(SqlError):
        duck.places("t", 8, "select 1 from read_csv('/etc/passwd')")


def test_places_of_what_runs_apart_from_others_are_not_told(duck):
    duck.load("t", [RowsAtHand(file_id=1, rows=numbers(0, 6))])
    assert duck.places("t", 1, f'select "{PLACE}" from "t" where length(repeat(word, 100000000)) > 1') is None


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int64(), [-1, 0, 2**62]),
        (pa.string(), ["", "a", "ä'"]),
        (pa.binary(), [b"", b"\x00"]),
        (pa.date32(), [0, 19_000]),
        (pa.timestamp("us", "UTC"), [0, 10**15]),
        (pa.decimal128(12, 2), ["1.00", "-7.25"]),
        (pa.bool_(), [True, False]),
        (pa.float64(), [0.5, float("inf")]),
    ],
)
def test_places_are_found_by_keys_of_every_type(kind, values):
    from decimal import Decimal

    given_values = [Decimal(v) for v in values] if pa.types.is_decimal(kind) else values
    rows = pa.table([pa.array(given_values, kind), pa.array(range(len(values)), pa.int64())], names=["a", "b"])
    engine = DuckDBEngine()
    try:
        engine.create_table("t", rows.schema)
        engine.load("t", [RowsAtHand(file_id=1, rows=rows)])
        for place in range(len(values)):
            keys = {"k": rows.slice(place, 1)}
            assert engine.places("t", 1, BY_KEY.replace("(n)", "(a, b)"), keys).tolist() == [place]
    finally:
        engine.close()


def test_large_values_of_the_former_file_are_known_of_the_derived_one(duck):
    large = pa.table([pa.array([1, 2]), ["x" * (2 << 20), "y"]], schema=NUMBERS)
    duck.load("t", [RowsAtHand(file_id=1, rows=large)])
    assert duck.derive("t", 2, 1, places(1))
    duck.unload("t", [1])
    assert said_largest(duck.query("select word from t", {"t": [2]}).schema) >= 2 << 20
    assert duck.places("t", 2, f'select "{PLACE}" from "t" where word > \'\'') is None


def test_an_altered_table_keeps_what_was_derived(duck):
    duck.load("t", [RowsAtHand(file_id=1, rows=numbers(0, 6))])
    assert duck.derive("t", 2, 1, places(0))
    assert duck.alter_table("t", pa.schema([NUMBERS.field("n")]))
    assert duck.derive("t", 3, 2, places(5))
    duck.unload("t", [1, 2])
    assert seen(duck, 3) == [1, 2, 3, 4]


def test_what_is_loaded_after_an_alter_does_not_meet_what_was_loaded_before(duck):
    duck.load("t", [RowsAtHand(file_id=1, rows=numbers(0, 6)), RowsAtHand(file_id=2, rows=numbers(10, 16))])
    assert duck.derive("t", 3, 1, places(0))
    assert duck.alter_table("t", pa.schema([NUMBERS.field("n")]))
    duck.load("t", [RowsAtHand(file_id=4, rows=numbers(20, 26).select(["n"]))])
    assert duck.derive("t", 5, 1, places(5))
    assert duck.derive("t", 6, 4, places(1))
    expected = [range(6), range(10, 16), range(1, 6), range(20, 26), range(5), [20, *range(22, 26)]]
    assert [seen(duck, file_id) for file_id in range(1, 7)] == [list(rows) for rows in expected]


def test_large_values_of_a_file_are_known_after_an_alter(duck):
    large = pa.table({"n": [1], "word": ["x" * (2 << 20)]}, schema=NUMBERS)
    duck.load("t", [RowsAtHand(file_id=1, rows=large), RowsAtHand(file_id=2, rows=numbers(0, 6))])
    assert duck.alter_table("t", pa.schema([NUMBERS.field("word")]))
    assert said_largest(duck.query("select word from t", {"t": [1]}).schema) >= 2 << 20


class Derivations(RuleBasedStateMachine):
    """Files that are loaded, derived from each other and unloaded in any order, beside plain sets."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = DuckDBEngine()
        self.engine.create_table("t", NUMBERS)
        self.files: dict[int, dict[int, int]] = {}  # id -> place -> number
        self.origin: dict[int, int] = {}
        self.last = 0

    def teardown(self) -> None:
        self.engine.close()

    @rule()
    def load(self) -> None:
        self.last += 1
        first = 100 * self.last
        self.engine.load("t", [RowsAtHand(file_id=self.last, rows=numbers(first, first + 8))])
        self.files[self.last] = {place: first + place for place in range(8)}
        self.origin[self.last] = self.last

    @precondition(lambda self: self.files)
    @rule(data=st.data())
    def derive(self, data) -> None:
        of = data.draw(st.sampled_from(sorted(self.files)))
        gone = sorted(data.draw(st.sets(st.integers(0, 7), max_size=8)))
        self.last += 1
        done = self.engine.derive("t", self.last, of, np.array(gone, np.int64))
        assert done == (set(gone) <= self.files[of].keys())
        if done:
            self.files[self.last] = {place: n for place, n in self.files[of].items() if place not in gone}
            self.origin[self.last] = self.origin[of]

    @precondition(lambda self: self.files)
    @rule(data=st.data())
    def unload(self, data) -> None:
        gone = data.draw(st.sets(st.sampled_from(sorted(self.files)), min_size=1))
        self.engine.unload("t", gone)
        for file_id in gone:
            del self.files[file_id], self.origin[file_id]

    @rule(data=st.data())
    def read(self, data) -> None:
        by_origin: dict[int, list[int]] = {}
        for file_id, origin in self.origin.items():
            by_origin.setdefault(origin, []).append(file_id)
        chosen = [data.draw(st.sampled_from([None, *ids])) for ids in by_origin.values()]
        ids = [file_id for file_id in chosen if file_id is not None]
        assert seen(self.engine, *ids) == sorted(n for file_id in ids for n in self.files[file_id].values())

    @precondition(lambda self: self.files)
    @rule(data=st.data())
    def places(self, data) -> None:
        of = data.draw(st.sampled_from(sorted(self.files)))
        known = [*self.files[of].values(), -1, 100 * self.origin[of]]
        keys = sorted(data.draw(st.sets(st.sampled_from(known))))
        found = self.engine.places("t", of, BY_KEY, {"k": pa.table({"n": pa.array(keys, pa.int64())})})
        assert found.tolist() == [place for place, n in sorted(self.files[of].items()) if n in keys]

    @invariant()
    def each_is_as_it_was(self) -> None:
        for file_id, rows in self.files.items():
            assert seen(self.engine, file_id) == sorted(rows.values())


TestDerivations = Derivations.TestCase
TestDerivations.settings = settings(max_examples=10, stateful_step_count=15, deadline=None)


@given(
    sizes=st.lists(st.integers(0, 5), max_size=6),
    data=st.data(),
)
def test_what_is_gone_is_left_out_wherever_batches_end(sizes, data):
    total = sum(sizes)
    gone = np.array(sorted(data.draw(st.sets(st.integers(0, max(0, total - 1))))) if total else [], np.int64)
    ends = np.cumsum([0, *sizes])
    batches = [pa.record_batch({"n": pa.array(range(a, b), pa.int64())}) for a, b in pairwise(ends)]
    found = [
        (place, n)
        for at, rows in numbered(batches, gone)
        for place, n in zip(at.tolist(), rows["n"].to_pylist(), strict=True)
    ]
    assert found == [(n, n) for n in range(total) if n not in set(gone.tolist())]
