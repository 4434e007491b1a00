"""What is asked over data ports: the commands of streams and the names of questions.

A scheduler answers the streams `sql` and `job_rows` and the questions `explain`, `tables`, `members`, `reconcile_all`,
`refresh`, `tasks`, `cancel`, `submit_job`, `job`, `jobs`, `cancel_job` and `close_job`, and carries out the writes
`execute`, `ingest` and `create_table`. An executor answers the streams `leg` and `base`, and carries out the writes
`write`, `apply`, `adopt`, `rewrite`, `settle` and `reload`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Literal

from attrs import Factory, frozen

from ballista_py.errors import SqlError
from ballista_py.one_line import one_line
from ballista_py.partitions.new_table import NewTable
from ballista_py.partitions.refresh import WRITE_WAITS
from ballista_py.partitions.spec import PARTITION_COLUMN
from ballista_py.sql.plan import Leg, LegTable
from ballista_py.work import Work, current_client, current_work

SQL = "sql"
LEG = "leg"
INGEST = "ingest"
EXPLAIN = "explain"
TABLES = "tables"
MEMBERS = "members"
RECONCILE_ALL = "reconcile_all"
EXECUTE = "execute"
REWRITE = "rewrite"
SETTLE = "settle"
RELOAD = "reload"
WRITE = "write"
APPLY = "apply"
ADOPT = "adopt"
BASE = "base"
REFRESH = "refresh"
TASKS = "tasks"
SUBMIT_JOB = "submit_job"
JOB = "job"
JOBS = "jobs"
CANCEL_JOB = "cancel_job"
CLOSE_JOB = "close_job"
JOB_ROWS = "job_rows"
JOB_ACTIONS = (SUBMIT_JOB, JOB, JOBS, CANCEL_JOB, CLOSE_JOB)
CANCEL = "cancel"
CREATE_TABLE = "create_table"

TIME_LIMIT = "time_limit_ms"
WAIT = "wait"
APART = "apart"
LANE = "lane"
MAX_LANE_CHARS = 64
GRACE_MS = 500.0

IngestMode = Literal["append", "create", "replace", "create_append", "upsert", "changes"]
GONE_COLUMN = "__ballista_gone"


def sql_command(
    query: str,
    dialect: str | None = None,
    engine: str | None = None,
    timeout_ms: float | None = None,
    change: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Run a statement; the trailer holds its stats. Also the body of the question `explain`.

    `engine` "spark" runs it on Spark, "auto" does so if the merge is estimated to be too large. After `timeout_ms` it
    is ended. Of a `change` that returns rows it holds `token`, `made` and `atomic`.
    """
    asked: dict[str, Any] = {**(change or {}), **({} if engine is None else {"engine": engine})}
    if timeout_ms is not None:
        asked[TIME_LIMIT] = timeout_ms
    return {"kind": SQL, "query": query, "dialect": dialect, **asked}


def job_rows_command(job_id: str, chunk: int | None = None) -> dict[str, Any]:
    """The rows of one chunk of a job's result, or, without a number, of all; the trailer holds the `job`."""
    return {"kind": JOB_ROWS, "job_id": job_id, "chunk": chunk}


def as_part(command: Mapping[str, Any]) -> dict[str, Any]:
    """The command as part of the work of this thread: what is left of its time, whether it runs apart, and for whom.

    Who asks gets a moment more than that, so that the error is its own.
    """
    work = current_work()
    if work is None or command.get("kind") in (SETTLE, RELOAD):  # what is decided is done, however long that takes
        return dict(command)
    left_ms = work.left_ms()
    limited = {} if left_ms is None else {TIME_LIMIT: left_ms + GRACE_MS}
    lane = {LANE: lane_of(work.client)} if work.client else {}
    return {**lane, **command, **limited, **({APART: True} if work.is_apart else {})}


def waiting_for(wait: str | None) -> dict[str, str]:
    """The part of a command that says for what a statement waits that is written through; nothing: as is declared.

    Raises `SqlError` for what there is not.
    """
    if wait is None:
        return {}
    if wait not in WRITE_WAITS:
        raise SqlError(f"wait is one of {', '.join(WRITE_WAITS)}, not '{one_line(str(wait), 60)}'")
    return {WAIT: wait}


def take_part(work: Work, command: Mapping[str, Any]) -> None:
    """Let what is done for a command be as it says: ended after its time, run apart, in its lane, waiting as it wants.

    Raises as `time_limit`.
    """
    work.limit_to(time_limit(command))
    lane = command.get(LANE)
    if isinstance(lane, str) and len(lane) <= MAX_LANE_CHARS:
        work.lane = lane
    work.waits = str(command.get(WAIT) or "")
    work.is_apart = work.is_apart or command.get(APART) is True


def lane_of(client: str) -> str:
    """What tells one client from others to who is not to know its name."""
    return sha256(client.encode()).hexdigest()[:16]


def time_limit(command: Mapping[str, Any]) -> float | None:
    """How many milliseconds a command may take. Raises `SqlError` for what is no such number."""
    limit_ms = command.get(TIME_LIMIT)
    if limit_ms is None:
        return None
    if isinstance(limit_ms, bool) or not isinstance(limit_ms, int | float) or not 0 < limit_ms < float("inf"):
        raise SqlError("a time limit is a positive number of milliseconds")
    return float(limit_ms)


def leg_command(leg: Leg, task_id: str = "") -> dict[str, Any]:
    """Run one leg of the task `task_id`; `leg_from_json(command["leg"])` reads it.

    The `lane` tells the client for whom it runs from others, by a digest of its name.
    """
    return {"kind": LEG, "leg": leg.to_json(), "task": task_id, LANE: lane_of(current_client())}


