"""An owner that schedulers tell what to hold, and that answers them; and the connections of a scheduler to owners."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from attrs import define, field, frozen

from ballista_py.errors import TransportError
from ballista_py.sql.plan import LegTable
from ballista_py.sql.rewrite import Rewrite
from ballista_py.state.members.control import UpdatePartitions
from ballista_py.testing.simulation.definitions.site import DefinitionSite
from ballista_py.testing.simulation.machine import Machine
from ballista_py.testing.simulation.owners.owner import VirtualOwner
from ballista_py.transport.flight.commands import RELOAD, REWRITE, SETTLE, WriteTarget


class DefinitionOwner(VirtualOwner):
    """One process: what it holds it hears from schedulers, early, late and twice, and it tells them what it holds."""

    site: DefinitionSite

    def tell(self) -> None:
        """Nothing: it is told by schedulers."""

    def hear(self, update: UpdatePartitions) -> None:
        """Take in what is to be held of a table, and do it."""
        if self.holder.apply(update):
            self._hold()

    def leave(self) -> None:
        """Serve nothing from now on, though what is under way goes on."""
        self.lease.leave()
        self.machine.stopping = True

    def read(self, table: LegTable) -> pa.Table:
        """The rows of these partitions by the very definition that was asked for."""
        rows = super().read(table)
        self.holder.require_definition(table, exact=True)
        return rows

    def carry_out(self, command: Mapping[str, Any]) -> Mapping[str, Any]:
        """Do what a scheduler asks for a statement, as an executor does."""
        if command["kind"] == RELOAD:
            self.holder.reload(command["table"], command["partitions"])
            return {}
        target = WriteTarget.from_json(command["target"])
        if command["kind"] == REWRITE:
            return self.writes.rewrite(target, Rewrite(**command["rewrite"]))
        assert command["kind"] == SETTLE
        return self.writes.settle(target, command["sequence"])

    def _hold(self) -> None:
        self.holder.tick()
        held = self.holder.held()
        for scheduler in self.site.schedulers:
            self.site.send(scheduler.machine, lambda to=scheduler: to.hear(self, held))  # type: ignore[misc]


@frozen
class OwnerPool:
    """The connections of one machine to owners: what the transport promises, over lossy links."""

    site: DefinitionSite
    machine: Machine

    def ask(self, address: str, command: Mapping[str, Any], *, peer_id: str | None = None) -> dict[str, Any]:
        """Have an owner do something; its answer."""
        owner = self._owner(address)
        return dict(self.site.call(self.machine, owner, lambda: owner.carry_out(command)))

    def open_write(
        self, address: str, command: Mapping[str, Any], schema: pa.Schema, *, peer_id: str | None = None
    ) -> RowsOut:
        """Rows on their way to an owner, which hears of them at their end."""
        return RowsOut(self, self._owner(address), WriteTarget.from_json(command["target"]), schema)

    def _owner(self, address: str) -> DefinitionOwner:
        found = self.site.addresses.get(address)
        if found is None:
            raise TransportError(f"nobody is at {address}")
        return found


@define(eq=False)
class RowsOut:
    """One stream of rows."""

    pool: OwnerPool
    owner: DefinitionOwner
    target: WriteTarget
    schema: pa.Schema
    _batches: list[pa.RecordBatch] = field(factory=list)

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        self._batches.append(pa.RecordBatch.from_arrays(batch.columns, schema=self.schema))

    def finish(self, token: str | None = None) -> dict[str, Any]:
        """Send them; what became of each partition."""
        act = lambda: self.owner.writes.write(self.target, self._batches, lambda: token)  # noqa: E731
        return self.pool.site.call(self.pool.machine, self.owner, act)

    def abort(self) -> None:
        """Give them up, before anything of them was sent."""
        self._batches.clear()
