"""Maps, plans, promotions, the reconcile loop, notification and the fence."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from attrs import evolve, frozen

from ballista_py.errors import (
    DocumentUnreadable,
    Fenced,
    InvariantViolated,
    LeaseExpired,
    NotOwner,
    ObjectExists,
    ObjectMissing,
    PartitionsUnassigned,
    StoreUnavailable,
)
from ballista_py.partitions.assignment.assigner import Executor, PartitionAssigner
from ballista_py.partitions.discovery import diff_partitions
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.state.documents.documents import (
    ClusterDocument,
    PartitionMapDocument,
    SchedulerInfo,
    partition_map_key,
)
from ballista_py.state.documents.fence import activate, require_epoch
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.members.control import ExecutorInfo, HeldPartitions
from ballista_py.state.members.membership import Membership
from ballista_py.state.ownership.notify import desired, unsettled
from ballista_py.state.ownership.partition_store import PartitionStore
from ballista_py.state.ownership.reconciler import Discovery, Reconciler
from ballista_py.state.ownership.stalled_moves import COOL_DOWN_MS, FAILED_MOVE_MS, MOVE_TIMEOUT_MS

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("region", pa.string())])
BUCKETS = PartitionSpec.parse(["bucket(4, id)"], SCHEMA)
E1, E2, E3 = (Executor(f"e{n}", f"i{n}") for n in (1, 2, 3))


def table(name="t", spec=BUCKETS, **more) -> TableSpec:
    return TableSpec(name=name, schema=SCHEMA, spec=spec, **more)


def info(executor: Executor) -> ExecutorInfo:
    return ExecutorInfo(executor_id=executor.executor_id, instance_id=executor.instance_id, data_address="h:1")


@pytest.fixture
def cluster(unreliable):
    state = ObjectState(unreliable, "cluster.json", ClusterDocument)
    state.create(ClusterDocument().admit(info(E1)).admit(info(E2)))
    return state


@pytest.fixture
def partitions(unreliable, runtime, cluster):
    return PartitionStore(unreliable, runtime=runtime, committed_by="me")


@pytest.fixture
def pmap(partitions):
    return partitions.create(PartitionMap.build("t", BUCKETS, BUCKETS.static_values()))


def assign(pmap, *executors):
    return PartitionAssigner().assign(pmap, executors)


def hand_over(partitions, pmap, cluster):
    """E1 has handed two of its four partitions over to E2, and E3 is there, too."""
    cluster.update(lambda document: document.admit(info(E3)))
    owned = partitions.commit(assign(pmap, E1)).map
    moving = partitions.commit(assign(owned, E1, E2))
    moved = moving.targeted.tolist()
    loaded, parting = dict.fromkeys(moved, E2.owner), dict.fromkeys(moved, 1)
    return moved, partitions.commit(assign(moving.map, E1, E2), loaded=loaded, parting=parting).map


def told(*partitions, epoch=1):
    """What an owner says that knows of moves."""
    return HeldPartitions(table="t", revision=1, parting=dict.fromkeys(partitions, epoch))


def lose(cluster, *executors):
    cluster.update(lambda document: document.without_executors(frozenset(e.owner for e in executors)))


class TestPartitionStore:
    def test_a_map_is_read_back_at_the_revision_of_its_document(self, partitions, pmap):
        assert pmap.revision == 1
        assert partitions.read("t") == pmap
        with pytest.raises(ObjectExists):
            partitions.create(pmap)
        assert partitions.ensure(PartitionMap.build("t", BUCKETS, BUCKETS.static_values()[:2])) == pmap
        with pytest.raises(ObjectMissing):
            partitions.read("other")

    def test_a_map_that_saw_many_commits_is_read_where_one_would_be_made(self, partitions, pmap, unreliable):
        state = ObjectState(unreliable, partition_map_key("t"), PartitionMapDocument)
        for _ in range(40):
            state.update(lambda now: evolve(now, published=not now.published))
        assert partitions.ensure(pmap).revision == 41

    def test_a_plan_is_one_write_and_each_new_owner_a_new_epoch(self, partitions, pmap, unreliable):
        writes = unreliable.writes
        commit = partitions.commit(assign(pmap, E1, E2))
        assert unreliable.writes == writes + 1
        assert sorted(commit.assigned) == [0, 1, 2, 3]
        assert (len(commit.targeted), len(commit.promoted), len(commit.dropped)) == (0, 0, 0)
        assert commit.map == partitions.read("t")
        assert commit.map.revision == 2
        assert [commit.map.epoch(i) for i in range(4)] == [1, 1, 1, 1]

    def test_moves_whose_epoch_is_no_longer_the_planned_one_are_dropped(self, partitions, pmap):
        first, second = assign(pmap, E1), assign(pmap, E2)
        partitions.commit(first)
        commit = partitions.commit(second)
        assert sorted(commit.dropped) == [0, 1, 2, 3]
        assert commit.map == partitions.read("t")
        assert commit.map.revision == 2
        assert {commit.map.owner(i) for i in range(4)} == {E1.owner}

    def test_a_plan_that_meets_another_commit_keeps_what_still_holds(self, partitions, pmap, unreliable):
        half = PartitionAssigner().assign(pmap, [E1], limit=2)
        whole = assign(pmap, E2)

        def meddle(number):
            unreliable.before_write = lambda number: None
            PartitionStore(unreliable.store).commit(half)

        unreliable.before_write = meddle
        commit = partitions.commit(whole)
        assert len(commit.assigned) == len(commit.dropped) == 2
        assert {commit.map.owner(int(i)) for i in commit.assigned} == {E2.owner}
        assert {commit.map.owner(int(i)) for i in commit.dropped} == {E1.owner}

    def test_owners_are_members(self, partitions, pmap):
        commit = partitions.commit(assign(pmap, E1, E3))
        assert len(commit.dropped) == 2
        assert {commit.map.owner(int(i)) for i in commit.assigned} == {E1.owner}

    def test_a_partition_is_not_taken_from_a_member_at_once(self, partitions, pmap, cluster):
        """The planner believed from an old view that its owner was gone."""
        owned = partitions.commit(assign(pmap, E1)).map
        commit = partitions.commit(assign(owned, E2))
        assert len(commit.dropped) == 4
        assert partitions.read("t") == owned
        lose(cluster, E1)
        commit = partitions.commit(assign(owned, E2))
        assert [commit.map.epoch(i) for i in range(4)] == [2, 2, 2, 2]
        assert {commit.map.owner(i) for i in range(4)} == {E2.owner}

    def test_members_are_read_after_the_map_that_is_changed(self, partitions, pmap, unreliable):
        reads = []
        unreliable.before_get = reads.append
        partitions.commit(assign(pmap, E1))
        assert reads == [partition_map_key("t"), "cluster.json"]

    def test_a_move_names_a_target_and_promotion_makes_it_the_owner(self, partitions, pmap):
        owned = partitions.commit(assign(pmap, E1)).map
        commit = partitions.commit(assign(owned, E1, E2))
        moved = commit.targeted.tolist()
        assert len(moved) == 2
        for partition in moved:
            assert commit.map.owner(partition) == E1.owner
            assert commit.map.target(partition) == E2.owner
            assert commit.map.epoch(partition) == 1
        nothing = assign(commit.map, E1, E2)
        told = dict.fromkeys(moved, 1)
        wrong = partitions.commit(nothing, loaded=dict.fromkeys(moved, E3.owner), parting=told)
        assert len(wrong.promoted) == 0
        done = partitions.commit(nothing, loaded=dict.fromkeys(moved, E2.owner), parting=told)
        assert done.promoted.tolist() == moved
        for partition in moved:
            assert done.map.owner(partition) == E2.owner
            assert done.map.epoch(partition) == 2

    def test_a_target_that_was_lost_is_not_promoted(self, partitions, pmap, cluster):
        owned = partitions.commit(assign(pmap, E1)).map
        moving = partitions.commit(assign(owned, E1, E2))
        lose(cluster, E2)
        done = partitions.commit(assign(moving.map, E1), loaded=dict.fromkeys(moving.targeted.tolist(), E2.owner))
        assert len(done.promoted) == 0
        assert {done.map.owner(i) for i in range(4)} == {E1.owner}

    def test_a_former_owner_that_may_not_know_yet_gets_the_partition_back_and_nobody_else_does(
        self, partitions, pmap, cluster
    ):
        moved, done = hand_over(partitions, pmap, cluster)
        assert [done.former(p) for p in moved] == [E1.owner] * 2
        lose(cluster, E2)
        commit = partitions.commit(assign(done, E3))
        assert commit.returned.tolist() == moved
        assert not len(commit.assigned)
        assert [(commit.map.owner(p), commit.map.epoch(p)) for p in moved] == [(E1.owner, 3)] * 2
        assert [commit.map.former(p) for p in moved] == [None] * 2

    def test_when_the_former_owner_is_lost_too_anybody_may_own_it(self, partitions, pmap, cluster):
        _, done = hand_over(partitions, pmap, cluster)
        lose(cluster, E1, E2)
        commit = partitions.commit(assign(done, E3))
        assert len(commit.assigned) == 4
        assert commit.map.owned_by(*E3.owner).tolist() == [0, 1, 2, 3]

    def test_what_a_former_owner_may_still_serve_does_not_move_on(self, partitions, pmap, cluster):
        moved, done = hand_over(partitions, pmap, cluster)
        away = assign(done.release(moved), E1, evolve(E2, capacity=0.01), E3)
        assert np.isin(away.partitions[away.moved], moved).any()
        assert not np.isin(partitions.commit(away).targeted, moved).any()
        assert not np.isin(assign(done, E1, E2, E3).partitions, moved).any()

    def test_a_release_counts_only_for_the_epoch_that_it_was_seen_at(self, partitions, pmap, cluster):
        (first, second), done = hand_over(partitions, pmap, cluster)
        nothing = assign(done, E1, E2)
        after = partitions.commit(nothing, released={first: done.epoch(first), second: done.epoch(second) - 1}).map
        assert (after.former(first), after.former(second)) == (None, E1.owner)

    def test_a_lost_reply_commits_a_plan_once(self, partitions, pmap, unreliable):
        unreliable.plan = {unreliable.writes + 1: "lost_reply"}
        commit = partitions.commit(assign(pmap, E1))
        assert len(commit.assigned) == 4
        assert [partitions.read("t").epoch(i) for i in range(4)] == [1, 1, 1, 1]

    def test_the_guard_is_asked_in_every_change(self, pmap, unreliable, runtime):
        def refuse():
            raise LeaseExpired("over")

        guarded = PartitionStore(unreliable, guard=refuse, runtime=runtime)
        with pytest.raises(LeaseExpired):
            guarded.commit(assign(pmap, E1))

    def test_no_commit_may_lower_an_epoch_or_change_an_owner_without_one(self, partitions, pmap):
        owned = partitions.commit(assign(pmap, E1, E2)).map.with_revision(0)
        state = partitions._state("t")
        for bad in (
            evolve(owned, epochs=owned.epochs - 1),
            evolve(owned, owner_index=owned.owner_index[::-1].copy()),
            evolve(owned, executors=tuple(reversed(owned.executors))),
            PartitionMap.build("t", BUCKETS, BUCKETS.static_values()[:3]),
        ):
            with pytest.raises(InvariantViolated):
                state.update(lambda _, bad=bad: PartitionMapDocument(map=bad))
        swapped = evolve(owned, executors=tuple(reversed(owned.executors)), owner_index=1 - owned.owner_index)
        state.update(lambda _: PartitionMapDocument(map=swapped))
        assert partitions.read("t").owner(0) == owned.owner(0)


@pytest.fixture
def scheduler(unreliable, runtime):
    membership = Membership(unreliable, SchedulerInfo(scheduler_id="s1", instance_id=""), runtime=runtime)
    membership.join()
    return membership


class Loop:
    """A reconciler over one cluster, with reports and a source set by hand."""

    def __init__(self, store, scheduler, limit=None) -> None:
        self.scheduler, self.held, self.found = scheduler, {}, {}
        self.partitions = PartitionStore(store, guard=scheduler.require, runtime=scheduler.runtime)
        self.reconciler = Reconciler(
            self.partitions,
            scheduler,
            reports=lambda: self.held,
            discover=lambda spec: self.found.get(spec.name),
            limit=limit,
        )

    def change(self, change) -> None:
        self.scheduler.cluster.update(change)

    def add_tables(self, *tables) -> None:
        self.change(lambda d: evolve(d, tables={**d.tables, **{t.name: t for t in tables}}))

    def admit(self, *executors) -> None:
        for executor in executors:
            self.change(lambda d, e=executor: d.admit(info(e)))


@pytest.fixture
def loop(unreliable, scheduler):
    return Loop(unreliable, scheduler)


def start_a_move(loop):
    """Two of four partitions are to move from E1 to E2; returns them and the map before."""
    loop.add_tables(table())
    loop.admit(E1)
    old = loop.reconciler.tick().maps["t"]
    loop.admit(E2)
    return loop.reconciler.tick().maps["t"].targeted_at(*E2.owner).tolist(), old


def wait(loop, runtime, duration_ms):
    """Time passes while the scheduler keeps its lease and its loop turns."""
    loop.reconciler.tick()
    runtime.advance(duration_ms)
    loop.scheduler.beat()


class TestReconciler:
    def test_a_cluster_without_tables_or_executors_is_settled(self, loop):
        assert loop.reconciler.tick().settled
        loop.admit(E1)
        assert loop.reconciler.tick().settled

    def test_a_static_table_gets_its_map_and_waits_for_executors(self, loop):
        loop.add_tables(table())
        report = loop.reconciler.tick()
        assert report.unplaced == {"t": 4}
        assert len(report.maps["t"]) == 4
        loop.admit(E1, E2)
        report = loop.reconciler.tick()
        assert sorted(report.commits["t"].assigned) == [0, 1, 2, 3]
        assert loop.reconciler.tick().settled

    def test_a_settled_cluster_costs_no_writes(self, loop, unreliable):
        loop.add_tables(table("a"), table("b"))
        loop.admit(E1, E2)
        loop.reconciler.tick()
        writes = unreliable.writes
        assert loop.reconciler.tick().settled
        assert unreliable.writes == writes

    def test_a_lost_executors_partitions_are_given_to_the_others(self, loop):
        loop.add_tables(table())
        loop.admit(E1, E2)
        before = loop.reconciler.tick().maps["t"]
        loop.change(lambda d: d.without_executors(frozenset({E1.owner})))
        after = loop.reconciler.tick().maps["t"]
        for i in range(4):
            assert after.owner(i) == E2.owner
            assert after.epoch(i) == (1 if before.owner(i) == E2.owner else 2)

    def test_who_drains_gives_all_away_whatever_the_limit_and_serves_until_then(self, loop):
        loop.add_tables(table())
        loop.admit(E1, E2)
        before = loop.reconciler.tick().maps["t"]
        own = [i for i in range(4) if before.owner(i) == E1.owner]
        assert len(own) == 2
        loop.reconciler._limit = 1
        loop.change(lambda d: d.admit(evolve(info(E1), capacity=0.0)))
        after = loop.reconciler.tick().maps["t"]
        assert after.targeted_at(*E2.owner).tolist() == own
        assert [after.owner(i) for i in own] == [E1.owner] * 2

    def test_a_new_instance_of_the_same_executor_gets_its_partitions_at_new_epochs(self, loop):
        loop.add_tables(table())
        loop.admit(E1, E2)
        before = loop.reconciler.tick().maps["t"]
        again = Executor("e1", "i1-again")
        loop.change(lambda d: d.without_executors(frozenset({E1.owner})).admit(info(again)))
        after = loop.reconciler.tick().maps["t"]
        for i in range(4):
            if before.owner(i) == E1.owner:
                assert (after.owner(i), after.epoch(i)) == (again.owner, 2)

    def test_a_joining_executor_takes_over_only_what_it_has_loaded(self, loop):
        loop.add_tables(table())
        loop.admit(E1)
        loop.reconciler.tick()
        loop.admit(E2)
        moving = loop.reconciler.tick().maps["t"]
        targets = moving.targeted_at(*E2.owner).tolist()
        assert len(targets) == 2
        assert loop.reconciler.tick().settled
        loop.held = {E2.owner: (HeldPartitions(table="t", revision=3, loaded=(targets[0],)),)}
        assert loop.reconciler.tick().settled  # its owner has not said that it knows
        loop.held[E1.owner] = (told(*targets),)
        report = loop.reconciler.tick()
        assert report.commits["t"].promoted.tolist() == [targets[0]]
        assert report.maps["t"].owned_by(*E2.owner).tolist() == [targets[0]]
        assert loop.reconciler.tick().settled

    def test_a_partition_is_released_when_its_former_owner_has_heard_of_the_hand_over(self, loop):
        (first, second), old = start_a_move(loop)
        ready = HeldPartitions(table="t", revision=3, loaded=(first, second))
        behind = evolve(told(first, second), revision=old.revision, active=(0, 1, 2, 3), epochs=(1, 1, 1, 1))
        loop.held = {E2.owner: (ready,), E1.owner: (behind,)}
        pmap = loop.reconciler.tick().maps["t"]
        assert pmap.handed_over_by(*E1.owner).tolist() == [first, second]
        assert loop.reconciler.tick().settled
        loop.held[E1.owner] = (evolve(behind, revision=pmap.revision - 1),)
        assert loop.reconciler.tick().maps["t"].handed_over_by(*E1.owner).tolist() == [first, second]
        left = tuple(p for p in range(4) if p not in (first, second))
        loop.held[E1.owner] = (evolve(behind, revision=pmap.revision, active=left, epochs=(1, 1)),)
        assert not loop.reconciler.tick().maps["t"].handed_over_by(*E1.owner).size
        assert loop.reconciler.tick().settled

    def test_a_lost_target_gives_back_what_its_former_owner_has_not_heard_of(self, loop):
        moved, _ = start_a_move(loop)
        loop.admit(E3)
        loop.held = {
            E2.owner: (HeldPartitions(table="t", revision=3, loaded=tuple(moved)),),
            E1.owner: (told(*moved),),
        }
        loop.reconciler.tick()
        lose(loop.scheduler.cluster, E2)
        report = loop.reconciler.tick()
        assert report.commits["t"].returned.tolist() == moved
        assert [report.maps["t"].owner(p) for p in moved] == [E1.owner] * 2
        assert [report.maps["t"].epoch(p) for p in moved] == [3] * 2

    def test_a_target_that_never_loads_loses_its_moves_and_gets_no_others_for_a_while(self, loop, runtime):
        targets, old = start_a_move(loop)
        assert loop.reconciler.tick().settled
        wait(loop, runtime, MOVE_TIMEOUT_MS)
        report = loop.reconciler.tick()
        assert report.commits["t"].called_off.tolist() == targets
        assert not report.maps["t"].targeted_at(*E2.owner).size
        assert (report.maps["t"].epochs == old.epochs).all()
        assert [report.maps["t"].owner(p) for p in range(4)] == [E1.owner] * 4
        assert loop.reconciler.tick().settled
        wait(loop, runtime, COOL_DOWN_MS)
        assert sorted(loop.reconciler.tick().commits["t"].targeted) == targets

    def test_a_target_that_makes_progress_is_given_more_time(self, loop, runtime):
        (first, second), _ = start_a_move(loop)
        wait(loop, runtime, MOVE_TIMEOUT_MS - 1)
        loop.held = {E2.owner: (HeldPartitions(table="t", revision=3, loaded=(first,)),), E1.owner: (told(first),)}
        assert loop.reconciler.tick().commits["t"].promoted.tolist() == [first]
        assert loop.reconciler.tick().settled  # from here on the rest is waited for
        wait(loop, runtime, MOVE_TIMEOUT_MS - 1)
        assert loop.reconciler.tick().settled
        wait(loop, runtime, 1)
        assert loop.reconciler.tick().commits["t"].called_off.tolist() == [second]

    def test_a_target_that_says_that_it_cannot_load_loses_that_partition_sooner(self, loop, runtime):
        (first, second), _ = start_a_move(loop)
        loop.held = {E2.owner: (HeldPartitions(table="t", revision=3, failed={first: "disk full"}),)}
        assert loop.reconciler.tick().settled
        loop.held, failing = {}, loop.held  # it went well in between: the time begins anew
        wait(loop, runtime, FAILED_MOVE_MS)
        assert loop.reconciler.tick().settled
        loop.held = failing
        assert loop.reconciler.tick().settled
        wait(loop, runtime, FAILED_MOVE_MS)
        report = loop.reconciler.tick()
        assert report.commits["t"].called_off.tolist() == [first]
        assert report.maps["t"].targeted_at(*E2.owner).tolist() == [second]

    def test_a_move_that_another_scheduler_promoted_meanwhile_is_not_called_off(self, loop, runtime):
        targets, _ = start_a_move(loop)
        base = loop.partitions.read("t")
        nothing = PartitionAssigner().assign(base, (E1, E2))
        loop.partitions.commit(nothing, loaded={targets[0]: E2.owner}, parting={targets[0]: 1})
        commit = loop.partitions.commit(nothing, stalled=dict.fromkeys(targets, E2.owner))
        assert commit.called_off.tolist() == targets[1:]
        assert commit.map.owner(targets[0]) == E2.owner

    def test_an_orphan_is_given_to_an_executor_whose_moves_were_called_off(self, loop, runtime):
        start_a_move(loop)
        wait(loop, runtime, MOVE_TIMEOUT_MS)
        loop.reconciler.tick()
        loop.change(lambda d: d.without_executors(frozenset({E1.owner})))
        assert loop.reconciler.tick().maps["t"].owned_by(*E2.owner).tolist() == [0, 1, 2, 3]

    def test_the_limit_bounds_the_moves_of_a_tick_and_nothing_is_forgotten(self, unreliable, scheduler):
        loop = Loop(unreliable, scheduler, limit=3)
        loop.add_tables(table("a"), table("b"))
        loop.admit(E1, E2)
        moves = []
        while not (report := loop.reconciler.tick()).settled:
            moves.append(sum(len(commit.assigned) for commit in report.commits.values()))
        assert moves == [3, 3, 2]

    def test_what_is_discovered_has_an_owner_as_soon_as_it_has_a_name_whatever_the_limit(
        self, unreliable, scheduler
    ):
        loop = Loop(unreliable, scheduler, limit=3)
        spec = PartitionSpec.parse(["region"], SCHEMA)
        loop.add_tables(table("r", spec=spec))
        loop.admit(E1, E2)
        loop.partitions.ensure(PartitionMap.build("r", spec, [("eu",)]))
        loop.reconciler.tick()
        loop.found = {"r": Discovery(values=[("eu",), *((f"v{n}",) for n in range(50))])}
        pmap = loop.reconciler.tick().maps["r"]
        assert len(pmap) == 51
        assert not pmap.orphans([E1.owner, E2.owner]).size

    def test_on_demand_there_is_no_limit(self, unreliable, scheduler):
        loop = Loop(unreliable, scheduler, limit=1)
        loop.add_tables(table())
        loop.admit(E1)
        assert len(loop.reconciler.reconcile_all().commits["t"].assigned) == 4

    def test_tables_of_a_group_have_equal_owners(self, loop):
        loop.add_tables(table("a", group="g"), table("b", group="g"), table("c"))
        loop.admit(E1, E2, E3)
        maps = loop.reconciler.tick().maps
        assert [maps["a"].owner(i) for i in range(4)] == [maps["b"].owner(i) for i in range(4)]

    def test_a_group_of_which_one_map_cannot_be_read_waits_and_others_go_on(self, loop, unreliable):
        loop.add_tables(table("a", group="g"), table("b", group="g"), table("c"))
        loop.admit(E1, E2)

        def refuse(key):
            if key == partition_map_key("a"):
                raise StoreUnavailable("no", key=key)

        unreliable.before_get = refuse
        report = loop.reconciler.tick()
        assert set(report.commits) == {"c"}
        assert set(report.errors) == {"a"}
        assert report.maps["b"].owner(0) is None
        unreliable.before_get = lambda key: None
        assert set(loop.reconciler.tick().commits) == {"a", "b"}

    def test_a_group_of_tables_with_different_keys_is_an_error_of_those_tables(self, loop):
        other = PartitionSpec.parse(["bucket(8, id)"], SCHEMA)
        loop.add_tables(table("a", group="g"), table("b", group="g", spec=other), table("c"))
        loop.admit(E1)
        report = loop.reconciler.tick()
        assert set(report.errors) == {"a", "b"}
        assert set(report.commits) == {"c"}

    def test_discovered_values_are_added_and_vanished_ones_kept_until_missing_twice(self, loop):
        regions = PartitionSpec.parse(["region"], SCHEMA)
        loop.add_tables(table("r", spec=regions))
        loop.admit(E1)
        assert isinstance(loop.reconciler.tick().errors["r"], ObjectMissing)
        loop.partitions.create(PartitionMap.build("r", regions, [("eu",)]))
        loop.found = {"r": Discovery(values=[("eu",), ("us",)])}
        assert len(loop.reconciler.tick().maps["r"].ids()) == 2
        loop.found = {"r": Discovery(values=[("us",)])}
        assert len(loop.reconciler.tick().maps["r"].ids()) == 2
        report = loop.reconciler.tick()
        assert report.maps["r"].ids().tolist() == [1]
        loop.found = {}
        assert loop.reconciler.tick().settled

    def test_a_scheduler_without_a_lease_reconciles_nothing(self, loop, runtime, unreliable):
        loop.add_tables(table())
        loop.admit(E1)
        runtime.advance(30_000)
        writes = unreliable.writes
        with pytest.raises(LeaseExpired):
            loop.reconciler.tick()
        assert unreliable.writes == writes


class TestNotification:
    def maps(self):
        pmap = PartitionMap.build("t", BUCKETS, BUCKETS.static_values())
        pmap = pmap.apply(assign(pmap, E1))
        return {"t": pmap.apply(assign(pmap, E1, E2)).with_revision(7)}

    def test_an_executor_is_told_all_that_it_is_to_hold(self):
        maps, tables = self.maps(), {"t": table()}
        (first,) = desired(maps, tables, *E1.owner)
        (second,) = desired(maps, tables, *E2.owner)
        (third,) = desired(maps, tables, *E3.owner)
        assert (first.instance_id, first.revision, first.table.name) == ("i1", 7, "t")
        assert {(a.partition, a.path, a.epoch, a.role) for a in first.partitions} == {
            (i, f"expr0={i}", 1, "owner") for i in range(4)
        }
        assert {a.role for a in second.partitions} == {"target"}
        assert len(second.partitions) == 2
        assert third.partitions == ()

    def test_the_same_id_under_another_instance_is_told_nothing_of_the_old_one(self):
        (update,) = desired(self.maps(), {"t": table()}, "e1", "i1-again")
        assert update.partitions == ()

    def test_a_replicated_table_is_held_by_everybody_and_owned_by_one(self):
        spec = PartitionSpec.whole()
        pmap = PartitionMap.build("n", spec, spec.static_values())
        maps = {"n": pmap.apply(assign(pmap, E1))}
        tables = {"n": TableSpec(name="n", schema=SCHEMA, spec=spec, distribution="replicated")}
        roles = [desired(maps, tables, *e.owner)[0].partitions[0].role for e in (E1, E2, E3)]
        assert roles == ["owner", "replica", "replica"]

    def test_a_table_without_a_committed_map_is_not_spoken_of(self):
        assert desired({}, {"t": table()}, *E1.owner) == []

    def test_an_update_is_sent_until_the_report_equals_what_is_committed(self):
        updates = desired(self.maps(), {"t": table()}, *E1.owner)
        leaving = dict.fromkeys(updates[0].parting, 1)
        assert len(leaving) == 2
        right = HeldPartitions(table="t", revision=7, active=(0, 1, 2, 3), epochs=(1, 1, 1, 1), parting=leaving)
        assert unsettled(updates, [right]) == []
        for wrong in (
            [evolve(right, parting={})],
            [evolve(right, parting=dict.fromkeys(leaving, 0))],
            [],
            [evolve(right, table="other")],
            [evolve(right, active=(0, 1, 2), epochs=(1, 1, 1))],
            [evolve(right, epochs=(1, 1, 1, 2))],
            [evolve(right, loaded=(9,))],
            [evolve(right, active=(0, 1, 2, 3, 4), epochs=(1,) * 5)],
        ):
            assert unsettled(updates, wrong) == updates
        maps = self.maps()
        after = maps["t"].promote(maps["t"].targeted_at(*E2.owner)).with_revision(8)
        (update,) = desired({"t": after}, {"t": table()}, *E1.owner)
        kept = tuple(after.owned_by(*E1.owner).tolist())
        heard = evolve(right, revision=8, active=kept, epochs=(1, 1))
        assert unsettled([update], [evolve(heard, revision=7)]) == [update]
        assert unsettled([update], [heard]) == []
        nothing = desired(self.maps(), {"t": table()}, *E3.owner)
        assert unsettled(nothing, []) == []
        assert unsettled(nothing, [right]) == nothing


@frozen
class Manifest:
    epoch: int = 0
    rows: int = 0


class TestFence:
    @pytest.fixture
    def manifest(self, unreliable, runtime):
        state = ObjectState(unreliable, "manifest.json", Manifest, runtime=runtime)
        state.create(Manifest())
        return state

    def test_an_activated_epoch_refuses_every_older_one(self, manifest):
        def write(epoch):
            def change(document):
                require_epoch(document, epoch, "manifest.json")
                return evolve(document, rows=document.rows + 1)

            return manifest.update(change)

        with pytest.raises(Fenced, match="only epoch 0 is active so far"):
            write(1)
        activate(manifest, 1)
        assert write(1).document == Manifest(1, 1)
        assert activate(manifest, 3).document == Manifest(3, 1)
        for old in (1, 2):
            with pytest.raises(Fenced, match=f"refuses epoch {old}: epoch 3 is active"):
                write(old)
            with pytest.raises(Fenced):
                activate(manifest, old)
        assert write(3).document == Manifest(3, 2)

    def test_activating_again_writes_nothing(self, manifest, unreliable):
        activate(manifest, 2)
        writes = unreliable.writes
        assert activate(manifest, 2).document.epoch == 2
        assert unreliable.writes == writes

    def test_a_write_and_an_activation_meet_in_the_document(self, manifest, unreliable):
        """The write was sent before the activation and arrives after it."""
        activate(manifest, 1)

        def activate_first(number):
            unreliable.before_write = lambda number: None
            activate(ObjectState(unreliable.store, "manifest.json", Manifest), 2)

        unreliable.before_write = activate_first

        def change(document):
            require_epoch(document, 1, "manifest.json")
            return evolve(document, rows=1)

        with pytest.raises(Fenced):
            manifest.update(change)
        assert manifest.read().document == Manifest(2, 0)


def test_a_million_partitions_are_a_small_document(unreliable, runtime):
    spec = PartitionSpec.parse(["bucket(1000000, id)"], SCHEMA)
    pmap = PartitionMap.of_columns("t", spec, spec.static_columns(), 1_000_000)
    executors = tuple((f"executor-{n:04}", f"{n:032x}") for n in range(1_000))
    chance = np.random.default_rng(1)
    pmap = evolve(
        pmap,
        executors=executors,
        owner_index=chance.integers(0, 1_000, (1_000_000, 1)).astype(np.int32),
        epochs=chance.integers(1, 20, 1_000_000),
        weights=chance.integers(1, 3, 1_000_000).astype(np.float64),
    )
    state = ObjectState(unreliable, partition_map_key("t"), PartitionMapDocument, runtime=runtime)
    state.create(PartitionMapDocument(map=pmap))
    assert len(unreliable.get(partition_map_key("t")).data) < 12_000_000
    same = state.read().document.map == pmap
    assert same


def test_a_diff_and_a_plan_travel_in_one_commit(partitions, cluster):
    regions = PartitionSpec.parse(["region"], SCHEMA)
    before = partitions.create(PartitionMap.build("r", regions, [("eu",)]))
    diff = diff_partitions(before, [("eu",), ("us",)])
    plan = assign(before.apply_diff(diff), E1, E2)
    commit = partitions.commit(plan, diff=diff)
    assert sorted(commit.assigned) == [0, 1]
    assert commit.map.revision == 2
    assert commit.map.index(("us",)) == 1


@frozen
class Shard:
    epoch: int = 0
    text: str = ""


def test_an_owner_is_activated_and_a_former_one_never_again(store):
    live = {E1.owner, E2.owner}
    maps = PartitionStore(store, members=lambda: live)
    maps.create(PartitionMap.build("t", BUCKETS, BUCKETS.static_values() or ()))
    maps.commit(PartitionAssigner().assign(maps.read("t"), [E1]))
    shard = ObjectState(store, "shard.json", Shard)
    shard.create(Shard())
    assert maps.activate("t", 0, E1.owner, shard) == 1
    assert maps.activate("t", 0, E1.owner, shard) == 1  # again, because the reply was lost
    live.remove(E1.owner)
    maps.commit(PartitionAssigner().assign(maps.read("t"), [E2]))
    assert maps.activate("t", 0, E2.owner, shard) == 2
    with pytest.raises(NotOwner, match="'e1' does not own partition 0 of table 't' at revision 3"):
        maps.activate("t", 0, E1.owner, shard)
    with pytest.raises(NotOwner, match="partition 99"):
        maps.activate("t", 99, E2.owner, shard)
    with pytest.raises(Fenced):
        shard.update(lambda document: require_epoch(document, 1, "shard.json") or document)
    assert shard.read().document == Shard(epoch=2)


def test_an_owner_that_read_the_map_before_its_successor_did_is_fenced(store):
    live = {E1.owner, E2.owner}
    maps = PartitionStore(store, members=lambda: live)
    maps.create(PartitionMap.build("t", BUCKETS, BUCKETS.static_values() or ()))
    maps.commit(PartitionAssigner().assign(maps.read("t"), [E1]))
    shard = ObjectState(store, "shard.json", Shard)
    shard.create(Shard())

    class Paused(ObjectState[Shard]):
        def update(self, change):
            live.discard(E1.owner)
            maps.commit(PartitionAssigner().assign(maps.read("t"), [E2]))
            maps.activate("t", 0, E2.owner, shard)
            return super().update(change)

    with pytest.raises(Fenced, match="refuses epoch 1: epoch 2 is active"):
        maps.activate("t", 0, E1.owner, Paused(store, "shard.json", Shard))


def test_partitions_for_new_values_are_not_made_over_a_map_that_cannot_be_read(loop, unreliable):
    """Whoever wrote the rows is told what is wrong with the map, and it is left as it is."""
    by_value = table(spec=PartitionSpec.parse(["id"], SCHEMA))
    loop.add_tables(by_value)
    loop.partitions.create(PartitionMap.build("t", by_value.spec, []))
    loop.admit(E1)
    assert loop.reconciler.add_values("t", [(7,)]).map.owner(0) == E1.owner
    key = partition_map_key("t")
    version = unreliable.get(key).version
    unreliable.replace(key, b"spoilt", version)
    with pytest.raises(DocumentUnreadable, match=key):
        loop.reconciler.add_values("t", [(8,)])
    assert unreliable.get(key).data == b"spoilt"


def test_values_for_which_there_is_no_room_get_no_partition_at_all(loop):
    """They were left in the map without an owner: the table answered no query any more."""
    by_value = table(spec=PartitionSpec.parse(["id"], SCHEMA))
    loop.add_tables(by_value)
    loop.partitions.create(PartitionMap.build("t", by_value.spec, []))
    with pytest.raises(PartitionsUnassigned, match="1 of 1 new partition values of table 't' have no executor"):
        loop.reconciler.add_values("t", [(7,)])
    loop.admit(E1)
    loop.reconciler._assigner = PartitionAssigner(max_partitions_per_executor=3)
    loop.reconciler.add_values("t", [(1,), (2,)])
    with pytest.raises(PartitionsUnassigned, match=r"1 of 3 new partition values of table 't' .* \(id="):
        loop.reconciler.add_values("t", [(2,), (3,), (4,)])
    assert len(loop.partitions.read("t")) == 2
    loop.reconciler.add_values("t", [(2,), (3,)])
    found = loop.partitions.read("t")
    assert [found.owner(partition) for partition in range(len(found))] == [E1.owner] * 3
