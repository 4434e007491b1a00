"""What is prepared at an owner and waits for its decision: folded in, given up, or ended when nobody decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from ballista_py.errors import BallistaError
from ballista_py.owner.changes import part_of, to_fold
from ballista_py.owner.commits import Landed, Manifest, OwnerCommits
from ballista_py.owner.files import OwnerFiles
from ballista_py.runtime import Runtime
from ballista_py.sql.plan import Leg
from ballista_py.state.documents.documents import CLUSTER_KEY, ClusterDocument
from ballista_py.state.documents.object_state import ObjectState
from ballista_py.state.documents.undecided import LOOK_AFTER_MS, to_end
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.storage.decisions_check import Waiting
from ballista_py.storage.held.holder import PartitionHolder
from ballista_py.transport.flight.commands import WriteTarget


@frozen(kw_only=True)
class Ended:
    """How an attempt came to its end here, or the `error` that kept it from it."""

    table: str
    partition: int | None = None
    committed: bool = False
    error: BallistaError | None = None


class PreparedStatements:
    """Safe to share between threads; `tick` is called by one."""

    def __init__(
        self,
        holder: PartitionHolder,
        store: ConditionalStore,
        files: OwnerFiles,
        commits: OwnerCommits,
        runtime: Runtime,
    ) -> None:
        self._holder = holder
        self._files = files
        self._commits = commits
        self._runtime = runtime
        self._since_ms: dict[tuple[str, int, str], float] = {}
        self._cluster = ObjectState(store, CLUSTER_KEY, ClusterDocument, runtime=runtime)

    def catch_up(self, leg: Leg) -> frozenset[Waiting]:
        """Fold in what is prepared in the partitions of a leg and was committed before the leg's sequence was taken.

        So a statement over several partitions is seen in all of them from the instant of its commit. It gives what it
        folded in: none of that waits any more, if its partition is held here as it was.
        """
        found: set[Waiting] = set()
        for wanted in leg.tables:
            asked = set(wanted.partitions)
            waiting = [(p, a) for name, p, a in self._holder.prepared() if name == wanted.table and p in asked]
            holdings = self._holder.holdings(wanted.table)
            if wanted.sequence is None or not waiting or holdings is None:
                continue
            decisions = self._commits.statements(holdings.table).read()
            folded: dict[int, Manifest] = {}
            for partition, attempt, sequence in to_fold(waiting, decisions, wanted.sequence):
                folded[partition] = self._commits.settle(holdings, partition, attempt, sequence)
                found.add((wanted.table, partition, attempt))
            self._holder.publish(folded)
        return frozenset(found)

    def settle(self, target: WriteTarget, sequence: int | None) -> dict[str, Any]:
        """Fold in what was prepared under the attempt of `target` and committed as `sequence`, or give it up (None)."""
        attempt = target.attempt
        assert attempt is not None

        def one(partition: int) -> Landed:
            holdings = self._holder.owned(part_of(target.table, partition), target.incarnation)
            return 0, self._commits.settle(holdings, partition, attempt, sequence)

        said = self._commits.each(target, target.table.partitions, one)
        self._files.decided(target.table.table, attempt)
        return said

    def tick(self) -> list[Ended]:
        """Bring to an end what was prepared here, and is decided or never will be; what came of it."""
        now_ms = self._runtime.monotonic_ms()
        found = sorted(self._holder.prepared())
        self._since_ms = {key: self._since_ms.get(key, now_ms) for key in found}
        self._files.forget_but({(name, attempt) for name, _, attempt in found})
        ended: list[Ended] = []
        for name in sorted({key[0] for key, since in self._since_ms.items() if now_ms - since >= LOOK_AFTER_MS}):
            try:
                since_ms = {key: since for key, since in self._since_ms.items() if key[0] == name}
                ended += self._end_all(name, since_ms, now_ms)
            except BallistaError as error:
                ended.append(Ended(table=name, error=error))
        return ended

    def _end_all(self, name: str, since_ms: Mapping[tuple[str, int, str], float], now_ms: float) -> list[Ended]:
        """End what is to be ended of one table; one that cannot be keeps no other."""
        holdings = self._holder.holdings(name)
        if holdings is None:
            return []
        self._holder.decisions.require(holdings.table.folder, holdings.folded())
        decisions = self._commits.statements(holdings.table).read()
        waiting: dict[str, float] = {}
        for (_, _, attempt), since in since_ms.items():  # given time since its last partition was prepared
            waiting[attempt] = max(since, waiting.get(attempt, since))
        due = set(to_end(waiting, decisions, self._schedulers(), now_ms))
        undecided = {attempt for attempt in due if decisions.on(attempt) is None}
        folded, ended = 0, []
        if undecided:
            try:
                folded = self._holder.decisions.require_everywhere(holdings.table.folder)
            except BallistaError as error:  # what is decided is ended all the same
                due -= undecided
                ended.append(Ended(table=name, error=error))
        for _, partition, attempt in sorted(key for key in since_ms if key[2] in due):
            try:
                ended.append(self._end(name, partition, attempt, folded))
            except BallistaError as error:
                ended.append(Ended(table=name, partition=partition, error=error))
        return ended

    def _end(self, name: str, partition: int, attempt: str, folded: int) -> Ended:
        holdings = self._holder.holdings(name)
        if holdings is None or partition not in holdings.held:
            return Ended(table=name, partition=partition)
        decision = self._commits.statements(holdings.table).abort(attempt, folded=folded)
        sequence = decision.sequence if decision.committed else None
        self._holder.publish({partition: self._commits.settle(holdings, partition, attempt, sequence)})
        self._files.decided(name, attempt)
        return Ended(table=name, partition=partition, committed=decision.committed)

    def _schedulers(self) -> set[str]:
        """The instances of the schedulers that are members now."""
        return {info.instance_id for info in self._cluster.read().document.schedulers.values()}
