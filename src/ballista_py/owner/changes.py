"""What a statement does to one partition of an owner, decided over values: a target, a manifest, files.

One partition's change under way: files that go, and what comes in their place, until it is whole or taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

import numpy as np
import pyarrow as pa
from attrs import define, evolve, field, frozen

from ballista_py.errors import InvariantViolated, StoreError, TryLater
from ballista_py.partitions.table import TableSpec
from ballista_py.sql.plan import LegTable
from ballista_py.state.documents.decisions import StatementsDocument
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.storage.formats.deletion_vector import NONE_GONE, Places
from ballista_py.storage.formats.files import read_places, write_deletion_vector
from ballista_py.storage.held.files import LoadedFiles
from ballista_py.storage.manifest import AppliedToken, DataFile, ManifestDocument, Prepared
from ballista_py.storage.row_spool import RowSpool
from ballista_py.transport.flight.commands import PARTITION_COLUMN, WriteTarget


@frozen
class PartitionChange:
    """What one statement does to one partition: files in, files out, rows affected.

    `base` are the files that it was made from, where it is another change if those are others.
    """

    add: tuple[DataFile, ...] = ()
    remove: tuple[str, ...] = ()
    affected: int = 0
    base: tuple[str, ...] | None = None

    def prepared(self, target: WriteTarget, at_ms: int) -> Prepared:
        """The change as an attempt that waits for its decision."""
        assert target.attempt is not None
        return Prepared(
            attempt=target.attempt,
            token=target.token,
            add=self.add,
            remove=self.remove,
            affected=self.affected,
            exclusive=target.replace,
            prepared_at_ms=at_ms,
        )


@frozen(kw_only=True)
class NewRows:
    """The rows of a statement at one owner, in files by partition.

    Raises `InvariantViolated` for files of a partition that the target does not name.
    """

    target: WriteTarget
    files: Mapping[int, Sequence[DataFile]]

    def __attrs_post_init__(self) -> None:
        if not self.files.keys() <= set(self.target.table.partitions):
            raise InvariantViolated(
                f"rows of table '{self.target.table.table}' came for partitions that were not named"
            )

    @property
    def partitions(self) -> list[int]:
        """Those to be changed: rows come, files go, or the statement was made from what is there."""
        target = self.target
        touched = target.table.partitions if target.replace else {*self.files, *target.remove, *target.base}
        return sorted(touched)

    @property
    def is_blind(self) -> bool:
        """Whether the change is the same whatever is there."""
        return not (self.target.replace or self.target.remove or self.target.base)

    @property
    def paths(self) -> list[str]:
        """All files."""
        return [file.path for files in self.files.values() for file in files]

    def change(self, partition: int, here: Iterable[DataFile]) -> PartitionChange:
        """What is done to a partition that consists of the files `here`.

        Raises `TryLater` when it was made from other files (they were merged since, for example): nothing can be told
        of keys then.
        """
        here = tuple(here)
        base = self.target.base.get(partition)
        if base is not None and {file.path for file in here} != set(base):
            raise TryLater(f"partition {partition} of '{self.target.table.table}' has changed since it was read")
        new = tuple(self.files.get(partition, ()))
        gone = tuple(file.path for file in here) if self.target.replace else self.target.remove.get(partition, ())
        return PartitionChange(new, tuple(gone), sum(file.rows for file in new))


def applied_before(
    manifest: ManifestDocument, target: WriteTarget, *, unique: bool, earlier: AppliedToken | None = None
) -> AppliedToken | None:
    """What the statement did when it was applied, if it was; `earlier` is what pages of tokens say.

    Raises `TryLater` where keys are `unique` and another statement is prepared: whether its rows count decides what
    this one may do.
    """
    before = earlier or manifest.applied(target.token)
    if before is None and unique and any(waiting.attempt != target.attempt for waiting in manifest.prepared):
        raise TryLater(f"table '{target.table.table}' waits for the decision on another statement")
    return before


def is_free(target: WriteTarget, partition: int) -> bool:
    """Whether a statement that changes nothing in the partition need not be noted there: it would hinder nobody."""
    return not target.replace and partition not in target.base


def affected_by(before: AppliedToken | None, change: PartitionChange) -> int:
    """How many rows the statement counts here: what it was applied `before` with, or what it does now."""
    return change.affected if before is None else before.affected


def to_fold(
    waiting: Iterable[tuple[int, str]], decisions: StatementsDocument, sequence: int
) -> list[tuple[int, str, int]]:
    """Of what is prepared (partition, attempt), that which committed up to `sequence`, with the sequence of each."""
    found = ((partition, attempt, decisions.on(attempt)) for partition, attempt in waiting)
    return [
        (partition, attempt, decision.sequence)
        for partition, attempt, decision in found
        if decision is not None and decision.committed and decision.sequence <= sequence
    ]


def part_of(table: LegTable, *partitions: int) -> LegTable:
    """Some of the partitions, each at the epoch that was asked for: what is damaged keeps nothing else from writes."""
    epochs = dict(zip(table.partitions, table.epochs, strict=True))
    return evolve(table, partitions=partitions, epochs=tuple(epochs[partition] for partition in partitions))


MAX_GONE = 4  # one in so many rows of a file may be gone


@define
class PartitionEdit:
    """Used by one thread. `fresh` gives a folder of its own for deletion vectors; `staged` are the engine's files."""

    store: ConditionalStore
    staged: LoadedFiles
    table: TableSpec
    partition: int
    spool: RowSpool
    fresh: Callable[[], str]
    affected: int = field(default=0, init=False)
    _removed: list[str] = field(factory=list, init=False)
    _vectors: list[DataFile] = field(factory=list, init=False)

    def put(self, rows: pa.RecordBatch) -> None:
        """Have rows come, which fit the table."""
        self.spool.add(tagged(rows, self.partition))

    def remove(self, file: DataFile) -> None:
        """Have a file go whose rows are put anew, as far as they stay."""
        self._removed.append(file.path)

    def take(self, file: DataFile, file_id: int, newly: Places) -> None:
        """Have the rows at these places go from a file, by a deletion vector in its place."""
        gone = np.union1d(self._gone(file), newly)
        vector = write_deletion_vector(self.store, f"{self.fresh()}/0.deletions", file, gone)
        self._vectors.append(vector)
        self.staged.stage_vector(self.table.name, vector, file_id, gone, newly)
        self._removed.append(file.path)

    def finish(self) -> PartitionChange:
        """The change, its files written; none where no row is affected."""
        files = self.spool.finish().get(self.partition, [])
        if not self.affected:
            self.discard()
            return PartitionChange()
        return PartitionChange((*files, *self._vectors), tuple(self._removed), self.affected)

    def discard(self) -> None:
        """Take back all that was written and loaded."""
        paths = [vector.path for vector in self._vectors]
        self.staged.unstage(self.table.name, [*paths, *self.spool.discard()])
        for path in paths:
            with suppress(StoreError):  # the collector finds it
                self.store.delete(path)

    def _gone(self, file: DataFile) -> Places:
        """The places that are gone from the original of a file already."""
        if file.original is None:
            return NONE_GONE
        known = self.staged.gone(self.table.name, file.path)
        return read_places(self.store, file) if known is None else known


def is_few(file: DataFile, rows: int) -> bool:
    """Whether so many more rows may go from a file by a deletion vector.

    What is gone is read and held by whoever takes the file, so it is written anew once that is a quarter.

    >>> file = DataFile(path="a.parquet", rows=1_000, bytes=1)
    >>> is_few(file, 250), is_few(file, 251)
    (True, False)
    """
    before = file.rows if file.original is None else file.original.rows
    return (before - file.rows + rows) * MAX_GONE <= before


def tagged(batch: pa.RecordBatch, partition: int) -> pa.RecordBatch:
    """The rows with their partition as last column."""
    return batch.append_column(PARTITION_COLUMN, pa.repeat(pa.scalar(partition, pa.int32()), batch.num_rows))
