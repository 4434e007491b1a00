"""What of a table a viewer sees: no errors, which tell of values in rows, and no values in the texts that declare it.

Clients see all of it: what is in tables they may ask for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ballista_py.node.status.seen_tasks import VIEWER, without_values

HIDDEN = "an error, which clients of the cluster are shown"
_ERRORS = ("last_error", "refresh_error", "retention_error", "message")
_TEXTS = ("sql", "retention_sql")


def table_seen_by(row: Mapping[str, Any], client: str | None) -> Mapping[str, Any]:
    """A row of `SchedulerCore.tables`, or of the table `runtime.tables`, as a `client` sees it, or `VIEWER`.

    >>> table_seen_by({"table": "t", "refresh": {"slot": 3, "last_error": "'x' is no number"}}, VIEWER)
    {'table': 't', 'refresh': {'slot': 3, 'last_error': 'an error, which clients of the cluster are shown'}}
    """
    return row if client is not VIEWER else {name: _shown(name, value) for name, value in row.items()}


def _shown(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name in _ERRORS:
        return HIDDEN
    if name in _TEXTS:
        return without_values(value)
    if name == "failed":
        return dict.fromkeys(value, HIDDEN)
    return {inner: _shown(inner, one) for inner, one in value.items()} if isinstance(value, Mapping) else value
