"""What a node is doing and did last: statements and changes at a scheduler, legs and writes at an executor.

The text of a statement as the history shows it: one line, cut, with `***` in place of what looks like a secret.

What looks like one: a literal behind a word like password, secret, token or access key, the password of a connection
string, the user and password in a URL, and signatures in the parameters of one. It is a help for who pastes keys into
statements, not a promise: secrets belong into the options of the store, or into the `secrets_file`.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import orjson
import pyarrow as pa
from attrs import define, field

from ballista_py.errors import BallistaError, TransportError, to_wire
from ballista_py.logs import log_event
from ballista_py.node.status.seen_tasks import VIEWER, WRITTEN, may_see_plan, plan_seen_by, seen_by
from ballista_py.remembered import Remembered
from ballista_py.runtime import Runtime
from ballista_py.state.members.control import TaskRecord
from ballista_py.traces import PlainTracer, Span, Tracer, current_span, each_within, within
from ballista_py.work import Work, current_client, current_work, written

MAX_TEXT_CHARS = 1_000
MAX_ERROR_CHARS = 500
HIDDEN = "***"
_READ_CHARS = 4 * MAX_TEXT_CHARS  # blanks become one, so that more than is shown is looked at
_SECRETIVE = (
    r"\w{0,64}(?:passw(?:or)?d|passphrase|secret|credentials?|"
    r"(?:access|account|api|private|auth|session|sas|bearer|aws|shared)[_ ]?(?:key|token)(?:[_ ]?id)?|token)\w{0,64}+"
)
_BEHIND_A_WORD = re.compile(
    rf"""(\b["']?{_SECRETIVE}["']?(?:\s*(?:=>|:=|=|:)\s*|\s+(?:is\s+)?))(''[^']+(?:''|$)|'(?:[^']|'')*(?:'|$)|"[^"]*(?:"|$))""",
    re.IGNORECASE,
)
_IN_A_LITERAL = re.compile(  # of a connection string, as libpq reads it, and of a header
    r"(\b\w{0,64}(?:passw(?:or)?d|pwd|passphrase|secret_access_key)\w{0,64}+[=:] ?|\bbearer\s+(?=\S{8}))[^\s'\"&;,()]+",
    re.IGNORECASE,
)
_IN_A_URL = re.compile(r"(\b[a-z][a-z0-9+.-]{1,20}://)[^\s/'\"@]{1,512}@", re.IGNORECASE)
_PARAMETER = re.compile(
    r"([?&](?:sig|signature|x-amz-[a-z-]+|token|access_?token|key|secret)=)[^\s&'\"]+", re.IGNORECASE
)


def shown_text(text: str, most_chars: int = MAX_TEXT_CHARS) -> str:
    """The text as it is shown.

    >>> shown_text("set  secret_key = 'abc'")
    "set secret_key = '***'"
    >>> shown_text("select dblink('host=h password=abc', 'x')")
    "select dblink('host=h password=***', 'x')"
    >>> shown_text("copy t from 'https://me:pw@host/f?sig=1%2F&v=2'")
    "copy t from 'https://***@host/f?sig=***&v=2'"
    """
    line = " ".join(text[:_READ_CHARS].split())
    line = _BEHIND_A_WORD.sub(rf"\1'{HIDDEN}'", line)
    line = _IN_A_LITERAL.sub(rf"\1{HIDDEN}", line)
    line = _IN_A_URL.sub(rf"\1{HIDDEN}@", line)
    return _PARAMETER.sub(rf"\1{HIDDEN}", line)[:most_chars]


_log = logging.getLogger(__name__)
MAX_REMEMBERED = 1_000
DONE = "done"
CANCELLED = "cancelled"
RUNNING = "running"
SPANS: Mapping[str, str] = {  # what the span of a task is called
    "statement": "statement",
    "change": "statement",
    "spark": "statement",
    "query": "query",
    "leg": "leg.run",
    "base": "owner.read",
    "write": "owner.write",
    "rewrite": "owner.write",
    "apply": "owner.write",
    "adopt": "owner.write",
    "put": "owner.write",
}

MAX_PLANS = 200
MAX_PLANS_BYTES = 4 << 20

Observer = Callable[[TaskRecord], None]
Plan = Callable[[], Mapping[str, Any]]


