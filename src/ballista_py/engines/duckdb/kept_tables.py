"""Native tables in a file that the next process finds again, with the list of what is in it.

What of them survives a process is as it was at the last checkpoint. Those are made here alone, when there is time and
when the engine ends, each after the list was written; what came later is loaded anew. Rows of which nobody asks for the
data files in the first minutes of the next process go.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Collection, Mapping

import pyarrow as pa

from ballista_py.engines.duckdb import kept_list
from ballista_py.engines.duckdb.held_table import FIRST_GONE, MAX_LABELS, HeldTable
from ballista_py.engines.duckdb.library import duckdb
from ballista_py.engines.duckdb.tables import HELD, HeldTables
from ballista_py.errors import BallistaError, DocumentUnreadable
from ballista_py.logs import log_event
from ballista_py.partitions.columns import is_same
from ballista_py.runtime import Runtime

_log = logging.getLogger(__name__)
KEEP_MS = 5_000.0  # after the last change what is there is packed, be it ever so little
KEEP_BUSY_MS = 30_000.0  # and so it is when changes never end
FORGET_MS = 600_000.0  # how long rows wait for somebody to ask for them
ROOM_BYTES = 16 << 20  # of the disk that a checkpoint leaves free
NO_ROOM_MS = 60_000.0
CLOSE_MS = 3_000.0


class KeptTables(HeldTables):
    """`HeldTables` in the database file at `file`, kept for the next process of the same `keeper`.

    What is there already waits for `take_back`. Raises `DocumentUnreadable`, with the reason, for a file that is not to
    be used, and what DuckDB raises for one that it cannot read.
    """

    def __init__(self, root: duckdb.DuckDBPyConnection, runtime: Runtime, file: str, keeper: str) -> None:
        super().__init__(root, runtime, file)
        # Nobody else packs it: the list has to be written before.
        root.execute("set checkpoint_threshold = '1000TiB'")
        root.execute("set global checkpoint_on_detach = 'disabled'")
        root.execute("pragma disable_checkpoint_on_shutdown")
        self._folder = os.path.dirname(file)
        self._keeper = keeper
        self._defined: dict[str, int] = {}
        self._waiting: dict[str, HeldTable] = {}  # tables that nobody has made yet in this process
        self._opened_ms = self._packed_ms = runtime.monotonic_ms()
        self._again_ms = 0.0
        self._keeps = True
        self._restore()

    @property
    def is_packed(self) -> bool:
        """Whether the next process would find all that is there."""
        return self._changes == self._packed

    def define(self, table: str, definition: int) -> None:
        """See `DuckDBEngine.define`."""
        with self._loading, self._lock:
            self._defined[table] = definition

    def create(self, table: str, schema: pa.Schema) -> None:
        """See `LoadedEngine.create_table`."""
        super().create(table, schema)
        self._is_defined(table)

    def alter(self, table: str, schema: pa.Schema) -> bool:
        """See `LoadedEngine.alter_table`."""
        altered = super().alter(table, schema)
        if altered:
            self._is_defined(table)
        return altered

    def _is_defined(self, table: str) -> None:
        with self._loading, self._lock:
            held = self._tables.get(table)
            if held is not None and held.definition != (now := self._defined.get(table, 0)):
                held.definition = now
                self._changes += 1

    def kept(self, table: str) -> Collection[str]:
        """See `DuckDBEngine.kept`."""
        with self._lock:
            held = self._tables.get(table)
            return frozenset(held.waiting) if held is not None else ()

    def take_back(self, table: str, marks: Mapping[int, str]) -> set[int]:
        """See `DuckDBEngine.take_back`."""
        with self._loading, self._lock:
            held = self._tables.get(table)
            found = held.take_back(marks) if held is not None else set()
            self._commits += bool(found)
        return found

    def tidy(self) -> None:
        """See `DuckDBEngine.tidy`."""
        with self._loading:
            now_ms = self._runtime.monotonic_ms()
            if now_ms - self._opened_ms >= FORGET_MS:
                self._forget_waiting()
            since_ms = now_ms - self._packed_ms
            late = since_ms >= KEEP_BUSY_MS or min(since_ms, now_ms - self._loaded_ms) >= KEEP_MS
            if late and not self.is_packed:
                self._pack()
        super().tidy()

    def close(self) -> None:
        """Pack what is there, if that takes no longer than `CLOSE_MS`: what is being loaded is given up."""
        for loading in (self._loader, self._taker):
            loading.interrupt()
        until_ms = self._runtime.monotonic_ms() + CLOSE_MS
        try:
            with self._loading:
                while not (self.is_packed or self._pack()) and self._runtime.monotonic_ms() < until_ms:
                    self._runtime.sleep_ms(50)  # somebody reads: not for long, as the engine ends
        except (BallistaError, duckdb.Error) as error:
            log_event(_log, "not_packed", logging.WARNING, reason=error)

    def _pack(self) -> bool:
        """Write the list and make a checkpoint. On a full disk there is none for a while, which is said."""
        now_ms = self._runtime.monotonic_ms()
        if now_ms < self._again_ms:
            return True
        self._packed_ms = now_ms
        if not _has_room(self._folder, self._loose_bytes):
            log_event(_log, "not_packed", logging.WARNING, reason=f"the disk of '{self._folder}' is full")
            self._again_ms = now_ms + NO_ROOM_MS
            return True
        with self._lock:
            changes = self._changes
            tables = [*self._tables.items(), *self._waiting.items()]
            kept = [held.kept(held.name.partition(".")[2], name) for name, held in tables]
        kept_list.write(self._loader, HELD, kept)
        self._says_changed = False
        if not super()._pack():
            return False
        self._packed, self._unpacked_bytes = changes, 0
        return True

    def _restore(self) -> None:
        """Take in what an earlier process has left, or begin a list."""
        count = "select count(*) from duckdb_tables() where database_name = $1"
        if self._root.execute(count, [HELD]).fetchone() == (0,):
            kept_list.begin(self._root, HELD, self._keeper)
            return
        for kept in kept_list.read(self._root, HELD, self._keeper):
            if max(kept.last_label, kept.last_gone - FIRST_GONE) > MAX_LABELS:
                raise DocumentUnreadable("their labels are used up")
            self._made = max(self._made, int(kept.native.removeprefix("t")))
            held, lost = HeldTable.restored(f"{HELD}.{kept.native}", kept)
            self._waiting[kept.name] = held
            self._unload(held, lost)

    def _found(self, table: str, schema: pa.Schema) -> HeldTable | None:
        """The table as an earlier process has left it, with these columns; None if it is to be made anew."""
        held = self._waiting.pop(table, None)
        if held is None or is_same(held.schema, schema):
            found = held
        else:
            self._touch()
            found = self._altered(held, schema) if self._defined.get(table, 0) > held.definition else None
            if found is None:
                self._loader.execute(f"drop table {held.name}")
        if found is not None:
            self._tables[table] = found
        return found

    def _altered(self, held: HeldTable, schema: pa.Schema) -> HeldTable | None:
        try:
            return held.altered(self._loader, schema)
        except (duckdb.Error, pa.ArrowException) as error:
            _log.info("not_altered", exc_info=error)
            return None

    def _forget_waiting(self) -> None:
        """Let go of what nobody has asked for."""
        with self._lock:
            for name in list(self._waiting):
                self._touch()
                self._loader.execute(f"drop table {self._waiting.pop(name).name}")
            for held in self._tables.values():
                self._commits += bool(held.waiting)
                self._unload(held, set(held.waiting.values()))


def _has_room(folder: str, loose_bytes: int) -> bool:
    try:
        return shutil.disk_usage(folder).free >= loose_bytes + ROOM_BYTES
    except OSError:
        return True  # the checkpoint itself will say
