"""Which deletes of an Iceberg table apply to which file: by age, partition and path, as the specification has it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ballista_py.errors import SourceUnfit
from ballista_py.storage.lake.iceberg_deletes import EQUALITY, POSITIONS, DeleteEntry, DeleteIndex, referenced_path

HERE, THERE = (0, ("a",)), (0, ("b",))


def index(*entries: DeleteEntry) -> DeleteIndex:
    found = DeleteIndex("the table", lambda numbers: pa.schema([(f"c{number}", pa.int64()) for number in numbers]))
    for entry in entries:
        found.add(entry)
    return found


def entry(path: str, content: int, sequence: int, partition=HERE, **more) -> DeleteEntry:
    given = {"format": "PARQUET", "size": 9, "rows": 1, "equality_ids": (1,) if content == EQUALITY else ()}
    return DeleteEntry(path=path, content=content, sequence=sequence, partition=partition, **{**given, **more})


def names(found: DeleteIndex, path: str, sequence: int, partition=HERE) -> list[str | None]:
    return [one.path for one in found.of(path, sequence, partition)]


def test_positions_apply_to_files_as_old_or_older_and_values_to_older_ones():
    found = index(entry("p", POSITIONS, 5), entry("v", EQUALITY, 5))
    assert names(found, "f", 4) == ["p", "v"]
    assert names(found, "f", 5) == ["p"]
    assert names(found, "f", 6) == []


def test_deletes_are_of_their_partition_and_values_without_one_are_of_all():
    found = index(entry("p", POSITIONS, 5), entry("v", EQUALITY, 5), entry("all", EQUALITY, 5, None))
    assert names(found, "f", 1, THERE) == ["all"]
    assert names(found, "f", 1) == ["p", "v", "all"]


def test_positions_of_one_file_are_of_no_other_one():
    found = index(entry("p", POSITIONS, 5, referenced="f"))
    assert names(found, "f", 5, THERE) == ["p"]
    assert names(found, "g", 5) == []


def test_a_vector_stands_for_the_positions_that_it_holds_and_not_for_values():
    vector = entry("d", POSITIONS, 6, format="PUFFIN", referenced="f", offset=4, length=50)
    found = index(entry("p", POSITIONS, 5), entry("v", EQUALITY, 5), vector)
    assert names(found, "f", 4) == ["d", "v"]
    assert names(found, "g", 4) == ["p", "v"]
    assert names(found, "f", 7) == []  # of a file that came later under the path
    with pytest.raises(SourceUnfit, match="two deletion vectors"):
        found.add(vector)


@pytest.mark.parametrize(
    ("content", "more"),
    [(3, {}), (EQUALITY, {"equality_ids": ()}), (POSITIONS, {"format": "ORC"}), (POSITIONS, {"format": "PUFFIN"})],
)
def test_deletes_that_are_not_understood_are_refused(content, more):
    with pytest.raises(SourceUnfit):
        index(entry("x", content, 1, **more))


def test_bounds_name_a_file_only_where_they_are_one_path():
    assert referenced_path(None, b"/a", b"/a") == "/a"
    assert referenced_path(None, b"/a", b"/b") is None
    assert referenced_path(None, None, None) is None
    assert referenced_path("/x", b"/a", b"/a") == "/x"
    assert referenced_path(None, b"\xff", b"\xff") is None
