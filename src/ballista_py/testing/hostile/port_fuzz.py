"""Spoilt requests at every port, and spoilt files: `python -m ballista_py.testing.hostile.port_fuzz --seconds 3600`.

Real nodes without certificates, so that every verb is asked and not only who asks: requests over HTTP (`http`,
`metrics`), commands of Flight SQL (`flight`), our own commands in JSON at schedulers and executors (`json`, `owner`),
messages of the control port (`control`); and files of configuration, tokens and secrets (`config`, `tokens`,
`secrets`). The nodes must live and go on answering, every request must be answered, every refusal be one line without
anything of the node in it, no log hold a traceback, and no node grow. Every case is a function of its seed.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc

from ballista_py import LocalCluster
from ballista_py.errors import BallistaError, ConfigError
from ballista_py.node.config import load_config
from ballista_py.node.secrets_file import read_secrets
from ballista_py.runtime import SystemRuntime
from ballista_py.testing.hostile.port_inputs import DOORS, Input, input_of
from ballista_py.testing.hostile.raw_flight import Data, RawFlight
from ballista_py.testing.hostile.tally import Find, Tally
from ballista_py.transport.security.tokens import read_tokens

ANSWER_S = 60.0
ROUND = 40
GROWTH_MIB = 700
LINE_CHARS = 5_000
CONTROL = "/ballista_py.control.v1.Control/"
NODES = ("scheduler-1", "executor-1")
_NEVER = re.compile(
    r"Traceback|internal error|File \"|\.py\b|site-packages|0x[0-9a-f]{6}|/tmp/|\n.", re.IGNORECASE
)
_NO_ANSWER = "Deadline Exceeded"  # what gRPC itself says when the time of a call is over
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3}) ")
_SAID_IN_LOG = ("Traceback", "that its caller is not told", "Segmentation fault", "never retrieved")


class Wrong(Exception):
    """An answer, or none, that no hostile request should get."""


def fuzz(first_seed: int, seconds: float, doors: tuple[str, ...] = DOORS) -> Tally:
    """Try the cases from `first_seed` on at all doors in turn, for about so many seconds, one round at least."""
    tally, runtime = Tally("refused"), SystemRuntime()
    with ExitStack() as stack:
        nodes = _Nodes(stack)
        until_ms = runtime.monotonic_ms() + seconds * 1e3
        seed = first_seed
        while True:
            for door in doors:
                for number in range(seed, seed + ROUND):
                    _try(nodes, door, number, tally)
                _look(nodes, door, seed, tally)
            seed += ROUND
            if runtime.monotonic_ms() >= until_ms:
                return tally


def replay(inputs: Iterable[Input]) -> None:
    """Send these inputs to nodes of their own, one after the other. Raises `Wrong` for what is found."""
    with ExitStack() as stack:
        nodes = _Nodes(stack)
        for one in inputs:
            nodes.send(one)
        nodes.check()


def _try(nodes: _Nodes, door: str, seed: int, tally: Tally) -> None:
    tally.cases[door] += 1
    try:
        tally.counted[door] += nodes.send(input_of(door, seed))
    except Wrong as wrong:
        _found(tally, Find(door, seed, str(wrong)))


def _look(nodes: _Nodes, door: str, seed: int, tally: Tally) -> None:
    try:
        nodes.check()
    except Wrong as wrong:
        _found(tally, Find(door, seed, f"after the {ROUND} cases from here on: {wrong}"))


def _found(tally: Tally, find: Find) -> None:
    tally.finds.append(find)
    print(find, flush=True)


class _Nodes:
    """A scheduler and an executor as processes, and a way to every door. `send` says whether it was refused."""

    def __init__(self, stack: ExitStack) -> None:
        options = {"otlp-metrics-table": "metrics"}
        self._cluster = stack.enter_context(LocalCluster(schedulers=1, executors=1, node_options=options))
        self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self._cluster.sql("create table kept (id bigint) partitioned by (bucket(2, id))")
        self._cluster.sql("create table sound (id bigint) partitioned by (bucket(2, id))")
        self._cluster.sql("insert into sound select * from range(100)")
        ports = self._cluster.ports
        public, owner = (
            f"ballista://127.0.0.1:{ports[node][name]}"
            for node, name in zip(NODES, ("flight", "data"), strict=True)
        )
        self._flights = {
            "flight": stack.enter_context(RawFlight(public, answer_s=ANSWER_S)),
            "owner": stack.enter_context(RawFlight(owner, answer_s=ANSWER_S)),
        }
        self._flights["json"] = self._flights["flight"]
        self._control = stack.enter_context(grpc.insecure_channel(f"127.0.0.1:{ports[NODES[0]]['control']}"))
        shown = {
            "http": self._cluster.status_url(NODES[0]),
            "metrics": self._cluster.status_url(NODES[0], metrics=True),
        }
        self._http = {name: urlsplit(url).port or 0 for name, url in shown.items()}
        self._logged = dict.fromkeys(NODES, 0)
        self._before = {node: self._memory_mib(node) for node in NODES}
        files: dict[str, Callable[[str], Any]] = {
            "config": partial(load_config, overrides={}),
            "tokens": lambda path: read_tokens(Path(path)),
            "secrets": read_secrets,
        }
        self._files = files

    def send(self, given: Input) -> bool:
        """Send it, and judge what comes back. Raises `Wrong`."""
        if given.door in self._http:
            return self._over_http(given)
        if given.door in self._files:
            return self._as_file(given)
        try:
            self._call(given)
        except grpc.RpcError as error:
            _judge(error)
            return True
        return False

    def check(self) -> None:
        """Whether the nodes are well. Raises `Wrong`."""
        for node in NODES:
            log = self._cluster.log(node)
            new, self._logged[node] = log[self._logged[node] :], len(log)
            for words in _SAID_IN_LOG:
                if words in new:
                    raise Wrong(f"the log of {node} says: {new[new.index(words) :][:600]}")
            grown = self._memory_mib(node) - self._before[node]
            if grown > GROWTH_MIB:
                raise Wrong(f"{node} has grown by {grown} MiB")
        try:
            found = self._cluster.sql("select count(*) as n from sound").to_pylist()
        except BallistaError as error:
            raise Wrong(f"a harmless query failed: {error}") from None
        if found != [{"n": 100}]:
            raise Wrong(f"a harmless query was answered by {found}")

    def _call(self, given: Input) -> None:
        if given.door == "control":
            call = self._control.stream_stream(CONTROL + given.method)
            list(call(iter([given.data]), timeout=ANSWER_S))
            return
        flight = self._flights[given.door]
        method, _, action = given.method.partition(" ")
        if method == "DoAction":
            flight.action(action, given.data)
        elif method == "DoGet":
            flight.get(given.data)
        elif method in ("DoPut", "DoExchange"):
            (flight.put if method == "DoPut" else flight.exchange)(given.data, [Data()])
        elif method == "GetFlightInfo":
            flight.info(given.data)
        else:
            flight.raw(method, [given.data])

    def _over_http(self, given: Input) -> bool:
        with socket.create_connection(("127.0.0.1", self._http[given.door]), timeout=ANSWER_S) as link:
            said = bytearray()
            try:
                link.sendall(given.data)
                link.shutdown(socket.SHUT_WR)
                while piece := link.recv(1 << 16):
                    said += piece
            except TimeoutError:
                raise Wrong("the HTTP port did not answer, nor end the connection") from None
            except OSError:  # it does not read on when it has refused
                pass
        codes = [int(code) for code in _STATUS.findall(said)]
        if said and not said.startswith(b"HTTP/1."):
            raise Wrong(f"what came back is not HTTP: {bytes(said[:80])!r}")
        if 500 in codes or b"Traceback" in said:
            raise Wrong(f"the HTTP port failed: {bytes(said[:300])!r}")
        return not codes or max(codes) >= 400

    def _as_file(self, given: Input) -> bool:
        path = self._folder / given.door
        path.write_bytes(given.data)
        try:
            self._files[given.door](str(path))
        except ConfigError as error:
            said = str(error)
            if "\n" in said or len(said) > LINE_CHARS or not said.isprintable():
                raise Wrong(f"it was refused by more than a line that can be printed: {said[:300]!r}") from None
            return True
        except Exception as error:
            raise Wrong(f"it raised {type(error).__name__}: {error}") from None
        return False

    def _memory_mib(self, node: str) -> int:
        try:
            status = Path(f"/proc/{self._cluster.pid(node)}/status").read_text()
        except OSError:
            raise Wrong(f"{node} has ended; its log ends with: {self._cluster.log(node)[-600:]}") from None
        if "VmHWM:" not in status:
            raise Wrong(f"{node} has ended; its log ends with: {self._cluster.log(node)[-600:]}")
        return int(status.partition("VmHWM:")[2].split()[0]) >> 10


def _judge(error: grpc.RpcError) -> None:
    said, code = error.details() or "", error.code()
    if code is grpc.StatusCode.DEADLINE_EXCEEDED and said == _NO_ANSWER:
        raise Wrong(f"no answer in {ANSWER_S:.0f} s") from None
    if code in (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL):
        raise Wrong(f"it was refused as a fault of the node's own ({code.name}): {said[:300]!r}") from None
    if _NEVER.search(said) or said.startswith("Unexpected"):
        raise Wrong(f"the error says more than it should: {said[:300]!r}") from None


def main() -> int:
    """Fuzz as long as the command line says; status 1 when something was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3_600.0)
    parser.add_argument("--first-seed", type=int, default=int(os.environ.get("BALLISTA_WIRE_FIRST_SEED", "0")))
    parser.add_argument("--doors", default=",".join(DOORS))
    options = parser.parse_args()
    tally = fuzz(options.first_seed, options.seconds, tuple(options.doors.split(",")))
    print(tally)
    return 1 if tally.finds else 0


if __name__ == "__main__":
    sys.exit(main())
