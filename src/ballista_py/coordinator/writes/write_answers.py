"""What a scheduler answers to whoever writes from many processes: messages to writes and back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from attrs import define

from ballista_py.coordinator.cluster_view import ClusterView
from ballista_py.coordinator.served_at import served_at
from ballista_py.coordinator.writes.staged_writes import PutReceipt, StagedWrites
from ballista_py.errors import InvalidData
from ballista_py.partitions.columns import plain
from ballista_py.storage.writes.leases import WriteMode
from ballista_py.transport.flight.wire import to_json
from ballista_py.transport.security.signed_tickets import TicketSigner
from ballista_py.transport.table_write.messages import pb
from ballista_py.transport.table_write.tickets import PutTicket


class Observed(Protocol):
    """A commit, as a node shows it."""

    rows: int


@define
class WriteAnswers:
    """A `WriteCoordinator` over `StagedWrites`. `tickets` make what executors ask for, and each commit is `observed`,
    by what it is called."""

    writes: StagedWrites
    tickets: TicketSigner
    observed: Callable[[str], AbstractContextManager[Observed]]

    def begin(self, begin: Any, client: str) -> Any:
        """Begin a write. Raises as `StagedWrites.begin`."""
        begun = self.writes.begin(begin.table, _mode(begin.mode), begin.token, client, begin.lease_ms)
        answer = pb.WriteBegun(
            write_id=begun.write_id,
            lease_ms=begun.lease_ms,
            schema=plain(begun.schema).serialize().to_pybytes(),
            keys=begun.keys,
            committed=begun.committed is not None,
            rows=begun.committed or 0,
        )
        if begun.committed is None:
            answer.ticket = self._ticket(begun.write_id, client)
            answer.locations.extend(self._locations(begun.view))
        return answer

    def renew(self, renew: Any, client: str) -> Any:
        """Keep the rows of a write on. Raises `SnapshotGone`."""
        write, view = self.writes.renew(renew.write_id, client)
        ticket, locations = self._ticket(renew.write_id, client), self._locations(view)
        return pb.WriteRenewed(lease_ms=write.lease_ms, locations=locations, ticket=ticket)

    def _ticket(self, write_id: str, client: str) -> bytes:
        return to_json(self.tickets.issue(PutTicket(write_id=write_id, client=client).to_json()))

    def _locations(self, view: ClusterView) -> list[str]:
        found = served_at(view, is_plain=self.tickets.tls is None)
        return [found[name] for name, _ in sorted(view.members) if name in found]

    def commit(self, commit: Any, client: str) -> Any:
        """Commit a write. Raises as `StagedWrites.commit`."""
        receipts = [PutReceipt(one.write_id, one.sender, one.digest) for one in commit.receipts]
        mode = _mode(commit.mode)
        with self.observed(f"write to {commit.table} ({mode})") as task:
            done = self.writes.commit(commit.table, mode, commit.token, receipts, client)
            task.rows = done.rows
        return pb.WriteCommitted(rows=done.rows, repeated=done.repeated)

    def abort(self, abort: Any, client: str) -> Any:
        """Give writes up."""
        self.writes.abort(abort.write_ids, client)
        return pb.WriteAborted()


def _mode(mode: int) -> WriteMode:
    if mode not in _MODES:
        raise InvalidData(f"there is no mode {mode} of writes: append or overwrite")
    return _MODES[mode]


_MODES: dict[int, WriteMode] = {pb.MODE_APPEND: "append", pb.MODE_OVERWRITE: "overwrite"}
