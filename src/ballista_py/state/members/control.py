"""What an executor and a scheduler say to each other over the control stream, as plain values.

The transport carries these values and decides nothing; the simulation hands them over directly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from attrs import Factory, frozen

from ballista_py.partitions.table import TableSpec
from ballista_py.sql.estimate.statistics import Range

Role = Literal["owner", "target", "replica"]
DEFAULT_ENGINE = "duckdb"
RefusalReason = Literal["lost", "already_registered", "not_admitted", "scheduler_lapsed"]


@frozen(kw_only=True)
class ExecutorInfo:
    """Who an executor is. `instance_id` is fresh at each process start and whenever it was declared lost.

    `parts_location` is the URI at which it gives parts of answers to clients, if it does. What columns a table may have
    depends on the `engine`.
    """

    executor_id: str
    instance_id: str
    data_address: str
    capacity: float = 1.0
    labels: Mapping[str, str] = Factory(dict)
    parts_location: str = ""
    engine: str = DEFAULT_ENGINE


@frozen(kw_only=True)
class HeldPartitions:
    """What an executor holds of one table (`table` is its folder), at the newest map revision it was told.

    `active` are the partitions that it serves, `epochs` theirs, index by index; `loaded` those hydrated but not
    served (targets of a move); `failed` says for the others why they could not be loaded. `rows` and `bytes` say how
    large the active ones are by their manifests, index by index; `ranges` between which values their columns lie, as
    positions (`position_of`). Nobody relies on them. `parting` are the partitions, with their epochs, that it owns
    and answers for only after a look at their manifests, because it was told that they are on their way elsewhere.
    """

    table: str
    revision: int
    active: tuple[int, ...] = ()
    epochs: tuple[int, ...] = ()
    loaded: tuple[int, ...] = ()
    rows: tuple[int, ...] = ()
    bytes: tuple[int, ...] = ()
    failed: Mapping[int, str] = Factory(dict)
    parting: Mapping[int, int] = Factory(dict)
    ranges: Mapping[str, Range] = Factory(dict)


@frozen(kw_only=True)
class Heartbeat:
    """Sent to every scheduler. `sequence` counts the heartbeats of this process.

    `lapsed` says that it has no valid lease now; `admitted` that this instance had one before, so that a
    cluster which does not know it must have declared it lost. `load` is how much it computes, in percent of what it
    takes on at most; nobody relies on it.
    """

    executor: ExecutorInfo
    sequence: int
    lapsed: bool
    admitted: bool = False
    held: tuple[HeldPartitions, ...] = ()
    load: int = 0


@frozen(kw_only=True)
class Grant:
    """A lease of `lease_ms`, counted from the moment heartbeat `sequence` was sent."""

    sequence: int
    lease_ms: float


@frozen(kw_only=True)
class Refusal:
    """No lease for heartbeat `sequence`. On `lost` the executor drops everything and joins as a new instance."""

    sequence: int
    reason: RefusalReason
    message: str


@frozen(kw_only=True)
class PartitionAssignment:
    """One partition that an executor is to hold. `path` is its stable text form below `snapshots/{table}/`."""

    partition: int
    path: str
    epoch: int
    role: Role


@frozen(kw_only=True)
class UpdatePartitions:
    """All that one executor is to hold of one table at a committed map revision; what is not named is unloaded.

    It is meant for the instance `instance_id` alone: coming late, to a newer instance of the same executor, it
    names what that one does not own. Another executor is to take over those in `parting`. `until_heard` keeps the
    sender sending until the executor reports the revision itself, because it may still serve what it handed over;
    it is not sent along.
    """

    instance_id: str
    table: TableSpec
    revision: int
    partitions: tuple[PartitionAssignment, ...]
    parting: tuple[int, ...] = ()
    until_heard: bool = False


@frozen
class PollNow:
    """Look at what is to be held, and send a heartbeat, now."""


@frozen
class RefreshDataset:
    """The data of `table` was renewed: compare its partitions with their manifests."""

    table: str


@frozen
class CancelTasks:
    """Nobody waits for these tasks any more."""

    task_ids: tuple[str, ...]


@frozen(kw_only=True)
class ReportRequest:
    """Say how you are, and what your last `tasks` tasks were. The answer carries `request_id`."""

    request_id: int
    tasks: int = 0


@frozen(kw_only=True)
class TaskRecord:
    """One task that a node has ended, or is at now.

    `kind` is `statement`, `change`, `spark` for a statement that ran there, `leg`, `base`, `write` or `rewrite`; the
    legs of one fragment share their `task_id`. `outcome` is `running`, `done`, `cancelled` or the code of an error, of
    which `error_message` is the text. `started_at_ms` is for people. `user` is the client as it proved itself. The ids
    of trace and spans are those that are exported, where they are.
    """

    node_id: str
    task_id: str
    kind: str
    text: str
    started_at_ms: int
    took_ms: float
    rows: int
    outcome: str
    trace_id: str = ""
    span_id: str = ""
    parent_span_id: str = ""
    error_message: str = ""
    user: str = ""
    job_id: str = ""
    bytes: int = 0
    engine: str = ""
    labels: Mapping[str, str] = Factory(dict)


@frozen(kw_only=True)
class NodeReport:
    """What a node says of itself: metrics in the text format of Prometheus, and its last tasks, newest first."""

    node_id: str
    metrics_text: bytes
    tasks: tuple[TaskRecord, ...] = ()


@frozen(kw_only=True)
class AppDefinition:
    """What the cluster serves, as of one revision of `cluster.json`."""

    revision: int
    tables: tuple[TableSpec, ...]
    labels: Mapping[str, str] = Factory(dict)
