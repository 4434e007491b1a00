"""When to tell an executor again what it is to hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import Factory, evolve, frozen

from ballista_py.partitions.map import Owner, PartitionMap
from ballista_py.partitions.table import TableSpec
from ballista_py.runtime import Runtime
from ballista_py.state.members.control import HeldPartitions, UpdatePartitions
from ballista_py.state.ownership.notify import Committed, desired_of, farewells, is_settled, unsettled


@frozen
class _Sent:
    """What was sent of a table: the revision of its map, its name and definition, and when."""

    revision: int
    definition: tuple[str, int]
    at_ms: float


@frozen(eq=False)
class _Told:
    """What an executor is to hold of a table by one map, and whether it holds that by one report."""

    map: PartitionMap
    table: TableSpec
    update: UpdatePartitions
    report: HeldPartitions | None = None
    is_told: bool = False


@frozen(eq=False)
class _Seen:
    """The last look at an executor: what was committed, what it reported, and how that compares by table."""

    committed: Committed | None = None
    held: Sequence[HeldPartitions] = ()
    tables: Mapping[str, _Told] = Factory(dict)
    all_told: bool = False


class Notifier:
    """Remembers what was sent to whom, so that an update under way is not sent with every heartbeat.

    A newer revision, or another definition of its table, is due at once, the same one again after `resend_ms`, as long
    as the executor does not report to hold what is committed. Thread-safe.
    """

    def __init__(self, runtime: Runtime, resend_ms: float) -> None:
        self._runtime = runtime
        self._resend_ms = resend_ms
        self._lock = runtime.lock()
        self._sent: dict[Owner, dict[str, _Sent]] = {}  # by folder
        self._seen: dict[Owner, _Seen] = {}

    def due(
        self, executor: Owner, updates: Sequence[UpdatePartitions], held: Sequence[HeldPartitions]
    ) -> list[UpdatePartitions]:
        """Which of `updates` (all that is committed for the executor) to send now; they count as sent."""
        with self._lock:
            now_ms = self._runtime.monotonic_ms()
            sent = self._sent.setdefault(executor, {})
            here = {report.table for report in held}
            open_ = {update.table.folder for update in unsettled(updates, held)}
            found = [
                u
                for u in updates
                if (u.table.folder in open_ and self._is_due(sent.get(u.table.folder), u.revision, now_ms))
                or (u.table.folder in here and _is_news(sent.get(u.table.folder), u.table))
            ]
            sent.update(
                (u.table.folder, _Sent(u.revision, (u.table.name, u.table.definition), now_ms)) for u in found
            )
            return found

    def is_told(self, executor: Owner, committed: Committed, held: Sequence[HeldPartitions]) -> bool:
        """Whether an executor was found to hold what is committed, when both were these very values."""
        with self._lock:
            seen = self._seen.get(executor)
            return seen is not None and seen.all_told and seen.held is held and committed.is_same(seen.committed)

    def news(
        self, executor: Owner, committed: Committed, held: Sequence[HeldPartitions]
    ) -> list[UpdatePartitions]:
        """As `due`, of all that is committed for the executor; looks only at the tables of which the map, the
        definition or the report is not what it was."""
        with self._lock:
            seen = self._seen.get(executor) or _Seen()
        reports = {report.table: report for report in held}
        known: dict[str, _Told] = {}
        updates: list[UpdatePartitions] = []
        for name, pmap in committed.maps.items():
            table = committed.tables[name]
            report, before = reports.get(table.folder), seen.tables.get(name)
            if before is None or before.map is not pmap or before.table is not table:
                before = _Told(pmap, table, desired_of(pmap, table, *executor))
            if before.report is not report or not before.is_told:
                before = evolve(before, report=report, is_told=is_settled(before.update, report))
                if not before.is_told or table.definition:
                    updates.append(before.update)
            known[name] = before
        updates += farewells(committed.dropped, held, executor[1])
        found = self.due(executor, sorted(updates, key=lambda update: update.table.name), held)
        with self._lock:
            self._seen[executor] = _Seen(committed, held, known, not updates)
        return found

    def forget(self, executor: Owner) -> None:
        """Take it that nothing has reached the executor: its stream ended or is new."""
        with self._lock:
            self._sent.pop(executor, None)
            self._seen.pop(executor, None)

    def _is_due(self, sent: _Sent | None, revision: int, now_ms: float) -> bool:
        return sent is None or sent.revision < revision or now_ms - sent.at_ms >= self._resend_ms


def _is_news(sent: _Sent | None, table: TableSpec) -> bool:
    """Whether the executor was not sent this definition of an altered table.

    What it reports does not tell, where whoever altered the table died before the map had another revision.
    """
    return table.definition > 0 and (sent is None or sent.definition != (table.name, table.definition))
