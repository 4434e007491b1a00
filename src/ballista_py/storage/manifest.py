"""The manifest of a partition: the files that are its rows, who may change them, what was applied already.

Values and pure decisions; `partition_storage.py` commits them. A manifest changes as a whole, so a reader sees a
commit of a partition completely or not at all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import ClassVar

from attrs import Factory, evolve, field, frozen

from ballista_py.errors import InvariantViolated, TryLater, VersionConflict
from ballista_py.state.fence import require_epoch
from ballista_py.storage.statistics import ColumnStatistics

MAX_TOKENS = 1_000
MAX_PREPARED = 64
RETIRED_MS = 120_000


@frozen(kw_only=True)
class DataFile:
    """One immutable file. `path` is its key on the state location; `checksum` is `crc32:…` or unknown.

    Its rows are visible from sequence `added` of the table's statements on.
    """

    path: str
    rows: int
    bytes: int
    checksum: str = ""
    format: str = "parquet"
    columns: Mapping[str, ColumnStatistics] = Factory(dict)
    added: int = 0


@frozen(kw_only=True)
class Retired:
    """A file that was replaced: queries that began before sequence `removed` still see it, for a while."""

    file: DataFile
    removed: int
    at_ms: int = 0


@frozen(kw_only=True)
class AppliedToken:
    """A statement that was applied: `added` and `removed` count the rows of its files, `affected` its own.

    `by` is the instance that committed it, `at_ms` wall time; both are for people.
    """

    token: str
    added: int
    removed: int
    affected: int = 0
    by: str = field(default="", eq=False, repr=False)
    at_ms: int = field(default=0, eq=False, repr=False)


@frozen(kw_only=True)
class Prepared:
    """What an attempt at a statement would do here, once it is decided; nobody reads it before.

    `attempt` is decided once, for all partitions of the statement whose token is `token`. An `exclusive` one was made
    from all rows that are here, so that another one cannot be. `prepared_at_ms` is wall time, for people. An
    `outside` one is that of the data pipeline, which owns nothing; `source_position` is how far it read the source.
    """

    attempt: str
    token: str
    add: tuple[DataFile, ...] = ()
    remove: tuple[str, ...] = ()
    affected: int = 0
    exclusive: bool = False
    prepared_at_ms: int = 0
    outside: bool = False
    source_position: str | None = None


@frozen(kw_only=True)
class ManifestDocument:
    """`snapshots/{table}/{partition}/manifest.json`: the rows of one partition.

    `epoch` is the fence: nothing stamped older is accepted. `tokens` are the statements applied last, oldest
    first, at most 1,000: one sent again after that many others is applied again. `source_position` is how far the
    source had been read when its rows were last taken, in the source's own words. `sequence` is that of the newest
    statement over several partitions that was folded in. What was replaced since is `retired`, so that a query can
    read the partition as it was at any sequence from `readable_from` on.
    """

    document_kind: ClassVar[str] = "manifest"
    schema_version: ClassVar[int] = 1

    table: str
    partition: str
    epoch: int = 0
    files: tuple[DataFile, ...] = ()
    tokens: tuple[AppliedToken, ...] = ()
    source_position: str | None = None
    prepared: tuple[Prepared, ...] = ()
    sequence: int = 0
    retired: tuple[Retired, ...] = ()
    readable_from: int = 0

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    def applied(self, token: str) -> AppliedToken | None:
        """What the statement of that token did here, or None if it is not known to have been applied."""
        return next((applied for applied in reversed(self.tokens) if applied.token == token), None)

    def committed(
        self,
        add: Iterable[DataFile],
        remove: Iterable[str],
        epoch: int,
        token: str,
        source_position: str | None = None,
        affected: int | None = None,
    ) -> ManifestDocument:
        """With files added and removed by the owner at `epoch`; itself when the token was applied already.

        Raises `Fenced` unless exactly that epoch is active, `InvariantViolated` for a file that is already here
        and for one to remove that is not, and `TryLater` for one to remove that a prepared statement will replace.
        """
        if self.applied(token) is not None:
            return self
        self._require(epoch)
        added, removed = tuple(add), frozenset(remove)
        if removed and any(removed.intersection(waiting.remove) for waiting in self.prepared):
            raise TryLater(f"{self._name} waits for the decision on a statement that was prepared there")
        return self._changed(added, removed, token, source_position, affected)

    def with_prepared(self, prepared: Prepared, epoch: int, base: Iterable[str] | None = None) -> ManifestDocument:
        """With a statement prepared by the owner at `epoch`; itself if it is prepared or applied already.

        `base` are the files that it was made from. Raises `Fenced`, and `TryLater` when the files are others by
        now or another statement that removes files is prepared: nothing of the attempt can be applied then.
        """
        if any(prepared.attempt == waiting.attempt for waiting in self.prepared) or self.applied(prepared.token):
            return self
        self._require(epoch)
        here = {file.path for file in self.files}
        prepared = evolve(prepared, exclusive=base is not None)
        alone = prepared.exclusive or bool(prepared.remove)
        blocked = alone and any(waiting.exclusive or waiting.remove for waiting in self.prepared)
        if blocked or len(self.prepared) >= MAX_PREPARED:
            raise TryLater(f"{self._name} waits for the decision on a statement that was prepared there")
        if (base is not None and here != set(base)) or not here.issuperset(prepared.remove):
            raise TryLater(f"{self._name} has changed since the statement read it")
        return evolve(self, prepared=(*self.prepared, prepared))

    def compacted(self, add: Iterable[DataFile], remove: Iterable[str], epoch: int) -> ManifestDocument:
        """With files replaced by others that hold the same rows; itself if that was done or one is gone.

        Raises `Fenced`, and `InvariantViolated` when the rows would not be as many.
        """
        self._require(epoch)
        added, removed = tuple(add), frozenset(remove)
        here = {file.path: file for file in self.files}
        reserved = any(p.exclusive or removed.intersection(p.remove) for p in self.prepared)
        if reserved or not removed <= here.keys():
            return self
        if sum(file.rows for file in added) != sum(here[path].rows for path in removed):
            raise InvariantViolated(f"{self._name} would change its rows by a compaction: nothing was changed")
        return self._exchanged(added, removed)

    def stamped(self, before: ManifestDocument, by: str, at_ms: int) -> ManifestDocument:
        """With a note of who applied what `before` had not, and without files that were retired long ago."""
        if self == before:
            return self
        tokens = self.tokens
        if tokens and tokens[-1:] != before.tokens[-1:]:
            tokens = (*tokens[:-1], evolve(tokens[-1], by=by, at_ms=at_ms))
        dated = tuple(evolve(old, at_ms=old.at_ms or at_ms) for old in self.retired)
        return evolve(self, tokens=tokens, retired=dated).current(at_ms)

    def _exchanged(self, added: Iterable[DataFile], removed: Collection[str]) -> ManifestDocument:
        """With files that are visible from the newest sequence on, and without others that were until then."""
        gone = [file for file in self.files if file.path in removed]
        retired = [Retired(file=file, removed=self.sequence) for file in gone if file.added < self.sequence]
        kept = [file for file in self.files if file.path not in removed]
        new = [evolve(file, added=self.sequence) for file in added]
        return evolve(self, files=(*kept, *new), retired=(*self.retired, *retired))

    def folded(self, attempt: str, epoch: int | None, sequence: int = 0) -> ManifestDocument:
        """With a prepared statement that committed as `sequence`; itself if it is not prepared here (any more).

        What is decided is decided for everybody, so it needs no owner: None for whatever epoch is active.
        """
        found = self._waiting(attempt)
        if found is None:
            return self
        if epoch is not None:
            self._require(epoch)
        left = tuple(p for p in self.prepared if p.attempt != attempt)
        rest = evolve(self, prepared=left, sequence=max(sequence, self.sequence))
        if rest.applied(found.token) is not None:
            return rest
        position = found.source_position
        return rest._changed(found.add, frozenset(found.remove), found.token, position, found.affected)

    def abandoned(self, attempt: str, epoch: int | None) -> ManifestDocument:
        """Without a prepared statement that was decided not to be; its files are garbage. `epoch` as for `folded`."""
        if self._waiting(attempt) is None:
            return self
        if epoch is not None:
            self._require(epoch)
        return evolve(self, prepared=tuple(p for p in self.prepared if p.attempt != attempt))

    def _waiting(self, attempt: str) -> Prepared | None:
        return next((waiting for waiting in self.prepared if waiting.attempt == attempt), None)

    def _require(self, epoch: int) -> None:
        require_epoch(self, epoch, manifest_key(self.table, self.partition))

    def _changed(
        self,
        added: tuple[DataFile, ...],
        removed: frozenset[str],
        token: str,
        source_position: str | None,
        affected: int | None,
    ) -> ManifestDocument:
        here = {file.path: file for file in self.files}
        unknown = sorted(removed - here.keys())
        doubled = sorted({file.path for file in added} & here.keys() - removed)
        if unknown or doubled or len({file.path for file in added}) != len(added):
            name, state = (unknown[0], "is not") if unknown else ((doubled or [added[0].path])[0], "is already")
            raise InvariantViolated(f"file '{name}' {state} in {self._name}: nothing was changed")
        removed_rows = sum(here[path].rows for path in removed)
        added_rows = sum(file.rows for file in added)
        applied = AppliedToken(
            token=token,
            added=added_rows,
            removed=removed_rows,
            affected=added_rows if affected is None else affected,
        )
        after = self._exchanged(added, removed)
        return after._with(after.files, applied, source_position)

    @property
    def mark(self) -> tuple[str | None, str | None]:
        """Tells the rows here from those after any change of them; a compaction changes none and so leaves it."""
        return self.source_position, self.tokens[-1].token if self.tokens else None

    def with_run(
        self, prepared: Prepared, since: tuple[str | None, str | None], *, replaces: bool
    ) -> ManifestDocument:
        """With what a run of the data pipeline prepared, whatever epoch is active; itself if it did so already.

        `since` is the `mark` that was seen before the source was read. With `replaces` all that is here goes, else
        the files come to it. Raises `VersionConflict` when rows were changed since (without `replaces`: taken from
        the source), because what was read may be older than they are; `TryLater` while anything else is prepared.
        """
        if self._waiting(prepared.attempt) is not None or self.applied(prepared.token) is not None:
            return self
        if self.prepared:
            raise TryLater(f"{self._name} waits for the decision on a statement that was prepared there")
        if self.mark != since if replaces else self.source_position != since[0]:
            raise VersionConflict(
                f"{self._name} was changed by another run in between: nothing was changed here, run again",
                key=manifest_key(self.table, self.partition),
            )
        remove = tuple(file.path for file in self.files) if replaces else ()
        return evolve(self, prepared=(evolve(prepared, remove=remove, exclusive=True, outside=True),))

    def current(self, at_ms: int) -> ManifestDocument:
        """Without the files that were retired long ago at wall time `at_ms`; nobody may need them any more."""
        kept = tuple(old for old in self.retired if not old.at_ms or at_ms - old.at_ms < RETIRED_MS)
        gone = [old.removed for old in self.retired if old not in kept]
        return evolve(self, retired=kept, readable_from=max([self.readable_from, *gone])) if gone else self

    def _with(
        self, files: tuple[DataFile, ...], applied: AppliedToken, source_position: str | None
    ) -> ManifestDocument:
        return evolve(
            self,
            files=files,
            tokens=(*self.tokens, applied)[-MAX_TOKENS:],
            source_position=self.source_position if source_position is None else source_position,
        )

    @property
    def _name(self) -> str:
        return f"partition '{self.partition}' of table '{self.table}'"


def all_files(manifest: ManifestDocument) -> list[DataFile]:
    """Every file that the manifest needs: visible ones, prepared ones, and replaced ones that may still be read."""
    prepared = [file for waiting in manifest.prepared for file in waiting.add]
    return [*manifest.files, *prepared, *(old.file for old in manifest.retired)]


def manifest_key(table: str, partition: str) -> str:
    """Where the manifest of a partition lies; `partition` is its text form, `whole` for a replicated table.

    >>> manifest_key("orders", "expr0=5")
    'snapshots/orders/expr0=5/manifest.json'
    """
    return f"snapshots/{table}/{partition}/manifest.json"


def data_prefix(table: str) -> str:
    """Below which all data files of a table lie."""
    return f"snapshots/{table}/data/"


def objection(old: ManifestDocument, new: ManifestDocument) -> str | None:
    """What is wrong with a change from `old` to `new`, or None: the invariant of every manifest."""
    if new.epoch < old.epoch:
        return f"the epoch would fall from {old.epoch} to {new.epoch}"
    if (new.table, new.partition) != (old.table, old.partition):
        return "a manifest stays with its partition"
    return None
