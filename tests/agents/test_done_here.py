"""What is left of a query is done by a client as a node would do it, and can do nothing else."""

from __future__ import annotations

import os
import subprocess
import sys

import pyarrow as pa
import pytest

from ballista_py.agents.done_here import done_here
from ballista_py.errors import SnapshotGone, SqlError

ROWS = pa.table({"n": [1, 2], "t": pa.array([1_704_067_200_000_000, None], pa.timestamp("us", "UTC"))})
OF_TIME = (
    "select max(t)::varchar as a, extract(hour from max(t)) as h, date_trunc('day', max(t))::varchar as d from r"
)


def test_times_are_those_of_utc_wherever_the_client_is():
    code = (
        "import pyarrow as pa; from ballista_py.agents.done_here import done_here; "
        "rows = pa.table({'t': pa.array([1_704_067_200_000_000], pa.timestamp('us', 'UTC'))}); "
        f'print(done_here("""{OF_TIME}""", "r", rows).to_pylist())'
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "TZ": zone},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for zone in ("Asia/Tokyo", "America/New_York", "UTC")
    }
    assert said == {"[{'a': '2024-01-01 00:00:00+00', 'h': 0, 'd': '2024-01-01 00:00:00+00'}]\n"}


@pytest.mark.parametrize(
    "statement",
    [
        "select * from read_text('/etc/passwd')",
        "select * from '/etc/passwd'",
        "copy r to '/tmp/ballista-py-out.csv'",
        "attach '/tmp/ballista-py-out.db'",
        "select * from ROWS",  # a variable of this module
        "install httpfs",
        "set enable_external_access = true",
    ],
)
def test_what_a_scheduler_sends_reaches_nothing_but_the_rows(statement):
    with pytest.raises(SqlError):
        done_here(statement, "r", ROWS)
    assert not os.path.exists("/tmp/ballista-py-out.csv")


def test_rows_may_be_read_more_than_once_and_be_called_anything():
    reader = pa.RecordBatchReader.from_batches(ROWS.schema, iter(ROWS.to_batches()))
    found = done_here('select count(*) as n from "a ""b" x join "a ""b" y on x.n = y.n', 'a "b', reader)
    assert found.to_pylist() == [{"n": 2}]


def test_what_fails_at_the_rows_is_said_in_one_line():
    with pytest.raises(SqlError, match=r"Overflow|overflow|out of range") as raised:
        done_here("select n + 9223372036854775807 as n from r", "r", ROWS)
    assert "\n" not in raised.value.message
    assert "Traceback" not in raised.value.message


def test_an_error_of_the_rows_is_that_error():
    def broken():
        yield ROWS.to_batches()[0]
        raise SnapshotGone("it is over")

    with pytest.raises(SnapshotGone, match="it is over"):
        done_here("select count(*) from r", "r", pa.RecordBatchReader.from_batches(ROWS.schema, broken()))
