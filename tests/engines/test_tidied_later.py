"""An engine that cannot pack its file now, because others write, packs it the next time, and nothing fails."""

from types import SimpleNamespace

import duckdb

from ballista_py.engines.duckdb.tables import MAX_LOOSE_BYTES, HeldTables
from ballista_py.runtime import SystemRuntime


def test_a_checkpoint_that_others_are_in_the_way_of_is_made_the_next_time(tmp_path):
    tables = HeldTables(duckdb.connect(), SystemRuntime(), str(tmp_path / "held.db"))
    asked, busy = [], [True]

    def execute(sql):
        asked.append(sql)
        if busy[0]:
            raise duckdb.TransactionException("Cannot CHECKPOINT: there are other write transactions active")

    tables._loader = SimpleNamespace(execute=execute)
    tables._loose_bytes = MAX_LOOSE_BYTES
    tables.tidy()
    busy[0] = False
    tables.tidy()
    tables.tidy()  # there is nothing left to do
    assert len(asked) == 2
