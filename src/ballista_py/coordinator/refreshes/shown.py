"""How the refreshes and retentions of a table stand, for people and programs."""

from __future__ import annotations

from typing import Any

from ballista_py.errors import ObjectMissing
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import Runtime
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.documents.slots import SlotsDocument, slots_key
from ballista_py.state.stores.store import ConditionalStore


def slots_of(store: ConditionalStore, folder: str, work: str, runtime: Runtime) -> SlotsDocument | None:
    """The slots of a table as they are now; None where nothing was ever done or asked for."""
    try:
        return ObjectState(store, slots_key(folder, work), SlotsDocument, runtime=runtime).read().document
    except ObjectMissing:
        return None


def lag_ms(slots: SlotsDocument | None, now_ms: float) -> float | None:
    """How long ago the source was looked at whose rows the table has; None where nobody knows."""
    return None if slots is None or not slots.fresh_at_ms else max(0.0, now_ms - slots.fresh_at_ms)


def refresh_row(table: TableSpec, slots: SlotsDocument | None, now_ms: float) -> dict[str, Any] | None:
    """The refreshes of a table; None for one that has no source. Times are ms since 1970."""
    if table.source is None:
        return None
    declared = table.refresh
    every_ms = None if declared is None else declared.every_ms
    return {
        "mode": "changes" if table.by_changes else "full" if declared is None else declared.mode,
        "every": None if declared is None else declared.every,
        "time_column": None if declared is None else declared.time_column,
        "lag_ms": None if table.by_changes else lag_ms(slots, now_ms),
        **_done(slots, every_ms),
    }


def retention_row(table: TableSpec, slots: SlotsDocument | None) -> dict[str, Any] | None:
    """The retention of a table; None for one that has none."""
    if table.retention is None:
        return None
    declared = {"sql": table.retention.sql, "every": table.retention.every}
    return {**declared, **_done(slots, table.retention.every_ms)}


def _done(slots: SlotsDocument | None, every_ms: float | None) -> dict[str, Any]:
    last = None if slots is None else slots.last
    return {
        "slot": 0 if slots is None else slots.slot,
        "running": slots.by if slots is not None and slots.holder else None,
        "last_at_ms": None if last is None else last.at_ms,
        "last_took_ms": None if last is None else last.took_ms,
        "last_rows": None if last is None else last.rows,
        "last_skipped": last is not None and last.skipped,
        "last_error": None if last is None else last.error or None,
        "next_at_ms": None if slots is None or every_ms is None else int(slots.begun_at_ms + every_ms),
        "asked": 0 if slots is None else slots.asked,
        "answered": 0 if slots is None else slots.answered,
    }
