"""`POST /v1/sql` beside Flight, Flight SQL and DuckDB behind a route of FastAPI: lookups, and one large answer."""

from __future__ import annotations

import http.client
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import adbc_driver_flightsql.dbapi as flightsql
import pyarrow as pa

from _measure import claim
from _peers import Watch
from _service_rows import ROW_BYTES, numbers
from ballista_py import LocalCluster

ARROW = "application/vnd.apache.arrow.stream"
LOOKUP = "select x from numbers where id = ?"
AT_ONCE = 8
IDLE_S = 1.0
Lookup = Callable[[int], Any]


class Http:
    """One connection to `/v1/sql` that is kept."""

    def __init__(self, address: str) -> None:
        self._connection = http.client.HTTPConnection(address)
        self._used_at = time.perf_counter()

    def lookup(self, number: int) -> list[dict[str, Any]]:
        answer = self._posted({"sql": LOOKUP, "parameters": [number]}, "application/json")
        return json.loads(answer.read())

    def arrow(self, sql: str) -> int:
        answer = self._posted({"sql": sql}, ARROW)
        rows = pa.ipc.open_stream(answer).read_all().num_rows
        assert not answer.read()  # the end of the body, so that the connection can be used again
        return rows

    def close(self) -> None:
        self._connection.close()

    def _posted(self, body: dict[str, Any], accept: str) -> http.client.HTTPResponse:
        headers = {"Content-Type": "application/json", "Accept": accept}
        if time.perf_counter() - self._used_at > IDLE_S:  # the port may have closed it
            self._connection.close()
        self._used_at = time.perf_counter()
        self._connection.request("POST", "/v1/sql", json.dumps(body), headers)
        answer = self._connection.getresponse()
        assert answer.status == 200, answer.read()
        return answer


class Adbc:
    """One connection of the driver, its statement prepared once."""

    def __init__(self, url: str) -> None:
        self._connection = flightsql.connect(url, autocommit=True)
        self._cursor = self._connection.cursor()

    def lookup(self, number: int) -> list[Any]:
        self._cursor.execute(LOOKUP, (number,))
        return self._cursor.fetchall()

    def arrow(self, sql: str) -> int:
        with self._connection.cursor() as cursor:
            cursor.execute(sql)
            return int(cursor.fetch_arrow_table().num_rows)

    def close(self) -> None:
        self._cursor.close()
        self._connection.close()


