"""Clients that go on asking and writing while something happens to a cluster, and count what they see."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa
from outcome import Outcome

from ballista_py import LocalCluster
from ballista_py.errors import BallistaError
from ballista_py.transport.client.client import Client, connect

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("text", pa.string())])
ROWS = 10
PATIENCE_S = 120.0
NAMED = {  # what a client that repeats nothing may see while nodes die, restart or hand over
    "transport",
    "transport.scheduler_lost",
    "transport.try_later",
    "ownership.fenced",
    "ownership.not_owner",
    "ownership.lease_expired",
    "planning.partitions_unassigned",
    "write.incomplete",
}

OF_THE_STORE = {"store", "store.unavailable", "store.outcome_unknown", "document.retries_exhausted"}


def rows(first: int, count: int) -> pa.Table:
    """Rows with ids from `first` on."""
    return pa.table({"id": range(first, first + count), "text": ["x" * 20] * count}, schema=SCHEMA)


def counted(client: Client, table: str = "t") -> tuple[int, int]:
    """How many rows a table has, and how many different ids."""
    (found,) = client.sql(f"select count(*) as n, count(distinct id) as d from {table}").to_pylist()
    return found["n"], found["d"]


def compare(outcome: Outcome, cluster: LocalCluster, expected: int, table: str = "t") -> None:
    """Hold a table of the cluster, once it answers, to the number of rows that were acknowledged."""
    found = until(lambda: _asked(cluster, table))
    outcome.held(table, expected, *found)


def _asked(cluster: LocalCluster, table: str) -> tuple[int, int] | None:
    with suppress(BallistaError), cluster.client() as client:
        return counted(client, table)
    return None


def until(condition: Callable[[], object], patience_s: float = PATIENCE_S) -> object:
    """What `condition` gives once that is something; `TimeoutError` after a while."""
    end = time.monotonic() + patience_s
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > end:
            raise TimeoutError("it did not happen in time")
        time.sleep(0.05)


class Clients:
    """A writer, a reader that repeats and one that does not, of the table `t`, inside the block.

    What is wrong, and what the two that do not repeat saw, goes into `outcome`. A writer whose statement fails sends it
    again under its token. Errors that are not `NAMED`, and any that the reader with `retry_reads` sees, are wrong.
    """

    def __init__(self, cluster: LocalCluster, outcome: Outcome, *, store_fails: bool = False) -> None:
        self.url = "ballista://" + ",".join(cluster.addresses())
        self.outcome = outcome
        self.named = NAMED | (OF_THE_STORE if store_fails else set())
        self.store_fails = store_fails
        self.written, self.sent = 0, 0
        self.asked: Counter[str] = Counter()
        self.over = threading.Event()
        self.threads = [threading.Thread(target=run) for run in (self.write, self.read, self.read_once)]

    def __enter__(self) -> Clients:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join(PATIENCE_S)
            if thread.is_alive():
                self.outcome.wrong.append("a client does not come back")
        asked = sum(self.asked.values())
        self.outcome.notes.append(
            f"{asked:,} queries ({self.asked['repeats']:,} with `retry_reads`), {self.written // ROWS:,} writes"
        )

    def progressed(self) -> Callable[[], bool]:
        """A condition: everybody has got on since now."""
        written, asked = self.written, Counter(self.asked)
        return lambda: self.written > written and all(self.asked[w] > asked[w] for w in ("repeats", "asks once"))

    def write(self) -> None:
        with connect(self.url) as client:
            while not self.over.is_set():
                token = f"scenario-{self.written}"
                self.sent = self.written + ROWS
                if self._acknowledged(client, token):
                    self.written += ROWS

    def _acknowledged(self, client: Client, token: str) -> bool:
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                affected = client.ingest("t", rows(self.written, ROWS), token=token)
            except BallistaError as error:
                self._met("a write", error)
                if time.monotonic() > end:
                    self.outcome.wrong.append(f"a write is never acknowledged: {error.code}")
                    return False
                time.sleep(0.1)
            else:
                if affected != ROWS:
                    self.outcome.wrong.append(f"a write of {ROWS} rows was acknowledged with {affected}")
                return True

    def read(self) -> None:
        with connect(self.url, retry_reads=True) as client:
            while not self.over.is_set():
                try:
                    self._ask(client, "repeats")
                except BallistaError as error:
                    if self.store_fails:  # nobody promises an answer without a store
                        self._met("a reader that repeats", error)
                    else:
                        self.outcome.wrong.append(f"a reader that repeats: {error.code}: {error.message}")

    def read_once(self) -> None:
        with connect(self.url) as client:
            while not self.over.is_set():
                try:
                    self._ask(client, "asks once")
                except BallistaError as error:
                    self._met("a reader", error)
                    time.sleep(0.05)

    def _met(self, who: str, error: BallistaError) -> None:
        self.outcome.met(error)
        if error.code not in self.named:
            self.outcome.wrong.append(f"{who}: {error.code}: {error.message}")

    def _ask(self, client: Client, who: str) -> None:
        least = self.written
        found, ids = counted(client)
        self.asked[who] += 1
        self.outcome.doubled += found - ids
        if ids < least:
            self.outcome.wrong.append(f"a query counted {ids} where {least} were acknowledged before it")
        if ids > self.sent:
            self.outcome.wrong.append(f"a query counted {ids} where {self.sent} were sent")
