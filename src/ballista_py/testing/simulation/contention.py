"""Many schedulers, each committing to one document again and again: whether any of them ever gives up (L2)."""

from __future__ import annotations

from attrs import evolve, frozen

from ballista_py.errors import BallistaError
from ballista_py.state.documents.object_state import SHARED, ObjectState, Retry
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.testing.simulation.faults import Faults
from ballista_py.testing.simulation.history import History
from ballista_py.testing.simulation.machine import Machine
from ballista_py.testing.simulation.site import Ledger
from ballista_py.testing.simulation.store import VirtualStore
from ballista_py.testing.simulation.time import World

KEY = "contended.json"


@frozen(kw_only=True)
class ContentionResult:
    """`done` commits, `failed` by code of the error, and the `slowest_ms` commit that was done."""

    done: int
    failed: dict[str, int]
    slowest_ms: float
    total: int


def contend(
    seed: int,
    *,
    writers: int = 32,
    every_ms: float = 1_000.0,
    duration_ms: float = 3_600_000.0,
    latency_ms: float = 15.0,
    retry: Retry = SHARED,
) -> ContentionResult:
    """Let each of `writers` machines change one document every `every_ms` over a network without faults.

    `retry` is what schedulers use for the documents that all of them write.

    A request takes up to `latency_ms` to the store and as long back. `total` is what the document counted.
    """
    world = World(seed)
    store, history = MemoryStore(runtime=Machine(world, "store")), History()
    ObjectState(store, KEY, Ledger, runtime=Machine(world, "founder")).create(Ledger())
    faults = evolve(Faults.none(), latency_ms=latency_ms)
    failed: dict[str, int] = {}
    times: list[float] = []

    def write(machine: Machine) -> None:
        state = ObjectState(
            VirtualStore(machine, store, history, lambda: faults), KEY, Ledger, runtime=machine, retry=retry
        )
        machine.sleep_ms(every_ms * machine.random())
        while world.now_ms < duration_ms:
            begun_ms = machine.monotonic_ms()
            try:
                state.update(lambda document: evolve(document, total=document.total + 1))
            except BallistaError as error:
                failed[error.code] = failed.get(error.code, 0) + 1
            else:
                times.append(machine.monotonic_ms() - begun_ms)
            history.events.clear()
            machine.sleep_ms(begun_ms + every_ms - machine.monotonic_ms())

    for number in range(writers):
        machine = Machine(world, f"scheduler-{number}")
        machine.spawn(lambda machine=machine: write(machine))  # type: ignore[misc]
    try:
        world.run(duration_ms + 60_000.0)
        total = ObjectState(store, KEY, Ledger, runtime=Machine(world, "observer")).read().document.total
    finally:
        world.close()
    return ContentionResult(done=len(times), failed=failed, slowest_ms=max(times, default=0.0), total=total)
