"""One round of a write: what is asked of the owners, all at the same time, and what each says of each partition.

What became of a statement in the partitions of a table, and what is to be done about it; pure.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, Protocol

import pyarrow as pa
from attrs import Factory, asdict, define, frozen

from ballista_py.coordinator.cluster_view import ClusterView
from ballista_py.coordinator.writes.keyed_rows import keyed_schema
from ballista_py.coordinator.writes.row_routes import Among, Known, OutStream, RowRoutes
from ballista_py.errors import (
    BallistaError,
    OwnershipError,
    PartitionsUnassigned,
    RetriesExhausted,
    StoreError,
    TransportError,
    WriteError,
    WriteIncomplete,
    from_wire,
    to_wire,
)
from ballista_py.partitions.map import PartitionMap
from ballista_py.partitions.set_cover import unassigned
from ballista_py.partitions.table import TableSpec
from ballista_py.sql.plan import LegTable
from ballista_py.sql.rewrite import Rewrite
from ballista_py.storage.manifest import DataFile
from ballista_py.storage.writes.staged import files_to_json
from ballista_py.traces import spanned
from ballista_py.transport.flight.commands import (
    PARTITION_COLUMN,
    RELOAD,
    REWRITE,
    SETTLE,
    WriteTarget,
    adopt_command,
    apply_command,
    base_command,
    write_command,
)
from ballista_py.work import stopped_by

WORTH_ANOTHER_TRY = (OwnershipError, TransportError, PartitionsUnassigned, StoreError, RetriesExhausted)
MAX_NAMED = 5

Step = Literal["done", "again", "over"]


@define
class Outcome:
    """What became of each partition: rows affected, or the error that kept it as it was.

    In those that are `idle` nothing waits for a decision.
    """

    affected: dict[int, int] = Factory(dict)
    errors: dict[int, BallistaError] = Factory(dict)
    idle: set[int] = Factory(set)

    @property
    def waiting(self) -> list[int]:
        """The partitions that wait for the decision."""
        return sorted(self.affected.keys() - self.idle)

    def add(self, said: Mapping[str, Mapping[str, Any]], asked: Container[int]) -> None:
        """Take in what an owner said of the partitions that it was asked for; of others it has nothing to say."""
        for partition, outcome in said.items():
            if int(partition) not in asked:
                continue
            if "error" in outcome:
                self.errors[int(partition)] = from_wire(outcome["error"])
            else:
                self.affected[int(partition)] = int(outcome["affected"])
                if outcome.get("idle"):
                    self.idle.add(int(partition))

    def take(self, other: Outcome) -> None:
        """Take in what became of more partitions."""
        self.affected.update(other.affected)
        self.errors.update(other.errors)
        self.idle |= other.idle


def next_step(errors: Mapping[int, BallistaError], *, may_repeat: bool) -> Step:
    """Whether a round was the last one: all is done, or another one may help, or it is over with errors.

    >>> next_step({}, may_repeat=False), next_step({3: TransportError("lost")}, may_repeat=True)
    ('done', 'again')
    """
    if not errors:
        return "done"
    hopeless = any(not isinstance(error, WORTH_ANOTHER_TRY) for error in errors.values())
    return "over" if hopeless or not may_repeat else "again"


def worst_of(errors: Mapping[int, BallistaError]) -> BallistaError:
    """The error to be told: one that no other try would help, if there is one."""
    return min(errors.values(), key=lambda error: isinstance(error, WORTH_ANOTHER_TRY))


def failure_of(
    table: str,
    pmap: PartitionMap,
    errors: Mapping[int, BallistaError],
    done: Mapping[int, int],
    reason: BallistaError,
) -> BallistaError:
    """The error of a statement that some partitions applied (`done`) and others did not, or none at all."""
    hopeless = not isinstance(reason, WORTH_ANOTHER_TRY)
    if not done and ((hopeless and len(errors) == 1) or isinstance(reason, WriteError)):
        return reason
    names = named(pmap, list(errors))
    where = f"partitions {', '.join(names)}" + (" and others" if len(errors) > len(names) else "")
    return WriteIncomplete(
        f"table '{table}': {len(errors) or 'some'} partition(s) did not apply the statement, "
        f"{len(done)} did ({where if names else 'which is not known'}: {to_wire(reason)['message']})"
        f"{'' if 'token' in reason.details else '; send it again with the same token'}",
        table=table,
        partitions=names,
    )


def named(pmap: PartitionMap, partitions: Sequence[int]) -> list[str]:
    """The text forms of the first few partitions."""
    return [pmap.path(partition) for partition in sorted(partitions)[:MAX_NAMED] if partition < len(pmap)]


FILES_AT_ONCE = 5_000  # in one command


class OwnerConnections(Protocol):
    """Connections to executors: `FlightPool`, or anything that promises the same."""

    def ask(self, address: str, command: Mapping[str, Any], *, peer_id: str | None = None) -> dict[str, Any]: ...
    def open_stream(self, address: str, command: Mapping[str, Any], *, peer_id: str | None = None) -> Any: ...
    def open_write(
        self, address: str, command: Mapping[str, Any], schema: pa.Schema, *, peer_id: str | None = None
    ) -> OutStream: ...


RunAll = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]


@frozen(kw_only=True)
class Order:
    """What a statement asks of the owners of a table. `sequence` is the moment that all of them read, if they must
    read the same. What is `keyed` changes rows by their keys (`keyed_rows.py`)."""

    table: TableSpec
    token: str
    attempt: str | None = None
    sequence: int | None = None
    replace: bool = False
    keyed: bool = False
    remove: Mapping[int, Sequence[str]] = Factory(dict)
    base: Mapping[int, Sequence[str]] = Factory(dict)

    def target(self, pmap: PartitionMap, partitions: Sequence[int]) -> WriteTarget:
        """The part of it for these partitions."""
        return WriteTarget(
            table=LegTable(
                table=self.table.name,
                revision=pmap.revision,
                partitions=tuple(partitions),
                epochs=tuple(pmap.epoch(partition) for partition in partitions),
                sequence=self.sequence,
                definition=self.table.definition,
                incarnation=self.table.incarnation,
            ),
            incarnation=self.table.incarnation,
            token=self.token,
            attempt=self.attempt,
            replace=self.replace,
            remove={p: tuple(self.remove[p]) for p in partitions if p in self.remove},
            base={p: tuple(self.base[p]) for p in partitions if p in self.base},
        )


@define
class BaseFiles:
    """What a statement was made from: all `files` of each partition, and those that were `read`, in order.

    `read` tells partition, file and number of rows.
    """

    files: dict[int, list[str]] = Factory(dict)
    read: list[tuple[int, str, int]] = Factory(list)

    def add(self, trailer: Mapping[str, Any], asked: Container[int]) -> None:
        """Take in what an owner said at the end of its rows of the partitions that it was asked for."""
        self.files.update({int(p): list(files) for p, files in trailer["base"].items() if int(p) in asked})
        self.read.extend((p, path, rows) for p, path, rows in trailer["read"] if p in asked)


@define
class OwnerCalls:
    """The calls of one scheduler. Thread-safe. `run_all` runs calls at the same time, on threads of its own."""

    pool: OwnerConnections
    run_all: RunAll

    def send(
        self,
        order: Order,
        view: ClusterView,
        batches: Iterable[pa.RecordBatch],
        known: Callable[[Sequence[tuple[Any, ...]]], ClusterView],
        *,
        skip: frozenset[int] = frozenset(),
        also: Sequence[int] = (),
        among: Among | None = None,
        seal: Callable[[], str] | None = None,
    ) -> Outcome:
        """Send rows (of the table's schema, or keyed ones) to their owners and have them applied or prepared.

        Rows of partitions in `skip` go nowhere; owners of those in `also` are asked even if no rows of theirs come,
        and of none but those `among` a map.
        When all rows were sent `seal` gives the token that they are applied under, or raises.
        What fails before the owners have all rows raises, and nothing was applied; what fails later is in the
        outcome.
        """
        name = order.table.name
        views = [view]
        named: dict[int, frozenset[int]] = {}

        def open_stream(executor_id: str, partitions: Sequence[int]) -> OutStream:
            target = order.target(views[-1].catalog.maps[name], partitions)
            columns = keyed_schema(order.table) if order.keyed else order.table.schema
            command = apply_command(target) if order.keyed else write_command(target)
            address = views[-1].addresses[executor_id]
            stream = self.pool.open_write(address, command, columns.append(_PARTITION), peer_id=executor_id)
            named[id(stream)] = frozenset(partitions)
            return stream

        def known_values(values: Sequence[tuple[Any, ...]]) -> Any:
            views.append(known(values))
            return views[-1].catalog.maps[name], views[-1].members

        ask: Known = known_values
        routes = RowRoutes(view.catalog.maps[name], view.members, open_stream, ask, skip, among)
        try:
            with spanned("route", table=name):
                for batch in batches:
                    routes.write(batch)
                routes.open_all(also)
            token = None if seal is None else seal()
        except BaseException:
            routes.abort()
            raise

        def finish(part: tuple[OutStream, set[int]]) -> dict[str, Any] | BallistaError:
            try:
                with stopped_by(part[0].abort):
                    return part[0].finish(token)
            except BallistaError as error:
                return error

        outcome = Outcome()
        for (stream, partitions), said in zip(routes.streams, self.run_all(finish, routes.streams), strict=True):
            if isinstance(said, BallistaError):
                outcome.errors.update(dict.fromkeys(partitions, said))
            else:
                outcome.add(said, named[id(stream)])
        return outcome

    def rewrite(self, order: Order, view: ClusterView, partitions: Sequence[int], rewrite: Rewrite) -> Outcome:
        """Have the owners rewrite the files of these partitions."""
        return self._ask(order, view, partitions, REWRITE, {"rewrite": asdict(rewrite)})

    def adopt(
        self, order: Order, view: ClusterView, files: Mapping[int, Sequence[DataFile]], also: Sequence[int] = ()
    ) -> Outcome:
        """Have the owners take over files that lie ready, by partition; those of partitions in `also` are asked even if
        there are none for them."""
        pmap, name = view.catalog.maps[order.table.name], order.table.name
        parts = []
        for executor_id, own in owners_of(view, name, sorted({*files, *also})).items():
            parts += [(executor_id, some) for some in _few_files(own, files)]

        def command(own: Sequence[int]) -> dict[str, Any]:
            said = {partition: files_to_json(files[partition]) for partition in own if partition in files}
            return adopt_command(order.target(pmap, own), said)

        return self._asked(view, parts, command)

    def settle(self, order: Order, view: ClusterView, partitions: Sequence[int], sequence: int | None) -> Outcome:
        """Have the owners fold in an attempt that committed with this sequence, or give it up (None)."""
        return self._ask(order, view, partitions, SETTLE, {"sequence": sequence})

    def reload(self, view: ClusterView, table: TableSpec, partitions: Sequence[int]) -> None:
        """Let everybody who holds copies of these partitions read their manifests again, before anybody asks.

        Who cannot be told finds out by itself before it answers: an acknowledgement waits for owners alone.
        """
        pmap = view.catalog.maps[table.name]
        partitions = [partition for partition in partitions if partition < len(pmap)]
        holders = {owner for p in partitions for owner in pmap.owners(p)[1:]} & view.members
        if table.distribution == "replicated":
            holders = set(view.members) - {pmap.owner(p) for p in partitions if pmap.owner(p)}
        command = {"kind": RELOAD, "table": table.name, "partitions": list(partitions)}

        def ask(executor_id: str) -> None:
            with suppress(BallistaError):
                self.pool.ask(view.addresses[executor_id], command, peer_id=executor_id)

        list(self.run_all(ask, sorted(executor_id for executor_id, _ in holders)))

    def base(
        self, order: Order, view: ClusterView, partitions: Sequence[int], where: str | None, alias: str
    ) -> tuple[Iterator[pa.RecordBatch], BaseFiles]:
        """The rows of these partitions that `where` may be true for, the partition as last column; and, filled while
        they are read, the files that they come from."""
        pmap = view.catalog.maps[order.table.name]
        found = BaseFiles()

        def rows() -> Iterator[pa.RecordBatch]:
            for executor_id, own in owners_of(view, order.table.name, partitions).items():
                command = base_command(order.target(pmap, own), where, alias)
                stream = self.pool.open_stream(view.addresses[executor_id], command, peer_id=executor_id)
                with stopped_by(stream.cancel):
                    yield from stream.batches()
                found.add(stream.trailer, own)

        return rows(), found

    def _ask(
        self, order: Order, view: ClusterView, partitions: Sequence[int], action: str, body: Mapping[str, Any]
    ) -> Outcome:
        pmap = view.catalog.maps[order.table.name]

        def command(own: Sequence[int]) -> dict[str, Any]:
            return {"kind": action, "target": order.target(pmap, own).to_json(), **body}

        return self._asked(view, list(owners_of(view, order.table.name, partitions).items()), command)

    def _asked(
        self,
        view: ClusterView,
        parts: Sequence[tuple[str, list[int]]],
        command: Callable[[Sequence[int]], dict[str, Any]],
    ) -> Outcome:
        """What owners made of their commands for these partitions."""

        def ask(part: tuple[str, list[int]]) -> dict[str, Any] | BallistaError:
            executor_id, own = part
            try:
                return self.pool.ask(view.addresses[executor_id], command(own), peer_id=executor_id)
            except BallistaError as error:
                return error

        outcome = Outcome()
        for (_, own), said in zip(parts, self.run_all(ask, parts), strict=True):
            if isinstance(said, BallistaError):
                outcome.errors.update(dict.fromkeys(own, said))
            else:
                outcome.add(said, own)
        return outcome


def owners_of(view: ClusterView, table: str, partitions: Sequence[int]) -> dict[str, list[int]]:
    """The partitions by the executor that owns them. Raises `PartitionsUnassigned`."""
    pmap = view.catalog.maps[table]
    found: dict[str, list[int]] = {}
    missing = []
    for partition in partitions:
        owner = pmap.owner(partition)
        if owner is None or owner not in view.members:
            missing.append(partition)
        else:
            found.setdefault(owner[0], []).append(partition)
    if missing:
        raise unassigned(missing)
    return found


def _few_files(partitions: Sequence[int], files: Mapping[int, Sequence[DataFile]]) -> Iterator[list[int]]:
    """The partitions in groups that have `FILES_AT_ONCE` files together at most; one with more stands alone.

    >>> from ballista_py.storage.manifest import DataFile
    >>> file = DataFile(path="a", rows=1, bytes=1)
    >>> list(_few_files([1, 2, 3], {1: [file] * FILES_AT_ONCE, 2: [file]}))
    [[1], [2, 3]]
    """
    group: list[int] = []
    count = 0
    for partition in partitions:
        own = len(files.get(partition, ()))
        if group and count + own > FILES_AT_ONCE:
            yield group
            group, count = [], 0
        group.append(partition)
        count += own
    if group:
        yield group


_PARTITION = pa.field(PARTITION_COLUMN, pa.int32())
