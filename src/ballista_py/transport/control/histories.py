"""What all nodes of a cluster did last, asked of every one of them at once: of each, or of none.

Executors are asked over the streams that they hold to this scheduler, other schedulers at their control ports.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from ballista_py.errors import BallistaError, NodeSilent, Unauthenticated
from ballista_py.state.documents.documents import SchedulerInfo
from ballista_py.state.members.control import TaskRecord
from ballista_py.transport.control.codec import task_from_message
from ballista_py.transport.control.grpc import messages as pb
from ballista_py.transport.control.grpc import rpc
from ballista_py.transport.control.heartbeat_checks import checked_task
from ballista_py.transport.control.link import LINK_FAILURES
from ballista_py.transport.control.server import ControlServer
from ballista_py.transport.control.service import MAX_TASKS
from ballista_py.transport.endpoints import open_control
from ballista_py.transport.security.callers import CLUSTER_HEADER
from ballista_py.transport.security.credentials import Removed, Tls

WAIT_S = 10.0
MAX_NAMED = 5


@frozen
class Histories:
    """Asks for histories as the scheduler whose `server` it is. To be used on the loop of that."""

    server: ControlServer
    tls: Tls | None
    cluster_id: str
    removed: Removed

    async def of_all(
        self, schedulers: Sequence[SchedulerInfo], executors: Mapping[str, str], wait_s: float = WAIT_S
    ) -> list[TaskRecord]:
        """The last tasks of these other schedulers and of these executors (ids by instance).

        Raises `NodeSilent` naming the nodes that did not answer within `wait_s`: there is no answer of some.
        """
        asking = [asyncio.create_task(self._of_scheduler(scheduler, wait_s)) for scheduler in schedulers]
        reports = await self.server.reports(tuple(executors), MAX_TASKS, wait_s)
        others = await asyncio.gather(*asking)
        asked = {scheduler.scheduler_id: tasks for scheduler, tasks in zip(schedulers, others, strict=True)}
        silent = [name for name, tasks in asked.items() if tasks is None]
        silent += [executor_id for instance_id, executor_id in executors.items() if instance_id not in reports]
        if silent:
            named = ", ".join(f"'{name}'" for name in sorted(silent)[:MAX_NAMED])
            more = "" if len(silent) <= MAX_NAMED else f" and {len(silent) - MAX_NAMED} more"
            raise NodeSilent(
                f"{named}{more} did not say what it did, at once or within {wait_s:g} s, and a history lacks no node: "
                "ask again when it answers or counts as dead, or read runtime.local_task_history"
            )
        found = [task for report in reports.values() for task in report.tasks]
        return found + [task for tasks in asked.values() for task in tasks or ()]

    async def _of_scheduler(self, scheduler: SchedulerInfo, wait_s: float) -> list[TaskRecord] | None:
        """Its tasks; None if it does not answer."""
        says = ((CLUSTER_HEADER, self.cluster_id),) if self.cluster_id else ()
        try:
            self.removed.check(scheduler.scheduler_id)
            async with open_control(scheduler.control_address, self.tls, scheduler.scheduler_id) as channel:
                stub: Any = rpc.ControlStub(channel)
                request = pb.GetTaskHistoryRequest(limit=MAX_TASKS, own_only=True)
                reply = await stub.GetTaskHistory(request, timeout=wait_s, metadata=says)
        except (*LINK_FAILURES, BallistaError, Unauthenticated):
            return None
        return [
            checked_task(task_from_message(task), scheduler.scheduler_id)
            for task in reply.tasks[:MAX_TASKS]
            if task.node_id == scheduler.scheduler_id
        ]
