"""Node processes on this machine: started, watched and killed by the local cluster."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from attrs import define, field

from ballista_py.errors import ConfigError
from ballista_py.node.local.forked import TEMPLATE, ForkedNode

LOG_TAIL_LINES = 5


@define(eq=False)
class NodeProcess:
    """One node as a child process. Its log goes to a file of its own; a restart keeps ports and log.

    Its temporary files are kept beside the log, so that those of a killed node go when that folder goes. It inherits
    the variables of this process, with those of `environment` besides. One that is not `detached`, and has no variables
    of its own, is a fork of a template (`forked.py`), which takes a fifth of a start, if it is one `of_template`.
    """

    node_id: str
    arguments: Sequence[str]
    log_path: Path
    detached: bool = False
    environment: Mapping[str, str] = field(factory=dict)
    of_template: bool = True
    _process: subprocess.Popen[bytes] | ForkedNode | None = field(default=None, init=False)

    def start(self) -> None:
        """Start the process; it must not be running."""
        assert not self.running, f"{self.node_id} is running"
        temporary = self.log_path.with_suffix(".tmp")
        temporary.mkdir(exist_ok=True)
        if self.of_template and not self.detached and not self.environment:
            self._process = TEMPLATE.start(self.node_id, self.arguments, self.log_path, temporary)
            if self._process is not None:
                return
        command = [sys.executable, "-m", "ballista_py.node", *self.arguments]
        if not self.detached:
            command += ["--parent-pid", str(os.getpid())]
        environment = {**os.environ, **self.environment, "TMPDIR": str(temporary)}
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env=environment
            )

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return self._process is not None and self._process.poll() is None

    @property
    def returncode(self) -> int | None:
        """How the process ended: 0 when it was told to and did in time; None while it runs or was never started."""
        return None if self._process is None else self._process.poll()

    @property
    def pid(self) -> int:
        """The process id; the process must have been started."""
        assert self._process is not None, f"{self.node_id} was never started"
        return self._process.pid

    def check(self) -> None:
        """Raise `ConfigError` with the end of its log if the process ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            lines = self.log_path.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
            said = lines[-1] if lines else "it said nothing"
            raise ConfigError(f"node {self.node_id} ended with code {self._process.returncode}: {said}")

    def kill(self) -> None:
        """`kill -9`, and wait until the process is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def terminate(self) -> None:
        """Ask the node to hand over what it has, and to end then; `join` waits for it."""
        if self.running:
            os.kill(self.pid, signal.SIGTERM)

    def interrupt(self) -> None:
        """Ask the node to end at once; `join` waits for it."""
        if self.running:
            os.kill(self.pid, signal.SIGINT)

    def join(self, timeout_s: float) -> None:
        """Wait until the process has ended; after `timeout_s` it is killed."""
        if self._process is None:
            return
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()


class ReservedPorts:
    """Ports of this machine that nobody else is given by the system until `close`, though nodes can listen there.

    They are bound, and nobody listens: the system then gives them to nobody who asks for any free port, nor to a
    connection that goes out, and lets in whoever names them. So they cannot be taken between their choice and the
    start of the node that gets them, nor while that node is down.
    """

    def __init__(self, count: int) -> None:
        self._sockets = [_bound() for _ in range(count)]

    def numbers(self) -> list[int]:
        """The ports, all different."""
        return [s.getsockname()[1] for s in self._sockets]

    def close(self) -> None:
        """Let go of them. Closing twice is fine."""
        for s in self._sockets:
            s.close()


def _bound() -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("", 0))  # of every interface, because nodes may be told to take another one
    return made
