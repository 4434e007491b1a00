"""What a scheduler says to executors, and to nodes that ask how the cluster is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import define

from ballista_py.errors import TryLater
from ballista_py.node.scheduler.core import SchedulerCore
from ballista_py.node.status.metrics import NodeMetrics
from ballista_py.node.status.tasks import Tasks
from ballista_py.secret import Secret
from ballista_py.state.documents.documents import SchedulerInfo
from ballista_py.state.documents.secret_references import referenced_secrets
from ballista_py.state.members.control import (
    AppDefinition,
    Grant,
    Heartbeat,
    NodeReport,
    Refusal,
    UpdatePartitions,
)


@define
class SchedulerControl:
    """A `ControlHandler` for the scheduler `node_id`. It is there a moment before its `core`."""

    node_id: str
    tasks: Tasks
    metrics: NodeMetrics
    secrets: Mapping[str, Secret]
    core: SchedulerCore | None = None

    def heard(self, heartbeat: Heartbeat) -> Grant | Refusal | None:
        """Answer an executor's heartbeat."""
        if self.core is None:
            return Refusal(
                sequence=heartbeat.sequence, reason="scheduler_lapsed", message="the scheduler is starting"
            )
        return self.core.heard(heartbeat)

    def schedulers(self) -> Sequence[SchedulerInfo]:
        """The schedulers of the cluster."""
        return () if self.core is None else self.core.schedulers()

    def leave(self, executor_id: str, instance_id: str) -> None:
        """Let an executor go."""
        self._ready().leave_executor(executor_id, instance_id)

    def definition(self) -> AppDefinition:
        """What the cluster serves."""
        return self._ready().definition()

    def secret(self, key: str) -> Secret | None:
        """The secret, if the definition references it."""
        return self.secrets.get(key) if key in referenced_secrets(self.definition()) else None

    def allocate(self, executor_id: str, instance_id: str) -> Sequence[UpdatePartitions]:
        """Assign all that waits."""
        return self._ready().allocate(executor_id, instance_id)

    def report(self, tasks: int) -> NodeReport:
        """How this scheduler is."""
        return NodeReport(node_id=self.node_id, metrics_text=self.metrics.text(), tasks=self.tasks.last(tasks))

    def _ready(self) -> SchedulerCore:
        if self.core is None:
            raise TryLater(f"scheduler '{self.node_id}' is starting")
        return self.core
