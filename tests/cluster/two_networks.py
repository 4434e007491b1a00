"""Schedulers in one network, executors in another, and a link between them that goes down and comes up again.

    unshare -rn python two_networks.py FOLDER

prints one JSON object: for each fault, how long it took until everything was back, and what was counted. Runs as
root of a network namespace of its own; nothing outside it is touched.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from ballista_py import connect
from ballista_py.errors import BallistaError
from ballista_py.node.local.status_reader import read_status
from ballista_py.runtime import SystemRuntime
from ballista_py.secret import Secret
from ballista_py.transport.security.certificates import CertificateFolder
from ballista_py.transport.security.credentials import Tls

HERE, THERE = "10.77.0.1", "10.77.0.2"
VIEWER = "a-viewer-of-some-length"
TTL_MS = "2000"
DOWN_S = 4.0
START_S = 60.0
BACK_S = 40.0  # what the script waits; the test that runs it says what is allowed
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("x", pa.int64())])
COUNT = "select count(*) as n, count(distinct id) as ids, sum(x) as x from ledger where id < {below}"


def ip(*words: str, inside: int | None = None) -> None:
    """Run `ip`, in the network of the process `inside`."""
    entered = [] if inside is None else ["nsenter", "-t", str(inside), "-n"]
    subprocess.run([*entered, "ip", *words], check=True)


def other_network() -> subprocess.Popen[bytes]:
    """A process whose network is reached over the link `near` and `far` alone."""
    holder = subprocess.Popen(["unshare", "-n", "sleep", "infinity"])
    until = time.monotonic() + 10
    own = Path("/proc/self/ns/net").readlink()
    while Path(f"/proc/{holder.pid}/ns/net").readlink() == own:
        assert time.monotonic() < until, "no second network"
        time.sleep(0.02)
    ip("link", "set", "lo", "up")
    ip("link", "add", "near", "type", "veth", "peer", "name", "far")
    ip("link", "set", "far", "netns", str(holder.pid))
    ip("addr", "add", f"{HERE}/24", "dev", "near")
    ip("link", "set", "near", "up")
    for words in (
        ("addr", "add", f"{THERE}/24", "dev", "far"),
        ("link", "set", "far", "up"),
        ("link", "set", "lo", "up"),
    ):
        ip(*words, inside=holder.pid)
    return holder


class Cluster:
    """Two schedulers here and two executors there, with certificates; a client that writes and counts."""

    def __init__(self, folder: Path, there: int, stack: ExitStack) -> None:
        self._certificates = CertificateFolder(folder / "tls", SystemRuntime())
        self._certificates.init()
        self._trust = Tls(ca_file=str(self._certificates.ca_file))
        self._viewers = folder / "viewers"
        self._viewers.write_text(f"test {VIEWER}\n")
        self._folder = folder
        self._stack = stack
        control = [f"{HERE}:{50062 + number}" for number in (0, 10)]
        for number in (0, 10):
            ports = ["--flight-port", str(50061 + number), "--control-port", str(50062 + number)]
            ports += ["--http-port", "0"]
            self._start(f"scheduler-{number // 10 + 1}", "scheduler", HERE, ports, [])
        known = [word for address in control for word in ("--scheduler-address", address)]
        for number in (1, 2):
            ports = ["--data-port", str(50080 + number), "--http-port", str(8090 + number), "--parts-port", "0"]
            ports += ["--threads", "1", *known]
            self._start(f"executor-{number}", "executor", THERE, ports, ["nsenter", "-t", str(there), "-n"])
        self._url = f"{HERE}:50061,{HERE}:50071"
        self.rows = 0

    def _start(self, node_id: str, role: str, host: str, more: list[str], entered: list[str]) -> None:
        self._certificates.add(node_id, role, [host])
        files = self._certificates.tls(node_id)
        words = [
            *("--role", role, "--node-id", node_id, "--state-location", (self._folder / "state").as_uri()),
            *("--node-bind-address", host, "--node-advertise-address", host),
            *("--ttl-ms", TTL_MS, "--skew-ms", "300", "--partition-assignment-interval", TTL_MS),
            *("--metrics-port", "0", "--data-dir", str(self._folder / node_id)),
            *("--status-tokens-file", str(self._viewers)),
            *("--node-mtls-ca-certificate-file", str(files.ca_file)),
            *("--node-mtls-certificate-file", str(files.certificate_file)),
            *("--node-mtls-key-file", str(files.key_file)),
        ]
        log = self._stack.enter_context((self._folder / f"{node_id}.log").open("wb"))
        node = subprocess.Popen(
            [*entered, sys.executable, "-m", "ballista_py.node", "node", *words, *more], stderr=log
        )
        self._stack.callback(node.wait)
        self._stack.callback(node.kill)

    def client(self) -> Any:
        return connect(self._url, tls=self._trust, retry_reads=True)

    def links_are_up(self) -> None:
        """That both executors hear both schedulers."""
        for number in (1, 2):
            try:
                url = f"https://{THERE}:{8090 + number}/status"
                heard = json.loads(read_status(url, self._trust, Secret(VIEWER)))["schedulers"]
            except ValueError as error:
                raise BallistaError(str(error)) from None
            if heard != ["scheduler-1", "scheduler-2"]:
                raise BallistaError(f"executor-{number} hears {heard}")

    def until_done(self, what: Callable[[Any], Any], within_s: float) -> float:
        """Seconds until `what` went well for a new client."""
        started = time.monotonic()
        while True:
            try:
                with self.client() as client:
                    what(client)
                return time.monotonic() - started
            except BallistaError:
                if time.monotonic() - started > within_s:
                    raise
                time.sleep(0.1)

    def make_table(self, client: Any) -> None:
        held = {row["node_id"] for row in client.members()}
        if len(held) < 4:
            raise BallistaError(f"only {held} are there")
        if not client.tables():
            client.sql("create table ledger (id bigint not null, x bigint) partitioned by (bucket(6, id))")

    def write(self, client: Any) -> None:
        """Ten rows more, sent until they are acknowledged; the next ones are others."""
        first = self.rows
        rows = pa.table({"id": range(first, first + 10), "x": range(first, first + 10)}, schema=SCHEMA)
        client.ingest("ledger", rows, token=f"from-{first}")
        self.rows = first + 10

    def is_right(self, client: Any, below: int) -> bool:
        """Whether all rows that were acknowledged are counted, each once."""
        found = client.sql(COUNT.format(below=below)).to_pylist()
        return bool(found == [{"n": below, "ids": below, "x": below * (below - 1) // 2}])

    def during(self, fault: Callable[[], None], repair: Callable[[], None]) -> dict[str, Any]:
        """Write and count while the link is down, then until both work again."""
        over, answers, written = threading.Event(), {"right": 0, "wrong": 0}, self.rows

        def count() -> None:
            while not over.is_set():
                with suppress(BallistaError), self.client() as client:
                    answers["right" if self.is_right(client, written) else "wrong"] += 1
                over.wait(0.05)

        def write() -> None:
            while not over.is_set():
                with suppress(BallistaError), self.client() as client:
                    self.write(client)
                over.wait(0.1)

        threads = [threading.Thread(target=work, daemon=True) for work in (count, write)]
        for thread in threads:
            thread.start()
        time.sleep(0.5)
        fault()
        time.sleep(DOWN_S)
        repair()
        over.set()
        took_s = self.until_done(lambda client: (self.links_are_up(), self.is_right(client, written)), BACK_S)
        for thread in threads:
            thread.join(BACK_S)
        self.until_done(self.write, BACK_S)
        with self.client() as client:
            complete = self.is_right(client, self.rows)
        hangs = any(thread.is_alive() for thread in threads)
        return {**answers, "back_s": took_s, "complete": complete, "rows": self.rows - written, "hangs": hangs}


def main() -> None:
    folder = Path(sys.argv[1])
    with ExitStack() as stack:
        there = other_network()
        stack.callback(there.wait)
        stack.callback(there.kill)
        cluster = Cluster(folder, there.pid, stack)
        cluster.until_done(cluster.make_table, START_S)
        cluster.until_done(cluster.write, START_S)

        def near(state: str) -> Callable[[], None]:
            return lambda: ip("link", "set", "near", state)

        def far(state: str) -> Callable[[], None]:
            return lambda: ip("link", "set", "far", state, inside=there.pid)

        def blackhole(verb: str) -> Callable[[], None]:
            return lambda: ip("route", verb, "blackhole", f"{HERE}/32", inside=there.pid)

        faults = {
            "near end down": (near("down"), near("up")),
            "far end down": (far("down"), far("up")),
            "one way lost": (blackhole("add"), blackhole("del")),
        }
        print(json.dumps({name: cluster.during(*both) for name, both in faults.items()}))


if __name__ == "__main__":
    main()
