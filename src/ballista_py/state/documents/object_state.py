"""One typed document under optimistic concurrency: read, change, replace if unchanged, and never guess.

`ObjectState` promises that no update is lost, that a change is applied at most once whatever replies are lost, and
that callers of one process who change the same document share commits. It leaves to the caller what a change
means, to `landing.py` how a doubtful write is judged and to `group.py` how changes share a commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Generic, TypeVar, cast

from attrs import evolve, frozen

from ballista_py.errors import (
    BallistaError,
    DocumentUnreadable,
    InvariantViolated,
    ObjectExists,
    ObjectMissing,
    OutcomeUnknown,
    RetriesExhausted,
    StoreUnavailable,
    VersionConflict,
)
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.state.documents.codec import RECENT_COMMITS, Decoded, DocumentCodec, Header
from ballista_py.state.documents.group_commit import GroupDraft, Ticket, tally
from ballista_py.state.documents.landing import Attempt, Landing, Read, judge
from ballista_py.state.documents.large_documents import DecodedDocument, read_in_turn
from ballista_py.state.documents.lost_documents import DocumentMemory, ForgetfulMemory, lost, require_successor
from ballista_py.state.stores.store import ConditionalStore, StoredObject

MAX_GROUP = 256

T = TypeVar("T")


@frozen(kw_only=True)
class Retry:
    """How often a write is tried, and the waits between: Fibonacci numbers times `unit_ms`, with full jitter.

    No wait is longer than `longest_ms`. The first `free_races` attempts that lost to another writer's commit do not
    count: the document went on, only not by us. Give some to a document that many processes write.
    """

    attempts: int = 8
    free_races: int = 0
    unit_ms: float = 25.0
    longest_ms: float = 1_000.0

    def delay_ms(self, tries: int, chance: float) -> float:
        """The wait after `tries` failed ones; `chance` is a random number in [0, 1).

        >>> [Retry(unit_ms=10).delay_ms(tries, 0.5) for tries in range(1, 6)]
        [5.0, 5.0, 10.0, 15.0, 25.0]
        """
        smaller, larger = 1, 1
        for _ in range(tries - 1):
            smaller, larger = larger, smaller + larger
        return min(smaller * self.unit_ms, self.longest_ms) * chance


SHARED = Retry(free_races=64, longest_ms=250.0)  # for a document that every scheduler writes


@frozen(kw_only=True)
class Versioned(Generic[T]):
    """A document as some commit left it. `version` is the store's, or empty where others followed already."""

    document: T
    header: Header
    version: str