@define
class Task:
    """One task under way; it ends once. Its `plan`, where it has one, says how it runs, as `status.plans` does."""

    _tasks: Tasks
    task_id: str
    kind: str
    text: str
    cancel: Callable[[], None]
    started_at_ms: int
    started_ms: float
    span: Span
    parent_span_id: str = ""
    user: str = ""
    engine: str = ""
    rows: int = 0
    bytes: int = 0
    outcome: str = RUNNING
    error_message: str = ""
    took_ms: float = 0.0
    plan: Plan | None = None
    work: Work | None = field(factory=current_work)

    @property
    def job_id(self) -> str:
        """The job that it is done for; nothing for what a client waits for himself."""
        return "" if self.work is None else self.work.job_id

    @property
    def client(self) -> str:
        """The proved name of the client whose task it is; nothing where clients prove none."""
        return "" if self.work is None else self.work.client

    def end(self, outcome: str, error: BaseException | None = None) -> None:
        """Say how it ended; only the first time counts."""
        self._tasks._end(self, outcome, error)

    def failed(self, error: BaseException) -> None:
        """It ended by an error, one outside the tree is called `error`; or by nobody's waiting for it any more."""
        if self.work is not None and self.work.is_abandoned:
            self.end(CANCELLED)
        self.end(error.code if isinstance(error, BallistaError) else BallistaError.code, error)

    def follow(
        self, batches: Iterable[pa.RecordBatch], cancelled: Callable[[], bool] = lambda: False
    ) -> Iterator[pa.RecordBatch]:
        """The same batches; with their end the task ends. Where they were `cancelled` their error is none."""
        try:
            for batch in each_within(self.span, batches):
                self.rows += batch.num_rows
                self.bytes += batch.nbytes
                yield batch
            self.end(DONE)
        except GeneratorExit:
            self.end(CANCELLED)
            raise
        except BaseException as error:
            if cancelled():
                self.end(CANCELLED)
            self.failed(error)
            raise

    @contextmanager
    def whole(self) -> Iterator[Task]:
        """Around all that the task is; with the end of the block it ends."""
        try:
            with within(self.span):
                yield self
        except BaseException as error:
            self.failed(error)
            raise
        self.end(DONE)

    def attach(self, cancel: Callable[[], None]) -> None:
        """Say how to stop the work behind it; if the task was cancelled already, it is stopped now."""
        self.cancel = cancel
        if self.outcome == CANCELLED:
            cancel()

    def cancelled(self) -> None:
        """Stop the work behind it."""
        self.end(CANCELLED)
        self.cancel()


