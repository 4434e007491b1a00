"""Writes from many processes, at a scheduler: begun, committed as one statement, or given up.

Executors keep the rows of each task in files that nobody names; a commit has owners take all of them over, prepared and
decided once as every statement over several partitions is. The token of the write is that of the statement, so a
commit that is sent again is told what the first one did, and never adds a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import pyarrow as pa
from attrs import define, evolve, field, frozen

from ballista_py.coordinator.cluster_view import ChangeDoor, ClusterView, OpenDoor, Views
from ballista_py.coordinator.writes.overwrites import every_partition
from ballista_py.coordinator.writes.owner_calls import Order, Outcome, OwnerCalls
from ballista_py.coordinator.writes.rounds import WriteRounds
from ballista_py.coordinator.writes.row_writes import RowWrites
from ballista_py.coordinator.writes.sent_again import DoneBefore, SentAgain, looked_at
from ballista_py.coordinator.writes.target_tables import PlannedAgain, TargetTables
from ballista_py.errors import (
    BallistaError,
    ConfigError,
    InvalidData,
    SchemaMismatch,
    SnapshotGone,
    SqlError,
    TryLater,
)
from ballista_py.partitions.table import TableSpec, folded
from ballista_py.runtime import Runtime
from ballista_py.state.documents.token_claims import TokenClaims
from ballista_py.state.documents.write_tokens import WriteToken
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.storage.manifest import DataFile
from ballista_py.storage.writes.leases import LEASE_MS, LONGEST_MS, WriteDocument, WriteLeases, WriteMode
from ballista_py.storage.writes.staged import MAX_FILES, StagedFile, Value

MAX_WRITES = 10_000  # whose receipts are committed together
PREPARED_WITHIN_MS = 600_000.0  # of a renewal: less than anything needs to become garbage
RENEW_AGAIN_MS = 60_000.0


@frozen(kw_only=True)
class BegunWrite:
    """A write that was begun, or whose token is that of one that counts already: then `committed` rows are there."""

    write_id: str
    lease_ms: int
    schema: pa.Schema
    keys: tuple[str, ...]
    view: ClusterView
    committed: int | None = None


@frozen
class PutReceipt:
    """What an executor has kept of one task, as its client says."""

    write_id: str
    sender: str
    digest: str


@frozen(kw_only=True)
class CommittedWrite:
    """How many rows the write has that counts, and whether it was committed before."""

    rows: int
    repeated: bool


@define
class StagedWrites:
    """Begins and commits them. Thread-safe."""

    views: Views
    store: ConditionalStore
    runtime: Runtime
    calls: OwnerCalls
    rounds: WriteRounds
    rows: RowWrites
    targets: TargetTables
    claims: TokenClaims
    sent_again: SentAgain
    again: PlannedAgain
    door: ChangeDoor = field(factory=OpenDoor)
    leases: WriteLeases = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.leases = WriteLeases(self.store, self.runtime)

    def begin(self, name: str, mode: WriteMode, token: str, client: str, lease_ms: int = 0) -> BegunWrite:
        """Begin a write under the client's token; rows may be put from now on.

        Raises `SqlError` for a table that is not there or not to be written so and for a token that another statement
        has, `ConfigError` for a lease that is too long, and `TryLater` for too many open writes.
        """
        if not token:
            raise ConfigError("a write needs a token: the same one again is the same write")
        if lease_ms > LONGEST_MS:
            raise ConfigError(f"rows of a write are kept for at most {LONGEST_MS:,} ms without a sign of life")
        name = folded(name)
        self.door.require_rows(name, mode)
        mine = token_of_write(token, name, mode, client)
        table, found = self._looked_at(name, mine)
        if table is not None and (found is None or self.sent_again.former.was_dropped(found.folder)):
            decision = self.rounds.decided_before(table, mine.kept)
            done = None if decision is None else decision.affected
        else:
            assert found is not None
            table, done = found.table, self.sent_again.told(found, mine).affected
        schema = pa.schema([]) if table is None else table.schema
        keys = () if table is None else tuple(key.expression for key in table.spec.keys)
        lease_ms, write_id = lease_ms or LEASE_MS, ""
        if done is None:
            assert table is not None
            self.claims.claim(table.folder, mine.kept)
            write_id = self.leases.take(table, client, mine.kept, mode, lease_ms)
        return BegunWrite(
            write_id=write_id,
            lease_ms=lease_ms,
            schema=schema,
            keys=keys,
            view=self.views.current(()),
            committed=done,
        )

    def commit(
        self, name: str, mode: WriteMode, token: str, receipts: Sequence[PutReceipt], client: str
    ) -> CommittedWrite:
        """Make the rows of these receipts, and no others, those of the write; all of them at one instant.

        Of two commits under one token the first counts, and the other is told so, whatever its receipts are.

        Raises `SnapshotGone` for a write that is over, `InvalidData` for a receipt that no executor has given for it,
        `SchemaMismatch` if the table was altered since rows were put and for a primary key that is taken, `SqlError` if
        it was dropped, and what statements over several partitions raise. Nothing was changed then, unless it is
        `OutcomeUnknown`, or the scheduler is gone: commit again.
        """
        name = folded(name)
        self.door.require_rows(name, mode)
        mine = token_of_write(token, name, mode, client)
        return self.again.until_done(lambda: self._commit(name, mode, mine, receipts), {name})

    def _commit(
        self, name: str, mode: WriteMode, mine: WriteToken, receipts: Sequence[PutReceipt]
    ) -> CommittedWrite:
        client, table, found = mine.client, None, None
        try:
            table, found = self._looked_at(name, mine)
        except SqlError:  # it has another name by now
            if not receipts:
                raise
        decision = None if table is None else self.rounds.decided_before(table, mine.kept)
        if decision is not None:
            return CommittedWrite(rows=decision.affected, repeated=True)
        if found is not None and not self._begun_anew(found, table, receipts):
            return CommittedWrite(rows=self.sent_again.told(found, mine).affected, repeated=True)
        if len(set(receipts)) != len(receipts):
            raise InvalidData("a receipt was named twice: commit that of each task once")
        write_ids = sorted({receipt.write_id for receipt in receipts})
        if len(write_ids) > MAX_WRITES:
            raise ConfigError(f"at most {MAX_WRITES:,} writes are committed together")
        renewed = _Renewed(self.leases, self.runtime, tuple(write_ids), client, self.calls.run_all)
        if write_ids:
            table = self._table_of(renewed.now(), mine)
        assert table is not None
        self.claims.claim(table.folder, mine.kept)
        files = self._files(table, receipts)
        before = self.rounds.statements(table).read().of(mine.kept)
        done = self.rounds.once(table, mine.kept, self._prepare(table, mode, files, renewed))
        for write_id in write_ids:
            with suppress(BallistaError):  # it ends by itself
                self.leases.end(write_id, client)
        return CommittedWrite(rows=done.affected, repeated=before is not None)

    def renew(self, write_id: str, client: str) -> tuple[WriteDocument, ClusterView]:
        """The write, kept on, and who takes rows for it by now. Raises `SnapshotGone` once it is over."""
        return self.leases.renew_now_and_then(write_id, client), self.views.current(())

    def abort(self, write_ids: Iterable[str], client: str) -> None:
        """Give up what nobody has committed. What is committed meanwhile counts nevertheless."""
        for write_id in write_ids:
            self.leases.end(write_id, client)

    def tick(self) -> int:
        """Remove what is left of writes that are over; of how many. A scheduler calls it now and then."""
        return self.leases.tick()

    def _looked_at(self, name: str, token: WriteToken) -> tuple[TableSpec | None, DoneBefore | None]:
        """The table of that name, and what the write did in one that had the name before."""
        return looked_at(
            lambda: self.targets.managed(name), lambda folder: self.sent_again.former.of(name, folder, token)
        )

    def _begun_anew(self, found: DoneBefore, table: TableSpec | None, receipts: Sequence[PutReceipt]) -> bool:
        """Whether tokens began anew, because the table was dropped and made again, and the rows were put since then."""
        if table is None or not receipts or not self.sent_again.former.was_dropped(found.folder):
            return False
        try:
            return self.leases.read(receipts[0].write_id).table.folder == table.folder
        except SnapshotGone:
            return False

    def _table_of(self, writes: Sequence[WriteDocument], token: WriteToken) -> TableSpec:
        """The table that these writes were begun for, as it is now, whatever it is called."""
        first = writes[0].table
        if any(one.token != token.kept or one.table.folder != first.folder for one in writes):
            raise InvalidData(
                "a receipt is of another write: commit each write under the token that it was begun with"
            )
        for view in (self.views.current, self.views.refresh):
            now = next((one for one in view(()).catalog.tables.values() if one.folder == first.folder), None)
            if now is not None:
                break
        if now is None:
            raise SqlError(
                f"table '{first.name}' was dropped since the write began: nothing was written, begin it again"
            )
        table = self.targets.managed(now.name)
        if table.folder != first.folder or not all(_holds(one.table, table) for one in writes):
            raise SchemaMismatch(
                f"table '{table.name}' was altered since the write began, and its rows were held against what it was: "
                "nothing was written, begin it again with the same token"
            )
        return table

    def _files(
        self, table: TableSpec, receipts: Sequence[PutReceipt]
    ) -> Sequence[tuple[Value, Sequence[DataFile]]]:
        """The files of all receipts for each value of a partition, in the order of the receipts."""

        def of(receipt: PutReceipt) -> tuple[StagedFile, ...]:
            return self.leases.staged(receipt.write_id, receipt.sender, receipt.digest, table).files

        found: dict[str, tuple[Value, list[DataFile]]] = {}  # by path: NaN is no key, because it is not itself
        count = 0
        for staged in self.calls.run_all(of, receipts):
            count += len(staged)
            if count > MAX_FILES:
                raise ConfigError(
                    f"a write has at most {MAX_FILES:,} files: sort its rows by partition, or write less"
                )
            for one in staged:
                found.setdefault(table.spec.path(one.value), (one.value, []))[1].append(one.file)
        return list(found.values())

    def _prepare(
        self,
        table: TableSpec,
        mode: WriteMode,
        files: Sequence[tuple[Value, Sequence[DataFile]]],
        renewed: _Renewed,
    ) -> Callable[[Order, ClusterView], Outcome]:
        """What has owners take the files over under an attempt."""
        known = self.rounds.known(table)

        def prepare(order: Order, view: ClusterView) -> Outcome:
            renewed.now_and_then()
            lacking = [value for value, _ in files if view.catalog.maps[table.name].index(value) is None]
            if lacking:
                view = known(lacking)
            pmap = view.catalog.maps[table.name]
            own: dict[int, list[DataFile]] = {}
            for value, some in files:
                partition = pmap.index(value)
                assert partition is not None
                own.setdefault(partition, []).extend(some)
            if mode == "append":
                outcome = self.calls.adopt(order, view, own)
            else:
                order = evolve(order, replace=True)
                outcome = self.calls.adopt(order, view, own, also=every_partition(pmap))
                outcome = self.rows.everywhere(order, outcome, every_partition)
            if renewed.is_old():
                late = TryLater(f"owners of table '{table.name}' took too long: files of the write may be garbage")
                outcome.errors.update(dict.fromkeys(own, late))
            return outcome

        return prepare


@define
class _Renewed:
    """The writes of one commit, whose files stay for at least so long from each renewal."""

    leases: WriteLeases
    runtime: Runtime
    write_ids: tuple[str, ...]
    client: str
    run_all: Callable[..., Iterable[WriteDocument]]
    _at_ms: float = field(init=False, default=0.0)

    def now(self) -> list[WriteDocument]:
        """Renew all. Raises `SnapshotGone` if one is over."""
        at_ms = self.runtime.monotonic_ms()
        found = list(self.run_all(lambda one: self.leases.renew(one, self.client), self.write_ids))
        self._at_ms = at_ms
        return found

    def now_and_then(self) -> None:
        """Renew them unless that was a moment ago."""
        if self.write_ids and self.runtime.monotonic_ms() - self._at_ms > RENEW_AGAIN_MS:
            self.now()

    def is_old(self) -> bool:
        """Whether so much time has passed that files may be gone."""
        return bool(self.write_ids) and self.runtime.monotonic_ms() - self._at_ms > PREPARED_WITHIN_MS


def _holds(begun: TableSpec, now: TableSpec) -> bool:
    """Whether rows that were held against a table as it was are such as it takes now: it may have another name."""
    return (
        begun.schema.equals(now.schema, check_metadata=True)
        and (begun.spec, begun.primary_key, begun.checks) == (now.spec, now.primary_key, now.checks)
        and begun.definition <= now.definition
    )


def token_of_write(token: str, table: str, mode: WriteMode, client: str) -> WriteToken:
    """The token of a write; its rows are whatever its first commit names.

    >>> token_of_write("load-1", "t", "append", "").given
    True
    """
    return WriteToken(token, ("table write", table, mode), given=True, client=client)
