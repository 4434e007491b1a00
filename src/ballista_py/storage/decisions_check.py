"""Whether a table's decisions are those that its manifests were written under, and not an older copy, or none.

A statement over several partitions is decided first and folded into manifests afterwards. So decisions that are read
after a manifest count at least as many statements as that manifest has folded in. Where they do not, the document was
lost or put back, and a query by it would miss rows: whoever finds that out answers nothing and changes nothing.

The files of a leg, once everything that was decided before its moment counts in them.

A partition may come to an executor, or come anew, between the look at what waits in it and the moment at which its
files are named. Then nobody has looked, and a statement over several partitions would be seen in the others only. So
it is asked of each partition by itself: that an attempt was looked at in one says nothing of another. What was found to
count must wait nowhere when the files are named.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Protocol, TypeAlias

from ballista_py.errors import DocumentLost, NotOwner, ObjectMissing
from ballista_py.runtime import Runtime
from ballista_py.sql.plan import Leg
from ballista_py.state.documents.decisions import StatementsDocument, statements_key
from ballista_py.state.documents.lost_documents import DocumentMemory, require_proven, way_out
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.storage.held.holdings import Holdings
from ballista_py.storage.partition_storage import PartitionStorage, partition_paths


def require_decided(folder: str, decided: int, folded: int) -> None:
    """Raises `DocumentOlder` unless `decided` statements, read after a manifest, are as many as it has `folded` in."""
    require_proven(statements_key(folder), "statement", decided, folded, "a manifest of its table")


class DecisionsCheck:
    """Asks the store for the decisions of tables. Safe to share between threads."""

    def __init__(
        self,
        store: ConditionalStore,
        runtime: Runtime,
        memory: DocumentMemory | None = None,
        mapper: Callable[..., Iterable[Any]] = map,
    ) -> None:
        self._store = store
        self._map = mapper
        self._runtime = runtime
        self._memory = memory or DocumentMemory()
        self._known: dict[str, tuple[str, int]] = {}

    def require(self, folder: str, folded: int) -> None:
        """Raise `DocumentLost` or `DocumentOlder` unless `folded` statements of a table were decided.

        A manifest that says so must have been read before. Raises what the store raises.
        """
        if folded:
            require_decided(folder, self._decided(folder), folded)

    def require_everywhere(self, folder: str) -> int:
        """Raise `DocumentLost` or `DocumentOlder` unless every manifest of the table agrees with its decisions.

        For whoever is to give up what they say nothing of: an older copy may know all that was folded in here, and lack
        what another partition has applied. How many statements manifests have folded in. A listing, and one request a
        partition. Raises what reading a manifest raises.
        """

        def sequence(path: str) -> int:
            storage = PartitionStorage(self._store, folder, path, runtime=self._runtime, memory=self._memory)
            return storage.read().document.sequence

        folded = max(self._map(sequence, sorted(partition_paths(self._store, folder))), default=0)
        self.require(folder, folded)
        return folded

    def check_leg(self, leg: Leg, holdings: dict[str, Holdings | None]) -> None:
        """As `require`, for a leg that is to be read as of a moment before what is held; nothing is asked else."""
        for wanted in leg.tables:
            held = holdings.get(wanted.table)
            if held is None or wanted.sequence is None or wanted.revision < held.born:
                continue
            folded = held.folded(wanted.partitions)
            if folded > wanted.sequence:
                self.require(held.table.folder, folded)

    def _decided(self, folder: str) -> int:
        """How many statements the store says were decided."""
        key, known = statements_key(folder), self._known.get(folder)
        try:
            if known is not None and self._store.get_if_changed(key, known[0]) is None:
                return known[1]
            state = ObjectState(self._store, key, StatementsDocument, runtime=self._runtime, memory=self._memory)
            read = state.read()
        except ObjectMissing:
            raise DocumentLost(f"document '{key}' is gone: {way_out()}", key=key) from None
        self._known[folder] = (read.version, read.document.sequence)
        return read.document.sequence


LOOKS = 10
Waiting: TypeAlias = tuple[str, int, str]  # table, partition, and an attempt that waits in it for its decision


class DecidedFilesHolder(Protocol):
    """What is asked of the holder; `PartitionHolder` is one."""

    def waiting(self, leg: Leg) -> frozenset[Waiting]: ...
    def files_if(self, leg: Leg, undecided: Collection[Waiting]) -> dict[str, list[int]] | None: ...


def decided_files(
    holder: DecidedFilesHolder, leg: Leg, look: Callable[[], Collection[Waiting]]
) -> dict[str, list[int]]:
    """The file ids that hold the rows of a leg as of its moment; `look` lets count what waits here and was decided.

    It gives what it let count, which is not to wait any more. Raises what `look` and `PartitionHolder.files_for` raise,
    and `NotOwner` when there was something else each time.
    """
    for _ in range(LOOKS):
        waiting = holder.waiting(leg)
        counts = look()
        files = holder.files_if(leg, waiting.difference(counts))
        if files is not None:
            return files
    raise NotOwner("what is to be read here changes all the time: plan the query again")


def waiting_in(leg: Leg, tables: Mapping[str, Holdings]) -> frozenset[Waiting]:
    """What waits for a decision in what a leg reads as the owner; pure."""
    return frozenset(
        (wanted.table, partition, attempt)
        for wanted in leg.tables
        if wanted.sequence is not None and (holdings := tables.get(wanted.table)) is not None
        for partition in wanted.partitions
        if (held := holdings.held.get(partition)) is not None and held.assignment.role == "owner"
        for attempt in (*held.prepared, *held.outside)
    )


def has_unasked_replicas(leg: Leg, tables: Mapping[str, Holdings]) -> bool:
    """Whether a replica was not compared with its manifest since the leg's moment was known; pure."""
    return any(
        wanted.sequence is not None and held.assignment.role == "replica" and held.known_to < wanted.sequence
        for wanted in leg.tables
        if (holdings := tables.get(wanted.table)) is not None and not holdings.table.is_piped
        for partition in wanted.partitions
        if (held := holdings.held.get(partition)) is not None
    )