@define
class Tasks:
    """The tasks of the node `node_id`, and the last `MAX_REMEMBERED` that ended. Thread-safe.

    `sees_all` says whether the client of this thread may know how what it sends is carried out, and what others send:
    by the number of legs alone it could ask for values in rows that are hidden from it. `ended` is told of every task
    that ends. Each is a span of the `tracer`, a part of what its thread works in, or else
    of what its caller said.
    """

    node_id: str
    runtime: Runtime
    ended: Observer = field(default=lambda _record: None)
    tracer: Tracer | None = None
    sees_all: Callable[[], bool] = lambda: True
    _running: dict[int, Task] = field(factory=dict, init=False)
    _remembered: deque[TaskRecord] = field(init=False)
    _plans: Remembered[bytes] = field(init=False)
    _lock: AbstractContextManager[object] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._remembered = deque(maxlen=MAX_REMEMBERED)
        self._plans = Remembered(MAX_PLANS, MAX_PLANS_BYTES, self.runtime)
        self._lock = self.runtime.lock()
        if self.tracer is None:
            self.tracer = PlainTracer(self.runtime.new_id)

    def begin(
        self,
        kind: str,
        text: str,
        task_id: str = "",
        cancel: Callable[[], None] = lambda: None,
        engine: str = "",
    ) -> Task:
        """A task that starts now. `cancel` stops the work behind it; without a `task_id` it gets one of its own."""
        span, parent_span_id = self._span(SPANS.get(kind, kind))
        task = Task(
            self,
            task_id or self.runtime.new_id(),
            kind,
            shown_text(written(text)),
            cancel,
            self.runtime.wall_ms(),
            self.runtime.monotonic_ms(),
            span,
            parent_span_id,
            current_client(),
            engine,
        )
        with self._lock:
            self._running[id(task)] = task
        return task

    def _span(self, name: str) -> tuple[Span, str]:
        assert self.tracer is not None
        outer, work = current_span(), current_work()
        if outer is not None and outer.recorded:
            return outer.child(name), outer.context.span_id
        parent = outer.context if outer is not None else None if work is None else work.trace
        return self.tracer.begin(name, parent), "" if parent is None else parent.span_id

    def cancel(self, task_ids: Iterable[str]) -> int:
        """Stop the work of these tasks; returns how many of them were running."""
        wanted = set(task_ids)
        with self._lock:
            found = [task for task in self._running.values() if task.task_id in wanted]
        for task in found:
            task.cancelled()
        return len(found)

    def cancel_of(self, client: str, task_id: str) -> bool:
        """End the task of that id if it is one of the client's and runs; whether it is and did. Its reader is told."""
        with self._lock:
            found = [t for t in self._running.values() if t.task_id == task_id and t.client == client]
        for task in found:
            if task.work is not None:  # first: an answer that ends without a reason would look whole
                task.work.end(TransportError("the statement was cancelled"))
            task.cancelled()
        return bool(found)

    def last(self, limit: int) -> tuple[TaskRecord, ...]:
        """What runs now and what ended last, newest first, all of it: for nodes alone."""
        with self._lock:
            now_ms = self.runtime.monotonic_ms()
            running = [self._record(task, now_ms - task.started_ms) for task in self._running.values()]
            known = [*reversed(running), *reversed(self._remembered)]
        return tuple(known[: max(0, limit)])

    def seen(self, limit: int, client: str | None) -> tuple[TaskRecord, ...]:
        """What runs now and what ended last, newest first, as `seen_by` that client, or a `VIEWER`."""
        return self.shown_of(self.last(limit), client)

    def shown_of(self, tasks: Iterable[TaskRecord], client: str | None) -> tuple[TaskRecord, ...]:
        """Of tasks of any node those that this client, or a `VIEWER`, may see, as `seen_by` them."""
        if client is not VIEWER and not self.sees_all():
            tasks = (task for task in tasks if task.user == client and task.kind in WRITTEN)
        return tuple(seen_by(task, client) for task in tasks)

    def plan_of(self, task_id: str, client: str | None) -> Mapping[str, Any] | None:
        """How a task runs, or one of the last that ended ran, as that `client` or a `VIEWER` may see it.

        None if nobody knows that (any more), or he may not see it.
        """
        if client is not VIEWER and not self.sees_all():
            return None
        with self._lock:
            running = next((task for task in self._running.values() if task.task_id == task_id), None)
        if running is not None and running.plan is not None:
            may = may_see_plan(running.user, running.job_id, client)
            return plan_seen_by(running.plan(), client) if may else None
        kept = self._plans.get(task_id)
        if kept is None:
            return None
        found: Mapping[str, Any] = orjson.loads(kept)
        may = may_see_plan(found["user"], found["job_id"], client)
        return plan_seen_by(found["plan"], client) if may else None

    def has_plan(self, task: TaskRecord, client: str | None) -> bool:
        """Whether `plan_of` would tell how one that has ended, as it was `seen` by no one yet, ran."""
        is_told = client is VIEWER or self.sees_all()
        return is_told and task.task_id in self._plans and may_see_plan(task.user, task.job_id, client)

    def plans(self) -> dict[str, Mapping[str, Any]]:
        """How those tasks run that run now, by their ids."""
        with self._lock:
            running = [(task.task_id, task.plan) for task in self._running.values()]
        return {task_id: plan() for task_id, plan in running if plan is not None}

    def running(self) -> int:
        """How many tasks run now."""
        return len(self._running)

    def _end(self, task: Task, outcome: str, error: BaseException | None) -> None:
        with self._lock:
            if self._running.pop(id(task), None) is None:
                return
            task.outcome = outcome
            task.took_ms = self.runtime.monotonic_ms() - task.started_ms
            if error is not None:
                task.error_message = shown_text(str(to_wire(error)["message"]), MAX_ERROR_CHARS)
            record = self._record(task, task.took_ms)
            self._remembered.append(record)
            plan, task.plan = task.plan, None  # which holds what the task has read
        if plan is not None:
            kept = orjson.dumps({"user": task.user, "job_id": task.job_id, "plan": plan()})
            self._plans.put(task.task_id, kept, len(kept))
        if task.span.recorded:
            task.span.set(kind=task.kind, outcome=outcome, rows=task.rows, bytes=task.bytes)
            task.span.end(error)
        with within(task.span):  # so that the line says which trace it belongs to
            log_event(
                _log,
                "task_ended",
                logging.ERROR if outcome == BallistaError.code else logging.DEBUG,
                task=task.task_id,
                kind=task.kind,
                outcome=outcome,
                took_ms=round(task.took_ms, 1),
                rows=task.rows,
            )
        self.ended(record)

    def _record(self, task: Task, took_ms: float) -> TaskRecord:
        return TaskRecord(
            node_id=self.node_id,
            task_id=task.task_id,
            kind=task.kind,
            text=task.text,
            started_at_ms=task.started_at_ms,
            took_ms=took_ms,
            rows=task.rows,
            outcome=task.outcome,
            trace_id=task.span.context.trace_id,
            span_id=task.span.context.span_id,
            parent_span_id=task.parent_span_id,
            error_message=task.error_message,
            user=task.user,
            bytes=task.bytes,
            engine=task.engine,
            job_id=task.job_id,
        )


__all__ = [
    "CANCELLED", "DONE", "MAX_REMEMBERED", "MAX_TEXT_CHARS", "RUNNING", "SPANS", "Observer", "Task", "Tasks",
]  # fmt: skip
