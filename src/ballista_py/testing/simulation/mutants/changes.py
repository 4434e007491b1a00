"""Deliberate faults of tables that follow a source: what their simulation must find, or it proves nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pyarrow as pa
from attrs import evolve, frozen

from ballista_py.coordinator.changes import reader as reader_module
from ballista_py.coordinator.changes.net import Net, net_of
from ballista_py.coordinator.changes.reader import ChangeReader
from ballista_py.coordinator.changes.rules import Progress
from ballista_py.coordinator.changes.source import ChangeBatch
from ballista_py.state.documents.decisions import Decision, SourcePosition, SourceSpan, StatementsDocument
from ballista_py.testing.simulation.changes import followed as followed_module
from ballista_py.testing.simulation.changes.followed import VirtualFollowed
from ballista_py.testing.simulation.changes.simulation import ChangeSimulation
from ballista_py.testing.simulation.changes.source import VirtualSource

Patch = tuple[Any, str, Any]
_decided = StatementsDocument.decided
_settled = StatementsDocument.settled
_read = VirtualSource.read
_snapshot = VirtualSource.snapshot
_position = VirtualFollowed.position
_applied = ChangeReader._applied
_prepare = VirtualFollowed._prepare


@frozen(kw_only=True)
class ChangeMutant:
    """One deliberate fault; `changes` are fields of the simulation."""

    name: str
    what: str
    patches: tuple[Patch, ...] = ()
    changes: tuple[tuple[str, Any], ...] = ()

    @contextmanager
    def applied(self) -> Iterator[Callable[[int], ChangeSimulation]]:
        """Break the code within this block, for the whole process; gives simulations by their seed."""
        with ExitStack() as stack:
            for owner, name, replacement in self.patches:
                before = owner.__dict__[name]
                stack.callback(setattr, owner, name, before)
                setattr(owner, name, replacement)
            yield lambda seed: ChangeSimulation(seed, **{"minutes": MINUTES, **dict(self.changes)})


MINUTES = 6.0


def _anywhere(
    document: StatementsDocument,
    decision: Decision,
    begun: int | None = None,
    definition: int | None = None,
    span: SourceSpan | None = None,
) -> StatementsDocument:
    return _decided(document, decision, begun, definition, span and SourceSpan(document.position, span.to))


def _rows_alone(
    document: StatementsDocument,
    decision: Decision,
    begun: int | None = None,
    definition: int | None = None,
    span: SourceSpan | None = None,
) -> StatementsDocument:
    after = _decided(document, decision, begun, definition, span)
    if document.position is None or span is None or after.position == document.position:
        return after
    return evolve(after, position=document.position, waiting=(f"{span.to.at} {span.to.log}",))


def _position_later(document: StatementsDocument, attempt: str) -> StatementsDocument:
    after = _settled(document, attempt)
    if not after.waiting:
        return after
    at, log = after.waiting[0].split()
    return evolve(after, position=SourcePosition(int(at), log), waiting=())


def _uncut(_table: str, since: SourcePosition, batch: ChangeBatch) -> tuple[SourceSpan | None, pa.Table]:
    if not batch.changes.num_rows:
        return None, batch.changes
    return SourceSpan(since, batch.position), batch.changes


def _remembered(followed: VirtualFollowed) -> SourcePosition | None:
    known = getattr(followed.machine, "remembers", None)
    if known is None:
        known = _position(followed)
        setattr(followed.machine, "remembers", known)  # noqa: B010  a field that machines do not have
    return known


def _halved(source: VirtualSource, after: SourcePosition, limit: int) -> ChangeBatch:
    batch = _read(source, after, limit)
    count = len(batch.changes)
    if count < 2 or batch.changes.column("at")[-2] != batch.changes.column("at")[-1]:
        return batch
    return evolve(batch, changes=batch.changes.slice(0, count - 1))


def _confirmed_first(reader: ChangeReader, since: SourcePosition) -> Progress:
    reader.source.confirm(reader.source.read(since, reader.batch_changes).position)
    return _applied(reader, since)


def _only_comes(table: Any, changes: Any) -> Net:
    net = net_of(table, changes)
    return evolve(net, gone=net.gone.slice(0, 0))


def _earlier_copy(source: VirtualSource) -> tuple[SourcePosition, Iterator[pa.RecordBatch]]:
    position, rows = _snapshot(source)
    before = [at for at, _ in source.database.history[:-1]][-1:]
    at = before[0] if before else position.at
    source.database.slots[position.log].confirmed = source.database.slots[position.log].kept = at
    return SourcePosition(at, position.log), rows


def _later_log(source: VirtualSource) -> tuple[SourcePosition, Iterator[pa.RecordBatch]]:
    position, rows = _snapshot(source)
    source.machine.sleep_ms(5_000.0)
    return SourcePosition(source.database.position, position.log), rows


def _alone(source: VirtualSource) -> tuple[SourcePosition, Iterator[pa.RecordBatch]]:
    source.database.slots.clear()
    return _snapshot(source)


def _made_only(
    followed: VirtualFollowed, partition: int, come: list[str], keys: set[str] | None, mine: Any, sequence: int
) -> None:
    if partition not in followed.site.epochs:
        followed.found(partition)
        return
    _prepare(followed, partition, come, keys, mine, sequence)


CHANGE_MUTANTS: tuple[ChangeMutant, ...] = (
    ChangeMutant(
        name="position-apart",
        what="the position is committed after the rows",
        patches=(
            (StatementsDocument, "decided", _rows_alone),
            (StatementsDocument, "settled", _position_later),
        ),
    ),
    ChangeMutant(
        name="span-anywhere",
        what="changes count wherever the table stands",
        patches=(
            (StatementsDocument, "decided", _anywhere),
            (VirtualFollowed, "require", lambda _followed, _span, _position: None),
        ),
    ),
    ChangeMutant(
        name="batch-ends-inside",
        what="a batch ends inside a transaction",
        patches=((VirtualSource, "read", _halved),),
    ),
    ChangeMutant(
        name="not-cut",
        what="what the source sends again is applied again",
        patches=((reader_module, "cut", _uncut),),
    ),
    ChangeMutant(
        name="position-remembered",
        what="a reader goes on from what it remembers",
        patches=((VirtualFollowed, "position", _remembered),),
    ),
    ChangeMutant(
        name="confirmed-when-read",
        what="what was read is confirmed before it is decided",
        patches=((ChangeReader, "_applied", _confirmed_first),),
    ),
    ChangeMutant(
        name="row-only-comes",
        what="a row that changes its partition stays where it was, too",
        patches=((followed_module, "net_of", _only_comes),),
    ),
    ChangeMutant(
        name="copy-at-earlier-position",
        what="the log goes on before the copy",
        patches=((VirtualSource, "snapshot", _earlier_copy),),
    ),
    ChangeMutant(
        name="copy-at-later-position",
        what="the log goes on after the copy",
        patches=((VirtualSource, "snapshot", _later_log),),
    ),
    ChangeMutant(
        name="new-partition-empty",
        what="a partition that a batch makes lacks the rows of that batch",
        patches=((VirtualFollowed, "_prepare", _made_only),),
    ),
    ChangeMutant(
        name="never-ended",
        what="nobody ends what was prepared and not decided",
        changes=(("sweeps", False),),
    ),
    ChangeMutant(
        name="copy-ends-other-logs",
        what="whoever copies throws away the logs of others",
        patches=((VirtualSource, "snapshot", _alone),),
    ),
)


def caught_by(mutant: ChangeMutant, seeds: int) -> tuple[int, str] | None:
    """The first seed that finds the fault, and what it sees; None if none of them does."""
    with mutant.applied() as simulation:
        for seed in range(seeds):
            wrong = simulation(seed).run().wrong
            if wrong:
                return seed, wrong[0]
    return None
