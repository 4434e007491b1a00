"""The files of a read job are never collected while it is renewed, and go once it is over; who is too late is told."""

from __future__ import annotations

import pyarrow as pa
import pytest
from attrs import evolve
from tests.storage.kept_files import HOUR_MS, MINUTE_MS, KeptFiles

from ballista_py.errors import ConfigError, DocumentUnreadable, SnapshotGone, TryLater
from ballista_py.runtime import SystemRuntime
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.storage.formats.files import write_data_file, write_deletion_vector
from ballista_py.storage.manifest import DataFile, ManifestDocument, OriginalFile
from ballista_py.storage.reads import files as read_files
from ballista_py.storage.reads import leases
from ballista_py.storage.reads.files import PartFile, ReadFiles
from ballista_py.storage.reads.leases import (
    LEASE_MS,
    LONGEST_MS,
    ORPHANED_MS,
    READS_PREFIX,
    TAKEN_WITHIN_MS,
    ReadLeases,
)
from ballista_py.storage.upkeep.garbage import find_garbage

SCHEMA = pa.schema([("id", pa.int64())])


class Table(KeptFiles):
    """A partition with a file, a read job over it, and a collector."""

    def __init__(self) -> None:
        super().__init__()
        self.first = self.write("a", 3)
        self.storage.commit(add=[self.first], epoch=1, token="a")
        self.leases = ReadLeases(self.store, self.clock)

    def write(self, name: str, rows: int) -> DataFile:
        return write_data_file(
            self.store, f"snapshots/t/data/{name}.parquet", pa.table({"id": range(rows)}, SCHEMA)
        )

    def read(self, *files: DataFile) -> ReadFiles:
        part = tuple(PartFile(partition=0, file=file) for file in files)
        return ReadFiles(table="t", folder="t", incarnation="", schema=SCHEMA, parts=(part,))

    def take(self, **options) -> str:
        return self.leases.take(self.read(self.first), "me", self.clock.monotonic_ms(), **options)[0]

    def replace(self) -> None:
        """What an update does: other files take the place of those that are there."""
        self.storage.commit(add=[self.write("b", 2)], remove=[self.first.path], epoch=1, token="b")


@pytest.fixture
def table():
    return Table()


def test_what_a_renewed_job_names_stays_though_the_table_has_other_files_by_now(table):
    read_id = table.take()
    table.replace()
    assert table.collect(meanwhile=lambda: table.leases.renew(read_id, "me")) == []
    assert table.leases.files(read_id, table.leases.read(read_id).digest).parts[0][0].file.path == table.first.path


def test_the_files_of_a_dropped_table_stay_too(table):
    read_id = table.take()
    assert table.collect(folders=(), meanwhile=lambda: table.leases.renew(read_id, "me")) == []
    table.leases.end(read_id, "me")
    assert table.first.path in table.collect(folders=(), hours=30)


def test_a_deletion_vector_and_its_original_stay(table):
    vector = write_deletion_vector(
        table.store, "snapshots/t/data/v.deletions", table.first, pa.array([1]).to_numpy()
    )
    table.storage.commit(add=[vector], remove=[table.first.path], epoch=1, token="v")
    read_id, _ = table.leases.take(table.read(vector), "me", table.clock.monotonic_ms())
    found = table.leases.files(read_id, table.leases.read(read_id).digest).parts[0][0].file
    assert isinstance(found.original, OriginalFile)
    assert found.paths == vector.paths
    table.storage.commit(add=[table.write("c", 1)], remove=[vector.path], epoch=1, token="c")
    assert table.collect(meanwhile=lambda: table.leases.renew(read_id, "me")) == []


@pytest.mark.parametrize("ends", ["closed", "not renewed"])
def test_a_job_that_is_over_keeps_nothing_and_nobody_goes_on_with_it(table, ends):
    read_id = table.take()
    table.replace()
    if ends == "closed":
        table.leases.end(read_id, "me")
    assert table.collect(hours=3) == [table.first.path]
    for asked in (lambda: table.leases.renew(read_id, "me"), lambda: table.leases.read(read_id)):
        with pytest.raises(SnapshotGone, match="closed or not renewed in time"):
            asked()


