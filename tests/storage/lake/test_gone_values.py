"""Rows that are gone by their values: the same rows that sets of Python would find."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from ballista_py.storage.lake.deletes import GoneValues

SCHEMA = pa.schema([("x", pa.float64()), ("y", pa.string()), ("z", pa.int32())])


def key(row: tuple) -> tuple:
    number = row[0]
    return ("nan" if number is not None and number != number else repr(number), *row[1:])


@pytest.mark.parametrize("seed", range(60))
def test_any_number_of_columns_with_nulls_and_nan_is_found_as_sets_find_it(seed):
    chance = random.Random(seed)

    def rows(count: int) -> list[tuple]:
        return [
            (
                chance.choice([None, 1.0, 2.0, float("nan"), -0.0]), chance.choice([None, "a", "b", "c"]),
                chance.choice([None, 1, 2]),
            )
            for _ in range(count)
        ]  # fmt: skip

    def table(found: list[tuple]) -> pa.Table:
        return pa.Table.from_pylist([dict(zip("xyz", row, strict=True)) for row in found], schema=SCHEMA)

    gone, here = rows(chance.randrange(7)), rows(40)
    columns = {name: table(here).column(name).combine_chunks() for name in "xyz"}
    found = GoneValues.of(table(gone)).gone(columns, len(here)).tolist()
    assert found == [key(row) in set(map(key, gone)) for row in here]


def test_columns_that_are_not_there_in_the_deletes_find_nothing():
    gone = GoneValues.of(SCHEMA.empty_table().select(["z"]))
    assert not gone.gone({"z": pa.array([1, None], pa.int32())}, 2).any()
