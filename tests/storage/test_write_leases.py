"""The files of a write stay while it is kept on, and go once it is over; who is too late is told."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.storage.kept_files import MINUTE_MS, KeptFiles

from ballista_py.errors import ConfigError, DocumentUnreadable, InvalidData, SnapshotGone, TryLater
from ballista_py.partitions.spec import PartitionSpec
from ballista_py.partitions.table import TableSpec
from ballista_py.state.members.liveness import SKEW_MS
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.storage.formats.files import write_data_file
from ballista_py.storage.formats.statistics import ColumnStatistics
from ballista_py.storage.manifest import DataFile
from ballista_py.storage.writes import leases, staged
from ballista_py.storage.writes.leases import (
    LEASE_MS,
    LONGEST_MS,
    ORPHANED_MS,
    WRITES_PREFIX,
    WriteLeases,
    staging_prefix,
)
from ballista_py.storage.writes.staged import StagedFile, StagedFiles, files_from_json, files_to_json

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.date32())])
SPEC = PartitionSpec.parse(["day", "bucket(3, id)"], SCHEMA)


class Written(KeptFiles):
    """A table with a partition, a write to it, and a collector."""

    def __init__(self) -> None:
        super().__init__()
        self.table = TableSpec(name="t", schema=SCHEMA, spec=SPEC)
        self.leases = WriteLeases(self.store, self.clock)
        self.write_id = self.take()

    def take(self, client: str = "me", **options) -> str:
        return self.leases.take(self.table, client, "token", "append", **options)

    def put(self, sender: str = "s1") -> tuple[StagedFiles, str]:
        key = f"{staging_prefix(self.table.folder, self.write_id)}{sender}/0.parquet"
        file = write_data_file(self.store, key, pa.table({"id": [1], "day": [None]}, SCHEMA))
        files = StagedFiles(files=(StagedFile(value=(None, 2), file=file),))
        return files, self.leases.put(self.write_id, sender, files, self.table)


@pytest.fixture
def written():
    return Written()


def test_what_was_put_stays_however_old_it_is_while_the_write_is_kept_on(written):
    files, digest = written.put()
    assert written.collect(lambda: written.leases.renew_now_and_then(written.write_id, "me")) == []
    assert written.leases.staged(written.write_id, "s1", digest, written.table) == files


@pytest.mark.parametrize("ends", ["aborted", "not renewed"])
def test_what_was_put_goes_with_the_write_and_nobody_goes_on_with_it(written, ends):
    files, _ = written.put()
    if ends == "aborted":
        written.leases.end(written.write_id, "me")
    assert written.collect() == [files.files[0].file.path]
    for asked in (
        lambda: written.leases.renew(written.write_id, "me"),
        lambda: written.leases.renew_now_and_then(written.write_id, "me"),
        lambda: written.leases.read(written.write_id),
    ):
        with pytest.raises(SnapshotGone, match="committed, aborted or not renewed"):
            asked()
    written.leases.tick()
    assert list(written.store.list(WRITES_PREFIX)) == []


def test_what_was_committed_stays_after_its_write(written):
    (one,) = written.put()[0].files
    written.storage.commit(add=[one.file], epoch=1, token="t")
    written.leases.end(written.write_id, "me")
    assert written.collect() == []


def test_a_lease_lasts_to_its_end_by_the_clock_of_the_store_and_not_longer(written):
    written.put()
    written.clock.now_ms += LEASE_MS
    assert written.leases.tick() == 0
    assert written.leases.prefixes(written.clock.now_ms) == (staging_prefix("t", written.write_id),)
    written.clock.now_ms += SKEW_MS + 2
    assert written.leases.prefixes(written.clock.now_ms) == ()
    assert written.leases.tick() == 1
    with pytest.raises(SnapshotGone):
        written.leases.renew(written.write_id, "me")


def test_no_write_lasts_longer_than_a_day(written):
    while written.clock.now_ms <= LONGEST_MS + 1_000:
        written.leases.renew(written.write_id, "me")
        written.clock.now_ms += LEASE_MS
    with pytest.raises(SnapshotGone):
        written.leases.renew(written.write_id, "me")


def test_a_renewal_between_the_look_and_the_tombstone_wins(written, monkeypatch):
    """The collector has seen a lease that ran out; it is renewed before the tombstone lies over it."""
    written.clock.now_ms += LEASE_MS + 2 * SKEW_MS
    other, real = WriteLeases(written.store, written.clock), MemoryStore.replace
    met = []

    def replace(self, key, *args, **kwargs):
        if key.startswith(WRITES_PREFIX) and not met:
            met.append(key)
            other.renew(written.write_id, "me")
        return real(self, key, *args, **kwargs)

    monkeypatch.setattr(MemoryStore, "replace", replace)
    assert written.leases.prefixes(written.clock.now_ms) == (staging_prefix("t", written.write_id),)
    assert met
    assert written.leases.read(written.write_id).renewals == 1


def test_a_renewal_now_and_then_writes_the_document_once_an_eighth_of_the_lease(written):
    assert written.leases.renew_now_and_then(written.write_id, "me").renewals == 0
    written.clock.now_ms += LEASE_MS / 8 + 1
    assert written.leases.renew_now_and_then(written.write_id, "me").renewals == 1
    assert written.leases.renew_now_and_then(written.write_id, "me").renewals == 1
    written.clock.now_ms -= 2 * MINUTE_MS  # a clock that was set back counts for nothing
    assert written.leases.renew_now_and_then(written.write_id, "me").renewals == 2


def test_a_write_is_its_clients_alone(written):
    for renew in (written.leases.renew, written.leases.renew_now_and_then):
        with pytest.raises(SnapshotGone):
            renew(written.write_id, "other")
    written.leases.end(written.write_id, "other")
    assert written.leases.read(written.write_id).client == "me"


def test_what_a_receipt_names_must_be_there_as_it_was_put(written):
    _, digest = written.put()
    with pytest.raises(InvalidData, match="nobody has put"):
        written.leases.staged(written.write_id, "s2", digest, written.table)
    with pytest.raises(DocumentUnreadable, match="damaged"):
        written.leases.staged(written.write_id, "s1", "0" * 64, written.table)
    other = written.take()
    with pytest.raises(InvalidData, match="nobody has put"):
        written.leases.staged(other, "s1", digest, written.table)


@pytest.mark.parametrize("name", ["", "..", "../cluster", "a/b", "x" * 65, "é", "s1.json"])
def test_names_of_clients_reach_no_other_object(written, name):
    written.put()
    with pytest.raises(InvalidData):
        written.leases.staged(written.write_id, name, "", written.table)
    with pytest.raises(InvalidData):
        written.leases.staged(name, "s1", "", written.table)
    with pytest.raises(InvalidData):
        written.leases.read(f"{written.write_id}/{name}" if name else name)


def test_what_is_left_without_a_lease_goes_after_a_while(written):
    written.put()
    written.store.delete(f"{WRITES_PREFIX}{written.write_id}.json")
    assert written.leases.tick() == 0
    written.clock.now_ms += ORPHANED_MS
    assert written.leases.tick() == 1
    assert list(written.store.list(WRITES_PREFIX)) == []


def test_one_client_has_only_so_many_writes_open(written, monkeypatch):
    monkeypatch.setattr(leases, "MAX_OPEN", 2)
    mine = written.take()
    with pytest.raises(TryLater, match="2 writes of this client are open"):
        written.take()
    written.take(client="other")
    written.leases.end(mine, "me")
    written.take()


def test_more_files_than_one_object_holds_are_refused(monkeypatch):
    file = StagedFile(value=(None, 1), file=DataFile(path="a", rows=1, bytes=1))
    monkeypatch.setattr(staged, "MAX_FILES", 1)
    with pytest.raises(ConfigError, match="sort them by partition"):
        StagedFiles(files=(file, file)).to_bytes(SPEC)
    monkeypatch.setattr(staged, "MAX_FILES", 10)
    monkeypatch.setattr(staged, "MAX_FILES_BYTES", 100)
    with pytest.raises(ConfigError, match="sort them by partition"):
        StagedFiles(files=(file, file)).to_bytes(SPEC)


FILES = st.builds(
    DataFile,
    path=st.text(max_size=10),
    rows=st.integers(0, 1 << 40),
    bytes=st.integers(0, 1 << 40),
    checksum=st.just("crc32:00000000"),
    format=st.sampled_from(["parquet", "vortex"]),
    definition=st.integers(0, 9),
    columns=st.dictionaries(
        st.text(max_size=5),
        st.builds(ColumnStatistics, min=st.none() | st.text(max_size=5), null_count=st.none() | st.integers(0, 9)),
        max_size=3,
    ),
)


@given(
    files=st.lists(
        st.builds(
            StagedFile,
            value=st.tuples(st.none() | st.dates(), st.none() | st.integers(0, 2)),
            file=FILES,
        ),
        max_size=5,
    )
)
def test_what_was_put_is_read_as_it_was_named(files):
    found = StagedFiles(files=tuple(files))
    assert StagedFiles.from_bytes(*found.to_bytes(SPEC), SPEC) == found
    named = [one.file for one in files]
    assert list(files_from_json(files_to_json(named))) == named


def test_a_file_of_another_form_is_refused():
    with pytest.raises(DocumentUnreadable):
        files_from_json([{"path": 3}])
