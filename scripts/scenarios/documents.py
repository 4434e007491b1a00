"""Documents that are lost or older, with all nodes down: named when the nodes are started, never fewer rows."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from load import SCHEMA, compare, counted, rows, until
from outcome import Outcome

from ballista_py import LocalCluster
from ballista_py.errors import BallistaError

TTL_MS = 1_500
ROWS = 60
LOST = {
    "catalog": "cluster.json",
    "map": "accelerations/partitions/t.json",
    "decisions": "accelerations/commits/t-*.json",
}
NAMED = ("document.lost", "document.older", "config")


def older_manifest(quick: bool) -> Outcome:
    """A manifest is put back as it was before the last rows, while all nodes are down: it is named, or newest again."""
    outcome, times = Outcome(), 1 if quick else 4
    for number in range(times):
        with tempfile.TemporaryDirectory() as folder:
            state = Path(folder) / "state"
            with _cluster(state) as cluster:
                cluster.create_table("t", schema=SCHEMA, partition_by=["bucket(4, id)"])
                cluster.ingest("t", rows(0, 20))
                before = _manifests(state)
                cluster.ingest("t", rows(20, ROWS - 20))
                if number % 2:  # nobody leaves in peace
                    until(lambda state=state: _is_noted(state))
                    _kill_all(cluster)
            now = _manifests(state)
            older = sorted(before)[number % len(before)]
            older.write_bytes(before[older])
            with _cluster(state) as cluster:
                _judge(outcome, cluster, ROWS)
            if quick:
                continue
            older.write_bytes(now[older])
            with _cluster(state) as cluster:
                compare(outcome, cluster, ROWS)
    outcome.size = "1 manifest" if quick else f"{times} manifests, nodes told to end and killed in turn"
    return outcome


def lost_documents(quick: bool) -> Outcome:
    """Catalog, map and decisions are deleted, each with all nodes down; the nodes are started, and it is repaired."""
    outcome = Outcome()
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "whole"
        with _cluster(whole) as cluster:
            cluster.create_table("t", schema=SCHEMA, partition_by=["bucket(4, id)"])
            with cluster.client() as client:
                client.ingest("t", rows(0, 20), atomic=True)
                client.ingest("t", rows(20, ROWS - 20), atomic=True)
        for name in list(LOST)[:1] if quick else LOST:
            state = Path(folder) / name
            shutil.copytree(whole, state)
            (lost,) = state.glob(LOST[name])
            lost.unlink()
            _judge_start(outcome, name, lambda state=state: _cluster(state))
            words = [sys.executable, "-m", "ballista_py.node", "storage", "repair", state.as_uri(), "--apply"]
            done = subprocess.run([*words, "--patience-seconds", "2"], capture_output=True, text=True)
            if done.returncode:
                outcome.wrong.append(f"{name} is not repaired: {done.stdout.strip() or done.stderr.strip()}")
                continue
            with _cluster(state) as cluster:
                compare(outcome, cluster, ROWS)
                with cluster.client() as client:
                    client.ingest("t", rows(ROWS, 5), atomic=True)
                compare(outcome, cluster, ROWS + 5)
    outcome.size = f"{1 if quick else len(LOST)} kind(s) of document"
    return outcome


def _judge_start(outcome: Outcome, name: str, made: Callable[[], LocalCluster]) -> None:
    cluster = made()
    try:
        cluster.start()
    except BallistaError as error:
        _named(outcome, error)
        return
    try:
        _judge(outcome, cluster, ROWS)
    finally:
        cluster.stop()
    if not outcome.saw:
        outcome.wrong.append(f"nobody noticed that the {name} is gone")


def _judge(outcome: Outcome, cluster: LocalCluster, expected: int) -> None:
    """What queries say until the table is loaded or named: all rows, or what is wrong; never fewer."""
    said: Counter[str] = Counter()
    with cluster.client() as client:
        for _ in range(5):
            try:
                found, ids = counted(client)
            except BallistaError as error:
                said[error.code] += 1
                _named(outcome, error)
            else:
                said["answered"] += 1
                outcome.held("an answer", expected, found, ids)


def _named(outcome: Outcome, error: BallistaError) -> None:
    outcome.met(error)
    if error.code not in NAMED or "repair" not in error.message:
        outcome.wrong.append(f"not named: {error.code}: {error.message}")


def _cluster(state: Path) -> LocalCluster:
    return LocalCluster(1, 2, state.as_uri(), ttl_ms=TTL_MS)


def _is_noted(state: Path) -> bool:
    """Whether executors have noted the newest of all manifests, which takes them some seconds."""
    noted: Counter[str] = Counter()
    for path in state.glob("accelerations/seen/t-*/*.json"):
        for partition, (revision, _) in _document(path).get("manifests", {}).items():
            noted[partition] = max(noted[partition], revision)
    return all(noted[path.parent.name] >= _document(path)["header"]["revision"] for path in _manifests(state))


def _document(path: Path) -> dict:
    """A document as it lies there, without what the local store puts behind it."""
    return json.JSONDecoder().raw_decode(path.read_text(errors="replace"))[0]


def _kill_all(cluster: LocalCluster) -> None:
    for node in cluster.node_ids:
        cluster.kill(node)


def _manifests(state: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in state.glob("snapshots/t-*/*/manifest.json")}
