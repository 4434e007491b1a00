"""What a statement does to a partition, decided over values alone."""

import pytest

from ballista_py.errors import InvariantViolated, TryLater
from ballista_py.owner.changes import (
    NewRows,
    PartitionChange,
    affected_by,
    applied_before,
    part_of,
    to_fold,
)
from ballista_py.sql.plan import LegTable
from ballista_py.state.documents.decisions import Decision, StatementsDocument
from ballista_py.storage.manifest import AppliedToken, DataFile, ManifestDocument, Prepared
from ballista_py.transport.flight.commands import WriteTarget

A, B, NEW = (DataFile(path=name, rows=rows, bytes=1) for name, rows in (("a", 5), ("b", 6), ("new", 3)))


def target(*partitions: int, **more) -> WriteTarget:
    table = LegTable(table="t", revision=1, partitions=partitions, epochs=tuple(10 + p for p in partitions))
    return WriteTarget(table=table, incarnation="", token="tok", **more)


def test_an_append_touches_the_partitions_that_rows_came_for_and_asks_nothing_of_them():
    new = NewRows(target=target(1, 2, 3), files={2: [NEW]})
    assert new.partitions == [2]
    assert new.is_blind
    assert new.change(2, [A, B]) == PartitionChange((NEW,), (), 3)


def test_a_replacement_touches_all_and_takes_what_is_there():
    new = NewRows(target=target(1, 2, replace=True), files={2: [NEW]})
    assert new.partitions == [1, 2]
    assert not new.is_blind
    assert new.change(1, [A, B]) == PartitionChange((), ("a", "b"), 0)


def test_files_that_lost_a_row_go_and_no_others():
    new = NewRows(target=target(1, 2, remove={1: ("a",)}, base={1: ("a", "b"), 2: ("c",)}), files={1: [NEW]})
    assert new.partitions == [1, 2]
    assert new.change(1, [A, B]) == PartitionChange((NEW,), ("a",), 3)
    assert new.change(2, [DataFile(path="c", rows=1, bytes=1)]) == PartitionChange()


def test_what_was_made_from_other_files_waits_before_any_key_is_looked_at():
    """They may have been merged since: then a key of a row that goes is in a file that stays."""
    new = NewRows(target=target(1, remove={1: ("a",)}, base={1: ("a", "b")}), files={1: [NEW]})
    for here in ([A], [A, B, NEW], [NEW], []):
        with pytest.raises(TryLater, match="has changed since it was read"):
            new.change(1, here)


def test_rows_of_a_partition_that_was_not_named_are_refused():
    with pytest.raises(InvariantViolated):
        NewRows(target=target(1), files={2: [NEW]})


def test_a_statement_that_was_applied_is_found_before_anything_is_waited_for():
    waiting = Prepared(attempt="other", token="else")
    here = ManifestDocument(table="t", partition="p", prepared=(waiting,))
    assert applied_before(here, target(1), unique=False) is None
    with pytest.raises(TryLater):
        applied_before(here, target(1), unique=True)
    assert applied_before(here, target(1, attempt="other"), unique=True) is None
    applied = AppliedToken(token="tok", added=1, removed=0, affected=9)
    after = ManifestDocument(table="t", partition="p", prepared=(waiting,), tokens=(applied,))
    assert applied_before(after, target(1), unique=True) == applied
    assert applied_before(here, target(1), unique=True, earlier=applied) == applied
    assert affected_by(applied, PartitionChange(affected=1)) == 9
    assert affected_by(None, PartitionChange(affected=1)) == 1


def test_only_what_committed_before_a_sequence_is_folded_in_for_it():
    decisions = StatementsDocument(
        decisions=(
            Decision(attempt="x", token="1", committed=True, sequence=1),
            Decision(attempt="y", token="2", committed=False),
            Decision(attempt="z", token="3", committed=True, sequence=2),
        )
    )
    waiting = [(0, "x"), (0, "y"), (1, "z"), (1, "unknown")]
    assert to_fold(waiting, decisions, 1) == [(0, "x", 1)]
    assert to_fold(waiting, decisions, 2) == [(0, "x", 1), (1, "z", 2)]


def test_a_part_of_a_target_keeps_the_epochs_that_were_asked_for():
    part = part_of(target(1, 2, 3).table, 3, 1)
    assert (part.partitions, part.epochs) == ((3, 1), (13, 11))
