"""What a change returned is kept for the client who sent it, and is shown to no other."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ballista_py.coordinator.writes.kept_answers import keep_answer, kept_answer
from ballista_py.errors import SqlError
from ballista_py.runtime import SystemRuntime
from ballista_py.state.stores.memory import MemoryStore
from ballista_py.work import Work, working

ROWS = pa.table({"id": [1, 2]}).replace_schema_metadata({"said": "by the user"})


def work_of(client):
    return Work(SystemRuntime(), client=client)


@pytest.mark.parametrize("owner", ["alice", ""])
def test_rows_are_kept_for_who_sent_the_statement(owner):
    store = MemoryStore()
    with working(work_of(owner)):
        keep_answer(store, "t-1", "a", ROWS)
        assert kept_answer(store, "t-1", "a").equals(ROWS, check_metadata=True)
    for other in ("bob", "" if owner else "alice"):
        with working(work_of(other)), pytest.raises(SqlError, match="no longer kept"):
            kept_answer(store, "t-1", "a")
    with working(work_of(owner)):
        assert kept_answer(store, "t-1", "a").num_rows == 2
