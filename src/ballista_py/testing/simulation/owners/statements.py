"""The scheduler's part of statements in a simulation of owners: ask owners, decide once, have it folded in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from attrs import Factory, evolve, frozen

from ballista_py.coordinator.writes.owner_calls import WORTH_ANOTHER_TRY, Outcome, worst_of
from ballista_py.errors import BallistaError
from ballista_py.state.documents.decisions import Decision
from ballista_py.state.documents.undecided import attempt_by
from ballista_py.state.documents.write_tokens import PATIENCE_MS
from ballista_py.testing.simulation.machine import Machine
from ballista_py.testing.simulation.owners.owner import VirtualOwner
from ballista_py.testing.simulation.owners.site import PARTITIONS, SCHEDULER, OwnerSite
from ballista_py.transport.flight.commands import WriteTarget

FIRST_WAIT_MS = 200.0
LONGEST_WAIT_MS = 4_000.0
EVERYWHERE = tuple(range(PARTITIONS))

Ask = Callable[[VirtualOwner, WriteTarget], Mapping[str, Any]]


class UnsureError(Exception):
    """Nobody can tell what became of a statement."""


@frozen(kw_only=True)
class Order:
    """What all owners of a statement are asked."""

    table: str
    token: str
    attempt: str | None = None
    sequence: int | None = None
    replace: bool = False
    remove: Mapping[int, tuple[str, ...]] = Factory(dict)
    base: Mapping[int, tuple[str, ...]] = Factory(dict)


@frozen
class StatementClient:
    """Statements over one site. A client may stop at any step, and is gone for good then."""

    site: OwnerSite

    def ask(self, machine: Machine, order: Order, partitions: Iterable[int], ask: Ask) -> Outcome:
        """Ask the owners of these partitions, one after the other; what became of each partition."""
        outcome = Outcome()
        incarnation = self.site.tables[order.table].incarnation
        for owner, part in self.site.parts(order.table, sorted(partitions)):
            self.site.step(machine)
            target = WriteTarget(
                table=evolve(part, sequence=order.sequence),
                incarnation=incarnation,
                token=order.token,
                attempt=order.attempt,
                replace=order.replace,
                remove={p: order.remove[p] for p in part.partitions if p in order.remove},
                base={p: order.base[p] for p in part.partitions if p in order.base},
            )
            try:
                outcome.add(
                    self.site.call(machine, owner, lambda owner=owner, target=target: ask(owner, target)),  # type: ignore[misc]
                    part.partitions,
                )
            except BallistaError as error:
                outcome.errors.update(dict.fromkeys(part.partitions, error))
        return outcome

    def applied(self, machine: Machine, order: Order, partition: int, ask: Ask) -> int:
        """Have one owner apply a statement by itself, sent again under its token for as long as clients do.

        Raises `UnsureError` when that time is over, and what no further try would help.
        """
        began_ms = machine.monotonic_ms()
        wait_ms = FIRST_WAIT_MS
        while True:
            outcome = self.ask(machine, order, [partition], ask)
            if not outcome.errors:
                return outcome.affected[partition]
            error = worst_of(outcome.errors)
            if not isinstance(error, WORTH_ANOTHER_TRY):
                raise error
            if machine.monotonic_ms() - began_ms > PATIENCE_MS:
                raise UnsureError from error
            machine.sleep_ms(wait_ms)
            wait_ms = min(LONGEST_WAIT_MS, 2 * wait_ms)

    def decided(
        self,
        machine: Machine,
        table: str,
        token: str,
        prepare: Callable[[Order], Outcome],
        affected: Callable[[], int] | None = None,
    ) -> int:
        """Prepare an attempt everywhere, decide it, have it folded in; attempted again where that may help.

        Raises `UnsureError` when nobody can tell whether it counts, and what kept the last attempt from it.
        """
        site = self.site
        statements = site.statements(machine, table)
        began_ms = machine.monotonic_ms()
        wait_ms = FIRST_WAIT_MS
        may_count = False
        while True:
            try:
                before = statements.read()
                earlier = before.of(token)
                if earlier is not None:
                    self.fold(machine, table, token, earlier, EVERYWHERE)
                    return earlier.affected
                by = SCHEDULER if machine.random() < 0.8 else "gone"
                attempt = attempt_by(by, machine.new_id())
                order = Order(table=table, token=token, attempt=attempt, sequence=before.sequence)
                outcome = prepare(order)
                if outcome.errors:
                    self._give_up(machine, order, outcome.waiting)
                    raise worst_of(outcome.errors)
                total = sum(outcome.affected.values()) if affected is None else affected()
                site.step(machine)
                may_count = True
                decision = statements.commit(
                    attempt,
                    token,
                    affected=total,
                    begun=before.decisions_made,
                    settled=not outcome.waiting,
                )
                if decision.committed:
                    if not decision.settled:
                        self.fold(machine, table, token, decision, outcome.waiting)
                    return total
                self._give_up(machine, order, outcome.waiting)
            except WORTH_ANOTHER_TRY as error:
                if machine.monotonic_ms() - began_ms > PATIENCE_MS:
                    raise (UnsureError if may_count else error) from error
            except BallistaError as error:
                if may_count:
                    raise UnsureError from error
                raise
            machine.sleep_ms(wait_ms * (0.5 + machine.random()))
            wait_ms = min(LONGEST_WAIT_MS, 2 * wait_ms)

    def fold(
        self, machine: Machine, table: str, token: str, decision: Decision, partitions: Sequence[int]
    ) -> None:
        """Have a decided attempt folded in where it was prepared; raises `UnsureError` if that takes too long."""
        waiting = set(partitions)
        began_ms = machine.monotonic_ms()
        order = Order(table=table, token=token, attempt=decision.attempt)
        while True:
            outcome = self.ask(machine, order, waiting, lambda o, t: o.writes.settle(t, decision.sequence))
            waiting -= outcome.affected.keys()
            if not waiting:
                break
            if machine.monotonic_ms() - began_ms > PATIENCE_MS:
                raise UnsureError
            machine.sleep_ms(LONGEST_WAIT_MS)
        self.site.statements(machine, table).settle(decision.attempt)

    def _give_up(self, machine: Machine, order: Order, partitions: Sequence[int]) -> None:
        assert order.attempt is not None
        self.site.statements(machine, order.table).abort(order.attempt, order.token)
        self.ask(machine, order, partitions, lambda owner, target: owner.writes.settle(target, None))
