"""Write leases: files that senders have put stay until their write is committed, or its lease is over.

A write is a document, `writes/{id}.json`, which is the lease, and an object for each sender that came to its end,
`writes/{id}/{sender}`, which names its files. These lie below `snapshots/{folder}/data/{id}/`, where nobody sees them
before a manifest names them. As for read leases no clock of a node decides that a lease is over, but the one that
stamps the store's objects, and whoever thinks so puts a tombstone over the very version that it saw. So a commit,
whose first act is a renewal, and the end of a lease meet in one document: renewed first, the files stay for longer
than a commit may take; ended first, the commit is told so and changes nothing.
"""

from __future__ import annotations

import re
from contextlib import suppress
from hashlib import sha256
from typing import ClassVar, Literal, TypeAlias

from attrs import Factory, define, evolve, frozen

from ballista_py.errors import InvalidData, ObjectMissing, SnapshotGone, TryLater
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import Runtime
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.members.liveness import SKEW_MS
from ballista_py.state.stores.clock import store_now_ms
from ballista_py.state.stores.store import ConditionalStore, ObjectEntry
from ballista_py.storage.manifest import data_prefix
from ballista_py.storage.writes.staged import MAX_FILES_BYTES, StagedFiles

WRITES_PREFIX = "writes/"
LEASE_MS = 3_600_000
LONGEST_MS = 86_400_000
ORPHANED_MS = 3_600_000.0  # after which what senders put without a lease is of a write that is over
MAX_OPEN = 10_000  # writes of one client
_DOCUMENT = ".json"
_ID = re.compile(r"[0-9a-f]{16}\.[0-9A-Za-z_-]{1,64}")
_SENDER = re.compile(r"[0-9A-Za-z_-]{1,64}")

WriteMode: TypeAlias = Literal["append", "overwrite"]


@frozen(kw_only=True)
class WriteDocument:
    """`writes/{id}.json`: the lease of a write of `client` to a table, as that was when it began.

    It lasts `lease_ms` from its last renewal, and till `ends_ms` (wall time) at the latest; `renewed_ms` is wall time.
    `token` is the statement's, as manifests keep it. An `ended` one is over for ever.
    """

    document_kind: ClassVar[str] = "write"
    schema_version: ClassVar[int] = 1
    may_vanish: ClassVar[bool] = True  # then it is over

    table: TableSpec
    client: str
    token: str
    mode: WriteMode
    lease_ms: int
    ends_ms: int
    renewed_ms: int
    renewals: int = 0
    ended: bool = False


@define
class _LyingWrite:
    """What of a write lies on the store."""

    document: ObjectEntry | None = None
    senders: list[ObjectEntry] = Factory(list)


