"""What a manifest lets happen beside a statement that is prepared in it, decided over values alone."""

from __future__ import annotations

import pytest

from ballista_py.errors import InvariantViolated
from ballista_py.storage.manifest import DataFile, ManifestDocument, Prepared


def data(name, rows=2):
    return DataFile(path=name, rows=rows, bytes=rows)


def manifest(*prepared):
    return ManifestDocument(table="t", partition="p", epoch=1, files=(data("a"), data("b")), prepared=prepared)


@pytest.mark.parametrize(
    ("waits", "may"),
    [
        (Prepared(attempt="1", token="1", add=(data("c"),)), True),
        (Prepared(attempt="1", token="1", add=(data("c"),), exclusive=True), False),
        (Prepared(attempt="1", token="1", remove=("b",)), False),
        (Prepared(attempt="1", token="1", remove=("elsewhere",)), True),
    ],
)
def test_a_compaction_waits_for_statements_that_need_the_files_as_they_are(waits, may):
    before = manifest(waits)
    after = before.compacted([data("ab", 4)], ["a", "b"], 1)
    assert (after is not before) is may
    if may:
        assert [file.path for file in after.files] == ["ab"]
        assert after.prepared == (waits,)


def test_a_compaction_changes_no_rows_and_comes_once():
    before = manifest()
    with pytest.raises(InvariantViolated):
        before.compacted([data("ab", 3)], ["a", "b"], 1)
    after = before.compacted([data("ab", 4)], ["a", "b"], 1)
    assert after.compacted([data("ab", 4)], ["a", "b"], 1) is after