def test_a_lease_lasts_to_its_end_by_the_clock_of_the_store_and_not_longer(table):
    read_id = table.take()
    table.clock.now_ms += LEASE_MS
    assert table.leases.tick() == 0
    assert table.leases.renew(read_id, "me").renewals == 1
    table.clock.now_ms += LEASE_MS + 10 * MINUTE_MS
    assert table.leases.tick() == 1
    assert list(table.store.list(READS_PREFIX)) == []
    with pytest.raises(SnapshotGone):
        table.leases.renew(read_id, "me")


def test_a_renewal_in_the_last_moment_wins_over_who_ends_the_lease(table):
    """The collector has seen it too old; between its look and its tombstone it is renewed."""
    read_id = table.take()
    table.replace()
    other = ReadLeases(table.store, table.clock)
    get = table.store.get

    def renewed_after(key, *most):
        found = get(key, *most)
        if key == f"{READS_PREFIX}{read_id}.json":
            table.store.get = get
            other.renew(read_id, "me")
        return found

    table.clock.now_ms += LEASE_MS + HOUR_MS
    table.store.get = renewed_after
    assert table.first.path in table.leases.kept(table.clock.now_ms)
    assert other.read(read_id).renewals == 1


@pytest.mark.parametrize("look", ["kept", "tick"])
def test_a_renewal_between_the_listing_and_the_look_at_the_lease_wins_too(table, look):
    """What was listed says how old the lease was before it was renewed."""
    read_id = table.take()
    table.replace()
    other = ReadLeases(table.store, table.clock)
    get = table.store.get

    def renewed_before(key, *most):
        if key == f"{READS_PREFIX}{read_id}.json":
            table.store.get = get
            other.renew(read_id, "me")
        return get(key, *most)

    table.clock.now_ms += LEASE_MS + HOUR_MS
    table.store.get = renewed_before
    if look == "kept":
        assert table.first.path in table.leases.kept(table.clock.now_ms)
    else:
        assert table.leases.tick() == 0
    assert other.read(read_id).renewals == 1


def test_what_a_dead_node_made_to_see_the_clock_goes_when_it_is_old(table):
    table.store.create(f"{READS_PREFIX}clock-of-the-dead", b"now")
    for minutes in (0, 59, 61):
        table.clock.now_ms = 1_000.0 + minutes * MINUTE_MS
        assert table.leases.tick() == 0
        assert len(list(table.store.list(READS_PREFIX))) == (0 if minutes == 61 else 1)


def test_no_renewal_outlives_a_day(table):
    read_id = table.take()
    for _ in range(int(LONGEST_MS / LEASE_MS)):
        table.leases.renew(read_id, "me")
        table.clock.now_ms += LEASE_MS
    table.clock.now_ms += 1
    with pytest.raises(SnapshotGone):
        table.leases.renew(read_id, "me")


def test_a_job_is_only_its_own_clients_to_renew_and_to_close(table):
    read_id = table.take()
    with pytest.raises(SnapshotGone):
        table.leases.renew(read_id, "somebody")
    table.leases.end(read_id, "somebody")
    assert not table.leases.read(read_id).ended


def test_who_takes_the_lease_too_late_is_told_so_and_keeps_nothing(table):
    fixed_ms = table.clock.monotonic_ms()
    table.clock.now_ms += TAKEN_WITHIN_MS + 1
    with pytest.raises(TryLater, match="found too slowly"):
        table.leases.take(table.read(table.first), "me", fixed_ms)
    assert table.leases.kept(table.clock.now_ms) == set()