class WriteLeases:
    """The writes of a cluster. Safe to share between threads; every node has one.

    >>> import pyarrow as pa
    >>> from ballista_py.partitions.spec import PartitionSpec
    >>> from ballista_py.runtime import SystemRuntime
    >>> from ballista_py.state.stores.memory import MemoryStore
    >>> table = TableSpec(name="t", schema=pa.schema([("id", pa.int64())]), spec=PartitionSpec.whole(),
    ...                   distribution="replicated")
    >>> leases = WriteLeases(MemoryStore(), SystemRuntime())
    >>> write_id = leases.take(table, client="me", token="t1", mode="append")
    >>> leases.renew(write_id, client="me").renewals
    1
    >>> leases.end(write_id, client="me")
    >>> leases.renew(write_id, client="me")
    Traceback (most recent call last):
    ...
    ballista_py.errors.SnapshotGone: the write is over, because it was committed, aborted or not renewed in time: \
begin it again under its token
    """

    def __init__(self, store: ConditionalStore, runtime: Runtime) -> None:
        self._store = store
        self._runtime = runtime

    def take(self, table: TableSpec, client: str, token: str, mode: WriteMode, lease_ms: int = LEASE_MS) -> str:
        """Keep what will be put for a write; its id. Raises `TryLater` for a client that has `MAX_OPEN` already."""
        mine = sha256(client.encode()).hexdigest()[:16]
        opened = sum(entry.key.endswith(_DOCUMENT) for entry in self._store.list(f"{WRITES_PREFIX}{mine}."))
        if opened >= MAX_OPEN:
            raise TryLater(f"{opened:,} writes of this client are open: commit or abort those that nobody needs")
        write_id, now_ms = f"{mine}.{self._runtime.new_id()}", int(self._runtime.wall_ms())
        lease = WriteDocument(
            table=table,
            client=client,
            token=token,
            mode=mode,
            lease_ms=lease_ms,
            ends_ms=now_ms + LONGEST_MS,
            renewed_ms=now_ms,
        )
        self._state(write_id).create(lease)
        return write_id

    def read(self, write_id: str) -> WriteDocument:
        """The lease, if it was not ended. Raises `SnapshotGone`, and `InvalidData` for what is no id."""
        try:
            found = self._state(write_id).read().document
        except ObjectMissing:
            raise _gone() from None
        if found.ended:
            raise _gone()
        return found

    def renew(self, write_id: str, client: str) -> WriteDocument:
        """Let the lease last on, from now. Raises `SnapshotGone` once it is over, and for that of another client."""

        def renewed(lease: WriteDocument) -> WriteDocument:
            now_ms = int(self._runtime.wall_ms())
            if lease.ended or lease.client != client or now_ms > lease.ends_ms:
                raise _gone()
            return evolve(lease, renewals=lease.renewals + 1, renewed_ms=now_ms)

        try:
            return self._state(write_id).update(renewed).document
        except ObjectMissing:
            raise _gone() from None

    def renew_now_and_then(self, write_id: str, client: str) -> WriteDocument:
        """As `renew`, where an eighth of the lease has passed: very many senders do not all write the document."""
        lease = self.read(write_id)
        if 0 <= self._runtime.wall_ms() - lease.renewed_ms < lease.lease_ms / 8 and lease.client == client:
            return lease
        return self.renew(write_id, client)

    def end(self, write_id: str, client: str) -> None:
        """Give up what nobody names. Does nothing where there is nothing to end, and to a write of another client."""

        def ended(lease: WriteDocument) -> WriteDocument:
            return evolve(lease, ended=True) if lease.client == client else lease

        with suppress(ObjectMissing):
            if self._state(write_id).update(ended).document.ended:
                self._remove(write_id)

    def put(self, write_id: str, sender: str, files: StagedFiles, table: TableSpec) -> str:
        """Name the files of a sender that came to its end; the digest by which this is known. Raises `ConfigError`."""
        data, digest = files.to_bytes(table.spec)
        self._store.create(_sender_key(write_id, sender), data)
        return digest

    def staged(self, write_id: str, sender: str, digest: str, table: TableSpec) -> StagedFiles:
        """The files of a sender. Raises `InvalidData` for one that this write does not have, or not as `digest` says,
        and `DocumentUnreadable` for what is damaged."""
        try:
            data = self._store.get(_sender_key(write_id, sender), MAX_FILES_BYTES).data
        except ObjectMissing:
            raise InvalidData(
                "a receipt names rows that nobody has put for this write: commit what was answered to each task"
            ) from None
        return StagedFiles.from_bytes(data, digest, table.spec)

    def prefixes(self, now_ms: float) -> tuple[str, ...]:
        """Below what files may still be committed, at `now_ms` by the store's clock. To be asked after the files were
        listed, and before manifests are read.

        This ends leases that were not renewed in time. Raises what reading one that cannot be read raises.
        """
        found = []
        for write_id, lying in self._lying().items():
            lease = self._in_force(write_id, lying, now_ms)
            if lease is not None:
                found.append(staging_prefix(lease.table.folder, write_id))
        return tuple(found)

    def tick(self) -> int:
        """End leases that were not renewed in time, and remove what is left of writes that are over; of how many.

        Several nodes at once do no harm. Raises what the store raises; the next tick goes on.
        """
        lies = self._lying()
        if not lies:
            return 0
        now_ms = store_now_ms(self._store, self._runtime, WRITES_PREFIX)
        removed = 0
        for write_id, lying in lies.items():
            if lying.document is None and any(now_ms - e.modified_ms < ORPHANED_MS for e in lying.senders):
                continue
            if self._in_force(write_id, lying, now_ms) is None:
                self._remove(write_id)
                removed += 1
        return removed

    def _remove(self, write_id: str) -> None:
        """Remove what is left of a write that is over; whoever asks for it is told so. The lease goes last."""
        for entry in self._store.list(f"{WRITES_PREFIX}{write_id}/"):
            self._store.delete(entry.key)
        self._store.delete(f"{WRITES_PREFIX}{write_id}{_DOCUMENT}")

    def _lying(self) -> dict[str, _LyingWrite]:
        found: dict[str, _LyingWrite] = {}
        for entry in self._store.list(WRITES_PREFIX):
            name, slash, _ = entry.key.removeprefix(WRITES_PREFIX).partition("/")
            write_id = name if slash else name.removesuffix(_DOCUMENT)
            if not _ID.fullmatch(write_id):
                continue
            lying = found.setdefault(write_id, _LyingWrite())
            if slash:
                lying.senders.append(entry)
            else:
                lying.document = entry
        return found

    def _in_force(self, write_id: str, lying: _LyingWrite, now_ms: float) -> WriteDocument | None:
        """The lease, unless it is over or is ended by this, because nobody has renewed it in time."""
        if lying.document is None:
            return None
        state = self._state(write_id)
        try:
            seen = state.read().document
            if not seen.ended and now_ms - lying.document.modified_ms > seen.lease_ms + SKEW_MS:
                seen = state.update(lambda now: evolve(now, ended=True) if now == seen else now).document
        except ObjectMissing:
            return None
        return None if seen.ended else seen

    def _state(self, write_id: str) -> ObjectState[WriteDocument]:
        if not _ID.fullmatch(write_id):
            raise InvalidData("what was sent names no write")
        return ObjectState(
            self._store, f"{WRITES_PREFIX}{write_id}{_DOCUMENT}", WriteDocument, runtime=self._runtime
        )


def staging_prefix(folder: str, write_id: str) -> str:
    """Below which the files of a write lie, in the folder of its table."""
    return f"{data_prefix(folder)}{write_id}/"


def _sender_key(write_id: str, sender: str) -> str:
    if not _ID.fullmatch(write_id) or not _SENDER.fullmatch(sender):
        raise InvalidData("what was sent names no rows of a write")
    return f"{WRITES_PREFIX}{write_id}/{sender}"


def _gone() -> SnapshotGone:
    return SnapshotGone(
        "the write is over, because it was committed, aborted or not renewed in time: begin it again under its token"
    )
