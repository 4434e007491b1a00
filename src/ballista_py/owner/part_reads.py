"""The parts of read jobs at an executor: rows of files as they are, or the answer of the part's plan over them.

A part names its files, so what is answered is the same whoever answers and whenever: its files never change, and the
lease of the job keeps them. Files that are loaded here as they are named are asked where they lie; all others are read,
from the copies of this machine or from the store.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from attrs import evolve

from ballista_py.engines.engine import Engine, RunningQuery
from ballista_py.errors import InvalidData, NotOwner, ObjectMissing, SnapshotGone
from ballista_py.owner.part_pieces import file_pieces, packed_pieces
from ballista_py.owner.section_rows import rows_from, section_rows, sections_from
from ballista_py.partitions.columns import conformed, plain
from ballista_py.runtime import Runtime
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.storage.formats.deletion_vector import numbered
from ballista_py.storage.formats.formats import file_format
from ballista_py.storage.formats.parquet import ROW_GROUP_ROWS
from ballista_py.storage.held.cache import FileCache, LocalCopy
from ballista_py.storage.held.holder import PartitionHolder
from ballista_py.storage.reads.files import PartFile, ReadFiles
from ballista_py.storage.reads.leases import ReadDocument, ReadLeases
from ballista_py.transport.table_read.exchange import PartAnswer
from ballista_py.transport.table_read.pieces import PIECES, packed_piece, packing_of
from ballista_py.transport.table_read.tokens.positions import START, Position, Sections

KNOWN_READS = 64
KNOWN_FILES = 200_000  # of all read jobs that are remembered together
DECODED = 4  # times the bytes of a row group: it is unpacked, decoded, written and sent


class PartReads:
    """Safe to share between threads."""

    def __init__(
        self,
        holder: PartitionHolder,
        store: ConditionalStore,
        engine: Engine,
        cache: FileCache,
        runtime: Runtime,
    ) -> None:
        self._holder = holder
        self._engine = engine
        self._cache = cache
        self._leases = ReadLeases(store, runtime)
        self._lock = runtime.lock()
        self._known: OrderedDict[tuple[str, str], ReadFiles] = OrderedDict()  # the one used last comes last

    def files(self, read_id: str, digest: str) -> ReadFiles:
        """What a read job names, if its lease was not ended. Raises `SnapshotGone` and `DocumentUnreadable`."""
        self._leases.read(read_id)
        with self._lock:
            found = self._known.get((read_id, digest))
            if found is not None:
                self._known.move_to_end((read_id, digest))
                return found
        found = self._leases.files(read_id, digest)
        with self._lock:
            self._known[read_id, digest] = found
            while len(self._known) > 1 and (len(self._known) > KNOWN_READS or self._files() > KNOWN_FILES):
                self._known.popitem(last=False)
        return found

    def lease(self, read_id: str) -> ReadDocument:
        """The lease of a read job, if it was not ended. Raises `SnapshotGone`."""
        return self._leases.read(read_id)

    def _files(self) -> int:
        return sum(len(part) for known in self._known.values() for part in known.parts)

    def holds(self, read: ReadFiles, number: int) -> bool:
        """Whether this executor was told to hold one of the partitions that a part has rows of."""
        holdings = self._holder.holdings(read.table)
        if holdings is None or holdings.table.folder != read.folder:
            return False
        return any(one.partition in holdings.wanted for one in self.part(read, number))

    def part(self, read: ReadFiles, number: int) -> Sequence[PartFile]:
        """The files of a part. Raises `InvalidData` for a number that there is not."""
        if number >= len(read.parts):
            raise InvalidData(f"the read job has {len(read.parts)} partitions, and no number {number}")
        return read.parts[number]

    def takes(self, read: ReadFiles, number: int, encodings: Sequence[str] = ()) -> int:
        """About how many bytes it takes to give the rows of a part as they are: a row group of a file, decoded, unless
        it can come as it lies on disk."""
        found = 0
        for one in self.part(read, number):
            if one.file.rows_format in encodings and one.file.definition == read.definition:
                continue
            at_once = min(1.0, ROW_GROUP_ROWS / max(1, one.file.rows))
            found = max(found, int(DECODED * one.file.bytes_to_read * at_once))
        return found

    def unprocessed(self, read: ReadFiles, number: int, begin: Position) -> PartAnswer:
        """The columns that the plan needs, of all rows from `begin` on, in the order of the files.

        Raises `InvalidData` for a section that there is not.
        """
        part, schema = self.part(read, number), plain(read.base)
        return section_rows(number, part, lambda one: self._file_rows(read, one), begin, schema)

    def encoded(
        self,
        read: ReadFiles,
        number: int,
        begin: Position,
        encodings: Sequence[str],
        only_matching: bool = False,
    ) -> PartAnswer:
        """The same as pieces of files, in one of these encodings each; those that cannot be so come as Arrow. With
        `only_matching` rows may be missing that the condition of the plan is true for in no case.

        Raises as `unprocessed`.
        """
        sections = sections_from(number, self.part(read, number), begin)
        condition = read.condition if only_matching else ()

        def pieces() -> Iterator[tuple[Position, pa.RecordBatch]]:
            for section, one, first in sections:
                with self._local(read, one) as copy:
                    found = file_pieces(copy, read.base, first, encodings, condition)
                    if found is None:
                        rows = rows_from(_rows_in(read, one, copy), first, plain(read.base))
                        found = packed_pieces(rows, encodings)
                    for at, piece in found:
                        yield Position(section, at), piece.to_batch()

        return PartAnswer(schema=PIECES, batches=pieces(), processed=False, encoded=True)

    def processed(self, read: ReadFiles, number: int) -> PartAnswer:
        """What the plan gives over the rows of a part.

        Raises what the engine raises of the plan; its batches raise that, and `SnapshotGone` for a file that is gone.
        """
        running = self._running(read, self.part(read, number))
        return PartAnswer(
            schema=read.given,
            batches=((START, batch) for batch in conformed(running.batches(), read.given)),
            processed=True,
            cancel=running.cancel,
        )

    def has_places(self, read: ReadFiles, process: bool) -> bool:
        """Whether the rows of a part are given in the order of its files, so that one can go on amid them."""
        return not process or read.row_by_row

    def granted(
        self, read: ReadFiles, number: int, begin: Position, process: bool, encodings: Sequence[str] = ()
    ) -> PartAnswer:
        """The rows of a part from `begin` on for a grant, some of the input at a time where they `has_places`. Those
        that are not processed are packed in one of the `encodings`, once it is known where they are cut.

        Raises `InvalidData` for a place that there is not, and what the engine raises of the plan.
        """
        if not self.has_places(read, process):
            if begin != START:
                raise InvalidData("what is processed as a whole has no positions: ask for it from its begin on")
            return self.processed(read, number)
        sections = Sections(tuple(one.file.rows for one in self.part(read, number)))
        begin = sections.named(begin)
        if begin == sections.end:
            answer = PartAnswer(schema=plain(read.base), batches=iter(()), processed=False)
        else:
            answer = self.unprocessed(read, number, begin)
        answer = evolve(answer, begin=begin, sections=sections)
        packing = packing_of(encodings)
        if not process:
            return answer if packing is None else _packed(answer, packing)

        def processed(rows: pa.RecordBatch) -> Sequence[pa.RecordBatch]:
            streamed = pa.RecordBatchReader.from_batches(rows.schema, [rows])
            running = self._engine.query(read.plan, streams={read.table: streamed})
            return list(conformed(running.batches(), read.given))

        return evolve(answer, schema=read.given, processed=True, process=processed)

    def _file_rows(self, read: ReadFiles, one: PartFile) -> Iterator[pa.RecordBatch]:
        """The rows of a file, wherever it lies. Raises `SnapshotGone` for one that is gone."""
        with self._local(read, one) as copy:
            yield from _rows_in(read, one, copy)

    def _running(self, read: ReadFiles, part: Sequence[PartFile]) -> RunningQuery:
        loaded = self._loaded(read, part)
        if loaded is not None:
            try:
                return self._engine.query(read.plan, scans={read.table: loaded})
            except NotOwner:  # unloaded in between
                pass

        schema = plain(read.base)
        found = section_rows(0, part, lambda one: self._file_rows(read, one), START, schema)
        rows = (batch for _, batch in found.batches)
        stream = pa.RecordBatchReader.from_batches(schema, rows)
        return self._engine.query(read.plan, streams={read.table: stream})

    def _loaded(self, read: ReadFiles, part: Sequence[PartFile]) -> list[int] | None:
        """The ids of the files in the engine, if all of them are there by the definition that the plan was made for."""
        holdings = self._holder.holdings(read.table)
        files = self._holder.files
        is_same = holdings is not None and holdings.table.folder == read.folder
        if not is_same or files.definition(read.table) != read.definition:
            return None
        ids = files.ids(read.table)
        found = [ids.get(one.file.path) for one in part]
        known = [file_id for file_id in found if file_id is not None]
        return known if known and len(known) == len(found) else None

    @contextmanager
    def _local(self, read: ReadFiles, one: PartFile) -> Iterator[LocalCopy]:
        """The file on this machine. Raises `SnapshotGone` for one that is gone."""
        try:
            copy = self._cache.acquire(one.file, read.schema)
        except ObjectMissing:
            raise SnapshotGone(
                f"a file of the read job of table '{read.table}' is gone: it was not renewed in time, or somebody "
                "removed the file: read again"
            ) from None
        try:
            yield copy
        finally:
            self._cache.release([copy])


def _rows_in(read: ReadFiles, one: PartFile, copy: LocalCopy) -> Iterator[pa.RecordBatch]:
    """The columns that the plan reads, of the rows of a file that are left."""
    batches: Any = file_format(copy.format).read_batches(copy.path, read.base, one.file.path)
    return (batch for _, batch in numbered(batches, copy.gone))


def _packed(answer: PartAnswer, packing: str) -> PartAnswer:
    """The same rows, each batch as a piece when it is sent."""
    return evolve(answer, schema=PIECES, encoded=True, pack=lambda rows: packed_piece(rows, packing).to_batch())
