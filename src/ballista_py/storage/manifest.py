"""The manifest of a partition: the files that are its rows, who may change them, what was applied already.

Values and pure decisions; `partition_storage.py` commits them. A manifest changes as a whole, so a reader sees a
commit of a partition completely or not at all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import ClassVar

from attrs import Factory, evolve, field, frozen

from ballista_py.errors import DocumentOlder, InvariantViolated, TryLater, VersionConflict
from ballista_py.state.documents.fence import require_epoch
from ballista_py.state.documents.lost_documents import way_out
from ballista_py.state.documents.write_tokens import is_same
from ballista_py.storage.formats.statistics import ColumnStatistics

TAIL_TOKENS = 32  # from here on the owner moves them to a page
MAX_TAIL = 2_000
PAGE_TOKENS = 1_024
MAX_PAGES = 64
MAX_PREPARED = 64
RETIRED_MS = 120_000


@frozen(kw_only=True)
class OriginalFile:
    """The data file from which a deletion vector takes rows away; its fields are those of `DataFile`."""

    path: str
    rows: int
    bytes: int
    checksum: str
    format: str


@frozen(kw_only=True)
class DataFile:
    """One immutable file. `path` is its key on the state location; `checksum` is `crc32:…` or unknown.

    Its rows are visible from sequence `added` of the table's statements on. It was written by that `definition` of the
    table: who knows an older one cannot tell what is in it. With an `original` it is a deletion vector: its rows are
    those of the original but for those whose places lie at `path`.
    """

    path: str
    rows: int
    bytes: int
    checksum: str = ""
    format: str = "parquet"
    columns: Mapping[str, ColumnStatistics] = Factory(dict)
    added: int = 0
    definition: int = 0
    original: OriginalFile | None = None

    @property
    def bytes_to_read(self) -> int:
        """What whoever wants its rows has to read."""
        return self.bytes if self.original is None else self.bytes + self.original.bytes

    @property
    def rows_format(self) -> str:
        """The format of the file that the rows lie in."""
        return self.format if self.original is None else self.original.format

    @property
    def paths(self) -> tuple[str, ...]:
        """All that must lie on the state location, so that its rows can be read."""
        return (self.path,) if self.original is None else (self.path, self.original.path)


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
class TokenPage:
    """An object with so many `tokens` that were applied before those in the manifest (`token_pages.py`)."""

    path: str
    tokens: int


@frozen(kw_only=True)
class Prepared:
    """What an attempt at a statement would do here, once it is decided; nobody reads it before.

    `attempt` is decided once, for all partitions of the statement whose token is `token`. An `exclusive` one was made
    from all rows that are here, or takes the place of all, though there be none: so another one cannot be.
    `prepared_at_ms` is wall time, for people. An `outside` one is that of the data pipeline, which owns nothing;
    `source_position` is how far it read the source.
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

    `epoch` is the fence: nothing stamped older is accepted. `owner` is the instance that raised it. `tokens` are
    the statements applied last, oldest first; those before them are on `pages`, as long as they may be sent
    again. `source_position` is how far the source had been read when its rows were last taken, in the source's
    own words. `sequence` is that of the newest statement over several partitions that was folded in, `alone_at`
    that of the newest one that was exclusive. What was replaced since is `retired`, so that a query can read the
    partition as it was at any sequence from `readable_from` on.
    """

    document_kind: ClassVar[str] = "manifest"
    schema_version: ClassVar[int] = 1

    table: str
    partition: str
    epoch: int = 0
    owner: str = ""
    files: tuple[DataFile, ...] = ()
    tokens: tuple[AppliedToken, ...] = ()
    pages: tuple[TokenPage, ...] = ()
    source_position: str | None = None
    prepared: tuple[Prepared, ...] = ()
    sequence: int = 0
    alone_at: int = 0
    retired: tuple[Retired, ...] = ()
    readable_from: int = 0

    @property
    def own_key(self) -> str:
        return manifest_key(self.table, self.partition)

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        return sum(file.bytes_to_read for file in self.files)

    def files_at(self, sequence: int | None) -> list[DataFile]:
        """The files as of a sequence (None: as they are now), for a change that is made from them.

        Raises `TryLater` when one of them was replaced since, because then it cannot be made any more.
        """
        if sequence is None or sequence >= self.sequence:
            return list(self.files)
        gone = any(old.file.added <= sequence < old.removed for old in self.retired)
        if gone or sequence < self.readable_from:
            raise TryLater(f"{self._name} has changed since the statement began")
        return [file for file in self.files if file.added <= sequence]

    def applied(self, token: str) -> AppliedToken | None:
        """What the statement of that token did here, if it is among the newest; `TokenPages` knows the others."""
        return next((applied for applied in reversed(self.tokens) if is_same(applied.token, token)), None)

    def activated(self, epoch: int, owner: str) -> ManifestDocument:
        """With the fence raised to `epoch` by `owner`.

        Raises `Fenced` when a newer epoch is active, and `DocumentOlder` when another owner activated this one.
        """
        if self.epoch > epoch:
            self._require(epoch)
        if self.epoch == epoch and self.owner and owner and self.owner != owner:
            raise DocumentOlder(
                f"{self._name} has another owner at epoch {epoch}: the partition map of its table is an older copy: "
                f"{way_out()}",
                key=manifest_key(self.table, self.partition),
            )
        return evolve(self, epoch=epoch, owner=owner or self.owner)

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
        and for one to remove that is not, and `TryLater` for one to remove that a prepared statement will replace or
        was made from. `TryLater` also when too many statements were applied too fast to be remembered.
        """
        if self.applied(token) is not None:
            return self
        self._require(epoch)
        self._require_room()
        added, removed = tuple(add), frozenset(remove)
        if removed and any(waiting.exclusive or removed.intersection(waiting.remove) for waiting in self.prepared):
            raise TryLater(f"{self._name} waits for the decision on a statement that was prepared there")
        return self._changed(added, removed, token, source_position, affected)

    def with_prepared(
        self, prepared: Prepared, epoch: int, base: Iterable[str] | None = None, since: int | None = None
    ) -> ManifestDocument:
        """With a statement prepared by the owner at `epoch`; itself if it is prepared or applied already.

        `base` are the files that it was made from, if it was made from all, and `since` is the sequence that it read.
        Raises `Fenced`, and `TryLater` when the files are others by now, another statement is prepared that removes
        one of them too or must be alone, or such a one was folded in since: nothing of the attempt can be applied then.
        """
        if any(prepared.attempt == waiting.attempt for waiting in self.prepared) or self.applied(prepared.token):
            return self
        self._require(epoch)
        self._require_room()
        here = {file.path for file in self.files}
        prepared = evolve(prepared, exclusive=prepared.exclusive or base is not None)
        alone = prepared.exclusive or bool(prepared.remove)
        blocked = alone and any(_meet(prepared, waiting) for waiting in self.prepared)
        if blocked or len(self.prepared) >= MAX_PREPARED:
            raise TryLater(f"{self._name} waits for the decision on a statement that was prepared there")
        missed = prepared.exclusive and since is not None and self.alone_at > since
        if missed or (base is not None and here != set(base)) or not here.issuperset(prepared.remove):
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

    def _exchanged(
        self, added: Iterable[DataFile], removed: Collection[str], since: int | None = None
    ) -> ManifestDocument:
        """With files that are visible from the sequence `since` on, and without others that were until then.

        That is the newest sequence, but for what is folded in after a later statement: nothing orders that, and a query
        as of a moment between the two must see the one and not the other, here as in every other partition.
        """
        at = self.sequence if since is None else since
        gone = [file for file in self.files if file.path in removed]
        retired = [Retired(file=file, removed=at) for file in gone if file.added < at]
        kept = [file for file in self.files if file.path not in removed]
        new = [evolve(file, added=at) for file in added]
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
        alone_at = max(sequence, self.alone_at) if found.exclusive else self.alone_at
        rest = evolve(self, prepared=left, sequence=max(sequence, self.sequence), alone_at=alone_at)
        if rest.applied(found.token) is not None:
            return rest
        position, since = found.source_position, sequence or None
        return rest._changed(found.add, frozenset(found.remove), found.token, position, found.affected, since)

    def abandoned(self, attempt: str, epoch: int | None) -> ManifestDocument:
        """Without a prepared statement that was decided not to be; its files are garbage. `epoch` as for `folded`."""
        if self._waiting(attempt) is None:
            return self
        if epoch is not None:
            self._require(epoch)
        return evolve(self, prepared=tuple(p for p in self.prepared if p.attempt != attempt))

    def waits_for(self, attempt: str) -> bool:
        """Whether something is prepared here under the attempt."""
        return self._waiting(attempt) is not None

    def token_of(self, attempt: str) -> str | None:
        """The token of the statement that is prepared here under the attempt, if one is."""
        found = self._waiting(attempt)
        return None if found is None else found.token

    def _waiting(self, attempt: str) -> Prepared | None:
        return next((waiting for waiting in self.prepared if waiting.attempt == attempt), None)

    def with_page(
        self,
        page: TokenPage,
        moved: tuple[AppliedToken, ...],
        before: tuple[TokenPage, ...],
        kept: tuple[TokenPage, ...],
        epoch: int,
    ) -> ManifestDocument:
        """With the tokens that were `moved` to a page, which follows those `kept`; itself if it is not as it was then.

        Raises `Fenced`.
        """
        self._require(epoch)
        if self.pages != before or self.tokens[: len(moved)] != moved:
            return self
        return evolve(self, tokens=self.tokens[len(moved) :], pages=(*kept, page))

    def _require_room(self) -> None:
        if len(self.tokens) >= MAX_TAIL:
            raise TryLater(f"{self._name} was changed by more statements than can be remembered")

    def _require(self, epoch: int) -> None:
        require_epoch(self, epoch, manifest_key(self.table, self.partition))

    def _changed(
        self,
        added: tuple[DataFile, ...],
        removed: frozenset[str],
        token: str,
        source_position: str | None,
        affected: int | None,
        since: int | None = None,
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
        after = self._exchanged(added, removed, since)
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
            tokens=(*self.tokens, applied),
            source_position=self.source_position if source_position is None else source_position,
        )

    @property
    def _name(self) -> str:
        return f"partition '{self.partition}' of table '{self.table}'"


def _meet(one: Prepared, other: Prepared) -> bool:
    """Whether of two statements that remove files, or must be alone, one cannot be made as if the other were not."""
    if one.exclusive or other.exclusive:
        return other.exclusive or bool(other.remove)
    return not set(one.remove).isdisjoint(other.remove)


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
