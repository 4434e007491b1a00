"""Statements that make and drop tables, whose scheduler and client are killed at many instants."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from attrs import evolve, frozen
from load import SCHEMA, counted, rows, until
from outcome import Outcome

from ballista_py import LocalCluster
from ballista_py.errors import BallistaError, TryLater
from ballista_py.runtime import SystemRuntime, seeded_chance
from ballista_py.state.documents.claims import end_dead_claims
from ballista_py.state.ownership.catalog_proof import read_catalog
from ballista_py.state.stores.store import ConditionalStore, ObjectEntry, open_store
from ballista_py.storage.upkeep.garbage import MIN_AGE_MS, find_garbage, remove_garbage
from ballista_py.transport.client.client import Client

TTL_MS = 1_500
KEPT_ROWS = 2_000
SENDER = """
import sys
from ballista_py import connect
with connect(sys.argv[1]) as client:
    print("ready", flush=True)
    sys.stdin.readline()
    client.sql(sys.argv[2])
    print("done", flush=True)
"""
MADE_OF_ROWS = "create table victim as select * from kept"
COLUMNS = "(id bigint not null, text varchar) partitioned by (bucket(4, id))"


@frozen
class Later:
    """A store of which the clock says that it is so much later: what lies there looks old to a collector."""

    store: ConditionalStore
    later_ms: int = 0

    def __getattr__(self, name: str):
        return getattr(self.store, name)

    def list(self, prefix: str) -> Iterator[ObjectEntry]:
        for entry in self.store.list(prefix):
            is_clock = entry.key.startswith("snapshots/clock-")
            yield evolve(entry, modified_ms=entry.modified_ms + self.later_ms) if is_clock else entry


def collect(cluster: LocalCluster) -> int:
    """Have two collections run, hours apart by the store's clock; how many objects went."""
    store = open_store(cluster.state_location)
    end_dead_claims(store, SystemRuntime())  # of schedulers that were killed
    folders = _folders(cluster)
    find_garbage(Later(store, int(2 * MIN_AGE_MS)), folders)
    return remove_garbage(store, find_garbage(Later(store, int(4 * MIN_AGE_MS)), folders))


def _folders(cluster: LocalCluster) -> set[str]:
    catalog = read_catalog(open_store(cluster.state_location))[0].document
    return {spec.folder for spec in catalog.tables.values()}


def killed_create(quick: bool) -> Outcome:
    """CREATE TABLE, killed at many instants: the table is there and works, or its name is free."""
    return _killed(f"create table victim {COLUMNS}", "create", quick, 20)


def killed_create_as(quick: bool) -> Outcome:
    """CREATE TABLE AS, killed at many instants: all of its rows are there, or its name is free."""
    return _killed(MADE_OF_ROWS, "create as", quick, 30)


def killed_drop(quick: bool) -> Outcome:
    """DROP TABLE, killed at many instants: the table is there with all rows, or gone and its name free."""
    return _killed("drop table victim", "drop", quick, 20)


def _killed(statement: str, kind: str, quick: bool, times: int) -> Outcome:
    times = 4 if quick else times
    outcome, ends = Outcome(), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        location = (Path(folder) / "state").as_uri()
        with LocalCluster(2, 2, location, ttl_ms=TTL_MS) as cluster:
            cluster.create_table("kept", schema=SCHEMA, partition_by=["bucket(4, id)"])
            cluster.ingest("kept", rows(0, KEPT_ROWS))
            took = _took(cluster, statement, kind)
            chance = seeded_chance(len(kind))
            for number in range(times):
                _prepare(cluster, kind)
                _strike(cluster, statement, 2.0 * took * (number + chance.random()) / times)
                ends[_judge(cluster, kind, outcome)] += 1
                until(lambda: _restarted(cluster))
            _prepare(cluster, "create")  # nothing is left of any
            cluster.wait_until_loaded()
            with cluster.client() as client:
                outcome.held("kept", KEPT_ROWS, *counted(client, "kept"))
            collected = 0 if quick else collect(cluster)
            lying = {
                path.name for path in (Path(folder) / "state" / "snapshots").iterdir() if any(path.rglob("*.*"))
            }
            left = len(lying - _folders(cluster))
            if left and not quick:
                outcome.wrong.append(f"{left} folders of tables that are gone stay")
    outcome.size = f"{times} kills of scheduler and client within {2e3 * took:.0f} ms"
    outcome.notes += [f"{end} {count}" for end, count in sorted(ends.items())]
    if not quick:
        outcome.notes.append(f"{collected} objects collected")
    return outcome


def _took(cluster: LocalCluster, statement: str, kind: str) -> float:
    _prepare(cluster, kind)
    began = time.monotonic()
    cluster.sql(statement)
    return max(0.05, time.monotonic() - began)


def _prepare(cluster: LocalCluster, kind: str) -> None:
    """As before the statement: without the table, or with all of its rows."""

    def done() -> bool:
        try:
            with cluster.client() as client:
                client.sql("drop table if exists victim")
                if kind == "drop":
                    client.sql(MADE_OF_ROWS)
            return True
        except BallistaError:
            return False

    until(done)


def _strike(cluster: LocalCluster, statement: str, delay_s: float) -> None:
    """Have a process of its own send the statement, and kill it and the scheduler that it asks."""
    address = f"127.0.0.1:{cluster.ports['scheduler-1']['flight']}"
    words = [sys.executable, "-c", SENDER, address, statement]
    sender = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert sender.stdout is not None
        assert sender.stdin is not None
        assert sender.stdout.readline() == "ready\n"
        sender.stdin.write("\n")
        sender.stdin.flush()
        time.sleep(delay_s)
    finally:
        cluster.kill("scheduler-1")
        sender.kill()
        sender.communicate()


def _restarted(cluster: LocalCluster) -> bool:
    cluster.start("scheduler-1")
    return True


def _judge(cluster: LocalCluster, kind: str, outcome: Outcome) -> str:
    """Whether the table is wholly there or wholly not, as the other scheduler sees it at once and from then on."""
    whole = 0 if kind == "create" else KEPT_ROWS
    with cluster.client() as client:
        there = until(lambda: _state(client))
        if there == "there":
            found, ids = until(lambda: _counted(client))
            if (found, ids) != (whole, whole):
                outcome.held("victim", whole, found, ids)
                outcome.wrong.append(
                    f"a table that was killed in its {kind} is there with {found} of {whole} rows"
                )
        else:  # the name is free at once
            again = f"create table victim {COLUMNS}" if kind != "create as" else MADE_OF_ROWS
            try:
                client.sql(again)
            except BallistaError as error:
                outcome.wrong.append(f"the name is not free: {error.code}: {error.message}")
                return there
            whole = KEPT_ROWS if kind == "create as" else 0
        try:
            client.ingest("victim", rows(KEPT_ROWS, 5))
            found = until(lambda: _counted(client))
            if found != (whole + 5, whole + 5):
                outcome.wrong.append(f"after a killed {kind} and 5 rows more: {found}")
        except BallistaError as error:
            outcome.wrong.append(f"the table takes no rows: {error.code}: {error.message}")
    return there


def _state(client: Client) -> str | None:
    """Whether a query finds the table; None while nobody can say."""
    try:
        client.sql("select count(*) from victim")
    except TryLater:
        return "there"
    except BallistaError as error:
        if "does not exist" in error.message:
            return "not there"
        return "there" if error.code.startswith(("ownership", "planning.partitions")) else None
    return "there"


def _counted(client: Client) -> tuple[int, int] | None:
    with suppress(BallistaError):
        return counted(client, "victim")
    return None
