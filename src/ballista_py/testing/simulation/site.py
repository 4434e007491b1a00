"""What the nodes of one simulated cluster share: the world, the store, the wires between them, the history."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from attrs import define, field, frozen

from ballista_py.errors import BallistaError, DocumentUnreadable, InvariantViolated
from ballista_py.partitions.table import TableSpec
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.members.liveness import SKEW_MS, TTL_MS, jittered_ms
from ballista_py.state.ownership.reconciler import ASSIGNMENT_INTERVAL_MS
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.testing.simulation.faults import Faults
from ballista_py.testing.simulation.history import Changed, Fault, History, Surprise
from ballista_py.testing.simulation.machine import Machine
from ballista_py.testing.simulation.store import NamedFilesStore
from ballista_py.testing.simulation.time import World

LEDGER_KEY = "ledger.json"
LEDGER_REMEMBERS = 64


@frozen(kw_only=True)
class Times:
    """How long leases and cycles last, in ms of each machine's own clock; the defaults are the node's."""

    ttl_ms: float = TTL_MS
    skew_ms: float = SKEW_MS
    interval_ms: float = ASSIGNMENT_INTERVAL_MS
    heartbeat_ms: float = TTL_MS / 10
    look_ms: float = TTL_MS / 6
    hold_ms: float = 5_000.0
    change_ms: float = 45_000.0
    write_ms: float = 20_000.0


@frozen(kw_only=True)
class Ledger:
    """A document that everybody changes: how many changes it took, and the names of the last ones."""

    total: int = 0
    recent: tuple[str, ...] = ()


@define
class Site:
    """One simulated cluster's surroundings. `link_cuts` says until when a (scheduler, executor) hear nothing
    of each other; `paths` are the text forms of the table's partitions."""

    world: World
    history: History
    store: MemoryStore
    table: TableSpec
    times: Times
    faults: Faults
    paths: tuple[str, ...]
    link_cuts: dict[tuple[str, str], float] = field(factory=dict)
    changes: int = 0

    def store_for(self, machine: Machine) -> NamedFilesStore:
        """The store from that machine."""
        return NamedFilesStore(machine, self.store, self.history, lambda: self.faults)

    def send(self, link: tuple[str, str], receiver: Machine, act: Callable[[], object]) -> None:
        """A message over the link of a scheduler and an executor: slow, sometimes very, sometimes lost."""
        world, faults = self.world, self.faults
        chance = world.chance.random()
        if chance < faults.lost_message or self.link_cuts.get(link, 0.0) > world.now_ms:
            return
        late = chance < faults.lost_message + faults.late_message
        world.at(world.chance.random() * (faults.late_ms if late else faults.message_ms), receiver, act)

    def fault(self, node: str, what: str) -> None:
        """Note that something is made to go wrong."""
        self.history.add(Fault(at_ms=self.world.now_ms, node=node, what=what))

    @contextmanager
    def watched(self, machine: Machine) -> Iterator[None]:
        """Let errors of the tree pass as the loops of a node do, and note those that should never be."""
        try:
            yield
        except (InvariantViolated, DocumentUnreadable) as error:
            self._surprise(machine, error)
        except BallistaError:
            return
        except Exception as error:
            self._surprise(machine, error)

    def _surprise(self, machine: Machine, error: Exception) -> None:
        what = f"{type(error).__name__}: {error}"
        self.history.add(Surprise(at_ms=self.world.now_ms, node=machine.name, what=what))

    def every(self, machine: Machine, interval_ms: float, act: Callable[[], object]) -> Callable[[], None]:
        """Call `act` on a thread of its own again and again, the first time now; returns how to poke it."""
        changed = machine.condition()
        poked = False

        def poke() -> None:
            nonlocal poked
            poked = True
            with changed:
                changed.notify_all()

        def loop() -> None:
            nonlocal poked
            while not machine.stopping:
                with self.watched(machine):
                    act()
                with changed:
                    if not poked:
                        changed.wait(jittered_ms(interval_ms, machine.random()))
                    poked = False

        machine.spawn(loop)
        return poke

    def change_ledger(self, machine: Machine, ledger: ObjectState[Ledger]) -> None:
        """Make one change of the shared document that nobody ever makes again."""
        self.changes += 1
        name = f"c{self.changes}"

        def change(document: Ledger) -> Ledger:
            return Ledger(total=document.total + 1, recent=(*document.recent, name)[-LEDGER_REMEMBERS:])

        def note(outcome: str | None) -> None:
            self.history.add(
                Changed(
                    at_ms=self.world.now_ms,
                    node=machine.name,
                    key=LEDGER_KEY,
                    change=name,
                    outcome=outcome,  # type: ignore[arg-type]
                )
            )

        note(None)
        try:
            ledger.update(change)
        except BallistaError as error:
            note("unknown" if error.code == "store.outcome_unknown" else "failed")
        else:
            note("done")