def test_what_is_left_of_jobs_goes_in_its_time(table):
    read_id = table.take()
    orphan = f"{READS_PREFIX}orphan.files"
    table.store.create(orphan, b"of one that died before it had a lease")
    assert table.leases.tick() == 0
    table.leases.end(read_id, "me")
    assert [entry.key for entry in table.store.list(READS_PREFIX)] == [orphan]
    table.clock.now_ms += ORPHANED_MS
    assert table.leases.tick() == 1
    assert list(table.store.list(READS_PREFIX)) == []


def test_a_client_has_so_many_jobs_and_another_one_is_not_kept_from_his(table, monkeypatch):
    monkeypatch.setattr(leases, "MAX_OPEN", 3)
    opened = [table.take() for _ in range(3)]
    with pytest.raises(TryLater, match="3 read jobs of this client are open: close"):
        table.take()
    other, _ = table.leases.take(table.read(table.first), "another", table.clock.monotonic_ms())
    table.leases.end(opened[0], "another")
    with pytest.raises(TryLater):
        table.take()
    table.leases.end(opened[0], "me")
    table.take()
    assert table.leases.read(other).client == "another"


def test_a_lease_that_cannot_be_read_may_keep_anything(table):
    read_id = table.take()
    files = f"{READS_PREFIX}{read_id}.files"
    version = table.store.get(files).version
    table.store.replace(files, b"damaged", version)
    with pytest.raises(DocumentUnreadable, match="damaged"):
        find_garbage(table.store, {"t"}, runtime=table.clock)
    table.clock.now_ms += LEASE_MS + HOUR_MS  # it ends by itself, and then it is in nobody's way
    assert find_garbage(table.store, {"t"}, runtime=table.clock).files == ()


def test_more_files_than_a_job_names_are_refused(table, monkeypatch):
    monkeypatch.setattr(read_files, "MAX_FILES", 1)
    with pytest.raises(ConfigError, match="at most 1 in 64 MiB"):
        table.leases.take(table.read(table.first, table.first), "me", 0.0)
    assert list(table.store.list(READS_PREFIX)) == []


def test_all_that_is_needed_to_read_a_file_is_written_down(table):
    vector = DataFile(
        path="v",
        rows=2,
        bytes=9,
        checksum="crc32:1",
        format="deletions",
        definition=4,
        original=OriginalFile(path="o", rows=3, bytes=70, checksum="crc32:2", format="vortex"),
    )
    parts = ((PartFile(partition=7, file=vector),), (), (PartFile(partition=1, file=table.first),))
    read = ReadFiles(
        table="T",
        folder="t.5",
        incarnation="5",
        schema=pa.schema([pa.field("id", pa.int64(), metadata={"a": "b"}), ("x", pa.list_(pa.string()))]),
        parts=parts,
        definition=4,
        plan="SELECT 1",
        columns=("x",),
        row_by_row=True,
    )
    found = ReadFiles.from_bytes(*read.to_bytes())
    assert found.schema.equals(read.schema, check_metadata=True)
    assert found.parts[0] == parts[0]
    assert [len(part) for part in found.parts] == [1, 0, 1]
    assert (found.plan, found.columns, found.base.names) == ("SELECT 1", ("x",), ["x"])
    assert found.row_by_row
    assert not ReadFiles.from_bytes(*evolve(read, row_by_row=False).to_bytes()).row_by_row
    assert ManifestDocument(table="t", partition="p", files=(found.parts[2][0].file,)).rows == 3


def test_a_name_that_can_be_none_of_a_job_is_over_and_reaches_nothing():
    store = MemoryStore()
    store.create("secret.json", b"{}")
    jobs = leases.ReadLeases(store, SystemRuntime())
    for name in ("", "../secret", "a/../../secret", "0123456789abcdef.", "0123456789abcdef.x/y", "x" * 5_000):
        with pytest.raises(SnapshotGone):
            jobs.read(name)
        with pytest.raises(SnapshotGone):
            jobs.renew(name, "")
        jobs.end(name, "")
    assert [one.key for one in store.list("")] == ["secret.json"]