class Ours:
    """Our own client, over Flight."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._client = cluster.client()

    def lookup(self, number: int) -> list[Any]:
        return self._client.sql(LOOKUP.replace("?", str(number))).to_pylist()

    def arrow(self, sql: str) -> int:
        return self._client.sql(sql).num_rows

    def close(self) -> None:
        self._client.close()


def run(rounds: int, lookups: int, megabytes: int) -> None:
    """Start a cluster and the peer over the same rows, measure in turns and print."""
    rows = megabytes * 1_000_000 // ROW_BYTES
    with ExitStack() as over:
        cluster = over.enter_context(LocalCluster(schedulers=1, executors=1))
        cluster.sql("create table numbers (id bigint not null, x double, y double) partitioned by (bucket(4, id))")
        cluster.ingest("numbers", numbers(rows))
        cluster.wait_until_loaded()
        peer, address = peer_of(rows, over)
        http_address = urlsplit(cluster.http_url()).netloc
        nodes = over.enter_context(Watch([cluster.pid(node_id) for node_id in cluster.node_ids]))
        alone = over.enter_context(Watch([peer.pid]))
        ways: dict[str, tuple[Callable[[], Any], Watch]] = {
            "POST /v1/sql": (lambda: Http(http_address), nodes),
            "Flight SQL, ADBC": (lambda: Adbc(cluster.flight_sql_url()), nodes),
            "Flight, our client": (lambda: Ours(cluster), nodes),
            "FastAPI and DuckDB": (lambda: Http(address), alone),
        }
        for at_once in (1, AT_ONCE):
            looked_up(ways, rounds, lookups, at_once, rows)
        answered(ways, rounds, rows)


def peer_of(rows: int, over: ExitStack) -> tuple[subprocess.Popen[str], str]:
    """The peer and its address."""
    script = str(Path(__file__).with_name("_service_peer.py"))
    peer = subprocess.Popen([sys.executable, script, str(rows)], stdout=subprocess.PIPE, text=True)
    over.callback(peer.wait)
    over.callback(peer.kill)
    assert peer.stdout is not None
    return peer, f"127.0.0.1:{int(peer.stdout.readline())}"


def looked_up(ways: Any, rounds: int, lookups: int, at_once: int, rows: int) -> None:
    """One row by its key, again and again, the ways in turn."""
    took: dict[str, list[float]] = {name: [] for name in ways}
    rates: dict[str, list[float]] = {name: [] for name in ways}
    cpu_s: dict[str, list[float]] = {name: [] for name in ways}
    with ExitStack() as over, ThreadPoolExecutor(at_once) as threads:
        clients = {name: [make() for _ in range(at_once)] for name, (make, _) in ways.items()}
        for made in clients.values():
            for client in made:
                over.callback(client.close)
        for turn in range(rounds + 1):
            for name, (_, watch) in ways.items():
                begun, cpu = time.perf_counter(), watch.cpu_s()
                each = [threads.submit(several, one.lookup, lookups // at_once, rows) for one in clients[name]]
                found = [seconds for one in each for seconds in one.result()]
                if turn:  # the first one warms up
                    rates[name].append(len(found) / (time.perf_counter() - begun))
                    cpu_s[name].append((watch.cpu_s() - cpu) / len(found))
                    took[name] += found
    print(f"\nlookups, {at_once} at once")
    for name in ways:
        spread = statistics.quantiles(took[name], n=100)
        print(
            f"  {name:<20}{statistics.median(rates[name]):>8.0f} a second  p50 {spread[49] * 1e3:>7.2f} ms  "
            f"p99 {spread[98] * 1e3:>7.2f} ms  {statistics.median(cpu_s[name]) * 1e3:>6.2f} ms of processor each"
        )


def several(lookup: Lookup, count: int, rows: int) -> list[float]:
    """Seconds of each of so many lookups."""
    found = []
    for n in range(count):
        begun = time.perf_counter()
        answer = lookup(n * 7_919 % rows)
        found.append(time.perf_counter() - begun)
        assert len(answer) == 1
    return found


def answered(ways: Any, rounds: int, rows: int) -> None:
    """All rows as Arrow, the ways in turn; the aim is beside Flight through the same scheduler."""
    took: dict[str, list[float]] = {name: [] for name in ways}
    cpu_s: dict[str, list[float]] = {name: [] for name in ways}
    with ExitStack() as over:
        clients = {name: make() for name, (make, _) in ways.items()}
        for client in clients.values():
            over.callback(client.close)
        peaks = dict.fromkeys(ways, 0)
        for turn in range(rounds + 1):
            for name, (_, watch) in ways.items():
                watch.reset_peak()
                begun, cpu = time.perf_counter(), watch.cpu_s()
                assert clients[name].arrow("select * from numbers") == rows
                seconds = time.perf_counter() - begun
                if turn:
                    took[name].append(seconds)
                    cpu_s[name].append(watch.cpu_s() - cpu)
                    peaks[name] = max(peaks[name], watch.peak_bytes)
    size = rows * ROW_BYTES
    print(f"\nan answer of {size / 1e6:.0f} MB as Arrow")
    median = {name: statistics.median(seconds) for name, seconds in took.items()}
    for name in ways:
        print(
            f"  {name:<20}{median[name] * 1e3:>8.0f} ms  {size / median[name] / 1e9:>5.2f} GB/s  "
            f"{statistics.median(cpu_s[name]):>6.2f} s of processor  peak {peaks[name] / 1e6:>6.0f} MB"
        )
    for name in ("Flight, our client", "Flight SQL, ADBC"):
        ratio = median[name] / median["POST /v1/sql"]
        claim(f"at least 0.7x of {name}", ratio >= 0.7, f"{ratio:.2f}x")