def execute_command(
    statement: str,
    dialect: str | None,
    token: str,
    atomic: bool = False,
    timeout_ms: float | None = None,
    made: bool = False,
) -> dict[str, Any]:
    """Run a statement that changes something; the answer holds `affected`. After `timeout_ms` it is ended.

    A token that was `made` for this statement alone need not be held against others; with `again` the command says
    whether it was sent before.
    """
    told = {"query": statement, "dialect": dialect, "token": token, "made": made, "atomic": atomic}
    return {**({} if timeout_ms is None else {TIME_LIMIT: timeout_ms}), "kind": EXECUTE, **told}


def ingest_command(
    table: str,
    mode: IngestMode,
    token: str,
    atomic: bool = False,
    timeout_ms: float | None = None,
    made: bool = False,
) -> dict[str, Any]:
    """Take in rows for a table; the answer holds `affected`. `made` as for `execute_command`."""
    told = {"table": table, "mode": mode, "token": token, "made": made, "atomic": atomic}
    return {**({} if timeout_ms is None else {TIME_LIMIT: timeout_ms}), "kind": INGEST, **told}


def create_table_command(
    table: NewTable, token: str, timeout_ms: float | None = None, made: bool = False
) -> dict[str, Any]:
    """Make a table of no rows; its columns are those of the stream. `made` as for `execute_command`."""
    told = {**table.to_json(), "token": token, "made": made}
    return {**({} if timeout_ms is None else {TIME_LIMIT: timeout_ms}), "kind": CREATE_TABLE, **told}


def write_command(target: WriteTarget) -> dict[str, Any]:
    """Take in rows at an owner; the answer says by partition what was `affected`, or which `error` kept it."""
    return {"kind": WRITE, "target": target.to_json()}


def apply_command(target: WriteTarget) -> dict[str, Any]:
    """Change rows by their keys at an owner; the answer is as for `write_command`.

    The rows have a column `GONE_COLUMN` more: where it is true, the row of that key goes, and the others of its columns
    are null; else the row takes the place of that of its key, or comes to the table. No key may come twice.
    """
    return {"kind": APPLY, "target": target.to_json()}


def adopt_command(target: WriteTarget, files: Mapping[int, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Take over data files that lie ready, by partition, at an owner; the answer is as for `write_command`."""
    return {"kind": ADOPT, "target": target.to_json(), "files": {str(p): list(own) for p, own in files.items()}}


def base_command(target: WriteTarget, where: str | None = None, alias: str = "") -> dict[str, Any]:
    """Stream the rows of partitions, file by file, but those of files that hold none for which `where` is true.

    The trailer names all files of each partition under `base`, and under `read` partition, file and rows of those
    in the stream, in its order.
    """
    return {"kind": BASE, "target": target.to_json(), "where": where, "alias": alias}


@frozen(kw_only=True)
class WriteTarget:
    """What a statement changes at one owner: these partitions of this incarnation of a table, at these epochs.

    It sees what was committed up to the sequence of `table`; without one, what is when the owner gets to it.

    With an `attempt` it is prepared, not applied; `base` then names the files that it was made from. The files in
    `remove` go, and with `replace` all that are there.
    """

    table: LegTable
    incarnation: str
    token: str
    attempt: str | None = None
    replace: bool = False
    remove: Mapping[int, tuple[str, ...]] = Factory(dict)
    base: Mapping[int, tuple[str, ...]] = Factory(dict)

    def to_json(self) -> dict[str, Any]:
        """JSON-ready values."""
        return {
            "table": self.table.table,
            "revision": self.table.revision,
            "partitions": self.table.partitions,
            "epochs": self.table.epochs,
            "sequence": self.table.sequence,
            "definition": self.table.definition,
            "incarnation": self.incarnation,
            "token": self.token,
            "attempt": self.attempt,
            "replace": self.replace,
            "remove": {str(partition): list(files) for partition, files in self.remove.items()},
            "base": {str(partition): list(files) for partition, files in self.base.items()},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> WriteTarget:
        """The target that `to_json` described."""
        return cls(
            table=LegTable(
                table=data["table"],
                revision=data["revision"],
                partitions=tuple(data["partitions"]),
                epochs=tuple(data["epochs"]),
                sequence=data.get("sequence"),
                definition=data.get("definition", 0),
                incarnation=data["incarnation"],
            ),
            incarnation=data["incarnation"],
            token=data["token"],
            attempt=data.get("attempt"),
            replace=bool(data.get("replace")),
            remove={int(partition): tuple(files) for partition, files in (data.get("remove") or {}).items()},
            base={int(partition): tuple(files) for partition, files in (data.get("base") or {}).items()},
        )


__all__ = [
    "ADOPT",
    "APPLY",
    "BASE",
    "CANCEL",
    "CANCEL_JOB",
    "CLOSE_JOB",
    "CREATE_TABLE",
    "EXECUTE",
    "EXPLAIN",
    "GONE_COLUMN",
    "INGEST",
    "JOB",
    "JOBS",
    "JOB_ACTIONS",
    "JOB_ROWS",
    "LEG",
    "MEMBERS",
    "PARTITION_COLUMN",
    "RECONCILE_ALL",
    "REFRESH",
    "RELOAD",
    "REWRITE",
    "SETTLE",
    "SQL",
    "SUBMIT_JOB",
    "TABLES",
    "TASKS",
    "WRITE",
    "IngestMode",
    "WriteTarget",
    "adopt_command",
    "apply_command",
    "base_command",
    "create_table_command",
    "execute_command",
    "ingest_command",
    "job_rows_command",
    "leg_command",
    "sql_command",
    "write_command",
]
