"""What an executor may say of itself: what it says becomes part of documents that everybody reads."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve

from ballista_py.errors import ConfigError, InvalidData
from ballista_py.one_line import one_line
from ballista_py.state.members.control import ExecutorInfo, Heartbeat, HeldPartitions, NodeReport, TaskRecord
from ballista_py.transport.endpoints import Address

MAX_NAME = 1_024
MAX_REASON = 4_096
MAX_LABELS = 64
MAX_CAPACITY = 1e6
MAX_LOAD = 100  # percent
MAX_REPORTED_TASKS = 1_000
MAX_TASK_TEXT = 1_024
MAX_METRICS_BYTES = 4 << 20
MAX_TASK_LABELS = 16
MAX_SEQUENCE = 2**53  # what every reader of JSON keeps exactly
MAX_WALL_MS = 253_402_300_799_999  # the end of the year 9999
_TASK_NAMES = ("task_id", "kind", "outcome", "user", "job_id", "engine")
_TASK_IDS = {"trace_id": 32, "span_id": 16, "parent_span_id": 16}
_HEXADECIMAL = frozenset("0123456789abcdef")


def checked(heartbeat: Heartbeat) -> Heartbeat:
    """The heartbeat, unless it says what no executor of ours says. Raises `InvalidData` naming that."""
    return evolve(checked_sender(heartbeat), held=tuple(map(checked_held, heartbeat.held)))


def checked_sender(heartbeat: Heartbeat) -> Heartbeat:
    """As `checked`, without what is said of tables."""
    _executor(heartbeat.executor)
    _number("the sequence", heartbeat.sequence)
    return evolve(heartbeat, load=min(heartbeat.load, MAX_LOAD)) if heartbeat.load > MAX_LOAD else heartbeat


def checked_held(held: HeldPartitions) -> HeldPartitions:
    """As `checked`, of one table."""
    _held(held)
    return _readable(held)


def checked_report(report: NodeReport, executor_id: str) -> NodeReport:
    """The report as that of this executor, whatever it says of itself: texts that can be shown, and no more of them."""
    tasks = (checked_task(task, executor_id) for task in report.tasks[:MAX_REPORTED_TASKS])
    metrics = report.metrics_text if len(report.metrics_text) <= MAX_METRICS_BYTES else b""
    return evolve(report, node_id=executor_id, tasks=tuple(tasks), metrics_text=metrics)


def checked_task(task: TaskRecord, node_id: str) -> TaskRecord:
    """The task as one of that node: texts that can be shown, ids that are ids, numbers that are counts."""
    names = {name: one_line(getattr(task, name), MAX_NAME) for name in _TASK_NAMES}
    ids = {
        name: value if len(value) == size and _HEXADECIMAL.issuperset(value) else ""
        for name, size in _TASK_IDS.items()
        for value in (getattr(task, name),)
    }
    return evolve(
        task,
        **names,
        **ids,
        node_id=node_id,
        text=one_line(task.text, MAX_TASK_TEXT),
        error_message=one_line(task.error_message, MAX_TASK_TEXT),
        started_at_ms=min(max(task.started_at_ms, 0), MAX_WALL_MS),
        took_ms=task.took_ms if 0 <= task.took_ms <= MAX_WALL_MS else 0.0,  # false for what is no number, too
        rows=min(task.rows, MAX_SEQUENCE),
        bytes=min(task.bytes, MAX_SEQUENCE),
        labels={
            one_line(name, MAX_NAME): one_line(value, MAX_NAME)
            for name, value in [*task.labels.items()][:MAX_TASK_LABELS]
        },
    )


def check_name(what: str, name: str) -> None:
    """That a name can be written into a line. Raises `InvalidData`."""
    if not name:
        raise InvalidData(f"{what} is empty")
    _text(what, name)


def _readable(held: HeldPartitions) -> HeldPartitions:
    """Without what nobody relies on where it makes no sense, and with reasons that fit into one line."""
    return evolve(
        held,
        failed={
            partition: " ".join(one_line(reason, MAX_REASON).split()) for partition, reason in held.failed.items()
        },
        ranges={name: (low, high) for name, (low, high) in held.ranges.items() if low <= high},
    )


def _executor(executor: ExecutorInfo) -> None:
    for what, name in (
        ("id", executor.executor_id),
        ("instance", executor.instance_id),
        ("engine", executor.engine),
    ):
        check_name(f"the {what} of an executor", name)
    _text("the address of its parts", executor.parts_location)
    _text("the address of an executor", executor.data_address)
    if executor.data_address:
        try:
            Address.parse(executor.data_address)
        except ConfigError as error:
            raise InvalidData(f"the address of an executor: {error.message}") from None
    if not 0 <= executor.capacity <= MAX_CAPACITY:  # false for what is no number, too
        raise InvalidData(f"the capacity of an executor is a number from 0 to {MAX_CAPACITY:,.0f}")
    if len(executor.labels) > MAX_LABELS:
        raise InvalidData(f"an executor has at most {MAX_LABELS} labels")
    if max(map(len, (*executor.labels, *executor.labels.values())), default=0) > MAX_NAME:
        raise InvalidData(f"a label of an executor has at most {MAX_NAME:,} characters")


def _held(held: HeldPartitions) -> None:
    _text("the name of a table", held.table)
    _number("a revision", held.revision)
    for name, values in (("epochs", held.epochs), ("rows", held.rows), ("bytes", held.bytes)):
        if len(values) not in (0, len(held.active)):
            raise InvalidData(f"the {name} of {len(held.active)} active partitions are {len(values)}")
        _numbers(f"the {name} of a partition", values)
    if len(held.epochs) != len(held.active):
        raise InvalidData("the epochs of active partitions are missing")
    _numbers("a partition", (*held.active, *held.loaded, *held.failed, *held.parting))
    _numbers("an epoch", tuple(held.parting.values()))


def _numbers(what: str, values: Sequence[int]) -> None:
    if values and not (min(values) >= 0 and max(values) <= MAX_SEQUENCE):
        raise InvalidData(f"{what} is a number from 0 to {MAX_SEQUENCE}")


def _number(what: str, value: int) -> None:
    _numbers(what, (value,))


def _text(what: str, text: str) -> None:
    if len(text) > MAX_NAME or not text.isprintable():
        raise InvalidData(f"{what} is a text of at most {MAX_NAME:,} characters that can be printed")
