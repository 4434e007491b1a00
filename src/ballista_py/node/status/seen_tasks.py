"""What of a task whoever looks may see: all of his own; of others' what is named here and nothing else.

A task that gets a field more shows it to its own client alone until it is named here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ballista_py.state.members.control import TaskRecord

VIEWER = None  # in the place of a client's name: somebody who may look at the node, and no more
OF_OTHERS = (
    "node_id", "task_id", "kind", "started_at_ms", "took_ms", "rows", "outcome", "trace_id", "span_id",
    "parent_span_id", "user", "bytes", "engine",
)  # fmt: skip
WRITTEN = ("statement", "change", "query", "spark", "retention")  # kinds whose text is what somebody wrote
_VALUE = re.compile(
    r"""
    (?P<name>"(?:[^"]|"")*+(?:"|\Z))
    | \be'(?:[^'\\]|\\.|'')*+(?:'|\\?\Z)
    | (?:\b[xb])?'(?:[^']|'')*+(?:'|\Z)
    | (?P<tag>\$(?:[^\W\d]\w*+)?\$).*?(?:(?P=tag)|\Z)
    | (?<![\w$])(?:0[xX][0-9a-fA-F_]++|(?:\d[\d_]*+(?:\.[\d_]*+)?|\.\d[\d_]*+)(?:[eE][+-]?\d++)?)
    | \b(?:true|false)\b
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
_PLAIN_NAME = re.compile(r'"[^\W\d][\w .$-]*"')


def seen_by(task: TaskRecord, client: str | None) -> TaskRecord:
    """A task as a `client` sees it, or `VIEWER`.

    What another client wrote is his: his texts are not shown, nor errors about them, nor that something is a job. A
    viewer sees of jobs as little, of other statements what was written, of what was made of them no values, and no
    errors: one that does not fit, or breaks a CHECK, tells of a value in a row.
    """
    if client is not VIEWER and task.user == client:
        return task
    shown: dict[str, Any] = {name: getattr(task, name) for name in OF_OTHERS}
    text = ""
    if client is VIEWER and not task.job_id:
        text = task.text if task.kind in WRITTEN else without_values(task.text)
    return TaskRecord(**shown, text=text, error_message="")


def may_see_plan(user: str, job_id: str, client: str | None) -> bool:
    """Whether a client, or `VIEWER`, may see how the task of a `user` runs."""
    return not job_id if client is VIEWER else user == client


def plan_seen_by(plan: Mapping[str, Any], client: str | None) -> Mapping[str, Any]:
    """The plan of a task that he may see: a viewer sees it without the values that were bound or written."""
    if client is not VIEWER:
        return plan
    parts = {
        name: [{**one, "sql": without_values(one["sql"])} for one in plan[name]]
        for name in ("fragments", "broadcasts")
    }
    merge = plan["merge_sql"]
    notes = [without_values(note) for note in plan["notes"]]
    return {**plan, **parts, "notes": notes, "merge_sql": None if merge is None else without_values(merge)}


def without_values(text: str) -> str:
    """The text with `?` for each value in it, also where it was cut amid one.

    >>> without_values("select c0, 'it''s' as \\"a b\\" from t where id = -5.5e3 and x = 'cut")
    'select c0, ? as "a b" from t where id = -? and x = ?'
    """
    return _VALUE.sub(_hidden, text)


def _hidden(found: re.Match[str]) -> str:
    name = found["name"]
    if name is None:
        return "?"
    return name if _PLAIN_NAME.fullmatch(name) else '"?"'  # a column without a name is called after its expression


__all__ = ["VIEWER", "WRITTEN", "may_see_plan", "plan_seen_by", "seen_by"]
