"""The nodes of a `LocalCluster`: what each of them is told, and the processes that are told it."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from ballista_py.errors import ConfigError
from ballista_py.node.cli.node_words import AND
from ballista_py.node.config import EngineName
from ballista_py.node.local.processes import NodeProcess, ReservedPorts
from ballista_py.node.local.waiting import missing_after, not_members, still_starting
from ballista_py.runtime import Runtime
from ballista_py.transport.client.client import Client
from ballista_py.transport.security.credentials import Role

if TYPE_CHECKING:
    from ballista_py.transport.security.certificates import CertificateFolder

START_TIMEOUT_MS = 60_000
MEMORY_PERCENT = 80  # of the machine, for the engines of all executors: each would take as much for itself
STOP_TIMEOUT_S = 12.0
ADVERTISE = "node-advertise-address"
Processes = Literal["each", "one"]


class LocalNodes:
    """`scheduler-1`, …, `executor-1`, …: each with ports, and with data and a log in `folder`, over restarts too.

    `options` are told to every node, `apps` are the application files of schedulers; `environment` has the variables of
    each. With an `authority` each proves itself by a certificate. `processes` says whether each is a process, or all of
    them are one.
    """

    def __init__(
        self,
        folder: Path,
        schedulers: int,
        executors: int,
        options: Mapping[str, str],
        *,
        threads: int | None,
        engine: EngineName,
        detached: bool,
        authority: CertificateFolder | None,
        environment: Callable[[str], Mapping[str, str]],
        apps: Mapping[str, str] | None = None,
        processes: Processes = "each",
    ) -> None:
        if processes not in get_args(Processes):
            raise ConfigError(f"processes: {processes!r} is neither 'each' nor 'one'")
        self._folder = folder
        self._environment = environment
        self._options = options
        self._detached = detached
        self._authority = authority
        self.apps = dict(apps or {})
        self._reserved = ReservedPorts(2 * schedulers + executors)
        given = iter(self._reserved.numbers())
        self.ports: dict[str, dict[str, int]] = {}
        self.processes: dict[str, NodeProcess] = {}
        for number in range(schedulers):
            self._add("scheduler", number, {"flight": next(given), "control": next(given)})
        host = options.get(ADVERTISE, "127.0.0.1")
        control = [f"{host}:{ports['control']}" for ports in self.ports.values()]
        share = threads or max(1, (os.cpu_count() or 1) // max(1, executors))
        words = ["--parts-port", "0", "--threads", str(share), "--engine", engine]
        if engine == "duckdb" and "memory-limit" not in options:
            words += ["--memory-limit", f"{max(1, MEMORY_PERCENT // max(1, executors))}%"]
        words += [word for address in control for word in ("--scheduler-address", address)]
        for number in range(executors):
            self._add("executor", number, {"data": next(given)}, words)
        if processes == "one":
            self.processes = dict.fromkeys(self.processes, self._together())

    def wait_until_members(
        self,
        names: Sequence[str],
        before: Mapping[str, str],
        instances: Callable[[], Mapping[str, str]],
        client_of: Callable[[str], Client],
        runtime: Runtime,
    ) -> None:
        """Return when these are members, under other `instances` than `before`, and the schedulers of them answer.

        Raises `ConfigError` for one that ends, or is not so far in time.
        """

        def missing() -> list[str]:
            for name in names:
                self.processes[name].check()
            return not_members(names, before, instances()) or still_starting(self.addresses(names), client_of)

        absent = missing_after(START_TIMEOUT_MS, missing, runtime)
        if absent:
            raise ConfigError(f"not ready after {START_TIMEOUT_MS / 1e3:.0f} s: {', '.join(absent)}")

    def start(self, names: Collection[str]) -> tuple[str, ...]:
        """Start the processes of these nodes, which must not run; the names of all nodes that they are."""
        processes = _distinct(self.processes[name] for name in names)
        for process in processes:
            process.start()
        return tuple(name for name, process in self.processes.items() if process in processes)

    def stop(self) -> None:
        """End every node and let go of the ports. Stopping twice is fine."""
        processes = _distinct(self.processes.values())
        for process in processes:
            process.interrupt()  # all of them: there is nobody to hand anything over to
        for process in processes:
            process.join(STOP_TIMEOUT_S)
        self._reserved.close()

    def process(self, node_id: str) -> NodeProcess:
        """The process of a node. Raises `ConfigError` for a node that there is not."""
        if node_id not in self.processes:
            raise ConfigError(f"this cluster has no node '{node_id}'; it has {', '.join(self.processes)}")
        return self.processes[node_id]

    def addresses(self, names: Collection[str] | None = None) -> list[str]:
        """`host:port` for clients, of every scheduler that is running, or of those that have one of these names."""
        wanted = self.ports if names is None else names
        flight = {
            name: ports["flight"] for name, ports in self.ports.items() if "flight" in ports and name in wanted
        }
        return [f"127.0.0.1:{port}" for name, port in flight.items() if self.processes[name].running]

    def _add(self, role: Role, number: int, ports: dict[str, int], more: Sequence[str] = ()) -> None:
        node_id = f"{role}-{number + 1}"
        words = [
            "node",
            *_words(self._options),
            "--role",
            role,
            *_words({f"{k}-port": v for k, v in ports.items()}),
        ]
        words += ["--app", self.apps[node_id]] if node_id in self.apps else []
        words += [*more, "--node-id", node_id, "--data-dir", str(self._folder / node_id)]
        words += ["--http-port", "0", "--metrics-port", "0", *self._credentials(node_id, role)]
        self.ports[node_id] = ports
        log, variables = self._folder / f"{node_id}.log", self._environment(node_id)
        self.processes[node_id] = NodeProcess(node_id, words, log, self._detached, variables)

    def _together(self) -> NodeProcess:
        """One process of all nodes."""
        first, *others = self.processes.values()
        words = [*first.arguments, *(word for one in others for word in (AND, *one.arguments[1:]))]
        variables = {name: value for one in (first, *others) for name, value in one.environment.items()}
        log = self._folder / "nodes.log"
        return NodeProcess("all nodes", words, log, self._detached, variables, of_template=False)

    def _credentials(self, node_id: str, role: Role) -> list[str]:
        """The arguments by which a node proves itself, or is told that nobody does."""
        if self._authority is None:
            return ["--allow-insecure-connections"]
        self._authority.add(node_id, role, [self._options[ADVERTISE]] if ADVERTISE in self._options else [])
        files = self._authority.tls(node_id)
        return [
            *("--node-mtls-ca-certificate-file", str(files.ca_file)),
            *("--node-mtls-certificate-file", str(files.certificate_file)),
            *("--node-mtls-key-file", str(files.key_file)),
            *("--node-mtls-removed-file", str(self._authority.removed_file)),
        ]


def _distinct(processes: Iterable[NodeProcess]) -> list[NodeProcess]:
    return list({id(process): process for process in processes}.values())


def _words(options: Mapping[str, str | int]) -> list[str]:
    return [word for name, value in options.items() for word in (f"--{name}", str(value))]


def app_files(app: str | Path | Mapping[str, str | Path] | None, schedulers: int) -> dict[str, str]:
    """The application file of each scheduler that has one. Raises `ConfigError` for a name that no scheduler has."""
    names = [f"scheduler-{number + 1}" for number in range(schedulers)]
    if app is None:
        return {}
    given = app if isinstance(app, Mapping) else dict.fromkeys(names, app)
    unknown = sorted(given.keys() - {*names})
    if unknown:
        raise ConfigError(f"this cluster has no scheduler '{unknown[0]}'; it has {', '.join(names)}")
    return {name: str(Path(path).resolve()) for name, path in given.items()}
