"""Every checker finds a planted violation of its guarantee, and none in a history that is right."""

import pyarrow as pa
import pytest
from attrs import evolve

from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.state.documents.codec import DocumentCodec, Header
from ballista_py.state.documents.documents import (
    ClusterDocument,
    HeartbeatDocument,
    PartitionMapDocument,
    heartbeat_key,
    partition_map_key,
)
from ballista_py.state.members.control import ExecutorInfo
from ballista_py.storage.manifest import AppliedToken, ManifestDocument, manifest_key
from ballista_py.testing.simulation.checkers.check import check_history
from ballista_py.testing.simulation.history import (
    INF,
    Accessed,
    Changed,
    Healed,
    Landed,
    Leased,
    Led,
    Serves,
    Surprise,
    Told,
)
from ballista_py.testing.simulation.site import LEDGER_KEY, Ledger

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False)])
SPEC = PartitionSpec.parse(["bucket(1, id)"], SCHEMA)
EMPTY = PartitionMap.build("t", SPEC, SPEC.static_values())
ONE, TWO = ("e1", "i1"), ("e2", "i2")


class Story:
    """A history written by hand: each document's commits in a chain, unless a test breaks it."""

    def __init__(self) -> None:
        self.events = []
        self.headers = {}

    def landed(self, at_ms, key, document, by="", **broken):
        before = self.headers.get(key)
        revision = before.revision + 1 if before else 1
        commit = f"{key}#{revision}"
        header = Header(
            kind=DocumentCodec(type(document)).kind,
            schema_version=1,
            revision=revision,
            commit_id=commit,
            committed_by=by,
            updated_at_ms=0,
            recent_commits=((*before.recent_commits, commit) if before else (commit,))[-32:],
        )
        header = evolve(header, **broken)
        self.headers[key] = header
        data = DocumentCodec(type(document)).encode(key, header, document)
        base = f"v{revision - 1}" if before else None
        self.events.append(Landed(at_ms=at_ms, node="s1", key=key, base=base, version=f"v{revision}", data=data))

    def map(self, at_ms, epoch, owner=None, target=None):
        executors = tuple(dict.fromkeys(o for o in (owner, target) if o))
        pmap = evolve(
            EMPTY,
            executors=executors,
            epochs=EMPTY.epochs + epoch,
            owner_index=EMPTY.owner_index + (1 + executors.index(owner) if owner else 0),
            target_index=EMPTY.target_index + (1 + executors.index(target) if target else 0),
        )
        self.landed(at_ms, partition_map_key("t"), PartitionMapDocument(map=pmap))

    def manifest(self, at_ms, epoch, *stamps):
        tokens = tuple(AppliedToken(token=f"{stamp}:{n}", added=1, removed=0) for n, stamp in enumerate(stamps))
        document = ManifestDocument(table="t", partition=EMPTY.path(0), epoch=epoch, tokens=tokens)
        self.landed(at_ms, manifest_key("t", EMPTY.path(0)), document)

    def heartbeat(self, at_ms, instance, ended_by=None):
        document = HeartbeatDocument(scheduler_id="s1", instance_id=instance, ended_by=ended_by)
        self.landed(at_ms, heartbeat_key("s1"), document)

    def led(self, from_ms, until_ms, instance):
        self.events.append(Led(at_ms=from_ms, node="s1", scheduler_id="s1", instance=instance, until_ms=until_ms))

    def leased(self, owner, from_ms, until_ms):
        self.events.append(Leased(at_ms=from_ms, node=owner[0], instance=owner[1], until_ms=until_ms))

    def serves(self, at_ms, owner, epoch, on=True):
        self.events.append(
            Serves(
                at_ms=at_ms,
                node=owner[0],
                executor_id=owner[0],
                instance=owner[1],
                table="t",
                partition=0,
                epoch=epoch,
                on=on,
            )
        )

    def told(self, at_ms, owner, revision, epoch, role="owner"):
        self.events.append(
            Told(
                at_ms=at_ms,
                node="s1",
                executor_id=owner[0],
                instance=owner[1],
                table="t",
                revision=revision,
                partitions=((0, epoch, role),),
            )
        )

    def broken(self):
        return {violation.guarantee for violation in check_history(sorted(self.events, key=lambda e: e.at_ms))}


@pytest.fixture
def story():
    """Partition 0 goes from nobody to `ONE`, is handed over to `TWO`, lost, and given to `ONE` again."""
    story = Story()
    story.manifest(0, 0)
    story.map(0, 0)
    story.map(10, 1, ONE)
    story.told(11, ONE, 2, 1)
    story.leased(ONE, 5, 90)
    story.leased(TWO, 5, 90)
    story.manifest(12, 1)
    story.serves(12, ONE, 1)
    story.map(20, 1, ONE, target=TWO)
    story.told(21, TWO, 3, 1, "target")
    story.manifest(22, 1, 1)
    story.map(30, 2, TWO)
    story.manifest(31, 2, 1)
    story.serves(31, TWO, 2)
    story.serves(35, ONE, 1, on=False)
    story.map(95, 3, ONE)
    story.leased(ONE, 96, 200)
    story.manifest(97, 3, 1)
    story.serves(97, ONE, 3)
    story.led(0, 50, "a")
    story.heartbeat(0, "a")
    story.heartbeat(60, "b")
    story.led(60, 90, "b")
    story.events.append(Healed(at_ms=300, node="", served_ms=310, unserved=()))
    return story


