"""Read leases: the files of a read job stay, whatever becomes of its table, as long as its lease is renewed.

A read job is two objects: `reads/{id}.files` names the files of one instant and never changes; `reads/{id}.json` is
the lease on them. No clock of a node decides that a lease is over, but the one that stamps the store's objects, and
whoever thinks so puts a tombstone over the very version that it saw. So a renewal and the end of a lease meet in one
document and one of them wins: renewed first, the files are kept; ended first, the renewal is told so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from typing import ClassVar

from attrs import define, evolve, frozen

from ballista_py.errors import ObjectMissing, SnapshotGone, TryLater
from ballista_py.runtime import Runtime
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.members.liveness import SKEW_MS
from ballista_py.state.stores.clock import left_clocks, store_now_ms
from ballista_py.state.stores.store import ConditionalStore, ObjectEntry
from ballista_py.storage.reads.files import MAX_FILES_BYTES, ReadFiles

READS_PREFIX = "reads/"
LEASE_MS = 900_000
LONGEST_MS = 86_400_000
TAKEN_WITHIN_MS = 600_000.0  # less than anything needs to become garbage
ORPHANED_MS = 3_600_000.0  # after which files without a lease are of one that will never be taken
MAX_OPEN = 1_000  # read jobs of one client
_DOCUMENT, _FILES = ".json", ".files"
_ID = re.compile(r"[0-9a-f]{16}\.[0-9A-Za-z_-]{1,64}")


@frozen(kw_only=True)
class ReadDocument:
    """`reads/{id}.json`: the lease of a read job of `client` on files of `table`, as that was called when it began.

    It lasts `lease_ms` from its last renewal, and till `ends_ms` (wall time) at the latest. `digest` is that of what
    names the files. An `ended` one is over for ever.
    """

    document_kind: ClassVar[str] = "read"
    schema_version: ClassVar[int] = 1
    may_vanish: ClassVar[bool] = True  # then it is over

    table: str
    client: str
    digest: str
    lease_ms: int
    ends_ms: int
    renewals: int = 0
    ended: bool = False


@define
class _Lying:
    """What of a read job lies on the store."""

    document: ObjectEntry | None = None
    files: ObjectEntry | None = None


class ReadLeases:
    """The read jobs of a cluster. Safe to share between threads; every node has one.

    >>> import pyarrow as pa
    >>> from ballista_py.runtime import SystemRuntime
    >>> from ballista_py.state.stores.memory import MemoryStore
    >>> leases, schema = ReadLeases(MemoryStore(), SystemRuntime()), pa.schema([("id", pa.int64())])
    >>> files = ReadFiles(table="events", folder="events", incarnation="", schema=schema, parts=())
    >>> read_id, _digest = leases.take(files, client="me", fixed_ms=SystemRuntime().monotonic_ms())
    >>> leases.renew(read_id, client="me").renewals
    1
    >>> leases.end(read_id, client="me")
    >>> leases.renew(read_id, client="me")
    Traceback (most recent call last):
    ...
    ballista_py.errors.SnapshotGone: the read job is over, because it was closed or not renewed in time: read again
    """

    def __init__(self, store: ConditionalStore, runtime: Runtime) -> None:
        self._store = store
        self._runtime = runtime

    def take(self, files: ReadFiles, client: str, fixed_ms: float, lease_ms: int = LEASE_MS) -> tuple[str, str]:
        """Keep these files from now on; the id of the read job, and the digest by which what names them is known.
        Manifests named them at `fixed_ms`, or later, by the monotonic clock of this process.

        A file that nothing names any more is removed no sooner than half an hour later. Raises `TryLater` when so much
        time has passed that it may be, and for a client that has `MAX_OPEN` read jobs already; `ConfigError` for more
        files than a read job names.
        """
        data, digest = files.to_bytes()
        mine = sha256(client.encode()).hexdigest()[:16]
        opened = sum(entry.key.endswith(_DOCUMENT) for entry in self._store.list(f"{READS_PREFIX}{mine}."))
        if opened >= MAX_OPEN:
            raise TryLater(f"{opened:,} read jobs of this client are open: close those that nobody reads any more")
        read_id = f"{mine}.{self._runtime.new_id()}"
        self._store.create(_files_key(read_id), data)  # first: where a lease is, its files can be read
        lease = ReadDocument(
            table=files.table,
            client=client,
            digest=digest,
            lease_ms=lease_ms,
            ends_ms=int(self._runtime.wall_ms()) + LONGEST_MS,
        )
        self._state(read_id).create(lease)
        if self._runtime.monotonic_ms() - fixed_ms > TAKEN_WITHIN_MS:
            self.end(read_id, client)
            raise TryLater(f"the files of table '{files.table}' were found too slowly to be kept: read again")
        return read_id, digest

    def read(self, read_id: str) -> ReadDocument:
        """The lease, if it was not ended. Raises `SnapshotGone`."""
        try:
            found = self._named(read_id).read().document
        except ObjectMissing:
            raise _gone() from None
        if found.ended:
            raise _gone()
        return found

    def files(self, read_id: str, digest: str) -> ReadFiles:
        """What the read job names. Raises `SnapshotGone`, and `DocumentUnreadable` for what is not its own."""
        try:
            data = self._store.get(_files_key(read_id), MAX_FILES_BYTES).data
        except ObjectMissing:
            raise _gone() from None
        return ReadFiles.from_bytes(data, digest)

    def renew(self, read_id: str, client: str) -> ReadDocument:
        """Let the lease last on, from now. Raises `SnapshotGone` once it is over, and for that of another client."""

        def renewed(lease: ReadDocument) -> ReadDocument:
            if lease.ended or lease.client != client or self._runtime.wall_ms() > lease.ends_ms:
                raise _gone()
            return evolve(lease, renewals=lease.renewals + 1)

        try:
            return self._named(read_id).update(renewed).document
        except ObjectMissing:
            raise _gone() from None

    def end(self, read_id: str, client: str) -> None:
        """Give the files up. Does nothing where there is nothing to end, and to the lease of another client."""

        def ended(lease: ReadDocument) -> ReadDocument:
            return evolve(lease, ended=True) if lease.client == client else lease

        with suppress(ObjectMissing, SnapshotGone):
            if self._named(read_id).update(ended).document.ended:
                self._remove(read_id)

    def kept(self, now_ms: float) -> set[str]:
        """The files that read jobs keep, at `now_ms` by the store's clock. To be asked after the files were listed.

        This ends leases that were not renewed in time. One that cannot be read may keep anything: raises what reading
        it raises.
        """
        kept: set[str] = set()
        for read_id, lying in _lying(self._store.list(READS_PREFIX)).items():
            lease = self._in_force(read_id, lying, now_ms)
            if lease is not None:
                with suppress(SnapshotGone):  # ended meanwhile
                    kept.update(self.files(read_id, lease.digest).paths())
        return kept

    def tick(self) -> int:
        """End leases that were not renewed in time, and remove what is left of read jobs; of how many.

        Several nodes at once do no harm. Raises what the store raises; the next tick goes on.
        """
        entries = list(self._store.list(READS_PREFIX))
        if not entries:
            return 0
        now_ms = store_now_ms(self._store, self._runtime, READS_PREFIX)
        for key in left_clocks(entries, READS_PREFIX, now_ms):
            self._store.delete(key)
        removed = 0
        for read_id, lying in _lying(entries).items():
            if lying.document is None and not _is_orphaned(lying.files, now_ms):
                continue  # files without a lease may be of one that is about to be taken
            if self._in_force(read_id, lying, now_ms) is None:
                self._remove(read_id)
                removed += 1
        return removed

    def _remove(self, read_id: str) -> None:
        """Remove what is left of a job that is over; whoever asks for it is told so. The lease goes last."""
        self._store.delete(_files_key(read_id))
        self._store.delete(f"{READS_PREFIX}{read_id}{_DOCUMENT}")

    def _in_force(self, read_id: str, lying: _Lying, now_ms: float) -> ReadDocument | None:
        """The lease, unless it is over or is ended by this, because nobody has renewed it in time."""
        if lying.document is None:
            return None
        state = self._state(read_id)
        try:
            seen = state.read().document
            # What was listed may be what it was before a renewal that is read by now: so look again how old it is.
            if _is_over(lying.document, seen, now_ms) and _is_over(self._listed(read_id), seen, now_ms):
                seen = state.update(lambda now: evolve(now, ended=True) if now == seen else now).document
        except ObjectMissing:
            return None
        return None if seen.ended else seen

    def _listed(self, read_id: str) -> ObjectEntry | None:
        return next(iter(self._store.list(f"{READS_PREFIX}{read_id}{_DOCUMENT}")), None)

    def _named(self, read_id: str) -> ObjectState[ReadDocument]:
        """The lease that somebody names. Raises `SnapshotGone` for what can be the name of none."""
        if not _ID.fullmatch(read_id):
            raise _gone()
        return self._state(read_id)

    def _state(self, read_id: str) -> ObjectState[ReadDocument]:
        return ObjectState(self._store, f"{READS_PREFIX}{read_id}{_DOCUMENT}", ReadDocument, runtime=self._runtime)


def _lying(entries: Iterable[ObjectEntry]) -> dict[str, _Lying]:
    """What lies of each read job."""
    found: dict[str, _Lying] = {}
    for entry in entries:
        read_id, dot, kind = entry.key.removeprefix(READS_PREFIX).rpartition(".")
        if dot + kind == _DOCUMENT:
            found.setdefault(read_id, _Lying()).document = entry
        elif dot + kind == _FILES:
            found.setdefault(read_id, _Lying()).files = entry
    return found


def _is_over(lying: ObjectEntry | None, lease: ReadDocument, now_ms: float) -> bool:
    """Whether a lease that was written when its object says so was not renewed in time."""
    return lying is not None and not lease.ended and now_ms - lying.modified_ms > lease.lease_ms + SKEW_MS


def _is_orphaned(files: ObjectEntry | None, now_ms: float) -> bool:
    return files is not None and now_ms - files.modified_ms >= ORPHANED_MS


def _files_key(read_id: str) -> str:
    return f"{READS_PREFIX}{read_id}{_FILES}"


def _gone() -> SnapshotGone:
    return SnapshotGone("the read job is over, because it was closed or not renewed in time: read again")
