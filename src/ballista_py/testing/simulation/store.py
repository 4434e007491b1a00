"""A store as one machine of a simulated world sees it: slow, lossy, sometimes out of reach, never wrong.

The requests of a machine that has died meanwhile, or given up, may land all the same. Every write that lands and
every reply goes into the history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ballista_py.errors import BallistaError, ObjectExists, OutcomeUnknown, StoreUnavailable, VersionConflict
from ballista_py.state.stores.store import MAX_DOCUMENT_BYTES, ConditionalStore, ObjectEntry, StoredObject
from ballista_py.testing.simulation.faults import Faults
from ballista_py.testing.simulation.history import INF, Accessed, History, Landed
from ballista_py.testing.simulation.machine import Machine

TIMEOUT_MS = 5_000.0


class VirtualStore(ConditionalStore):
    """`store`, from `machine`, over a network that does what `faults` says at the time."""

    def __init__(
        self, machine: Machine, store: ConditionalStore, history: History, faults: Callable[[], Faults]
    ) -> None:
        self._machine = machine
        self._world = machine.world
        self._store = store
        self._history = history
        self._faults = faults

    def get(self, key: str, max_bytes: int = MAX_DOCUMENT_BYTES) -> StoredObject:
        sent_ms = self._world.now_ms
        found: StoredObject = self._call(key, lambda: self._store.get(key, max_bytes), writes=False)
        self._note(sent_ms, "read", key, None, found.version, self._world.now_ms)
        return found

    def create(self, key: str, data: bytes) -> str:
        return self._write(key, data, None, lambda: self._store.create(key, data))

    def replace(self, key: str, data: bytes, version: str) -> str:
        return self._write(key, data, version, lambda: self._store.replace(key, data, version))

    def delete(self, key: str) -> None:
        self._call(key, lambda: self._store.delete(key), writes=True)

    def list(self, prefix: str) -> Iterator[ObjectEntry]:
        found: list[ObjectEntry] = self._call(prefix, lambda: list(self._store.list(prefix)), writes=False)
        return iter(found)

    def _write(self, key: str, data: bytes, base: str | None, send: Callable[[], str]) -> str:
        sent_ms, node = self._world.now_ms, self._machine.name
        landed: list[str] = []

        def land() -> str:
            version = send()
            landed.append(version)
            self._history.add(
                Landed(at_ms=self._world.now_ms, node=node, key=key, base=base, version=version, data=data)
            )
            self._note(sent_ms, "write", key, base, version, INF)
            return version

        version: str = self._call(key, land, writes=True)
        self._note(sent_ms, "write", key, base, version, self._world.now_ms)
        return version

    def _note(self, sent_ms: float, kind: Any, key: str, base: str | None, version: str, end_ms: float) -> None:
        self._history.add(
            Accessed(
                at_ms=sent_ms,
                node=self._machine.name,
                kind=kind,
                key=key,
                base=base,
                version=version,
                end_ms=end_ms,
            )
        )

    def _call(self, key: str, act: Callable[[], Any], *, writes: bool) -> Any:
        world, machine, faults = self._world, self._machine, self._faults()
        chance = world.chance.random()
        lost = OutcomeUnknown if writes else StoreUnavailable
        if machine.cut_until_ms > world.now_ms:
            machine.sleep_ms(TIMEOUT_MS * world.chance.random())
            if chance < 0.5:
                raise StoreUnavailable(f"the store is out of reach of '{key}'", key=key)
            raise lost(f"no reply from the store for '{key}'", key=key)
        slow = machine.slow_until_ms > world.now_ms
        latency_ms = faults.slow_store_latency_ms if slow else faults.latency_ms
        there_ms = latency_ms * world.chance.random()
        back_ms = latency_ms * world.chance.random()
        for share, fault in (
            (faults.throttled, self._throttled),
            (faults.lost_request, self._lost_request),
            (faults.late_request if writes else 0.0, self._late_request),
            (faults.lost_reply, self._lost_reply),
            (faults.echoed_conflict if writes else 0.0, self._echoed_conflict),
        ):
            if chance < share:
                return fault(key, act, there_ms, lost)
            chance -= share
        if chance < faults.slow_request:
            slow_ms = faults.slow_ms * world.chance.random()
            there_ms, back_ms = (slow_ms, back_ms) if world.chance.random() < 0.5 else (there_ms, slow_ms)
        elif chance < faults.slow_request + faults.stalled_request:
            machine.pause(world.chance.choice(faults.pauses_ms) * world.chance.random())
            machine.sleep_ms(0.0)
        return self._exchange(act, there_ms, back_ms)

    def _exchange(self, act: Callable[[], Any], there_ms: float, back_ms: float) -> Any:
        """Let `act` happen at the store, and its result arrive here."""
        world, machine = self._world, self._machine
        wake = world.here()

        def land() -> None:
            try:
                reply = act()
            except BallistaError as error:
                reply = error
            world.at(back_ms, machine, lambda: wake(reply))

        world.at(there_ms, None, land)
        reply = world.park()
        if isinstance(reply, BallistaError):
            raise reply
        return reply

    def _throttled(self, key: str, act: Callable[[], Any], there_ms: float, lost: type[BallistaError]) -> Any:
        self._machine.sleep_ms(there_ms)
        raise StoreUnavailable(f"the store is busy: '{key}'", key=key)

    def _lost_request(self, key: str, act: Callable[[], Any], there_ms: float, lost: type[BallistaError]) -> Any:
        self._machine.sleep_ms(TIMEOUT_MS)
        raise lost(f"no reply from the store for '{key}'", key=key)

    def _late_request(self, key: str, act: Callable[[], Any], there_ms: float, lost: type[BallistaError]) -> Any:
        self._world.at(self._faults().slow_ms * self._world.chance.random(), None, _quietly(act))
        return self._lost_request(key, act, there_ms, lost)

    def _lost_reply(self, key: str, act: Callable[[], Any], there_ms: float, lost: type[BallistaError]) -> Any:
        self._world.at(there_ms, None, _quietly(act))
        return self._lost_request(key, act, there_ms, lost)

    def _echoed_conflict(
        self, key: str, act: Callable[[], Any], there_ms: float, lost: type[BallistaError]
    ) -> Any:
        def twice() -> Any:
            act()
            return act()

        try:
            return self._exchange(twice, there_ms, there_ms)
        except (VersionConflict, ObjectExists):
            raise
        except BallistaError:
            raise lost(f"no reply from the store for '{key}'", key=key) from None


class NamedFilesStore(VirtualStore):
    """One whose data files are names alone, for simulations in which nobody looks into them."""

    def local_path(self, key: str) -> str:
        """Data files are never copied: the path of one is its key."""
        return key


def _quietly(act: Callable[[], Any]) -> Callable[[], object]:
    def run() -> None:
        try:
            act()
        except BallistaError:
            return

    return run