def test_a_history_that_is_right_violates_nothing(story):
    assert story.broken() == set()


def test_g1_a_revision_made_from_another_than_the_one_before_is_found(story):
    story.landed(100, "cluster.json", ClusterDocument())
    story.landed(101, "cluster.json", ClusterDocument(), recent_commits=("cluster.json#2",))
    assert story.broken() == {"G1"}


def test_g1_a_revision_that_skips_one_is_found(story):
    story.landed(100, "cluster.json", ClusterDocument())
    story.landed(101, "cluster.json", ClusterDocument(), revision=3)
    assert story.broken() == {"G1"}


def test_g1_two_writes_over_one_version_are_found(story):
    for version in ("v1", "v2"):
        story.events.append(
            Accessed(at_ms=1, node="x", kind="write", key="k", base=None, version=version, end_ms=INF)
        )
    assert story.broken() == {"G1"}


def _change(story, outcome, *recents):
    for n, recent in enumerate(recents):
        story.landed(100 + n, LEDGER_KEY, Ledger(total=len(recent), recent=recent))
    story.events.append(Changed(at_ms=150, node="s1", key=LEDGER_KEY, change="c1", outcome=outcome))


@pytest.mark.parametrize(
    ("outcome", "recents", "broken"),
    [
        ("done", [(), ("c1",)], set()),
        ("unknown", [(), ("c1",)], set()),
        ("unknown", [()], set()),
        ("failed", [()], set()),
        ("done", [()], {"G2"}),
        ("failed", [(), ("c1",)], {"G2"}),
        ("done", [(), ("c1",), ("c1", "c1")], {"G2"}),
        ("unknown", [(), ("c1",), ("c1", "c2"), ("c1", "c2", "c1")], {"G2"}),
        ("done", [(), ("c1",), ("c1", "c2"), ("c1",)], {"G1"}),
    ],
)
def test_g2_what_a_caller_was_told_is_what_was_applied(story, outcome, recents, broken):
    _change(story, outcome, *recents)
    assert story.broken() == broken


def test_g3_two_instances_of_one_id_that_may_act_at_once_are_found(story):
    story.led(70, 80, "c")
    assert story.broken() == {"G3"}


def test_g3_an_eviction_of_somebody_who_may_act_is_found(story):
    story.heartbeat(70, "b", ended_by="x")
    assert story.broken() == {"G3"}


def test_g3_a_beat_after_the_eviction_is_found(story):
    story.heartbeat(100, "b", ended_by="x")
    story.heartbeat(101, "b")
    assert story.broken() == {"G3"}


def test_g3_a_membership_commit_after_the_eviction_is_found(story):
    story.heartbeat(100, "b", ended_by="x")
    story.landed(101, "cluster.json", ClusterDocument(), by="b")
    assert story.broken() == {"G3"}


def test_g4_an_epoch_with_two_owners_is_found(story):
    story.map(100, 3, TWO)
    assert story.broken() == {"G4"}


def test_g4_an_epoch_that_falls_is_found(story):
    story.map(100, 2, TWO)
    assert story.broken() == {"G4"}


def test_g4_a_partition_taken_from_a_member_is_found(story):
    info = ExecutorInfo(executor_id=ONE[0], instance_id=ONE[1], data_address="")
    story.landed(98, "cluster.json", ClusterDocument().admit(info))
    story.map(300, 4, TWO)
    assert story.broken() == {"G4"}


def test_g5_a_commit_stamped_older_than_what_is_active_is_found(story):
    story.manifest(100, 3, 1, 2)
    assert story.broken() == {"G5"}


def test_g5_service_without_a_fence_is_found(story):
    story.map(100, 4, ONE)
    story.serves(101, ONE, 4)
    assert "G5" in story.broken()


def test_g6_an_executor_that_hears_of_it_before_the_commit_is_found(story):
    story.told(9, ONE, 2, 1)
    assert story.broken() == {"G6"}


def test_g6_an_executor_that_hears_of_what_is_not_its_own_is_found(story):
    story.told(100, TWO, 5, 3)
    assert story.broken() == {"G6"}


def test_o1_two_owners_that_serve_at_once_are_found(story):
    story.leased(TWO, 90, 98)
    assert story.broken() == {"O1"}


def test_o1_a_hand_over_between_live_owners_is_no_violation(story):
    assert any(isinstance(e, Serves) and e.at_ms == 35 for e in story.events)
    assert story.broken() == set()


def test_l1_a_partition_without_service_after_the_faults_is_found(story):
    story.events.append(Healed(at_ms=300, node="", served_ms=INF, unserved=(0,)))
    assert story.broken() == {"L1"}


def test_an_error_that_should_never_be_is_found(story):
    story.events.append(Surprise(at_ms=1, node="s1", what="KeyError: 'x'"))
    assert story.broken() == {"ERR"}