class ObjectState(Generic[T]):
    """The document of type `document_type` under `key`. Safe to share between threads.

    `committed_by` goes into every header. `invariant(old, new)` is asked before every commit and returns what is
    wrong, or None. `memory` is what the process has seen of documents (default: what this object has). The type is an
    attrs class (see `DocumentCodec`); one that says `may_vanish` is never missed.

    >>> from attrs import evolve, frozen
    >>> from ballista_py.state.stores.memory import MemoryStore
    >>> @frozen
    ... class Counter:
    ...     value: int = 0
    >>> state = ObjectState(MemoryStore(), "counter.json", Counter)
    >>> state.create(Counter()).header.revision
    1
    >>> state.update(lambda counter: evolve(counter, value=counter.value + 1)).document
    Counter(value=1)
    """

    def __init__(
        self,
        store: ConditionalStore,
        key: str,
        document_type: type[T],
        *,
        runtime: Runtime | None = None,
        retry: Retry | None = None,
        committed_by: str = "",
        invariant: Callable[[T, T], str | None] | None = None,
        memory: DocumentMemory | None = None,
    ) -> None:
        self.key = key
        self._store = store
        self._codec = DocumentCodec(document_type)
        self._runtime = runtime or SystemRuntime()
        self._retry = retry or Retry()
        self._committed_by = committed_by
        self._invariant = invariant
        self._turn = self._runtime.condition()
        self._newest: DecodedDocument[Decoded[T]] | None = None
        if getattr(document_type, "may_vanish", False):
            memory = ForgetfulMemory()
        self._memory = memory if memory is not None else DocumentMemory()
        self._waiting: list[Ticket[T]] = []
        self._leading = False

    def read(self) -> Versioned[T]:
        """The newest document, which follows every one that this object has seen.

        Raises `ObjectMissing`, `DocumentUnreadable`, `SchemaVersionUnsupported`, `StoreUnavailable`; `DocumentLost` or
        `DocumentOlder` when the document that this object saw before is gone, or was replaced by an older copy.
        """
        return _versioned(self._read())

    def create(self, document: T) -> Versioned[T]:
        """Write the first document. Raises `ObjectExists`, and what `update` raises for a store in trouble."""

        def prepare(current: Read[T] | None) -> Attempt[T]:
            if current is not None:
                raise ObjectExists(f"document '{self.key}' exists already", key=self.key)
            return self._attempt(document, None)

        landed = self._land(prepare, read_first=False)
        assert landed is not None
        return landed

    def restore(self, document: T, *, above: int = 0) -> Versioned[T]:
        """Write `document` over whatever is there, at a revision higher than that and than `above`.

        For repairs alone, while nobody else writes: what it replaces may be unreadable, or missing. Raises
        `VersionConflict` or `ObjectExists` when somebody else wrote meanwhile, and what the store raises.
        """
        try:
            stored = self._store.get(self.key)
        except ObjectMissing:
            version = None
        else:
            version = stored.version
            with suppress(DocumentUnreadable):
                above = max(above, self._codec.decode(self.key, stored.data).header.revision)
        attempt = self._attempt(document, None)
        header = evolve(attempt.header, revision=above + 1)
        data = self._codec.encode(self.key, header, document)
        self._send(evolve(attempt, header=header, data=data, base_version=version))
        return self.read()

    def update(self, change: Callable[[T], T]) -> Versioned[T]:
        """Apply `change` to the newest document and commit it; returns the document as that commit left it.

        `change` must be pure: after a conflict it is called again on the fresh document. Returning an equal one
        writes nothing. What it raises passes through, and nothing of it is written. Calls that wait at the same
        time are committed together, each change on top of the ones before it. Do not call `update` inside it.

        Raises `ObjectMissing`; `RetriesExhausted` (surely not applied); `OutcomeUnknown` (nobody can tell whether
        it was applied); `InvariantViolated`, `DocumentUnreadable`, `SchemaVersionUnsupported` (not applied).
        """
        ticket = Ticket(change)
        with self._turn:
            self._waiting.append(ticket)
            while self._leading and not ticket.settled:
                self._turn.wait()
            if not ticket.settled:
                self._leading = True
                lead = True
            else:
                lead = False
        if lead:
            self._lead(ticket)
        if ticket.error is not None:
            raise ticket.error
        return cast(Versioned[T], ticket.outcome)

    def _lead(self, ticket: Ticket[T]) -> None:
        """Commit group after group until `ticket` is settled, then let another waiting caller lead."""
        try:
            while not ticket.settled:
                with self._turn:
                    group, self._waiting = self._waiting[:MAX_GROUP], self._waiting[MAX_GROUP:]
                deferred = self._commit(group)
                with self._turn:
                    self._waiting = deferred + self._waiting
                    self._turn.notify_all()
        finally:
            with self._turn:
                self._leading = False
                self._turn.notify_all()

    def _commit(self, group: list[Ticket[T]]) -> list[Ticket[T]]:
        """Settle the group in one commit, but for the tickets returned, which must be tried by themselves."""
        last: list[GroupDraft[T]] = []

        def prepare(current: Read[T] | None) -> Attempt[T] | None:
            if current is None:
                raise ObjectMissing(f"document '{self.key}' does not exist", key=self.key)
            waiting = [ticket for ticket in group if not ticket.settled]
            result = tally(current.decoded.document, waiting, self._objection)
            last[:] = [result]
            _settle(result.done, _versioned(current))
            return self._attempt(result.document, current) if result.changed else None

        try:
            landed = self._land(prepare, read_first=True)
        except BaseException as error:
            known = error if isinstance(error, Exception) else self._unknown("its writer was interrupted")
            for ticket in group:
                if not ticket.settled:
                    ticket.fail(known)
            if not isinstance(error, Exception):
                raise
            return []
        result = last[0]
        if landed is not None:
            _settle(((ticket, None) for ticket in result.changed), landed)
            _settle(result.failed, landed)
        return result.deferred

    def _land(
        self, prepare: Callable[[Read[T] | None], Attempt[T] | None], *, read_first: bool
    ) -> Versioned[T] | None:
        """Send what `prepare` makes of the newest document until one attempt surely landed.

        None if `prepare` wants nothing written. An attempt whose fate is open is never made anew: while it may
        still land it is sent again as it is, so that it lands at most once.
        """
        doubtful: Attempt[T] | None = None
        trouble: BallistaError | None = None
        made, lost_races = 0, 0
        while True:
            spent = made - lost_races >= self._retry.attempts  # then the last turn only reads back
            if spent and doubtful is None:
                break
            if made:
                self._runtime.sleep_ms(self._retry.delay_ms(made, self._runtime.random()))
            try:
                current = self._peek() if made or read_first else None
            except (StoreUnavailable, OutcomeUnknown) as error:
                trouble = error
                if spent:
                    break
                made += 1
                continue
            except BallistaError as error:
                if doubtful is not None and doubtful.blind:
                    raise self._unknown("it can no longer be read") from error
                raise
            if doubtful is not None:
                fate = self._fate(doubtful, current)
                if isinstance(fate, Versioned):
                    return fate
                doubtful = fate
            if spent:
                break
            attempt = doubtful or prepare(current)
            if attempt is None:
                return None
            made += 1
            try:
                version = self._send(attempt)
                self._memory.note(self.key, attempt.header)
                return Versioned(document=attempt.document, header=attempt.header, version=version)
            except (VersionConflict, ObjectExists, OutcomeUnknown) as error:
                trouble = error
                fate = self._look_back(evolve(attempt, blind=attempt.blind or isinstance(error, OutcomeUnknown)))
                if isinstance(fate, Versioned):
                    return fate
                doubtful = fate
                if doubtful is None and lost_races < self._retry.free_races:
                    lost_races += 1
            except StoreUnavailable as error:
                trouble = error
        if doubtful is not None:
            raise self._unknown("the store did not say") from trouble
        met = (
            f"a store in trouble ({trouble.message})" if isinstance(trouble, StoreUnavailable) else "other writers"
        )
        raise RetriesExhausted(
            f"document '{self.key}' was not changed: {made} attempts met {met}; try again later",
            key=self.key,
            attempts=made,
        ) from trouble

    def _look_back(self, doubtful: Attempt[T]) -> Versioned[T] | Attempt[T] | None:
        """`_fate` by a read at once, while few commits can have followed; still open where that read fails."""
        try:
            current = self._peek()
        except BallistaError:
            return doubtful
        return self._fate(doubtful, current)

    def _fate(self, doubtful: Attempt[T], current: Read[T] | None) -> Versioned[T] | Attempt[T] | None:
        """The landed document, the attempt if it is still open, or None if it is lost for good."""
        match judge(doubtful, current):
            case Landing.LANDED:
                return _landed(doubtful, current)
            case Landing.PENDING:
                return doubtful
            case Landing.LOST:
                return None
            case Landing.UNKNOWN:
                raise self._unknown(f"more than {RECENT_COMMITS} commits followed, or it was removed")

    def _send(self, attempt: Attempt[T]) -> str:
        if attempt.base_version is None:
            return self._store.create(self.key, attempt.data)
        return self._store.replace(self.key, attempt.data, attempt.base_version)

    def _attempt(self, document: T, before: Read[T] | None) -> Attempt[T]:
        commit_id = self._runtime.new_id()
        recent = before.decoded.header.recent_commits if before is not None else ()
        header = Header(
            kind=self._codec.kind,
            schema_version=self._codec.schema_version,
            revision=before.decoded.header.revision + 1 if before is not None else 1,
            commit_id=commit_id,
            committed_by=self._committed_by,
            updated_at_ms=self._runtime.wall_ms(),
            recent_commits=(*recent, commit_id)[-RECENT_COMMITS:],
            key=self.key,
        )
        data = self._codec.encode(self.key, header, document, before.decoded if before is not None else None)
        base_version = before.version if before is not None else None
        return Attempt(document=document, header=header, data=data, base_version=base_version)

    def _read(self) -> Read[T]:
        seen = self._memory.of(self.key)  # before the request: another thread may see a newer one meanwhile
        try:
            newest, version = read_in_turn(self._store, self.key, self._understood)
        except ObjectMissing:
            if seen is None:
                raise
            raise lost(self.key, seen) from None
        header = newest.decoded.header
        require_successor(self.key, seen, header)
        self._memory.note(self.key, header)
        return Read(decoded=newest.decoded, version=version)

    def _understood(self, stored: StoredObject) -> tuple[DecodedDocument[Decoded[T]], str]:
        """What was read, and its version."""
        newest = self._newest
        if newest is None or newest.data != stored.data:  # documents are values: the same bytes mean the same one
            newest = self._newest = self._codec.kept(self.key, stored.data)
        return newest, stored.version

    def _peek(self) -> Read[T] | None:
        try:
            return self._read()
        except ObjectMissing:
            return None

    def _objection(self, old: T, new: T) -> Exception | None:
        reason = self._invariant(old, new) if self._invariant is not None else None
        if reason is None:
            return None
        return InvariantViolated(f"document '{self.key}' was not changed: {reason}", key=self.key)

    def _unknown(self, reason: str) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"document '{self.key}' may have been changed: {reason}; read it before acting on it", key=self.key
        )


def _settle(outcomes: Iterable[tuple[Ticket[T], Exception | None]], versioned: Versioned[T]) -> None:
    for ticket, error in outcomes:
        if error is None:
            ticket.settle(versioned)
        else:
            ticket.fail(error)


def _versioned(read: Read[T]) -> Versioned[T]:
    decoded: Decoded[T] = read.decoded
    return Versioned(document=decoded.document, header=decoded.header, version=read.version)


def _landed(attempt: Attempt[T], current: Read[T] | None) -> Versioned[T]:
    newest = current is not None and current.decoded.header.commit_id == attempt.header.commit_id
    version = current.version if current is not None and newest else ""
    return Versioned(document=attempt.document, header=attempt.header, version=version)
