"""Claims: whoever will publish files says so on the store, and nobody collects them as long as the claim stands.

A claim is a document that names the prefix of its files' keys and is renewed by its holder. No age decides alone: it
is over only when a collector, which has seen it unchanged for `patience_ms` of its own monotonic clock, has put a
tombstone over the very version that it saw. The holder's last act before it publishes is one more renewal. So the end
of a claim and the publication meet in the claim's document and one of them wins: renewed first, the files are named by
manifests before anybody may look whether they are; ended first, nothing is published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import ClassVar

from attrs import evolve, frozen

from ballista_py.errors import BallistaError, ObjectMissing, VersionConflict
from ballista_py.runtime import Runtime
from ballista_py.state.documents.object_state import ObjectState, Versioned
from ballista_py.state.members.liveness import BEATS_PER_TTL, SKEW_MS, TTL_MS
from ballista_py.state.stores.store import ConditionalStore

CLAIMS_PREFIX = "accelerations/claims/"
CLAIM_PATIENCE_MS = TTL_MS + SKEW_MS
RENEW_EVERY_MS = TTL_MS / BEATS_PER_TTL
LOOK_MS = 200.0

Spawn = Callable[[Callable[[], None]], object]


@frozen(kw_only=True)
class ClaimDocument:
    """`accelerations/claims/{id}.json`: files below `prefix` will be published. `ended` ones are over for ever."""

    document_kind: ClassVar[str] = "claim"
    schema_version: ClassVar[int] = 1
    may_vanish: ClassVar[bool] = True  # then it is over

    prefix: str
    renewals: int = 0
    ended: bool = False


class Claim:
    """A claim that was taken: on files below `prefix`. Safe to share between threads.

    >>> from ballista_py.runtime import SystemRuntime
    >>> from ballista_py.state.stores.memory import MemoryStore
    >>> store = MemoryStore()
    >>> runtime = SystemRuntime()
    >>> claim = Claim.take(store, "snapshots/t/data/run-1/", runtime)
    >>> claimed_prefixes(store, runtime)
    ('snapshots/t/data/run-1/',)
    >>> claim.confirm()
    >>> claim.end()
    >>> claimed_prefixes(store, runtime)
    ()
    """

    def __init__(self, store: ConditionalStore, key: str, prefix: str, runtime: Runtime) -> None:
        self.key = key
        self.prefix = prefix
        self._store = store
        self._state = ObjectState(store, key, ClaimDocument, runtime=runtime)

    @classmethod
    def take(cls, store: ConditionalStore, prefix: str, runtime: Runtime) -> Claim:
        """Claim what will lie below `prefix`; to be called before the first file is written there."""
        claim = cls(store, f"{CLAIMS_PREFIX}{runtime.new_id()}.json", prefix, runtime)
        claim._state.create(ClaimDocument(prefix=prefix))
        return claim

    def confirm(self) -> None:
        """Renew it. Once this has returned, nobody removes a file below the prefix without looking at manifests anew.

        Raises `VersionConflict` when it is over: the files may be gone. Errors of the store pass through.
        """

        def renew(claim: ClaimDocument) -> ClaimDocument:
            if claim.ended:
                raise self._over()
            return evolve(claim, renewals=claim.renewals + 1)

        try:
            self._state.update(renew)
        except ObjectMissing:
            raise self._over() from None

    def end(self) -> None:
        """Give it up: what was published is named by manifests, the rest is garbage."""
        self._store.delete(self.key)

    def _over(self) -> VersionConflict:
        return VersionConflict(
            f"the claim on files below '{self.prefix}' is over, because its holder stood still for too long: nothing "
            "was published, run again",
            key=self.key,
        )


@contextmanager
def claimed(store: ConditionalStore, prefix: str, runtime: Runtime, spawn: Spawn | None = None) -> Iterator[Claim]:
    """A claim for as long as the block runs. A thread started by `spawn` renews it; without it only `confirm` does."""
    claim = Claim.take(store, prefix, runtime)
    over = False

    def keep() -> None:
        due_ms = runtime.monotonic_ms() + RENEW_EVERY_MS
        while not over:
            runtime.sleep_ms(LOOK_MS)
            if over or runtime.monotonic_ms() < due_ms:
                continue
            try:
                claim.confirm()
            except VersionConflict:
                return  # its holder finds out when it publishes
            except BallistaError:
                continue  # a store in trouble: tried again at the next look
            due_ms = runtime.monotonic_ms() + RENEW_EVERY_MS

    if spawn is not None:
        spawn(keep)
    try:
        yield claim
    finally:
        over = True
        with suppress(BallistaError):  # it ends by itself
            claim.end()


def require_claim(store: ConditionalStore, key: str, runtime: Runtime) -> None:
    """Raise `VersionConflict` unless the claim under `key`, which another process holds, is there and stands."""
    try:
        if not ObjectState(store, key, ClaimDocument, runtime=runtime).read().document.ended:
            return
    except ObjectMissing:
        pass
    raise VersionConflict(
        f"claim '{key}' is over, or this is not the store in which it was made: nothing was put, run again",
        key=key,
    )


def claimed_prefixes(store: ConditionalStore, runtime: Runtime) -> tuple[str, ...]:
    """Below what files are claimed now. To be read after the files were listed and before the manifests are read.

    A claim that cannot be read may be on anything: raises what reading it raises.
    """
    return tuple(claim.document.prefix for claim in _standing(store, runtime).values())


def end_dead_claims(
    store: ConditionalStore, runtime: Runtime, patience_ms: float = CLAIM_PATIENCE_MS
) -> tuple[str, ...]:
    """End the claims that nobody has renewed for `patience_ms`, which is waited for if there are any; their prefixes.

    One that is renewed in the last moment stands. Raises what the store raises.
    """
    before = _standing(store, runtime)
    if not before:
        return ()
    runtime.sleep_ms(patience_ms)
    return tuple(seen.document.prefix for key, seen in before.items() if _ended(store, key, seen, runtime))


def _standing(store: ConditionalStore, runtime: Runtime) -> dict[str, Versioned[ClaimDocument]]:
    found = {}
    for entry in store.list(CLAIMS_PREFIX):
        with suppress(ObjectMissing):  # ended meanwhile
            read = ObjectState(store, entry.key, ClaimDocument, runtime=runtime).read()
            if not read.document.ended:
                found[entry.key] = read
    return found


def _ended(store: ConditionalStore, key: str, seen: Versioned[ClaimDocument], runtime: Runtime) -> bool:
    """Whether a tombstone could be put over exactly the claim that was seen, which nobody needs any more then."""

    def bury(now: ClaimDocument) -> ClaimDocument:
        return evolve(now, ended=True) if now == seen.document else now

    try:
        landed = ObjectState(store, key, ClaimDocument, runtime=runtime).update(bury)
    except ObjectMissing:
        return False
    return landed.document.ended
