"""A client keeps the time limit of its statement itself: a scheduler may hang, or answer nonsense, and say it lives."""

from __future__ import annotations

import threading
import time

import pyarrow as pa
import pytest

from ballista_py.errors import TimeLimit, TransportError
from ballista_py.transport.client.client import connect
from ballista_py.transport.flight import client as flight_client
from ballista_py.transport.flight import commands
from ballista_py.transport.flight.server import StreamResult

ROWS = pa.record_batch({"n": pa.array(range(3), pa.int64())})


class Mute:
    """A scheduler that takes everything and says nothing, or rows without an end, until it is let go."""

    verbs = ()

    def __init__(self, says=None):
        self.over = threading.Event()
        self.says = says
        self.asked = 0

    def stream(self, command, context):
        self.asked += 1
        return StreamResult(schema=ROWS.schema, batches=self._batches(), trailer=dict, cancel=lambda: None)

    def _batches(self):
        while not self.over.wait(0.05):
            if self.says is not None:
                yield self.says

    def write(self, command, rows, context):
        self.asked += 1
        rows.reader().read_all()
        self.over.wait(60)
        return {"affected": 0}

    def action(self, kind, body, context):
        return {"rows": []}


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(flight_client, "LATE_MS", 300.0)
    monkeypatch.setattr(commands, "time_limit", lambda _command: None)


def ended(ask):
    began = time.monotonic()
    with pytest.raises(TimeLimit):
        ask()
    assert time.monotonic() - began < 20  # a minute is what it waits for


@pytest.mark.parametrize("says", [None, ROWS.slice(0, 0), ROWS], ids=["nothing", "no rows", "rows"])
def test_a_query_ends_when_its_time_is_over(serve, quick, says):
    node = Mute(says)
    with connect(f"ballista://{serve(node).address}") as client:
        ended(lambda: client.sql("select n from t", timeout=0.3))
        ended(lambda: client.query("select n from t", timeout=0.3))
    node.over.set()


def test_a_change_ends_when_its_time_is_over_and_is_not_sent_again(serve, quick):
    node = Mute()
    with connect(f"ballista://{serve(node).address}") as client:
        ended(lambda: client.sql("delete from t", timeout=0.3))
        ended(lambda: client.ingest("t", ROWS, timeout=0.3))
        assert node.asked <= 2  # one that is busy may not have heard of them at all
    node.over.set()


def test_a_change_that_is_sent_again_and_again_ends_when_its_time_is_over(serve, quick):
    served = serve(Mute())
    with connect(f"ballista://{served.address}") as client:
        served.stop()
        ended(lambda: client.ingest("t", ROWS, timeout=0.5))
        ended(lambda: client.sql("delete from t", timeout=0.5))
        with pytest.raises(TransportError, match="no scheduler can be reached"):
            client.sql("select 1", timeout=5)
