"""What an executor holds of one table, decided over values alone."""

from __future__ import annotations

import pyarrow as pa
import pytest
from attrs import evolve

from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.sql.plan import LegTable
from ballista_py.state.members.control import PartitionAssignment, UpdatePartitions
from ballista_py.storage.held.holdings import (
    FIRST_RETRY_MS,
    LONGEST_RETRY_MS,
    MOST_EMPTY,
    Held,
    Holdings,
    told,
    with_told,
)

SCHEMA = pa.schema([("k", pa.int64())])
TABLE = TableSpec(name="t", schema=SCHEMA, spec=PartitionSpec.parse(["bucket(16, k)"], SCHEMA), incarnation="1")


def assigned(partition: int, epoch: int = 1, role: str = "owner") -> PartitionAssignment:
    return PartitionAssignment(partition=partition, path=f"p={partition}", epoch=epoch, role=role)


def update(revision: int, *partitions: PartitionAssignment, table: TableSpec = TABLE, parting=()):
    return UpdatePartitions(
        instance_id="i1", table=table, revision=revision, partitions=partitions, parting=tuple(parting)
    )


def held(assignment: PartitionAssignment, **more) -> Held:
    return Held(**{"assignment": assignment, "revision": 4, "files": {f"f{assignment.partition}": 1}, **more})


def holding(*assignments: PartitionAssignment, revision: int = 1, **more) -> Holdings:
    """All of these told and hydrated."""
    here = Holdings(table=TABLE).told(update(revision, *assignments))
    for assignment in assignments:
        here = here.hydrated(held(assignment, **more))
    return here


def asked(*partitions: tuple[int, int], **more) -> LegTable:
    places, epochs = zip(*partitions, strict=True)
    return LegTable(**{"table": "t", "revision": 1, "partitions": places, "epochs": epochs, **more})


def test_an_older_update_changes_nothing_and_no_epoch_falls():
    here = holding(assigned(1, 5), assigned(2), revision=3)
    assert here.told(update(2, assigned(1, 6))) is here
    same = here.told(update(3, assigned(1, 4), assigned(3)))
    assert same.wanted == {1: assigned(1, 5), 3: assigned(3)}
    assert same.held.keys() == {1}
    newer = here.told(update(4, assigned(1, 6)))
    assert (newer.revision, newer.wanted, newer.hydrated_count()) == (4, {1: assigned(1, 6)}, 0)
    assert newer.held[1].assignment == assigned(1, 5)


def test_a_definition_never_falls():
    altered = evolve(TABLE, definition=2)
    here = Holdings(table=altered, revision=1)
    assert here.told(update(2, table=evolve(TABLE, definition=1))).table is altered
    assert here.told(update(2, table=evolve(TABLE, definition=3))).table.definition == 3
    again = evolve(altered, schema=pa.schema([("k", pa.int32())]))
    assert here.told(update(2, table=again)).table is again


@pytest.mark.parametrize(
    ("mine", "other", "counts"),
    [((2, 9), (3, 1), True), ((3, 1), (2, 9), False), ((0, 5), (0, 4), False), ((0, 5), (0, 5), True)],
)
def test_of_two_tables_of_a_name_the_later_counts(mine, other, counts):
    here = evolve(holding(assigned(1)), table=evolve(TABLE, named=mine[0]), revision=mine[1])
    another = evolve(TABLE, incarnation="2", named=other[0])
    after = here.told(update(other[1], assigned(7), table=another))
    if counts:
        assert (after.table, after.born, after.held, after.wanted.keys()) == (another, other[1], {}, {7})
    else:
        assert after is here


def test_a_failure_is_tried_again_later_and_later_as_long_as_the_same_is_wanted():
    here = Holdings(table=TABLE).told(update(1, assigned(1), assigned(2)))
    assert here.to_hydrate(0.0) == [assigned(1), assigned(2)]
    waits = []
    for _ in range(8):
        here = here.failed(assigned(1), "disk full", 100.0)
        waits.append(here.failures[1].retry_ms - 100.0)
    assert waits[:3] == [FIRST_RETRY_MS, 2 * FIRST_RETRY_MS, 4 * FIRST_RETRY_MS]
    assert waits[-1] == LONGEST_RETRY_MS
    assert here.to_hydrate(100.0 + LONGEST_RETRY_MS - 1) == [assigned(2)]
    assert here.to_hydrate(100.0 + LONGEST_RETRY_MS) == [assigned(1), assigned(2)]
    assert here.report.failed == {1: "disk full"}
    assert here.told(update(2, assigned(1))).failures == here.failures
    assert here.told(update(2, assigned(1, 2))).failures == {}
    assert here.told(update(2, assigned(2))).failures == {}
    assert here.failed(assigned(1, 9), "of another epoch", 0.0) is here
    assert here.failed(assigned(9), "of none", 0.0) is here
    assert here.hydrated(held(assigned(1))).failures == {}
    assert here.hydrated(held(assigned(2))).failures == here.failures


def test_what_is_stale_is_served_until_it_was_hydrated_again():
    here = holding(assigned(1), assigned(2))
    assert here.to_hydrate(0.0) == []
    stale = here.refreshed([2, 9])
    assert (stale.stale, stale.to_hydrate(0.0), stale.hydrated_count()) == ({2}, [assigned(2)], 2)
    assert here.refreshed().stale == {1, 2}
    assert stale.hydrated(held(assigned(1))).stale == {2}
    assert stale.hydrated(held(assigned(2))).stale == frozenset()
    assert stale.told(update(2, assigned(1))).stale == frozenset()
    assert stale.hydrated(held(assigned(2, 7))) is stale
    assert stale.emptied().to_hydrate(0.0) == [assigned(1), assigned(2)]


