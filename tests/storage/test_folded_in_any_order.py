"""Statements that wait together are folded into a manifest in any order: as of each sequence it is read alike."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from ballista_py.state.documents.decisions import TableDecisions
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.storage.held.holdings import Held
from ballista_py.storage.held.loads import PartitionLoad, held_of, needed_files
from ballista_py.storage.manifest import DataFile, ManifestDocument, Prepared
from ballista_py.storage.publication import visible_files

EPOCH = 1
SCHEMA = pa.schema([("k", pa.int64())])


@frozen
class Statement:
    """One that committed as `number` and replaces some of the files that were there before all."""

    number: int
    removes: tuple[str, ...]

    @property
    def prepared(self) -> Prepared:
        add = (DataFile(path=f"new{self.number}", rows=1, bytes=1),)
        return Prepared(attempt=f"a{self.number}", token=f"t{self.number}", add=add, remove=self.removes)


def with_all_prepared(statements, here) -> ManifestDocument:
    manifest = ManifestDocument(table="t", partition="p").activated(EPOCH, "o")
    manifest = manifest.committed([DataFile(path=path, rows=1, bytes=1) for path in here], (), EPOCH, "first")
    for statement in statements:
        manifest = manifest.with_prepared(statement.prepared, EPOCH)
    return manifest


def seen_at(manifest: ManifestDocument, sequence: int) -> set[str]:
    """What a query as of the sequence reads at an owner that holds the manifest."""
    files = needed_files(manifest)
    load = PartitionLoad(None, manifest=manifest)  # type: ignore[arg-type]  # it is not asked for here
    held: Held = held_of(load, {file.path: number for number, file in enumerate(files)}, SCHEMA, 0.0)
    return {files[number].path for number in held.file_ids(sequence)}


def expected(statements, here, sequence) -> set[str]:
    counted = [one for one in statements if one.number <= sequence]
    gone = {path for one in counted for path in one.removes}
    return {*here, *(f"new{one.number}" for one in counted)} - gone


@given(st.data(), st.integers(1, 5))
def test_whatever_was_folded_in_first(data, count):
    here = [f"old{number}" for number in range(count + 2)]
    left = data.draw(st.permutations(here))
    statements = [Statement(n + 1, (left[n],) if data.draw(st.booleans()) else ()) for n in range(count)]
    manifest = with_all_prepared(statements, here)
    order = data.draw(st.permutations(statements))
    folded: set[int] = set()
    for one in order:
        manifest = manifest.folded(one.prepared.attempt, EPOCH, one.number)
        folded.add(one.number)
        for sequence in range(max(folded) + 1):
            if set(range(1, sequence + 1)) <= folded:  # what a query needs is folded in before it reads
                assert seen_at(manifest, sequence) == expected(statements, here, sequence)


@pytest.mark.parametrize("order", list(itertools.permutations((1, 2, 3))))
def test_readers_that_go_by_decisions_see_the_same(order):
    """Spark, and whoever is no owner, read a manifest in which some wait still and some were folded in before."""
    decisions = TableDecisions(MemoryStore(), "t")
    statements = [Statement(n, (f"old{n}",) if n == 2 else ()) for n in (1, 2, 3)]
    manifest, at = with_all_prepared(statements, ["old1", "old2"]), []
    for one in statements:
        assert decisions.commit(one.prepared.attempt, one.prepared.token, affected=1).sequence == one.number
        at.append(decisions.read())
    for number in order:
        manifest = manifest.folded(f"a{number}", EPOCH, number)
        for sequence, known in enumerate(at, 1):
            found = {file.path for file in visible_files(manifest, known)}
            assert found == expected(statements, ["old1", "old2"], sequence)


def test_a_change_that_read_an_earlier_sequence_is_made_from_the_files_of_that_one():
    manifest = with_all_prepared([Statement(1, ()), Statement(2, ())], ["old"])
    manifest = manifest.folded("a2", EPOCH, 2).folded("a1", EPOCH, 1)
    assert {file.path for file in manifest.files_at(1)} == {"old", "new1"}
    assert {file.path for file in manifest.files_at(2)} == {"old", "new1", "new2"}
    assert manifest.sequence == 2
