"""What an executor says to schedulers, and what it does when they say something."""

from __future__ import annotations

import logging
from collections.abc import Callable

from attrs import define, field

from ballista_py.logs import log_event
from ballista_py.node.status.metrics import NodeMetrics
from ballista_py.node.status.tasks import Tasks
from ballista_py.state.members.control import (
    CancelTasks,
    Grant,
    Heartbeat,
    NodeReport,
    PollNow,
    RefreshDataset,
    Refusal,
    UpdatePartitions,
)
from ballista_py.state.members.executor_lease import ExecutorLease
from ballista_py.storage.held.holder import PartitionHolder
from ballista_py.transport.control.codec import ToExecutor

_log = logging.getLogger(__name__)


@define(kw_only=True)
class ExecutorControl:
    """The executor `node_id` at its end of the control streams.

    `poke` lets the holder tick at once. `allocate` asks a scheduler for a share of what waits, once an instance, as
    soon as it has a lease; it must not wait for the answer. `load` is how much is computed here, in percent.
    """

    node_id: str
    lease: ExecutorLease
    holder: PartitionHolder
    tasks: Tasks
    metrics: NodeMetrics
    poke: Callable[[], None]
    allocate: Callable[[], None]
    load: Callable[[], int] = lambda: 0
    _allocated: str = field(default="", init=False)

    def heartbeat(self) -> Heartbeat:
        """What this executor says to every scheduler."""
        return self.lease.heartbeat(self.holder.held(), self.load())

    def report(self, tasks: int) -> NodeReport:
        """How this executor is, and what it did last."""
        return NodeReport(node_id=self.node_id, metrics_text=self.metrics.text(), tasks=self.tasks.last(tasks))

    def received(self, message: ToExecutor) -> None:
        """Take in what a scheduler said."""
        if isinstance(message, CancelTasks):
            self.tasks.cancel(message.task_ids)
        elif isinstance(message, RefreshDataset):
            self.holder.refresh(message.table)
            self.poke()
        elif isinstance(message, PollNow):
            self.poke()
        elif isinstance(message, Grant | Refusal | UpdatePartitions):
            self._told(message)

    def _told(self, message: Grant | Refusal | UpdatePartitions) -> None:
        if isinstance(message, UpdatePartitions):
            if self.holder.apply(message):
                self.poke()
            return
        if isinstance(message, Refusal):
            log_event(_log, "refused", logging.WARNING, reason=message.reason, said=message.message)
        if self.lease.answered(message):
            self.holder.drop_all()
            joined = self.lease.rejoin()
            self.metrics.add("node_fences_hit")
            log_event(_log, "lost", logging.ERROR, instance=joined.instance_id)
            self.poke()
        elif isinstance(message, Grant) and self._allocated != self.lease.info.instance_id:
            self._allocated = self.lease.info.instance_id
            self.allocate()