def test_replaced_files_are_let_go_when_their_time_is_over():
    here = holding(assigned(1), past_ms=50.0).told(update(1, assigned(1), assigned(2)))
    here = here.hydrated(held(assigned(2)))
    assert here.without_the_past(49.0) is here
    assert here.without_the_past(50.0).stale == {1}


def test_the_age_of_replicas_is_that_of_the_one_that_waited_longest():
    replica, other, owned = assigned(1, role="replica"), assigned(2, role="replica"), assigned(3)
    here = Holdings(table=TABLE).told(update(1, replica, other, owned))
    assert here.replicas_checked_ms() is None
    for one, at_ms in ((replica, 7.0), (other, 5.0), (owned, 1.0)):
        here = here.hydrated(held(one, checked_ms=at_ms))
    assert here.replicas_checked_ms() == 5.0
    later = here.confirmed([2, 9], 6.0, None)
    assert (later.replicas_checked_ms(), later.held[2].known_to) == (6.0, -1)
    assert later.confirmed([2], 4.0, 8).held[2].checked_ms == 6.0
    assert later.confirmed([2], 4.0, 8).confirmed([2], 4.0, 3).held[2].known_to == 8


def test_what_is_on_its_way_elsewhere_stays_so_for_its_epoch():
    here = Holdings(table=TABLE).told(update(1, assigned(1, 3), assigned(2, role="target"), parting=[1, 2]))
    assert here.parting == {1: 3}
    assert here.told(update(2, assigned(1, 3))).parting == {1: 3}
    assert here.told(update(2, assigned(1, 4))).parting == {}


def test_an_owner_serves_its_very_epoch_and_a_replica_any_up_to_its_own():
    here = holding(assigned(1, 5), assigned(2, 5, "replica"), assigned(3, 5, "target"))
    for epoch, refused in ((4, [1, 3]), (5, [3]), (6, [1, 2, 3])):
        wanted = asked((1, epoch), (2, epoch), (3, epoch))
        assert here.not_served(wanted) == refused
        assert here.not_owned(wanted) == sorted({2, *refused})
    assert here.not_served(asked((9, 1))) == [9]
    assert here.not_owned(asked((9, 1))) == [9]
    assert (here.report.active, here.report.epochs, here.report.loaded) == ((1, 2), (5, 5), (3,))


def test_a_leg_over_another_table_or_definition_or_moment_is_refused():
    here = evolve(holding(assigned(1), readable_from=4, sequence=6), born=3)
    assert here.not_served(asked((1, 1), revision=3, sequence=4)) == []
    assert here.not_served(asked((1, 1), revision=3, sequence=3)) == [1]
    assert here.not_served(asked((1, 1), revision=2)) == [1]
    assert here.not_served(asked((1, 1), revision=2, incarnation="1")) == []
    assert here.not_served(asked((1, 1), revision=3, incarnation="2")) == [1]
    assert here.not_owned(asked((1, 1), revision=3, incarnation="2")) == [1]
    assert here.not_served(asked((1, 1), revision=3, definition=1)) == [1]
    assert here.not_owned(asked((1, 1), revision=3, definition=1)) == []


def test_files_are_those_of_the_sequence():
    spans = {"old": (1, 3, 10), "kept": (2, None, 11), "new": (5, None, 12)}
    one = held(assigned(1), files={"kept": 11, "new": 12}, spans=spans, sequence=5)
    assert [one.file_ids(at) for at in (None, 6, 5)] == [[11, 12]] * 3
    assert [one.file_ids(at) for at in (4, 3, 2, 1, 0)] == [[11], [11], [10, 11], [10], []]
    assert one.loaded_paths() == {"old", "kept", "new"}


def test_an_owner_is_behind_its_own_newer_commit_alone():
    here = holding(assigned(1, 2), assigned(2, 2, "replica"))
    behind = {at: here.is_behind(*at) for at in ((1, 2, 5), (1, 2, 4), (1, 3, 5), (2, 2, 5), (9, 2, 5))}
    assert [at for at, yes in behind.items() if yes] == [(1, 2, 5)]
    again = evolve(here, held={}).is_behind(1, 2, 5)
    assert not again


def test_the_newest_statement_that_is_folded_in_is_known():
    here = Holdings(table=TABLE).told(update(1, assigned(1), assigned(2)))
    assert here.folded() == 0
    here = here.hydrated(held(assigned(1), sequence=3)).hydrated(held(assigned(2), sequence=7))
    assert (here.folded(), here.folded([1]), here.folded([9])) == (7, 3, 0)


def test_a_table_that_was_renamed_is_held_once_and_an_older_name_changes_nothing():
    named = evolve(TABLE, named=1)
    tables = told({}, update(1, assigned(1), table=named))
    assert told(tables, update(0, table=named)) is tables
    renamed = evolve(TABLE, name="u", made_as="t", named=2)
    after = told(tables, update(2, assigned(1), table=renamed))
    assert after.keys() == {"u"}
    assert told(after, update(3, assigned(1), table=named)) is after


def test_of_tables_of_which_nothing_is_here_the_last_are_kept():
    def empty(number: int) -> Holdings:
        return Holdings(table=evolve(TABLE, name=f"e{number}"))

    tables = {"t": holding(assigned(1))}
    for number in range(MOST_EMPTY + 2):
        tables = with_told(tables, empty(number))
    assert list(tables) == ["t", *(f"e{number}" for number in range(2, MOST_EMPTY + 2))]
    again = with_told(tables, empty(5))
    assert list(again)[-1] == "e5"
    assert len(again) == len(tables)
