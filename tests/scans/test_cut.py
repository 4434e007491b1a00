"""Files into tasks: nothing is lost, doubled, or larger than it must be."""

from __future__ import annotations

import random
import time
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ballista_py.errors import InvalidData
from ballista_py.scans.cut import OPEN_BYTES, cut, tasks_of
from ballista_py.scans.storage_credentials import StorageCredentials
from ballista_py.scans.task import DeletionVector, FileSlice, PositionDeletes

TARGET = 100


@st.composite
def scans(draw):
    """Files, of some the footers, of some only a part of the row groups."""
    files, footers = [], {}
    for number in range(draw(st.integers(0, 12))):
        path = f"f{number}"
        sizes = draw(st.lists(st.integers(0, 150), min_size=1, max_size=8))
        wanted = None
        if draw(st.booleans()):
            footers[path] = sizes
            if draw(st.booleans()):
                wanted = tuple(sorted(draw(st.sets(st.integers(0, len(sizes) - 1), min_size=1))))
        deletes = (PositionDeletes(path="d", size=draw(st.integers(0, 30))),) if draw(st.booleans()) else ()
        files.append(FileSlice(path=path, size=sum(sizes), row_groups=wanted, deletes=deletes))
    return files, footers


def row_groups(files, footers):
    """Every row group that is read, how often; a whole file without a footer as one."""
    found = Counter()
    for file in files:
        if file.row_groups is None:
            found.update(
                (file.path, n) for n in (range(len(footers[file.path])) if file.path in footers else [-1])
            )
        else:
            found.update((file.path, n) for n in file.row_groups)
    return found


@given(scans(), st.integers(0, 10), st.integers(1, 5))
@settings(max_examples=500)
def test_every_row_group_is_in_exactly_one_task_and_none_is_larger_than_it_must_be(scan, opening, most):
    files, footers = scan
    groups = cut(files, TARGET, footers, open_bytes=opening, most_files=most)
    found = row_groups([piece for group in groups for piece in group], footers)
    assert found == row_groups(files, footers)
    assert all(count == 1 for count in found.values())
    for group in groups:
        assert 1 <= len(group) <= most
        cost = sum(piece.cost + opening for piece in group)
        alone = len(group) == 1 and (group[0].path not in footers or len(row_groups(group, footers)) == 1)
        assert cost <= TARGET or alone
    costs = [sum(piece.cost + opening for piece in group) for group in groups]
    assert costs == sorted(costs, reverse=True)
    for piece in (piece for group in groups for piece in group if piece.path in footers):
        wanted = range(len(footers[piece.path])) if piece.row_groups is None else piece.row_groups
        assert piece.read_bytes == sum(footers[piece.path][n] for n in wanted)


@given(scans(), st.randoms(use_true_random=False))
def test_the_order_of_the_files_does_not_matter(scan, chance):
    files, footers = scan
    shuffled = list(files)
    chance.shuffle(shuffled)
    assert cut(shuffled, TARGET, footers, open_bytes=1) == cut(files, TARGET, footers, open_bytes=1)


@given(st.lists(st.integers(1, TARGET), max_size=60))
def test_small_files_are_packed_so_that_no_two_tasks_would_fit_into_one(sizes):
    files = [FileSlice(path=f"f{n:03}", size=size) for n, size in enumerate(sizes)]
    loads = sorted(sum(file.cost for file in group) for group in cut(files, TARGET, open_bytes=0))
    assert len(loads) < 2 or loads[0] + loads[1] > TARGET


def test_a_large_file_is_cut_and_its_smallest_piece_packed_with_small_files():
    files = [FileSlice(path="a", size=250), FileSlice(path="b", size=30), FileSlice(path="c", size=20)]
    groups = cut(files, TARGET, {"a": [50] * 5}, open_bytes=0)
    assert [[(piece.path, piece.row_groups) for piece in group] for group in groups] == [
        [("a", (0, 1))],
        [("a", (2, 3))],
        [("a", (4,)), ("b", None), ("c", None)],
    ]


def test_pieces_of_one_file_that_come_together_read_its_deletes_once():
    deletes = (PositionDeletes(path="d", size=10),)
    files = [FileSlice(path="a", size=9, row_groups=(n,), deletes=deletes) for n in (2, 0)]
    ((piece,),) = cut(files, TARGET, {"a": [5, 5, 5]}, open_bytes=0)
    assert (piece.row_groups, piece.read_bytes, piece.cost) == ((0, 2), 10, 20)


def test_a_file_costs_what_is_read_of_it_where_that_is_known_and_its_deletes():
    deletes = (PositionDeletes(path="d", size=7), DeletionVector(kind="puffin", path="v", offset=100, length=3))
    assert FileSlice(path="a", size=100).cost == 100
    assert FileSlice(path="a", size=100, read_bytes=0).cost == 0
    assert FileSlice(path="a", size=100, read_bytes=20, deletes=deletes).cost == 30


def test_pieces_of_one_file_with_other_deletes_stay_apart():
    files = [
        FileSlice(path="a", size=9, row_groups=(n,), deletes=(PositionDeletes(path=f"d{n}", size=n),))
        for n in (1, 2)
    ]
    ((one, other),) = cut(files, TARGET, {"a": [5, 5, 5]}, open_bytes=0)
    assert [one.row_groups, other.row_groups] == [(1,), (2,)]


@pytest.mark.parametrize(
    "files",
    [
        [FileSlice(path="a", size=1), FileSlice(path="a", size=1)],
        [FileSlice(path="a", size=1), FileSlice(path="a", size=1, row_groups=(1,))],
        [FileSlice(path="a", size=1, row_groups=(0, 2)), FileSlice(path="a", size=1, row_groups=(1, 2))],
        [FileSlice(path="a", size=1, row_groups=(0, 9)), FileSlice(path="a", size=1, row_groups=(1, 5, 9))],
        [FileSlice(path="a", size=1, row_groups=(3,))],
    ],
)
def test_what_would_be_read_twice_or_is_not_there_is_refused(files):
    footers = {"a": [1, 1, 1]} if len(files) == 1 else None
    with pytest.raises(InvalidData, match="'a'"):
        cut(files, TARGET, footers)


def test_the_tasks_have_numbers_and_the_credentials_of_their_place():
    groups = cut([FileSlice(path=f"s3://{bucket}/x", size=90) for bucket in "ab"], TARGET, open_bytes=0)
    made = tasks_of(
        "f1",
        groups,
        pa.schema([("a", pa.int64())]),
        credentials_of=lambda path: StorageCredentials(location=path, values={}),
    )
    assert [(task.name, task.credentials.location, task.columns) for task in made] == [
        ("f1/0", "s3://a/x", ("a",)),
        ("f1/1", "s3://b/x", ("a",)),
    ]


def test_a_hundred_thousand_files_are_cut_within_seconds():
    chance = random.Random(0)
    files = [FileSlice(path=f"f{n:06}", size=chance.randrange(1, 30 << 20)) for n in range(100_000)]
    began = time.perf_counter()
    groups = cut(files)
    assert time.perf_counter() - began < 15
    least = sum(file.cost + OPEN_BYTES for file in files) / (64 << 20)
    assert len(groups) <= 1.01 * least + 1
